//! States of a delivery (sections 3.4, 4.5.5, 4.5.8).

use dunlin_base::ByteSink;

use crate::composite::{Composite, is_described};
use crate::field::Field;
use crate::reader::Reader;
use crate::value::Check;
use crate::value::read_descriptor;
use crate::{DecodeError, Described, Descriptor, EncodeError, Error, Map, code};

composite! {
    /// How far a receiver got; not terminal.
    Received = 0x23, "amqp:received:list" {
        /// Number of the section, from 0.
        section_number: mandatory u32,
        /// Bytes of that section that are safe.
        section_offset: mandatory u64,
    }
}

composite! {
    /// The receiver has the message.
    Accepted = 0x24, "amqp:accepted:list" {}
}

composite! {
    /// The message is invalid.
    Rejected<'a> = 0x25, "amqp:rejected:list" {
        /// Why.
        error: optional Error<'a>,
    }
}

composite! {
    /// The message was not and will not be acted upon.
    Released = 0x26, "amqp:released:list" {}
}

composite! {
    /// The message was not acted upon, and is changed.
    Modified<'a> = 0x27, "amqp:modified:list" {
        /// Counts as a failed delivery.
        delivery_failed: default bool = false,
        /// Not to this receiver again.
        undeliverable_here: default bool = false,
        /// Message annotations to set.
        message_annotations: optional Map<'a>,
    }
}

composite! {
    /// Outcome of [`crate::Declare`].
    Declared<'a> = 0x33, "amqp:declared:list" {
        /// The transaction.
        txn_id: mandatory &'a [u8],
    }
}

composite! {
    /// State of a delivery that belongs to a transaction.
    TransactionalState<'a> = 0x34, "amqp:transactional-state:list" {
        /// The transaction.
        txn_id: mandatory &'a [u8],
        /// The outcome, if the transaction is committed.
        outcome: optional Outcome<'a>,
    }
}

/// A terminal state of a delivery.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome<'a> {
    /// The receiver has the message.
    Accepted,
    /// The message is invalid.
    Rejected(Rejected<'a>),
    /// The message was not and will not be acted upon.
    Released,
    /// The message was not acted upon, and is changed.
    Modified(Modified<'a>),
    /// A transaction is there.
    Declared(Declared<'a>),
}

/// Any state of a delivery.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DeliveryState<'a> {
    /// How far the receiver got.
    Received(Received),
    /// A terminal state.
    Outcome(Outcome<'a>),
    /// It belongs to a transaction.
    Transactional(TransactionalState<'a>),
    /// A state of an extension.
    Other(Described<'a>),
}

impl<'a> Outcome<'a> {
    /// Numeric descriptor.
    #[must_use]
    pub const fn descriptor(&self) -> u64 {
        match self {
            Self::Accepted => Accepted::DESCRIPTOR,
            Self::Rejected(_) => Rejected::DESCRIPTOR,
            Self::Released => Released::DESCRIPTOR,
            Self::Modified(_) => Modified::DESCRIPTOR,
            Self::Declared(_) => Declared::DESCRIPTOR,
        }
    }

    /// Symbolic descriptor, as `outcomes` of a source lists it.
    #[must_use]
    pub const fn symbol(&self) -> &'static str {
        match self {
            Self::Accepted => Accepted::SYMBOL,
            Self::Rejected(_) => Rejected::SYMBOL,
            Self::Released => Released::SYMBOL,
            Self::Modified(_) => Modified::SYMBOL,
            Self::Declared(_) => Declared::SYMBOL,
        }
    }

    /// Reads a list with the constructor `code` after a descriptor, if it is
    /// that of an outcome.
    fn read_list(
        descriptor: Descriptor<'a>,
        code: u8,
        r: &mut Reader<'a>,
    ) -> Result<Option<Self>, DecodeError> {
        Ok(Some(if is_described::<Accepted>(descriptor) {
            Accepted::read_list(code, r)?;
            Self::Accepted
        } else if is_described::<Released>(descriptor) {
            Released::read_list(code, r)?;
            Self::Released
        } else if is_described::<Rejected<'_>>(descriptor) {
            Self::Rejected(Rejected::read_list(code, r)?)
        } else if is_described::<Modified<'_>>(descriptor) {
            Self::Modified(Modified::read_list(code, r)?)
        } else if is_described::<Declared<'_>>(descriptor) {
            Self::Declared(Declared::read_list(code, r)?)
        } else {
            return Ok(None);
        }))
    }
}

