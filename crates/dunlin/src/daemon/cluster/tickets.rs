//! Session tickets of a cluster. The home keeps all of them, in its log, and says which may
//! be used; each edge has copies, so that TLS has the session at hand when a client offers
//! its ticket. An edge takes early data when the home has struck the ticket off for good.
//!
//! ```text
//! put    = 1 (1), key (32), bytes (4), ticket
//! strike = 2 (1), key (32), strike (8), shard (2)
//! drop   = 3 (1), key (32)
//! struck = 4 (1), strike (8), shard (2), kept (1)
//! ```
//!
//! An edge says `put` of what it issues and `strike` of what is offered to it; the home says
//! `put` and `drop` of all, also of what it does not take, and `struck`.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use dunlin_base::ShardId;
use dunlin_net::{StrikeId, TICKET_KEY_BYTES, TicketChange, TicketKey, TicketRegister};

use super::{Nodes, first_of, node_of};
use crate::daemon::changes::{BATCH_MAX, Changes, GATHER};
use crate::daemon::mailbox::{Addresses, Mail};

/// Bytes of one message about tickets, from which on the next begins another one.
const MESSAGE_BYTES: usize = 256 << 10;

/// Tickets that are looked up at once for an edge that has just begun.
const SYNC_TICKETS_MAX: usize = 64;

/// Pause before more tickets go to an edge that has just begun.
const SYNC_EVERY: Duration = Duration::from_millis(2);

const PUT: u8 = 1;
const STRIKE: u8 = 2;
const DROP: u8 = 3;
const STRUCK: u8 = 4;

/// What nodes say about tickets.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Put {
        key: TicketKey,
        value: Vec<u8>,
    },
    Strike {
        key: TicketKey,
        strike: StrikeId,
        shard: ShardId,
    },
    Drop {
        key: TicketKey,
    },
    Struck {
        strike: StrikeId,
        shard: ShardId,
        kept: bool,
    },
}

impl Said {
    /// A ticket may not be used there.
    const fn refused(strike: StrikeId, shard: ShardId) -> Self {
        let kept = false;
        Self::Struck {
            strike,
            shard,
            kept,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Put { key, value } => {
                out.push(PUT);
                out.extend(key);
                out.extend(u32::try_from(value.len()).unwrap_or(0).to_le_bytes());
                out.extend(value);
            }
            Self::Strike { key, strike, shard } => {
                out.push(STRIKE);
                out.extend(key);
                out.extend(strike.0.to_le_bytes());
                out.extend(shard.0.to_le_bytes());
            }
            Self::Drop { key } => {
                out.push(DROP);
                out.extend(key);
            }
            Self::Struck {
                strike,
                shard,
                kept,
            } => {
                out.push(STRUCK);
                out.extend(strike.0.to_le_bytes());
                out.extend(shard.0.to_le_bytes());
                out.push(u8::from(*kept));
            }
        }
    }

    /// Takes one off the front; `None`: there is none.
    fn decode(rest: &mut &[u8]) -> Option<Self> {
        let [kind] = take(rest)?;
        Some(match kind {
            PUT => {
                let key = take::<TICKET_KEY_BYTES>(rest)?;
                let len = usize::try_from(u32::from_le_bytes(take(rest)?)).ok()?;
                let (value, left) = rest.split_at_checked(len)?;
                *rest = left;
                let value = value.to_vec();
                Self::Put { key, value }
            }
            STRIKE => Self::Strike {
                key: take(rest)?,
                strike: StrikeId(u64::from_le_bytes(take(rest)?)),
                shard: ShardId(u16::from_le_bytes(take(rest)?)),
            },
            DROP => Self::Drop { key: take(rest)? },
            STRUCK => Self::Struck {
                strike: StrikeId(u64::from_le_bytes(take(rest)?)),
                shard: ShardId(u16::from_le_bytes(take(rest)?)),
                kept: take::<1>(rest)? == [1],
            },
            _ => return None,
        })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*taken)
}

/// Messages of bounded length.
#[derive(Debug, Default)]
struct Messages {
    full: Vec<Vec<u8>>,
    last: Vec<u8>,
}

