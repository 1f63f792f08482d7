//! The listener of a driver: it makes a task for each connection that comes in.

use core::net::SocketAddr;
use std::sync::Arc;

use dunlin_base::ConnId;
use dunlin_base::transport::Peer;
use dunlin_dial::{Context, Key};
use dunlin_net::{ListenerConfig, Net, NetError};

use super::conn::{Arrival, ConnTask};
use crate::shared::{Command, ConnHandle, ConnShared, ListenerShared, NewListener, Settings};
use crate::wait::Answer;

/// Application error code of a connection for which the listener has no room.
const NO_ROOM: u64 = 1;

/// A listener in the loop.
pub(crate) struct ListenerTask {
    shared: Arc<ListenerShared>,
    settings: Settings,
    backlog: usize,
    stage: Stage,
}

enum Stage {
    New(Vec<ListenerConfig>, Answer<SocketAddr>),
    Open,
    /// The application has dropped it.
    Dropped,
    Ended,
}

impl ListenerTask {
    pub(super) fn new(new: NewListener) -> Self {
        Self {
            shared: new.shared,
            settings: new.settings,
            backlog: new.backlog,
            stage: Stage::New(new.configs, new.answer),
        }
    }

    pub(super) fn on_command(&mut self, command: &Command) {
        if matches!(command, Command::Dropped) {
            self.stage = Stage::Dropped;
        }
    }

    pub(super) fn run(&mut self, context: &mut Context<'_>) {
        self.stage = match core::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::New(configs, answer) => match listen(context.net, configs) {
                Ok(addr) => {
                    answer.give(Ok(addr));
                    Stage::Open
                }
                Err(error) => {
                    answer.give(Err(error.into()));
                    Stage::Ended
                }
            },
            Stage::Open => Stage::Open,
            Stage::Dropped | Stage::Ended => {
                context.net.stop_listening();
                Stage::Ended
            }
        };
    }

    pub(super) const fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::Ended)
    }

    /// A connection came in.
    pub(super) fn accept(&self, key: Key, conn: ConnId, peer: &Peer) -> Result<ConnTask, u64> {
        if !matches!(self.stage, Stage::Open) || !self.shared.reserve(self.backlog) {
            tracing::debug!(addr = %peer.addr, "no room for a connection");
            return Err(NO_ROOM);
        }
        let shared = Arc::new(ConnShared::new(self.shared.remote().clone(), key));
        let arrival = Arrival {
            listener: Arc::clone(&self.shared),
            handle: ConnHandle::new(Arc::clone(&shared)),
        };
        Ok(ConnTask::accepted(
            shared,
            arrival,
            conn,
            peer,
            self.settings,
        ))
    }
}

impl Drop for ListenerTask {
    fn drop(&mut self) {
        self.shared.end();
    }
}

/// The port of the first is that of all.
fn listen(net: &mut Net, configs: Vec<ListenerConfig>) -> Result<SocketAddr, NetError> {
    let mut first: Option<SocketAddr> = None;
    for mut config in configs {
        if let Some(first) = first {
            config.addr.set_port(first.port());
            config.index = 1;
        }
        let addr = net.listen(config)?;
        first.get_or_insert(addr);
    }
    first.ok_or(NetError::Config("there is nothing to listen for"))
}
