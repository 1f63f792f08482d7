//! What a shard keeps of a connection that speaks AMQP, and of its links: each
//! link is a session of the shard, with a queue or with publishes of its own.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU64;
use core::ops::{Deref, DerefMut};

use dunlin_amqp::filter::Filters;
use dunlin_amqp::message::{Attempt, to_amqp_parts};
use dunlin_amqp::{Body, Connection, Delivery, LinkId, SendError, Sending, SessionId, State};
use dunlin_base::transport::{NetCommandKind, Peer};
use dunlin_base::{ConnId, Form, Instant, Message, ShardId, StreamId, Text};
use dunlin_queue::{Consumer, Queue, Window};
use dunlin_sasl::Mechanism;
use dunlin_sasl::server::{Exchange, Question};

use crate::amqp::carrier::Carried;
use crate::amqp::coordinator::{Coordinator, TransactionId};
use crate::amqp::pace::Pace;
use crate::amqp::service::Service;
use crate::amqp::terminus::{Keep, Scope, Terminus};
use crate::amqp::tokens::Tokens;
use crate::amqp::turns::Waiting;
use crate::ids::{SessionIdx, SessionRef};
use crate::owners::common::{ConnCore, Identity, SessionCore, Standing, Who};
use crate::owners::kind::{ConnKind, Proof, SessionKind};
use crate::owners::leaving::LeavingFilters;
use crate::owners::node::binding_bytes;
use crate::owners::subscribers::Subscribed;
use crate::queues::calls::{Expiring, Place};
use crate::queues::orders::View;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AmqpPhase {
    /// The client has not opened.
    Opening,
    /// The authenticator was asked.
    Authenticating,
    /// An earlier stream of its QUIC connection has to prove who the client is.
    Waiting,
    /// It is authenticated by SASL and has not opened.
    Authenticated(Mechanism),
    /// Both sides have opened.
    Open,
    /// Closing: what still arrives is ignored.
    Closing,
}

/// A connection that speaks AMQP.
#[derive(Debug)]
pub(crate) struct AmqpConn {
    core: ConnCore,
    pub(crate) engine: Connection,
    pub(crate) phase: AmqpPhase,
    pub(crate) who: Option<Box<Who>>,
    pub(crate) identity: Identity,
    /// By what it knows its own messages again.
    pub(crate) sender: Option<NonZeroU64>,
    /// SASL, while it is under way.
    pub(crate) sasl: Option<Box<Sasl>>,
    /// Tokens that the client sets after that.
    pub(crate) tokens: Option<Box<Tokens>>,
    /// The stream that it is, if its transport carries several connections.
    pub(crate) carried: Option<Carried>,
    pub(crate) links: BTreeMap<LinkId, SessionIdx>,
    /// The link that the client asks for now takes the place of another.
    pub(crate) steals: bool,
    pub(crate) waiting: Waiting,
    pub(crate) lingering: Vec<Lingering>,
    /// The coordinator's link of each transaction.
    pub(crate) transactions: BTreeMap<TransactionId, SessionIdx>,
    /// Bytes given to the transport that have not left it.
    pub(crate) given: usize,
    /// Bytes of messages given to the engine since the last flush.
    pub(crate) written: usize,
    /// Room for what is written in front of a message that goes as it came.
    pub(crate) head: Vec<u8>,
}

/// Most of that room which is kept: a header takes less.
const HEAD_BYTES_MAX: usize = 64;

/// Deliveries of a client that are not settled and do not count as unfinished.
const UNSETTLED_FREE: usize = 1024;

/// What each of the others takes.
const UNSETTLED_BYTES: usize = 160;

/// Messages without an outcome for which a link keeps memory when it has none.
pub(crate) const OPEN_KEPT_MAX: usize = 16;

/// An exchange of SASL.
#[derive(Debug)]
pub(crate) struct Sasl {
    pub(crate) exchange: Exchange,
    /// What is not known yet.
    pub(crate) question: Option<Question>,
}

