//! How bytes leave: at once where the kernel takes them, else from the
//! backlog; through WebSocket and TLS where there are any.

use std::io::{self, IoSlice, Write};

use dunlin_base::SendBuf;
use dunlin_base::transport::{CloseCause, NetEvent, NetEventKind};
use dunlin_quic::{Backlog, SLICES_MAX};
use mio::net::TcpStream;

use super::{Cx, Phase, Scratch, StreamConn};
use crate::tls::TlsLayer;
use crate::ws::{self, HEADER_BYTES_MAX, Role};
use crate::{Counters, NetLimits};

/// Bytes encrypted at once: a few records, and little to keep when the kernel
/// takes less.
const ENCRYPT_BYTES: usize = 48 << 10;

/// The header of a WebSocket message, if there is one.
type Head = ([u8; HEADER_BYTES_MAX], usize);

impl StreamConn {
    /// Takes all of `data`; returns how many bytes left at once.
    pub(crate) fn send(
        &mut self,
        data: &mut SendBuf,
        limits: &NetLimits,
        counters: &mut Counters,
        scratch: &mut Scratch,
    ) -> Result<usize, CloseCause> {
        let total = data.len();
        if self.phase > Phase::Open || self.finished || self.broken.is_some() {
            data.clear();
            return Ok(total);
        }
        if total == 0 {
            return Ok(0);
        }
        self.owed += total;
        let role = self
            .layers
            .as_ref()
            .and_then(|l| l.ws.as_ref())
            .map(ws::WsLayer::role);
        match role {
            Some(Role::Client) => self.put_masked(data, scratch),
            Some(Role::Server) => {
                let mut bytes = [0; HEADER_BYTES_MAX];
                let n = ws::header(total, None, &mut bytes);
                self.put(data, (bytes, n), counters, scratch);
            }
            None => self.put(data, ([0; HEADER_BYTES_MAX], 0), counters, scratch),
        }
        let left = self.write(counters, scratch);
        let wire = self.layers.as_ref().and_then(|l| l.tls.as_ref());
        let kept = self.backlog.len() + wire.map_or(0, |tls| tls.wire.len());
        if kept > limits.backlog_bytes_max {
            counters.backlog_overflows += 1;
            return Err(CloseCause::failed(
                "the peer reads too slowly: backlog limit reached",
            ));
        }
        Ok(left)
    }

    /// Whether the connection must be run although the kernel said nothing.
    pub(crate) fn wants_run(&self) -> bool {
        self.broken.is_some()
    }

    /// A client's message: masked, so copied.
    fn put_masked(&mut self, data: &mut SendBuf, scratch: &mut Scratch) {
        let key = scratch.masks.next();
        let mut bytes = [0; HEADER_BYTES_MAX];
        let n = ws::header(data.len(), Some(key), &mut bytes);
        self.backlog.put_slice(bytes.get(..n).unwrap_or_default());
        let mut at = 0;
        for part in data.slices() {
            scratch.plain.clear();
            scratch.plain.extend_from_slice(part);
            ws::mask(&mut scratch.plain, key, at);
            self.backlog.put_slice(&scratch.plain);
            at += part.len();
        }
        data.clear();
    }

    /// Writes `head` and `data` directly if nothing waits; what does not leave
    /// goes to the backlog.
    fn put(
        &mut self,
        data: &mut SendBuf,
        head: Head,
        counters: &mut Counters,
        scratch: &mut Scratch,
    ) {
        let (head, n) = head;
        let head = head.get(..n).unwrap_or_default();
        let mut done = 0;
        if self.phase == Phase::Open && self.backlog.is_empty() {
            done = match self.layers.as_ref().and_then(|l| l.tls.as_ref()) {
                None => self.write_direct(head, data, counters),
                Some(tls) if tls.wire.is_empty() => {
                    self.encrypt_direct(head, data, counters, scratch)
                }
                Some(_) => 0,
            };
        }
        if done < head.len() {
            self.backlog.put_slice(head.get(done..).unwrap_or_default());
        }
        let skip = done.saturating_sub(head.len());
        if skip < data.len() {
            self.backlog.put(data, skip);
        }
        data.clear();
    }

