//! Slows down who guesses passwords: after a few wrong ones the next attempt is
//! looked at only after a while, which grows. Counted by user and address together,
//! so that others who have that user's password get in from elsewhere, and by
//! address for those who try many names.

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;
use std::collections::HashMap;
use std::time::Instant;

use dunlin_base::Text;

/// Wrong passwords of a user from an address before the next attempt has to wait.
const FREE: u32 = 3;

/// Names with a wrong password from an address before attempts under others wait too.
const FREE_NAMES: u32 = 20;

/// Entries in each of two generations. When the younger one is full the older one is
/// forgotten.
const ENTRIES_MAX: usize = 32_768;

/// Time after which wrong passwords are forgotten, after the last one.
const FORGET: Duration = Duration::from_secs(15 * 60);

/// Longest name that is kept; longer ones count by their beginning.
const NAME_BYTES_MAX: usize = 64;

/// How long attempts have to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delays {
    /// After the first wrong password that is not free; doubled with each one more.
    /// Zero: none.
    pub first: Duration,
    /// At most.
    pub longest: Duration,
}

/// Whose wrong passwords are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Both(Box<str>, IpAddr),
    Address(IpAddr),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    wrong: u32,
    /// The next attempt is not looked at before.
    until: Instant,
    last: Instant,
}

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Throttle {
    delays: Delays,
    young: HashMap<Key, Entry>,
    old: HashMap<Key, Entry>,
}

impl Throttle {
    pub(crate) fn new(delays: Delays) -> Self {
        Self {
            delays,
            young: HashMap::new(),
            old: HashMap::new(),
        }
    }

    /// Whether an attempt may be looked at now. One that may takes the place of all
    /// others until the wait after it is over.
    pub(crate) fn admits(&mut self, user: &Text, address: IpAddr, now: Instant) -> bool {
        if self.young.is_empty() {
            return true;
        }
        let keys = [both(user, address), Key::Address(network(address))];
        let waits = |entry: Entry| entry.until > now;
        if keys.iter().any(|key| self.get(key, now).is_some_and(waits)) {
            return false;
        }
        for key in keys {
            if let Some(mut entry) = self.get(&key, now) {
                entry.until = now + self.delay(&key, entry.wrong);
                self.put(key, entry);
            }
        }
        true
    }

    /// A password was wrong.
    pub(crate) fn note_wrong(&mut self, user: &Text, address: IpAddr, now: Instant) {
        let key = both(user, address);
        if self.add(key, now) == 1 {
            self.add(Key::Address(network(address)), now);
        }
    }

    /// A password was right.
    pub(crate) fn note_right(&mut self, user: &Text, address: IpAddr) {
        if self.young.is_empty() {
            return;
        }
        let key = both(user, address);
        self.young.remove(&key);
        self.old.remove(&key);
        let own = Key::Address(network(address));
        // The attempt that took its place was not one of a guesser.
        for generation in [&mut self.young, &mut self.old] {
            if let Some(entry) = generation.get_mut(&own) {
                entry.until = entry.last;
            }
        }
    }

    /// Counts one more; returns how many there are.
    fn add(&mut self, key: Key, now: Instant) -> u32 {
        if self.delays.first.is_zero() {
            return 0;
        }
        let wrong = self.get(&key, now).map_or(0, |entry| entry.wrong);
        let wrong = wrong.saturating_add(1);
        let until = now + self.delay(&key, wrong);
        let last = now;
        self.put(key, Entry { wrong, until, last });
        wrong
    }

    fn get(&self, key: &Key, now: Instant) -> Option<Entry> {
        let found = self.young.get(key).or_else(|| self.old.get(key)).copied();
        found.filter(|entry| now.saturating_duration_since(entry.last) < FORGET)
    }

    fn put(&mut self, key: Key, entry: Entry) {
        if self.young.len() >= ENTRIES_MAX && !self.young.contains_key(&key) {
            self.old = core::mem::take(&mut self.young);
        }
        self.young.insert(key, entry);
    }

    fn delay(&self, key: &Key, wrong: u32) -> Duration {
        let free = match key {
            Key::Both(..) => FREE,
            Key::Address(_) => FREE_NAMES,
        };
        let Some(doubled) = wrong.checked_sub(free) else {
            return Duration::ZERO;
        };
        let factor = 1u32.checked_shl(doubled).unwrap_or(u32::MAX);
        self.delays
            .first
            .saturating_mul(factor)
            .min(self.delays.longest)
    }
}

