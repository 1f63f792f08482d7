//! The values that cross the border to C, in its layout.

use core::ffi::c_void;

/// Bytes that are somewhere else, without a zero behind them. How long they must
/// stay there is said where they are given.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    /// The first of them; may be null if the length is zero, and only then.
    pub data: *const u8,
    /// How many.
    pub len: usize,
}

/// Memory that the caller gives. May be null if the length is zero, and only then.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Its first byte.
    pub data: *mut u8,
    /// Bytes of it.
    pub len: usize,
}

/// The buffers of a connection. All of them belong to the library from
/// dunlin_new on; this structure is needed for the call only. They need no
/// alignment, and must not overlap.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Rooms {
    /// What is said first, and a ticket: 400 bytes and the length of a
    /// ticket.
    pub hello: Room,
    /// Handshake messages of the server: as many bytes as its certificate has,
    /// and 100.
    pub handshake: Room,
    /// Packets on their way to the broker; the longest one must fit.
    pub send: Room,
    /// Packets of the broker; the longest one must fit, and the broker learns
    /// it.
    pub receive: Room,
    /// One datagram: 1200 bytes at least, 1472 at most.
    pub datagram: Room,
}

/// What an event is about.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The broker has accepted; `session` tells whether it knows the session,
    /// so that subscriptions need not be made again.
    Connected = 1,
    /// A message: `topic`, `payload`, `qos`, `retain`.
    Message = 2,
    /// The message `id` is with the broker; `reason` 16 says that there is no
    /// subscriber.
    Published = 3,
    /// The subscription `id` is made with the quality `reason`, or refused
    /// with a `reason` from 128 on.
    Subscribed = 4,
    /// The subscription that `id` asked to end is gone; `reason` 17 says that
    /// there was none, one from 128 on that it is still there.
    Unsubscribed = 5,
    /// The broker did not take the message `id`, with a `reason` from 128 on. The
    /// number is free: publish it as a new message, or never.
    Rejected = 6,
}

/// Something that happened. It and its bytes are there until the callback
/// returns. What its kind does not name is zero.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Happened {
    /// What.
    pub kind: Kind,
    /// Whether the broker knows the session.
    pub session: bool,
    /// Whether the broker had kept the message.
    pub retain: bool,
    /// Quality of service of the message.
    pub qos: u8,
    /// Reason code of MQTT.
    pub reason: u8,
    /// The number of the message or subscription.
    pub id: u16,
    /// Topic of the message.
    pub topic: Bytes,
    /// Payload of the message.
    pub payload: Bytes,
}

/// The system below the client. All callbacks come from inside of a call of
/// the library, return to it (no longjmp, no exception), and must not call it for
/// the same client. Without one of them, but for `event`, no client is made.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// Given to all callbacks.
    pub context: *mut c_void,
    /// Sends a datagram to the broker. One that cannot be sent is a lost one.
    pub send: Option<unsafe extern "C" fn(context: *mut c_void, data: *const u8, len: usize)>,
    /// Puts a datagram of the broker into `data` without waiting, and gives its
    /// length, or zero if there is none. `room` is the length of the buffer for
    /// datagrams; one for which a greater length is given is dropped.
    pub receive:
        Option<unsafe extern "C" fn(context: *mut c_void, data: *mut u8, room: usize) -> usize>,
    /// Milliseconds of a clock that never goes back; it may wrap around.
    pub now: Option<unsafe extern "C" fn(context: *mut c_void) -> u32>,
    /// Fills `data` with bytes that cannot be predicted; false if that is not
    /// possible. Without it nothing is secret.
    pub random:
        Option<unsafe extern "C" fn(context: *mut c_void, data: *mut u8, len: usize) -> bool>,
    /// Learns what happened; may be null.
    pub event: Option<unsafe extern "C" fn(context: *mut c_void, event: *const Happened)>,
}

/// How to connect. Either `keys` or `authority` says who the broker must be.
/// Everything else may be zero, so begin with `dunlin_options options = {0}`.
///
/// The structure itself, the ticket and the structure of the will are needed for
/// the call only. All other bytes stay where they are, and as they are, until the
/// connection is over. A ticket is for the broker that it came from: who has it is
/// believed without a certificate.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Connect {
    /// Public keys of brokers that are believed, 65 bytes each, one after the
    /// other: P-256 points in uncompressed form.
    pub keys: Bytes,
    /// Public key of an authority, 65 bytes, that signed the certificate of
    /// the broker directly. Used if there are no `keys`.
    pub authority: Bytes,
    /// The host name of the broker, in lower case. A certificate of an
    /// authority must be for it.
    pub name: Bytes,
    /// Instead of a name: the address of the broker, 4 or 16 bytes, highest first.
    pub address: Bytes,
    /// Seconds since 1970 to hold the dates of a certificate of an authority
    /// against; zero if the device has no clock.
    pub unix_time: u32,
    /// Milliseconds of silence after which the connection is lost; zero is never.
    pub idle_ms: u32,
    /// A ticket of an earlier connection, if there is one.
    pub ticket: Bytes,
    /// Milliseconds since it was taken, sleep included.
    pub ticket_age_ms: u32,
    /// Whether messages may be sent before the broker has answered. An
    /// attacker who records them can replay them.
    pub early: bool,
    /// Certificates of the device for a broker that asks for them, in DER, one behind
    /// the other: its own first, then those that lead to an authority of the broker.
    /// They stay in the buffer `hello` until the broker has them, with the ticket
    /// behind them. May be empty; a library without the feature `client-certificate`
    /// shows none.
    pub certificates: Bytes,
    /// The private key of the first of them, of P-256, as 32 bytes.
    pub private_key: Bytes,
    /// The client identifier; the broker chooses one if it is empty.
    pub client_id: Bytes,
    /// User name; may be empty.
    pub user: Bytes,
    /// Password; may be empty.
    pub password: Bytes,
    /// Seconds after which the broker expects a sign of life, which the
    /// library gives; zero is never.
    pub keep_alive: u16,
    /// Seconds that the broker keeps the session without a connection, 0xffffffff
    /// for ever. A library with the feature `qos2` resumes none of before a reset:
    /// packet identifiers that it must know are lost.
    pub expiry: u32,
    /// Null, or the message that the broker publishes when the connection ends
    /// without dunlin_disconnect. Its bytes stay where they are, like the names.
    pub will: *const Publish,
    /// Seconds that the broker waits with it, in which the device may come
    /// back; `expiry` ends the wait.
    pub will_delay: u32,
}

/// A message to publish. What is not needed is zero, so begin with
/// `dunlin_message message = {0}`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Publish {
    /// Where: UTF-8, without wildcards, not empty.
    pub topic: Bytes,
    /// What; may be empty.
    pub payload: Bytes,
    /// Quality of service, 0 to 2.
    pub qos: u8,
    /// Whether the broker keeps it for later subscribers.
    pub retain: bool,
    /// Zero, or the number that the message had on an earlier connection that
    /// ended before it was acknowledged.
    pub again: u16,
    /// Zero, or a number from 1 to 8 that names the topic on this connection, so
    /// that only the first message with it has the topic. The topic is always
    /// given: with another one, the number is that one's from then on. A number
    /// that the broker does not take is left aside.
    pub alias: u8,
}

/// Where a client is.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Never connected.
    Idle = 0,
    /// The handshake is under way.
    Connecting = 1,
    /// Messages can be sent; the broker has not accepted yet.
    Ready = 2,
    /// The broker has accepted.
    Up = 3,
    /// What was written is on its way, then the connection ends.
    Closing = 4,
    /// Over. dunlin_connect begins again.
    Closed = 5,
}