    /// Writes without keeping anything; returns how much was written.
    fn write_direct(&mut self, head: &[u8], data: &SendBuf, counters: &mut Counters) -> usize {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let head = (!head.is_empty()).then_some(head);
        let filled = slices
            .iter_mut()
            .zip(head.into_iter().chain(data.slices()))
            .map(|(slice, part)| *slice = IoSlice::new(part))
            .count();
        let slices = slices.get(..filled).unwrap_or_default();
        let n = self.write_some(slices);
        counters.tcp_bytes_out += n as u64;
        n
    }

    /// Encrypts a batch in as few records as it takes, and writes them.
    /// Returns how much was encrypted: all or nothing.
    fn encrypt_direct(
        &mut self,
        head: &[u8],
        data: &SendBuf,
        counters: &mut Counters,
        scratch: &mut Scratch,
    ) -> usize {
        let total = head.len() + data.len();
        let Some(mut layers) = self.layers.take() else {
            return 0;
        };
        let mut encrypted = 0;
        if let Some(tls) = &mut layers.tls
            && total <= ENCRYPT_BYTES
        {
            scratch.tls_out.clear();
            let plain = if head.is_empty() && data.chunks().is_empty() {
                data.tail()
            } else {
                scratch.plain.clear();
                scratch.plain.extend_from_slice(head);
                data.slices()
                    .for_each(|part| scratch.plain.extend_from_slice(part));
                &scratch.plain
            };
            match tls.encrypt(plain, &mut scratch.tls_out) {
                Ok(()) => {
                    encrypted = total;
                    self.put_wire(tls, scratch.tls_out.bytes(), total, counters);
                }
                Err(error) => {
                    self.broken = Some(CloseCause::failed(&dunlin_quic::describe(&error)))
                }
            }
        }
        self.layers = Some(layers);
        encrypted
    }

    /// Writes encoded bytes, or keeps what the kernel does not take.
    pub(super) fn put_wire(
        &mut self,
        tls: &mut TlsLayer,
        bytes: &[u8],
        plain: usize,
        counters: &mut Counters,
    ) {
        tls.in_wire += plain;
        let mut n = 0;
        if tls.wire.is_empty() && !bytes.is_empty() {
            n = self.write_some(&[IoSlice::new(bytes)]);
            counters.tcp_bytes_out += n as u64;
        }
        if let Some(rest) = bytes.get(n..).filter(|rest| !rest.is_empty()) {
            tls.wire.put_slice(rest);
        }
    }

    /// Writes what waits until the kernel takes no more; returns the credit
    /// that this frees.
    pub(super) fn write(&mut self, counters: &mut Counters, scratch: &mut Scratch) -> usize {
        if self.phase == Phase::Connecting {
            return 0;
        }
        let wrote = match self.layers.take() {
            Some(mut layers) => {
                let wrote = match &mut layers.tls {
                    Some(tls) => self.write_encrypted(tls, counters, scratch),
                    None => self.write_plain(counters),
                };
                self.layers = Some(layers);
                wrote
            }
            None => self.write_plain(counters),
        };
        self.settle(wrote)
    }

    fn write_plain(&mut self, counters: &mut Counters) -> usize {
        let mut backlog = core::mem::take(&mut self.backlog);
        let wrote = self.drain(&mut backlog, counters);
        self.backlog = backlog;
        wrote
    }

    /// Encrypts the backlog a few records at a time, as the kernel takes them.
    fn write_encrypted(
        &mut self,
        tls: &mut TlsLayer,
        counters: &mut Counters,
        scratch: &mut Scratch,
    ) -> usize {
        let mut wrote = 0;
        loop {
            self.drain(&mut tls.wire, counters);
            if !tls.wire.is_empty() {
                return wrote;
            }
            wrote += core::mem::take(&mut tls.in_wire);
            // Before the handshake is complete nothing can be encrypted.
            if self.backlog.is_empty() || self.broken.is_some() || !tls.is_open() {
                return wrote;
            }
            scratch.tls_out.clear();
            let mut gathered = 0;
            while gathered < ENCRYPT_BYTES && !self.backlog.is_empty() {
                let front = self.backlog.front();
                let piece = front.get(..ENCRYPT_BYTES - gathered).unwrap_or(front);
                let n = piece.len();
                if let Err(error) = tls.encrypt(piece, &mut scratch.tls_out) {
                    self.broken = Some(CloseCause::failed(&dunlin_quic::describe(&error)));
                    return wrote;
                }
                self.backlog.advance(n);
                gathered += n;
            }
            self.put_wire(tls, scratch.tls_out.bytes(), gathered, counters);
        }
    }

