//! What an application holds: [`Client`].

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::{Arc, Weak};

use dunlin_base::Text;
use dunlin_base::transport::Transport;
use tokio::sync::oneshot;

use crate::command::Command;
use crate::error::{ConnectError, DisconnectCause, LinkError, RuntimeError};
use crate::events::Events;
use crate::options::Options;
use crate::receiver::ReceiverBuilder;
use crate::runtime::Runtime;
use crate::sender::SenderBuilder;
use crate::shared::{Alive, NewClient, Shared};
use crate::terminus::Node;
use crate::transaction::Controller;

/// The outcome of a first attempt to connect.
#[derive(Debug)]
#[must_use = "tells whether the server accepts"]
pub struct Connecting {
    answer: oneshot::Receiver<Result<(), DisconnectCause>>,
    events: Events,
}

impl Connecting {
    /// Everything that happens to the connection, from the start of the client on,
    /// also if it has happened already: [`Client::events`] may come too late for the
    /// first ones. A second call gives what happens from then on.
    #[must_use]
    pub fn events(&mut self) -> Events {
        self.events.take()
    }
}

impl Future for Connecting {
    type Output = Result<(), ConnectError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.answer)
            .poll(context)
            .map(|answer| match answer {
                Ok(Ok(())) => Ok(()),
                Ok(Err(cause)) => Err(ConnectError::Failed(cause)),
                Err(_) => Err(RuntimeError::Ended.into()),
            })
    }
}

/// A connection to a server that comes back by itself. Cheap to clone; the
/// connection ends when the last clone and all senders and receivers are
/// dropped.
#[derive(Clone)]
pub struct Client {
    alive: Arc<Alive>,
}

impl Client {
    pub(crate) fn start(
        runtime: &Runtime,
        options: Arc<Options>,
    ) -> Result<(Self, Connecting), ConnectError> {
        let (key, remote) = runtime.register()?;
        let shared = Arc::new(Shared::new(key, remote, options.streams));
        // Made before the wait, so that giving up closes the connection.
        let client = Self {
            alive: Arc::new(Alive(Arc::clone(&shared))),
        };
        let (connected, answer) = oneshot::channel();
        // Before anything can happen.
        let events = client.events();
        let new = NewClient {
            shared: Arc::clone(&shared),
            options,
            connected,
        };
        shared.remote.add(key, new);
        Ok((client, Connecting { answer, events }))
    }

    pub(crate) const fn of(alive: Arc<Alive>) -> Self {
        Self { alive }
    }

    /// Itself, without keeping it alive.
    pub(crate) fn downgrade(&self) -> Weak<Alive> {
        Arc::downgrade(&self.alive)
    }

    /// A sender to this address, to be configured and attached.
    pub fn sender(&self, address: impl AsRef<str>) -> SenderBuilder {
        let node = Node::Address(Text::from(address.as_ref()));
        SenderBuilder::new(&self.alive, node)
    }

    /// A sender of messages that say themselves where they go
    /// ([`Message::to`](crate::Message::to)).
    pub fn anonymous_sender(&self) -> SenderBuilder {
        SenderBuilder::new(&self.alive, Node::Anonymous)
    }

    /// A receiver from this address, to be configured and attached.
    pub fn receiver(&self, address: impl AsRef<str>) -> ReceiverBuilder {
        let node = Node::Address(Text::from(address.as_ref()));
        ReceiverBuilder::new(&self.alive, node)
    }

    /// A receiver from a node that the server makes for it;
    /// [`Receiver::address`](crate::Receiver::address) says which. After a
    /// reconnection it is another.
    pub fn dynamic_receiver(&self) -> ReceiverBuilder {
        ReceiverBuilder::new(&self.alive, Node::Dynamic)
    }

    /// Attaches to the coordinator of transactions.
    ///
    /// # Errors
    /// The server has no transactions, the client was closed, or its links are not
    /// on one stream ([`StreamPolicy::PerLink`](crate::StreamPolicy)).
    pub async fn controller(&self) -> Result<Controller, LinkError> {
        if !self.alive.0.has_one_connection() {
            return Err(LinkError::Streams);
        }
        let builder = SenderBuilder::new(&self.alive, Node::Coordinator);
        builder.attach().await.map(Controller::new)
    }

    /// What happens to the connection from now on.
    #[must_use]
    pub fn events(&self) -> Events {
        Events {
            receiver: self.alive.0.watch(),
        }
    }

    /// How it is connected, if it is.
    #[must_use]
    pub fn transport(&self) -> Option<Transport> {
        self.alive.0.transport()
    }

    /// Streams of the connection in use, one if all links share it.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.alive.0.streams()
    }

    /// Closes the connection and ends the client. What waits for credit or for
    /// an outcome fails.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop it.
    pub async fn close(&self) {
        let (done, closed) = oneshot::channel();
        self.alive.0.push(Command::Close(done));
        // Without an answer it was closed before.
        let _ = closed.await;
    }
}

dunlin_base::opaque_debug!(Client);
