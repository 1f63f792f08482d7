//! Who a node is, and its entry in the bucket as bytes: JSON in one line, and under it the
//! proof that a node with the cluster's secret wrote it under this number.

use serde::{Deserialize, Serialize};

use crate::authority::Authority;
use crate::ids::{Incarnation, NodeId};
use crate::limits::{ADDRESS_BYTES_MAX, ADDRESSES_MAX, ENTRY_BYTES_MAX, NAME_BYTES_MAX};

/// Versions of the encoding of what batches carry. This crate compares them and knows nothing
/// else of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Encoding {
    /// What the node writes.
    #[serde(rename = "encoding")]
    pub version: u16,
    /// The lowest version whose readers understand that.
    #[serde(rename = "encoding_least", default)]
    pub least: u16,
    /// The oldest version that the node reads.
    #[serde(rename = "encoding_oldest", default)]
    pub oldest: u16,
}

impl Encoding {
    /// Whether a node with this one reads what a node with the other one writes.
    #[must_use]
    pub const fn reads(self, other: Self) -> bool {
        other.version >= self.oldest && other.least <= self.version
    }

    /// Whether each of two nodes reads what the other one writes.
    #[must_use]
    pub const fn fits(self, other: Self) -> bool {
        self.reads(other) && other.reads(self)
    }
}

/// What a node says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Its name, for people.
    pub name: String,
    /// Number of its shards.
    pub shards: u16,
    /// Version of its program.
    pub version: String,
    /// How what its batches carry is encoded.
    #[serde(flatten)]
    pub encoding: Encoding,
    /// Addresses where clients reach it, as Server Reference says them.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// When it joined by its own clock, in seconds since 1970; 0: it does not say.
    #[serde(default)]
    pub since: u64,
}

impl About {
    /// Why an entry cannot say this; `None`: it can.
    pub(crate) fn wrong(&self) -> Option<&'static str> {
        let is_long = |address: &String| address.len() > ADDRESS_BYTES_MAX;
        if self.name.len() > NAME_BYTES_MAX || self.version.len() > NAME_BYTES_MAX {
            Some("name or version is too long")
        } else if self.addresses.len() > ADDRESSES_MAX || self.addresses.iter().any(is_long) {
            Some("too many addresses of clients, or one that is too long")
        } else {
            None
        }
    }
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub node: NodeId,
    /// Of this membership.
    pub incarnation: Incarnation,
    /// What it says about itself.
    pub about: About,
}

/// As it is written.
#[derive(Serialize, Deserialize)]
struct Written {
    incarnation: String,
    #[serde(flatten)]
    about: About,
}

/// What keeps an entry from being one of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoMember {
    /// It is of a node with another secret, or of another number.
    Secret,
    /// One of the two nodes does not read what the other one writes.
    Encoding,
    Unreadable,
}

impl Member {
    pub(crate) fn encode(&self, authority: &Authority) -> Vec<u8> {
        let written = Written {
            incarnation: self.incarnation.to_string(),
            about: self.about.clone(),
        };
        let text = serde_json::to_string(&written).unwrap_or_default();
        let proof = authority.prove_entry(self.node, text.as_bytes());
        let mut out = text.into_bytes();
        out.push(b'\n');
        out.extend(hex(&proof).into_bytes());
        out
    }

    pub(crate) fn decode(
        node: NodeId,
        bytes: &[u8],
        authority: &Authority,
    ) -> Result<Self, NoMember> {
        if bytes.len() > ENTRY_BYTES_MAX {
            return Err(NoMember::Unreadable);
        }
        let text = core::str::from_utf8(bytes).map_err(|_| NoMember::Unreadable)?;
        let (text, proof) = text.rsplit_once('\n').ok_or(NoMember::Unreadable)?;
        let proof = unhex(proof).ok_or(NoMember::Unreadable)?;
        if !authority.is_entry(node, text.as_bytes(), &proof) {
            return Err(NoMember::Secret);
        }
        let written: Written = serde_json::from_str(text).map_err(|_| NoMember::Unreadable)?;
        let incarnation = u64::from_str_radix(&written.incarnation, 16);
        let about = written.about;
        match (incarnation, about.wrong()) {
            (Ok(number), None) => Ok(Self {
                node,
                incarnation: Incarnation(number),
                about,
            }),
            _ => Err(NoMember::Unreadable),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    use core::fmt::Write as _;
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(out, "{byte:02x}");
    }
    out
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let pairs = text.as_bytes().chunks(2);
    let bytes = pairs.map(|pair| match pair {
        [high, low] => u8::try_from(digit(high)? * 16 + digit(low)?).ok(),
        _ => None,
    });
    bytes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(node: u16) -> Member {
        Member {
            node: NodeId::new(node).expect("a number"),
            incarnation: Incarnation(7),
            about: About {
                name: "a\nb".to_owned(),
                shards: 4,
                version: "0.1.0".to_owned(),
                encoding: Encoding {
                    version: 3,
                    least: 2,
                    oldest: 1,
                },
                addresses: vec!["mqtt://a".to_owned()],
                since: 1_800_000_000,
            },
        }
    }

    fn authority(secret: &str) -> Authority {
        Authority::new(secret.as_bytes(), "dl")
    }

    #[test]
    fn entries_come_back() {
        let authority = authority("a secret of sixteen");
        let bytes = member(3).encode(&authority);
        let found = Member::decode(member(3).node, &bytes, &authority);
        assert_eq!(found, Ok(member(3)));
        // A later version may say more.
        let text = String::from_utf8(bytes).expect("text");
        let (text, _) = text.rsplit_once('\n').expect("two lines");
        let more = text.replacen('{', "{\"later\":[1],", 1);
        let proof = authority.prove_entry(member(3).node, more.as_bytes());
        let bytes = format!("{more}\n{}", hex(&proof));
        let found = Member::decode(member(3).node, bytes.as_bytes(), &authority);
        assert_eq!(found, Ok(member(3)));
    }

    #[test]
    fn releases_fit_that_read_each_other() {
        let of = |version, least, oldest| Encoding {
            version,
            least,
            oldest,
        };
        let (first, second) = (of(1, 1, 1), of(2, 1, 1));
        assert!(first.fits(first) && first.fits(second) && second.fits(first));
        // It writes what the first one does not understand, and reads it.
        let third = of(3, 3, 1);
        assert!(third.reads(first) && !first.reads(third));
        assert!(!third.fits(first) && !first.fits(third) && third.fits(third));
        // It does not read the first one, which would read it.
        let later = of(4, 1, 2);
        assert!(!later.reads(first) && first.reads(later));
        assert!(!later.fits(first) && !first.fits(later) && later.fits(second));
    }

    #[test]
    fn entries_of_others_are_none() {
        let own = authority("a secret of sixteen");
        let bytes = member(3).encode(&own);
        let as_read = |node: u16, bytes: &[u8], by: &Authority| {
            Member::decode(NodeId::new(node).expect("a number"), bytes, by)
        };
        assert_eq!(as_read(4, &bytes, &own), Err(NoMember::Secret));
        let other = authority("another secret of it");
        assert_eq!(as_read(3, &bytes, &other), Err(NoMember::Secret));
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            assert!(as_read(3, &bytes, &own).is_err(), "byte {at}");
            assert!(as_read(3, &bytes[..at], &own).is_err(), "{at} bytes");
        }
        assert!(as_read(3, &[b'x'; ENTRY_BYTES_MAX + 1], &own).is_err());
    }
}