impl Messages {
    fn push(&mut self, said: &Said) {
        if self.last.len() >= MESSAGE_BYTES {
            self.full.push(core::mem::take(&mut self.last));
        }
        said.encode(&mut self.last);
    }

    fn take(&mut self) -> impl Iterator<Item = Vec<u8>> + use<> {
        let (full, last) = (
            core::mem::take(&mut self.full),
            core::mem::take(&mut self.last),
        );
        let last = (!last.is_empty()).then_some(last);
        full.into_iter().chain(last)
    }
}

/// To whom something is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    Home,
    /// All nodes with the same home, and not if a link has no room to spare: who does not hear of a ticket
    /// takes no early data with it.
    All,
    Node(u16),
}

/// What becomes of what other nodes say about tickets.
pub(crate) struct Desk {
    register: Weak<TicketRegister>,
    shards: Addresses,
    /// What wakes the thread that keeps tickets.
    changes: Arc<Changes>,
    /// Edges that have just begun.
    begun: Mutex<Vec<u16>>,
    is_home: bool,
}

dunlin_base::opaque_debug!(Desk);

impl Desk {
    /// An edge has begun, and has no copies yet.
    pub(super) fn edge_began(&self, node: u16) {
        if self.is_home {
            self.lock_begun().push(node);
            self.changes.nudge();
        }
    }

    fn lock_begun(&self) -> std::sync::MutexGuard<'_, Vec<u16>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what follows of what a node says; what it is to be answered at once. `home`: the
    /// node that an edge hears of tickets from. `Err`: it is not that.
    pub(super) fn hear(
        &self,
        node: u16,
        home: Option<u16>,
        mut bytes: &[u8],
    ) -> Result<Vec<u8>, String> {
        let mut answers = Vec::new();
        if !self.is_home && home != Some(node) {
            return Err(format!(
                "node {node} has no say about tickets: it is not the home"
            ));
        }
        let Some(register) = self.register.upgrade() else {
            return Ok(answers);
        };
        while !bytes.is_empty() {
            let said = Said::decode(&mut bytes).ok_or("a node says what is not about tickets")?;
            match (self.is_home, said) {
                // One that is not taken is none: its client makes a whole handshake.
                (true, Said::Put { key, value }) => {
                    if !register.adopt(key, &value) {
                        Said::Drop { key }.encode(&mut answers);
                    }
                }
                (true, Said::Strike { key, strike, shard }) if node_of(shard) == node => {
                    if !register.strike_for(key, strike, shard) {
                        Said::refused(strike, shard).encode(&mut answers);
                    }
                }
                (false, Said::Put { key, value }) => register.copy(key, &value),
                (false, Said::Drop { key }) => register.forget(&key),
                (
                    false,
                    Said::Struck {
                        strike,
                        shard,
                        kept,
                    },
                ) => {
                    register.kept(1);
                    if let Some(address) = self.shards.get(shard) {
                        address.send(Mail::Struck { strike, kept });
                    }
                }
                (_, said) => return Err(format!("a node has no say about tickets: {said:?}")),
            }
        }
        Ok(answers)
    }
}

/// How the thread that keeps tickets at the home has the edges have copies.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    nodes: Option<(Arc<Nodes>, Arc<Desk>)>,
    news: Messages,
    /// Tickets that edges that have begun do not know yet.
    syncs: BTreeMap<u16, VecDeque<TicketKey>>,
}

impl Copies {
    /// Of the home; without it, no node has copies.
    pub(super) fn of(nodes: Arc<Nodes>, desk: Arc<Desk>) -> Self {
        Self {
            nodes: Some((nodes, desk)),
            ..Self::default()
        }
    }

    /// A ticket is new here, or gone.
    pub(crate) fn note(&mut self, change: &TicketChange) {
        if self.nodes.is_none() {
            return;
        }
        match change {
            TicketChange::Put { key, value } => self.news.push(&Said::Put {
                key: *key,
                value: value.clone(),
            }),
            TicketChange::Strike { key, .. } | TicketChange::Drop { key } => {
                self.news.push(&Said::Drop { key: *key });
            }
            _ => {}
        }
    }

