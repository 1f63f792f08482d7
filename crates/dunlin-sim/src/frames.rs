//! A client of AMQP without an engine: it sends frames as they are, whether they are
//! allowed or not, and notes what comes as short lines.

use dunlin_amqp::codec::{
    DeliveryState, Error, FrameType, Outcome, Performative, SaslFrame, frame,
};
use dunlin_base::{ConnId, StreamId};

use crate::link::ToClient;
use crate::world::World;

/// The header of AMQP 1.0.
pub const HEADER: &[u8] = b"AMQP\x00\x01\x00\x00";

/// The header of its SASL layer.
pub const SASL_HEADER: &[u8] = b"AMQP\x03\x01\x00\x00";

/// A frame, and behind it what of a message belongs to it.
///
/// # Panics
/// The performative has a value that AMQP cannot say.
#[must_use]
pub fn frame(channel: u16, performative: &Performative<'_>, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let encoded = match performative {
        Performative::Transfer(transfer) => {
            frame::encode_transfer(channel, transfer, payload.len(), &mut bytes)
        }
        other => frame::encode(channel, other, &mut bytes),
    };
    encoded.expect("a frame");
    bytes.extend_from_slice(payload);
    bytes
}

/// A frame with any body.
#[must_use]
pub fn frame_of(channel: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = (body.len() as u32 + 8).to_be_bytes().to_vec();
    bytes.extend_from_slice(&[2, 0]);
    bytes.extend_from_slice(&channel.to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// A SASL frame.
///
/// # Panics
/// It has a value that AMQP cannot say.
#[must_use]
pub fn sasl_frame(sasl: &SaslFrame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::encode_sasl(sasl, &mut bytes).expect("a frame");
    bytes
}

/// One connection of such a client.
#[derive(Debug)]
pub struct RawAmqp {
    /// Its transport.
    pub conn: ConnId,
    /// The stream there.
    pub stream: StreamId,
    /// What came and was not looked at.
    pub lines: Vec<String>,
    /// The server has ended the stream, or the connection.
    pub is_over: bool,
    /// Bytes that came.
    pub received: usize,
    partial: Vec<u8>,
}

impl RawAmqp {
    /// A client that has sent nothing.
    #[must_use]
    pub const fn new(conn: ConnId, stream: StreamId) -> Self {
        Self {
            conn,
            stream,
            lines: Vec::new(),
            is_over: false,
            received: 0,
            partial: Vec::new(),
        }
    }

    /// Sends bytes as they are.
    pub fn send(&self, world: &mut World, bytes: &[u8]) {
        world.send(self.conn, self.stream, bytes);
    }

    /// Whether this came for it; takes it then.
    ///
    /// # Panics
    /// The server sends what is no AMQP.
    pub fn take(&mut self, conn: ConnId, event: &ToClient) -> bool {
        if conn != self.conn {
            return false;
        }
        match event {
            ToClient::Bytes(stream, bytes) if *stream == self.stream => {
                self.received += bytes.len();
                self.partial.extend_from_slice(bytes);
                self.read();
            }
            ToClient::Finished(stream) | ToClient::Reset(stream, _) if *stream == self.stream => {
                self.is_over = true;
            }
            ToClient::Closed(_) => self.is_over = true,
            _ => return false,
        }
        true
    }

    /// The lines that begin with this word; all are forgotten.
    pub fn said(&mut self, word: &str) -> Vec<String> {
        let lines = core::mem::take(&mut self.lines);
        let is_wanted = |line: &String| line.split(' ').next() == Some(word);
        lines.into_iter().filter(is_wanted).collect()
    }

    fn read(&mut self) {
        let mut rest = &self.partial[..];
        loop {
            if let Some((header, after)) = rest.split_at_checked(HEADER.len())
                && header.starts_with(b"AMQP")
            {
                self.lines.push(format!("header {}", header[4]));
                rest = after;
                continue;
            }
            if rest.starts_with(b"A") {
                break;
            }
            let Some(frame) = frame::split(rest, u32::MAX).expect("the server's frames") else {
                break;
            };
            self.lines.push(match frame.frame_type {
                FrameType::Amqp if frame.body.is_empty() => "empty".into(),
                FrameType::Amqp => {
                    let (performative, payload) =
                        Performative::decode(frame.body).expect("the server's frames");
                    show(&performative, payload)
                }
                FrameType::Sasl => {
                    let sasl = SaslFrame::decode(frame.body).expect("the server's frames");
                    show_sasl(&sasl)
                }
            });
            rest = &rest[frame.len..];
        }
        let taken = self.partial.len() - rest.len();
        self.partial.drain(..taken);
    }
}

fn show_sasl(sasl: &SaslFrame<'_>) -> String {
    match sasl {
        SaslFrame::Mechanisms(_) => "mechanisms".into(),
        SaslFrame::Init(_) => "init".into(),
        SaslFrame::Challenge(_) => "challenge".into(),
        SaslFrame::Response(_) => "response".into(),
        SaslFrame::Outcome(it) => format!("outcome {:?}", it.code),
    }
}

fn condition(error: Option<&Error<'_>>) -> String {
    let condition = error.map(|error| format!(" {}", error.condition.as_str()));
    condition.unwrap_or_default()
}

fn state(state: Option<&DeliveryState<'_>>) -> String {
    match state {
        None => String::new(),
        Some(DeliveryState::Outcome(Outcome::Accepted)) => " accepted".into(),
        Some(DeliveryState::Outcome(Outcome::Released)) => " released".into(),
        Some(DeliveryState::Outcome(Outcome::Rejected(rejected))) => {
            format!(" rejected{}", condition(rejected.error.as_ref()))
        }
        Some(DeliveryState::Outcome(Outcome::Declared(declared))) => {
            let id = declared.txn_id.iter().map(|byte| format!("{byte:02x}"));
            format!(" declared {}", id.collect::<String>())
        }
        Some(_) => " other".into(),
    }
}

/// A frame as a line: its name, its handle or delivery, and its condition.
fn show(performative: &Performative<'_>, payload: &[u8]) -> String {
    match performative {
        Performative::Open(_) => "open".into(),
        Performative::Begin(_) => "begin".into(),
        Performative::Attach(it) => {
            let is_null = it.source.is_none() && it.target.is_none();
            let refused = if is_null { " null" } else { "" };
            format!("attach {}{refused}", it.name)
        }
        Performative::Flow(it) => match (it.handle, it.link_credit) {
            (Some(handle), Some(credit)) => format!("flow {handle} {credit}"),
            _ => "flow".into(),
        },
        Performative::Transfer(it) => {
            let id = it.delivery_id.map_or(0, |id| id.0);
            format!("transfer {id} {}", payload.len())
        }
        Performative::Disposition(it) => {
            let last = it.last.unwrap_or(it.first).0;
            let settled = if it.settled { " settled" } else { "" };
            let state = state(it.state.as_ref());
            format!("disposition {}-{last}{state}{settled}", it.first.0)
        }
        Performative::Detach(it) => format!("detach{}", condition(it.error.as_ref())),
        Performative::End(it) => format!("end{}", condition(it.error.as_ref())),
        Performative::Close(it) => format!("close{}", condition(it.error.as_ref())),
    }
}
