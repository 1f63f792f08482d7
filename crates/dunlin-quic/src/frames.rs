//! Finds PATH_CHALLENGE, PATH_RESPONSE and MAX_STREAM_DATA among the frames of a
//! packet (RFC 9000 section 19). quinn-proto counts these frames, but does not
//! say what they carry.

use quinn_proto::VarInt;
use quinn_proto::coding::Codec;

/// Bytes of the data of PATH_CHALLENGE and PATH_RESPONSE.
const PATH_DATA_BYTES: usize = 8;
const STATELESS_RESET_TOKEN_BYTES: usize = 16;

const PADDING: u64 = 0x00;
const PING: u64 = 0x01;
const ACK: u64 = 0x02;
const ACK_ECN: u64 = 0x03;
const MAX_STREAM_DATA: u64 = 0x11;
const PATH_CHALLENGE: u64 = 0x1a;
const PATH_RESPONSE: u64 = 0x1b;

/// What follows the type of a frame.
enum Body {
    /// So many integers.
    Integers(u64),
    /// So many integers, a length and as many bytes.
    Bytes(u64),
    /// All that is left of the packet.
    Rest,
    Ack {
        ecn: bool,
    },
    PathData,
    NewConnectionId,
}

fn body_of(kind: u64) -> Option<Body> {
    const STREAM_HAS_OFFSET: u64 = 0x04;
    const STREAM_HAS_LENGTH: u64 = 0x02;
    Some(match kind {
        0x00 | 0x01 | 0x1e | 0x1f => Body::Integers(0),
        0x02 | 0x03 => Body::Ack { ecn: kind == 0x03 },
        0x10 | 0x12..=0x14 | 0x16 | 0x17 | 0x19 => Body::Integers(1),
        0x05 | 0x11 | 0x15 => Body::Integers(2),
        0x04 => Body::Integers(3),
        0xaf => Body::Integers(4),
        0x07 | 0x31 => Body::Bytes(0),
        0x06 | 0x1d => Body::Bytes(1),
        0x1c => Body::Bytes(2),
        0x08..=0x0f if kind & STREAM_HAS_LENGTH == 0 => Body::Rest,
        0x08..=0x0f => Body::Bytes(1 + u64::from(kind & STREAM_HAS_OFFSET != 0)),
        0x30 => Body::Rest,
        0x18 => Body::NewConnectionId,
        0x1a | 0x1b => Body::PathData,
        _ => return None,
    })
}

/// An integer of variable length (RFC 9000 section 16).
pub(crate) fn integer(bytes: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = bytes.split_first()?;
    let (more, rest) = rest.split_at_checked((1 << (first >> 6)) - 1)?;
    *bytes = rest;
    let begin = u64::from(first & 0x3f);
    Some(more.iter().fold(begin, |n, byte| n << 8 | u64::from(*byte)))
}

/// Appends an integer in as few bytes as it needs; one of 2^62 or more, which there is not, as
/// the largest.
pub(crate) fn put_integer(out: &mut Vec<u8>, value: u64) {
    let value = VarInt::from_u64(value).unwrap_or(VarInt::MAX);
    value.encode(out);
}

/// Puts a smaller value in the place of the integer at the beginning, in as many
/// bytes.
pub(crate) fn replace_integer(bytes: &mut [u8], value: u64) {
    let Some(&first) = bytes.first() else {
        return;
    };
    let Some(place) = bytes.get_mut(..1 << (first >> 6)) else {
        return;
    };
    let mut left = value;
    for byte in place.iter_mut().rev() {
        (*byte, left) = (left as u8, left >> 8);
    }
    if let Some(byte) = place.first_mut() {
        *byte = *byte & 0x3f | first & 0xc0;
    }
}

fn skip(bytes: &mut &[u8], n: u64) -> Option<()> {
    *bytes = bytes.get(usize::try_from(n).ok()?..)?;
    Some(())
}

fn skip_integers(bytes: &mut &[u8], n: u64) -> Option<()> {
    (0..n).try_for_each(|_| integer(bytes).map(|_| ()))
}

