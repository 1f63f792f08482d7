//! Connections and links that another server is to serve, as the configuration says:
//! `amqp:connection:redirect`, `amqp:link:redirect`, with where it is (sections 2.8.16
//! and 2.8.18).

use alloc::string::String;
use alloc::vec::Vec;

use dunlin_amqp::LinkId;
use dunlin_amqp::codec::{
    AnyTarget, Attach, Error, Map, Role, Symbol, Symbols, Value, capability, condition,
};
use dunlin_base::topic::Filter;

use crate::amqp::attaching::topic_of;
use crate::config::{LinkRedirect, Server};
use crate::ids::ConnIdx;
use crate::owners::Owners;
use crate::queues::addresses;

/// Closes a connection that is for another server; `false`: it is for this one.
pub(super) fn redirect_connection(own: &mut Owners, c: ConnIdx) -> bool {
    let (Some(server), Some(conn)) = (&own.config.redirect.amqp, own.conns.amqp_mut(c)) else {
        return false;
    };
    let entries = entries(server, None);
    let error = error(condition::CONNECTION_REDIRECT, &entries);
    let _ = conn.engine.close(own.now, Some(&error));
    own.conns.touch(c);
    true
}

/// Refuses a link whose address another server has; `false`: this one has it.
pub(super) fn redirect_link(own: &mut Owners, c: ConnIdx, id: LinkId, attach: &Attach<'_>) -> bool {
    let rule = find(&own.config.redirect.links, attach);
    let (Some(rule), Some(conn)) = (rule, own.conns.amqp_mut(c)) else {
        return false;
    };
    let entries = entries(&rule.server, rule.address.as_deref());
    let error = error(condition::LINK_REDIRECT, &entries);
    let _ = conn.engine.refuse_attach(id, &error);
    own.conns.touch(c);
    true
}

fn entries<'a>(server: &'a Server, address: Option<&'a str>) -> Vec<(Value<'a>, Value<'a>)> {
    let entry = |name, value| (Value::Symbol(Symbol::from_static(name)), value);
    let mut entries = alloc::vec![
        entry("hostname", Value::String(&server.host)),
        entry("network-host", Value::String(&server.host)),
        entry("port", Value::Uint(server.port.into())),
    ];
    entries.extend(address.map(|address| entry("address", Value::String(address))));
    entries
}

fn error<'a>(condition: Symbol<'static>, entries: &'a [(Value<'a>, Value<'a>)]) -> Error<'a> {
    Error {
        info: Some(Map::new(entries)),
        ..Error::new(condition, "another server serves it")
    }
}

/// The first rule for the address of a link.
fn find<'a>(rules: &'a [LinkRedirect], attach: &Attach<'_>) -> Option<&'a LinkRedirect> {
    if rules.is_empty() {
        return None;
    }
    let address = address_of(attach)?;
    let address = Filter::parse(&address).ok()?.filter;
    rules.iter().find(|rule| covers(&rule.filter, address))
}

/// What a link is attached to: a topic, a topic filter, the address of a queue.
fn address_of(attach: &Attach<'_>) -> Option<String> {
    let (address, dynamic, all) = match (attach.role, attach.target) {
        (Role::Sender, Some(AnyTarget::Target(it))) => (it.address, it.dynamic, it.capabilities),
        (Role::Sender, _) => return None,
        (Role::Receiver, _) => {
            let source = attach.source?;
            (source.address, source.dynamic, source.capabilities)
        }
    };
    let address = address.filter(|_| !dynamic)?;
    let has = |all: Symbols<'_>, name: Symbol<'_>| all.contains(name.as_str());
    let is_queue = |all| has(all, capability::QUEUE) || has(all, capability::TEMPORARY_QUEUE);
    match all.is_some_and(is_queue) {
        true => addresses::of_queue(address),
        false => Some(topic_of(address).into()),
    }
}

/// Whether a filter matches every topic that another one matches.
fn covers(filter: &str, other: &str) -> bool {
    if other.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let mut others = other.split('/');
    for level in filter.split('/') {
        match (level, others.next()) {
            ("#", _) => return true,
            (_, None | Some("#")) => return false,
            ("+", Some(_)) => {}
            (level, Some(other)) if level == other => {}
            _ => return false,
        }
    }
    others.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_for_addresses_that_it_has_all_of() {
        for (rule, address, is_for) in [
            ("a/#", "a/b", true),
            ("a/#", "a", true),
            ("a/#", "a/+/c", true),
            ("a/#", "a/#", true),
            ("a/#", "#", false),
            ("a/+", "a/#", false),
            ("a/+", "a/+", true),
            ("a/b", "a/+", false),
            ("a/+", "a/b/c", false),
            ("#", "$management", false),
            ("#", "/queues/q", true),
            ("/queues/#", "/queues/q", true),
            ("$management", "$management", true),
        ] {
            assert_eq!(covers(rule, address), is_for, "{rule} {address}");
        }
    }
}
