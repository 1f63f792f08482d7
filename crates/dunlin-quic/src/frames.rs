//! Finds PATH_CHALLENGE and PATH_RESPONSE among the frames of a packet (RFC
//! 9000 section 19). quinn-proto counts these frames, but does not say what
//! they carry.

/// Bytes of the data of PATH_CHALLENGE and PATH_RESPONSE.
const PATH_DATA_BYTES: usize = 8;
const STATELESS_RESET_TOKEN_BYTES: usize = 16;

const PING: u8 = 0x01;
const PATH_CHALLENGE: u8 = 0x1a;
const PATH_RESPONSE: u8 = 0x1b;
/// Bytes of one of these frames.
const PATH_FRAME_BYTES: usize = 1 + PATH_DATA_BYTES;

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
fn integer(bytes: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = bytes.split_first()?;
    let (more, rest) = rest.split_at_checked((1 << (first >> 6)) - 1)?;
    *bytes = rest;
    let begin = u64::from(first & 0x3f);
    Some(more.iter().fold(begin, |n, byte| n << 8 | u64::from(*byte)))
}

fn skip(bytes: &mut &[u8], n: u64) -> Option<()> {
    *bytes = bytes.get(usize::try_from(n).ok()?..)?;
    Some(())
}

fn skip_integers(bytes: &mut &[u8], n: u64) -> Option<()> {
    (0..n).try_for_each(|_| integer(bytes).map(|_| ()))
}

/// Calls `found` with each PATH_CHALLENGE and PATH_RESPONSE and where it
/// begins, until the end of the packet or a frame that cannot be read; `None`
/// then.
fn path_frames(bytes: &[u8], mut found: impl FnMut(usize, &[u8; PATH_FRAME_BYTES])) -> Option<()> {
    let mut left = bytes;
    let rest = &mut left;
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
            Body::Rest => return Some(()),
            Body::Ack { ecn } => {
                skip_integers(rest, 2)?;
                let ranges = integer(rest)?;
                skip_integers(rest, ranges.checked_mul(2)?.checked_add(1)?)?;
                skip_integers(rest, if ecn { 3 } else { 0 })?;
            }
            Body::PathData => {
                let (whole, after) = frame.split_first_chunk::<PATH_FRAME_BYTES>()?;
                *rest = after;
                found(bytes.len() - frame.len(), whole);
            }
            Body::NewConnectionId => {
                skip_integers(rest, 2)?;
                let len = u64::from(*rest.first()?);
                skip(rest, 1 + len + STATELESS_RESET_TOKEN_BYTES as u64)?;
            }
        }
    }
    Some(())
}

/// Calls `found` with the data of each PATH_RESPONSE.
pub(crate) fn path_responses(bytes: &[u8], mut found: impl FnMut(u64)) -> Option<()> {
    path_frames(bytes, |_, frame| {
        let [kind, data @ ..] = frame;
        if *kind == PATH_RESPONSE {
            found(u64::from_be_bytes(*data));
        }
    })
}

/// Makes PING and padding of each PATH_CHALLENGE: both ask for an
/// acknowledgement.
pub(crate) fn without_challenges(bytes: &mut [u8]) {
    let mut challenge = None;
    let _ = path_frames(bytes, |at, frame| {
        if frame.first() == Some(&PATH_CHALLENGE) {
            challenge = Some(at);
        }
    });
    if let Some(frame) = challenge.and_then(|at| bytes.get_mut(at..at + PATH_FRAME_BYTES)) {
        frame.fill(0);
        if let Some(kind) = frame.first_mut() {
            *kind = PING;
        }
    }
}

/// The data of a PATH_CHALLENGE that is alone in its packet, but for padding,
/// and the bytes of the frame.
pub(crate) fn lone_challenge(frames: &[u8]) -> Option<(u64, usize)> {
    let (&kind, rest) = frames.split_first()?;
    let (data, padding) = rest.split_first_chunk::<PATH_DATA_BYTES>()?;
    let alone = kind == PATH_CHALLENGE && padding.iter().all(|byte| *byte == 0);
    alone.then(|| (u64::from_be_bytes(*data), PATH_FRAME_BYTES))
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
    fn a_challenge_becomes_a_ping() {
        let mut bytes = vec![
            0x02, 0x0a, 0x00, 0x00, 0x01, 0x1a, 1, 2, 3, 4, 5, 6, 7, 8, 0x08, 0,
        ];
        without_challenges(&mut bytes);
        let want = [
            0x02, 0x0a, 0x00, 0x00, 0x01, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0x08, 0,
        ];
        assert_eq!(bytes, want);
        let mut data = vec![0x0a, 0x00, 0x02, 0x1a, 0x1a, 0x00];
        let before = data.clone();
        without_challenges(&mut data);
        assert_eq!(data, before, "not what a stream carries");
    }

    #[test]
    fn a_challenge_with_padding_is_alone() {
        let mut bytes = vec![0x1a, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(lone_challenge(&bytes), Some((0, 9)));
        bytes.extend([0; 20]);
        assert_eq!(lone_challenge(&bytes), Some((0, 9)));
        bytes.push(1);
        assert_eq!(lone_challenge(&bytes), None);
        assert_eq!(lone_challenge(&[0x1b, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(lone_challenge(&[0x1a, 0, 0]), None);
    }
}
