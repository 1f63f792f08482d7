//! SASL frames (section 5.3.3).

use dunlin_base::ByteSink;

use crate::field::Field;
use crate::reader::Reader;
use crate::value::read_descriptor;
use crate::{DecodeError, EncodeError, Symbol, Symbols, code};

composite! {
    /// Mechanisms that the server offers.
    SaslMechanisms<'a> = 0x40, "amqp:sasl-mechanisms:list" {
        /// In the order of the server's preference.
        sasl_server_mechanisms: mandatory Symbols<'a>,
    }
}

composite! {
    /// The client's choice.
    SaslInit<'a> = 0x41, "amqp:sasl-init:list" {
        /// The mechanism.
        mechanism: mandatory Symbol<'a>,
        /// What the mechanism sends first.
        initial_response: optional &'a [u8],
        /// Name of the host that the connection is meant for.
        hostname: optional &'a str,
    }
}

composite! {
    /// A challenge of the server.
    SaslChallenge<'a> = 0x42, "amqp:sasl-challenge:list" {
        /// As the mechanism defines it.
        challenge: mandatory &'a [u8],
    }
}

composite! {
    /// An answer of the client.
    SaslResponse<'a> = 0x43, "amqp:sasl-response:list" {
        /// As the mechanism defines it.
        response: mandatory &'a [u8],
    }
}

composite! {
    /// The end of the exchange.
    SaslOutcome<'a> = 0x44, "amqp:sasl-outcome:list" {
        /// Whether the client is authenticated.
        code: mandatory SaslCode,
        /// As the mechanism defines it.
        additional_data: optional &'a [u8],
    }
}

/// Outcomes of a SASL exchange (section 5.3.3.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SaslCode {
    /// Authenticated.
    #[default]
    Ok = 0,
    /// Wrong credentials.
    Auth = 1,
    /// A fault of the system.
    Sys = 2,
    /// A fault of the system that lasts until it is repaired.
    SysPerm = 3,
    /// A fault of the system that may pass.
    SysTemp = 4,
}

impl SaslCode {
    const fn from_u8(value: u8) -> Option<Self> {
        Some(match value {
            0 => Self::Ok,
            1 => Self::Auth,
            2 => Self::Sys,
            3 => Self::SysPerm,
            4 => Self::SysTemp,
            _ => return None,
        })
    }
}

impl<'a> Field<'a> for SaslCode {
    fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Self::from_u8(u8::read(code, r)?).ok_or(DecodeError::ValueOutOfRange)
    }

    fn encoded_len(&self) -> usize {
        (*self as u8).encoded_len()
    }

    fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        (*self as u8).write(out)
    }
}

/// The body of a SASL frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SaslFrame<'a> {
    /// Mechanisms that the server offers.
    Mechanisms(SaslMechanisms<'a>),
    /// The client's choice.
    Init(SaslInit<'a>),
    /// A challenge of the server.
    Challenge(SaslChallenge<'a>),
    /// An answer of the client.
    Response(SaslResponse<'a>),
    /// The end of the exchange.
    Outcome(SaslOutcome<'a>),
}

any_composite! {
    SaslFrame {
        Mechanisms(SaslMechanisms),
        Init(SaslInit),
        Challenge(SaslChallenge),
        Response(SaslResponse),
        Outcome(SaslOutcome),
    }
}

impl<'a> SaslFrame<'a> {
    /// Decodes the body of a SASL frame.
    ///
    /// # Errors
    /// The first rule that the bytes break, or
    /// [`DecodeError::UnknownPerformative`].
    pub fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        if r.is_empty() {
            return Err(DecodeError::EmptyFrame);
        }
        if r.u8()? != code::DESCRIBED {
            return Err(DecodeError::UnknownPerformative);
        }
        let descriptor = read_descriptor(&mut r)?;
        let frame = Self::read_list(descriptor, &mut r)?;
        r.finish()?;
        Ok(frame)
    }

    /// Bytes that encoding takes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        Field::encoded_len(self)
    }

    /// Writes the body of a SASL frame.
    ///
    /// # Errors
    /// The sink is full, or a value is larger than AMQP can say.
    pub fn encode(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        self.write(out)
    }
}
