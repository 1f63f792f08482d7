//! Which nodes this one is linked to, which of them serve, and which of those belong to the
//! own shards: those with the same home.

use std::collections::BTreeMap;

use super::frame::{Home, Run};

/// What is to be done. In order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The own shards are to know that these nodes' runs are there.
    Joined(Vec<(u16, Run)>),
    /// The own shards are to know that this node's run is gone.
    Gone(u16, Run),
}

/// See the head of the file.
#[derive(Debug, Default)]
pub(super) struct Roster {
    /// Linked nodes, and what they serve.
    peers: BTreeMap<u16, Option<Run>>,
    /// This node, and what it serves.
    own: Option<(u16, Run)>,
    /// The home of that has gone, which its shards know.
    orphaned: bool,
}

impl Roster {
    /// There is a link to a node.
    pub(super) fn linked(&mut self, node: u16) {
        self.peers.insert(node, None);
    }

    /// The link to a node is lost.
    pub(super) fn lost(&mut self, node: u16) -> Option<Step> {
        let run = self.peers.remove(&node)??;
        self.note_gone(node, &run);
        self.is_with_us(&run).then_some(Step::Gone(node, run))
    }

    /// A node serves. Its run before, if it has not said that it is over, is.
    pub(super) fn up(&mut self, node: u16, run: Run) -> Vec<Step> {
        let mut steps = Vec::new();
        let Some(known) = self.peers.get_mut(&node) else {
            return steps;
        };
        let before = known.replace(run);
        if let Some(before) = before.filter(|before| self.is_with_us(before)) {
            self.note_gone(node, &before);
            steps.push(Step::Gone(node, before));
        }
        if self.is_with_us(&run) {
            steps.push(Step::Joined(vec![(node, run)]));
        }
        steps
    }

    /// A run of a node is over.
    pub(super) fn down(&mut self, node: u16, number: u64) -> Option<Step> {
        let known = self.peers.get_mut(&node)?;
        let run = known.take_if(|run| run.number == number)?;
        self.note_gone(node, &run);
        self.is_with_us(&run).then_some(Step::Gone(node, run))
    }

    /// The own shards begin: who is with them.
    pub(super) fn begin(&mut self, here: u16, run: Run) -> Vec<(u16, Run)> {
        self.own = Some((here, run));
        self.orphaned = false;
        self.with_us().collect()
    }

    /// The own shards end.
    pub(super) fn end(&mut self) -> Option<Run> {
        self.orphaned = false;
        self.own.take().map(|(_, run)| run)
    }

    /// What the own shards are.
    pub(super) fn own(&self) -> Option<&Run> {
        self.own.as_ref().map(|(_, run)| run)
    }

    /// This node, and what it serves.
    pub(super) const fn own_place(&self) -> Option<(u16, Run)> {
        self.own
    }

    /// What another node serves, as far as it has said so.
    pub(super) fn served_by(&self, node: u16) -> Option<&Run> {
        self.peers.get(&node)?.as_ref()
    }

    /// A node that has what is durable, with its run.
    pub(super) fn home(&self) -> Option<(u16, Run)> {
        let mut homes = self.peers.iter().filter_map(|(node, run)| {
            let run = (*run)?;
            run.is_home_at(*node).then_some((*node, run))
        });
        homes.next()
    }

    /// Other nodes with the same home, and their runs.
    pub(super) fn with_us(&self) -> impl Iterator<Item = (u16, Run)> {
        let runs = self.peers.iter();
        let runs = runs.filter_map(|(node, run)| Some((*node, (*run)?)));
        runs.filter(|(_, run)| self.is_with_us(run))
    }

    /// The home of the own shards is gone.
    pub(super) fn is_homeless(&self) -> bool {
        let Some((here, own)) = &self.own else {
            return false;
        };
        let Home { node: home, run } = own.home;
        let is_there = || {
            let known = self.peers.get(&home).copied().flatten();
            known.is_some_and(|known| known.number == run)
        };
        self.orphaned || home != *here && !is_there()
    }

    /// A run is gone: one that comes back under its number is another home.
    fn note_gone(&mut self, node: u16, run: &Run) {
        let home = self.own.map(|(_, own)| own.home);
        let gone = Home {
            node,
            run: run.number,
        };
        self.orphaned |= home == Some(gone);
    }

    fn is_with_us(&self, run: &Run) -> bool {
        self.own.is_some_and(|(_, own)| own.home == run.home)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(node: u16, number: u64) -> Run {
        Run {
            number,
            home: Home { node, run: number },
            shards: 2,
        }
    }

    fn edge(number: u64, of: Run) -> Run {
        Run {
            number,
            home: of.home,
            shards: 1,
        }
    }

    #[test]
    fn an_edge_begins_with_the_home_and_the_other_edges_of_it() {
        let mut roster = Roster::default();
        assert_eq!(roster.home(), None);
        let (a, old) = (home(1, 10), home(9, 90));
        for (node, run) in [(1, a), (2, edge(20, a)), (3, edge(30, old))] {
            roster.linked(node);
            assert!(roster.up(node, run).is_empty(), "nothing is served here");
        }
        assert_eq!(roster.home(), Some((1, a)));
        assert_eq!(roster.begin(4, edge(40, a)), [(1, a), (2, edge(20, a))]);
        assert!(!roster.is_homeless());
        // One that served another home serves this one now.
        let steps = roster.up(3, edge(31, a));
        assert_eq!(steps, [Step::Joined(vec![(3, edge(31, a))])]);
    }

    #[test]
    fn a_run_that_ends_is_gone_once() {
        let mut roster = Roster::default();
        let a = home(1, 10);
        roster.begin(1, a);
        for node in [2, 3] {
            roster.linked(node);
        }
        assert_eq!(roster.up(2, edge(20, a)).len(), 1);
        // Its next run comes before what ends the first.
        let steps = roster.up(2, edge(21, a));
        let gone = Step::Gone(2, edge(20, a));
        assert_eq!(steps, [gone, Step::Joined(vec![(2, edge(21, a))])]);
        assert_eq!(roster.down(2, 20), None, "it is gone already");
        assert_eq!(roster.down(2, 21), Some(Step::Gone(2, edge(21, a))));
        assert_eq!(roster.lost(2), None);
        assert_eq!(roster.up(4, edge(40, a)), [], "there is no link");
    }

    #[test]
    fn an_edge_has_no_home_any_more_when_that_ends() {
        let mut roster = Roster::default();
        let a = home(1, 10);
        roster.linked(1);
        roster.up(1, a);
        roster.begin(2, edge(20, a));
        assert_eq!(roster.lost(1), Some(Step::Gone(1, a)));
        assert!(roster.is_homeless());
        roster.linked(1);
        roster.up(1, home(1, 11));
        assert!(roster.is_homeless(), "another run is another home");
        roster.up(1, a);
        assert!(roster.is_homeless(), "the shards know that it was gone");
        assert_eq!(roster.end(), Some(edge(20, a)));
        assert!(!roster.is_homeless());
        assert_eq!(roster.home(), Some((1, a)));
    }
}
