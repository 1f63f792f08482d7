//! The output half of a connection: bytes leave at once where the kernel takes
//! them, else from the backlog; through WebSocket and TLS where there are any.

use std::io::{self, IoSlice, Write};

use dunlin_base::SendBuf;
use dunlin_base::transport::CloseCause;
use dunlin_quic::{Backlog, Counters, SLICES_MAX};
use mio::net::TcpStream;

use super::Scratch;
use crate::tls::TlsLayer;
use crate::ws::{self, HEADER_BYTES_MAX, Role};

/// Bytes encrypted at once: a few records, and little to keep when the kernel
/// takes less.
const ENCRYPT_BYTES: usize = 48 << 10;

/// Most bytes of one WebSocket message that is sent: some clients take no longer
/// ones. Protocols over WebSocket may cut their packets anywhere (MQTT 5.0 section
/// 6.0, AMQP WebSocket Binding section 2.4).
pub(crate) const MESSAGE_BYTES_MAX: usize = 65_535;

/// Where bytes go, and what is needed on the way.
pub(super) struct Line<'a> {
    pub(super) sock: &'a TcpStream,
    pub(super) tls: Option<&'a mut TlsLayer>,
    pub(super) counters: &'a mut Counters,
    pub(super) scratch: &'a mut Scratch,
}

/// What leaves.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// Bytes that have not left, before TLS.
    pub(super) backlog: Backlog,
    /// Bytes taken that `Sent` has not announced.
    owed: usize,
    /// Why writing failed; reported once everything that arrived is read.
    failure: Option<Box<CloseCause>>,
    /// The kernel took less than it was offered: it reports when it takes more.
    full: bool,
    /// We end, or ended, our side; the peer's may go on.
    finished: bool,
}

impl Output {
    /// Whether bytes can still leave.
    pub(super) const fn is_open(&self) -> bool {
        !self.finished && !self.has_failed()
    }

    pub(super) const fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Whether the kernel may take bytes now.
    const fn is_writable(&self) -> bool {
        !self.full && !self.has_failed()
    }

    pub(super) const fn is_finished(&self) -> bool {
        self.finished
    }

    /// Ends our side; whether it was open.
    pub(super) fn finish(&mut self) -> bool {
        !core::mem::replace(&mut self.finished, true)
    }

    pub(super) const fn owed(&self) -> usize {
        self.owed
    }

    /// Why writing failed, once.
    pub(super) fn take_failure(&mut self) -> Option<CloseCause> {
        self.failure.take().map(|cause| *cause)
    }

    /// The kernel takes bytes again.
    pub(super) fn on_writable(&mut self) {
        self.full = false;
    }

    /// Takes all of `data` as one message of the topmost layer, or as few as it
    /// takes; `direct`: what the kernel takes may leave at once.
    pub(super) fn put(
        &mut self,
        data: &mut SendBuf,
        role: Option<Role>,
        direct: bool,
        line: &mut Line<'_>,
    ) {
        self.owed += data.len();
        let mut bytes = [0; HEADER_BYTES_MAX];
        let n = match role {
            Some(Role::Server) if data.len() <= MESSAGE_BYTES_MAX => {
                ws::header(data.len(), None, &mut bytes)
            }
            Some(role) => return self.put_messages(data, role, line.scratch),
            None => 0,
        };
        self.put_framed(data, bytes.get(..n).unwrap_or_default(), direct, line);
    }

    /// Cuts `data` into messages, and copies them. Those of a client are masked.
    fn put_messages(&mut self, data: &mut SendBuf, role: Role, scratch: &mut Scratch) {
        let mut left = data.len();
        let (mut at, mut length, mut key) = (0, 0, None);
        for mut part in data.slices() {
            while !part.is_empty() {
                if at == length {
                    (at, length) = (0, left.min(MESSAGE_BYTES_MAX));
                    key = (role == Role::Client).then(|| scratch.masks.next());
                    let mut bytes = [0; HEADER_BYTES_MAX];
                    let n = ws::header(length, key, &mut bytes);
                    self.backlog.put_slice(bytes.get(..n).unwrap_or_default());
                }
                let (piece, rest) = part.split_at(part.len().min(length - at));
                match key {
                    None => self.backlog.put_slice(piece),
                    Some(key) => {
                        scratch.plain.clear();
                        scratch.plain.extend_from_slice(piece);
                        ws::mask(&mut scratch.plain, key, at);
                        self.backlog.put_slice(&scratch.plain);
                    }
                }
                (at, left, part) = (at + piece.len(), left - piece.len(), rest);
            }
        }
        data.clear();
    }

