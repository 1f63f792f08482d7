//! Any bytes as a ticket file, and any bytes in front of a checksum that is
//! right: reading them does not panic, and what was read comes back from what
//! is written of it. The includer provides `decode`, `encode` and `checked`,
//! which appends the checksum.

use super::{checked, decode, encode};

/// One input.
pub(crate) fn run(data: &[u8]) {
    for bytes in [data.to_vec(), checked(data)] {
        if let Some(entries) = decode(&bytes) {
            assert_eq!(decode(&encode(&entries)), Some(entries));
        }
    }
}
