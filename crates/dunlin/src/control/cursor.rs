//! Where a page of rows of all shards begins: a shard and a place in its table.

use core::fmt;
use core::str::FromStr;

use dunlin_base::ShardId;
use dunlin_broker::control::values::Place;

/// A place in the tables of the shards, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) shard: ShardId,
    pub(crate) at: Place,
}

impl Cursor {
    /// Where the first page begins.
    pub(crate) const fn first(shard: ShardId) -> Self {
        Self { shard, at: 0 }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.shard.0, self.at)
    }
}

impl FromStr for Cursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (shard, at) = text.split_once(':').ok_or(())?;
        let shard = ShardId(shard.parse().map_err(|_| ())?);
        let at = at.parse().map_err(|_| ())?;
        Ok(Self { shard, at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_is_written() {
        let cursor = Cursor {
            shard: ShardId(7),
            at: 1 << 40,
        };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for text in ["", "1", ":", "1:", ":1", "1:x", "70000:1", "-1:0"] {
            assert_eq!(text.parse::<Cursor>(), Err(()), "{text}");
        }
    }
}