impl AmqpConn {
    pub(crate) fn new(
        id: ConnId,
        peer: Peer,
        engine: Connection,
        carried: Option<Carried>,
    ) -> Self {
        Self {
            core: ConnCore::new(id, peer),
            engine,
            phase: AmqpPhase::Opening,
            who: None,
            identity: Identity::default(),
            sender: None,
            sasl: None,
            tokens: None,
            carried,
            links: BTreeMap::new(),
            steals: false,
            waiting: Waiting::default(),
            lingering: Vec::new(),
            transactions: BTreeMap::new(),
            given: 0,
            written: 0,
            head: Vec::new(),
        }
    }
}

impl AmqpConn {
    /// A link has gone; its session comes out.
    pub(crate) fn remove_link(&mut self, link: LinkId) -> Option<SessionIdx> {
        self.waiting.remove(link);
        self.links.remove(&link)
    }

    /// Notes that a link waits, if its client gave credit for which its session has
    /// no room.
    pub(crate) fn note_window(&mut self, link: LinkId) {
        if self.engine.credit(link) == 0 && self.engine.link_credit(link) > 0 {
            self.waiting.for_window(link);
        }
    }

    /// Sends a message on a link. One that cannot be written is too large.
    pub(crate) fn send(
        &mut self,
        link: LinkId,
        sending: &Sending<'_>,
        message: &Message,
        now: Instant,
        attempt: Attempt,
    ) -> Result<(), SendError> {
        self.head.clear();
        let extra = message.extra.as_ref();
        let encoded = extra.and_then(|extra| extra.encoded.as_ref());
        if encoded.is_none_or(|encoded| encoded.form != Form::Amqp) {
            self.head.reserve(128 + message.payload.len());
        }
        let body = to_amqp_parts(message, now, attempt, &mut self.head);
        let mut body = body.map_err(|_| SendError::MessageSize)?;
        if self.head.len() > HEAD_BYTES_MAX && body.is_empty() {
            body = core::mem::take(&mut self.head).into();
        }
        let len = self.head.len() + body.len();
        let sent = self.engine.send(link, sending, &self.head, &body);
        self.head.shrink_to(HEAD_BYTES_MAX);
        self.written += if sent.is_ok() { len } else { 0 };
        sent.map(|_| ())
    }

    /// Bytes on their way out.
    pub(crate) const fn backlog(&self) -> usize {
        self.given + self.written
    }

    /// Its transport, and the stream there.
    pub(crate) fn place(&self) -> (ConnId, StreamId) {
        let own = (self.id, StreamId::CONTROL);
        self.carried.map_or(own, |it| (it.conn, it.stream))
    }
}

impl ConnKind for AmqpConn {
    fn links(&self) -> Option<Vec<SessionIdx>> {
        let is_open = self.phase == AmqpPhase::Open;
        is_open.then(|| self.links.values().copied().collect())
    }

    fn backlog(&self) -> usize {
        Self::backlog(self)
    }

    fn unfinished(&self) -> usize {
        let unsettled = self.engine.unsettled_received(None);
        let unsettled = unsettled.saturating_sub(UNSETTLED_FREE);
        let tokens = self.tokens.as_ref().map_or(0, |tokens| tokens.bytes());
        self.engine.unfinished_bytes() + unsettled * UNSETTLED_BYTES + tokens
    }

    fn is_open(&self) -> bool {
        !matches!(self.phase, AmqpPhase::Authenticating | AmqpPhase::Waiting)
    }

    fn is_carried(&self) -> bool {
        self.carried.is_some()
    }

    fn reading(&self, paused: bool) -> (ConnId, NetCommandKind) {
        match self.carried {
            Some(at) => {
                let stream = at.stream;
                (at.conn, NetCommandKind::PauseStream { stream, paused })
            }
            None => (self.id, NetCommandKind::PauseReading { paused }),
        }
    }

    fn user(&self) -> Option<Text> {
        self.identity.user.clone()
    }

