//! The map of unsettled deliveries in `attach` (section 2.7.3).

use dunlin_base::ByteSink;

use crate::field::Field;
use crate::limits::DELIVERY_TAG_BYTES_MAX;
use crate::reader::Reader;
use crate::writer::{compound_len, put_compound, put_null};
use crate::{DecodeError, DeliveryState, EncodeError, Map, Value, code};

/// Delivery tags and the state of each delivery, if it has one.
#[derive(Clone, Copy)]
pub struct Unsettled<'a>(Repr<'a>);

#[derive(Clone, Copy)]
enum Repr<'a> {
    Received(Map<'a>),
    Slice(&'a [(&'a [u8], Option<DeliveryState<'a>>)]),
}

impl<'a> Unsettled<'a> {
    /// These deliveries.
    #[must_use]
    pub const fn new(deliveries: &'a [(&'a [u8], Option<DeliveryState<'a>>)]) -> Self {
        Self(Repr::Slice(deliveries))
    }

    /// Number of deliveries.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.0 {
            Repr::Received(map) => map.len(),
            Repr::Slice(slice) => slice.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The deliveries, in their order.
    pub fn iter(
        &self,
    ) -> impl Iterator<Item = (&'a [u8], Option<DeliveryState<'a>>)> + Clone + use<'a> {
        let (map, slice): (_, &[_]) = match self.0 {
            Repr::Received(map) => (map, &[]),
            Repr::Slice(slice) => (Map::default(), slice),
        };
        map.iter()
            // All entries were read before.
            .filter_map(|(tag, state)| delivery(tag, state).ok())
            .chain(slice.iter().copied())
    }
}

/// One entry of the map.
fn delivery<'a>(
    tag: Value<'a>,
    state: Value<'a>,
) -> Result<(&'a [u8], Option<DeliveryState<'a>>), DecodeError> {
    let Value::Binary(tag) = tag else {
        return Err(DecodeError::WrongType);
    };
    if tag.len() > DELIVERY_TAG_BYTES_MAX {
        return Err(DecodeError::ValueOutOfRange);
    }
    let state = match state {
        Value::Null => None,
        Value::Described(described) => Some(DeliveryState::from_described(described)?),
        _ => return Err(DecodeError::WrongType),
    };
    Ok((tag, state))
}

/// Bytes of keys and values.
fn slice_len(slice: &[(&[u8], Option<DeliveryState<'_>>)]) -> usize {
    slice
        .iter()
        .map(|(tag, state)| tag.encoded_len() + state.as_ref().map_or(1, Field::encoded_len))
        .sum()
}

impl<'a> Field<'a> for Unsettled<'a> {
    fn read(code: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let map = Map::read(code, r)?;
        for (tag, state) in map.iter() {
            delivery(tag, state)?;
        }
        Ok(Self(Repr::Received(map)))
    }

    fn encoded_len(&self) -> usize {
        match self.0 {
            Repr::Received(map) => map.encoded_len(),
            Repr::Slice(slice) => compound_len(slice.len() * 2, slice_len(slice)),
        }
    }

    fn write(&self, out: &mut (impl ByteSink + ?Sized)) -> Result<(), EncodeError> {
        let slice = match self.0 {
            Repr::Received(map) => return map.write(out),
            Repr::Slice(slice) => slice,
        };
        put_compound(out, code::MAP8, slice.len() * 2, slice_len(slice))?;
        for (tag, state) in slice {
            tag.write(out)?;
            match state {
                Some(state) => state.write(out)?,
                None => put_null(out)?,
            }
        }
        Ok(())
    }
}

as_its_elements!(Unsettled, debug_map);
