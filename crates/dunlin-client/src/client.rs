//! What an application holds: [`Client`], and the futures of what it asks.

use core::fmt;
use core::future::Future;
use core::net::SocketAddr;
use core::num::NonZeroU32;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::Arc;

use dunlin_base::topic::{Filter, validate_name};
use dunlin_base::transport::Transport;
use dunlin_base::{QoS, Text};
use dunlin_mqtt::client::Negotiated;
use dunlin_mqtt::codec::{ReasonCode, RetainHandling, SubscribeOptions};
use dunlin_net::Move;
use tokio::sync::{OwnedSemaphorePermit, TryAcquireError, broadcast, oneshot};

use crate::arguments::TextArg;
use crate::command::Command;
use crate::error::{
    ConnectError, DisconnectCause, MigrateError, PublishError, RuntimeError, SubscribeError,
    TryPublishError,
};
use crate::events::{Events, Migrated, StreamStatistics};
use crate::message::Publish;
use crate::messages::Messages;
use crate::options::Options;
use crate::runtime::Runtime;
use crate::shared::{NewClient, Shared};
use crate::work::{Migration, QueuedPublish, Request, RequestKind};

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
/// connection ends, as with [`Client::disconnect`], when the last clone and
/// its [`Messages`] are dropped.
pub struct Client {
    shared: Arc<Shared>,
}

impl Client {
    pub(crate) fn start(
        runtime: &Runtime,
        options: Arc<Options>,
    ) -> Result<(Self, Messages, Connecting), ConnectError> {
        let (key, remote) = runtime.register()?;
        let shared = Arc::new(Shared::new(key, remote, &options));
        // Made before the wait, so that giving up closes the connection.
        let client = Self {
            shared: Arc::clone(&shared),
        };
        let messages = Messages {
            shared: Arc::clone(&shared),
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
        Ok((client, messages, Connecting { answer, events }))
    }

    /// Publishes a message and waits until the server has taken it over: for
    /// QoS 1 until PUBACK, for QoS 2 until PUBCOMP, for QoS 0 until it has left
    /// for the network. Waits for room first, if as many messages as allowed
    /// are in flight, and for a connection, if there is none.
    ///
    /// The answer is [`ReasonCode::Success`], or
    /// [`ReasonCode::NoMatchingSubscribers`] where the server says so.
    ///
    /// # Errors
    /// The topic is wrong, the server refused, or the client was closed first.
    ///
    /// # Cancel safety
    /// Dropping the future before there was room publishes nothing. Afterwards
    /// the message goes out all the same, and only its outcome is lost.
    ///
    /// # Examples
    /// ```no_run
    /// # use dunlin_client::{Client, Publish, PublishError, QoS};
    /// # async fn run(client: Client) -> Result<(), PublishError> {
    /// let message = Publish::new("plant/7/temperature", "21.5").qos(QoS::AtLeastOnce);
    /// client.publish(message).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn publish(&self, publish: Publish) -> Result<ReasonCode, PublishError> {
        self.start_publish(publish).await?.await
    }