/// Calls `found` with each frame but padding, its type and where it begins,
/// and returns the end of the last, at the end of the packet or a frame that
/// cannot be read; `None` then.
fn frames(bytes: &[u8], mut found: impl FnMut(usize, u64, &[u8])) -> Option<usize> {
    let mut left = bytes;
    let rest = &mut left;
    let mut end = 0;
    while !rest.is_empty() {
        let frame = *rest;
        let kind = integer(rest)?;
        match body_of(kind)? {
            Body::Integers(n) => skip_integers(rest, n)?,
            Body::Bytes(before) => {
                skip_integers(rest, before)?;
                let n = integer(rest)?;
                skip(rest, n)?;
            }
            Body::Rest => *rest = &[],
            Body::Ack { ecn } => {
                skip_integers(rest, 2)?;
                let ranges = integer(rest)?;
                skip_integers(rest, ranges.checked_mul(2)?.checked_add(1)?)?;
                skip_integers(rest, if ecn { 3 } else { 0 })?;
            }
            Body::PathData => skip(rest, PATH_DATA_BYTES as u64)?,
            Body::NewConnectionId => {
                skip_integers(rest, 2)?;
                let len = u64::from(*rest.first()?);
                skip(rest, 1 + len + STATELESS_RESET_TOKEN_BYTES as u64)?;
            }
        }
        if kind != PADDING {
            end = bytes.len() - rest.len();
            found(bytes.len() - frame.len(), kind, frame);
        }
    }
    Some(end)
}

/// The data of PATH_CHALLENGE or PATH_RESPONSE.
fn path_data(frame: &[u8]) -> Option<u64> {
    let data = frame.get(1..)?.first_chunk::<PATH_DATA_BYTES>()?;
    Some(u64::from_be_bytes(*data))
}

/// Calls `found` with the data of each PATH_RESPONSE.
pub(crate) fn path_responses(bytes: &[u8], mut found: impl FnMut(u64)) -> Option<()> {
    frames(bytes, |_, kind, frame| {
        if kind == PATH_RESPONSE
            && let Some(data) = path_data(frame)
        {
            found(data);
        }
    })
    .map(|_| ())
}

/// A PATH_CHALLENGE in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Challenge {
    pub(crate) data: u64,
    at: usize,
    /// There are other frames than PING and ACK.
    pub(crate) with_data: bool,
    /// Where the last frame but padding ends.
    pub(crate) end: usize,
}

/// The PATH_CHALLENGE of a packet.
pub(crate) fn challenge(bytes: &[u8]) -> Option<Challenge> {
    let (mut at, mut with_data) = (None, false);
    let end = frames(bytes, |begin, kind, frame| match kind {
        PATH_CHALLENGE => at = path_data(frame).map(|data| (begin, data)),
        PING | ACK | ACK_ECN => {}
        _ => with_data = true,
    })?;
    let (at, data) = at?;
    Some(Challenge {
        data,
        at,
        with_data,
        end,
    })
}

/// Makes PING and padding of a PATH_CHALLENGE: both ask for an
/// acknowledgement.
pub(crate) fn make_ping(bytes: &mut [u8], challenge: &Challenge) {
    if let Some(frame) = bytes.get_mut(challenge.at..=challenge.at + PATH_DATA_BYTES) {
        frame.fill(0);
        if let Some(kind) = frame.first_mut() {
            *kind = PING as u8;
        }
    }
}

