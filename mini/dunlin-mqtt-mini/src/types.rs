//! What an application and a session tell each other.

/// Quality of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum Qos {
    /// Sent once and forgotten.
    AtMostOnce = 0,
    /// Acknowledged; what was not is to be sent again.
    AtLeastOnce = 1,
    /// Acknowledged twice, so that no copy arrives.
    #[cfg(feature = "qos2")]
    ExactlyOnce = 2,
}

/// What a session is begun with.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The name of the device; the broker keeps the session under it.
    pub client_id: &'a [u8],
    /// Seconds after which the broker expects a sign of life; zero is never.
    pub keep_alive: u16,
    /// Seconds that the broker keeps the session without a connection. With
    /// the feature `qos2`, a new [`Session`](crate::Session) does not resume it.
    pub expiry: u32,
    /// May be empty.
    pub user: &'a [u8],
    /// May be empty.
    pub password: &'a [u8],
    /// What the broker says for a device that it has lost.
    pub will: Option<Will<'a>>,
}

/// A message that the broker publishes when the connection ends without
/// DISCONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Will<'a> {
    /// The message.
    pub message: Message<'a>,
    /// Seconds that the broker waits, in which the device may come back.
    pub delay: u32,
}

impl Options<'_> {
    /// No name, no user, and a session that ends with the connection.
    pub const NEW: Self = Self {
        client_id: &[],
        keep_alive: 0,
        expiry: 0,
        user: &[],
        password: &[],
        will: None,
    };
}

/// A message, of either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Where it is published.
    pub topic: &'a [u8],
    /// What is published.
    pub payload: &'a [u8],
    /// Quality of service.
    pub qos: Qos,
    /// To be kept by the broker for later subscribers, or kept by it.
    pub retain: bool,
}

/// What the application learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The broker has accepted the connection.
    Connected {
        /// Whether it knows the session: subscriptions need not be made again.
        session: bool,
    },
    /// A message. It is acknowledged by the next call of [`Session::poll`](crate::Session::poll).
    Message(Message<'a>),
    /// A message of this device is with the broker.
    Published {
        /// What [`Session::publish`](crate::Session::publish) gave.
        id: u16,
        /// Below 128: 16 says that there is no subscriber.
        reason: u8,
    },
    /// The broker did not take a message of this device. Its identifier is free
    /// again: the message may be published as a new one, not
    /// [again](crate::Session::publish_again).
    Rejected {
        /// What [`Session::publish`](crate::Session::publish) gave.
        id: u16,
        /// From 128 on; [`reason_text`](crate::reason_text) has it in words.
        reason: u8,
    },
    /// The answer to a subscription.
    Subscribed {
        /// What [`Session::subscribe`](crate::Session::subscribe) gave.
        id: u16,
        /// The quality of service, or a refusal from 128 on.
        reason: u8,
    },
    /// The answer to the end of a subscription.
    Unsubscribed {
        /// What [`Session::unsubscribe`](crate::Session::unsubscribe) gave.
        id: u16,
        /// Zero, 17 if there was no such subscription, or a refusal from 128
        /// on.
        reason: u8,
    },
}
