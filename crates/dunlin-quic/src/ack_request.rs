//! How long a peer is asked to let acknowledgements wait (draft-ietf-quic-ack-frequency).
//! quinn-proto asks for at most a round trip and 25 ms, unless the peer says that it cannot do
//! with less (`min_ack_delay`, section 3 of the draft). To ask for more, it is given
//! parameters of the peer that say so.

use core::time::Duration;

use quinn_proto::{AckFrequencyConfig, VarInt};

use crate::frames;
use crate::window::WINDOW_DATAGRAMS_MIN;

/// What quinn-proto asks for by itself, on any path.
const SHORT_MAX: Duration = Duration::from_millis(25);

/// Packets that may wait for an acknowledgement within a short delay: as many as without a
/// request (RFC 9000 section 13.2.2).
const SHORT_PACKETS: u32 = 1;

/// As [`SHORT_PACKETS`], within a longer delay. The packet after these is acknowledged at once.
const LONG_PACKETS: u32 = 4;

/// The smallest congestion window beside a long delay, in datagrams, one of which is only ever
/// reserved: the others are acknowledged at once, so that no full window waits for the delay to
/// end.
const LONG_WINDOW_MIN: u64 = LONG_PACKETS as u64 + 2;

/// Transport parameter (RFC 9000 section 18.2), in milliseconds.
const MAX_ACK_DELAY: u64 = 0x0b;

/// Of a peer that does not say it, and the longest that it may say.
const MAX_ACK_DELAY_DEFAULT: u64 = 25;
const MAX_ACK_DELAY_MOST: u64 = (1 << 14) - 1;

/// Transport parameter (draft-ietf-quic-ack-frequency-07 section 3), in microseconds.
const MIN_ACK_DELAY: u64 = 0xff04_de1b;

/// What is asked for.
pub(crate) fn config(delay: Duration) -> AckFrequencyConfig {
    let packets = match is_long(delay) {
        true => LONG_PACKETS,
        false => SHORT_PACKETS,
    };
    let mut config = AckFrequencyConfig::default();
    config
        .max_ack_delay(Some(delay))
        .ack_eliciting_threshold(VarInt::from_u32(packets))
        // What comes out of order is acknowledged at once, as RFC 9000 has it (section 13.2.1).
        .reordering_threshold(VarInt::from_u32(1));
    config
}

/// The smallest congestion window, in datagrams, of who asks for this.
pub(crate) fn window_min(delay: Option<Duration>) -> u64 {
    match delay.is_some_and(is_long) {
        true => LONG_WINDOW_MIN,
        false => WINDOW_DATAGRAMS_MIN,
    }
}

/// Whether quinn-proto would not ask for it.
fn is_long(delay: Duration) -> bool {
    delay > SHORT_MAX
}

/// A delay that quinn-proto would not ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LongDelay(Duration);

impl LongDelay {
    /// `None`: it is asked for anyway, or nothing is.
    pub(crate) fn of(delay: Option<Duration>) -> Option<Self> {
        delay.filter(|delay| is_long(*delay)).map(Self)
    }

    /// Has a peer's encoded transport parameters say that it wants at least that. Those of a
    /// peer that cannot be asked stay as they are.
    pub(crate) fn apply(self, parameters: &mut Vec<u8>) {
        let mut others = Vec::with_capacity(parameters.len() + 8);
        let (mut least, mut most) = (None, None);
        let mut rest = &parameters[..];
        while !rest.is_empty() {
            let all = rest;
            let Some((id, mut value)) = parameter(&mut rest) else {
                return;
            };
            let known = match id {
                MIN_ACK_DELAY => &mut least,
                MAX_ACK_DELAY => &mut most,
                _ => {
                    others.extend_from_slice(&all[..all.len() - rest.len()]);
                    continue;
                }
            };
            // What is wrong with them is found by who reads them.
            let found = frames::integer(&mut value).filter(|_| value.is_empty());
            if found.is_none() || known.is_some() {
                return;
            }
            *known = found;
        }
        let micros = u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX);
        let most = most.unwrap_or(MAX_ACK_DELAY_DEFAULT);
        let is_right = |least: &u64| *least <= most.saturating_mul(1_000) && *least < micros;
        if least.filter(is_right).is_none() || most > MAX_ACK_DELAY_MOST {
            return;
        }
        // The least is not to be above the most.
        let most = most.max(micros.div_ceil(1_000)).min(MAX_ACK_DELAY_MOST);
        for (id, value) in [(MIN_ACK_DELAY, micros), (MAX_ACK_DELAY, most)] {
            let mut bytes = Vec::new();
            frames::put_integer(&mut bytes, value);
            frames::put_integer(&mut others, id);
            frames::put_integer(&mut others, bytes.len() as u64);
            others.extend(bytes);
        }
        *parameters = others;
    }
}

