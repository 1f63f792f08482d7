//! Any bytes as the beginning of a stream: reading a flow header does not
//! panic, takes no more than there is, needs all that it takes, and what was
//! read can be written and read again. The includer provides `FlowHeader` and
//! `HEADER_BYTES_MAX`.

use super::{FlowHeader, HEADER_BYTES_MAX};

/// One input.
pub(crate) fn run(data: &[u8]) {
    let parsed = FlowHeader::parse(data);
    let is_type = data
        .first()
        .is_some_and(|first| FlowHeader::is_type(*first));
    let Ok(Some((header, len))) = parsed else {
        assert!(is_type || parsed == Ok(None));
        return;
    };
    assert!(is_type && len <= data.len() && len <= HEADER_BYTES_MAX);
    assert_eq!(FlowHeader::parse(&data[..len]), parsed);
    for cut in 0..len {
        assert_eq!(FlowHeader::parse(&data[..cut]), Ok(None), "cut at {cut}");
    }
    let mut bytes = [0; HEADER_BYTES_MAX];
    let wrote = header.emit(&mut bytes);
    // Integers of others may be longer than they need to be.
    assert!(wrote <= len);
    assert_eq!(FlowHeader::parse(&bytes), Ok(Some((header, wrote))));
}
