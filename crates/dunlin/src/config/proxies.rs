//! Proxies and load balancers in front of a listener: which addresses are theirs,
//! and how they say where a client is.

use dunlin_net::proxy::{ForwardedHeader, Proxies, ProxyVersions};

use super::error::Wrong;
use super::listener::{Forwarded, Kind, Listener, ProxyProtocol};

/// What a listener believes, and whom; `None`: it is behind nothing.
pub(crate) fn proxies(listener: &Listener) -> Option<Proxies> {
    let trusted = listener.trusted.as_ref()?;
    Some(Proxies {
        trusted: trusted.iter().map(|range| range.0).collect(),
        header: listener.proxy_protocol.map(|version| match version {
            ProxyProtocol::V1 => ProxyVersions::V1,
            ProxyProtocol::V2 => ProxyVersions::V2,
            ProxyProtocol::Any => ProxyVersions::Any,
        }),
        identity: listener.proxy_identity(),
        forwarded: listener.forwarded.map(|header| match header {
            Forwarded::XForwardedFor => ForwardedHeader::XForwardedFor,
            Forwarded::Forwarded => ForwardedHeader::Forwarded,
        }),
    })
}

/// What is wrong, as key and sentence.
pub(super) fn check(listener: &Listener) -> Result<(), Wrong> {
    let name = listener.transport.name();
    let wrong = |key, why: &str| Err((key, why.to_owned()));
    if listener.proxy_protocol.is_some() && listener.transport == Kind::Quic {
        let why = "QUIC has no PROXY header; a load balancer forwards its datagrams by [quic.lb]";
        return wrong("proxy_protocol", why);
    }
    if listener.forwarded.is_some() && !matches!(listener.transport, Kind::Ws | Kind::Wss) {
        let why = format!("a {name} listener gets no headers of HTTP; only ws and wss do");
        return Err(("forwarded", why));
    }
    if listener.proxy_identity()
        && !matches!(listener.proxy_protocol, Some(version) if version != ProxyProtocol::V1)
    {
        let why = "requires `proxy_protocol` \"v2\" or \"any\": version 1 has no names";
        return wrong("proxy_identity", why);
    }
    let behind = [
        ("proxy_protocol", listener.proxy_protocol.is_some()),
        ("forwarded", listener.forwarded.is_some()),
    ];
    match (&listener.trusted, behind.iter().find(|(_, is_set)| *is_set)) {
        (None, Some((key, _))) => wrong(key, "requires `trusted`: the addresses of the proxies"),
        (Some(list), Some(_)) if list.is_empty() => {
            wrong("trusted", "there must be at least one address")
        }
        (Some(_), None) => wrong(
            "trusted",
            "requires `proxy_protocol` or `forwarded`: what the proxies are believed",
        ),
        _ => Ok(()),
    }
}
