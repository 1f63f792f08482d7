//! Senders: how one is described, what is sent on it, and what became of that.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::Arc;

use dunlin_amqp::codec::{
    ReceiverSettleMode, Role, SenderSettleMode, TerminusDurability, TerminusExpiryPolicy,
};
use dunlin_base::Text;
use dunlin_dial::random_u64;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, oneshot};

use crate::command::{Command, NewSender, Outgoing, Posted, Reply, SenderShared, Sent, Status};
use crate::error::{LinkError, SendError, TrySendError};
use crate::limits::{IN_FLIGHT, IN_FLIGHT_MAX};
use crate::link::{Attaching, Handle, spec_methods, why_ended};
use crate::message::Message;
use crate::outcome::Outcome;
use crate::shared::{Alive, Shared};
use crate::terminus::{Attached, LinkSpec, Node};

/// Describes a [`Sender`].
#[must_use = "does nothing until it is attached"]
pub struct SenderBuilder {
    alive: Arc<Alive>,
    spec: LinkSpec,
    in_flight: u32,
}

impl SenderBuilder {
    pub(crate) fn new(alive: &Arc<Alive>, node: Node) -> Self {
        let name = Text::from(format!("s-{:016x}", random_u64()));
        Self {
            alive: Arc::clone(alive),
            spec: LinkSpec::new(name, Role::Sender, node),
            in_flight: IN_FLIGHT,
        }
    }

    spec_methods!();

    /// Every message is sent settled: at most once, and nothing comes back.
    pub fn settled(mut self) -> Self {
        self.spec.snd_settle_mode = SenderSettleMode::Settled;
        self
    }

    /// No message is sent settled. Default: as each call says, and
    /// [`Sender::send`] means unsettled.
    pub fn unsettled(mut self) -> Self {
        self.spec.snd_settle_mode = SenderSettleMode::Unsettled;
        self
    }

    /// The receiving end settles after this one: exactly once, also over
    /// reconnections, where the server keeps the state of a link.
    pub fn exactly_once(mut self) -> Self {
        self.spec.snd_settle_mode = SenderSettleMode::Unsettled;
        self.spec.rcv_settle_mode = ReceiverSettleMode::Second;
        self.durable(TerminusDurability::UnsettledState)
            .expiry(TerminusExpiryPolicy::Never, Duration::ZERO)
    }

    /// How many messages may be without outcome, or without credit, 1 to 4,096;
    /// further calls of [`Sender::send`] wait. Default 256.
    pub fn max_in_flight(mut self, messages: u32) -> Self {
        self.in_flight = messages.clamp(1, IN_FLIGHT_MAX);
        self
    }

    /// Attaches, and waits for the server's answer.
    ///
    /// # Errors
    /// The server refuses, or the client was closed.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the link.
    pub async fn attach(self) -> Result<Sender, LinkError> {
        let (sender, attaching) = self.start()?;
        attaching.await?;
        Ok(sender)
    }

    /// Attaches without waiting; what is sent meanwhile leaves when the server
    /// gives credit.
    ///
    /// # Errors
    /// None yet; later what the future says.
    pub fn start(self) -> Result<(Sender, Attaching), LinkError> {
        let shared = Arc::new(SenderShared {
            in_flight: Arc::new(Semaphore::new(self.in_flight as usize)),
            status: Status::default(),
        });
        let (attached, attaching) = Attaching::new();
        let link = Handle::new(self.alive, &self.spec);
        let mode = self.spec.snd_settle_mode;
        let new = NewSender {
            spec: self.spec,
            shared: Arc::clone(&shared),
            attached,
        };
        link.push(Command::Sender(link.key, Box::new(new)));
        Ok((Sender { link, shared, mode }, attaching))
    }
}

impl fmt::Debug for SenderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spec.fmt(f)
    }
}

/// A link on which this side sends. It is attached again by itself when the
/// connection comes back. Dropping it detaches it when what was handed over has
/// its outcome.
pub struct Sender {
    link: Handle,
    shared: Arc<SenderShared>,
    mode: SenderSettleMode,
}

