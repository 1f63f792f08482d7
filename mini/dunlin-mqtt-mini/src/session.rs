//! A session: what an application calls, and what the broker's packets do.

use dunlin_quic_mini::StreamId;

use crate::decode::{Found, Incoming, Limits, find};
use crate::error::Error;
use crate::streams::Streams;
use crate::types::{Event, Message, Options, Qos, Will};

/// Messages with QoS 2 that may be under way in each direction.
const EXACTLY: usize = EXACTLY_U16 as usize;
const EXACTLY_U16: u16 = if cfg!(feature = "qos2") { 4 } else { 0 };

/// Packets of this side that may wait for their answers at a time.
pub const IN_FLIGHT_MAX: usize = 16;

/// The highest topic alias that a session uses.
pub const ALIASES: u8 = 8;

/// Bytes of the longest packet that one byte of length can tell, and two.
const SHORT: usize = 0x7f;
const LONG: usize = 0x3fff;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Without a connection.
    Idle,
    /// CONNECT is written.
    Begun,
    /// The broker has accepted.
    Up,
    /// DISCONNECT is written, or the session has failed.
    Over,
}

/// Whether a packet is to be shown, and what is to be sent for it: the first
/// byte and the identifier.
type Answer = (bool, Option<(u8, u16)>);

/// A session with a broker, without the memory of its messages: the device
/// keeps what is not acknowledged, and publishes it again.
///
/// With the feature `qos2` it has the identifiers of such messages, and
/// [`begin`](Self::begin) asks the broker to forget an older session until
/// this value has been accepted once: what waits at the broker, and the
/// subscriptions, outlive a reset only where this value does. Without the
/// feature, the broker's session outlives every reset.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    phase: Phase,
    stream: StreamId,
    limits: Limits,
    keep_alive: u16,
    next_id: u16,
    /// What waits for an answer: [`expected`], or zero.
    waiting: [u32; IN_FLIGHT_MAX],
    reason: u8,
    /// What the broker knows on this connection as the topics of the aliases:
    /// their [`mark`]s, or zero.
    topics: [u32; ALIASES as usize],
    /// Length of the packet that is shown to the application.
    shown: usize,
    /// An answer to the packet that is shown: its first byte and identifier.
    owed: Option<(u8, u16)>,
    /// Messages of the broker with QoS 2 that are not to be shown again.
    known: [u16; EXACTLY],
    /// Own messages with QoS 2 that the broker has.
    released: [u16; EXACTLY],
    /// Whether the broker's session, if it has one, is this one.
    #[cfg(feature = "qos2")]
    shared: bool,
}

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}