    /// Tells the edges; when there is more to tell, if there is.
    pub(crate) fn tell(&mut self) -> Option<Instant> {
        let (nodes, desk) = self.nodes.as_ref()?;
        for message in self.news.take() {
            nodes.say_of_tickets(To::All, &message);
        }
        let begun = core::mem::take(&mut *desk.lock_begun());
        let register = desk.register.upgrade()?;
        for node in begun {
            self.syncs.insert(node, register.names());
        }
        self.syncs.retain(|node, left| {
            let mut messages = Messages::default();
            // A node that is gone hears of all when it begins again.
            match nodes.has_room(*node) {
                None => return false,
                Some(false) => return true,
                Some(true) => {}
            }
            while messages.full.is_empty() && !left.is_empty() {
                let names = left.drain(..left.len().min(SYNC_TICKETS_MAX));
                for (key, value) in register.held(names) {
                    messages.push(&Said::Put { key, value });
                }
            }
            for message in messages.take() {
                nodes.say_of_tickets(To::Node(*node), &message);
            }
            !left.is_empty()
        });
        (!self.syncs.is_empty()).then(|| Instant::now() + SYNC_EVERY)
    }

    /// How edges are answered.
    pub(crate) fn answers(&self) -> Answers {
        Answers(self.nodes.as_ref().map(|(nodes, _)| Arc::clone(nodes)))
    }
}

/// The way to edges that have asked to strike a ticket off.
#[derive(Debug)]
pub(crate) struct Answers(Option<Arc<Nodes>>);

impl Answers {
    /// The use of a ticket at a shard of another node has been stored, or cannot be.
    pub(crate) fn struck(&self, shard: ShardId, strike: StrikeId, kept: bool) {
        if let Some(nodes) = &self.0 {
            let mut message = Vec::new();
            let said = Said::Struck {
                strike,
                shard,
                kept,
            };
            said.encode(&mut message);
            nodes.say_of_tickets(To::Node(node_of(shard)), &message);
        }
    }
}

impl Nodes {
    /// Hears what others say about tickets from now on.
    pub(super) fn open_desk(
        &self,
        register: &Arc<TicketRegister>,
        shards: &Addresses,
        changes: &Arc<Changes>,
        is_home: bool,
    ) -> Arc<Desk> {
        let desk = Arc::new(Desk {
            register: Arc::downgrade(register),
            shards: shards.clone(),
            changes: Arc::clone(changes),
            begun: Mutex::default(),
            is_home,
        });
        self.lock().desk = Some(Arc::clone(&desk));
        desk
    }
}

/// Of a home that takes no early data: no ticket may be used, and none is kept.
pub(super) fn refuse(mut bytes: &[u8]) -> Vec<u8> {
    let mut answers = Vec::new();
    while let Some(said) = Said::decode(&mut bytes) {
        match said {
            Said::Put { key, .. } => Said::Drop { key }.encode(&mut answers),
            Said::Strike { strike, shard, .. } => {
                Said::refused(strike, shard).encode(&mut answers);
            }
            _ => {}
        }
    }
    answers
}

/// At an edge: the home keeps what is issued here, and is asked before what is offered here is
/// used. Ends when no one uses the register any more.
pub(super) fn ask_home(
    nodes: &Nodes,
    here: u16,
    changes: &Changes,
    register: &Weak<TicketRegister>,
) {
    let mut messages = Messages::default();
    let (mut count, mut due) = (0, None);
    loop {
        let (taken, is_over) = changes.take(due);
        let mut is_urgent = false;
        for change in taken {
            match change {
                TicketChange::Put { key, value } => {
                    messages.push(&Said::Put { key, value });
                    count += 1;
                }
                TicketChange::Strike { key, strike, shard } => {
                    let shard = ShardId(first_of(here).0.saturating_add(shard.0));
                    messages.push(&Said::Strike { key, strike, shard });
                    is_urgent = true;
                }
                // The home has its own bounds.
                _ => dealt_with(register, 1),
            }
        }
        let now = Instant::now();
        if is_over || is_urgent || count >= BATCH_MAX || due.is_some_and(|due| due <= now) {
            for message in messages.take() {
                nodes.say_of_tickets(To::Home, &message);
            }
            dealt_with(register, core::mem::take(&mut count));
        }
        due = match due {
            _ if count == 0 => None,
            Some(due) if due > now => Some(due),
            _ => Some(now + GATHER),
        };
        if is_over {
            return;
        }
    }
}

