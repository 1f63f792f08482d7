//! A message being routed: as its publisher wrote it as long as that is enough,
//! a shared [`Message`] from the moment a queue or the store keeps it.

use alloc::boxed::Box;
use alloc::sync::Arc;

use dunlin_base::{Instant, Message, QoS, ShardId};
use dunlin_store::StoreOp;

use crate::config::Config;
use crate::ids::ConnIdx;
use crate::messages::written::Written;
use crate::owners::outbox::Outbox;
use crate::translate;

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    /// To who has subscribed to its topic.
    Topic,
    /// Its topic is the address of a queue, and it goes nowhere else.
    Queue,
    /// To where it waits for its time.
    Later,
}

/// A message on its way through the router.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    written: Written<'a>,
    now: Instant,
    message: Option<Arc<Message>>,
    /// It in terms of the other protocol.
    translated: Option<Arc<Message>>,
    level: Option<u8>,
    /// Connection that the message came on.
    publisher: Option<ConnIdx>,
    lossy: bool,
    goal: Goal,
    /// Its publisher waits to hear what became of it, also with QoS 0.
    answered: bool,
    /// It is part of a transaction.
    transacted: bool,
    /// What is stored with it for its publisher.
    receipt: Option<Box<StoreOp>>,
    /// The number under which this edge has it from a home.
    borrowed: Option<u64>,
}

impl<'a> Source<'a> {
    /// As its publisher sent it.
    pub(crate) const fn new(
        written: Written<'a>,
        publisher: Option<ConnIdx>,
        now: Instant,
    ) -> Self {
        Self {
            written,
            now,
            message: None,
            translated: None,
            level: None,
            publisher,
            lossy: false,
            goal: Goal::Topic,
            answered: false,
            transacted: false,
            receipt: None,
            borrowed: None,
        }
    }

    /// From a message that is held.
    pub(crate) fn of(message: &'a Arc<Message>, now: Instant) -> Self {
        Self {
            message: Some(Arc::clone(message)),
            ..Self::new(Written::Held(message), None, now)
        }
    }

    /// As `self`, from a connection.
    pub(crate) fn by(mut self, publisher: ConnIdx) -> Self {
        self.publisher = Some(publisher);
        self
    }

    /// As `self`, and a receiver without room goes without: there is no publisher
    /// to refuse it to.
    pub(crate) fn lossy(self) -> Self {
        let lossy = true;
        Self { lossy, ..self }
    }

    /// As `self`, to the queue whose address is its topic.
    pub(crate) fn for_queue(self) -> Self {
        let goal = Goal::Queue;
        Self { goal, ..self }
    }

    /// As `self`, to where it waits for its time.
    pub(crate) fn for_later(self) -> Self {
        let goal = Goal::Later;
        Self { goal, ..self }
    }

    /// Something is stored with it for its publisher.
    pub(crate) fn set_receipt(&mut self, receipt: Option<StoreOp>) {
        self.receipt = receipt.map(Box::new);
    }

    /// This edge has it from a home, under this number.
    pub(crate) const fn set_borrowed(&mut self, number: u64) {
        self.borrowed = Some(number);
    }

    /// As [`Source::set_borrowed`] has it, for who has the message then, if there is room
    /// for it.
    pub(crate) fn take_borrowed(&mut self, room: bool) -> Option<u64> {
        self.borrowed.take_if(|_| room)
    }

    /// Takes what is stored with it for its publisher.
    pub(crate) fn take_receipt(&mut self) -> Option<StoreOp> {
        self.receipt.take().map(|receipt| *receipt)
    }

    /// Whether it goes to one queue.
    pub(crate) const fn is_to_queue(&self) -> bool {
        matches!(self.goal, Goal::Queue)
    }

    /// Whether it waits for its time first.
    pub(crate) const fn is_for_later(&self) -> bool {
        matches!(self.goal, Goal::Later)
    }

    /// Whether it goes to who has subscribed to its topic.
    pub(crate) const fn is_to_topic(&self) -> bool {
        matches!(self.goal, Goal::Topic)
    }

    /// As `self`, and its publisher waits to hear what became of it.
    pub(crate) fn answered(self) -> Self {
        let answered = true;
        Self { answered, ..self }
    }

    /// It is known when it is stored, though its publisher waits for no answer and
    /// cannot be refused.
    pub(crate) const fn follow(&mut self) {
        (self.answered, self.lossy) = (true, true);
    }

    /// As `self`, and nothing of it is seen before it is stored: its publisher waits,
    /// and does not know yet whether it holds.
    pub(crate) fn transacted(self) -> Self {
        Self {
            transacted: true,
            answered: true,
            ..self
        }
    }

    /// Whether it is part of a transaction.
    pub(crate) const fn is_transacted(&self) -> bool {
        self.transacted
    }

    /// Whether its publisher waits to hear what became of it.
    pub(crate) fn is_answered(&self) -> bool {
        self.answered || self.qos() != QoS::AtMostOnce
    }

    /// Another message, on the same way.
    pub(crate) fn with<'b>(&self, message: &'b Arc<Message>) -> Source<'b> {
        Source {
            publisher: self.publisher,
            lossy: self.lossy,
            goal: self.goal,
            answered: self.answered,
            transacted: self.transacted,
            ..Source::of(message, self.now)
        }
    }

    /// Whether a receiver without room goes without.
    pub(crate) const fn is_lossy(&self) -> bool {
        self.lossy
    }

    /// Whether the message exists as one that can be kept.
    pub(crate) const fn is_held(&self) -> bool {
        self.message.is_some()
    }

    /// The connection that the message came on.
    pub(crate) const fn publisher(&self) -> Option<ConnIdx> {
        self.publisher
    }

    pub(crate) fn topic(&self) -> &'a str {
        self.written.topic()
    }

    pub(crate) fn payload(&self) -> &'a [u8] {
        self.written.payload()
    }

    pub(crate) fn qos(&self) -> QoS {
        self.written.qos()
    }

    pub(crate) fn retain(&self) -> bool {
        self.written.retain()
    }

    /// Its level among priorities.
    pub(crate) fn level(&mut self, config: &Config) -> u8 {
        let topic = self.written.topic();
        *self.level.get_or_insert_with(|| config.level(topic))
    }

    /// What the message costs to keep, about.
    pub(crate) fn cost(&self) -> usize {
        match &self.message {
            Some(message) => message.cost(),
            None => Message::default().cost() + self.topic().len() + self.payload().len(),
        }
    }

    /// The message as something that can be kept.
    pub(crate) fn message(&mut self) -> Arc<Message> {
        let (written, now) = (&self.written, self.now);
        Arc::clone(
            self.message
                .get_or_insert_with(|| Arc::new(written.message(now))),
        )
    }

    /// The message for receivers of another protocol, if it was not written in
    /// theirs.
    pub(crate) fn translated(&mut self) -> Option<Arc<Message>> {
        if self.translated.is_none() {
            self.translated = translate::for_mqtt(self.message.as_ref()?);
        }
        self.translated.clone()
    }

    /// The message in the form that its publisher wrote it in.
    pub(crate) const fn written_mut(&mut self) -> &mut Written<'a> {
        &mut self.written
    }

    /// Adds it to the messages for another shard, in the form that its publisher
    /// wrote it in; `false`: it has none, or is held already.
    pub(crate) fn gather(&self, outbox: &mut Outbox, to: ShardId, token: Option<u64>) -> bool {
        !self.is_held() && self.written.gather(outbox, to, token)
    }

    pub(crate) const fn now(&self) -> Instant {
        self.now
    }
}
