//! Names of links, at the shard that they hash to: which link has each, and what is kept
//! of one that sent and is detached.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use dunlin_base::{Instant, ShardId, Text};
use hashbrown::HashMap;

use crate::ids::SessionRef;
use crate::owners::timers::Alarm;
use crate::queues::calls::{Left, Outcomes};

/// Links that are away and have something that is kept, on one shard; of further ones
/// nothing is.
pub(crate) const AWAY_MAX: usize = 4096;

/// What a name takes besides its text.
const NAME_BYTES: usize = 160;

/// What an outcome takes that is kept.
pub(crate) const OUTCOME_BYTES: usize = 96;

/// A link, with its shard.
pub(crate) type Holder = (ShardId, SessionRef);

/// All names that are in use.
#[derive(Debug, Default)]
pub(crate) struct Termini {
    all: HashMap<Text, Terminus>,
    /// When what is kept is forgotten.
    expiries: BTreeSet<(Instant, Text)>,
    /// Of them, those that are away.
    away: usize,
    /// For the first of `expiries`.
    pub(crate) alarm: Alarm,
}

/// One name.
#[derive(Debug, Default)]
pub(crate) struct Terminus {
    pub(crate) holder: Option<Holder>,
    /// The holder has what is kept, and gives it back.
    pub(crate) keeps: bool,
    /// A link that waits for that.
    pub(crate) waiting: Option<Holder>,
    pub(crate) away: Option<Away>,
}

/// What is kept while no link has the name.
#[derive(Debug)]
pub(crate) struct Away {
    /// The link that had it.
    pub(crate) link: Holder,
    pub(crate) left: Left,
    expires: Option<Instant>,
}

impl Termini {
    /// A name, which is added if it is new; whether it is.
    pub(crate) fn entry(&mut self, name: &Text) -> (&mut Terminus, bool) {
        let is_new = !self.all.contains_key(name.as_bytes());
        (self.all.entry(name.clone()).or_default(), is_new)
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut Terminus> {
        self.all.get_mut(name.as_bytes())
    }

    /// A shard is gone: its links wait for nothing more. The names that it has come out, in
    /// order, with the link that has each or, where something is kept of one that had it,
    /// none.
    pub(crate) fn take_waiting(&mut self, shard: ShardId) -> Vec<(Text, Option<SessionRef>)> {
        let mut names = Vec::new();
        for (name, it) in &mut self.all {
            it.waiting.take_if(|(of, _)| *of == shard);
            let held = it.holder.filter(|(of, _)| *of == shard);
            let away = it.away.as_ref().is_some_and(|away| away.link.0 == shard);
            if held.is_some() || away {
                names.push((name.clone(), held.map(|(_, link)| link)));
            }
        }
        names.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        names
    }

    /// Nothing is known of a name any more.
    pub(crate) fn remove(&mut self, name: &str) {
        self.all.remove(name.as_bytes());
    }

    /// Keeps something of a link that is away; gives it back if there is no room.
    pub(crate) fn keep(&mut self, name: &Text, link: Holder, left: Left) -> Option<Left> {
        if self.away >= AWAY_MAX {
            return Some(left);
        }
        self.away += 1;
        let expires = None;
        let away = Away {
            link,
            left,
            expires,
        };
        self.all.entry(name.clone()).or_default().away = Some(away);
        None
    }

    /// Its time runs; when it is over comes out, if ever.
    pub(crate) fn expire(&mut self, name: &Text, now: Instant) -> Option<Instant> {
        let away = self.all.get_mut(name.as_bytes())?.away.as_mut()?;
        if away.left.secs == u32::MAX || away.expires.is_some() {
            return None;
        }
        let time = core::time::Duration::from_secs(u64::from(away.left.secs));
        let at = now + time;
        away.expires = Some(at);
        self.expiries.insert((at, name.clone()));
        Some(at)
    }

    /// Takes what is kept of a link.
    pub(crate) fn take(&mut self, name: &Text) -> Option<Left> {
        let away = self.all.get_mut(name.as_bytes())?.away.take()?;
        self.away = self.away.saturating_sub(1);
        if let Some(at) = away.expires {
            self.expiries.remove(&(at, name.clone()));
        }
        Some(away.left)
    }

    /// The next name whose time is over.
    pub(crate) fn over(&self, now: Instant) -> Option<Text> {
        let (at, name) = self.expiries.first()?;
        (*at <= now).then(|| name.clone())
    }

    /// When the next time is over.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.expiries.first().map(|(at, _)| *at)
    }

    /// Bytes of all of it.
    pub(crate) fn bytes(&self) -> usize {
        let away = |it: &Away| outcome_bytes(&it.left.outcomes);
        let all = self.all.iter();
        all.map(|(name, it)| name_bytes(name) + it.away.as_ref().map_or(0, away))
            .sum()
    }
}

/// Bytes that a name takes.
pub(crate) fn name_bytes(name: &Text) -> usize {
    NAME_BYTES + name.len()
}

/// Bytes that outcomes take.
pub(crate) fn outcome_bytes(outcomes: &Outcomes) -> usize {
    outcomes.len() * OUTCOME_BYTES
}
