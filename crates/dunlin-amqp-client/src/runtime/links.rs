//! The links of one client, by what the application and what the connection
//! calls them: attached, attached again, ended.

use std::collections::{BTreeMap, HashMap};

use dunlin_amqp::codec::{Attach, DeliveryState, condition};
use dunlin_amqp::{Body, CallError, Connection, LinkId, Reason, SessionId, Tag};
use tokio::sync::oneshot;

use super::receiving::ReceiveLink;
use super::sending::{Left, SendLink};
use crate::command::{Answer, LinkKey, NewReceiver, NewSender};
use crate::error::LinkError;
use crate::outcome::Condition;
use crate::redirect::Redirect;
use crate::terminus::{Attached, LinkSpec};

/// All of them.
#[derive(Default)]
pub(super) struct Links {
    all: BTreeMap<LinkKey, Entry>,
    by_id: HashMap<LinkId, LinkKey>,
}

pub(super) struct Entry {
    spec: LinkSpec,
    end: End,
    phase: Phase,
    /// Who waits for the first answer.
    answer: Option<Answer>,
    closing: Option<Closing>,
    /// A connection before this one has asked for the link, and its `attach` may come
    /// late: what that steals is taken back, once.
    takes_back: bool,
}

/// One end of a link.
pub(super) enum End {
    Sender(SendLink),
    Receiver(ReceiveLink),
}

/// Where a link stands on this connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Off,
    /// `attach` was sent, with so many unsettled deliveries.
    Asked(LinkId, usize),
    Attached(LinkId),
    /// `detach` was sent, to attach again with the other deliveries.
    Again(LinkId),
    /// `detach` was sent.
    Going(LinkId),
}

/// The application ends a link.
struct Closing {
    closed: bool,
    done: Vec<oneshot::Sender<()>>,
}

impl Phase {
    /// The engine's name of a link that frames go to.
    const fn link(self) -> Option<LinkId> {
        match self {
            Self::Asked(link, _) | Self::Attached(link) => Some(link),
            Self::Off | Self::Again(_) | Self::Going(_) => None,
        }
    }
}

impl End {
    fn forget_attachment(&mut self) {
        match self {
            Self::Sender(sender) => sender.forget_attachment(),
            Self::Receiver(receiver) => receiver.forget_attachment(),
        }
    }
}

impl Links {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn has(&self, key: LinkKey) -> bool {
        self.all.contains_key(&key)
    }

    pub(super) fn insert(&mut self, key: LinkKey, entry: Entry) {
        self.all.insert(key, entry);
    }

    /// All links, none of which is attached now.
    pub(super) fn take(&mut self) -> BTreeMap<LinkKey, Entry> {
        core::mem::take(&mut self.all)
    }

    /// The sender that the application calls so.
    pub(super) fn sender(&mut self, key: LinkKey) -> Option<&mut SendLink> {
        match &mut self.all.get_mut(&key)?.end {
            End::Sender(sender) => Some(sender),
            End::Receiver(_) => None,
        }
    }

    /// The receiver that the application calls so, and what the engine does.
    pub(super) fn receiver(&mut self, key: LinkKey) -> Option<(&mut ReceiveLink, Option<LinkId>)> {
        let entry = self.all.get_mut(&key)?;
        let link = entry.phase.link();
        match &mut entry.end {
            End::Receiver(receiver) => Some((receiver, link)),
            End::Sender(_) => None,
        }
    }

    /// The end of a link of this connection.
    pub(super) fn end(&mut self, link: LinkId) -> Option<&mut End> {
        let key = self.by_id.get(&link)?;
        Some(&mut self.all.get_mut(key)?.end)
    }

    /// The transport is gone.
    pub(super) fn forget_attachments(&mut self) {
        self.by_id.clear();
        let mut over = Vec::new();
        for (key, entry) in &mut self.all {
            if let Phase::Going(_) = entry.phase {
                over.push(*key);
            }
            entry.takes_back |= entry.phase != Phase::Off;
            entry.phase = Phase::Off;
            entry.end.forget_attachment();
        }
        for key in over {
            self.remove(key, &LinkError::Closed);
        }
    }

