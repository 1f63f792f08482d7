//! The name of a delivery on its link.

use core::fmt;

use dunlin_amqp_codec::limits::DELIVERY_TAG_BYTES_MAX;

/// A delivery-tag: at most 32 bytes, unique among the unsettled deliveries of a
/// link. It outlives the connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag {
    len: u8,
    bytes: [u8; DELIVERY_TAG_BYTES_MAX],
}

impl Tag {
    /// The tag of these bytes; `None` if there are more than a tag can have.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut tag = Self {
            len: u8::try_from(bytes.len()).ok()?,
            bytes: [0; DELIVERY_TAG_BYTES_MAX],
        };
        tag.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(tag)
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// The number that [`Tag::from`] made it of.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        let bytes = self.as_bytes().try_into().ok()?;
        Some(u64::from_be_bytes(bytes))
    }
}

/// A tag of eight bytes.
impl From<u64> for Tag {
    fn from(number: u64) -> Self {
        let mut bytes = [0; DELIVERY_TAG_BYTES_MAX];
        for (to, from) in bytes.iter_mut().zip(number.to_be_bytes()) {
            *to = from;
        }
        Self { len: 8, bytes }
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tag(")?;
        for byte in self.as_bytes() {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_has_at_most_32_bytes_and_keeps_a_number() {
        assert_eq!(
            Tag::new(&[7; 32]).as_ref().map(Tag::as_bytes),
            Some(&[7; 32][..])
        );
        assert_eq!(Tag::new(&[7; 33]), None);
        assert_eq!(Tag::new(&[]).as_ref().map(Tag::as_bytes), Some(&[][..]));
        assert_eq!(Tag::from(0x0102).number(), Some(0x0102));
        assert_eq!(Tag::new(b"abc").expect("short").number(), None);
    }
}
