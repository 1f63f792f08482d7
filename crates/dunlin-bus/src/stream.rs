//! Batches as a stream of bytes, each behind its length: cut where a message is full, and put
//! together again. A length is never cut.

use std::collections::VecDeque;

use bytes::{Buf as _, BufMut as _, Bytes};

use crate::flow::cost;
use crate::limits::{BATCH_BYTES_MAX, LINK_BYTES_MAX};

/// Bytes of a length.
const LENGTH_BYTES: usize = 4;

/// Batches on their way out.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    queue: VecDeque<Bytes>,
    /// Bytes of the first that are gone; `None`: not even its length is.
    begun: Option<usize>,
    /// Cost of all that were begun.
    sent: u64,
    /// Cost of what the peer's consumers have taken.
    taken: u64,
}

impl Outgoing {
    pub(crate) fn push(&mut self, batch: Bytes) {
        self.queue.push_back(batch);
    }

    /// Whether there is something that may go now.
    pub(crate) fn may_send(&self) -> bool {
        !self.queue.is_empty() && (self.begun.is_some() || self.has_room())
    }

    fn has_room(&self) -> bool {
        self.sent - self.taken < LINK_BYTES_MAX as u64
    }

    /// Appends what may go, at most so many bytes; returns how many batches ended.
    pub(crate) fn fill(&mut self, out: &mut Vec<u8>, mut room: usize) -> u64 {
        let mut ended = 0;
        while self.may_send() {
            let Some(batch) = self.queue.front() else {
                break;
            };
            let done = match self.begun {
                Some(done) => done,
                // A length comes with a byte at least, unless there is none.
                None if room <= LENGTH_BYTES => break,
                None => {
                    out.put_u32(u32::try_from(batch.len()).unwrap_or(u32::MAX));
                    room -= LENGTH_BYTES;
                    self.sent += cost(batch.len());
                    0
                }
            };
            let rest = &batch[done..];
            let part = &rest[..rest.len().min(room)];
            out.put_slice(part);
            room -= part.len();
            if part.len() < rest.len() {
                self.begun = Some(done + part.len());
                break;
            }
            self.begun = None;
            self.queue.pop_front();
            ended += 1;
        }
        ended
    }

    /// About how many bytes [`Self::fill`] appends, given the same room.
    pub(crate) fn len_hint(&self, room: usize) -> usize {
        let mut len = 0;
        for batch in &self.queue {
            len += LENGTH_BYTES + batch.len();
            if len >= room {
                return room;
            }
        }
        len
    }

    /// The peer says that its consumers have taken so much in all; gives how much of it is
    /// new. `None`: that cannot be.
    pub(crate) fn note_taken(&mut self, taken: u64) -> Option<u64> {
        if taken > self.sent {
            return None;
        }
        let news = taken.checked_sub(self.taken)?;
        self.taken = taken;
        Some(news)
    }
}

/// What came does not keep to the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Batches on their way in.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    /// A batch of which a part is missing, and its length.
    partial: Option<(Vec<u8>, usize)>,
}

impl Incoming {
    /// Gives the batches that end in the bytes of the next message to `give`.
    pub(crate) fn take(
        &mut self,
        mut bytes: Bytes,
        mut give: impl FnMut(Bytes),
    ) -> Result<(), Malformed> {
        if let Some((mut batch, len)) = self.partial.take() {
            let missing = len - batch.len();
            batch.extend_from_slice(&bytes.split_to(missing.min(bytes.len())));
            if batch.len() < len {
                self.partial = Some((batch, len));
                return Ok(());
            }
            give(Bytes::from(batch));
        }
        while !bytes.is_empty() {
            if bytes.len() < LENGTH_BYTES {
                return Err(Malformed);
            }
            let len = bytes.get_u32() as usize;
            if len > BATCH_BYTES_MAX {
                return Err(Malformed);
            }
            if len > bytes.len() {
                // Memory only for what came.
                self.partial = Some((bytes.to_vec(), len));
                return Ok(());
            }
            give(bytes.split_to(len));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_base::Random;

    #[test]
    fn batches_of_all_lengths_go_through_messages_of_all_lengths() {
        for seed in 0..500 {
            let mut random = Random::new(seed);
            let batches: Vec<Bytes> = (0..random.between(1, 20))
                .map(|n| Bytes::from(vec![n as u8; random.below(40) as usize]))
                .collect();
            let (mut out, mut into, mut found) =
                (Outgoing::default(), Incoming::default(), Vec::new());
            let mut waiting = batches.iter();
            let mut ended = 0;
            loop {
                let more = waiting.by_ref().take(random.below(4) as usize);
                more.for_each(|batch| out.push(batch.clone()));
                if waiting.len() == 0 && !out.may_send() {
                    break;
                }
                let room = random.between(5, 30) as usize;
                let mut message = Vec::new();
                ended += out.fill(&mut message, room);
                assert!(message.len() <= room, "{seed}");
                let taken = into.take(Bytes::from(message), |batch| found.push(batch));
                assert_eq!(taken, Ok(()), "{seed}");
                assert_eq!(found.len() as u64, ended, "{seed}");
            }
            assert_eq!(found, batches, "{seed}");
        }
    }

    #[test]
    fn no_more_goes_than_the_peer_may_have() {
        let mut out = Outgoing::default();
        let mut message = Vec::new();
        for _ in 0..10 {
            out.push(Bytes::from(vec![0; LINK_BYTES_MAX / 4]));
        }
        assert_eq!(out.fill(&mut message, usize::MAX), 4);
        assert!(!out.may_send());
        let one = cost(LINK_BYTES_MAX / 4);
        assert_eq!(out.note_taken(4 * one + 1), None);
        assert_eq!(out.note_taken(2 * one), Some(2 * one));
        assert_eq!(out.note_taken(one), None, "less than before");
        assert_eq!(out.fill(&mut message, usize::MAX), 2);
        assert!(!out.may_send());
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        let take = |bytes: &[u8]| {
            let mut found = 0;
            let taken = Incoming::default().take(Bytes::copy_from_slice(bytes), |_| found += 1);
            (taken, found)
        };
        assert_eq!(take(&[0, 0, 0]), (Err(Malformed), 0));
        assert_eq!(take(&[0, 0, 0, 0, 0]), (Err(Malformed), 1));
        assert_eq!(take(&[0xff; 8]), (Err(Malformed), 0));
        assert_eq!(take(&[0, 0, 0, 0]), (Ok(()), 1));
        assert_eq!(take(&[0, 0, 0, 2, 1]), (Ok(()), 0));
    }
}