/// The next of encoded transport parameters (RFC 9000 section 18): its id and value.
fn parameter<'a>(bytes: &mut &'a [u8]) -> Option<(u64, &'a [u8])> {
    let (id, len) = (frames::integer(bytes)?, frames::integer(bytes)?);
    let (value, rest) = bytes.split_at_checked(usize::try_from(len).ok()?)?;
    *bytes = rest;
    Some((id, value))
}

#[cfg(test)]
mod tests {
    use quinn_proto::Side;
    use quinn_proto::transport_parameters::TransportParameters;

    use super::*;

    fn second() -> LongDelay {
        LongDelay::of(Some(Duration::from_secs(1))).unwrap()
    }

    /// `min_ack_delay` 1 ms, `initial_max_data` 4096.
    const PARAMETERS: [u8; 11] = [0xc0, 0, 0, 0, 0xff, 0x04, 0xde, 0x1b, 2, 0x43, 0xe8];

    #[test]
    fn a_short_delay_needs_no_help() {
        for short in [None, Some(1), Some(25)] {
            let short = short.map(Duration::from_millis);
            assert!(LongDelay::of(short).is_none(), "{short:?}");
        }
    }

    #[test]
    fn a_peer_that_can_be_asked_seems_to_want_it() {
        let mut parameters = PARAMETERS.to_vec();
        parameters.extend([0x04, 2, 0x50, 0x00]);
        second().apply(&mut parameters);
        let mut rest = &parameters[..];
        let mut found = Vec::new();
        while let Some((id, mut value)) = parameter(&mut rest) {
            found.push((id, frames::integer(&mut value).unwrap()));
        }
        let wanted = [
            (0x04, 0x1000),
            (MIN_ACK_DELAY, 1_000_000),
            (MAX_ACK_DELAY, 1_000),
        ];
        assert_eq!(found, wanted);
        let read = TransportParameters::read(Side::Server, &mut &parameters[..]);
        assert!(read.is_ok(), "{read:?}");
    }

    #[test]
    fn the_longest_delay_is_one_that_may_be_said() {
        let longest = Duration::from_millis(MAX_ACK_DELAY_MOST);
        let mut parameters = PARAMETERS.to_vec();
        LongDelay::of(Some(longest)).unwrap().apply(&mut parameters);
        assert_ne!(parameters, PARAMETERS);
        let read = TransportParameters::read(Side::Server, &mut &parameters[..]);
        assert!(read.is_ok(), "{read:?}");
    }

    #[test]
    fn others_stay_as_they_are() {
        let none = vec![0x04, 2, 0x50, 0x00];
        let mut more = vec![
            0xc0, 0, 0, 0, 0xff, 0x04, 0xde, 0x1b, 4, 0x80, 0x1e, 0x84, 0x80,
        ];
        more.extend([0x0b, 2, 0x47, 0xd0]);
        let twice = [PARAMETERS, PARAMETERS].concat();
        // More than may be said, and a value with something behind it.
        let mut most = PARAMETERS.to_vec();
        most.extend([0x0b, 4, 0x80, 0x00, 0x40, 0x00]);
        let mut longer = PARAMETERS.to_vec();
        longer.extend([0x0b, 2, 25, 0]);
        let wrong = [twice, most, longer, vec![0x04], vec![0x04, 9, 1]];
        for parameters in [none, more, vec![]].into_iter().chain(wrong) {
            let mut same = parameters.clone();
            second().apply(&mut same);
            assert_eq!(same, parameters);
        }
        for end in 0..PARAMETERS.len() {
            let mut cut = PARAMETERS[..end].to_vec();
            second().apply(&mut cut);
            assert_eq!(cut, PARAMETERS[..end]);
        }
    }
}
