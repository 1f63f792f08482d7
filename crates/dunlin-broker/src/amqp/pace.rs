//! How far a client may send to a node: the node says so, as it has room.

/// Of one link.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Messages that have come.
    sent: u32,
    /// The last message that may come.
    limit: u32,
    /// More is asked for when so much credit is left.
    low: u32,
    /// What was said when the node was asked, which has not answered.
    asked: Option<u32>,
}

impl Default for Pace {
    /// Of a link that is being attached.
    fn default() -> Self {
        Self {
            sent: 0,
            limit: 0,
            low: 0,
            asked: Some(0),
        }
    }
}

impl Pace {
    /// Another message has come.
    pub(super) const fn note_sent(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// Messages that may still come.
    pub(super) fn credit(&self) -> u32 {
        let credit = self.limit.wrapping_sub(self.sent).cast_signed();
        u32::try_from(credit).unwrap_or(0)
    }

    /// The node says which message may be the last.
    pub(super) fn allow(&mut self, limit: u32) {
        self.limit = limit;
        self.low = self.credit() / 2;
        self.asked = None;
    }

    /// Whether the node has to hear how many messages have come: when little credit is
    /// left, and once more when there is none.
    pub(super) fn ask(&mut self) -> Option<u32> {
        let credit = self.credit();
        let is_due = match self.asked {
            None => credit <= self.low,
            Some(said) => credit == 0 && said != self.sent,
        };
        is_due.then(|| *self.asked.insert(self.sent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_asked_when_half_is_used_and_when_nothing_is_left() {
        let mut pace = Pace::default();
        assert_eq!((pace.credit(), pace.ask()), (0, None));
        let asked = |pace: &mut Pace| {
            pace.note_sent();
            pace.ask()
        };
        pace.allow(4);
        assert_eq!((pace.credit(), pace.ask()), (4, None));
        let all = [(); 4].map(|()| asked(&mut pace));
        assert_eq!(all, [None, Some(2), None, Some(4)]);
        pace.allow(5);
        assert_eq!((pace.ask(), asked(&mut pace)), (None, Some(5)));
        // The node takes back what the client has used meanwhile.
        pace.allow(9);
        pace.note_sent();
        pace.note_sent();
        pace.allow(6);
        assert_eq!((pace.credit(), pace.ask()), (0, Some(7)));
    }
}
