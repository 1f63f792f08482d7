//! The client: what it has said, what it waits for, and what it answers.
//! Knows bytes as packets only; whoever calls it moves them.

use crate::packet::{Incoming, Malformed, Packets, decode};

/// The packet identifier of the only SUBSCRIBE. Those of messages are below.
const SUBSCRIBE: u16 = 0x8000;

/// What a session is made with.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// The client identifier.
    pub client_id: &'a [u8],
    /// Seconds without a packet after which the broker gives the client up;
    /// zero leaves that to the transport.
    pub keep_alive: u16,
    /// Seconds that the session outlives the connection.
    pub expiry: u32,
    /// Bytes that a packet of the broker may have.
    pub maximum: u32,
    /// Topic filter of the commands; none if it is empty.
    pub filter: &'a [u8],
}

/// Why a connection is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The broker broke the rules.
    Malformed,
    /// The broker refused the connection or ended it, with this reason code.
    Broker(u8),
    /// The answers do not fit into the buffer for them.
    Full,
}

impl From<Malformed> for Refused {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// What a packet of the broker means for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Nothing.
    None,
    /// The broker has accepted; whether it had kept the session.
    Connected(bool),
    /// The broker has the message in flight. From 128 on, the reason is why it
    /// refuses it for good.
    Published(u8),
    /// The subscription is made, or refused from the reason 128 on.
    Subscribed(u8),
    /// A message. With QoS 1 it may come more than once.
    Message {
        /// Where it was published.
        topic: &'a [u8],
        /// What was published.
        payload: &'a [u8],
    },
}

/// A client's side of a session that outlives connections.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// Identifier of the last message, 1 to 0x7fff.
    id: u16,
    in_flight: bool,
    /// Whether the message in flight was written on an earlier connection.
    again: bool,
    connected: bool,
    subscribing: bool,
}