impl Session {
    /// A session that never was.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            phase: Phase::Idle,
            stream: StreamId::nth(0),
            limits: Limits::NONE,
            keep_alive: 0,
            next_id: 0,
            waiting: [0; IN_FLIGHT_MAX],
            reason: 0,
            topics: [0; ALIASES as usize],
            shown: 0,
            owed: None,
            known: [0; EXACTLY],
            released: [0; EXACTLY],
            #[cfg(feature = "qos2")]
            shared: false,
        }
    }

    /// Opens the first stream of a new connection and asks for a session on
    /// it. With early data, this and everything else works before the server
    /// has answered.
    ///
    /// # Errors
    ///
    /// Those of [`Streams::open`], and [`Error::TooLarge`].
    pub fn begin<Q: Streams>(&mut self, quic: &mut Q, options: &Options<'_>) -> Result<(), Error> {
        self.stream = quic.open()?;
        self.limits = Limits::NONE;
        self.keep_alive = options.keep_alive;
        self.waiting = [0; IN_FLIGHT_MAX];
        self.reason = 0;
        self.topics = [0; ALIASES as usize];
        self.shown = 0;
        self.owed = None;
        self.phase = Phase::Begun;
        let window = u32::try_from(quic.window()).unwrap_or(u32::MAX);
        let user = !options.user.is_empty();
        let password = !options.password.is_empty();
        let clean = options.expiry == 0 || self.is_lost();
        let flags = u8::from(clean) << 1;
        let flags = flags | u8::from(user) << 7 | u8::from(password) << 6;
        let (will, flags) = Testament::of(options, flags);
        let [idle_high, idle_low] = options.keep_alive.to_be_bytes();
        let [e0, e1, e2, e3] = options.expiry.to_be_bytes();
        let [w0, w1, w2, w3] = window.to_be_bytes();
        // Session Expiry Interval, Maximum Packet Size, Receive Maximum.
        let fixed = [
            0,
            4,
            b'M',
            b'Q',
            b'T',
            b'T',
            5,
            flags,
            idle_high,
            idle_low,
            13,
            0x11,
            e0,
            e1,
            e2,
            e3,
            0x27,
            w0,
            w1,
            w2,
            w3,
            0x21,
            0,
            RECEIVE_MAXIMUM,
        ];
        let user_length = length(options.user);
        let password_length = length(options.password);
        let parts = [
            &fixed[..],
            &length(options.client_id),
            options.client_id,
            will.head(),
            will.topic,
            will.payload_length(),
            will.payload,
            user_length.get(..2 * usize::from(user)).unwrap_or_default(),
            options.user,
            password_length
                .get(..2 * usize::from(password))
                .unwrap_or_default(),
            options.password,
        ];
        let begun = self.send(quic, 0x10, 0, &parts);
        if begun.is_err() {
            self.phase = Phase::Over;
        }
        begun
    }

    /// Publishes a message. Gives its identifier, zero with QoS 0.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] and [`Error::Quota`] when it must wait,
    /// [`Error::TooLarge`], [`Error::Qos`] and [`Error::State`].
    pub fn publish<Q: Streams>(
        &mut self,
        quic: &mut Q,
        message: &Message<'_>,
    ) -> Result<u16, Error> {
        self.fresh(quic, 0, message)
    }

    /// Publishes a message whose topic is named by a number from 1 to
    /// [`ALIASES`] on this connection, so that only the first message with the
    /// number has the topic. With another topic, the number is that one's from
    /// then on. A number that the broker does not take is left aside, as is
    /// zero.
    ///
    /// # Errors
    ///
    /// Those of [`publish`](Self::publish).
    pub fn publish_as<Q: Streams>(
        &mut self,
        quic: &mut Q,
        alias: u8,
        message: &Message<'_>,
    ) -> Result<u16, Error> {
        let taken = alias > 0 && u16::from(alias) <= self.limits.aliases;
        let index = usize::from(alias).wrapping_sub(1);
        let entry = self.topics.get(index).filter(|_| taken);
        let alias = if entry.is_some() { alias } else { 0 };
        let topic = if alias > 0 { mark(message.topic) } else { 0 };
        let known = Message {
            topic: &[],
            ..*message
        };
        let message = if alias > 0 && entry == Some(&topic) {
            &known
        } else {
            message
        };
        let id = self.fresh(quic, alias, message)?;
        if let Some(entry) = self.topics.get_mut(index).filter(|_| alias > 0) {
            *entry = topic;
        }
        Ok(id)
    }

    /// Publishes a message with the next identifier.
    fn fresh<Q: Streams>(
        &mut self,
        quic: &mut Q,
        alias: u8,
        message: &Message<'_>,
    ) -> Result<u16, Error> {
        let id = if message.qos == Qos::AtMostOnce {
            0
        } else {
            self.after()
        };
        self.message(quic, id, 0x30, alias, message)?;
        if id > 0 {
            self.next_id = id;
        }
        Ok(id)
    }

    /// Publishes a message again that was not acknowledged before the
    /// connection ended, with the identifier that it had.
    ///
    /// # Errors
    ///
    /// Those of [`publish`](Self::publish).
    pub fn publish_again<Q: Streams>(
        &mut self,
        quic: &mut Q,
        id: u16,
        message: &Message<'_>,
    ) -> Result<(), Error> {
        if message.qos == Qos::AtMostOnce || id == 0 {
            return Err(Error::State);
        }
        if self.released.contains(&id) {
            // The broker has it; only the end of the exchange is missing.
            self.send(quic, 0x62, id, &[&id.to_be_bytes()])?;
        } else {
            self.message(quic, id, 0x38, 0, message)?;
        }
        // A session that was made after a reset does not know which identifiers
        // are in use: new ones come behind this one.
        if id.wrapping_sub(self.next_id).cast_signed() > 0 {
            self.next_id = id;
        }
        Ok(())
    }

    fn message<Q: Streams>(
        &mut self,
        quic: &mut Q,
        id: u16,
        first: u8,
        alias: u8,
        message: &Message<'_>,
    ) -> Result<(), Error> {
        let qos = message.qos as u8;
        if qos > self.limits.qos {
            return Err(Error::Qos);
        }
        let quota = if qos == 2 { EXACTLY_U16 } else { u16::MAX };
        if qos > 0 && self.in_flight() >= quota.min(self.limits.quota) {
            return Err(Error::Quota);
        }
        let topic = message.topic;
        let bytes = id.to_be_bytes();
        let bytes = if qos == 0 { &[][..] } else { &bytes };
        // Topic Alias, if there is one.
        let with_alias = [3, 0x23, 0, alias];
        let properties = if alias == 0 { &[0][..] } else { &with_alias };
        let length = length(topic);
        let parts = [&length[..], topic, bytes, properties, message.payload];
        let first = first | qos << 1 | u8::from(message.retain);
        self.send(quic, first, id, &parts)
    }

    /// Asks for the messages of a filter, with at most this quality. Gives the
    /// identifier of the answer.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] and [`Error::Quota`] when it must wait,
    /// [`Error::TooLarge`] and [`Error::State`].
    pub fn subscribe<Q: Streams>(
        &mut self,
        quic: &mut Q,
        qos: Qos,
        filter: &[u8],
    ) -> Result<u16, Error> {
        let id = self.after();
        let parts = [
            &id.to_be_bytes()[..],
            &[0],
            &length(filter),
            filter,
            &[qos as u8],
        ];
        self.send(quic, 0x82, id, &parts)?;
        self.next_id = id;
        Ok(id)
    }

    /// Ends a subscription. Gives the identifier of the answer.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] and [`Error::Quota`] when it must wait,
    /// [`Error::TooLarge`] and [`Error::State`].
    pub fn unsubscribe<Q: Streams>(&mut self, quic: &mut Q, filter: &[u8]) -> Result<u16, Error> {
        let id = self.after();
        let parts = [&id.to_be_bytes()[..], &[0], &length(filter), filter];
        self.send(quic, 0xa2, id, &parts)?;
        self.next_id = id;
        Ok(id)
    }

    /// A sign of life, due before [`keep_alive`](Self::keep_alive) seconds
    /// without anything sent.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] and [`Error::State`].
    pub fn ping<Q: Streams>(&mut self, quic: &mut Q) -> Result<(), Error> {
        self.send(quic, 0xc0, 0, &[])
    }

    /// Acknowledges what was shown last and ends the session in order. What was
    /// not shown yet stays with the broker. The connection can be closed when the
    /// engine has [flushed](dunlin_quic_mini::Client::is_flushed)
    /// [the stream](Self::stream).
    ///
    /// # Errors
    ///
    /// [`Error::Full`] and [`Error::State`].
    pub fn disconnect<Q: Streams>(&mut self, quic: &mut Q) -> Result<(), Error> {
        self.answer(quic)?;
        self.send(quic, 0xe0, 0, &[])?;
        quic.finish(self.stream);
        self.phase = Phase::Over;
        Ok(())
    }

    /// Whether the broker has accepted the connection.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.phase == Phase::Up
    }

    /// Whether the broker may have a session whose identifiers with QoS 2 are
    /// not known here, as after a reset: it could take a new message for an old
    /// one. A session is resumed only by those who kept it (section 4.1).
    #[cfg(feature = "qos2")]
    const fn is_lost(&self) -> bool {
        !self.shared
    }

    /// Without QoS 2, a reset loses nothing that the session needs.
    #[cfg(not(feature = "qos2"))]
    #[expect(clippy::unused_self, reason = "there is nothing to lose")]
    const fn is_lost(&self) -> bool {
        false
    }

    /// Messages that wait for an acknowledgement.
    #[must_use]
    pub fn in_flight(&self) -> u16 {
        let messages = |slot: &u32| (1..expected(9, 0)).contains(slot);
        let count = self.waiting.iter().filter(|slot| messages(slot)).count();
        u16::try_from(count).unwrap_or(u16::MAX)
    }

    /// The stream of the session.
    #[must_use]
    pub const fn stream(&self) -> StreamId {
        self.stream
    }

    /// The broker's newest reason on this connection, such as the one of
    /// [`Error::Refused`], [`Error::Disconnected`] and [`Event::Rejected`]; [`reason_text`](crate::reason_text) has it in words.
    #[must_use]
    pub const fn reason(&self) -> u8 {
        self.reason
    }

    /// Seconds after which the broker expects a sign of life.
    #[must_use]
    pub fn keep_alive(&self) -> u16 {
        self.limits.keep_alive.unwrap_or(self.keep_alive)
    }

    /// The next thing that happened; to be called until there is nothing.
    ///
    /// # Errors
    ///
    /// Everything but [`Error::Full`] is the end of the session.
    pub fn poll<'q, Q: Streams>(&mut self, quic: &'q mut Q) -> Result<Option<Event<'q>>, Error> {
        if !matches!(self.phase, Phase::Begun | Phase::Up) {
            return Ok(None);
        }
        if let Err(error) = self.advance(quic) {
            if !error.is_refusal() {
                self.phase = Phase::Over;
            }
            return Err(error);
        }
        if self.shown == 0 {
            return Ok(None);
        }
        // The packet is read again, because a borrow cannot leave a loop.
        let (bytes, _) = quic.received(self.stream)?;
        let Found::Packet(packet, _) = find(bytes, usize::MAX)? else {
            return Ok(None);
        };
        Ok(Some(match packet {
            Incoming::ConnAck { session, .. } => Event::Connected { session },
            Incoming::Publish {
                topic,
                payload,
                qos,
                retain,
                ..
            } => Event::Message(Message {
                topic,
                payload,
                qos: match qos {
                    0 => Qos::AtMostOnce,
                    #[cfg(feature = "qos2")]
                    2 => Qos::ExactlyOnce,
                    _ => Qos::AtLeastOnce,
                },
                retain,
            }),
            Incoming::SubAck { id, reason } => Event::Subscribed { id, reason },
            Incoming::UnsubAck { id, reason } => Event::Unsubscribed { id, reason },
            // PUBREC said before PUBCOMP that the broker has it.
            Incoming::Answer { id, reason, kind }
                if reason >= 128 && (cfg!(not(feature = "qos2")) || kind != 7) =>
            {
                Event::Rejected { id, reason }
            }
            Incoming::Answer { id, reason, .. } => Event::Published { id, reason },
            Incoming::Pong | Incoming::Disconnect { .. } => return Ok(None),
        }))
    }

    /// Goes to the next packet that the application is to see.
    fn advance<Q: Streams>(&mut self, quic: &mut Q) -> Result<(), Error> {
        loop {
            self.answer(quic)?;
            quic.consume(self.stream, self.shown);
            self.shown = 0;
            let most = quic.window();
            let (bytes, end) = quic.received(self.stream)?;
            let (packet, len) = match find(bytes, most)? {
                Found::Packet(packet, len) => (packet, len),
                Found::TooLong => return Err(Error::TooLong),
                Found::Partly if end => return Err(Error::Ended),
                Found::Partly => return Ok(()),
            };
            let (show, answer) = self.take(&packet)?;
            self.shown = len;
            self.owed = answer;
            if show {
                return Ok(());
            }
        }
    }

    /// Sends what the last packet asks for.
    fn answer<Q: Streams>(&mut self, quic: &mut Q) -> Result<(), Error> {
        if let Some((first, id)) = self.owed {
            self.send(quic, first, 0, &[&id.to_be_bytes()])?;
            self.owed = None;
        }
        Ok(())
    }

    /// What a packet does to the session: whether it is to be shown, and the
    /// answer that it needs.
    fn take(&mut self, packet: &Incoming<'_>) -> Result<Answer, Error> {
        let up = self.phase == Phase::Up;
        match *packet {
            Incoming::ConnAck {
                session,
                reason,
                limits,
            } if !up => {
                self.reason = reason;
                if reason >= 128 {
                    return Err(Error::Refused);
                }
                self.limits = limits;
                self.phase = Phase::Up;
                #[cfg(feature = "qos2")]
                {
                    self.shared = true;
                }
                if !session {
                    self.known = [0; EXACTLY];
                    self.released = [0; EXACTLY];
                }
            }
            Incoming::Disconnect { reason } => {
                self.reason = reason;
                return Err(Error::Disconnected);
            }
            Incoming::Publish { qos, id, .. } if up => return self.arrived(qos, id),
            Incoming::Answer { kind, id, reason } if up => {
                return self.answered(kind, id, reason);
            }
            Incoming::SubAck { id, .. } | Incoming::UnsubAck { id, .. } if up => {
                let unsubscribed = matches!(packet, Incoming::UnsubAck { .. });
                let kind = if unsubscribed { 11 } else { 9 };
                self.replace(expected(kind, id), 0)?;
            }
            Incoming::Pong if up => return Ok((false, None)),
            _ => return Err(Error::Malformed),
        }
        Ok((true, None))
    }

    /// A message of the broker.
    #[cfg(feature = "qos2")]
    fn arrived(&mut self, qos: u8, id: u16) -> Result<Answer, Error> {
        if qos < 2 {
            return Ok((true, (qos == 1).then_some((0x40, id))));
        }
        let new = !self.known.contains(&id);
        if new {
            remember(&mut self.known, id)?;
        }
        Ok((new, Some((0x50, id))))
    }

    /// A message of the broker, with a quality that was granted.
    #[cfg(not(feature = "qos2"))]
    #[expect(clippy::unused_self, reason = "there is nothing to remember")]
    fn arrived(&self, qos: u8, id: u16) -> Result<Answer, Error> {
        if qos == 2 {
            return Err(Error::Malformed);
        }
        Ok((true, (qos == 1).then_some((0x40, id))))
    }

    /// An answer to a packet of this side, or PUBREL.
    #[cfg(feature = "qos2")]
    fn answered(&mut self, kind: u8, id: u16, reason: u8) -> Result<Answer, Error> {
        match kind {
            5 if reason < 128 => {
                // Repeated, it is answered again.
                if !self.waiting.contains(&expected(7, id)) {
                    self.replace(expected(5, id), expected(7, id))?;
                }
                if !self.released.contains(&id) {
                    remember(&mut self.released, id)?;
                }
                return Ok((false, Some((0x62, id))));
            }
            6 => {
                forget(&mut self.known, id);
                return Ok((false, Some((0x70, id))));
            }
            _ => {}
        }
        self.replace(expected(kind, id), 0)?;
        if kind < 9 {
            forget(&mut self.released, id);
        }
        self.reason = reason;
        Ok((true, None))
    }

    /// An answer to a packet of this side, which must wait for it.
    #[cfg(not(feature = "qos2"))]
    fn answered(&mut self, kind: u8, id: u16, reason: u8) -> Result<Answer, Error> {
        self.replace(expected(kind, id), 0)?;
        self.reason = reason;
        Ok((true, None))
    }

    /// Puts one expectation in the place of another.
    #[inline(never)]
    fn replace(&mut self, old: u32, new: u32) -> Result<(), Error> {
        let slot = self.waiting.iter_mut().find(|slot| **slot == old);
        *slot.ok_or(Error::Malformed)? = new;
        Ok(())
    }

    /// The identifier of the next message.
    const fn after(&self) -> u16 {
        match self.next_id.wrapping_add(1) {
            0 => 1,
            id => id,
        }
    }

    /// Writes a packet, or nothing of it. One with an identifier waits for its
    /// answer.
    #[inline(never)]
    fn send<Q: Streams>(
        &mut self,
        quic: &mut Q,
        first: u8,
        id: u16,
        parts: &[&[u8]],
    ) -> Result<(), Error> {
        if !matches!(self.phase, Phase::Begun | Phase::Up) {
            return Err(Error::State);
        }
        let len = parts
            .iter()
            .fold(0_usize, |len, part| len.saturating_add(part.len()));
        let [low, high, ..] = len.to_le_bytes();
        let two = [first, low | 0x80, low >> 7 | high << 1];
        let head = if len > SHORT { &two[..] } else { &[first, low] };
        let all = len.saturating_add(head.len());
        let (room, most) = quic.room(self.stream)?;
        if len > LONG || all > most || all > self.limits.packet as usize {
            return Err(Error::TooLarge);
        }
        if all > room {
            return Err(Error::Full);
        }
        if id > 0 {
            // The type behind that of the packet; with QoS 2 it is PUBREC.
            let exactly = cfg!(feature = "qos2") && first & 0xf4 == 0x34;
            let kind = (first >> 4) + 1 + u8::from(exactly);
            let replaced = self.replace(0, expected(kind, id));
            replaced.map_err(|_| Error::Quota)?;
        }
        quic.write(self.stream, head)?;
        for part in parts {
            quic.write(self.stream, part)?;
        }
        Ok(())
    }
}

