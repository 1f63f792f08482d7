//! How bytes come in: read into the shared buffer, through TLS and WebSocket
//! where there are any, and out as events.

use core::net::SocketAddr;
use std::io::{self, Read};

use dunlin_base::transport::{CloseCause, NetEvent, NetEventKind, plain_addr};
use dunlin_base::{Instant, StreamId, Text};

use super::{Cx, First, Layers, Phase, Step, StreamConn};
use crate::proxy::{HeaderError, is_possible};
use crate::tls::TlsEvent;
use crate::ws::{WsEvent, WsLayer};

/// Why input ends a connection.
struct Fault(CloseCause);

impl From<rustls::Error> for Fault {
    fn from(error: rustls::Error) -> Self {
        Self(CloseCause::failed(&dunlin_quic::describe(&error)))
    }
}

impl From<HeaderError> for Fault {
    fn from(error: HeaderError) -> Self {
        Self(CloseCause::failed(&error.to_string()))
    }
}

impl StreamConn {
    /// Reads until nothing is left or the budget is spent.
    pub(crate) fn read(&mut self, cx: &mut Cx<'_>) -> Step {
        if self.phase == Phase::Connecting {
            return Step::Wait;
        }
        if self.input.is_paused() && self.phase == Phase::Open && !self.output.has_failed() {
            self.input.leave_unread();
            return Step::Wait;
        }
        if self.is_choked(cx) {
            return Step::Wait;
        }
        let mut buf = core::mem::take(&mut cx.scratch.read);
        let step = self.read_into(&mut buf, cx);
        cx.scratch.read = buf;
        step
    }

