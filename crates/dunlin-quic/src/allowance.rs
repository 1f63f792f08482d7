//! How far a client may send ahead on a stream. quinn-proto gives every stream the
//! same window, as soon as it is opened: with many of them, what a client may
//! send on streams that are not read adds up to many windows. So an accepted
//! connection announces less than quinn-proto allows:
//!
//! - a stream begins with an eighth of the window, and gets the rest when it is
//!   read;
//! - while more than two are open beside control, each gets an eighth beyond what
//!   was read of it, except control and the one that is read alone.
//!
//! An eighth is what quinn-proto has a stream use up before it announces more.
//! It goes on enforcing the whole window, and what it keeps unread is bounded by
//! the window of the connection.
//!
//! quinn-proto also issues as many connection ids as a client wants, up to eight. A
//! client that wants more than three is taken to want three.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::frames;
use crate::limits::QuicLimits;

/// A small window is this part of a whole one.
const SMALL_PART: u32 = 8;

/// Streams of the client with whole windows: control and two others.
const WHOLE_STREAMS: u64 = 3;

/// Transport parameters with the first window of a stream (RFC 9000 section
/// 18.2): `initial_max_stream_data_bidi_local`, `.._bidi_remote` and `.._uni`.
const FIRST_WINDOWS: core::ops::RangeInclusive<u64> = 0x05..=0x07;

/// The transport parameter `active_connection_id_limit` (RFC 9000 section 18.2).
const ACTIVE_CONNECTION_ID_LIMIT: u64 = 0x0e;

/// Connection ids that a client has at a time: the one in use and two with which
/// it may move at once. It gets another for each that it retires.
const IDS_MAX: u64 = 3;

/// Changes with what is announced at first, which clients remember.
pub(crate) const NAME: &str = "first windows: 1/8";

/// What is announced on one connection.
#[derive(Debug, Default)]
pub(crate) struct Allowance {
    /// Bytes that a window is smaller by.
    less: AtomicU64,
    /// The stream with a whole window that is not control; 0: none.
    whole: AtomicU64,
}

impl Allowance {
    /// So many streams of the client are open.
    pub(crate) fn set_open(&self, streams: u64, limits: &QuicLimits) {
        let window = limits.stream_receive_window;
        let less = match streams > WHOLE_STREAMS {
            true => window - small(window),
            false => 0,
        };
        self.less.store(less.into(), Ordering::Relaxed);
    }

    /// The stream that is read alone, if there is one.
    pub(crate) fn set_whole(&self, stream: Option<u64>) {
        self.whole.store(stream.unwrap_or(0), Ordering::Relaxed);
    }

    /// Changes the frames of a packet that is about to be sealed.
    pub(crate) fn apply(&self, frames: &mut [u8]) {
        let less = self.less.load(Ordering::Relaxed);
        if less > 0 {
            let whole = self.whole.load(Ordering::Relaxed);
            frames::lower_windows(frames, |stream| match stream {
                0 => 0,
                stream if stream == whole => 0,
                _ => less,
            });
        }
    }
}

/// The small window, where this is the whole one.
pub(crate) const fn small(window: u32) -> u32 {
    window.div_ceil(SMALL_PART)
}

/// The window of a connection one stream of which is read alone: what the others
/// may hold then does not keep away what the one needs.
pub(crate) fn beside_one(limits: &QuicLimits) -> u64 {
    let whole = u64::from(limits.stream_receive_window);
    let data_streams = limits
        .bidi_streams
        .saturating_sub(1)
        .max(limits.uni_streams);
    let small = u64::from(data_streams) * u64::from(small(limits.stream_receive_window));
    u64::from(limits.receive_window).max(2 * whole) + small
}

/// Lowers the first windows in encoded transport parameters.
pub(crate) fn lower_first(parameters: &mut [u8]) {
    lower(parameters, |id, window| {
        FIRST_WINDOWS
            .contains(&id)
            .then(|| window.div_ceil(SMALL_PART.into()))
    });
}

/// Lowers how many connection ids the client wants, in its encoded transport
/// parameters: each takes 100 bytes in tables, and 40 on the wire.
pub(crate) fn lower_ids(parameters: &mut [u8]) {
    lower(parameters, |id, wanted| {
        (id == ACTIVE_CONNECTION_ID_LIMIT && wanted > IDS_MAX).then_some(IDS_MAX)
    });
}

/// Replaces integers among transport parameters, by id and value, by smaller ones.
fn lower(parameters: &mut [u8], smaller: impl Fn(u64, u64) -> Option<u64>) {
    let mut changes = Vec::new();
    let mut rest = &*parameters;
    while let (Some(id), Some(len)) = (frames::integer(&mut rest), frames::integer(&mut rest)) {
        let at = parameters.len() - rest.len();
        let Some((mut value, after)) = usize::try_from(len)
            .ok()
            .and_then(|len| rest.split_at_checked(len))
        else {
            break;
        };
        rest = after;
        if let Some(change) = frames::integer(&mut value).and_then(|value| smaller(id, value)) {
            changes.push((at, change));
        }
    }
    for (at, value) in changes {
        if let Some(place) = parameters.get_mut(at..) {
            frames::replace_integer(place, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_read_beside_small_windows() {
        assert_eq!(beside_one(&crate::tests::limits()), 512 << 10);
    }

    #[test]
    fn first_windows_are_lowered_among_parameters() {
        let mut parameters = vec![0x01, 2, 0x50, 0x00, 0x05, 4, 0x80, 0x02, 0x00, 0x00];
        parameters.extend([0x06, 2, 0x50, 0x00, 0x40, 0x07, 1, 9, 0x04, 1, 9]);
        let mut want = parameters.clone();
        want[6..10].copy_from_slice(&[0x80, 0x00, 0x40, 0x00]);
        want[12..14].copy_from_slice(&[0x42, 0x00]);
        want[17] = 2;
        lower_first(&mut parameters);
        assert_eq!(parameters, want);
        for end in 0..want.len() {
            lower_first(&mut parameters[..end]);
        }
    }

    #[test]
    fn few_connection_ids_are_issued() {
        for (wanted, issued) in [(2, 2), (3, 3), (4, 3), (8, 3), (0x3fff, 3)] {
            let value = match wanted {
                0x3fff => vec![0x7f, 0xff],
                small => vec![small as u8],
            };
            let mut parameters = vec![0x01, 2, 0x50, 0x00, 0x0e, value.len() as u8];
            parameters.extend(value);
            lower_ids(&mut parameters);
            let mut rest = &parameters[6..];
            assert_eq!(frames::integer(&mut rest), Some(issued), "{wanted}");
            assert_eq!(parameters[..4], [0x01, 2, 0x50, 0x00]);
        }
    }
}
