//! The task that has all links of a node: messages of the subject, batches that were handed
//! over, readings of the bucket and time go to the links, and what comes of them to the
//! server and to the program.

use core::pin::Pin;
use std::collections::BTreeMap;
use std::sync::Arc;

use async_nats::{Client, Message, PublishError, Subject, Subscriber};
use bytes::Bytes;
use dunlin_base::Instant;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::time::{Instant as Clock, Sleep, sleep_until, timeout};

use crate::authority::NONCE_BYTES;
use crate::cause::Lost;
use crate::entry::{Order, Report};
use crate::error::Expelled;
use crate::ids::{Incarnation, NodeId};
use crate::limits::{
    APART_LEAST, IDLE_MAX, LEAVE_WAIT, PACKET_BYTES_MAX, SAY_EVERY, TURN_MESSAGES_MAX,
};
use crate::link::{Link, LinkEvent, Own};
use crate::member::{Member, NoMember};
use crate::metrics::BusMetrics;
use crate::peer::{Event, LinkId, Peer};
use crate::rarely::Rarely;
use crate::roster::{Change, Listing, Roster};
use crate::wire::{self, Dropped, Packet};

/// Where the program wants its events.
pub(crate) type OnEvent = Box<dyn Fn(Event) + Send>;

/// The subject on which a membership receives.
pub(crate) fn subject(prefix: &str, incarnation: Incarnation) -> String {
    format!("{prefix}.node.{incarnation}")
}

/// A nonce of the system's randomness.
pub(crate) fn draw() -> Option<[u8; NONCE_BYTES]> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).ok()?;
    Some(nonce)
}

/// A message that the client refused leaves a hole, which the other node finds.
fn note_sent(sent: Result<(), PublishError>) {
    if let Err(error) = sent {
        tracing::debug!("a message to another node was not sent: {error}");
    }
}

/// A link, and where its node receives.
struct Connection {
    link: Link,
    subject: Subject,
    current: Option<Peer>,
}

/// What a node has, besides what the driver makes itself.
pub(crate) struct Parts {
    pub(crate) own: Arc<Own>,
    pub(crate) prefix: String,
    pub(crate) client: Client,
    pub(crate) inbox: Subscriber,
    pub(crate) orders: Sender<Order>,
    pub(crate) reports: Receiver<Report>,
    pub(crate) leave: Arc<Notify>,
    pub(crate) woken: Arc<Notify>,
    pub(crate) on_event: OnEvent,
    pub(crate) metrics: Arc<BusMetrics>,
}

/// The task's state.
pub(crate) struct Driver {
    parts: Parts,
    begun: Clock,
    roster: Roster,
    links: BTreeMap<NodeId, Connection>,
    /// A message for which the client had no room.
    stuck: Option<(Subject, Bytes)>,
    rarely: Rarely<(Dropped, bool)>,
}

/// Why a turn begins.
enum Turn {
    Message(Message),
    Report(Option<Report>),
    Unstuck(Result<(), PublishError>),
    /// Batches were handed over or taken, or it is time.
    Woken,
    Leave,
    /// The client has ended.
    Closed,
}

impl Driver {
    pub(crate) fn new(parts: Parts) -> Self {
        let roster = Roster::new(parts.own.node, parts.own.encoding);
        Self {
            parts,
            begun: Clock::now(),
            roster,
            links: BTreeMap::new(),
            stuck: None,
            rarely: Rarely::new(SAY_EVERY),
        }
    }

    fn now(&self) -> Instant {
        let elapsed = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        // Zero stands for no time at all.
        Instant::from_micros(elapsed.saturating_add(1))
    }

    /// Until the node leaves or is expelled.
    pub(crate) async fn run(mut self) {
        let mut timer = Box::pin(sleep_until(self.begun));
        loop {
            let deadline = self.work();
            let at = self.begun + (deadline - Instant::from_micros(1));
            if timer.deadline() != at {
                timer.as_mut().reset(at);
            }
            let ended = match self.turn(timer.as_mut()).await {
                Turn::Message(message) => {
                    self.messages(message);
                    // Otherwise a subject that is never empty would keep them waiting.
                    self.parts
                        .reports
                        .try_recv()
                        .ok()
                        .and_then(|report| self.report(report))
                }
                Turn::Report(report) => {
                    let report = report.unwrap_or(Report::Expelled(Expelled::Silent));
                    self.report(report)
                }
                Turn::Unstuck(sent) => {
                    self.stuck = None;
                    note_sent(sent);
                    None
                }
                Turn::Woken => None,
                Turn::Leave => return self.leave().await,
                Turn::Closed => Some(Expelled::Silent),
            };
            if let Some(cause) = ended {
                return self.expelled(cause).await;
            }
        }
    }

