//! How the loop runs: wait, read, time, report.

use core::net::SocketAddr;
use core::time::Duration;
use std::io;
use std::sync::Arc;

use dunlin_base::transport::{NetEvent, Transport, plain_addr};
use mio::net::TcpStream;
use mio::{Events, Poll};

use super::conns::{Cause, Handler};
use super::sources::{Turn, WATCH};
use super::{EVENTS_MAX, Net, WAKER, layers, paths, udp, watch};
use crate::admission::Standing;
use crate::proxy::Proxies;
use crate::slots::SLOTS_MAX;
use crate::stream::{NewStream, StreamConn};
use crate::tcp;

/// Pause before accepting again when descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Lets `time` go by; returns what is left of a wait for the kernel.
pub(crate) fn pause(time: Duration, wait: Option<Duration>) -> Option<Duration> {
    if time.is_zero() {
        return wait;
    }
    std::thread::sleep(time);
    wait.map(|wait| wait.saturating_sub(time))
}

impl Net {
    /// Waits for something to happen, at most `timeout`, and reports it.
    /// Returns how long it waited.
    ///
    /// # Errors
    /// The event queue failed; the loop cannot go on.
    pub fn poll(
        &mut self,
        timeout: Option<Duration>,
        handler: &mut dyn FnMut(NetEvent<&[u8]>),
    ) -> io::Result<Duration> {
        self.flush();
        let reported = self.conns.report(handler);
        let mut wait = self.prepare_wait(timeout)?;
        if reported {
            wait = Some(Duration::ZERO);
        }
        let before = self.env.now;
        wait = pause(self.gather_time(wait), wait);
        match self.poll.poll(&mut self.events, wait) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => result?,
        }
        self.waker.clear();
        self.env.tick();
        let waited = self.env.now.saturating_duration_since(before);
        self.newcomers.begin_turn();
        self.conns.ends.begin();
        while let Some((serial, cause)) = self.conns.ends.next() {
            self.conns.run(serial, cause, &mut self.env, handler);
        }
        let again = self.conns.take_ready();
        self.dispatch(handler);
        for serial in again {
            self.conns.run(serial, Cause::Again, &mut self.env, handler);
        }
        for index in 0..self.sources.len() {
            match self.sources.turn(index) {
                Turn::Accept if self.conns.ends.is_waiting() => {}
                Turn::Accept => self.accept(index, handler),
                Turn::Receive => udp::receive(self, index, handler),
                Turn::Nothing => {}
            }
        }
        udp::begin_waiting(self, handler);
        self.run_timers(handler);
        watch::run_follow(self);
        self.conns.report(handler);
        // Answers that belong to no connection, and the last words of connections
        // whose sockets close now.
        udp::send_gathered(self);
        self.conns.settle_gone(&mut self.sources);
        dunlin_quic::release_keys(self.env.now);
        Ok(waited)
    }

    /// How long a wait for this loop may last, at most `timeout`: zero if
    /// [`Net::poll`] has something to do at once.
    ///
    /// # Errors
    /// The event queue failed; the loop cannot go on.
    pub fn prepare_wait(&mut self, timeout: Option<Duration>) -> io::Result<Option<Duration>> {
        self.env.tick();
        self.conns.settle_gone(&mut self.sources);
        self.sources.watch_blocked(self.poll.registry())?;
        // The kernel may have more than it reported.
        let more = self.events.iter().count() == EVENTS_MAX;
        let waits = !self.newcomers.is_empty();
        if more || waits || self.conns.is_busy() || self.sources.is_busy(self.env.now) {
            return Ok(Some(Duration::ZERO));
        }
        Ok(self.wait(timeout))
    }

    /// How long to wait, instead of for the kernel, before the next turn: for more
    /// datagrams, if many have come lately ([`NetLimits::gather`](crate::NetLimits::gather)).
    /// `wait` is what [`Net::prepare_wait`] returned. For a set of loops; [`Net::poll`]
    /// does so by itself.
    pub fn gather_time(&mut self, wait: Option<Duration>) -> Duration {
        let (most, env) = (self.env.config.limits.gather, &mut self.env);
        let most = most.min(wait.unwrap_or(Duration::MAX));
        let time = self.gather.time(env.now, env.counters.datagrams_in, most);
        env.counters.turns_gathered += u64::from(!time.is_zero());
        time
    }

    /// What a set of loops waits for.
    pub(crate) const fn queue(&self) -> &Poll {
        &self.poll
    }

    /// Time to wait: the caller's bound, the next timer, a paused listener.
    fn wait(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        let next = self.conns.next_timer();
        let pauses = self.sources.pauses();
        let next = pauses.chain(next).chain(self.follow.look_at()).min();
        let next = next.map(|at| at.saturating_duration_since(self.env.now));
        match (timeout, next) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn dispatch(&mut self, handler: &mut Handler<'_>) {
        let events = core::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            let token = event.token();
            if token == WAKER {
                continue;
            }
            if token == WATCH {
                self.follow.on_change(self.env.now);
                continue;
            }
            let (readable, writable) = (event.is_readable(), event.is_writable());
            if token.0 >= SLOTS_MAX {
                let hup = event.is_read_closed() || event.is_error();
                let cause = Cause::Ready {
                    readable,
                    writable,
                    hup,
                };
                let (serial, count) = (token.0 as u64, self.conns.len());
                if !(hup && self.conns.ends.wait(serial, cause, count)) {
                    self.conns.run(serial, cause, &mut self.env, handler);
                }
            } else if let Some(source) = self.sources.on_event(token, readable, writable) {
                udp::unblock(self, source);
            }
        }
        self.events = events;
    }

    fn accept(&mut self, index: usize, handler: &mut Handler<'_>) {
        for _ in 0..self.env.limits().accept_budget {
            let Some(listener) = self.sources.listener(index) else {
                return;
            };
            if listener.not_before > self.env.now {
                return;
            }
            match listener.socket.accept() {
                Ok((sock, addr)) => self.accepted(index, sock, plain_addr(addr), handler),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    listener.ready = false;
                    return;
                }
                Err(e) if tcp::is_exhausted(&e) => {
                    listener.not_before = self.env.now + ACCEPT_PAUSE;
                    self.env.counters.accept_exhausted += 1;
                    tracing::warn!(error = %e, "cannot accept connections for a moment");
                    return;
                }
                // The connection died in the queue; the next one may live.
                Err(error) => tracing::debug!(%error, "a connection ended before it was accepted"),
            }
        }
    }

    fn accepted(
        &mut self,
        index: usize,
        sock: TcpStream,
        addr: SocketAddr,
        handler: &mut Handler<'_>,
    ) {
        let Some(listener) = self.sources.listener(index) else {
            return;
        };
        let env = &mut self.env;
        let names = |it: &&Proxies| it.name_clients(listener.origin.transport);
        let proxies = listener.proxies.as_deref().filter(names);
        let standing = match proxies {
            Some(proxies) if proxies.trusts(addr.ip()) => Standing::Proxy,
            Some(proxies) if proxies.header.is_some() => {
                env.counters.refused_untrusted += 1;
                tracing::debug!(%addr, "refused: that is no trusted proxy");
                return;
            }
            // Permissions of a file say who may come, and they have one address.
            _ if listener.origin.transport == Transport::Unix => Standing::Proxy,
            // Who completes the handshake of TCP receives at its address.
            _ => Standing::Proved,
        };
        if let Err(refusal) = self.conns.admit(addr.ip(), standing, env) {
            refusal.count(&mut env.counters);
            return;
        }
        let (now, limits) = (env.now, &env.config.limits);
        let admission = &env.config.shared.admission;
        let layers = match layers::of_server(listener, limits) {
            Ok(layers) => layers,
            Err(error) => {
                tracing::error!(%error, "cannot serve a connection");
                admission.withdraw(addr.ip(), standing, limits);
                return;
            }
        };
        let origin = Arc::clone(&listener.origin);
        let _ = sock.set_nodelay(true);
        let handshake_deadline = now + limits.handshake_timeout;
        let inserted = self.conns.insert_stream(self.poll.registry(), |id| {
            let new = NewStream {
                id,
                sock,
                addr,
                origin,
                layers,
                is_proxy: standing == Standing::Proxy,
                handshake_deadline,
            };
            StreamConn::new(new, now, limits)
        });
        match inserted {
            Ok(Some(serial)) => {
                env.counters.accepted += 1;
                self.conns.run(serial, Cause::Input, env, handler);
                return;
            }
            Ok(None) => env.counters.refused_full += 1,
            Err(error) => tracing::warn!(%error, "cannot watch an accepted connection"),
        }
        admission.withdraw(addr.ip(), standing, limits);
    }

    fn run_timers(&mut self, handler: &mut Handler<'_>) {
        self.conns.ends.begin();
        // Bounded by what is due now, so that a deadline that is armed for the
        // past cannot hold the loop.
        for _ in 0..self.conns.timer_entries() {
            if self.conns.ends.is_full() {
                break;
            }
            let Some(serial) = self.conns.pop_timer(self.env.now) else {
                break;
            };
            let Some(serial) = serial else {
                continue;
            };
            // A peer that has just moved must be sent something first: until
            // then quinn-proto has a timer for losses on the old path, which
            // finds none to be lost on the new one.
            if self.conns.quic(serial).is_some_and(|quic| quic.dirty) {
                udp::flush_one(self, serial);
            }
            self.conns.run(serial, Cause::Timer, &mut self.env, handler);
            if paths::is_move_due(self, serial) && !paths::run_move(self, serial) {
                watch::look_if_lost(self, serial);
            }
        }
        self.conns.sweep_timers();
    }
}
