//! Moves of a client's connection to another local address: the wishes, and
//! their outcome. How it is done is up to the transport.

use std::sync::Arc;

use dunlin_base::ConnId;
use dunlin_dial::Context;
use tokio::sync::oneshot;

use crate::error::MigrateError;
use crate::events::Migrated;
use crate::work::Migration;

/// Moves of one client.
#[derive(Default)]
pub(super) struct Migrations {
    /// Not yet given to the transport.
    wanted: Vec<Migration>,
    /// The one under way, its connection and where the outcome goes.
    under_way: Option<(ConnId, oneshot::Sender<Result<Migrated, MigrateError>>)>,
}

impl Migrations {
    pub(super) fn want(&mut self, migration: Migration) {
        self.wanted.push(migration);
    }

    /// A connection moved, or did not.
    pub(super) fn finish(&mut self, conn: ConnId, outcome: Result<Migrated, MigrateError>) {
        if self.under_way.as_ref().is_some_and(|(c, _)| *c == conn)
            && let Some((_, done)) = self.under_way.take()
        {
            // It is not wanted if its receiver is gone.
            let _ = done.send(outcome);
        }
    }

    /// Gives wishes to the transport, and gives up what cannot come any more.
    /// `open`: the connection of the client.
    pub(super) fn run(&mut self, context: &mut Context<'_>, open: Option<ConnId>) {
        let lost = self.under_way.as_ref().map(|(conn, _)| *conn);
        if let Some(conn) = lost.filter(|conn| open != Some(*conn)) {
            self.finish(conn, Err(MigrateError::NotConnected));
        }
        for Migration { to, how, done } in self.wanted.drain(..) {
            let Some(conn) = open else {
                let _ = done.send(Err(MigrateError::NotConnected));
                continue;
            };
            match context.net.migrate(conn, to, how) {
                // Only one is under way: the transport refuses another.
                Ok(()) => self.under_way = Some((conn, done)),
                Err(error) => {
                    let _ = done.send(Err(MigrateError::Refused(Arc::new(error))));
                }
            }
        }
    }
}