/// The answer that a packet waits for: its type, which is not zero, and the
/// identifier.
const fn expected(kind: u8, id: u16) -> u32 {
    (kind as u32) << 16 | id as u32
}

/// A will as CONNECT has it (section 3.1.3): nothing without one.
struct Testament<'a> {
    /// Will Delay Interval, and the length of the topic.
    head: [u8; 8],
    topic: &'a [u8],
    payload_length: [u8; 2],
    payload: &'a [u8],
    some: bool,
}

impl<'a> Testament<'a> {
    /// The fields, and the flags of CONNECT with those of the will.
    fn of(options: &Options<'a>, flags: u8) -> (Self, u8) {
        let Some(Will { message, delay }) = options.will else {
            let none = Self {
                head: [0; 8],
                topic: &[],
                payload_length: [0; 2],
                payload: &[],
                some: false,
            };
            return (none, flags);
        };
        let [d0, d1, d2, d3] = delay.to_be_bytes();
        let [high, low] = length(message.topic);
        let will = Self {
            head: [5, 0x18, d0, d1, d2, d3, high, low],
            topic: message.topic,
            payload_length: length(message.payload),
            payload: message.payload,
            some: true,
        };
        let kind = 4 | (message.qos as u8) << 3 | u8::from(message.retain) << 5;
        (will, flags | kind)
    }

