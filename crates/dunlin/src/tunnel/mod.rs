//! `dunlin tunnel`: carries TCP clients of MQTT or AMQP to a broker over QUIC.
//! MQTT begins on the first stream of a connection, so each client has a QUIC
//! connection of its own; every stream of AMQP is a connection, so clients
//! can share one. No packet is looked at.

mod carrier;
mod pipe;
mod state;

use core::fmt;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin_base::transport::Transport;
use dunlin_base::{Instant, ShardId};
use dunlin_dial::{Key, LinkOptions, Resolved, Resolver};
use dunlin_net::{Clock, ListenerConfig, Net, NetConfig, NetError, NetKeys, Waker};

pub use pipe::PIPE_BYTES_MAX;
use state::State;

/// TCP connections at a time, unless another number is given.
pub const CONNECTIONS_DEFAULT: usize = 1024;

/// Clients of AMQP on one QUIC connection, unless another number is given. Those
/// that share one may inherit the identity of the first, and what a lost packet
/// costs.
pub const STREAMS_DEFAULT: u32 = 1;

/// Silence after which the broker is asked for a sign of life: one that is gone
/// is noticed after three times as long.
pub const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Time in which connections may end when the tunnel does.
const STOP_MAX: Duration = Duration::from_secs(2);

/// Takes what goes wrong, in words.
pub type Complain = Box<dyn Fn(&dyn fmt::Display) + Send>;

/// What a tunnel is to do.
pub struct Settings {
    /// Where TCP clients connect.
    pub listen: SocketAddr,
    /// How to reach the broker: the URL is one of QUIC.
    pub link: LinkOptions,
    /// TCP connections at a time, at most, and QUIC connections.
    pub connections_max: usize,
    /// Clients of AMQP on one QUIC connection, at most; MQTT has one.
    pub streams_max: u32,
    /// Takes what goes wrong, in words.
    pub complain: Complain,
}

/// A tunnel that listens.
pub struct Tunnel {
    net: Net,
    resolver: Resolver,
    answers: Arc<Answers>,
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
    state: State,
}

/// Ends a tunnel from another thread.
#[derive(Clone)]
pub struct Stop {
    wanted: Arc<AtomicBool>,
    waker: Waker,
}

/// Names that were looked up.
#[derive(Default)]
struct Answers(Mutex<Vec<(Key, u64, Resolved)>>);

impl Stop {
    /// Ends the tunnel: [`Tunnel::run`] returns soon.
    pub fn stop(&self) {
        self.wanted.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl Answers {
    fn lock(&self) -> MutexGuard<'_, Vec<(Key, u64, Resolved)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tunnel {
    /// Listens. The broker is dialled when the first client comes.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn bind(settings: Settings) -> Result<Self, NetError> {
        let mut config = NetConfig::new(ShardId(0), 1, Clock::new(), NetKeys::random()?);
        let limits = &mut config.limits;
        limits.connections_max = settings.connections_max;
        // A client may end its side and read on for as long as it likes.
        limits.half_close_linger = limits.idle_timeout_max;
        // Streams that are not read fill their own windows at most.
        let windows = limits
            .quic_stream_receive_window
            .saturating_mul(settings.streams_max);
        limits.quic_receive_window = limits.quic_receive_window.saturating_add(windows);
        let mut net = Net::new(config)?;
        let addr = net.listen(ListenerConfig::new(Transport::Tcp, settings.listen))?;
        let answers = Arc::new(Answers::default());
        let (left, waker) = (Arc::downgrade(&answers), net.waker());
        let resolver = Resolver::new(move |key, attempt, resolved| {
            let answers = left.upgrade();
            if let Some(answers) = &answers {
                answers.lock().push((key, attempt, resolved));
                waker.wake();
            }
            answers.is_some()
        });
        Ok(Self {
            net,
            resolver,
            answers,
            addr,
            stop: Arc::default(),
            state: State::new(settings.link, settings.streams_max, settings.complain),
        })
    }

    /// Where it listens.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What ends it.
    #[must_use]
    pub fn stop(&self) -> Stop {
        Stop {
            wanted: Arc::clone(&self.stop),
            waker: self.net.waker(),
        }
    }

    /// Carries until it is stopped.
    ///
    /// # Errors
    /// The event loop fails.
    pub fn run(mut self) -> std::io::Result<()> {
        while !self.stop.load(Ordering::Acquire) {
            self.turn(None)?;
        }
        self.net.stop_listening();
        self.state.close_all(&mut self.net, &mut self.resolver);
        let until = self.net.now() + STOP_MAX;
        while self.net.connections() > 0 && self.net.now() < until {
            self.turn(Some(until))?;
        }
        Ok(())
    }

    fn turn(&mut self, until: Option<Instant>) -> std::io::Result<()> {
        let Self { net, state, .. } = self;
        let now = net.now();
        let wake = state.deadline().into_iter().chain(until).min();
        let timeout = wake.map(|at| at.saturating_duration_since(now));
        let clock = net.clock();
        net.poll(timeout, &mut |event| state.on_event(clock.now(), event))?;
        for (key, attempt, resolved) in core::mem::take(&mut *self.answers.lock()) {
            state.on_resolved(key, attempt, resolved);
        }
        state.run(net, &mut self.resolver);
        net.flush();
        Ok(())
    }
}