    /// Writes bytes that need no more treatment.
    fn drain(&mut self, bytes: &mut Backlog, counters: &mut Counters) -> usize {
        let mut wrote = 0;
        while !bytes.is_empty() && !self.blocked && self.broken.is_none() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let filled = bytes.fill(&mut slices);
            let slices = slices.get(..filled).unwrap_or_default();
            let n = self.write_some(slices);
            wrote += n;
            bytes.advance(n);
        }
        counters.tcp_bytes_out += wrote as u64;
        wrote
    }

    /// Writes once. A short write arms the kernel's next report, as a refused
    /// one does.
    ///
    /// A peer that reads no more may have sent something before: its end shows
    /// when that is read, so a failed write is not yet the end.
    fn write_some(&mut self, slices: &[IoSlice<'_>]) -> usize {
        let offered: usize = slices.iter().map(|s| s.len()).sum();
        if offered == 0 || self.blocked || self.broken.is_some() {
            return 0;
        }
        match write_to(&self.sock, slices) {
            Ok(n) => {
                self.blocked = n < offered;
                n
            }
            Err(e) => {
                self.broken = Some(CloseCause::failed(&format!("connection lost: {e}")));
                0
            }
        }
    }

    /// Turns bytes written into credit. What layers add makes the credit come
    /// a little early; once nothing waits it is exact.
    fn settle(&mut self, wrote: usize) -> usize {
        let tls = self.layers.as_ref().and_then(|l| l.tls.as_ref());
        let waiting = self.backlog.len() + tls.map_or(0, |tls| tls.in_wire);
        let freed = if waiting == 0 {
            self.owed
        } else {
            wrote.min(self.owed)
        };
        self.owed -= freed;
        freed
    }

    /// Writes what waits, announces the credit, and ends what was only waiting
    /// for that.
    pub(super) fn write_and_announce(&mut self, cx: &mut Cx<'_>) {
        let left = self.write(cx.counters, cx.scratch);
        if left > 0 && self.phase == Phase::Open {
            (cx.out)(NetEvent::new(self.id, NetEventKind::Sent { bytes: left }));
        }
        self.shutdown_if_flushed(cx.counters, cx.scratch);
        if let Some(cause) = self.end_if_flushed(cx.now, cx.counters, cx.scratch) {
            self.report(cause, cx.out);
        }
    }

    pub(super) fn on_writable(&mut self, cx: &mut Cx<'_>) -> Result<(), CloseCause> {
        self.blocked = false;
        if self.phase == Phase::Connecting {
            match self.connect_result() {
                Ok(true) => self.connected(cx),
                Ok(false) => return Ok(()),
                Err(e) => return Err(CloseCause::failed(&format!("cannot connect: {e}"))),
            }
        }
        self.write_and_announce(cx);
        Ok(())
    }

    fn connect_result(&self) -> io::Result<bool> {
        if let Some(error) = self.sock.take_error()? {
            return Err(error);
        }
        match self.sock.peer_addr() {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Whether everything has left, the end of TLS included.
    pub(super) fn is_flushed(&mut self, counters: &mut Counters, scratch: &mut Scratch) -> bool {
        if !self.backlog.is_empty() && self.broken.is_none() {
            return false;
        }
        let Some(mut layers) = self.layers.take() else {
            return true;
        };
        let mut flushed = true;
        if let Some(tls) = &mut layers.tls {
            if !tls.notified {
                scratch.tls_out.clear();
                tls.close_notify(&mut scratch.tls_out);
                self.put_wire(tls, scratch.tls_out.bytes(), 0, counters);
            }
            flushed = tls.wire.is_empty() || self.broken.is_some();
        }
        self.layers = Some(layers);
        flushed
    }
}

/// Writes once; 0 when the kernel takes nothing now.
fn write_to(mut sock: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    loop {
        match sock.write_vectored(slices) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
