//! Who is a member, as one node sees it: one reading of the bucket after the other comes in,
//! who came and who left comes out. No server, no clock.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use dunlin_base::Instant;

use crate::authority::Authority;
use crate::ids::{Incarnation, NodeId};
use crate::member::{Encoding, Member, NoMember};

/// An entry as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) node: NodeId,
    /// Number of its last change in the bucket.
    pub(crate) revision: u64,
    /// `None`: the mark of an entry that ended.
    pub(crate) value: Option<bytes::Bytes>,
}

/// All entries at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    pub(crate) entries: Vec<Listed>,
    /// Number of the last change that it knows.
    pub(crate) up_to: u64,
}

/// What became of the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Joined(Arc<Member>),
    /// With whether another membership has the number.
    Left(NodeId, Incarnation, bool),
    /// The entry of a node is none of a member.
    NoMember(NodeId, NoMember),
}

struct Known {
    member: Arc<Member>,
    revision: u64,
    /// Since when its entry was seen unchanged.
    since: Instant,
}

/// The members but this node.
pub(crate) struct Roster {
    own: NodeId,
    encoding: Encoding,
    members: BTreeMap<NodeId, Known>,
    /// Revisions of entries that are none of members, so that each is reported once.
    refused: BTreeMap<NodeId, u64>,
    up_to: u64,
}

impl Roster {
    pub(crate) const fn new(own: NodeId, encoding: Encoding) -> Self {
        Self {
            own,
            encoding,
            members: BTreeMap::new(),
            refused: BTreeMap::new(),
            up_to: 0,
        }
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.members.values().map(|known| &known.member)
    }

    /// Compares with a reading. One that is older than another before it, as of a server that
    /// lags behind, changes nothing.
    pub(crate) fn update(
        &mut self,
        now: Instant,
        listing: &Listing,
        authority: &Authority,
    ) -> Vec<Change> {
        if listing.up_to < self.up_to {
            return Vec::new();
        }
        self.up_to = listing.up_to;
        let (mut changes, mut came) = (Vec::new(), Vec::new());
        let mut left: BTreeMap<NodeId, Known> = core::mem::take(&mut self.members);
        for listed in &listing.entries {
            let Some(value) = listed.value.as_ref().filter(|_| listed.node != self.own) else {
                continue;
            };
            let known = match left.remove(&listed.node) {
                Some(known) if known.revision == listed.revision => {
                    self.members.insert(listed.node, known);
                    continue;
                }
                known => known,
            };
            let decoded = Member::decode(listed.node, value, authority);
            let decoded =
                decoded.and_then(|member| match self.encoding.fits(member.about.encoding) {
                    true => Ok(member),
                    false => Err(NoMember::Encoding),
                });
            let member = match decoded {
                Ok(member) => Arc::new(member),
                Err(why) => {
                    let before = self.refused.insert(listed.node, listed.revision);
                    if before != Some(listed.revision) {
                        changes.push(Change::NoMember(listed.node, why));
                    }
                    left.extend(known.map(|known| (listed.node, known)));
                    continue;
                }
            };
            let is_same = |known: &Known| known.member.incarnation == member.incarnation;
            if !known.as_ref().is_some_and(is_same) {
                if let Some(known) = known {
                    changes.push(Change::Left(listed.node, known.member.incarnation, true));
                }
                came.push(Change::Joined(Arc::clone(&member)));
            }
            let known = Known {
                member,
                revision: listed.revision,
                since: now,
            };
            self.members.insert(listed.node, known);
        }
        let gone = left.into_iter();
        changes
            .extend(gone.map(|(node, known)| Change::Left(node, known.member.incarnation, false)));
        changes.append(&mut came);
        changes
    }

