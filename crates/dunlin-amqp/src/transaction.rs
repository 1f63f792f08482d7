//! Transactions (part 4): what a controller asks of a coordinator. The resource
//! is the driver's; transfers and dispositions of a transaction carry
//! [`dunlin_amqp_codec::DeliveryState::Transactional`] as their state.

use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_amqp_codec::{Declare, DecodeError, Discharge, EncodeError, Message, Section};

/// A message to a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Begin a transaction. The driver settles the delivery with
    /// [`dunlin_amqp_codec::Declared`], or rejects it.
    Declare {
        /// Identifier of a distributed transaction.
        global_id: Option<Bytes>,
    },
    /// End a transaction. The driver settles the delivery as accepted, or
    /// rejects it.
    Discharge {
        /// The transaction.
        txn_id: Bytes,
        /// It is rolled back, not committed.
        fail: bool,
    },
}

impl Demand {
    /// Reads a message.
    ///
    /// # Errors
    /// It is not AMQP, or its body is neither of the two.
    pub fn decode(message: &[u8]) -> Result<Self, DecodeError> {
        let message = Message::scan(message)?;
        let value = message.body().value_bytes().ok_or(DecodeError::WrongType)?;
        if let Ok(declare) = Declare::decode(value) {
            let global_id = declare.global_id.map(Bytes::copy_from_slice);
            return Ok(Self::Declare { global_id });
        }
        let discharge = Discharge::decode(value)?;
        Ok(Self::Discharge {
            txn_id: Bytes::copy_from_slice(discharge.txn_id),
            fail: discharge.fail.unwrap_or(false),
        })
    }

    /// Writes the message.
    ///
    /// # Errors
    /// An identifier is larger than AMQP can say.
    pub fn encode(&self) -> Result<Bytes, EncodeError> {
        let mut bytes = Vec::new();
        // The section is a described value: its descriptor stands before it.
        bytes.extend_from_slice(&[0x00, 0x53, Section::AmqpValue.descriptor() as u8]);
        match self {
            Self::Declare { global_id } => Declare {
                global_id: global_id.as_deref(),
            }
            .encode(&mut bytes)?,
            Self::Discharge { txn_id, fail } => Discharge {
                txn_id,
                fail: Some(*fail),
            }
            .encode(&mut bytes)?,
        }
        Ok(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demands_are_read_as_they_were_written() {
        let id = Bytes::from_static(b"txn");
        for demand in [
            Demand::Declare { global_id: None },
            Demand::Declare {
                global_id: Some(id.clone()),
            },
            Demand::Discharge {
                txn_id: id.clone(),
                fail: false,
            },
            Demand::Discharge {
                txn_id: id,
                fail: true,
            },
        ] {
            let bytes = demand.encode().expect("small");
            if let Demand::Discharge { fail, .. } = demand {
                let said = bytes.last().copied();
                assert_eq!(said, Some(if fail { 0x41 } else { 0x42 }), "it is said");
            }
            assert_eq!(Demand::decode(&bytes), Ok(demand));
        }
        assert!(Demand::decode(b"").is_err());
        assert!(Demand::decode(&[0x00, 0x53, 0x77, 0x40]).is_err(), "null");
        assert!(
            Demand::decode(&[0x00, 0x53, 0x75, 0xa0, 0]).is_err(),
            "data"
        );
    }
}
