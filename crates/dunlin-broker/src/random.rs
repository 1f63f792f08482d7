//! Where a session lives, and the numbers that look random: identifiers and
//! nonces of a session, from the seed that the shard was given.

pub(crate) use dunlin_base::Random;

/// The shard that a client identifier belongs to: FNV-1a, mixed.
#[must_use]
pub fn home_shard(client_id: &str, shards: u16) -> u16 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in client_id.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    (Random::new(hash).next() % u64::from(shards.max(1))) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn client_ids_spread_over_shards() {
        let on_first = (0..1000)
            .filter(|i| home_shard(&format!("sensor-{i}"), 2) == 0)
            .count();
        assert!((400..600).contains(&on_first), "{on_first}");
    }
}