    fn who(&self) -> Option<&Who> {
        self.who.as_deref()
    }

    fn proof(&self) -> Proof<'_> {
        let listed = self.identity.standing == Standing::Listed;
        let user = self.identity.user.as_ref().filter(|_| listed);
        // An exchange that has begun is of a user that it claims to be.
        let claimed = self.sasl.as_ref().and(self.who.as_ref());
        let claimed = claimed.and_then(|who| who.user.as_ref());
        user.or(claimed).map_or(Proof::Other, Proof::Password)
    }
}

impl Deref for AmqpConn {
    type Target = ConnCore;

    fn deref(&self) -> &ConnCore {
        &self.core
    }
}

impl DerefMut for AmqpConn {
    fn deref_mut(&mut self) -> &mut ConnCore {
        &mut self.core
    }
}

/// A publish of a client that has no outcome yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(crate) delivery: Delivery,
    /// The client settles first.
    pub(crate) second: bool,
}

impl Open {
    /// A delivery that is not a publish.
    pub(crate) const fn of(delivery: Delivery) -> Self {
        Self {
            delivery,
            second: false,
        }
    }
}

/// Which way a link goes.
#[derive(Debug)]
pub(crate) enum End {
    /// The client sends.
    Incoming {
        /// The topic of all its messages; `None`: each says its own.
        topic: Option<Text>,
        /// By token. Bounded by the credit.
        open: Window<u64, Open>,
        /// Messages that the client may send.
        credit: u32,
        /// How far it may go on, if it sends to a node.
        pace: Option<Pace>,
    },
    /// The client sends requests to the broker itself.
    Requests(Box<Requests>),
    /// The client receives.
    Outgoing {
        origin: Origin,
        /// Every delivery is settled when it is sent.
        settled: bool,
        /// The client has asked for what there is.
        drain: bool,
        /// What it wants of what the filter matches; `None`: all.
        wants: Option<Box<Filters>>,
    },
    /// The client receives from a node.
    Taking(Box<Taking>),
    /// The client begins and ends transactions.
    Coordinator(Box<Coordinator>),
}

impl End {
    /// A delivery of the client has used credit.
    pub(crate) const fn use_credit(&mut self) {
        if let Self::Incoming { credit, pace, .. } = self {
            *credit = credit.saturating_sub(1);
            if let Some(pace) = pace {
                pace.note_sent();
            }
        }
    }
}

/// Where what a receiver gets comes from.
#[derive(Debug)]
pub(crate) enum Origin {
    /// Topics.
    Filter(Text, Subscribed),
    /// Answers to requests.
    Service(Box<Replies>),
}

/// By what requests name a receiver of answers.
#[derive(Debug)]
pub(crate) struct Replies {
    pub(crate) service: Service,
    /// Of the link.
    pub(crate) name: Text,
    /// That the link is on.
    pub(crate) session: SessionId,
    /// It is one of a pair.
    pub(crate) paired: bool,
    /// The client's own name for it.
    pub(crate) address: Option<Text>,
}

/// Requests of a link.
#[derive(Debug)]
pub(crate) struct Requests {
    pub(crate) service: Service,
    /// Of the link.
    pub(crate) name: Text,
    /// That the link is on.
    pub(crate) session: SessionId,
    /// It is one of a pair.
    pub(crate) paired: bool,
    /// Those without an answer, by number. Bounded by the credit.
    pub(crate) open: BTreeMap<u64, Request>,
    /// The number of the last one.
    pub(crate) last: u64,
    /// Requests that the client may send.
    pub(crate) credit: u32,
}

/// A request without an answer.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) service: Service,
    pub(crate) to: ReplyTo,
    /// The encoded id that the answer repeats; empty: there is none.
    pub(crate) correlation: Vec<u8>,
    /// What has come of it, if all shards are asked.
    pub(crate) listing: Option<Box<Listing>>,
}

