//! Messages that are stored together: each with its rows in one buffer, and with what
//! became of it. Knows no client: what is acknowledged is a type of the caller.

use std::sync::Arc;

use bytes::Bytes;

use crate::guard::Guard;
use crate::input::Input;
use crate::refusal::Refusal;
use crate::target::{Encode, Rows};

/// When a batch is full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Most messages.
    pub(crate) messages: usize,
    /// Most bytes of rows, and most bytes of payloads.
    pub(crate) bytes: usize,
}

/// A message that can be put into a batch.
pub(crate) trait Item {
    /// As expressions see it.
    fn input(&self, time: i64) -> Input<'_>;
}

struct Entry<I> {
    item: I,
    time: i64,
    /// Where its rows end in the buffer.
    end: usize,
    rows: usize,
    refused: Option<Refusal>,
}

/// A batch.
pub(crate) struct Batch<I> {
    encoder: Arc<dyn Encode>,
    guard: Guard,
    entries: Vec<Entry<I>>,
    buffer: Vec<u8>,
    rows: Bytes,
    payload_bytes: usize,
}

impl<I: Item> Batch<I> {
    /// An empty one.
    pub(crate) fn new(encoder: Arc<dyn Encode>, guard: Guard) -> Self {
        Self {
            encoder,
            guard,
            entries: Vec::new(),
            buffer: Vec::new(),
            rows: Bytes::new(),
            payload_bytes: 0,
        }
    }

    /// Takes a message in; `time`: when it was taken.
    pub(crate) fn add(&mut self, item: I, time: i64) {
        let input = item.input(time);
        self.payload_bytes += input.topic.len() + input.payload.len();
        let (rows, refused) = self.guard.encode(&*self.encoder, &input, &mut self.buffer);
        self.entries.push(Entry {
            item,
            time,
            end: self.buffer.len(),
            rows,
            refused,
        });
    }

    /// Whether it takes no other message.
    pub(crate) fn is_full(&self, limits: &Limits) -> bool {
        self.entries.len() >= limits.messages
            || self.buffer.len() >= limits.bytes
            || self.payload_bytes >= limits.bytes
    }

    /// How many messages are in it.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Makes its messages from this one on ready to be stored by a target that wants rows
    /// of this encoder. Those before are done: what became of them stays.
    pub(crate) fn seal(&mut self, encoder: &Arc<dyn Encode>, from: usize) {
        if !Arc::ptr_eq(&self.encoder, encoder) {
            self.encoder = Arc::clone(encoder);
            self.buffer.clear();
            self.rows = Bytes::new();
            for (index, entry) in self.entries.iter_mut().enumerate() {
                if index < from {
                    entry.rows = 0;
                } else {
                    let input = entry.item.input(entry.time);
                    (entry.rows, entry.refused) =
                        self.guard.encode(&**encoder, &input, &mut self.buffer);
                }
                entry.end = self.buffer.len();
            }
        }
        if !self.buffer.is_empty() {
            self.rows = core::mem::take(&mut self.buffer).into();
        }
    }

    /// The rows of some of its messages.
    pub(crate) fn rows(&self, from: usize, to: usize) -> Rows {
        let end_of = |before: usize| {
            let entry = before.checked_sub(1).and_then(|at| self.entries.get(at));
            entry.map_or(0, |entry| entry.end)
        };
        let entries = self.entries.get(from..to).unwrap_or_default();
        Rows {
            bytes: self.rows.slice(end_of(from)..end_of(to)),
            count: entries.iter().map(|entry| entry.rows).sum(),
        }
    }

    /// The target refuses a message.
    pub(crate) fn refuse(&mut self, index: usize, refusal: Refusal) {
        if let Some(entry) = self.entries.get_mut(index) {
            entry.refused = Some(refusal);
            entry.rows = 0;
        }
    }