impl Sender {
    /// Sends a message, and waits for its outcome. Waits for room first, if as
    /// many messages as allowed are in flight, for credit, and for a connection,
    /// if there is none.
    ///
    /// A message that was sent when the connection broke is resumed: where the
    /// server knows it, it is not sent twice; where the server has forgotten,
    /// it is sent again.
    ///
    /// # Errors
    /// The message cannot be sent, or the link has ended.
    ///
    /// # Cancel safety
    /// Dropping the future before there was room sends nothing. Afterwards the
    /// message goes out all the same, and only its outcome is lost.
    ///
    /// # Examples
    /// ```no_run
    /// # use dunlin_amqp_client::{Client, Message};
    /// # async fn run(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let sender = client.sender("plant/7/temperature").attach().await?;
    /// let outcome = sender.send(Message::new("21.5").durable(true)).await?;
    /// assert!(outcome.is_accepted());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn send(&self, message: impl Into<Message>) -> Result<Outcome, SendError> {
        self.start_send(message).await?.await
    }

    /// As [`Sender::send`], but settled: it has left for the network then, and
    /// nothing more is known. On a link that was made
    /// [`SenderBuilder::unsettled`] it is an ordinary message.
    ///
    /// # Errors
    /// As [`Sender::send`]; [`SendError::Lost`] if the connection broke with it.
    pub async fn send_settled(&self, message: impl Into<Message>) -> Result<Outcome, SendError> {
        let permit = self.permit().await?;
        self.hand_over(&message.into(), true, None, permit)?.await
    }

    /// Waits for room, hands over a message, and gives a future of its outcome.
    /// Messages leave in the order in which they were handed over, so that one
    /// task can have many in flight.
    ///
    /// # Errors
    /// The message cannot be encoded, or the link has ended.
    ///
    /// # Cancel safety
    /// Dropping the future sends nothing. Dropping the [`Sending`] only loses
    /// the outcome.
    ///
    /// # Examples
    /// ```no_run
    /// # use dunlin_amqp_client::{Message, Sender, SendError};
    /// # async fn run(sender: Sender, readings: Vec<String>) -> Result<(), SendError> {
    /// let mut sent = Vec::new();
    /// for reading in readings {
    ///     sent.push(sender.start_send(reading).await?);
    /// }
    /// for outcome in sent {
    ///     println!("{}", outcome.await?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn start_send(&self, message: impl Into<Message>) -> Result<Sending, SendError> {
        let permit = self.permit().await?;
        self.hand_over(&message.into(), false, None, permit)
    }

    /// As [`Sender::start_send`], but does not wait for room.
    ///
    /// # Errors
    /// [`TrySendError::Full`] with the message, if there is no room; or as
    /// [`Sender::start_send`].
    pub fn try_send(&self, message: impl Into<Message>) -> Result<Sending, TrySendError> {
        let message = message.into();
        match Arc::clone(&self.shared.in_flight).try_acquire_owned() {
            Ok(permit) => Ok(self.hand_over(&message, false, None, permit)?),
            Err(TryAcquireError::NoPermits) => Err(TrySendError::Full(Box::new(message))),
            Err(TryAcquireError::Closed) => Err(SendError::Link(self.why_ended()).into()),
        }
    }

    /// Sends as part of a transaction; the outcome holds if that is committed.
    pub(crate) async fn send_in(
        &self,
        message: &Message,
        txn: Option<Posted>,
    ) -> Result<Sending, SendError> {
        let permit = self.permit().await?;
        self.hand_over(message, false, txn, permit)
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, SendError> {
        let permit = Arc::clone(&self.shared.in_flight).acquire_owned().await;
        permit.map_err(|_| SendError::Link(self.why_ended()))
    }

    fn hand_over(
        &self,
        message: &Message,
        settled: bool,
        txn: Option<Posted>,
        permit: OwnedSemaphorePermit,
    ) -> Result<Sending, SendError> {
        let (head, body) = message.encode().map_err(|_| SendError::Encoding)?;
        let (done, outcome) = oneshot::channel();
        let outgoing = Outgoing {
            head,
            body,
            settled: match self.mode {
                SenderSettleMode::Settled => true,
                SenderSettleMode::Unsettled => false,
                SenderSettleMode::Mixed => settled,
            },
            txn,
            answer: Sent {
                done,
                permit: Some(permit),
            },
        };
        self.link.push(Command::Send(self.link.key, outgoing));
        Ok(Sending {
            outcome,
            shared: Arc::clone(&self.shared),
            client: Arc::clone(&self.link.alive.0),
        })
    }

    fn why_ended(&self) -> LinkError {
        self.link.why_ended(&self.shared.status)
    }

    /// What the server granted, the last time that the link was attached.
    #[must_use]
    pub fn attached(&self) -> Attached {
        self.shared.status.attached()
    }

    /// Closes the link when what was handed over has its outcome, and waits for
    /// that. A lasting terminus ends.
    pub async fn close(self) {
        self.link.close().await;
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("key", &self.link).finish()
    }
}

/// A message that was handed over: a future of its outcome.
#[must_use = "tells what became of the message"]
pub struct Sending {
    outcome: oneshot::Receiver<Result<Reply, SendError>>,
    shared: Arc<SenderShared>,
    client: Arc<Shared>,
}

impl Sending {
    pub(crate) fn poll_reply(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Reply, SendError>> {
        let Self {
            outcome,
            shared,
            client,
        } = self;
        let ended = || Err(SendError::Link(why_ended(&shared.status, client)));
        let outcome = Pin::new(outcome).poll(context);
        outcome.map(|outcome| outcome.unwrap_or_else(|_| ended()))
    }
}

impl Future for Sending {
    type Output = Result<Outcome, SendError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_reply(context).map_ok(|reply| match reply {
            Reply::Outcome(outcome) => outcome,
            Reply::Declared(_) => Outcome::Settled,
        })
    }
}

dunlin_base::opaque_debug!(Sending);
