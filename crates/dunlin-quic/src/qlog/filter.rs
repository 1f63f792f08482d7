//! Which connections are logged: by address, by client identifier, one of so
//! many.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::str::FromStr;

/// Entries of one list at most.
pub(super) const ENTRIES_MAX: usize = 64;

/// Which connections are logged; those that any of its parts lets through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QlogFilter {
    /// Addresses that connections come from.
    pub addresses: Vec<AddrRange>,
    /// Client identifiers; a `*` at the end stands for the rest. While there is
    /// one, the beginning of every connection is kept in memory until its
    /// client is known.
    pub clients: Vec<String>,
    /// One in so many connections; 1: all; 0: none.
    pub one_in: u32,
}

impl QlogFilter {
    /// Lets everything through.
    #[must_use]
    pub fn all() -> Self {
        Self {
            one_in: 1,
            ..Self::default()
        }
    }

    /// Whether it lets nothing through.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.one_in == 0 && self.addresses.is_empty() && self.clients.is_empty()
    }

    /// Whether a list is longer than can be looked through for each connection.
    #[must_use]
    pub const fn is_too_long(&self) -> bool {
        self.addresses.len() > ENTRIES_MAX || self.clients.len() > ENTRIES_MAX
    }

    pub(super) fn has_address(&self, ip: IpAddr) -> bool {
        self.addresses.iter().any(|range| range.contains(ip))
    }

    pub(super) fn has_client(&self, client_id: &str) -> bool {
        self.clients
            .iter()
            .any(|pattern| match pattern.strip_suffix('*') {
                Some(begin) => client_id.starts_with(begin),
                None => client_id == pattern,
            })
    }
}

/// A range of addresses, as `192.0.2.0/24`, or one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddrRange {
    base: IpAddr,
    bits: u8,
}

/// That is no range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an address or a range such as 192.0.2.0/24 or 2001:db8::/32")]
pub struct ParseRangeError;

impl AddrRange {
    /// Whether the address is in it. IPv4 and IPv6 are kept apart.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        let (base, base_len) = number(self.base);
        let (ip, len) = number(ip);
        let shift = u32::from(len.saturating_sub(self.bits));
        base_len == len && (shift >= 128 || (base ^ ip) >> shift == 0)
    }
}

/// An address as a number, and its bits.
fn number(ip: IpAddr) -> (u128, u8) {
    match ip {
        IpAddr::V4(ip) => (u128::from(ip.to_bits()), 32),
        IpAddr::V6(ip) => (Ipv6Addr::to_bits(ip), 128),
    }
}

impl FromStr for AddrRange {
    type Err = ParseRangeError;

    fn from_str(text: &str) -> Result<Self, ParseRangeError> {
        let (base, bits) = match text.split_once('/') {
            Some((base, bits)) => (base, Some(bits.parse().map_err(|_| ParseRangeError)?)),
            None => (text, None),
        };
        let base: IpAddr = base.parse().map_err(|_| ParseRangeError)?;
        let len = number(base).1;
        let bits = bits.unwrap_or(len);
        if bits > len {
            return Err(ParseRangeError);
        }
        Ok(Self { base, bits })
    }
}

impl fmt::Display for AddrRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_written_and_matched() {
        for (text, inside, outside) in [
            ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
            ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("0.0.0.0/0", "203.0.113.9", "::1"),
            ("::/0", "2001:db8::1", "127.0.0.1"),
        ] {
            let range: AddrRange = text.parse().unwrap();
            assert!(range.contains(inside.parse().unwrap()), "{text}");
            assert!(!range.contains(outside.parse().unwrap()), "{text}");
            assert_eq!(range.to_string().parse(), Ok(range));
        }
        for text in ["", "1.2.3", "1.2.3.4/33", "::/129", "1.2.3.4/x", "1.2.3.4/"] {
            assert_eq!(text.parse::<AddrRange>(), Err(ParseRangeError), "{text}");
        }
    }

    #[test]
    fn clients_match_whole_or_by_their_beginning() {
        let filter = QlogFilter {
            clients: vec!["one".into(), "sensor-*".into()],
            ..QlogFilter::default()
        };
        assert!(filter.has_client("one") && filter.has_client("sensor-7"));
        assert!(!filter.has_client("one2") && !filter.has_client("sensor"));
        assert!(!filter.is_empty() && QlogFilter::default().is_empty());
    }
}
