//! Role and settlement of a link (sections 2.8.1 to 2.8.3).

use dunlin_base::ByteSink;

use crate::field::Field;
use crate::reader::Reader;
use crate::{DecodeError, EncodeError};

/// One end of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// The sending end; `false` on the wire.
    #[default]
    Sender,
    /// The receiving end; `true` on the wire.
    Receiver,
}

impl Role {
    /// The other end.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }
}

/// How the sending end settles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SenderSettleMode {
    /// All deliveries are sent unsettled.
    Unsettled = 0,
    /// All deliveries are sent settled.
    Settled = 1,
    /// Both may come.
    #[default]
    Mixed = 2,
}

/// How the receiving end settles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReceiverSettleMode {
    /// The receiver settles by itself.
    #[default]
    First = 0,
    /// The receiver settles after the sender did.
    Second = 1,
}

impl<'a> Field<'a> for Role {
    fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(if bool::read(code, r)? {
            Self::Receiver
        } else {
            Self::Sender
        })
    }

    fn encoded_len(&self) -> usize {
        1
    }

    fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        (*self == Self::Receiver).write(out)
    }
}

impl<'a> Field<'a> for SenderSettleMode {
    fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match u8::read(code, r)? {
            0 => Ok(Self::Unsettled),
            1 => Ok(Self::Settled),
            2 => Ok(Self::Mixed),
            _ => Err(DecodeError::ValueOutOfRange),
        }
    }

    fn encoded_len(&self) -> usize {
        (*self as u8).encoded_len()
    }

    fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        (*self as u8).write(out)
    }
}

impl<'a> Field<'a> for ReceiverSettleMode {
    fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match u8::read(code, r)? {
            0 => Ok(Self::First),
            1 => Ok(Self::Second),
            _ => Err(DecodeError::ValueOutOfRange),
        }
    }

    fn encoded_len(&self) -> usize {
        (*self as u8).encoded_len()
    }

    fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        (*self as u8).write(out)
    }
}
