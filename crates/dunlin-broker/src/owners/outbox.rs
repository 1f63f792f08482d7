//! What a shard wants done, in order, until it is taken.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use bytes::BytesMut;
use dunlin_base::transport::{NetCommand, NetCommandKind};
use dunlin_base::{ConnId, ShardId};

use crate::control::values::Reply;
use crate::io::{BusMessage, Event, Output};
use crate::owners::missing::Missing;

/// Empty buffers kept for messages to other shards.
const SPARE_BUFFERS_MAX: usize = 16;

/// Payloads from here on are shared instead of copied.
const PAYLOAD_BYTES_MAX: usize = 4096;

/// Bytes of messages after which a buffer is full.
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// Answers after which they are sent.
const ANSWERS_MAX: usize = 4096;

/// Outputs that wait to be taken. Bounded by what one call of the shard adds,
/// since its owner takes everything after each batch.
#[derive(Debug)]
pub(crate) struct Outbox {
    shard: ShardId,
    queue: VecDeque<Output>,
    /// What is gathered for each of the others, in order.
    gathered: Vec<Gathered>,
    spare: Vec<Vec<u8>>,
    spare_answers: Vec<Vec<u64>>,
    pub(crate) missing: Missing,
}

/// Messages and answers to one shard, in front of which everything for it is
/// in the queue already.
#[derive(Debug)]
struct Gathered {
    to: ShardId,
    messages: Vec<u8>,
    answers: Vec<u64>,
}

impl Gathered {
    const fn new(to: ShardId) -> Self {
        Self {
            to,
            messages: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// Queues what was gathered.
    fn flush(&mut self, queue: &mut VecDeque<Output>) {
        let to = self.to;
        if !self.messages.is_empty() {
            let message = BusMessage::Messages(core::mem::take(&mut self.messages));
            queue.push_back(Output::Bus { to, message });
        }
        if !self.answers.is_empty() {
            let message = BusMessage::Received(core::mem::take(&mut self.answers));
            queue.push_back(Output::Bus { to, message });
        }
    }
}

impl Outbox {
    /// `others`: the shards that are there, in order.
    pub(crate) fn new(shard: ShardId, others: impl Iterator<Item = ShardId>) -> Self {
        Self {
            shard,
            queue: VecDeque::new(),
            gathered: others.map(Gathered::new).collect(),
            spare: Vec::new(),
            spare_answers: Vec::new(),
            missing: Missing::default(),
        }
    }

    /// Something is not there that must be: a bug, which is counted and logged.
    pub(crate) fn note_missing(&self) {
        self.missing.note();
    }

    /// As [`Outbox::note_missing`], if it is so.
    pub(crate) fn checked<T>(&self, found: Option<T>) -> Option<T> {
        self.missing.checked(found)
    }

    /// A shard is there.
    pub(crate) fn join(&mut self, shard: ShardId) {
        if let Err(at) = self.place(shard) {
            self.gathered.insert(at, Gathered::new(shard));
        }
    }

    /// A shard is gone: nothing more is for it, and what is still here is for the one
    /// that was there.
    pub(crate) fn leave(&mut self, shard: ShardId) {
        if let Ok(at) = self.place(shard) {
            self.gathered.remove(at);
        }
        self.queue
            .retain(|output| !matches!(output, Output::Bus { to, .. } if *to == shard));
    }

    fn place(&self, shard: ShardId) -> Result<usize, usize> {
        self.gathered.binary_search_by_key(&shard, |it| it.to)
    }

    pub(crate) fn push(&mut self, output: Output) {
        self.queue.push_back(output);
    }

    /// The answer to an operator.
    pub(crate) fn reply(&mut self, number: u64, reply: Reply) {
        self.queue.push_back(Output::Control { number, reply });
    }

    /// Something for the log.
    pub(crate) fn event(&mut self, event: Event) {
        self.queue.push_back(Output::Event(event));
    }

    /// Something for another shard, if it is there.
    pub(crate) fn bus(&mut self, to: ShardId, message: BusMessage) {
        if self.end_gathering(to) {
            self.queue.push_back(Output::Bus { to, message });
        }
    }

    /// A message for the plain subscriptions of another shard, which `put` adds to
    /// others. `false` if it cannot be gathered with them.
    pub(crate) fn message(
        &mut self,
        to: ShardId,
        payload_bytes: usize,
        put: impl FnOnce(&mut Vec<u8>) -> bool,
    ) -> bool {
        if payload_bytes > PAYLOAD_BYTES_MAX {
            return false;
        }
        let Ok(at) = self.place(to) else {
            return false;
        };
        let Some(gathered) = self.gathered.get_mut(at) else {
            return false;
        };
        if gathered.messages.is_empty()
            && let Some(spare) = self.spare.pop()
        {
            gathered.messages = spare;
        }
        let is_put = put(&mut gathered.messages);
        if gathered.messages.len() >= BUFFER_BYTES_MAX {
            self.end_gathering(to);
        }
        is_put
    }

    /// The answer to a message of another shard for which nothing has to be
    /// stored here.
    pub(crate) fn answer(&mut self, to: ShardId, token: u64) {
        let Ok(at) = self.place(to) else {
            return;
        };
        let Some(gathered) = self.gathered.get_mut(at) else {
            return;
        };
        if gathered.answers.is_empty()
            && let Some(spare) = self.spare_answers.pop()
        {
            gathered.answers = spare;
        }
        gathered.answers.push(token);
        if gathered.answers.len() >= ANSWERS_MAX {
            self.end_gathering(to);
        }
    }

    /// Takes back a buffer of another shard for its room.
    pub(crate) fn recycle(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS_MAX {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// As [`Outbox::recycle`], of answers.
    pub(crate) fn recycle_answers(&mut self, mut answers: Vec<u64>) {
        if self.spare_answers.len() < SPARE_BUFFERS_MAX {
            answers.clear();
            self.spare_answers.push(answers);
        }
    }

    /// A command for the transport, wherever its socket is.
    pub(crate) fn command(&mut self, conn: ConnId, kind: NetCommandKind) {
        let owner = conn.shard();
        let command = NetCommand::new(conn, kind);
        if owner == self.shard {
            self.queue.push_back(Output::Net(command));
        } else {
            self.bus(owner, BusMessage::Command(command));
        }
    }

    /// Adds bytes of a connection that is given away but still here: they came
    /// with those that its move carries, as another TLS record or WebSocket
    /// frame.
    pub(crate) fn add_unread(&mut self, of: ConnId, data: &[u8]) {
        let unread = self.queue.iter_mut().rev().find_map(|output| match output {
            Output::Move { conn, unread, .. } if *conn == of => Some(unread),
            _ => None,
        });
        if let Some(unread) = unread {
            // The only handle, so that nothing is copied but the new bytes.
            let mut bytes = BytesMut::from(core::mem::take(unread));
            bytes.extend_from_slice(data);
            *unread = bytes.freeze();
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Output> {
        if self.queue.is_empty() {
            for gathered in &mut self.gathered {
                gathered.flush(&mut self.queue);
            }
        }
        self.queue.pop_front()
    }

    pub(crate) fn shrink(&mut self) {
        self.queue.shrink_to_fit();
        self.spare = Vec::new();
        self.spare_answers = Vec::new();
    }

    /// Queues what was gathered for a shard, behind everything else for it; `false`: it
    /// is not there.
    fn end_gathering(&mut self, to: ShardId) -> bool {
        let Ok(at) = self.place(to) else {
            return false;
        };
        if let Some(gathered) = self.gathered.get_mut(at) {
            gathered.flush(&mut self.queue);
        }
        true
    }
}