/// Where an answer goes.
#[derive(Debug)]
pub(crate) enum ReplyTo {
    Link(SessionRef),
    Address(Text),
    /// It is the outcome of the request, if that was not settled.
    Outcome(Option<Open>),
}

/// Queues of all shards on their way into one answer.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) query: Query,
    /// Shards that have not answered.
    pub(crate) waiting: usize,
    pub(crate) views: Vec<View>,
}

/// What a query wants of the queues in the order of their addresses.
#[derive(Debug)]
pub(crate) struct Query {
    pub(crate) offset: usize,
    pub(crate) count: usize,
    /// Attributes in the order wanted.
    pub(crate) names: Vec<&'static str>,
}

/// The node that a link is attached to.
#[derive(Debug)]
pub(crate) struct Attachment {
    /// Where the node lives.
    pub(crate) home: ShardId,
    /// The topic or filter that the rules are asked about.
    pub(crate) right: Option<Text>,
    /// Once it is attached.
    pub(crate) place: Option<Place>,
    /// What the client asked for.
    pub(crate) attach: Body,
    /// The address that the broker has given a dynamic node.
    pub(crate) generated: Option<Text>,
    pub(crate) scope: Scope,
    /// That the link is on.
    pub(crate) session: SessionId,
}

/// A node or name whose time runs when a session ends, or else the connection.
#[derive(Debug)]
pub(crate) struct Lingering {
    pub(crate) session: Option<SessionId>,
    /// Where it lives.
    pub(crate) home: ShardId,
    pub(crate) what: Expiring,
}

/// What a link has of a node that it takes from.
#[derive(Debug, Default)]
pub(crate) struct Taking {
    /// Every message is settled when it is sent.
    pub(crate) settled: bool,
    /// What the node has handed over and was not sent. Bounded by the credit that
    /// the node heard of.
    pub(crate) handed: VecDeque<Handed>,
    /// Bytes of these.
    pub(crate) bytes: usize,
    /// The key of the last message that came.
    pub(crate) last_key: u32,
    /// The node has heard that it may hand over messages up to this key.
    pub(crate) limit: u32,
    pub(crate) drain: Drain,
    /// Outcomes that are to be settled when the node has them, by key.
    pub(crate) answers: BTreeMap<u32, (Delivery, Option<State>)>,
    /// Likewise, of deliveries of an earlier attachment.
    pub(crate) resuming: BTreeMap<u32, State>,
    /// Deliveries of an earlier attachment that are to be sent as resumed.
    pub(crate) again: VecDeque<Again>,
}

/// What is sent of a delivery of an earlier attachment.
#[derive(Debug)]
pub(crate) enum Again {
    /// All of it.
    Message(Handed),
    /// That it is settled with this outcome.
    Settled(u32, State),
}

impl Again {
    pub(crate) const fn key(&self) -> u32 {
        match self {
            Self::Message(handed) => handed.key,
            Self::Settled(key, _) => *key,
        }
    }

    /// Its message, if that is sent.
    pub(crate) const fn message(&self) -> Option<&Arc<Message>> {
        match self {
            Self::Message(handed) => Some(&handed.message),
            Self::Settled(..) => None,
        }
    }
}

/// Whether the client wants what there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Drain {
    #[default]
    No,
    /// The node has been asked.
    Asked,
    /// It has no more; what it handed over is sent first.
    Answered,
}

/// A message that a node has handed over.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) key: u32,
    pub(crate) message: Arc<Message>,
    pub(crate) failed: u16,
    pub(crate) again: bool,
    /// The client has had it under this key before.
    pub(crate) resumed: bool,
}

impl Taking {
    /// The key of the last message that was sent.
    pub(crate) fn sent(&self) -> u32 {
        let first = self.handed.front();
        first.map_or(self.last_key, |handed| handed.key.wrapping_sub(1))
    }
}