    async fn turn(&mut self, timer: Pin<&mut Sleep>) -> Turn {
        let Parts {
            client,
            inbox,
            reports,
            leave,
            woken,
            ..
        } = &mut self.parts;
        let stuck = self.stuck.clone();
        let is_stuck = stuck.is_some();
        let unstick = async {
            match stuck {
                Some((subject, bytes)) => client.publish(subject, bytes).await,
                None => Ok(()),
            }
        };
        tokio::select! {
            biased;
            sent = unstick, if is_stuck => Turn::Unstuck(sent),
            () = leave.notified() => Turn::Leave,
            message = inbox.next() => message.map_or(Turn::Closed, Turn::Message),
            report = reports.recv() => Turn::Report(report),
            () = woken.notified() => Turn::Woken,
            () = timer => Turn::Woken,
        }
    }

    /// Lets every link do what it can, and gives the time of the next deadline.
    fn work(&mut self) -> Instant {
        let now = self.now();
        let mut deadline = now + IDLE_MAX;
        let nodes: Vec<NodeId> = self.links.keys().copied().collect();
        for node in nodes {
            if let Some(connection) = self.links.get_mut(&node) {
                connection.link.handle_timeout(now);
            }
            self.transmit(node, now);
            self.events(node);
            if let Some(connection) = self.links.get(&node) {
                deadline = deadline.min(connection.link.poll_timeout());
            }
        }
        deadline
    }

    /// Sends what a link has to send, as far as the client has room.
    fn transmit(&mut self, node: NodeId, now: Instant) {
        let bytes_max = self.parts.client.max_payload().min(PACKET_BYTES_MAX);
        while self.stuck.is_none() {
            let Some(connection) = self.links.get_mut(&node) else {
                return;
            };
            let Some((bytes, batches)) = connection.link.poll_transmit(now, bytes_max) else {
                return;
            };
            self.parts.metrics.note_sent(bytes.len(), batches);
            let subject = connection.subject.clone();
            let publish = self.parts.client.publish(subject.clone(), bytes.clone());
            match publish.now_or_never() {
                Some(sent) => note_sent(sent),
                None => self.stuck = Some((subject, bytes)),
            }
        }
    }

    /// Gives the program what became of a link.
    fn events(&mut self, node: NodeId) {
        let metrics = &self.parts.metrics;
        while let Some(connection) = self.links.get_mut(&node)
            && let Some(event) = connection.link.poll_event()
        {
            let event = match event {
                LinkEvent::Linked(number, flow) => {
                    let id = LinkId {
                        node,
                        incarnation: connection.link.incarnation(),
                        number,
                    };
                    let peer = Peer::new(id, flow);
                    connection.current = Some(peer.clone());
                    metrics.note_linked();
                    tracing::info!(%node, incarnation = %id.incarnation, "linked to a node");
                    Event::Linked(peer)
                }
                LinkEvent::Batch(bytes) => {
                    let Some(peer) = &connection.current else {
                        continue;
                    };
                    metrics.note_batch();
                    Event::Batch(peer.batch(bytes))
                }
                LinkEvent::RoundTrip(took) => {
                    metrics.note_round_trip(took);
                    continue;
                }
                LinkEvent::Lost(number, cause) => {
                    let Some(peer) = connection.current.take() else {
                        continue;
                    };
                    debug_assert_eq!(peer.id().number, number);
                    metrics.note_lost(cause);
                    tracing::warn!(%node, cause = cause.name(), "the link to a node is lost");
                    Event::Lost {
                        link: peer.id(),
                        cause,
                    }
                }
            };
            (self.parts.on_event)(event);
        }
    }

    /// Reads a message and those that wait behind it.
    fn messages(&mut self, first: Message) {
        let now = self.now();
        let mut next = Some(first);
        let mut left = TURN_MESSAGES_MAX;
        while let Some(message) = next {
            self.message(now, &message.payload);
            left -= 1;
            if left == 0 {
                return;
            }
            next = self.parts.inbox.next().now_or_never().flatten();
        }
    }

    fn message(&mut self, now: Instant, bytes: &Bytes) {
        let dropped = match wire::read(bytes) {
            Ok(packet) => {
                let node = packet.from();
                let handled = match self.links.get_mut(&node) {
                    Some(connection) => connection.link.handle_packet(now, &packet),
                    None => Err(Dropped::Unknown),
                };
                match handled {
                    Ok(()) => {
                        self.parts.metrics.note_received(bytes.len());
                        // Its batches, before another one's.
                        return self.events(node);
                    }
                    Err(Dropped::Unknown) => self.unknown(&packet),
                    Err(cause) => cause,
                }
            }
            Err(cause) => cause,
        };
        self.drop_message(now, dropped, false);
    }

    /// A greeting of a node of this cluster may come before its entry was read.
    fn unknown(&self, packet: &Packet<'_>) -> Dropped {
        if let Packet::Greeting(greeting, proof) = packet {
            if !greeting.is_proved(proof, &self.parts.own.authority) {
                return Dropped::Secret;
            }
            if greeting.to_incarnation == self.parts.own.incarnation {
                // Otherwise one waits already.
                let _ = self.parts.orders.try_send(Order::Look);
            }
        }
        Dropped::Unknown
    }

