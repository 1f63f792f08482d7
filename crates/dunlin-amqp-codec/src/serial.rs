//! Serial number arithmetic (RFC 1982) for delivery counts, delivery ids and
//! transfer ids (sections 2.8.8 to 2.8.10).

use core::cmp::Ordering;

use dunlin_base::ByteSink;

use crate::field::Field;
use crate::reader::Reader;
use crate::{DecodeError, EncodeError};

/// A number that wraps at 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SerialNumber(pub u32);

impl SerialNumber {
    /// The number `steps` later. RFC 1982 defines it for less than 2^31.
    #[must_use]
    pub const fn add(self, steps: u32) -> Self {
        Self(self.0.wrapping_add(steps))
    }

    /// The next number.
    #[must_use]
    pub const fn next(self) -> Self {
        self.add(1)
    }

    /// Steps from `earlier` to this number; negative if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> i32 {
        self.0.wrapping_sub(earlier.0).cast_signed()
    }

    /// Whether this number comes before `other`; false for numbers that are
    /// 2^31 apart, which have no order.
    #[must_use]
    pub const fn is_before(self, other: Self) -> bool {
        other.since(self) > 0
    }

    /// Numbers from this one to `last`, both included; `None` if `last` comes
    /// before.
    #[must_use]
    pub fn count_to(self, last: Self) -> Option<u32> {
        u32::try_from(last.since(self)).ok().map(|steps| steps + 1)
    }
}

impl PartialOrd for SerialNumber {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match self.since(*other) {
            0 => Some(Ordering::Equal),
            i32::MIN => None,
            steps if steps > 0 => Some(Ordering::Greater),
            _ => Some(Ordering::Less),
        }
    }
}

impl From<u32> for SerialNumber {
    fn from(value: u32) -> Self {
        Self(value)
    }
}

impl<'a> Field<'a> for SerialNumber {
    fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        u32::read(code, r).map(Self)
    }

    fn encoded_len(&self) -> usize {
        self.0.encoded_len()
    }

    fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        self.0.write(out)
    }
}
