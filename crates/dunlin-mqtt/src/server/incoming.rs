//! Which packets a client may send when, and on which stream.

use dunlin_base::StreamId;
use dunlin_mqtt_codec::{
    Ack, Auth, Connect, Disconnect, Packet, PacketType, Publish, Subscribe, Unsubscribe,
};

use super::Fault;

/// Where a connection stands, as far as that decides what may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing has come.
    Begin,
    /// CONNECT has come, and client and server exchange AUTH.
    Exchange,
    /// CONNACK was sent.
    Connected,
    /// What comes waits, or is ignored.
    Deaf,
}

/// A packet that may come.
#[derive(Debug)]
pub enum Incoming<'a> {
    /// The first packet.
    Connect(Connect<'a>),
    /// AUTH: of an exchange, or, once connected, of another one.
    Auth(Auth<'a>),
    /// PUBLISH.
    Publish(Publish<'a>),
    /// PUBACK, PUBREC, PUBREL or PUBCOMP.
    Ack(PacketType, Ack<'a>),
    /// SUBSCRIBE.
    Subscribe(Subscribe<'a>),
    /// UNSUBSCRIBE.
    Unsubscribe(Unsubscribe<'a>),
    /// PINGREQ.
    Ping,
    /// DISCONNECT.
    Disconnect(Disconnect<'a>),
    /// SUBSCRIBE or UNSUBSCRIBE on a stream of the server, which is reset for it.
    Misplaced,
    /// Nothing to do with.
    Ignored,
}

impl<'a> Incoming<'a> {
    /// What a packet on this stream is.
    ///
    /// # Errors
    ///
    /// It may not come now, or not here.
    pub fn of(stage: Stage, stream: StreamId, packet: Packet<'a>) -> Result<Self, Fault> {
        match stage {
            Stage::Begin => match packet {
                Packet::Connect(connect) => Ok(Self::Connect(connect)),
                //= mqtt5#[MQTT-3.1.0-1]
                _ => Err(Fault::protocol("the first packet must be CONNECT")),
            },
            Stage::Exchange => match packet {
                Packet::Auth(auth) => Ok(Self::Auth(auth)),
                Packet::Disconnect(disconnect) => Ok(Self::Disconnect(disconnect)),
                //= mqtt5#[MQTT-3.1.2-30]
                _ => Err(Fault::protocol("only AUTH may follow CONNECT here")),
            },
            Stage::Connected => Self::connected(stream, packet),
            Stage::Deaf => Ok(Self::Ignored),
        }
    }

    fn connected(stream: StreamId, packet: Packet<'a>) -> Result<Self, Fault> {
        let control = stream == StreamId::CONTROL;
        let of_server = stream.is_server_initiated();
        let kind = packet.packet_type();
        match packet {
            Packet::Publish(publish) => Ok(Self::Publish(publish)),
            Packet::PubAck(ack)
            | Packet::PubRec(ack)
            | Packet::PubRel(ack)
            | Packet::PubComp(ack) => Ok(Self::Ack(kind, ack)),
            Packet::Subscribe(_) | Packet::Unsubscribe(_) if of_server => Ok(Self::Misplaced),
            Packet::Subscribe(subscribe) => Ok(Self::Subscribe(subscribe)),
            Packet::Unsubscribe(unsubscribe) => Ok(Self::Unsubscribe(unsubscribe)),
            Packet::PingReq => Ok(Self::Ping),
            Packet::Disconnect(disconnect) if control => Ok(Self::Disconnect(disconnect)),
            Packet::Auth(auth) if control => Ok(Self::Auth(auth)),
            //= mqtt5#[MQTT-3.1.0-2]
            _ => Err(Fault::protocol("this packet is not allowed here")),
        }
    }
}

/// The stream that something is answered on: what came one way is answered on
/// control, as if it had come there.
#[must_use]
pub const fn answer_stream(stream: StreamId) -> StreamId {
    match stream.is_unidirectional() {
        true => StreamId::CONTROL,
        false => stream,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::num::NonZeroU16;
    use dunlin_mqtt_codec::{ReasonCode, ReasonProperties, UnsubscribeFilters, UserProperties};

    const DATA: StreamId = StreamId(4);
    const OF_SERVER: StreamId = StreamId(1);

    fn ack() -> Ack<'static> {
        Ack {
            packet_id: NonZeroU16::MIN,
            reason: ReasonCode::Success,
            properties: ReasonProperties::default(),
        }
    }

    fn packets() -> [Packet<'static>; 7] {
        [
            Packet::Connect(Connect::default()),
            Packet::Auth(Auth::default()),
            Packet::Disconnect(Disconnect::default()),
            Packet::Publish(Publish::default()),
            Packet::PubAck(ack()),
            Packet::PingReq,
            Packet::PingResp,
        ]
    }

    fn allowed(stage: Stage, stream: StreamId) -> [bool; 7] {
        packets().map(|packet| Incoming::of(stage, stream, packet).is_ok())
    }

    #[test]
    fn each_stage_and_stream_has_its_packets() {
        //= mqtt5#[MQTT-3.1.0-1] type=test
        //= mqtt5#[MQTT-3.1.0-2] type=test
        //= mqtt5#[MQTT-3.1.2-30] type=test
        let (yes, no) = (true, false);
        let control = StreamId::CONTROL;
        let begin = allowed(Stage::Begin, control);
        assert_eq!(begin, [yes, no, no, no, no, no, no]);
        let exchange = allowed(Stage::Exchange, control);
        assert_eq!(exchange, [no, yes, yes, no, no, no, no]);
        let connected = allowed(Stage::Connected, control);
        assert_eq!(connected, [no, yes, yes, yes, yes, yes, no]);
        let data = allowed(Stage::Connected, DATA);
        assert_eq!(data, [no, no, no, yes, yes, yes, no]);
        assert_eq!(allowed(Stage::Deaf, control), [yes; 7]);
    }

    #[test]
    fn a_stream_of_the_server_takes_no_subscriptions() {
        let unsubscribe = || {
            Packet::Unsubscribe(Unsubscribe {
                packet_id: NonZeroU16::MIN,
                user_properties: UserProperties::default(),
                filters: UnsubscribeFilters::new(&["a"]),
            })
        };
        let taken = Incoming::of(Stage::Connected, OF_SERVER, unsubscribe());
        assert!(matches!(taken, Ok(Incoming::Misplaced)));
        let taken = Incoming::of(Stage::Connected, DATA, unsubscribe());
        assert!(matches!(taken, Ok(Incoming::Unsubscribe(_))));
    }

    #[test]
    fn what_came_one_way_is_answered_on_control() {
        assert_eq!(answer_stream(StreamId(2)), StreamId::CONTROL);
        assert_eq!(answer_stream(DATA), DATA);
    }
}
