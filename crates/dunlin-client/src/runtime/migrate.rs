//! Moving the connection of a client to another local address: the command,
//! and its outcome. How it is done is the transport's affair.

use core::net::SocketAddr;
use std::sync::Arc;

use dunlin_base::ConnId;
use dunlin_base::transport::NetEventKind;
use dunlin_net::Move;
use tokio::sync::oneshot;

use super::io::Context;
use super::session::Session;
use crate::error::MigrateError;
use crate::events::{ConnectionEvent, Migrated};

/// Where the outcome goes.
pub(crate) type Done = oneshot::Sender<Result<Migrated, MigrateError>>;

/// A wish to move.
pub(crate) struct Migration {
    pub(crate) to: Option<SocketAddr>,
    pub(crate) how: Move,
    pub(crate) done: Done,
}

/// Moves of one client.
#[derive(Default)]
pub(super) struct Migrations {
    /// Not yet given to the transport.
    wanted: Vec<Migration>,
    /// The one under way, and its connection.
    under_way: Option<(ConnId, Done)>,
}

impl Migrations {
    pub(super) fn want(&mut self, migration: Migration) {
        self.wanted.push(migration);
    }

    fn finish(&mut self, conn: ConnId, outcome: Result<Migrated, MigrateError>) {
        if self.under_way.as_ref().is_some_and(|(c, _)| *c == conn)
            && let Some((_, done)) = self.under_way.take()
        {
            // Whoever does not wait for the outcome does not want it.
            let _ = done.send(outcome);
        }
    }
}

impl Session {
    /// Gives wishes to the transport, and gives up what cannot come any more.
    pub(super) fn run_migrations(&mut self, context: &mut Context<'_>) {
        let core = &mut self.core;
        let open = core.link.open_conn();
        let lost = core.migrations.under_way.as_ref().map(|(conn, _)| *conn);
        if let Some(conn) = lost.filter(|conn| open != Some(*conn)) {
            core.migrations
                .finish(conn, Err(MigrateError::NotConnected));
        }
        for Migration { to, how, done } in core.migrations.wanted.drain(..) {
            let Some(conn) = open else {
                let _ = done.send(Err(MigrateError::NotConnected));
                continue;
            };
            match context.net.migrate(conn, to, how) {
                // Only one is under way: the transport refuses another.
                Ok(()) => core.migrations.under_way = Some((conn, done)),
                Err(error) => {
                    let _ = done.send(Err(MigrateError::Refused(Arc::new(error))));
                }
            }
        }
    }

    /// The transport moved a connection, or could not.
    pub(super) fn on_moved(&mut self, conn: ConnId, event: &NetEventKind<&[u8]>) {
        let core = &mut self.core;
        match *event {
            NetEventKind::Moved { from, to } => {
                let moved = Migrated { from, to };
                if core.link.open_conn() == Some(conn) {
                    core.shared.emit(ConnectionEvent::Migrated(moved));
                }
                core.migrations.finish(conn, Ok(moved));
            }
            NetEventKind::MoveFailed { to } => {
                core.migrations
                    .finish(conn, Err(MigrateError::NoAnswer { from: to }));
            }
            _ => {}
        }
    }
}