    /// Waits for room, hands over a message, and gives a future of its
    /// outcome. Messages leave in the order in which they were handed over, so
    /// that one task can have many in flight.
    ///
    /// # Errors
    /// The topic is wrong, or the client is closed.
    ///
    /// # Cancel safety
    /// Dropping the future publishes nothing. Dropping the [`Delivery`] only
    /// loses the outcome.
    ///
    /// # Examples
    /// ```no_run
    /// # use dunlin_client::{Client, Publish, PublishError, QoS};
    /// # async fn run(client: Client, readings: Vec<String>) -> Result<(), PublishError> {
    /// let mut deliveries = Vec::new();
    /// for reading in readings {
    ///     let message = Publish::new("plant/7", reading).qos(QoS::AtLeastOnce);
    ///     deliveries.push(client.start_publish(message).await?);
    /// }
    /// for delivery in deliveries {
    ///     delivery.await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn start_publish(&self, publish: Publish) -> Result<Delivery, PublishError> {
        validate_name(&publish.topic)?;
        let permit = Arc::clone(&self.shared.in_flight).acquire_owned().await;
        match permit {
            Ok(permit) => Ok(self.hand_over(publish, permit)),
            Err(_) => Err(PublishError::Closed(self.shared.closed())),
        }
    }

    /// As [`Client::start_publish`], but does not wait for room.
    ///
    /// # Errors
    /// [`TryPublishError::Full`] with the message, if there is no room; or as
    /// [`Client::start_publish`].
    pub fn try_publish(&self, publish: Publish) -> Result<Delivery, TryPublishError> {
        validate_name(&publish.topic).map_err(PublishError::from)?;
        match Arc::clone(&self.shared.in_flight).try_acquire_owned() {
            Ok(permit) => Ok(self.hand_over(publish, permit)),
            Err(TryAcquireError::NoPermits) => Err(TryPublishError::Full(publish)),
            Err(TryAcquireError::Closed) => Err(PublishError::Closed(self.shared.closed()).into()),
        }
    }

    fn hand_over(&self, publish: Publish, permit: OwnedSemaphorePermit) -> Delivery {
        let (done, outcome) = oneshot::channel();
        let queued = QueuedPublish::new(publish, permit, done);
        let shared = &self.shared;
        shared.push(Command::Publish(queued));
        Delivery {
            outcome,
            shared: Arc::clone(shared),
        }
    }

    /// Subscribes, and waits for the server's answer. The messages arrive at
    /// [`Messages`]. The subscription lasts until [`Client::unsubscribe`]: it
    /// is made again if the server loses the session.
    ///
    /// # Errors
    /// The filter is wrong, the server refused, or the client was closed.
    ///
    /// # Cancel safety
    /// Dropping the future may or may not leave the subscription made.
    ///
    /// # Examples
    /// ```no_run
    /// # use dunlin_client::{Client, QoS, Subscribe, SubscribeError};
    /// # async fn run(client: Client) -> Result<(), SubscribeError> {
    /// client.subscribe("plant/+/alarm", QoS::ExactlyOnce).await?;
    /// client.subscribe("log/#", Subscribe::new(QoS::AtMostOnce).no_local(true)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn subscribe(
        &self,
        filter: impl Into<TextArg>,
        how: impl Into<Subscribe>,
    ) -> Result<Subscription, SubscribeError> {
        let how = how.into();
        let filters = vec![(filter.into().0, how.options)];
        let reasons = self.subscribe_all(filters, how.id).await?;
        let reason = reasons.first().copied().ok_or(SubscribeError::Answer)?;
        Subscription::from_reason(reason)
    }

    /// Makes several subscriptions with one packet; one answer for each.
    ///
    /// # Errors
    /// As [`Client::subscribe`]; a refusal of single filters is in the answer.
    ///
    /// # Cancel safety
    /// As [`Client::subscribe`].
    pub async fn subscribe_many<F: Into<TextArg>, H: Into<Subscribe>>(
        &self,
        filters: impl IntoIterator<Item = (F, H)>,
    ) -> Result<Vec<Result<Subscription, SubscribeError>>, SubscribeError> {
        let mut id = None;
        let filters: Vec<_> = filters
            .into_iter()
            .map(|(filter, how)| {
                let how = how.into();
                id = id.or(how.id);
                (filter.into().0, how.options)
            })
            .collect();
        if filters.is_empty() {
            return Ok(Vec::new());
        }
        let reasons = self.subscribe_all(filters, id).await?;
        Ok(reasons.into_iter().map(Subscription::from_reason).collect())
    }

    async fn subscribe_all(
        &self,
        filters: Vec<(Text, SubscribeOptions)>,
        id: Option<NonZeroU32>,
    ) -> Result<Vec<ReasonCode>, SubscribeError> {
        for (filter, _) in &filters {
            Filter::parse(filter)?;
        }
        let count = filters.len();
        let reasons = self.request(RequestKind::Subscribe { filters, id }).await?;
        if reasons.len() == count {
            Ok(reasons)
        } else {
            Err(SubscribeError::Answer)
        }
    }

    /// Ends a subscription, and waits for the server's answer: messages that
    /// are on their way may still arrive.
    ///
    /// The answer is [`ReasonCode::Success`], or
    /// [`ReasonCode::NoSubscriptionExisted`].
    ///
    /// # Errors
    /// As [`Client::subscribe`].
    ///
    /// # Cancel safety
    /// Dropping the future may or may not leave the subscription ended.
    pub async fn unsubscribe(
        &self,
        filter: impl Into<TextArg>,
    ) -> Result<ReasonCode, SubscribeError> {
        let filter = filter.into().0;
        Filter::parse(&filter)?;
        let reasons = self
            .request(RequestKind::Unsubscribe {
                filters: vec![filter],
            })
            .await?;
        // MQTT 3.1.1 gives no reason codes.
        match reasons.first().copied().unwrap_or_default() {
            reason if reason.is_error() => Err(SubscribeError::Refused { reason }),
            reason => Ok(reason),
        }
    }

    async fn request(&self, kind: RequestKind) -> Result<Vec<ReasonCode>, SubscribeError> {
        let shared = &self.shared;
        let closed = || SubscribeError::Closed(shared.closed());
        let permit = Arc::clone(&shared.requests).acquire_owned().await;
        let permit = permit.map_err(|_| closed())?;
        let (done, answer) = oneshot::channel();
        let request = Request {
            kind,
            done: Some((done, permit)),
        };
        shared.push(Command::Request(request));
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Moves the connection to another local address, without a new
    /// connection: streams, subscriptions and messages in flight go on. With
    /// `None` the system chooses the address. First a probe is sent from
    /// there; without an answer from the server the connection stays.
    ///
    /// A connection moves by itself when its address disappears or the system
    /// prefers another, unless
    /// [`NetworkOptions::follow`](crate::NetworkOptions::follow) is off.
    ///
    /// # Errors
    /// It cannot move, or the server did not answer; it then goes on as before.
    ///
    /// # Cancel safety
    /// Dropping the future only loses the outcome.
    ///
    /// # Examples
    /// ```no_run
    /// # use dunlin_client::{Client, MigrateError};
    /// # async fn run(client: Client) -> Result<(), MigrateError> {
    /// let moved = client.migrate("192.0.2.7:0".parse().ok()).await?;
    /// println!("from {} to {}", moved.from, moved.to);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn migrate(&self, local: Option<SocketAddr>) -> Result<Migrated, MigrateError> {
        self.start_migration(local, Move::Probed).await
    }

    /// As [`Client::migrate`], but without a probe: for an application that
    /// knows that the old path is gone.
    ///
    /// # Errors
    /// It cannot move.
    ///
    /// # Cancel safety
    /// As [`Client::migrate`].
    pub async fn migrate_at_once(
        &self,
        local: Option<SocketAddr>,
    ) -> Result<Migrated, MigrateError> {
        self.start_migration(local, Move::AtOnce).await
    }

    async fn start_migration(
        &self,
        to: Option<SocketAddr>,
        how: Move,
    ) -> Result<Migrated, MigrateError> {
        let (done, outcome) = oneshot::channel();
        let shared = &self.shared;
        let migration = Migration { to, how, done };
        shared.push(Command::Migrate(migration));
        let closed = |_| Err(MigrateError::Closed(shared.closed()));
        outcome.await.unwrap_or_else(closed)
    }

    /// What happens to the connection from now on.
    #[must_use]
    pub fn events(&self) -> Events {
        let status = self.shared.status();
        let receiver = match &status.events {
            Some(events) => events.subscribe(),
            None => broadcast::Sender::new(1).subscribe(),
        };
        Events { receiver }
    }

    /// How it is connected, if it is.
    #[must_use]
    pub fn transport(&self) -> Option<Transport> {
        self.shared.status().transport
    }

    /// What was done with streams and datagrams.
    #[must_use]
    pub fn stream_statistics(&self) -> StreamStatistics {
        self.shared.status().streams
    }

    /// The client identifier, chosen by the server where it did.
    #[must_use]
    pub fn client_id(&self) -> Text {
        self.shared.status().client_id.clone()
    }

    /// What the server allows on the current connection; `None` without one.
    #[must_use]
    pub fn negotiated(&self) -> Option<Negotiated> {
        self.shared.status().negotiated
    }

    /// Writes what was handed over before, sends DISCONNECT and closes the
    /// connection; the server does not publish the will. Messages of QoS 1 and
    /// 2 whose acknowledgement has not come fail: await them first. The client
    /// is then closed for all its clones.
    ///
    /// # Cancel safety
    /// The client ends even if the future is dropped.
    pub async fn disconnect(&self) {
        self.end(ReasonCode::NORMAL_DISCONNECTION, None).await;
    }

    /// As [`Client::disconnect`], but the server publishes the will.
    ///
    /// # Cancel safety
    /// As [`Client::disconnect`].
    pub async fn disconnect_with_will(&self) {
        self.end(ReasonCode::DisconnectWithWill, None).await;
    }

    /// As [`Client::disconnect`], and the server keeps the session this long;
    /// needs a session expiry when connecting. MQTT 5.0.
    ///
    /// # Cancel safety
    /// As [`Client::disconnect`].
    pub async fn disconnect_and_keep_session(&self, expiry: Duration) {
        self.end(ReasonCode::NORMAL_DISCONNECTION, Some(expiry))
            .await;
    }

    async fn end(&self, reason: ReasonCode, expiry: Option<Duration>) {
        let (done, gone) = oneshot::channel();
        self.shared.push(Command::Disconnect {
            reason,
            expiry,
            done,
        });
        // An error means that the client had ended before.
        let _ = gone.await;
    }
}

