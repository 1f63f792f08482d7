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
#[must_use]
pub fn of_queue(name: &str) -> Option<String> {
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

/// In front of the name of a queue that the broker has given it.
pub(crate) const DYNAMIC: &str = "/queues/dynamic-";

/// Whether the broker has made this address.
pub(crate) fn is_dynamic(address: &str) -> bool {
    address.starts_with(DYNAMIC)
}

/// Whether this is the address of a subscription.
pub(crate) fn is_subscription(address: &str) -> bool {
    address.starts_with(SUBSCRIPTIONS)
}

/// The address of a subscription by the container that has it, if only that may,
/// and its name.
pub(crate) fn of_subscription(container: Option<&str>, kind: &str, name: &str) -> Option<String> {
    // The name comes last, so that nothing but the container can be mistaken.
    let container = container.unwrap_or_default();
    let container = container.replace('%', "%25").replace('/', "%2F");
    let address = format!("{SUBSCRIPTIONS}{kind}/{container}/{name}");
    (address.len() <= ADDRESS_BYTES_MAX).then_some(address)
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

    #[test]
    fn subscriptions_of_two_containers_differ() {
        let of = |container, name| of_subscription(Some(container), "kept", name);
        assert_ne!(of("a/b", "c"), of("a", "b/c"));
        assert_ne!(of("a%2Fb", "c"), of("a/b", "c"));
        assert_eq!(of("a", "c").as_deref(), Some("/subscriptions/kept/a/c"));
        let all = of_subscription(None, "shared", "s");
        assert_eq!(all.as_deref(), Some("/subscriptions/shared//s"));
    }
}
