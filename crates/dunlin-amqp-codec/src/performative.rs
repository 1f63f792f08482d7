//! The body of an AMQP frame (section 2.7).

use dunlin_base::ByteSink;

use crate::field::Field;
use crate::limits::DELIVERY_TAG_BYTES_MAX;
use crate::reader::Reader;
use crate::value::read_descriptor;
use crate::{
    Attach, Begin, Close, DecodeError, Detach, Disposition, EncodeError, End, Flow, Open, Transfer,
    code,
};

/// A performative.
#[allow(
    clippy::large_enum_variant,
    reason = "it lives on the stack while one frame is handled"
)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Performative<'a> {
    /// Opens a connection.
    Open(Open<'a>),
    /// Begins a session.
    Begin(Begin<'a>),
    /// Attaches a link.
    Attach(Attach<'a>),
    /// Updates flow state.
    Flow(Flow<'a>),
    /// A message or a part of one.
    Transfer(Transfer<'a>),
    /// Tells and settles states of deliveries.
    Disposition(Disposition<'a>),
    /// Detaches a link.
    Detach(Detach<'a>),
    /// Ends a session.
    End(End<'a>),
    /// Closes a connection.
    Close(Close<'a>),
}

// The frequent ones first: they are compared in this order.
any_composite! {
    Performative {
        Transfer(Transfer),
        Disposition(Disposition),
        Flow(Flow),
        Attach(Attach),
        Detach(Detach),
        Begin(Begin),
        End(End),
        Open(Open),
        Close(Close),
    }
}

impl<'a> Performative<'a> {
    /// Decodes the body of an AMQP frame that is not empty: the performative, and
    /// what follows it, which only `transfer` has.
    ///
    /// # Errors
    /// The first rule that the bytes break, or
    /// [`DecodeError::UnknownPerformative`] for a type that is none.
    pub fn decode(body: &'a [u8]) -> Result<(Self, &'a [u8]), DecodeError> {
        let mut r = Reader::new(body);
        if r.is_empty() {
            return Err(DecodeError::EmptyFrame);
        }
        if r.u8()? != code::DESCRIBED {
            return Err(DecodeError::WrongType);
        }
        let descriptor = read_descriptor(&mut r)?;
        let performative = Self::read_list(descriptor, &mut r)?;
        let Self::Transfer(transfer) = &performative else {
            r.finish()?;
            return Ok((performative, &[]));
        };
        let tag = transfer.delivery_tag.unwrap_or_default();
        if tag.len() > DELIVERY_TAG_BYTES_MAX {
            return Err(DecodeError::FieldValue("Transfer.delivery_tag"));
        }
        Ok((performative, r.rest()))
    }

    /// Bytes that encoding takes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        Field::encoded_len(self)
    }

    /// Writes the performative.
    ///
    /// # Errors
    /// The sink is full, or a value is larger than AMQP can say.
    pub fn encode(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        self.write(out)
    }
}