impl Session {
    /// A client that never connected.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            id: 0,
            in_flight: false,
            again: false,
            connected: false,
            subscribing: false,
        }
    }

    /// Whether a message waits for its acknowledgement. It must be
    /// [published](Self::publish) once more on each new connection.
    #[must_use]
    pub const fn is_in_flight(&self) -> bool {
        self.in_flight
    }

    /// Whether nothing is open: accepted by the broker, subscribed, and the
    /// message acknowledged.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.connected && !self.subscribing && !self.in_flight
    }

    /// Begins a connection. Messages may follow at once; the broker's answer
    /// need not be waited for.
    pub fn connect(&mut self, settings: &Settings<'_>, out: &mut Packets<'_>) {
        self.connected = false;
        self.subscribing = false;
        self.again = self.in_flight;
        let Settings {
            client_id,
            keep_alive,
            expiry,
            maximum,
            ..
        } = *settings;
        out.connect(client_id, keep_alive, expiry, maximum);
    }

    /// Writes the message in flight again, or a new one with QoS 1 if there is
    /// none: at most one waits for its acknowledgement.
    pub fn publish(&mut self, topic: &[u8], payload: &[u8], out: &mut Packets<'_>) {
        if !self.in_flight {
            self.id = self.id % (SUBSCRIBE - 1) + 1;
            self.in_flight = true;
            self.again = false;
        }
        out.publish(self.id, self.again, topic, payload);
    }

    /// Takes the first packet of `bytes`, gives its length, and writes what it
    /// asks for. Nothing if the packet is not complete.
    ///
    /// # Errors
    ///
    /// The reason to give the connection up.
    pub fn handle<'a>(
        &mut self,
        bytes: &'a [u8],
        settings: &Settings<'_>,
        out: &mut Packets<'_>,
    ) -> Result<Option<(usize, Event<'a>)>, Refused> {
        let Some((packet, len)) = decode(bytes)? else {
            return Ok(None);
        };
        Ok(Some((len, self.handle_packet(packet, settings, out)?)))
    }

    fn handle_packet<'a>(
        &mut self,
        packet: Incoming<'a>,
        settings: &Settings<'_>,
        out: &mut Packets<'_>,
    ) -> Result<Event<'a>, Refused> {
        Ok(match packet {
            Incoming::ConnAck { reason, .. } if reason >= 0x80 => {
                return Err(Refused::Broker(reason));
            }
            Incoming::Disconnect { reason } => return Err(Refused::Broker(reason)),
            Incoming::ConnAck { session, .. } if !self.connected => {
                self.connected = true;
                if !session && !settings.filter.is_empty() {
                    self.subscribing = true;
                    out.subscribe(SUBSCRIBE, settings.filter);
                }
                Event::Connected(session)
            }
            // No answer before the first one, and no second first one.
            _ if !self.connected => return Err(Refused::Malformed),
            Incoming::ConnAck { .. } => return Err(Refused::Malformed),
            Incoming::PubAck { id, reason } if self.in_flight && id == self.id => {
                self.in_flight = false;
                Event::Published(reason)
            }
            Incoming::SubAck { id, reason } if self.subscribing && id == SUBSCRIBE => {
                self.subscribing = false;
                Event::Subscribed(reason)
            }
            Incoming::Publish { topic, payload, id } => {
                if let Some(id) = id {
                    out.acknowledge(id);
                }
                Event::Message { topic, payload }
            }
            // An acknowledgement that nobody waits for may be a late one.
            _ => Event::None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const SETTINGS: Settings<'_> = Settings {
        client_id: b"meter",
        keep_alive: 0,
        expiry: 60,
        maximum: 256,
        filter: b"down",
    };

    /// What a session writes.
    fn written(write: impl FnOnce(&mut Packets<'_>)) -> Vec<u8> {
        let mut out = [0; 128];
        let mut packets = Packets::new(&mut out);
        write(&mut packets);
        packets.finish().unwrap().to_vec()
    }

    type Handled<'a> = Result<Option<(usize, Event<'a>)>, Refused>;

    /// The event of a packet, and what the session answers.
    fn answer<'a>(session: &mut Session, bytes: &'a [u8]) -> (Handled<'a>, Vec<u8>) {
        let mut got = Ok(None);
        let out = written(|out| got = session.handle(bytes, &SETTINGS, out));
        (got, out)
    }

    const CONNACK: &[u8] = &[0x20, 3, 0, 0, 0];
    const KEPT: &[u8] = &[0x20, 3, 1, 0, 0];

    #[test]
    fn a_first_connection() {
        let mut session = Session::new();
        written(|out| session.connect(&SETTINGS, out));
        let publish = written(|out| session.publish(b"up", b"1", out));
        assert_eq!(publish, b"\x32\x08\x00\x02up\x00\x01\x001");
        let (event, out) = answer(&mut session, CONNACK);
        assert_eq!(event, Ok(Some((5, Event::Connected(false)))));
        assert_eq!(out, b"\x82\x0a\x80\x00\x00\x00\x04down\x01");
        assert!(!session.is_settled());
        let (event, _) = answer(&mut session, &[0x90, 4, 0x80, 0, 0, 1]);
        assert_eq!(event, Ok(Some((6, Event::Subscribed(1)))));
        let (event, _) = answer(&mut session, &[0x40, 2, 0, 1]);
        assert_eq!(event, Ok(Some((4, Event::Published(0)))));
        assert!(session.is_settled());
    }

    #[test]
    fn an_unanswered_message_goes_out_again() {
        let mut session = Session::new();
        written(|out| session.connect(&SETTINGS, out));
        let first = written(|out| session.publish(b"up", b"1", out));
        written(|out| session.connect(&SETTINGS, out));
        let mut second = written(|out| session.publish(b"up", b"1", out));
        assert_eq!(second[0], 0x3a);
        second[0] = 0x32;
        assert_eq!(first, second);
        assert_eq!(answer(&mut session, KEPT).1, b"");
        answer(&mut session, &[0x40, 2, 0, 1]).0.unwrap();
        let next = written(|out| session.publish(b"up", b"2", out));
        assert_eq!(next, b"\x32\x08\x00\x02up\x00\x02\x002");
    }

    #[test]
    fn commands_are_acknowledged() {
        let mut session = Session::new();
        answer(&mut session, KEPT).0.unwrap();
        let bytes = b"\x32\x08\x00\x01d\x00\x09\x00on";
        let message = Event::Message {
            topic: b"d",
            payload: b"on",
        };
        let (event, out) = answer(&mut session, bytes);
        assert_eq!(event, Ok(Some((10, message))));
        assert_eq!(out, [0x40, 2, 0, 9]);
    }

    #[test]
    fn identifiers_stay_off_zero_and_the_subscription() {
        let mut session = Session::new();
        answer(&mut session, KEPT).0.unwrap();
        for _ in 0..0x1_0000 {
            written(|out| session.publish(b"", b"", out));
            assert!((1..SUBSCRIBE).contains(&session.id), "{}", session.id);
            session.in_flight = false;
        }
    }

    #[test]
    fn refusals() {
        let cases: [(&[&[u8]], Refused); 5] = [
            (&[&[0x20, 3, 0, 0x87, 0]], Refused::Broker(0x87)),
            (&[CONNACK, &[0xe0, 1, 0x8b]], Refused::Broker(0x8b)),
            (&[CONNACK, CONNACK], Refused::Malformed),
            (&[&[0x40, 2, 0, 1]], Refused::Malformed),
            (&[CONNACK, &[0x34, 4, 0, 0, 0, 0]], Refused::Malformed),
        ];
        for (packets, want) in cases {
            let mut session = Session::new();
            let last = packets.iter().map(|packet| answer(&mut session, packet).0);
            assert_eq!(last.last(), Some(Err(want)), "{packets:?}");
        }
    }

    #[test]
    fn late_answers_change_nothing() {
        let mut session = Session::new();
        answer(&mut session, KEPT).0.unwrap();
        for late in [&[0x40, 2, 0, 1][..], &[0x90, 4, 0x80, 0, 0, 1]] {
            assert_eq!(
                answer(&mut session, late).0,
                Ok(Some((late.len(), Event::None)))
            );
        }
    }
}
