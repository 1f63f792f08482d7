//! What an application hands over to its client: messages, requests, moves.

use core::net::SocketAddr;
use core::num::NonZeroU32;

use dunlin_base::{Instant, StreamId, Text};
use dunlin_mqtt::codec::{ReasonCode, SubscribeOptions};
use dunlin_net::Move;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::error::{MigrateError, PublishError, SubscribeError};
use crate::events::Migrated;
use crate::message::Publish;
use crate::outbox::Waiting;
use crate::streams::Priority;

/// A message on its way to the server.
pub(crate) struct QueuedPublish {
    pub(crate) publish: Publish,
    permit: OwnedSemaphorePermit,
    done: oneshot::Sender<Result<ReasonCode, PublishError>>,
    /// By its topic.
    pub(crate) priority: Priority,
    /// When it is of no use any more.
    pub(crate) obsolete_at: Option<Instant>,
    /// The stream of this connection that it was written on.
    pub(crate) stream: Option<StreamId>,
}

impl QueuedPublish {
    pub(crate) fn new(
        publish: Publish,
        permit: OwnedSemaphorePermit,
        done: oneshot::Sender<Result<ReasonCode, PublishError>>,
    ) -> Self {
        Self {
            publish,
            permit,
            done,
            priority: Priority::NORMAL,
            obsolete_at: None,
            stream: None,
        }
    }

    pub(crate) fn finish(self, outcome: Result<ReasonCode, PublishError>) {
        drop(self.permit);
        // It is not wanted if its receiver is gone.
        let _ = self.done.send(outcome);
    }
}

impl Waiting for QueuedPublish {
    fn topic(&self) -> &Text {
        &self.publish.topic
    }

    fn priority(&self) -> Priority {
        self.priority
    }

    fn obsolete_at(&self) -> Option<Instant> {
        self.obsolete_at
    }
}

/// A SUBSCRIBE or UNSUBSCRIBE. Without `done` it is one that the client makes by
/// itself after the server lost the session.
pub(crate) struct Request {
    pub(crate) kind: RequestKind,
    pub(crate) done: Option<(Answer, OwnedSemaphorePermit)>,
}

/// Where the answer to a request goes.
type Answer = oneshot::Sender<Result<Vec<ReasonCode>, SubscribeError>>;

impl Request {
    pub(crate) fn finish(self, outcome: Result<Vec<ReasonCode>, SubscribeError>) {
        if let Some((done, permit)) = self.done {
            drop(permit);
            let _ = done.send(outcome);
        }
    }
}

impl Request {
    /// What it is about.
    pub(crate) fn filters(&self) -> Box<dyn Iterator<Item = &Text> + '_> {
        match &self.kind {
            RequestKind::Subscribe { filters, .. } => Box::new(filters.iter().map(|(f, _)| f)),
            RequestKind::Unsubscribe { filters } => Box::new(filters.iter()),
        }
    }
}

pub(crate) enum RequestKind {
    Subscribe {
        filters: Vec<(Text, SubscribeOptions)>,
        id: Option<NonZeroU32>,
    },
    Unsubscribe {
        filters: Vec<Text>,
    },
}

/// A wish to move the connection to another local address.
pub(crate) struct Migration {
    pub(crate) to: Option<SocketAddr>,
    pub(crate) how: Move,
    pub(crate) done: oneshot::Sender<Result<Migrated, MigrateError>>,
}
