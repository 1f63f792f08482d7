//! The thread that drives sockets: the event loop of `dunlin-net` as
//! `dunlin-dial` runs it for all client libraries, with a task for each
//! connection and one for a listener.

mod conn;
mod listener;
mod streams;

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::{Arc, Condvar, Mutex, OnceLock};

use dunlin_base::transport::{NetEvent, Peer};
use dunlin_base::{ConnId, Instant};
use dunlin_dial::{Context, Key, Resolved, RuntimeError, Task};
use dunlin_net::{ListenerConfig, NetConfig};

use crate::error::Error;
use crate::limits::Limits;
use crate::shared::{
    Command, ConnHandle, ConnShared, ListenerShared, New, NewConn, NewListener, NewTask, Opened,
    Place, Remote, Settings,
};
use crate::wait::{Asked, Patience, Waiters, ask, block, lock};
use conn::ConnTask;
use listener::ListenerTask;

/// A background thread that drives any number of connections.
///
/// Most programs need none of this: [`Options::connect`](crate::Options::connect)
/// uses one for the whole process, started with the first connection. It ends when
/// its last handle and its last connection are gone.
#[derive(Clone, Debug)]
pub struct Driver {
    remote: Remote,
    settings: Settings,
}

impl Driver {
    /// Starts a thread of its own.
    ///
    /// # Errors
    /// The system refuses an event loop or a thread, or a limit is out of range.
    pub fn new(limits: &Limits) -> Result<Self, Error> {
        Ok(Self {
            remote: start(limits, limits.net()?)?,
            settings: Settings::of(limits),
        })
    }

    /// That of the process.
    pub(crate) fn global() -> Result<Self, Error> {
        static GLOBAL: OnceLock<Result<Driver, Error>> = OnceLock::new();
        GLOBAL.get_or_init(|| Self::new(&Limits::default())).clone()
    }

    /// Begins to connect.
    pub(crate) fn dial(&self, new: New) -> Result<Asked<Opened>, Error> {
        let key = self.remote.register()?;
        let place = Place(self.remote.clone());
        let shared = Arc::new(ConnShared::new(self.remote.clone(), key));
        let (asked, answer) = ask();
        let new = NewConn {
            new,
            handle: ConnHandle::new(Arc::clone(&shared)),
            shared,
            answer,
            settings: self.settings,
            place,
        };
        self.remote.add(key, NewTask::Conn(Box::new(new)));
        Ok(asked)
    }
}

fn start(limits: &Limits, net: NetConfig) -> Result<Remote, RuntimeError> {
    Remote::start_with::<SocketTask>("dunlin-socket", limits.runtime(), net)
}

/// Starts a thread that listens at these.
pub(crate) fn listen(
    net: NetConfig,
    limits: &Limits,
    configs: Vec<ListenerConfig>,
) -> Result<(Arc<ListenerShared>, SocketAddr), Error> {
    let remote = start(limits, net)?;
    let key = remote.register()?;
    let shared = Arc::new(ListenerShared::new(remote.clone(), key));
    let (asked, answer) = ask();
    let new = NewListener {
        configs,
        shared: Arc::clone(&shared),
        answer,
        settings: Settings::of(limits),
        backlog: limits.backlog,
    };
    remote.add(key, NewTask::Listener(Box::new(new)));
    let addr = asked.wait(Patience::default())?;
    Ok((shared, addr))
}

/// A connection or a listener in the loop.
pub(crate) enum SocketTask {
    Conn(Box<ConnTask>),
    Listener(Box<ListenerTask>),
}

impl Task for SocketTask {
    type New = NewTask;
    type Command = Command;

    fn new(key: Key, new: NewTask) -> Self {
        match new {
            NewTask::Conn(new) => Self::Conn(Box::new(ConnTask::dial(key, *new))),
            NewTask::Listener(new) => Self::Listener(Box::new(ListenerTask::new(*new))),
        }
    }

    fn handle_net(&mut self, now: Instant, event: NetEvent<&[u8]>) {
        if let Self::Conn(conn) = self {
            conn.on_event(now, event);
        }
    }

    fn handle_command(&mut self, _: Instant, command: Command) {
        match self {
            Self::Conn(conn) => conn.on_command(command),
            Self::Listener(listener) => listener.on_command(&command),
        }
    }

    fn handle_resolved(&mut self, attempt: u64, resolved: Resolved) {
        if let Self::Conn(conn) = self {
            conn.on_resolved(attempt, resolved);
        }
    }

    fn run(&mut self, context: &mut Context<'_>) {
        match self {
            Self::Conn(conn) => conn.run(context),
            Self::Listener(listener) => listener.run(context),
        }
    }

    fn has_ended(&self) -> bool {
        match self {
            Self::Conn(conn) => conn.has_ended(),
            Self::Listener(listener) => listener.has_ended(),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Conn(conn) => conn.deadline(),
            Self::Listener(_) => None,
        }
    }

    fn accepts(&self) -> bool {
        matches!(self, Self::Listener(_))
    }

    fn accept(&mut self, key: Key, conn: ConnId, peer: &Peer) -> Result<Self, u64> {
        match self {
            Self::Listener(listener) => {
                let task = listener.accept(key, conn, peer)?;
                Ok(Self::Conn(Box::new(task)))
            }
            Self::Conn(_) => Err(0),
        }
    }
}

/// Connections of the process that are not over.
struct Census {
    state: Mutex<CensusState>,
    changed: Condvar,
}

#[derive(Default)]
struct CensusState {
    connections: usize,
    waiters: Waiters,
}

fn census() -> &'static Census {
    static CENSUS: OnceLock<Census> = OnceLock::new();
    CENSUS.get_or_init(|| Census {
        state: Mutex::default(),
        changed: Condvar::new(),
    })
}

/// Counts a connection until it is dropped.
pub(crate) struct Counted(());

impl Counted {
    pub(crate) fn new() -> Self {
        lock(&census().state).connections += 1;
        Self(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut state = lock(&census().state);
        state.connections -= 1;
        let woken = state.waiters.take();
        drop(state);
        woken.wake(&census().changed);
    }
}

/// Waits until all connections of the process are over: those that are dropped
/// have delivered what was written to them. Blocks the thread, for this long at
/// most; tells whether none is left. For the end of a program, since what a
/// process has not sent goes with it.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// assert!(dunlin_socket::wait_idle(Duration::from_secs(5)));
/// ```
#[must_use]
pub fn wait_idle(limit: Duration) -> bool {
    let patience = Patience {
        limit: Some(limit),
        nonblocking: false,
    };
    let idle = block(
        &census().state,
        &census().changed,
        patience,
        |state| &mut state.waiters,
        |state| (state.connections == 0).then_some(Ok(())),
    );
    idle.is_ok()
}
