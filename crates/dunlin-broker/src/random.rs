//! Numbers that look random, from the seed that the shard was given. Enough
//! for identifiers and nonces of a session whose seed comes from the system.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

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
