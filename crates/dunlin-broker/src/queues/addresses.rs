//! Addresses of nodes: what the access list and the store know them by.

use alloc::format;
use alloc::string::String;

use dunlin_base::topic::validate_name;

/// In front of the name of a queue.
pub(crate) const QUEUES: &str = "/queues/";

/// Likewise, of a subscription that outlives its link, or that links share. No
/// link is attached to such an address: it is a topic there.
const SUBSCRIPTIONS: &str = "/subscriptions/";

/// Most bytes of an address.
pub(crate) const ADDRESS_BYTES_MAX: usize = 512;

/// The address of a queue, from its name or its address.
pub(crate) fn of_queue(name: &str) -> Option<String> {
    let address = match name.starts_with(QUEUES) {
        true => String::from(name),
        false => format!("{QUEUES}{name}"),
    };
    is_queue(&address).then_some(address)
}

/// Whether this is an address of a queue.
pub(crate) fn is_queue(address: &str) -> bool {
    let name = address.strip_prefix(QUEUES);
    name.is_some_and(|name| !name.is_empty())
        && address.len() <= ADDRESS_BYTES_MAX
        && validate_name(address).is_ok()
}

/// Whether this is the address of a subscription.
pub(crate) fn is_subscription(address: &str) -> bool {
    address.starts_with(SUBSCRIPTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_have_names_without_wildcards() {
        for (name, address) in [
            ("q", Some("/queues/q")),
            ("/queues/q", Some("/queues/q")),
            ("a/b", Some("/queues/a/b")),
            ("", None),
            ("/queues/", None),
            ("a/#", None),
            ("a+", None),
        ] {
            assert_eq!(of_queue(name).as_deref(), address, "{name}");
        }
        assert!(of_queue(&"x".repeat(ADDRESS_BYTES_MAX)).is_none());
        assert!(!is_queue("queues/q") && !is_queue("/topics/q"));
    }
}