    /// Writes `head` and `data` directly if nothing waits; what does not leave
    /// goes to the backlog.
    fn put_framed(&mut self, data: &mut SendBuf, head: &[u8], direct: bool, line: &mut Line<'_>) {
        let mut done = 0;
        if direct && self.backlog.is_empty() {
            done = match &line.tls {
                None => self.write_direct(head, data, line),
                Some(tls) if tls.wire.is_empty() => self.encrypt_direct(head, data, line),
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
    fn write_direct(&mut self, head: &[u8], data: &SendBuf, line: &mut Line<'_>) -> usize {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let head = (!head.is_empty()).then_some(head);
        let filled = slices
            .iter_mut()
            .zip(head.into_iter().chain(data.slices()))
            .map(|(slice, part)| *slice = IoSlice::new(part))
            .count();
        let slices = slices.get(..filled).unwrap_or_default();
        let n = self.write_some(line.sock, slices);
        line.counters.tcp_bytes_out += n as u64;
        n
    }

    /// Encrypts a batch in as few records as it takes, and writes them.
    /// Returns how much was encrypted: all or nothing.
    fn encrypt_direct(&mut self, head: &[u8], data: &SendBuf, line: &mut Line<'_>) -> usize {
        let total = head.len() + data.len();
        let scratch = &mut *line.scratch;
        let Some(tls) = line.tls.as_deref_mut().filter(|_| total <= ENCRYPT_BYTES) else {
            return 0;
        };
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
        if let Err(error) = tls.encrypt(plain, &mut scratch.tls_out) {
            self.fail(&dunlin_quic::describe(&error));
            return 0;
        }
        self.put_wire(
            line.sock,
            tls,
            scratch.tls_out.bytes(),
            total,
            line.counters,
        );
        total
    }

    /// Writes encoded bytes that stand for `plain` bytes of the application,
    /// or keeps what the kernel does not take.
    pub(super) fn put_wire(
        &mut self,
        sock: &TcpStream,
        tls: &mut TlsLayer,
        bytes: &[u8],
        plain: usize,
        counters: &mut Counters,
    ) {
        tls.in_wire += plain;
        let mut n = 0;
        if tls.wire.is_empty() && !bytes.is_empty() {
            n = self.write_some(sock, &[IoSlice::new(bytes)]);
            counters.tcp_bytes_out += n as u64;
        }
        if let Some(rest) = bytes.get(n..).filter(|rest| !rest.is_empty()) {
            tls.wire.put_slice(rest);
        }
    }

    /// Writes what waits until the kernel takes no more; returns the credit
    /// that this frees.
    pub(super) fn write(&mut self, line: &mut Line<'_>) -> usize {
        let wrote = if line.tls.is_some() {
            self.write_encrypted(line)
        } else {
            let mut backlog = core::mem::take(&mut self.backlog);
            let wrote = self.drain(line.sock, &mut backlog, line.counters);
            self.backlog = backlog;
            wrote
        };
        self.settle(wrote, line.tls.as_deref())
    }

    /// Encrypts the backlog a few records at a time, as the kernel takes them.
    fn write_encrypted(&mut self, line: &mut Line<'_>) -> usize {
        let Some(tls) = line.tls.as_deref_mut() else {
            return 0;
        };
        let mut wrote = 0;
        loop {
            self.drain(line.sock, &mut tls.wire, line.counters);
            if !tls.wire.is_empty() {
                return wrote;
            }
            wrote += core::mem::take(&mut tls.in_wire);
            // Before the handshake is complete nothing can be encrypted.
            if self.backlog.is_empty() || self.has_failed() || !tls.is_open() {
                return wrote;
            }
            let tls_out = &mut line.scratch.tls_out;
            tls_out.clear();
            let mut gathered = 0;
            while gathered < ENCRYPT_BYTES && !self.backlog.is_empty() {
                let front = self.backlog.front();
                let piece = front.get(..ENCRYPT_BYTES - gathered).unwrap_or(front);
                let n = piece.len();
                if let Err(error) = tls.encrypt(piece, tls_out) {
                    self.fail(&dunlin_quic::describe(&error));
                    return wrote;
                }
                self.backlog.advance(n);
                gathered += n;
            }
            self.put_wire(line.sock, tls, tls_out.bytes(), gathered, line.counters);
        }
    }

    /// Writes bytes that need no more treatment.
    fn drain(&mut self, sock: &TcpStream, bytes: &mut Backlog, counters: &mut Counters) -> usize {
        let mut wrote = 0;
        while !bytes.is_empty() && self.is_writable() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let filled = bytes.fill(&mut slices);
            let slices = slices.get(..filled).unwrap_or_default();
            let n = self.write_some(sock, slices);
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
    fn write_some(&mut self, sock: &TcpStream, slices: &[IoSlice<'_>]) -> usize {
        let offered: usize = slices.iter().map(|s| s.len()).sum();
        if offered == 0 || !self.is_writable() {
            return 0;
        }
        match write_to(sock, slices) {
            Ok(n) => {
                self.full = n < offered;
                n
            }
            Err(e) => {
                self.fail(&format!("connection lost: {e}"));
                0
            }
        }
    }

    fn fail(&mut self, why: &str) {
        self.failure = Some(Box::new(CloseCause::failed(why)));
    }

    /// Turns bytes written into credit. What layers add makes the credit come
    /// a little early; once nothing waits it is exact.
    fn settle(&mut self, wrote: usize, tls: Option<&TlsLayer>) -> usize {
        let waiting = self.backlog.len() + tls.map_or(0, |tls| tls.in_wire);
        let freed = if waiting == 0 {
            self.owed
        } else {
            wrote.min(self.owed)
        };
        self.owed -= freed;
        freed
    }

    /// Whether everything has left, the end of TLS included.
    pub(super) fn is_flushed(&mut self, line: &mut Line<'_>) -> bool {
        if !self.backlog.is_empty() && !self.has_failed() {
            return false;
        }
        let Some(tls) = line.tls.as_deref_mut() else {
            return true;
        };
        if !tls.notified {
            let out = &mut line.scratch.tls_out;
            out.clear();
            tls.close_notify(out);
            self.put_wire(line.sock, tls, out.bytes(), 0, line.counters);
        }
        tls.wire.is_empty() || self.has_failed()
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