impl<'a> Field<'a> for Outcome<'a> {
    fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        if code != code::DESCRIBED {
            return Err(DecodeError::WrongType);
        }
        let descriptor = read_descriptor(r)?;
        let code = r.u8()?;
        Self::read_list(descriptor, code, r)?.ok_or(DecodeError::WrongType)
    }

    fn encoded_len(&self) -> usize {
        match self {
            Self::Accepted => Accepted {}.encoded_len(),
            Self::Rejected(it) => it.encoded_len(),
            Self::Released => Released {}.encoded_len(),
            Self::Modified(it) => it.encoded_len(),
            Self::Declared(it) => it.encoded_len(),
        }
    }

    fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        match self {
            Self::Accepted => Accepted {}.encode(out),
            Self::Rejected(it) => it.encode(out),
            Self::Released => Released {}.encode(out),
            Self::Modified(it) => it.encode(out),
            Self::Declared(it) => it.encode(out),
        }
    }
}

impl<'a> DeliveryState<'a> {
    /// [`Outcome::Accepted`].
    pub const ACCEPTED: Self = Self::Outcome(Outcome::Accepted);
    /// [`Outcome::Released`].
    pub const RELEASED: Self = Self::Outcome(Outcome::Released);

    /// Decodes `bytes`, which are exactly one state.
    ///
    /// # Errors
    /// The first rule that the bytes break.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        crate::field::read_whole(bytes)
    }

    /// Bytes that encoding takes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        Field::encoded_len(self)
    }

    /// Writes the state with its descriptor.
    ///
    /// # Errors
    /// The sink is full, or the value is larger than AMQP can say.
    pub fn encode(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        self.write(out)
    }

    /// The outcome, also that of a transaction.
    #[must_use]
    pub const fn outcome(&self) -> Option<Outcome<'a>> {
        match self {
            Self::Outcome(outcome) => Some(*outcome),
            Self::Transactional(state) => state.outcome,
            Self::Received(_) | Self::Other(_) => None,
        }
    }

    /// The state that a received value is.
    pub(crate) fn from_described(described: Described<'a>) -> Result<Self, DecodeError> {
        let Some((code, mut r)) = described.received() else {
            return Ok(Self::Other(described));
        };
        let state = Self::read_list(described.descriptor, code, &mut r)?;
        Ok(state.unwrap_or(Self::Other(described)))
    }

    /// As [`Outcome::read_list`].
    #[inline]
    fn read_list(
        descriptor: Descriptor<'a>,
        code: u8,
        r: &mut Reader<'a>,
    ) -> Result<Option<Self>, DecodeError> {
        if is_described::<TransactionalState<'_>>(descriptor) {
            return TransactionalState::read_list(code, r).map(|it| Some(Self::Transactional(it)));
        }
        if is_described::<Received>(descriptor) {
            return Received::read_list(code, r).map(|it| Some(Self::Received(it)));
        }
        Ok(Outcome::read_list(descriptor, code, r)?.map(Self::Outcome))
    }
}

impl<'a> Field<'a> for DeliveryState<'a> {
    fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        if code != code::DESCRIBED {
            return Err(DecodeError::WrongType);
        }
        let descriptor = read_descriptor(r)?;
        let start = *r;
        let code = r.u8()?;
        if let Some(state) = Self::read_list(descriptor, code, r)? {
            return Ok(state);
        }
        *r = start;
        Described::read_value(descriptor, r, Check::ALL).map(Self::Other)
    }

    fn encoded_len(&self) -> usize {
        match self {
            Self::Received(it) => it.encoded_len(),
            Self::Outcome(it) => it.encoded_len(),
            Self::Transactional(it) => it.encoded_len(),
            Self::Other(it) => it.encoded_len(),
        }
    }

    fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        match self {
            Self::Received(it) => it.encode(out),
            Self::Outcome(it) => it.write(out),
            Self::Transactional(it) => it.encode(out),
            Self::Other(it) => it.write(out),
        }
    }
}