    fn read_into(&mut self, buf: &mut [u8], cx: &mut Cx<'_>) -> Step {
        let mut budget = cx.limits.read_budget_bytes;
        // Once the peer's end was seen there is nothing to read; while draining,
        // reading goes on until the end of TCP itself.
        while !self.input.is_finished() || self.phase == Phase::Draining {
            match self.sock.read(buf) {
                Ok(0) => return self.on_eof(cx),
                Ok(n) => {
                    self.input.on_read(cx.now);
                    cx.counters.tcp_bytes_in += n as u64;
                    let (data, rest) = buf.split_at_mut(n);
                    if let Err(cause) = self.feed(data, cx) {
                        self.fail(cause, cx);
                    }
                    budget = budget.saturating_sub(n);
                    // Less than a full buffer means that the kernel has no
                    // more; what comes later is a new edge.
                    if !rest.is_empty() && !self.input.hup {
                        break;
                    }
                    if budget == 0 {
                        self.write_and_announce(cx);
                        return Step::Again;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Step::Gone(read_failed(self.phase, &e)),
            }
        }
        self.write_and_announce(cx);
        self.step()
    }

    /// Whether so much waits to leave that the peer must take some of it before
    /// more is read. Only a server insists: if both sides did, neither would
    /// read.
    fn is_choked(&mut self, cx: &mut Cx<'_>) -> bool {
        let waiting = self.output.backlog.len();
        let choked = self.phase == Phase::Open
            && self.is_accepted()
            && !self.output.has_failed()
            && waiting > cx.limits.unread_answers_bytes_max;
        cx.counters.input_held += u64::from(choked && !self.input.choked);
        self.input.choked = choked;
        choked
    }

    fn on_eof(&mut self, cx: &mut Cx<'_>) -> Step {
        match self.phase {
            Phase::Connecting | Phase::Handshake => {
                cx.counters.handshake_failures += 1;
                Step::Gone(CloseCause::failed(
                    "closed by the peer during the handshake",
                ))
            }
            Phase::Open => {
                self.on_finished(cx);
                self.write_and_announce(cx);
                Step::Wait
            }
            Phase::Flushing => {
                self.input.finish();
                self.write_and_announce(cx);
                self.step()
            }
            Phase::Draining => Step::Gone(CloseCause::Local),
        }
    }

    /// Passes received bytes up through the layers.
    pub(super) fn feed(&mut self, data: &mut [u8], cx: &mut Cx<'_>) -> Result<(), CloseCause> {
        if self.phase > Phase::Open {
            return Ok(());
        }
        let Some(mut layers) = self.layers.take() else {
            self.deliver(data, cx);
            return Ok(());
        };
        let result = match &mut layers.first {
            First::Header(_) => feed_header(self, &mut layers, data, cx),
            First::Greeting(_) => self.feed_layers(&mut layers, data, cx),
        };
        if layers.is_needed() {
            self.layers = Some(layers);
        }
        result.map_err(|Fault(cause)| cause)
    }

    fn feed_layers(
        &mut self,
        layers: &mut Layers,
        data: &mut [u8],
        cx: &mut Cx<'_>,
    ) -> Result<(), Fault> {
        let Layers {
            tls,
            ws,
            first,
            identity,
        } = layers;
        let Some(tls) = tls else {
            return self.feed_ws(ws.as_deref_mut(), data, identity, cx);
        };
        let mut out = core::mem::take(&mut cx.scratch.tls_out);
        out.clear();
        // What is wrong above TLS must not disturb TLS, which has yet to carry
        // the answer.
        let mut above = Ok(());
        let result = tls.input(data, &mut out, &mut |event| match event {
            _ if above.is_err() => {}
            TlsEvent::Open { identity: name } => {
                let name = name.or_else(|| identity.take());
                identity.clone_from(&name);
                if ws.is_some() {
                    let greeting = first.take_greeting();
                    self.output.backlog.put_slice(greeting.as_bytes());
                } else {
                    self.open(name, cx);
                }
            }
            TlsEvent::Plain(plain) if ws.is_some() => {
                // Unmasking changes the bytes, so they are copied.
                let mut copy = core::mem::take(&mut cx.scratch.plain);
                copy.clear();
                copy.extend_from_slice(plain);
                above = self.feed_ws(ws.as_deref_mut(), &mut copy, identity, cx);
                cx.scratch.plain = copy;
            }
            TlsEvent::Plain(plain) => self.deliver(plain, cx),
            TlsEvent::Finished => self.on_finished(cx),
        });
        self.output
            .put_wire(&self.sock, tls, out.bytes(), 0, cx.counters);
        cx.scratch.tls_out = out;
        result?;
        above
    }

    fn feed_ws(
        &mut self,
        ws: Option<&mut WsLayer>,
        data: &mut [u8],
        identity: &Option<Text>,
        cx: &mut Cx<'_>,
    ) -> Result<(), Fault> {
        let Some(ws) = ws else {
            self.deliver(data, cx);
            return Ok(());
        };
        let mut answer = Vec::new();
        let waiting = self.output.backlog.len();
        let peer = self.addr.ip();
        let mut settled = Ok(());
        let result = ws.input(data, peer, waiting, &mut answer, &mut |event| match event {
            _ if settled.is_err() => {}
            WsEvent::Open { client } => {
                settled = settle(self, client, cx);
                if settled.is_ok() {
                    self.open(identity.clone(), cx);
                }
            }
            WsEvent::Data(bytes) => self.deliver(bytes, cx),
            WsEvent::Finished => self.on_finished(cx),
        });
        if !answer.is_empty() {
            self.output.backlog.put_slice(&answer);
        }
        result.map_err(|error| Fault(CloseCause::failed(&error.to_string())))?;
        settled.map_err(Fault)
    }

    fn deliver(&mut self, data: &[u8], cx: &mut Cx<'_>) {
        if self.phase == Phase::Open {
            if self.input.on_bytes() {
                self.deadline = Instant::FAR_FUTURE;
            }
            cx.delivered += data.len();
            (cx.out)(NetEvent::new(
                self.id,
                NetEventKind::Bytes {
                    stream: StreamId::CONTROL,
                    data,
                },
            ));
        }
    }
}

/// Takes the header of a proxy, then what follows it.
fn feed_header(
    conn: &mut StreamConn,
    layers: &mut Layers,
    data: &mut [u8],
    cx: &mut Cx<'_>,
) -> Result<(), Fault> {
    let First::Header(awaited) = &mut layers.first else {
        return Ok(());
    };
    let Some((header, used)) = awaited.input(data)? else {
        return Ok(());
    };
    let source = header.source.map(plain_addr);
    let source = source.filter(|client| is_possible(client.ip(), conn.addr.ip()));
    // The header of HTTP has the last word, where there is one.
    let by_request = layers.ws.as_ref().is_some_and(|ws| ws.names_client());
    match source {
        Some(client) if by_request => conn.addr = client,
        _ if by_request => {}
        source => settle(conn, source, cx).map_err(Fault)?,
    }
    layers.first = First::default();
    layers.identity = header.common_name;
    let (_, rest) = data.split_at_mut(used.min(data.len()));
    if layers.tls.is_none() && layers.ws.is_none() {
        conn.open(layers.identity.clone(), cx);
        if rest.is_empty() {
            return Ok(());
        }
    }
    conn.feed_layers(layers, rest, cx)
}

/// The address of the client of a proxy is known, and counts from now on. `None`: it is
/// the one of the socket.
fn settle(
    conn: &mut StreamConn,
    client: Option<SocketAddr>,
    cx: &mut Cx<'_>,
) -> Result<(), CloseCause> {
    if !conn.is_proxy {
        return Ok(());
    }
    let addr = client.unwrap_or(conn.addr);
    // Who is behind a proxy has proved its address to it.
    let admitted = cx
        .admission
        .admit_address(addr.ip(), true, cx.now, cx.limits);
    if let Err(refusal) = admitted {
        refusal.count(cx.counters);
        return Err(CloseCause::failed("a limit of the client's address"));
    }
    conn.addr = addr;
    conn.is_proxy = false;
    Ok(())
}

fn read_failed(phase: Phase, error: &io::Error) -> CloseCause {
    match phase {
        Phase::Connecting | Phase::Handshake | Phase::Open => {
            CloseCause::failed(&format!("connection lost: {error}"))
        }
        Phase::Flushing | Phase::Draining => CloseCause::Local,
    }
}
