//! Running one connection: after readiness, datagrams or a deadline.

use core::net::IpAddr;

use dunlin_base::transport::NetEvent;

use super::super::env::Env;
use super::super::quic::QuicSlot;
use super::{Conn, Conns, mark};
use crate::strangers::Strangers;
use crate::stream::{Cx, Step, StreamConn};

/// Where events go.
pub(crate) type Handler<'a> = dyn FnMut(NetEvent<&[u8]>) + 'a;

/// Why a connection is run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause {
    /// The kernel reports readiness.
    Ready {
        readable: bool,
        writable: bool,
        hup: bool,
    },
    /// It has something left to read, or failed.
    Again,
    /// It was just accepted (TCP), or has got datagrams (QUIC).
    Input,
    Timer,
}

impl Cause {
    /// Whether the peer has ended it.
    const fn is_end(self) -> bool {
        matches!(self, Self::Ready { hup: true, .. })
    }
}

impl Conns {
    /// Runs a connection and does what it asks for.
    pub(crate) fn run(
        &mut self,
        serial: u64,
        cause: Cause,
        env: &mut Env,
        handler: &mut Handler<'_>,
    ) {
        let Some(conn) = self.slots.get_mut(serial) else {
            return;
        };
        let mut bytes = 0;
        let (step, handshaking, unknown) = match conn {
            Conn::Stream(tcp) => {
                let mut cx = Cx {
                    now: env.now,
                    limits: &env.config.limits,
                    admission: &env.config.shared.admission,
                    counters: &mut env.counters,
                    scratch: &mut env.scratch,
                    delivered: 0,
                    out: handler,
                };
                let proxy = tcp.is_proxy.then(|| tcp.addr().ip());
                let step = run_stream(tcp, cause, &mut cx);
                // Its owner ends one whose peer has ended it.
                let ends = cause.is_end() || matches!(step, Step::Gone(_));
                self.ends.count_if(ends);
                bytes = cx.delivered;
                follow(&mut self.strangers, proxy, tcp);
                (step, tcp.is_handshaking(), tcp.stranger.is_some())
            }
            Conn::Quic(quic) => {
                let unknown = quic.stranger.is_some();
                // When its time is over, it goes.
                let lived = !quic.conn.life().is_over() || matches!(cause, Cause::Timer);
                let step = if unknown {
                    run_quic(quic, cause, env, &mut |event| {
                        bytes += event.kind.payload_len();
                        handler(event);
                    })
                } else {
                    run_quic(quic, cause, env, handler)
                };
                follow_moved(&mut self.strangers, quic, env);
                self.ends.count_if(lived && quic.conn.life().is_over());
                // Its timer is armed when it is flushed.
                mark(&mut self.dirty, serial, &mut quic.dirty);
                (step, quic.conn.life().is_handshaking(), unknown)
            }
        };
        match step {
            Step::Gone(cause) => {
                if let Conn::Stream(tcp) = conn {
                    tcp.report(cause, handler);
                }
                self.remove(serial, env);
                return;
            }
            Step::Again => self.ready.push(serial),
            Step::Wait => {}
        }
        if let Conn::Stream(tcp) = conn {
            self.timers.arm(serial, tcp.next_deadline(), &mut tcp.armed);
        }
        if unknown {
            self.check_unknown(serial, bytes, handshaking, env);
        }
    }

    /// The connections that are to be run in this turn, each once: one that the
    /// kernel reports besides would be listed twice, then three times, and so
    /// on.
    pub(crate) fn take_ready(&mut self) -> Vec<u64> {
        let mut ready = core::mem::take(&mut self.ready);
        ready.sort_unstable();
        ready.dedup();
        ready
    }

    /// Runs the connections that got datagrams.
    pub(crate) fn run_touched(&mut self, env: &mut Env, handler: &mut Handler<'_>) {
        let mut touched = core::mem::take(&mut self.touched);
        for serial in touched.drain(..) {
            if let Some(Conn::Quic(quic)) = self.slots.get_mut(serial) {
                quic.touched = false;
                self.run(serial, Cause::Input, env, handler);
            }
        }
        self.touched = touched;
    }

    /// Leaves the connections that got datagrams to the next turn.
    pub(crate) fn defer_touched(&mut self) {
        for serial in self.touched.drain(..) {
            if let Some(Conn::Quic(quic)) = self.slots.get_mut(serial) {
                quic.touched = false;
                self.ready.push(serial);
            }
        }
    }
}

/// Counts a client that moved at its new address.
fn follow_moved(strangers: &mut Strangers, quic: &mut QuicSlot, env: &mut Env) {
    if let Some((from, to)) = quic.take_new_ip() {
        let admission = &env.config.shared.admission;
        admission.moved(from, to, &env.config.limits, &mut env.counters);
        if let Some(ticket) = &mut quic.stranger {
            strangers.move_to(from, to, ticket);
        }
    }
}

/// Lists a connection at the address of its client, once that is known and no longer
/// that of its proxy.
fn follow(strangers: &mut Strangers, proxy: Option<IpAddr>, tcp: &mut StreamConn) {
    let client = tcp.addr().ip();
    if let (Some(proxy), Some(ticket)) = (proxy, &mut tcp.stranger)
        && proxy != client
    {
        strangers.move_to(proxy, client, ticket);
    }
}

fn run_stream(tcp: &mut StreamConn, cause: Cause, cx: &mut Cx<'_>) -> Step {
    match cause {
        Cause::Ready {
            readable,
            writable,
            hup,
        } => tcp.ready(readable, writable, hup, cx),
        Cause::Again => tcp.read(cx),
        Cause::Input => tcp.start_accepted(cx),
        Cause::Timer => tcp.on_timer(cx),
    }
}

fn run_quic(quic: &mut QuicSlot, cause: Cause, env: &mut Env, out: &mut Handler<'_>) -> Step {
    let mut cx = dunlin_quic::Cx {
        now: env.now,
        clock: &env.config.clock,
        limits: env.quic.limits(),
        counters: &mut env.counters,
        gather: &mut env.scratch.gather,
        out,
    };
    let again = match cause {
        Cause::Timer => quic.conn.on_timer(&mut cx),
        _ => quic.conn.run(&mut cx),
    };
    if again { Step::Again } else { Step::Wait }
}
