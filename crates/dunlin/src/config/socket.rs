//! Listeners at Unix sockets: their file, its permissions and its group.

use std::io;

use dunlin_net::UnixAccess;

use super::error::Wrong;
use super::listener::{Kind, Listener};
use super::mode::Mode;

/// Permissions of a socket when none are configured: the broker's user and group.
pub const SOCKET_MODE: Mode = Mode(0o660);

/// Where the system has its groups.
const GROUPS: &str = "/etc/group";

/// What is wrong with a listener, as far as sockets are concerned, as key and sentence.
pub(super) fn check(listener: &Listener) -> Result<(), Wrong> {
    let wrong = |key, why: &str| Err((key, why.to_owned()));
    let name = listener.transport.name();
    if listener.transport != Kind::Unix {
        let why = format!("a {name} listener has no file; only unix has");
        return match (&listener.mode, &listener.group) {
            (Some(_), _) => Err(("mode", why)),
            (_, Some(_)) => Err(("group", why)),
            _ => Ok(()),
        };
    }
    if listener.path.as_deref().is_none_or(str::is_empty) {
        return wrong("path", "a unix listener needs the path of its socket");
    }
    if listener.address.is_some() {
        return wrong("address", "a unix listener has a path and no address");
    }
    let behind = [
        ("proxy_protocol", listener.proxy_protocol.is_some()),
        ("trusted", listener.trusted.is_some()),
    ];
    match behind.iter().find(|(_, is_set)| *is_set) {
        Some((key, _)) => wrong(key, "a unix listener is behind no proxy"),
        None => Ok(()),
    }
}

/// Who may connect to the socket of a listener.
///
/// # Errors
/// There is no such group, or the system's list of groups cannot be read.
pub(crate) fn access(listener: &Listener) -> io::Result<UnixAccess> {
    let group = match &listener.group {
        Some(name) => Some(group(name)?),
        None => None,
    };
    Ok(UnixAccess {
        mode: listener.mode.unwrap_or(SOCKET_MODE).0,
        group,
    })
}

/// The number of a group, by that number or by its name.
fn group(name: &str) -> io::Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let found = find(&std::fs::read_to_string(GROUPS)?, name);
    found.ok_or_else(|| {
        let why = format!("{GROUPS} has no group `{name}`; write its number");
        io::Error::new(io::ErrorKind::NotFound, why)
    })
}

/// The number of a group in the lines of `/etc/group`.
fn find(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_it = fields.next() == Some(name);
        fields.nth(1).filter(|_| is_it)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_by_name_and_number() {
        let groups = "root:x:0:\nmqtt:x:123:alice,bob\nbroken\nshort:x\n";
        assert_eq!(find(groups, "mqtt"), Some(123));
        assert_eq!(find(groups, "alice"), None);
        assert_eq!(find(groups, "short"), None);
        assert_eq!(group("77").expect("a number"), 77);
        let error = group("no such group").expect_err("unknown");
        assert!(error.to_string().contains("has no group"), "{error}");
    }
}