/// One link of a connection.
#[derive(Debug)]
pub(crate) struct AmqpLink {
    core: SessionCore,
    pub(crate) link: LinkId,
    pub(crate) end: End,
    /// What waits for credit.
    pub(crate) queue: Queue,
    /// What was sent and has no outcome; its keys are in the delivery tags.
    pub(crate) consumer: Consumer<u32>,
    pub(crate) last_key: u32,
    /// If it is not attached to a topic.
    pub(crate) attachment: Option<Box<Attachment>>,
    /// Its name, by which its client knows it again.
    pub(crate) terminus: Option<Box<Terminus>>,
    /// Keys of deliveries whose outcome is part of a transaction.
    pub(crate) retiring: BTreeMap<u32, TransactionId>,
    /// Bytes of its name.
    pub(crate) name_bytes: usize,
}

/// What the engine and the tables of a connection take for a link.
const LINK_BYTES: usize = 768;

impl AmqpLink {
    pub(crate) fn new(core: SessionCore, link: LinkId, end: End) -> Self {
        Self {
            core,
            link,
            end,
            queue: Queue::default(),
            consumer: Consumer::default(),
            last_key: 0,
            attachment: None,
            terminus: None,
            retiring: BTreeMap::new(),
            name_bytes: 0,
        }
    }

    /// What is kept of it, if anything is.
    pub(crate) fn keep_mut(&mut self) -> Option<&mut Keep> {
        self.terminus.as_mut()?.keep_mut()
    }

    /// Messages that the client may send and settle last.
    pub(crate) fn room(&self) -> usize {
        let keep = self.terminus.as_ref().and_then(|it| it.keep.as_ref());
        keep.map_or(usize::MAX, Keep::room)
    }

    /// What it takes from a node, if it does.
    pub(crate) fn taking_mut(&mut self) -> Option<&mut Taking> {
        match &mut self.end {
            End::Taking(taking) => Some(taking),
            End::Incoming { .. }
            | End::Requests(_)
            | End::Outgoing { .. }
            | End::Coordinator(_) => None,
        }
    }

    const fn taking(&self) -> Option<&Taking> {
        match &self.end {
            End::Taking(taking) => Some(taking),
            End::Incoming { .. }
            | End::Requests(_)
            | End::Outgoing { .. }
            | End::Coordinator(_) => None,
        }
    }

    /// The transactions that it is the coordinator's link of.
    pub(crate) fn coordinator_mut(&mut self) -> Option<&mut Coordinator> {
        match &mut self.end {
            End::Coordinator(coordinator) => Some(coordinator),
            _ => None,
        }
    }

    const fn coordinator(&self) -> Option<&Coordinator> {
        match &self.end {
            End::Coordinator(coordinator) => Some(coordinator),
            _ => None,
        }
    }

    /// The filters of a receiver, if it has any.
    pub(crate) fn filters(&self) -> Option<&Filters> {
        match &self.end {
            End::Outgoing { wants, .. } => wants.as_deref(),
            _ => None,
        }
    }

    /// The subscription of a receiver.
    pub(crate) const fn subscribed(&self) -> Option<(&Text, &Subscribed)> {
        match &self.end {
            End::Outgoing {
                origin: Origin::Filter(filter, subscribed),
                ..
            } => Some((filter, subscribed)),
            _ => None,
        }
    }

    /// What names it as a receiver of answers, if it is one.
    pub(crate) fn replies(&self) -> Option<&Replies> {
        match &self.end {
            End::Outgoing {
                origin: Origin::Service(replies),
                ..
            } => Some(replies),
            _ => None,
        }
    }
}

/// A link has one subscription, or none.
impl LeavingFilters for Option<Text> {
    fn take(&mut self, max: usize) -> Vec<Text> {
        let filter = (max > 0).then(|| Self::take(self)).flatten();
        filter.into_iter().collect()
    }

    fn is_empty(&self) -> bool {
        self.is_none()
    }
}

impl SessionKind for AmqpLink {
    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn queue_mut(&mut self) -> &mut Queue {
        &mut self.queue
    }