    /// The revision of a node's entry, if it has not been renewed for so long.
    pub(crate) fn stale(&self, node: NodeId, now: Instant, after: Duration) -> Option<u64> {
        let known = self.members.get(&node)?;
        (now - known.since >= after).then_some(known.revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::About;

    fn node(number: u16) -> NodeId {
        NodeId::new(number).expect("a number")
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_micros(seconds * 1_000_000)
    }

    fn authority() -> Authority {
        Authority::new(b"a secret of sixteen", "dl")
    }

    fn listed(number: u16, incarnation: u64, revision: u64) -> Listed {
        let member = Member {
            node: node(number),
            incarnation: Incarnation(incarnation),
            about: About::default(),
        };
        Listed {
            node: node(number),
            revision,
            value: Some(member.encode(&authority()).into()),
        }
    }

    fn listing(entries: Vec<Listed>) -> Listing {
        let up_to = entries.iter().map(|e| e.revision).max().unwrap_or_default();
        Listing { entries, up_to }
    }

    fn shown(changes: &[Change]) -> Vec<String> {
        let show = |change: &Change| match change {
            Change::Joined(m) => format!("+{}.{}", m.node, m.incarnation.0),
            Change::Left(node, incarnation, again) => format!("-{node}.{} {again}", incarnation.0),
            Change::NoMember(node, why) => format!("?{node} {why:?}"),
        };
        changes.iter().map(show).collect()
    }

    #[test]
    fn members_come_and_leave() {
        let mut roster = Roster::new(node(1), Encoding::default());
        let mut update =
            |seconds, entries| shown(&roster.update(at(seconds), &listing(entries), &authority()));
        let own = listed(1, 10, 1);
        assert_eq!(update(0, vec![own.clone(), listed(2, 20, 2)]), ["+2.20"]);
        // It renews its entry.
        assert!(update(1, vec![own.clone(), listed(2, 20, 3)]).is_empty());
        let another = vec![own.clone(), listed(2, 21, 4), listed(3, 30, 5)];
        assert_eq!(update(2, another), ["-2.20 true", "+2.21", "+3.30"]);
        // An older reading.
        assert!(update(3, vec![own.clone(), listed(2, 20, 3)]).is_empty());
        let mark = Listed {
            value: None,
            ..listed(2, 21, 6)
        };
        assert_eq!(
            update(4, vec![own, mark, listed(3, 30, 5)]),
            ["-2.21 false"]
        );
    }

    #[test]
    fn strangers_are_no_members() {
        let mut roster = Roster::new(node(1), Encoding::default());
        let stranger = Listed {
            value: Some(bytes::Bytes::from_static(b"x")),
            ..listed(2, 0, 1)
        };
        let other = Listed {
            node: node(4),
            ..listed(3, 30, 2)
        };
        let found = roster.update(at(0), &listing(vec![stranger, other.clone()]), &authority());
        assert_eq!(shown(&found), ["?2 Unreadable", "?4 Secret"]);
        assert_eq!(roster.members().count(), 0);
        let again = roster.update(at(1), &listing(vec![other]), &authority());
        assert!(again.is_empty(), "reported once");
        // One that overwrites the entry of a member ends it.
        roster.update(at(1), &listing(vec![listed(2, 20, 3)]), &authority());
        let stranger = Listed {
            value: Some(bytes::Bytes::from_static(b"x")),
            ..listed(2, 0, 4)
        };
        let found = roster.update(at(2), &listing(vec![stranger]), &authority());
        assert_eq!(shown(&found), ["?2 Unreadable", "-2.20 false"]);
    }

    #[test]
    fn a_node_that_does_not_understand_this_one_is_no_member() {
        let (mut own, mut other) = (Encoding::default(), About::default());
        own.version = 1;
        (other.encoding.version, other.encoding.least) = (2, 2);
        let member = Member {
            node: node(2),
            incarnation: Incarnation(20),
            about: other,
        };
        let entry = |revision| Listed {
            node: node(2),
            revision,
            value: Some(member.encode(&authority()).into()),
        };
        let mut roster = Roster::new(node(1), own);
        let found = roster.update(at(0), &listing(vec![entry(1)]), &authority());
        assert_eq!(shown(&found), ["?2 Encoding"]);
        assert_eq!(roster.members().count(), 0);
        let mut roster = Roster::new(node(1), member.about.encoding);
        let found = roster.update(at(0), &listing(vec![entry(1)]), &authority());
        assert_eq!(shown(&found), ["+2.20"]);
    }

    #[test]
    fn entries_that_are_not_renewed_become_stale() {
        let mut roster = Roster::new(node(1), Encoding::default());
        let after = Duration::from_secs(3);
        let mut update = |seconds, revision| {
            let listing = listing(vec![listed(2, 20, revision)]);
            roster.update(at(seconds), &listing, &authority());
            roster.stale(node(2), at(seconds), after)
        };
        assert_eq!(update(0, 1), None);
        assert_eq!(update(2, 1), None);
        assert_eq!(update(3, 1), Some(1));
        assert_eq!(update(4, 2), None);
        assert_eq!(update(6, 2), None);
        assert_eq!(update(7, 2), Some(2));
    }
}
