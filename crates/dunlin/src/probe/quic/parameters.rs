//! Transport parameters of a server (RFC 9000 section 18.2), as far as checks name
//! them.

/// What the server said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Parameters {
    /// 0: none.
    pub(super) idle_timeout_ms: u64,
    pub(super) streams_bidi: u64,
    pub(super) streams_uni: u64,
    /// Largest DATAGRAM frame; 0: it takes none.
    pub(super) datagram_size: u64,
    /// The handshake had a Retry.
    pub(super) retried: bool,
}

impl Parameters {
    /// Reads what the transport has checked before; stops where it cannot be read.
    pub(super) fn read(mut encoded: &[u8]) -> Self {
        let mut found = Self::default();
        while let Some((id, value)) = parameter(&mut encoded) {
            let number = || varint(&mut &*value).unwrap_or(0);
            match id {
                0x01 => found.idle_timeout_ms = number(),
                0x08 => found.streams_bidi = number(),
                0x09 => found.streams_uni = number(),
                0x10 => found.retried = true,
                0x20 => found.datagram_size = number(),
                _ => {}
            }
        }
        found
    }
}

fn parameter<'a>(bytes: &mut &'a [u8]) -> Option<(u64, &'a [u8])> {
    let id = varint(bytes)?;
    let len = usize::try_from(varint(bytes)?).ok()?;
    let (value, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some((id, value))
}

/// A variable-length integer (RFC 9000 section 16).
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let (first, mut rest) = bytes.split_first()?;
    let mut value = u64::from(first & 0x3f);
    for _ in 1..1_usize << (first >> 6) {
        let (next, after) = rest.split_first()?;
        value = value << 8 | u64::from(*next);
        rest = after;
    }
    *bytes = rest;
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_in_any_order_up_to_what_is_broken() {
        let encoded = [
            &[0x08, 0x02, 0x40, 0x64][..],
            &[0x01, 0x04, 0x80, 0x00, 0x75, 0x30],
            &[0x7f, 0xff, 0x01, 0x00],
            &[0x20, 0x04, 0x80, 0x00, 0xff, 0xff],
            &[0x10, 0x03, 1, 2, 3],
            &[0x09, 0x01, 0x03],
        ]
        .concat();
        let want = Parameters {
            idle_timeout_ms: 30_000,
            streams_bidi: 100,
            streams_uni: 3,
            datagram_size: 65_535,
            retried: true,
        };
        assert_eq!(Parameters::read(&encoded), want);
        for len in 0..encoded.len() {
            let cut = Parameters::read(&encoded[..len]);
            assert!(cut.streams_uni == 0 || len == encoded.len());
        }
        assert_eq!(Parameters::read(&[0x08, 0xff, 0, 0]), Parameters::default());
    }
}
