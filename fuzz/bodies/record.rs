//! Any bytes as a session ticket that a client or a server kept: reading it
//! does not panic, and what was read is written as the same bytes. The includer
//! provides `Record`.

use super::Record;

/// One input.
pub(crate) fn run(data: &[u8]) {
    let Some(record) = Record::decode(data) else {
        return;
    };
    for now in [0, record.issued, u64::MAX] {
        let _ = record.is_fresh(now);
    }
    // `None`: too large to be written.
    if let Some(bytes) = record.encode() {
        assert_eq!(bytes, data);
    }
}