/// Has each MAX_STREAM_DATA allow so many bytes less as `less` says of its stream.
pub(crate) fn lower_windows(bytes: &mut [u8], less: impl Fn(u64) -> u64) {
    let mut lower = Vec::new();
    let _ = frames(bytes, |begin, kind, frame| {
        let mut rest = frame.get(1..).unwrap_or_default();
        if kind == MAX_STREAM_DATA
            && let Some(stream) = integer(&mut rest)
        {
            let at = begin + (frame.len() - rest.len());
            let max = integer(&mut rest).unwrap_or_default();
            lower.push((at, max.saturating_sub(less(stream))));
        }
    });
    for (at, max) in lower {
        if let Some(place) = bytes.get_mut(at..) {
            replace_integer(place, max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn responses(bytes: &[u8]) -> (Vec<u64>, bool) {
        let mut all = Vec::new();
        let whole = path_responses(bytes, |data| all.push(data)).is_some();
        (all, whole)
    }

    #[test]
    fn responses_are_found_among_all_frames() {
        let response = [0x1b, 0, 0, 0, 0, 0, 0, 1, 2];
        let frames: &[&[u8]] = &[
            &[0x00],
            &[0x01],
            &[0x02, 0x0a, 0x00, 0x01, 0x00, 0x02, 0x03],
            &[0x03, 0x40, 0x0a, 0x00, 0x00, 0x00, 1, 2, 3],
            &[0x04, 1, 2, 3],
            &[0x05, 1, 2],
            &[0x06, 0, 2, 9, 9],
            &[0x07, 1, 9],
            &[0x0a, 0, 1, 9],
            &[0x0e, 0, 5, 1, 9],
            &[0x10, 1],
            &[0x11, 0, 1],
            &[0x12, 1],
            &[0x13, 1],
            &[0x14, 1],
            &[0x15, 0, 1],
            &[0x16, 1],
            &[0x17, 1],
            &[
                0x18, 1, 0, 2, 7, 7, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
            ],
            &[0x19, 0],
            &[0x1a, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0x1c, 0, 0, 1, b'x'],
            &[0x1d, 0, 1, b'x'],
            &[0x1e],
            &[0x1f],
            &[0x31, 1, 9],
            &[0x40, 0xaf, 0, 1, 5, 1],
        ];
        for frame in frames {
            let bytes = [*frame, &response].concat();
            assert_eq!(responses(&bytes), (vec![0x102], true), "{frame:x?}");
            for end in 0..frame.len() {
                let (found, _) = responses(&frame[..end]);
                assert!(found.is_empty(), "cut {frame:x?}");
            }
        }
        for rest in [&[0x08, 0, 0x1b][..], &[0x30, 0x1b]] {
            let bytes = [&response, rest, &response].concat();
            assert_eq!(responses(&bytes), (vec![0x102], true));
        }
        // A count of ranges that no packet has.
        let many = [0x02, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(responses(&many), (vec![], false));
        assert_eq!(responses(&[0x20]), (vec![], false));
    }

    #[test]
    fn windows_of_streams_become_smaller() {
        let mut bytes = vec![0x02, 0x0a, 0x00, 0x00, 0x01];
        bytes.extend([0x11, 4, 0x80, 0x02, 0x40, 0x00, 0x10, 0x41, 0x00]);
        bytes.extend([0x11, 0x40, 8, 0x50, 0x00, 0x11, 0, 0x80, 0x02, 0x40, 0x00]);
        // What a stream carries is left alone.
        bytes.extend([0x08, 0, 0x11, 4, 0x80, 0x02, 0x40, 0x00]);
        let mut want = bytes.clone();
        (want[7..11]).copy_from_slice(&[0x80, 0x00, 0x80, 0x00]);
        (want[17..19]).copy_from_slice(&[0x40, 0x00]);
        lower_windows(&mut bytes, |stream| if stream == 0 { 0 } else { 0x1_c000 });
        assert_eq!(bytes, want);
        let mut cut = [0x11, 4, 0x80, 0x02];
        lower_windows(&mut cut, |_| 1);
        assert_eq!(cut, [0x11, 4, 0x80, 0x02]);
    }

    #[test]
    fn a_challenge_becomes_a_ping() {
        let mut bytes = vec![
            0x02, 0x0a, 0x00, 0x00, 0x01, 0x1a, 1, 2, 3, 4, 5, 6, 7, 8, 0x08, 0,
        ];
        let found = challenge(&bytes).unwrap();
        assert_eq!((found.with_data, found.end), (true, bytes.len()));
        make_ping(&mut bytes, &found);
        let want = [
            0x02, 0x0a, 0x00, 0x00, 0x01, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0x08, 0,
        ];
        assert_eq!(bytes, want);
        let data = [0x0a, 0x00, 0x02, 0x1a, 0x1a, 0x00];
        assert_eq!(challenge(&data), None, "not what a stream carries");
    }

    #[test]
    fn a_challenge_ends_before_its_padding() {
        let mut bytes = vec![0x01, 0x1a, 0, 0, 0, 0, 0, 0, 1, 2];
        bytes.extend([0x03, 0x40, 0x0a, 0x00, 0x00, 0x00, 1, 2, 3]);
        bytes.extend([0; 20]);
        let found = challenge(&bytes).unwrap();
        assert_eq!((found.data, found.with_data, found.end), (0x102, false, 19));
        bytes.extend([0x10, 9, 0]);
        let found = challenge(&bytes).unwrap();
        assert_eq!((found.with_data, found.end), (true, 41));
        assert_eq!(challenge(&[0x1b, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(challenge(&[0x1a, 0, 0]), None);
    }
}