    fn has_room(&self, copies: usize, cost: usize, messages_max: usize, bytes_max: usize) -> bool {
        let bytes_max = bytes_max.saturating_sub(self.consumer.bytes());
        self.queue.has_room(copies, cost, messages_max, bytes_max)
    }

    fn held_bytes(&self) -> usize {
        let handed = self.taking().map_or(0, |taking| taking.bytes);
        let posted = self.coordinator().map_or(0, |it| it.bytes);
        let queue = self.queue.expected_bytes() + self.queue.loading_bytes();
        queue + self.consumer.bytes() + handed + posted
    }

    fn kept_bytes(&self) -> usize {
        let attachment = self.attachment.as_ref();
        let attach = attachment.map_or(0, |it| it.attach.bytes_len());
        let address = self.replies().and_then(|replies| replies.address.as_ref());
        let address = address.map_or(0, |address| address.len());
        let terminus = self.terminus.as_ref().map_or(0, |it| it.bytes());
        LINK_BYTES + 2 * self.name_bytes + attach + address + terminus
    }

    fn subscription_bytes(&self) -> usize {
        let filter = self.subscribed().map(|(filter, _)| binding_bytes(filter));
        filter.unwrap_or(0) + self.filters().map_or(0, Filters::bytes)
    }

    fn visit_held(&self, visit: impl FnMut(&Arc<Message>)) {
        let handed = self.taking().map(|taking| taking.handed.iter());
        let handed = handed.into_iter().flatten().map(|handed| &handed.message);
        let posted = self.coordinator().map(Coordinator::held);
        let posted = posted.into_iter().flatten();
        let again = self.taking().map(|taking| taking.again.iter());
        let again = again.into_iter().flatten().filter_map(Again::message);
        let all = self.queue.held().chain(self.consumer.held()).chain(handed);
        all.chain(again).chain(posted).for_each(visit);
    }

    fn visit_deliveries(&self, visit: impl FnMut(&dunlin_queue::Delivery)) {
        self.consumer.deliveries().for_each(visit);
    }

    fn in_flight(&self) -> usize {
        self.consumer.len()
    }

    fn take_shared(&mut self, with_in_flight: bool) -> Vec<dunlin_queue::Delivery> {
        let mut taken = match with_in_flight {
            true => self.consumer.release_shared(),
            false => Vec::new(),
        };
        taken.append(&mut self.queue.take_shared());
        taken
    }

    fn handle_loaded(&mut self, messages: &[(u64, Option<Arc<Message>>)]) {
        self.consumer.handle_loaded(&mut self.queue, messages);
    }

    fn subscription(&self, _: &str) -> Option<Subscribed> {
        self.subscribed().map(|(_, subscribed)| *subscribed)
    }

    fn subscriptions(&self) -> Vec<(Text, Subscribed)> {
        let it = self.subscribed();
        it.map(|(filter, it)| (filter.clone(), *it))
            .into_iter()
            .collect()
    }

    fn subscriptions_len(&self) -> usize {
        usize::from(self.subscribed().is_some())
    }

    fn take_subscriptions(&mut self) -> Box<dyn LeavingFilters> {
        let filter = self.subscribed().map(|(filter, _)| filter.clone());
        Box::new(filter)
    }

    fn wants(&self, message: &Message, now: Instant) -> bool {
        let filters = self.filters();
        filters.is_none_or(|filters| filters.look(message, now).0)
    }
}

/// A receiver whose subscription is not in force everywhere yet.
#[derive(Debug)]
pub(crate) struct PendingAttach {
    pub(crate) conn: ConnId,
    pub(crate) session: SessionRef,
    pub(crate) attach: Body,
    /// Shards that have not answered.
    pub(crate) waiting: usize,
}

impl Deref for AmqpLink {
    type Target = SessionCore;

    fn deref(&self) -> &SessionCore {
        &self.core
    }
}

impl DerefMut for AmqpLink {
    fn deref_mut(&mut self) -> &mut SessionCore {
        &mut self.core
    }
}