    fn remove(&mut self, key: LinkKey, why: &LinkError) {
        if let Some(entry) = self.all.remove(&key) {
            entry.end_with(why);
        }
    }

    /// The client is over.
    pub(super) fn end_all(&mut self, why: &LinkError) {
        self.by_id.clear();
        for entry in core::mem::take(&mut self.all).into_values() {
            entry.end_with(why);
        }
    }

    /// Attaches what is not, sends what may go, up to `room` bytes, gives
    /// credit, and detaches what is done.
    pub(super) fn run(
        &mut self,
        engine: &mut Connection,
        session: Option<SessionId>,
        is_open: bool,
        room: &mut u64,
    ) -> Left {
        let mut left = Left::new();
        let mut over = Vec::new();
        for (key, entry) in &mut self.all {
            if let (Phase::Off, Some(session)) = (entry.phase, session) {
                match entry.attach(engine, session, is_open) {
                    Ok(Some(link)) => {
                        self.by_id.insert(link, *key);
                    }
                    Ok(None) => {}
                    Err(error) => {
                        over.push((*key, error));
                        continue;
                    }
                }
            }
            left.extend(entry.pump(engine, room));
            if entry.finish(engine) {
                over.push((*key, LinkError::Closed));
            }
        }
        for (key, why) in over {
            self.remove(key, &why);
        }
        left
    }

    /// The server's answer to `attach`.
    pub(super) fn handle_attached(&mut self, link: LinkId, body: &Body) {
        let key = self.by_id.get(&link);
        let entry = key.and_then(|key| self.all.get_mut(key));
        if let (Some(entry), Some(answer)) = (entry, body.attach()) {
            entry.handle_attached(link, &answer);
        }
    }

    /// A link is gone.
    pub(super) fn handle_detached(&mut self, link: LinkId, error: Option<&Reason>) {
        let Some(key) = self.by_id.remove(&link) else {
            return;
        };
        let Some(entry) = self.all.get_mut(&key) else {
            return;
        };
        let condition = error.map(|error| Condition::from(error.get()));
        let is_stolen = error.is_some_and(|error| error.get().condition == condition::STOLEN);
        let redirect = error.map(Reason::get);
        let redirect = redirect.filter(|it| it.condition == condition::LINK_REDIRECT);
        let redirect = redirect.and_then(|error| Redirect::of(&error));
        let why = match entry.phase {
            Phase::Again(_) => return entry.attach_again(),
            Phase::Asked(..) | Phase::Attached(_) if is_stolen && entry.takes_back => {
                entry.takes_back = false;
                return entry.attach_again();
            }
            Phase::Going(_) => LinkError::Closed,
            Phase::Attached(_) => LinkError::Detached(condition),
            Phase::Off | Phase::Asked(..) => LinkError::Refused(condition),
        };
        let why = match (why, redirect) {
            (LinkError::Detached(_) | LinkError::Refused(_), Some(to)) => LinkError::Redirected(to),
            (why, _) => why,
        };
        self.remove(key, &why);
    }

    /// The application ends a link.
    pub(super) fn detach(&mut self, key: LinkKey, closed: bool, done: Option<oneshot::Sender<()>>) {
        // One that has ended needs nothing more; `done` is dropped.
        if let Some(entry) = self.all.get_mut(&key) {
            let closing = entry.closing.get_or_insert_with(|| Closing {
                closed,
                done: Vec::new(),
            });
            closing.done.extend(done);
        }
    }
}

impl Entry {
    pub(super) fn sender(new: NewSender) -> Self {
        let end = End::Sender(SendLink::new(new.shared));
        Self::new(new.spec, end, new.attached)
    }

    pub(super) fn receiver(new: NewReceiver) -> Self {
        let mode = new.spec.rcv_settle_mode;
        let mut receiver = ReceiveLink::new(new.shared, new.inbox, new.credit, mode);
        receiver.take_in(new.restored);
        Self::new(new.spec, End::Receiver(receiver), new.attached)
    }