fn dealt_with(register: &Weak<TicketRegister>, changes: usize) {
    if changes > 0
        && let Some(register) = register.upgrade()
    {
        register.kept(changes);
    }
}

#[cfg(test)]
mod tests {
    use dunlin_net::TicketLimits;

    use super::*;

    fn all() -> [Said; 4] {
        let (key, strike, shard) = ([7; TICKET_KEY_BYTES], StrikeId(9), ShardId(130));
        let kept = true;
        [
            Said::Put {
                key,
                value: b"ticket".to_vec(),
            },
            Said::Strike { key, strike, shard },
            Said::Drop { key },
            Said::Struck {
                strike,
                shard,
                kept,
            },
        ]
    }

    #[test]
    fn what_is_said_about_tickets_is_read_as_it_is_written() {
        let mut bytes = Vec::new();
        let mut ends = vec![0];
        for said in all() {
            said.encode(&mut bytes);
            ends.push(bytes.len());
        }
        let mut rest = &bytes[..];
        for said in all() {
            assert_eq!(Said::decode(&mut rest), Some(said));
        }
        assert!(rest.is_empty());
        for cut in 0..bytes.len() {
            let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
            let mut rest = &bytes[..cut];
            let read = core::iter::from_fn(|| Said::decode(&mut rest)).count();
            assert_eq!(read, whole, "{cut}");
        }
        assert_eq!(Said::decode(&mut &[9, 0][..]), None);
    }

    #[test]
    fn a_home_without_early_data_refuses_each_use() {
        let mut bytes = Vec::new();
        for said in all() {
            said.encode(&mut bytes);
        }
        let answers = refuse(&bytes);
        let refused = Said::Struck {
            strike: StrikeId(9),
            shard: ShardId(130),
            kept: false,
        };
        let mut rest = &answers[..];
        let key = [7; TICKET_KEY_BYTES];
        assert_eq!(Said::decode(&mut rest), Some(Said::Drop { key }));
        assert_eq!(Said::decode(&mut rest), Some(refused));
        assert!(rest.is_empty());
    }

    #[test]
    fn an_edge_hears_of_tickets_from_its_home_alone() {
        let register = Arc::new(TicketRegister::in_memory(TicketLimits::default()));
        let desk = Desk {
            register: Arc::downgrade(&register),
            shards: Addresses::default(),
            changes: Arc::default(),
            begun: Mutex::default(),
            is_home: false,
        };
        for said in all() {
            let mut bytes = Vec::new();
            said.encode(&mut bytes);
            for (node, home) in [(3, Some(2)), (3, None)] {
                assert!(desk.hear(node, home, &bytes).is_err(), "{said:?}");
            }
            let is_of_home = !matches!(said, Said::Strike { .. });
            assert_eq!(
                desk.hear(2, Some(2), &bytes).is_ok(),
                is_of_home,
                "{said:?}"
            );
        }
    }

    #[test]
    fn many_tickets_go_in_messages_of_bounded_length() {
        let mut messages = Messages::default();
        for n in 0..100 {
            messages.push(&Said::Put {
                key: [n; TICKET_KEY_BYTES],
                value: vec![0; 16 << 10],
            });
        }
        let lengths: Vec<_> = messages.take().map(|it| it.len()).collect();
        assert!(lengths.len() > 4, "{lengths:?}");
        assert!(lengths.iter().all(|len| *len < MESSAGE_BYTES + (17 << 10)));
        assert_eq!(messages.take().count(), 0);
    }
}
