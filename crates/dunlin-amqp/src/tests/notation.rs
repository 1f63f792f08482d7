//! Frames and events as short lines.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use dunlin_amqp_codec::{
    DeliveryState, Error, FrameType, Outcome, Performative, SaslFrame, frame as codec,
};

use crate::{Event, Reason};

/// A frame of AMQP.
pub(super) fn frame(channel: u16, performative: &Performative<'_>, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    match performative {
        Performative::Transfer(transfer) => {
            codec::encode_transfer(channel, transfer, payload.len(), &mut bytes).expect("encoded");
        }
        other => codec::encode(channel, other, &mut bytes).expect("encoded"),
    }
    bytes.extend_from_slice(payload);
    bytes
}

/// What bytes are, header by header and frame by frame.
pub(super) fn frames(mut bytes: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    while !bytes.is_empty() {
        if let Some(rest) = bytes.strip_prefix(b"AMQP") {
            lines.push(format!("header {}", rest[0]));
            bytes = &rest[4..];
            continue;
        }
        let frame = codec::split(bytes, u32::MAX)
            .expect("a frame")
            .expect("whole");
        lines.push(match frame.frame_type {
            FrameType::Sasl => sasl(&SaslFrame::decode(frame.body).expect("decoded")),
            FrameType::Amqp if frame.body.is_empty() => "empty".to_string(),
            FrameType::Amqp => {
                let (performative, payload) = Performative::decode(frame.body).expect("decoded");
                show(&performative, payload)
            }
        });
        bytes = &bytes[frame.len..];
    }
    lines
}

fn sasl(frame: &SaslFrame<'_>) -> String {
    match frame {
        SaslFrame::Mechanisms(it) => {
            let names: Vec<_> = it
                .sasl_server_mechanisms
                .iter()
                .map(|s| s.as_str())
                .collect();
            format!("mechanisms {}", names.join(" "))
        }
        SaslFrame::Init(it) => format!("init {}", it.mechanism.as_str()),
        SaslFrame::Challenge(_) => "challenge".to_string(),
        SaslFrame::Response(_) => "response".to_string(),
        SaslFrame::Outcome(it) => format!("outcome {:?}", it.code),
    }
}

fn show(performative: &Performative<'_>, payload: &[u8]) -> String {
    let mut line = match performative {
        Performative::Open(it) => format!("open {}", it.container_id),
        Performative::Begin(it) => match it.remote_channel {
            Some(remote) => format!("begin remote={remote}"),
            None => "begin".to_string(),
        },
        Performative::Attach(it) => {
            let terminus = if it.source.is_none() && it.target.is_none() {
                " null"
            } else {
                ""
            };
            format!("attach {} h={}{terminus}", it.name, it.handle)
        }
        Performative::Flow(it) => {
            let mut line = format!("flow window={}", it.incoming_window);
            if let Some(handle) = it.handle {
                let credit = it.link_credit.unwrap_or_default();
                line.push_str(&format!(" h={handle} credit={credit}"));
            }
            if it.drain {
                line.push_str(" drain");
            }
            line
        }
        Performative::Transfer(it) => {
            let id = it.delivery_id.map_or(-1, |id| id.0.cast_signed());
            let mut line = format!("transfer h={} id={id} {}", it.handle, payload.len());
            for (flag, name) in [
                (it.settled == Some(true), " settled"),
                (it.more, " more"),
                (it.aborted, " aborted"),
                (it.resume, " resume"),
            ] {
                line.push_str(if flag { name } else { "" });
            }
            line
        }
        Performative::Disposition(it) => {
            let last = it.last.map(|last| format!("-{}", last.0.cast_signed()));
            let settled = if it.settled { " settled" } else { "" };
            let first = it.first.0.cast_signed();
            let last = last.unwrap_or_default();
            format!(
                "disposition {first}{last}{}{settled}",
                state(it.state.as_ref())
            )
        }
        Performative::Detach(it) => {
            let closed = if it.closed { " closed" } else { "" };
            format!("detach h={}{closed}", it.handle)
        }
        Performative::End(_) => "end".to_string(),
        Performative::Close(_) => "close".to_string(),
    };
    let error = match performative {
        Performative::Detach(it) => it.error,
        Performative::End(it) => it.error,
        Performative::Close(it) => it.error,
        _ => None,
    };
    line.push_str(&error.map(|error| condition(&error)).unwrap_or_default());
    line
}

