//! What clients had sent ahead of their quotas when their connections ended: who comes
//! back goes on with it.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use dunlin_base::{Instant, Text};

/// Clients whose debts are known.
pub(crate) const DEBTS_MAX: usize = 4096;

/// Bytes of their names.
pub(crate) const DEBTS_BYTES_MAX: usize = 1 << 20;

/// Longest time for which a debt is known.
pub(crate) const DEBT_TIME_MAX: Duration = Duration::from_secs(3600);

/// Whose a debt is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Debtor {
    /// The user, if it has a name.
    pub user: Option<Text>,
    /// The client identifier.
    pub client_id: Text,
}

impl Debtor {
    fn bytes(&self) -> usize {
        let user = self.user.as_ref().map_or(0, |user| user.len());
        user + self.client_id.len()
    }
}

/// When what a client has sent is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debt {
    /// The messages.
    pub messages: Instant,
    /// The bytes.
    pub bytes: Instant,
}

impl Debt {
    fn end(&self) -> Instant {
        self.messages.max(self.bytes)
    }
}

/// Debts of clients, until they are paid. Where there are too many, those that are paid
/// first are forgotten.
#[derive(Debug, Default)]
pub(crate) struct Debts {
    by_debtor: BTreeMap<Debtor, Debt>,
    by_end: BTreeSet<(Instant, Debtor)>,
    bytes: usize,
}

impl Debts {
    pub(crate) fn get(&self, debtor: &Debtor, now: Instant) -> Option<Debt> {
        let debt = self.by_debtor.get(debtor)?;
        (debt.end() > now).then_some(*debt)
    }

    /// Keeps the debt of a client whose connection has ended, beside one that is known.
    pub(crate) fn keep(&mut self, debtor: Debtor, debt: Debt, now: Instant) {
        let latest = now + DEBT_TIME_MAX;
        let before = self.remove(&debtor).unwrap_or(debt);
        let debt = Debt {
            messages: debt.messages.max(before.messages).min(latest),
            bytes: debt.bytes.max(before.bytes).min(latest),
        };
        self.bytes += debtor.bytes();
        self.by_end.insert((debt.end(), debtor.clone()));
        self.by_debtor.insert(debtor, debt);
        while let Some((end, first)) = self.by_end.first().cloned()
            && (end <= now || self.by_debtor.len() > DEBTS_MAX || self.bytes > DEBTS_BYTES_MAX)
        {
            self.remove(&first);
        }
    }

    fn remove(&mut self, debtor: &Debtor) -> Option<Debt> {
        let (debtor, debt) = self.by_debtor.remove_entry(debtor)?;
        self.bytes -= debtor.bytes();
        self.by_end.remove(&(debt.end(), debtor));
        Some(debt)
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    const NOW: Instant = Instant::from_micros(1_000_000);

    fn debtor(number: usize) -> Debtor {
        Debtor {
            user: None,
            client_id: Text::from(format!("{number:04}")),
        }
    }

    fn debt(secs: u64) -> Debt {
        Debt {
            messages: NOW + Duration::from_secs(secs),
            bytes: NOW,
        }
    }

    #[test]
    fn a_debt_is_known_until_it_is_paid() {
        let mut debts = Debts::default();
        debts.keep(debtor(1), debt(10), NOW);
        debts.keep(debtor(1), debt(5), NOW);
        assert_eq!(debts.get(&debtor(1), NOW), Some(debt(10)));
        assert_eq!(debts.get(&debtor(2), NOW), None);
        let other = Debtor {
            user: Some(Text::from_static("ann")),
            ..debtor(1)
        };
        assert_eq!(debts.get(&other, NOW), None);
        let late = NOW + Duration::from_secs(10);
        assert_eq!(debts.get(&debtor(1), late), None);
        debts.keep(debtor(2), debt(u64::MAX >> 24), NOW);
        let most = debts.get(&debtor(2), NOW).expect("a debt");
        assert_eq!(most.messages, NOW + DEBT_TIME_MAX);
        debts.keep(debtor(3), debt(20), late);
        assert_eq!(debts.by_debtor.len(), 2, "one is paid");
        assert_eq!((debts.by_end.len(), debts.bytes), (2, 8));
    }

    #[test]
    fn those_that_are_paid_first_make_room() {
        let mut debts = Debts::default();
        for number in 0..DEBTS_MAX + 10 {
            debts.keep(debtor(number), debt(1 + number as u64 / 4), NOW);
        }
        assert_eq!(debts.by_debtor.len(), DEBTS_MAX);
        assert_eq!(debts.get(&debtor(9), NOW), None);
        assert!(debts.get(&debtor(10), NOW).is_some());
        let long = Debtor {
            user: None,
            client_id: Text::from("x".repeat(DEBTS_BYTES_MAX - 100)),
        };
        debts.keep(long.clone(), debt(3000), NOW);
        assert!(debts.get(&long, NOW).is_some());
        assert_eq!(debts.by_debtor.len(), 26);
        assert_eq!(debts.by_debtor.len(), debts.by_end.len());
    }
}
