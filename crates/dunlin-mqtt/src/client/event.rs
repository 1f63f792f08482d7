//! What the engine tells its owner.

use dunlin_mqtt_codec::{Ack, Auth, ConnAck, Disconnect, PacketId, Publish, SubAck, UnsubAck};

use super::inbound::Receipt;

/// What a packet from the server means. Borrows from the packet and from the
/// engine's topic aliases.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Nothing for the owner: an answer to a ping, a repetition.
    Nothing,
    /// The connection stands; the limits are in
    /// [`Session::negotiated`](super::Session::negotiated). Drain
    /// [`Session::poll_resume`](super::Session::poll_resume) next.
    Connected(ConnAck<'a>),
    /// The server refused the connection, which is over.
    Refused(ConnAck<'a>),
    /// The server wants another step of the authentication: answer with
    /// [`Session::authenticate`](super::Session::authenticate).
    Auth(Auth<'a>),
    /// The re-authentication succeeded.
    Authenticated(Auth<'a>),
    /// A message, its topic alias resolved. With a receipt for QoS 1 and 2,
    /// which goes to [`Session::acknowledge`](super::Session::acknowledge).
    Message(Publish<'a>, Option<Receipt>),
    /// A QoS 2 message has arrived at the server; its payload is not needed
    /// any more. [`Event::Published`] follows.
    Recorded(PacketId),
    /// A message of QoS 1 or 2 is done, well or, by the acknowledgement's
    /// reason, not. Its packet identifier is free.
    Published(Ack<'a>),
    /// Answer to SUBSCRIBE. Its packet identifier is free.
    Subscribed(SubAck<'a>),
    /// Answer to UNSUBSCRIBE. Its packet identifier is free.
    Unsubscribed(UnsubAck<'a>),
    /// The server ends the connection.
    Disconnected(Disconnect<'a>),
}

/// What is left of earlier connections, one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resume {
    /// Send this message again with [`Session::resend`](super::Session::resend):
    /// as a repetition if the server kept the session, else as new. Asked for
    /// again until that or [`Session::abandon`](super::Session::abandon) is done.
    Publish(PacketId),
    /// The server had taken this QoS 2 message, and then lost the session:
    /// there is nothing left to do for it. Its packet identifier is free.
    Completed(PacketId),
    /// This SUBSCRIBE or UNSUBSCRIBE was never answered. Its packet identifier
    /// is free; make a new request.
    Request(PacketId),
}

/// What is due to be written, as far as it matters where it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Owed {
    /// PUBREL for this message of QoS 2: belongs on the stream of its PUBLISH.
    Release(PacketId),
    /// Anything else.
    Other,
}