fn condition(error: &Error<'_>) -> String {
    format!(" {}", error.condition.as_str())
}

fn state(state: Option<&DeliveryState<'_>>) -> String {
    match state {
        None => String::new(),
        Some(DeliveryState::Outcome(Outcome::Accepted)) => " accepted".to_string(),
        Some(DeliveryState::Outcome(Outcome::Released)) => " released".to_string(),
        Some(DeliveryState::Outcome(Outcome::Rejected(_))) => " rejected".to_string(),
        Some(DeliveryState::Outcome(Outcome::Modified(_))) => " modified".to_string(),
        Some(DeliveryState::Outcome(Outcome::Declared(_))) => " declared".to_string(),
        Some(DeliveryState::Received(_)) => " received".to_string(),
        Some(DeliveryState::Transactional(_)) => " transactional".to_string(),
        Some(DeliveryState::Other(_)) => " other".to_string(),
    }
}

fn reason(error: Option<&Reason>) -> String {
    error.map(|it| condition(&it.get())).unwrap_or_default()
}

/// An event without its ids.
pub(super) fn event(event: &Event<'_>) -> String {
    match event {
        Event::SaslMechanisms(body) => {
            let offer = body.mechanisms().expect("decoded before");
            sasl(&SaslFrame::Mechanisms(offer))
        }
        Event::SaslInit { mechanism, .. } => format!("SaslInit {mechanism}"),
        Event::SaslChallenge(_) => "SaslChallenge".to_string(),
        Event::SaslResponse(_) => "SaslResponse".to_string(),
        Event::SaslOutcome { code, .. } => format!("SaslOutcome {code:?}"),
        Event::Opened(body) => {
            let open = body.open().expect("decoded before");
            format!("Opened {}", open.container_id)
        }
        Event::Begun { by_peer, .. } if *by_peer => "Begun by peer".to_string(),
        Event::Begun { .. } => "Begun".to_string(),
        Event::Ended { error, .. } => format!("Ended{}", reason(error.as_ref())),
        Event::Attach { attach, steals, .. } => {
            let attach = attach.attach().expect("decoded before");
            let steals = if steals.is_some() { " steals" } else { "" };
            format!("Attach {}{steals}", attach.name)
        }
        Event::Attached { attach, .. } => {
            let attach = attach.attach().expect("decoded before");
            let refused = attach.source.is_none() && attach.target.is_none();
            format!("Attached{}", if refused { " null" } else { "" })
        }
        Event::Detached { closed, error, .. } => {
            let closed = if *closed { " closed" } else { "" };
            format!("Detached{closed}{}", reason(error.as_ref()))
        }
        Event::Credit { credit, drain, .. } => {
            format!("Credit {credit}{}", if *drain { " drain" } else { "" })
        }
        Event::Flow {
            credit, drained, ..
        } => format!("Flow {credit}{}", if *drained { " drained" } else { "" }),
        Event::Message(it) => {
            let settled = if it.settled { " settled" } else { "" };
            format!("Message {}{settled}", it.payload.as_ref().len())
        }
        Event::Disposition {
            tag,
            state: it,
            settled,
            ..
        } => {
            let number = tag.number().unwrap_or_default();
            let it = it.as_ref().map(crate::State::get);
            let settled = if *settled { " settled" } else { "" };
            format!("Disposition {number}{}{settled}", state(it.as_ref()))
        }
        Event::Aborted { tag, .. } => format!("Aborted {}", tag.number().unwrap_or_default()),
        Event::Void { .. } => "Void".to_string(),
        Event::Demand { demand, .. } => format!("{demand:?}"),
        Event::WindowOpen { .. } => "WindowOpen".to_string(),
        Event::Closed { error, by_peer } => {
            let by = if *by_peer { " by peer" } else { "" };
            format!("Closed{by}{}", reason(error.as_ref()))
        }
    }
}