    fn new(spec: LinkSpec, end: End, answer: Answer) -> Self {
        Self {
            spec,
            end,
            phase: Phase::Off,
            answer: Some(answer),
            closing: None,
            takes_back: false,
        }
    }

    /// It is gone, and is attached again on this connection.
    fn attach_again(&mut self) {
        self.phase = Phase::Off;
        self.end.forget_attachment();
    }

    /// Asks for the link; `None`: later.
    fn attach(
        &mut self,
        engine: &mut Connection,
        session: SessionId,
        is_open: bool,
    ) -> Result<Option<LinkId>, LinkError> {
        let unsettled: Vec<(Tag, Option<DeliveryState<'_>>)> = match &self.end {
            End::Sender(sender) => sender.tags().map(|tag| (tag, None)).collect(),
            End::Receiver(receiver) => receiver.unsettled().collect(),
        };
        let mut map: Vec<_> = unsettled
            .iter()
            .map(|(tag, s)| (tag.as_bytes(), *s))
            .collect();
        let link = loop {
            let is_part = map.len() < unsettled.len();
            let asked = self
                .spec
                .attach(&map, is_part, |it| engine.attach(session, it))?;
            match asked {
                Ok(link) => break link,
                // The server says in `open` how large frames may be.
                Err(CallError::FrameSize) if !is_open => return Ok(None),
                Err(CallError::FrameSize) if !map.is_empty() => map.truncate(map.len() / 2),
                Err(CallError::FrameSize) => return Err(LinkError::TooLarge),
                // Of its earlier attachment, which is about to be gone.
                Err(CallError::State) => return Ok(None),
                Err(_) => return Err(LinkError::TooMany),
            }
        };
        self.phase = Phase::Asked(link, map.len());
        Ok(Some(link))
    }

    fn handle_attached(&mut self, link: LinkId, answer: &Attach<'_>) {
        let Phase::Asked(asked, listed) = self.phase else {
            return;
        };
        // Without a terminus it is refused, and `detach` says why.
        let Some(attached) = Attached::of(self.spec.role, answer) else {
            return;
        };
        if asked != link {
            return;
        }
        self.phase = Phase::Attached(link);
        match &mut self.end {
            End::Sender(sender) => {
                sender.shared().status.set_attached(attached.clone());
                sender.handle_attached(answer, listed);
            }
            End::Receiver(receiver) => {
                receiver.shared().status.set_attached(attached.clone());
                receiver.handle_attached(answer);
            }
        }
        if let Some(waits) = self.answer.take() {
            let _ = waits.send(Ok(attached));
        }
    }

    fn pump(&mut self, engine: &mut Connection, room: &mut u64) -> Left {
        match (&mut self.end, self.phase) {
            (End::Sender(sender), Phase::Attached(link)) => {
                let left = sender.pump(engine, link, room);
                if sender.wants_another() && engine.detach(link, false, None).is_ok() {
                    self.phase = Phase::Again(link);
                }
                left
            }
            (End::Receiver(receiver), Phase::Asked(link, _) | Phase::Attached(link))
                if self.closing.is_none() =>
            {
                receiver.top_up(engine, link);
                Left::new()
            }
            _ => Left::new(),
        }
    }

    /// Detaches if that is wanted; whether nothing is to be waited for.
    fn finish(&mut self, engine: &mut Connection) -> bool {
        let Some(closing) = &self.closing else {
            return false;
        };
        if let End::Sender(sender) = &self.end
            && !sender.is_done()
        {
            return false;
        }
        match self.phase {
            Phase::Off => true,
            Phase::Asked(link, _) | Phase::Attached(link) => {
                self.phase = Phase::Going(link);
                engine.detach(link, closing.closed, None).is_err()
            }
            Phase::Again(_) | Phase::Going(_) => false,
        }
    }

    pub(super) fn end_with(self, why: &LinkError) {
        match self.end {
            End::Sender(sender) => sender.end(why),
            End::Receiver(receiver) => receiver.end(why),
        }
        if let Some(waits) = self.answer {
            let _ = waits.send(Err(why.clone()));
        }
        for done in self.closing.into_iter().flat_map(|closing| closing.done) {
            let _ = done.send(());
        }
    }
}