    /// The messages that were refused, with the time at which they were taken.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (&I, i64, &Refusal)> {
        self.entries.iter().filter_map(|entry| {
            let refusal = entry.refused.as_ref()?;
            Some((&entry.item, entry.time, refusal))
        })
    }

    /// The messages, in the order in which they came.
    pub(crate) fn into_items(self) -> impl Iterator<Item = I> {
        self.entries.into_iter().map(|entry| entry.item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Cause;

    struct Text(&'static str);

    impl Item for Text {
        fn input(&self, time: i64) -> Input<'_> {
            Input {
                topic: "t",
                payload: self.0.as_bytes(),
                time,
                qos: 1,
                retain: false,
                properties: None,
            }
        }
    }

    /// A row for each byte; `!` is refused after some of them.
    struct Letters(u8);

    impl Encode for Letters {
        fn encode(&self, input: &Input<'_>, out: &mut Vec<u8>) -> Result<usize, Refusal> {
            for byte in input.payload {
                match byte {
                    b'!' => return Err(Refusal::new(Cause::Value, "!")),
                    byte => out.push(byte + self.0),
                }
            }
            Ok(input.payload.len())
        }
    }

    fn batch(payloads: &[&'static str]) -> (Batch<Text>, Arc<dyn Encode>) {
        let encoder: Arc<dyn Encode> = Arc::new(Letters(0));
        let mut batch = Batch::new(Arc::clone(&encoder), Guard::default());
        for payload in payloads {
            batch.add(Text(payload), 0);
        }
        (batch, encoder)
    }

    #[test]
    fn rows_belong_to_their_message() {
        let (mut batch, encoder) = batch(&["ab", "", "c!", "d"]);
        batch.seal(&encoder, 0);
        assert_eq!(batch.len(), 4);
        for (from, to, want) in [(0, 4, "abd"), (0, 1, "ab"), (1, 3, ""), (3, 4, "d")] {
            let rows = batch.rows(from, to);
            assert_eq!(&rows.bytes[..], want.as_bytes(), "{from}..{to}");
            assert_eq!(rows.count, want.len());
        }
        batch.refuse(3, Refusal::new(Cause::Target, "d"));
        let refused: Vec<_> = batch
            .refused()
            .map(|(item, _, why)| (item.0, why.cause))
            .collect();
        assert_eq!(refused, [("c!", Cause::Value), ("d", Cause::Target)]);
        assert_eq!(batch.rows(0, 4).count, 2);
        let items: Vec<_> = batch.into_items().map(|item| item.0).collect();
        assert_eq!(items, ["ab", "", "c!", "d"]);
    }

    #[test]
    fn another_encoder_writes_the_rows_again() {
        let (mut batch, first) = batch(&["ab", "c"]);
        batch.seal(&first, 0);
        let second: Arc<dyn Encode> = Arc::new(Letters(1));
        batch.seal(&second, 0);
        assert_eq!(&batch.rows(0, 2).bytes[..], b"bcd");
        batch.seal(&second, 0);
        assert_eq!(&batch.rows(1, 2).bytes[..], b"d");
    }

    #[test]
    fn what_is_done_stays_done_with_another_encoder() {
        let (mut batch, first) = batch(&["a", "b", "!", "c", "d"]);
        batch.seal(&first, 0);
        batch.refuse(1, Refusal::new(Cause::Target, "b"));
        // It takes what the first refuses.
        struct All;
        impl Encode for All {
            fn encode(&self, input: &Input<'_>, out: &mut Vec<u8>) -> Result<usize, Refusal> {
                out.extend_from_slice(input.payload);
                Ok(1)
            }
        }
        let second: Arc<dyn Encode> = Arc::new(All);
        batch.seal(&second, 3);
        assert_eq!(&batch.rows(3, 5).bytes[..], b"cd");
        let refused: Vec<_> = batch.refused().map(|(item, ..)| item.0).collect();
        assert_eq!(refused, ["b", "!"]);
    }

    #[test]
    fn limits_close_a_batch() {
        let limits = |messages, bytes| Limits { messages, bytes };
        let (batch, _) = batch(&["abcd", "e"]);
        assert!(!batch.is_full(&limits(3, 100)));
        assert!(batch.is_full(&limits(2, 100)), "messages");
        assert!(batch.is_full(&limits(3, 7)), "topics and payloads");
    }
}