impl Clone for Client {
    fn clone(&self) -> Self {
        self.shared.retain();
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.release();
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("client_id", &self.client_id())
            .finish_non_exhaustive()
    }
}

/// The outcome of a message that has been handed over; see
/// [`Client::start_publish`].
#[must_use = "only its outcome tells whether a message arrived"]
pub struct Delivery {
    outcome: oneshot::Receiver<Result<ReasonCode, PublishError>>,
    shared: Arc<Shared>,
}

impl Future for Delivery {
    type Output = Result<ReasonCode, PublishError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match Pin::new(&mut self.outcome).poll(cx) {
            Poll::Ready(Ok(outcome)) => Poll::Ready(outcome),
            Poll::Ready(Err(_)) => Poll::Ready(Err(PublishError::Closed(self.shared.closed()))),
            Poll::Pending => Poll::Pending,
        }
    }
}

dunlin_base::opaque_debug!(Delivery);

/// How to subscribe. A [`QoS`] alone will do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Subscribe {
    options: SubscribeOptions,
    id: Option<NonZeroU32>,
}

impl Subscribe {
    /// With this highest QoS.
    pub fn new(qos: QoS) -> Self {
        Self {
            options: SubscribeOptions {
                qos,
                ..SubscribeOptions::default()
            },
            id: None,
        }
    }

    /// Does not deliver what this client publishes. MQTT 5.0, as the rest.
    pub fn no_local(mut self, no_local: bool) -> Self {
        self.options.no_local = no_local;
        self
    }

    /// Keeps the retain flag as the publisher set it.
    pub fn retain_as_published(mut self, keep: bool) -> Self {
        self.options.retain_as_published = keep;
        self
    }

    /// Whether retained messages are wanted.
    pub fn retain_handling(mut self, handling: RetainHandling) -> Self {
        self.options.retain_handling = handling;
        self
    }

    /// Marks its messages with a number, from 1 to 268,435,455.
    pub fn id(mut self, id: NonZeroU32) -> Self {
        self.id = Some(id);
        self
    }
}

impl From<QoS> for Subscribe {
    fn from(qos: QoS) -> Self {
        Self::new(qos)
    }
}

/// A subscription that the server has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Subscription {
    /// The highest QoS of its messages, at most what was asked for.
    pub granted: QoS,
}

impl Subscription {
    fn from_reason(reason: ReasonCode) -> Result<Self, SubscribeError> {
        match QoS::from_u8(reason.to_u8()) {
            Some(granted) => Ok(Self { granted }),
            None => Err(SubscribeError::Refused { reason }),
        }
    }
}
