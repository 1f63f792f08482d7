//! Which connections are logged: by address, by client identifier, one of so
//! many.

use core::net::IpAddr;

use dunlin_base::AddrRange;

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

#[cfg(test)]
mod tests {
    use super::*;

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
