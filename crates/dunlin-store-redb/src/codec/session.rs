//! What a session has: subscriptions, packet identifiers.

use dunlin_store::codec::{DecodeError, Reader};
use dunlin_store::{InflightState, Seq};

const SUBSCRIPTION_VERSION: u8 = 1;
const INFLIGHT_VERSION: u8 = 1;
const INBOUND_VERSION: u8 = 1;

/// Appends a value of `subscriptions`.
pub(crate) fn encode_subscription(options: u8, identifier: Option<u32>, out: &mut Vec<u8>) {
    let some = u8::from(identifier.is_some());
    out.extend_from_slice(&[SUBSCRIPTION_VERSION, options, some]);
    out.extend_from_slice(&identifier.unwrap_or(0).to_le_bytes());
}

/// Reads a value of `subscriptions`.
pub(crate) fn decode_subscription(bytes: &[u8]) -> Result<(u8, Option<u32>), DecodeError> {
    let mut r = Reader::new(bytes);
    r.version(SUBSCRIPTION_VERSION)?;
    let (options, some, identifier) = (r.u8()?, r.u8()?, r.u32()?);
    Ok((options, (some != 0).then_some(identifier)))
}

/// Appends a value of `inflight`.
pub(crate) fn encode_inflight(seq: Seq, state: InflightState, out: &mut Vec<u8>) {
    out.push(INFLIGHT_VERSION);
    out.extend_from_slice(&seq.0.to_le_bytes());
    out.push(match state {
        InflightState::Published => 0,
        InflightState::Released => 1,
    });
}

/// Reads a value of `inflight`.
pub(crate) fn decode_inflight(bytes: &[u8]) -> Result<(Seq, InflightState), DecodeError> {
    let mut r = Reader::new(bytes);
    r.version(INFLIGHT_VERSION)?;
    let seq = Seq(r.u64()?);
    let state = match r.u8()? {
        0 => InflightState::Published,
        1 => InflightState::Released,
        _ => return Err(DecodeError::BadNumber),
    };
    Ok((seq, state))
}

/// Appends a value of `inbound`.
pub(crate) fn encode_inbound(out: &mut Vec<u8>) {
    out.push(INBOUND_VERSION);
}

/// Reads a value of `inbound`.
pub(crate) fn decode_inbound(bytes: &[u8]) -> Result<(), DecodeError> {
    Reader::new(bytes).version(INBOUND_VERSION)
}
