//! Connections as requests name them.

use dunlin_base::{ConnId, ShardId};

/// As [`ConnId`] is shown: `SHARD:SERIAL`.
pub(super) fn conn_id(text: &str) -> Option<ConnId> {
    let (shard, serial) = text.split_once(':')?;
    let conn = ConnId::new(ShardId(shard.parse().ok()?), serial.parse().ok()?);
    (conn.to_string() == text).then_some(conn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_named_as_they_are_shown() {
        let conn = ConnId::new(ShardId(3), 1 << 21);
        assert_eq!(conn_id(&conn.to_string()), Some(conn));
        for text in ["", "1", ":", "1:", "1:x", "70000:1", "1:281474976710656"] {
            assert_eq!(conn_id(text), None, "{text}");
        }
    }
}
