//! Deliveries whose message is in the store, as bytes: about six for each
//! where a `Delivery` takes a hundred. First in, first out.

use alloc::collections::VecDeque;

use dunlin_base::{Instant, QoS, StreamId};

use crate::delivery::{Content, Delivery, Identifiers};

const QOS_2: u8 = 1;
const RETAIN: u8 = 1 << 1;
const MAYBE_SENT: u8 = 1 << 2;
const EXPIRES: u8 = 1 << 3;
const STREAM: u8 = 1 << 4;
const IDENTIFIERS: u8 = 1 << 5;

/// A queue of deliveries of one level.
///
/// An entry is a byte of flags, the difference to the sequence number before
/// and the cost, then what the flags name; numbers are little-endian base 128,
/// seven bits a byte.
#[derive(Debug, Default)]
pub(crate) struct Packed {
    bytes: VecDeque<u8>,
    len: usize,
    /// Sequence numbers of the entries written and read last.
    written: u64,
    read: u64,
    /// The first so many entries go to the control stream instead of their own.
    on_control: usize,
}

impl Packed {
    /// Whether a delivery can be kept here: its message is in the store, and
    /// no other member of a shared subscription may want it.
    pub(crate) fn takes(delivery: &Delivery) -> bool {
        let stored = matches!(delivery.content, Content::Stored { .. });
        let plain = delivery.share.is_none() && delivery.failed == 0 && delivery.added.is_none();
        stored && delivery.seq.is_some() && plain
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Has all of them go to the control stream.
    pub(crate) const fn forget_streams(&mut self) {
        self.on_control = self.len;
    }

    /// Appends a delivery, or gives it back if it does not belong here.
    pub(crate) fn push(&mut self, delivery: Delivery) -> Result<(), Delivery> {
        let (Content::Stored { cost, expires }, Some(seq), true) =
            (&delivery.content, delivery.seq, Self::takes(&delivery))
        else {
            return Err(delivery);
        };
        let mut flags = 0;
        for (flag, set) in [
            (QOS_2, delivery.qos == QoS::ExactlyOnce),
            (RETAIN, delivery.retain),
            (MAYBE_SENT, delivery.maybe_sent),
            (EXPIRES, expires.is_some()),
            (STREAM, delivery.stream != StreamId::CONTROL),
            (IDENTIFIERS, !delivery.identifiers.is_empty()),
        ] {
            flags |= if set { flag } else { 0 };
        }
        self.bytes.push_back(flags);
        self.put(zigzag(seq.wrapping_sub(self.written)));
        self.written = seq;
        self.put(u64::from(*cost));
        if let Some(expires) = expires {
            self.put(expires.as_micros());
        }
        if flags & STREAM != 0 {
            self.put(delivery.stream.0);
        }
        if flags & IDENTIFIERS != 0 {
            self.put(delivery.identifiers.len() as u64);
            for identifier in &delivery.identifiers {
                self.put(u64::from(*identifier));
            }
        }
        self.len += 1;
        Ok(())
    }

    /// Takes the first delivery, which gets this level.
    pub(crate) fn pop(&mut self, level: u8) -> Option<Delivery> {
        let flags = self.bytes.pop_front()?;
        self.read = self.read.wrapping_add(unzigzag(self.take()));
        let cost = u32::try_from(self.take()).unwrap_or(u32::MAX);
        let expires = (flags & EXPIRES != 0).then(|| Instant::from_micros(self.take()));
        let stream = match flags & STREAM != 0 {
            true => StreamId(self.take()),
            false => StreamId::CONTROL,
        };
        let mut identifiers = Identifiers::new();
        if flags & IDENTIFIERS != 0 {
            for _ in 0..self.take() {
                identifiers.push(u32::try_from(self.take()).unwrap_or(u32::MAX));
            }
        }
        let on_control = self.on_control > 0;
        self.on_control = self.on_control.saturating_sub(1);
        self.len = self.len.saturating_sub(1);
        Some(Delivery {
            content: Content::Stored { cost, expires },
            seq: Some(self.read),
            qos: match flags & QOS_2 != 0 {
                true => QoS::ExactlyOnce,
                false => QoS::AtLeastOnce,
            },
            retain: flags & RETAIN != 0,
            identifiers,
            share: None,
            stream: if on_control {
                StreamId::CONTROL
            } else {
                stream
            },
            level,
            maybe_sent: flags & MAYBE_SENT != 0,
            failed: 0,
            added: None,
        })
    }

    fn put(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push_back(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push_back(number as u8);
    }

    fn take(&mut self) -> u64 {
        let mut number = 0;
        let mut shift = 0;
        while let Some(byte) = self.bytes.pop_front() {
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 || shift > 63 {
                break;
            }
        }
        number
    }
}

/// Small differences of either sign as small numbers.
const fn zigzag(difference: u64) -> u64 {
    let sign = (difference as i64 >> 63) as u64;
    (difference << 1) ^ sign
}

const fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::sync::Arc;
    use alloc::vec::Vec;

    fn stored(seq: u64) -> Delivery {
        Delivery {
            content: Content::Stored {
                cost: 300,
                expires: None,
            },
            seq: Some(seq),
            qos: QoS::AtLeastOnce,
            retain: false,
            identifiers: Identifiers::new(),
            share: None,
            stream: StreamId::CONTROL,
            level: 3,
            maybe_sent: false,
            failed: 0,
            added: None,
        }
    }

    /// `Delivery` has no equality of its own: a message has none.
    fn shown(delivery: &Delivery) -> alloc::string::String {
        alloc::format!("{delivery:?}")
    }

    #[test]
    fn what_goes_in_comes_out_in_order() {
        let mut all = Vec::new();
        for seq in [0, 7, 5, u64::MAX, 1 << 40, (1 << 40) + 256] {
            all.push(stored(seq));
            all.push(Delivery {
                qos: QoS::ExactlyOnce,
                retain: true,
                maybe_sent: true,
                failed: 0,
                added: None,
                stream: StreamId(4_000_000_000),
                identifiers: [1, 268_435_455, 0].into_iter().collect(),
                content: Content::Stored {
                    cost: u32::MAX,
                    expires: Some(Instant::FAR_FUTURE),
                },
                ..stored(seq)
            });
        }
        let mut packed = Packed::default();
        for (index, delivery) in all.iter().enumerate() {
            assert!(packed.push(delivery.clone()).is_ok());
            assert_eq!(packed.len(), index + 1);
        }
        for delivery in &all {
            let popped = packed.pop(3).expect("as many as went in");
            assert_eq!(shown(&popped), shown(delivery));
        }
        assert!(packed.pop(3).is_none() && packed.len() == 0);
    }

    #[test]
    fn only_what_is_in_the_store_and_not_shared_is_taken() {
        let held = Delivery {
            content: Content::Held(Arc::default()),
            ..stored(1)
        };
        let shared = Delivery {
            share: Some(Arc::from("$share/g/t")),
            ..stored(1)
        };
        let volatile = Delivery {
            seq: None,
            ..stored(1)
        };
        for delivery in [held, shared, volatile] {
            assert!(!Packed::takes(&delivery));
            assert!(Packed::default().push(delivery).is_err());
        }
        assert!(Packed::takes(&stored(1)));
    }

    #[test]
    fn streams_of_an_earlier_connection_are_forgotten_and_later_ones_kept() {
        let on = |stream| Delivery {
            stream: StreamId(stream),
            ..stored(1)
        };
        let mut packed = Packed::default();
        for stream in [4, 8] {
            assert!(packed.push(on(stream)).is_ok());
        }
        packed.forget_streams();
        assert!(packed.push(on(12)).is_ok());
        let mut streams = Vec::new();
        while let Some(delivery) = packed.pop(0) {
            streams.push(delivery.stream.0);
        }
        assert_eq!(streams, [0, 0, 12]);
    }

    #[test]
    fn a_place_takes_a_few_bytes() {
        const PLACES: u64 = 1000;
        let mut packed = Packed::default();
        // Sequence numbers of two shards in turn.
        for number in 0..PLACES {
            assert!(packed.push(stored(number * 256 + number % 2)).is_ok());
        }
        assert!(packed.bytes.len() <= 6 * 1000, "{}", packed.bytes.len());
    }
}
