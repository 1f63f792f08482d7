//! Any bytes as the header of a proxy: reading it does not panic, takes no more than
//! there is and than the limit, and needs all that it takes. The includer provides
//! `Header`, `HeaderError`, `ProxyVersions` and `HEADER_BYTES_MAX`.

use super::{HEADER_BYTES_MAX, Header, HeaderError, ProxyVersions};

/// One input.
pub(crate) fn run(data: &[u8]) {
    let any = Header::parse(data, ProxyVersions::Any);
    let each = [ProxyVersions::V1, ProxyVersions::V2].map(|it| Header::parse(data, it));
    // The first byte tells the versions apart.
    let absent = |result: &Result<_, _>| matches!(result, Err(HeaderError::Absent));
    assert!(each.contains(&any));
    assert!(data.is_empty() || each.iter().any(absent));
    match any {
        Ok(Some(header)) => {
            assert!(header.len <= data.len() && header.len <= HEADER_BYTES_MAX);
            let whole = &data[..header.len];
            assert_eq!(Header::parse(whole, ProxyVersions::Any), Ok(Some(header)));
            for cut in 0..whole.len() {
                assert_eq!(Header::parse(&whole[..cut], ProxyVersions::Any), Ok(None));
            }
        }
        Ok(None) => assert!(data.len() < HEADER_BYTES_MAX),
        Err(_) => {}
    }
}
