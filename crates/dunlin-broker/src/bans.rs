//! Who may not connect: client identifiers, users, addresses; each for a time or for
//! good. Pure and without state.

use core::net::IpAddr;

use alloc::vec::Vec;

use dunlin_base::{AddrRange, Instant, Text};
use hashbrown::HashMap;

/// Who is banned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Banned {
    /// A client identifier, or container id.
    Client(Text),
    /// A user that has authenticated.
    User(Text),
    /// Where clients connect from.
    Address(AddrRange),
}

/// All who are banned, and until when.
#[derive(Debug, Default)]
pub struct Bans {
    clients: HashMap<Text, Instant>,
    users: HashMap<Text, Instant>,
    addresses: HashMap<IpAddr, Instant>,
    ranges: Vec<(AddrRange, Instant)>,
}

impl FromIterator<(Banned, Instant)> for Bans {
    fn from_iter<I: IntoIterator<Item = (Banned, Instant)>>(bans: I) -> Self {
        let mut all = Self::default();
        for (banned, until) in bans {
            match banned {
                Banned::Client(client_id) => _ = all.clients.insert(client_id, until),
                Banned::User(user) => _ = all.users.insert(user, until),
                Banned::Address(range) => match range.alone() {
                    Some(addr) => _ = all.addresses.insert(addr.to_canonical(), until),
                    None => all.ranges.push((range, until)),
                },
            }
        }
        all
    }
}

/// Ranges compared in the time of one look at a table.
const RANGES_A_LOOK: usize = 16;

impl Bans {
    /// What it costs to compare a client with all, in looks at a table.
    pub(crate) fn cost(&self) -> usize {
        self.ranges.len() / RANGES_A_LOOK
    }

    /// Whether a client is banned.
    #[must_use]
    pub fn has(&self, client_id: &str, user: Option<&Text>, addr: IpAddr, now: Instant) -> bool {
        let addr = addr.to_canonical();
        let of_client = self.clients.get(client_id.as_bytes());
        let of_user = user.and_then(|user| self.users.get(user.as_bytes()));
        let of_address = self.addresses.get(&addr);
        let found = [of_client, of_user, of_address].into_iter().flatten();
        let mut ranges = self.ranges.iter();
        found.copied().any(|until| now < until)
            || ranges.any(|(range, until)| now < *until && range.contains(addr))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ban_holds_for_whom_it_names_until_it_ends() {
        let now = Instant::from_micros(10);
        let later = Instant::from_micros(20);
        let range = |text: &str| Banned::Address(text.parse().expect("a range"));
        let text = Text::from_static;
        let bans: Bans = [
            (Banned::Client(text("a")), later),
            (Banned::User(text("ann")), Instant::FAR_FUTURE),
            (range("192.0.2.7"), later),
            (range("10.0.0.0/8"), later),
            (range("2001:db8::/32"), later),
        ]
        .into_iter()
        .collect();
        let has = |id: &str, user: Option<&'static str>, addr: &str, at| {
            let user = user.map(text);
            bans.has(id, user.as_ref(), addr.parse().expect("an address"), at)
        };
        for (id, user, addr, now_is, later_is) in [
            ("a", None, "127.0.0.1", true, false),
            ("b", None, "127.0.0.1", false, false),
            ("b", Some("ann"), "127.0.0.1", true, true),
            ("ann", Some("a"), "127.0.0.1", false, false),
            ("b", None, "192.0.2.7", true, false),
            ("b", None, "::ffff:192.0.2.7", true, false),
            ("b", None, "192.0.2.8", false, false),
            ("b", None, "10.255.255.255", true, false),
            ("b", None, "::ffff:10.0.0.1", true, false),
            ("b", None, "2001:db8:1::1", true, false),
            ("b", None, "::1", false, false),
        ] {
            assert_eq!(has(id, user, addr, now), now_is, "{id} {user:?} {addr}");
            assert_eq!(has(id, user, addr, later), later_is, "{id} {user:?} {addr}");
        }
        assert!(!Bans::default().has("a", None, [127, 0, 0, 1].into(), now));
    }
}