    fn drop_message(&mut self, now: Instant, cause: Dropped, is_entry: bool) {
        self.parts.metrics.note_dropped(cause);
        let Some(left_out) = self.rarely.ask(now, (cause, is_entry)) else {
            return;
        };
        let what = if is_entry { "entry" } else { "message" };
        let name = cause.name();
        match cause {
            Dropped::Secret => tracing::warn!(
                what,
                left_out,
                "dropped what another node says, which has not the secret of this cluster"
            ),
            Dropped::Encoding => tracing::error!(
                left_out,
                "another node is of a release that this one does not understand, or that does \
                 not understand this one: they have no link"
            ),
            Dropped::Version => tracing::warn!(
                what,
                left_out,
                "dropped what another node says in another version of the links"
            ),
            _ => tracing::debug!(
                what,
                cause = name,
                left_out,
                "dropped what another node says"
            ),
        }
    }

    fn report(&mut self, report: Report) -> Option<Expelled> {
        match report {
            Report::Listing(listing) => self.listing(&listing),
            Report::Evicted(node) => {
                self.parts.metrics.note_evicted();
                tracing::warn!(%node, "ended the entry of a node that does not answer");
            }
            Report::Expelled(cause) => return Some(cause),
            Report::Left => return Some(Expelled::Ended),
        }
        None
    }

    fn listing(&mut self, listing: &Listing) {
        let now = self.now();
        let own = Arc::clone(&self.parts.own);
        for change in self.roster.update(now, listing, &own.authority) {
            match change {
                Change::Joined(member) => self.joined(now, member),
                Change::Left(node, incarnation, replaced) => {
                    let cause = if replaced {
                        Lost::NewIncarnation
                    } else {
                        Lost::Left
                    };
                    self.end(node, now, cause);
                    self.links.remove(&node);
                    tracing::info!(%node, %incarnation, "a node left");
                    (self.parts.on_event)(Event::Left { node, incarnation });
                }
                Change::NoMember(_, why) => {
                    let cause = match why {
                        NoMember::Secret => Dropped::Secret,
                        NoMember::Encoding => Dropped::Encoding,
                        NoMember::Unreadable => Dropped::Garbage,
                    };
                    self.drop_message(now, cause, true);
                }
            }
        }
        self.parts
            .metrics
            .note_members(self.roster.members().count());
        let after = own.timing.evict_after;
        for (node, connection) in &self.links {
            let unlinked = connection.link.unlinked();
            let is_apart = unlinked.is_some_and(|since| now - since >= APART_LEAST);
            if is_apart && let Some(revision) = self.roster.stale(*node, now, after) {
                let _ = self.parts.orders.try_send(Order::Evict(*node, revision));
            }
        }
    }

    fn joined(&mut self, now: Instant, member: Arc<Member>) {
        let (node, incarnation) = (member.node, member.incarnation);
        let own = Arc::clone(&self.parts.own);
        let connection = Connection {
            link: Link::new(now, own, (node, incarnation), Box::new(draw)),
            subject: Subject::from(subject(&self.parts.prefix, incarnation)),
            current: None,
        };
        self.links.insert(node, connection);
        tracing::info!(%node, %incarnation, name = member.about.name, "a node joined");
        (self.parts.on_event)(Event::Joined(member));
    }

    /// Ends a link with last words.
    fn end(&mut self, node: NodeId, now: Instant, cause: Lost) {
        if let Some(connection) = self.links.get_mut(&node) {
            connection.link.lose(now, cause);
        }
        self.transmit(node, now);
        self.events(node);
    }

    fn end_all(&mut self) {
        let now = self.now();
        let nodes: Vec<NodeId> = self.links.keys().copied().collect();
        for node in nodes {
            self.end(node, now, Lost::Own);
        }
        self.links.clear();
        self.parts.metrics.note_members(0);
    }

    /// What is in the client goes out, if there is a server.
    async fn flush(&self) {
        let _ = timeout(LEAVE_WAIT, self.parts.client.flush()).await;
    }

    async fn expelled(mut self, cause: Expelled) {
        tracing::warn!("this node is no member any more: {}", cause.name());
        self.end_all();
        (self.parts.on_event)(Event::Expelled(cause));
        self.flush().await;
    }

    async fn leave(mut self) {
        self.end_all();
        let left = async {
            let _ = self.parts.orders.send(Order::Leave).await;
            while let Some(report) = self.parts.reports.recv().await {
                if matches!(report, Report::Left | Report::Expelled(_)) {
                    return;
                }
            }
        };
        let _ = timeout(LEAVE_WAIT, left).await;
        self.flush().await;
    }
}
