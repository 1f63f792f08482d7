//! Any bytes as a connection id, under a configuration that the first three of
//! them choose: reading it does not panic, and what was read writes the same
//! id. The includer provides `CidCodec` and `LbConfig`.

use super::{CidCodec, LbConfig};

const KEY: [u8; 16] = *b"sixteen octets!!";

/// One input.
pub(crate) fn run(data: &[u8]) {
    let Some((&[first, server_len, nonce_len], id)) = data.split_first_chunk::<3>() else {
        return;
    };
    let server_id = vec![first; usize::from(server_len % 18)];
    let key = (first & 0x10 != 0).then_some(KEY);
    let tells_length = first & 0x08 != 0;
    let configured = LbConfig::new(first & 0x07, &server_id, usize::from(nonce_len % 20), key);
    let Ok(lb) = configured.map(|lb| lb.tell_length(tells_length)) else {
        return;
    };
    if let Ok(read) = lb.decode(id) {
        assert_eq!(read.server_id.len(), server_id.len());
        let of_server = LbConfig::new(read.rotation, &read.server_id, read.nonce.len(), key);
        let again = of_server.expect("it was read").encode(&read.nonce);
        // What the first octet says besides is random, or the length.
        assert_eq!(again.get(1..), id.get(1..));
        assert_eq!(again[0] >> 5, id[0] >> 5);
    }
    let shards = u16::from(first) + 1;
    for lb in [None, Some(lb)] {
        let Ok(codec) = CidCodec::new(KEY, shards, lb) else {
            continue;
        };
        if let Some(shard) = codec.shard(id) {
            assert!(shard.0 < shards && id.len() == codec.id_len());
        }
    }
}
