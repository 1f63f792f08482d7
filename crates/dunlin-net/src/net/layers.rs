//! Which layers a connection over TCP needs, by its transport.

use std::io;
use std::sync::Arc;

use dunlin_base::transport::Transport;
use rustls::pki_types::ServerName;

use super::sources::Listener;
use crate::config::Protocols;
use crate::proxy::Awaited;
use crate::stream::{First, Layers, Origin};
use crate::tls::TlsLayer;
use crate::ws::{Place, WsLayer};
use crate::{DialConfig, NetError, NetLimits};

/// Layers of an accepted connection.
pub(super) fn of_server(
    listener: &Listener,
    limits: &NetLimits,
) -> Result<Option<Box<Layers>>, rustls::Error> {
    let tls = match &listener.tls {
        Some((tls, name)) => Some(Box::new(TlsLayer::server(Arc::clone(tls), *name)?)),
        None => None,
    };
    let Origin {
        transport,
        protocols,
        ..
    } = &*listener.origin;
    let ws = is_ws(*transport).then(|| {
        let at = Place {
            path: Arc::clone(&listener.ws_path),
            origins: listener.origins.clone(),
            proxies: listener.proxies.clone(),
        };
        Box::new(WsLayer::server(at, protocols, limits))
    });
    let proxies = listener.proxies.as_deref();
    let header = proxies.and_then(|it| Some(Awaited::new(it.header?, it.identity)));
    Ok(boxed(Layers {
        tls,
        ws,
        first: header.map_or_else(First::default, |it| First::Header(Box::new(it))),
        ..Layers::default()
    }))
}

/// Layers of a dialled connection.
pub(super) fn of_client(
    config: &DialConfig,
    protocols: &Protocols,
    limits: &NetLimits,
) -> Result<Option<Box<Layers>>, NetError> {
    let tls = match (config.transport, &config.tls) {
        (Transport::Tls, Some(tls)) => Some(tls.over_tcp(protocols)),
        (Transport::Wss, Some(tls)) => Some(Arc::clone(tls.over_ws())),
        _ => None,
    };
    let name = || NetError::ServerName(config.server_name.clone());
    let tls = match tls {
        Some(tls) => {
            let server = ServerName::try_from(config.server_name.clone()).map_err(|_| name())?;
            Some(Box::new(TlsLayer::client(tls, server).map_err(|_| name())?))
        }
        None => None,
    };
    let (ws, greeting) = if is_ws(config.transport) {
        let mut key = [0; 16];
        getrandom::fill(&mut key).map_err(|e| NetError::Loop(io::Error::other(e)))?;
        let host = host(config);
        // What would end the header early is no path.
        if config
            .ws_path
            .contains(|c: char| c.is_ascii_control() || c == ' ')
            || host.contains(|c: char| c.is_ascii_control() || c == ' ')
        {
            return Err(NetError::Config("the WebSocket path or host is not valid"));
        }
        let (ws, request) = WsLayer::client(&host, &config.ws_path, key, protocols, limits);
        (Some(Box::new(ws)), request)
    } else {
        (None, String::new())
    };
    Ok(boxed(Layers {
        tls,
        ws,
        first: First::Greeting(greeting),
        ..Layers::default()
    }))
}

/// Value of the `Host` header: the port is left out where it is the usual one.
fn host(config: &DialConfig) -> String {
    let usual = if config.transport == Transport::Wss {
        443
    } else {
        80
    };
    let name = if config.server_name.contains(':') {
        format!("[{}]", config.server_name)
    } else {
        config.server_name.clone()
    };
    if config.addr.port() == usual {
        name
    } else {
        format!("{name}:{}", config.addr.port())
    }
}

const fn is_ws(transport: Transport) -> bool {
    matches!(transport, Transport::Ws | Transport::Wss)
}

fn boxed(layers: Layers) -> Option<Box<Layers>> {
    let has_header = matches!(layers.first, First::Header(_));
    (layers.tls.is_some() || layers.ws.is_some() || has_header).then(|| Box::new(layers))
}