fn both(user: &Text, address: IpAddr) -> Key {
    let mut end = user.len().min(NAME_BYTES_MAX);
    while !user.is_char_boundary(end) {
        end -= 1;
    }
    let name = user.get(..end).unwrap_or_default();
    Key::Both(name.into(), network(address))
}

/// What counts as one: an IPv4 address, an IPv6 network (/64).
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn throttle() -> (Throttle, Instant) {
        let delays = Delays {
            first: SECOND,
            longest: 8 * SECOND,
        };
        (Throttle::new(delays), Instant::now())
    }

    fn ip(n: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, n])
    }

    #[test]
    fn attempts_wait_longer_and_longer_and_others_do_not() {
        let (mut throttle, mut now) = throttle();
        let alice = Text::from_static("alice");
        for _ in 0..FREE {
            assert!(throttle.admits(&alice, ip(1), now));
            throttle.note_wrong(&alice, ip(1), now);
        }
        for wait in [1, 2, 4, 8, 8] {
            let wait = wait * SECOND;
            assert!(!throttle.admits(&alice, ip(1), now));
            assert!(!throttle.admits(&alice, ip(1), now + wait - SECOND / 2));
            now += wait;
            assert!(throttle.admits(&alice, ip(1), now));
            // One at a time, however many come together.
            assert!(!throttle.admits(&alice, ip(1), now));
            throttle.note_wrong(&alice, ip(1), now);
        }
        assert!(throttle.admits(&alice, ip(2), now), "from elsewhere");
        let bob = Text::from_static("bob");
        assert!(throttle.admits(&bob, ip(1), now), "another user");
        now += FORGET;
        assert!(throttle.admits(&alice, ip(1), now));
        throttle.note_wrong(&alice, ip(1), now);
        assert!(throttle.admits(&alice, ip(1), now), "it was forgotten");
    }

    #[test]
    fn a_right_password_ends_the_wait() {
        let (mut throttle, now) = throttle();
        let alice = Text::from_static("alice");
        for _ in 0..=FREE {
            throttle.note_wrong(&alice, ip(1), now);
        }
        let later = now + 2 * SECOND;
        assert!(throttle.admits(&alice, ip(1), later));
        throttle.note_right(&alice, ip(1));
        assert!(throttle.admits(&alice, ip(1), later));
    }

    #[test]
    fn many_names_from_one_address_wait_together() {
        let (mut throttle, now) = throttle();
        let name = |n: u32| Text::from(n.to_string().as_str());
        for n in 0..FREE_NAMES {
            assert!(throttle.admits(&name(n), ip(1), now), "{n}");
            // A device that does not know its password tries again and again.
            throttle.note_wrong(&name(n), ip(1), now);
            throttle.note_wrong(&name(n), ip(1), now);
        }
        assert!(!throttle.admits(&name(99), ip(1), now));
        assert!(throttle.admits(&name(99), ip(2), now));
        assert!(throttle.admits(&name(99), ip(1), now + SECOND));
        assert!(!throttle.admits(&name(98), ip(1), now + SECOND));
        // Who gets in does not use up the only attempt.
        throttle.note_right(&name(99), ip(1));
        assert!(throttle.admits(&name(98), ip(1), now + SECOND));
    }

    #[test]
    fn the_table_is_bounded_and_an_ipv6_network_counts_as_one() {
        let (mut throttle, now) = throttle();
        for n in 0..3 * ENTRIES_MAX as u32 {
            let user = Text::from(n.to_string().as_str());
            throttle.note_wrong(&user, ip(1), now);
        }
        assert!(throttle.young.len() + throttle.old.len() <= 2 * ENTRIES_MAX);
        let alice = Text::from_static("alice");
        let v6 = |text: &str| text.parse::<IpAddr>().expect("address");
        for n in 0..FREE {
            let address = v6(&format!("2001:db8::{n}"));
            throttle.note_wrong(&alice, address, now);
        }
        assert!(!throttle.admits(&alice, v6("2001:db8::ffff"), now));
        assert!(throttle.admits(&alice, v6("2001:db8:0:1::1"), now));
        let long = Text::from("ä".repeat(NAME_BYTES_MAX).as_str());
        throttle.note_wrong(&long, ip(9), now);
    }

    #[test]
    fn without_delays_nothing_is_counted() {
        let mut throttle = Throttle::new(Delays {
            first: Duration::ZERO,
            longest: SECOND,
        });
        let (alice, now) = (Text::from_static("alice"), Instant::now());
        (0..99).for_each(|_| throttle.note_wrong(&alice, ip(1), now));
        assert!(throttle.admits(&alice, ip(1), now) && throttle.young.is_empty());
    }
}