    fn head(&self) -> &[u8] {
        if self.some { &self.head } else { &[] }
    }

    fn payload_length(&self) -> &[u8] {
        if self.some { &self.payload_length } else { &[] }
    }
}

/// Messages with QoS 1 and 2 that the broker may send ahead. They are taken
/// one by one, so that only those with QoS 2 need memory.
const RECEIVE_MAXIMUM: u8 = if cfg!(feature = "qos2") {
    EXACTLY_U16.to_le_bytes()[0]
} else {
    16
};

/// The length of a field in front of it; [`Session::send`] refuses longer
/// ones.
fn length(bytes: &[u8]) -> [u8; 2] {
    u16::try_from(bytes.len()).unwrap_or(0).to_be_bytes()
}

/// Tells topics apart, as FNV-1a does; never zero. A device that gives a number to
/// two topics by mistake has to be unlucky once in four billion times, too.
fn mark(topic: &[u8]) -> u32 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    topic.iter().fold(0x811c_9dc5, step).max(1)
}

/// Puts an identifier, which is never zero, into a free slot.
#[cfg(feature = "qos2")]
fn remember(slots: &mut [u16], id: u16) -> Result<(), Error> {
    let slot = slots.iter_mut().find(|slot| **slot == 0);
    *slot.ok_or(Error::Quota)? = id;
    Ok(())
}

#[cfg(feature = "qos2")]
fn forget(slots: &mut [u16], id: u16) {
    for slot in slots.iter_mut().filter(|slot| **slot == id) {
        *slot = 0;
    }
}
