//! What SASL on a connection is bound by, at both of its ends.

use std::sync::Arc;

use dunlin_base::transport::BindingType;

use super::certs::{certs, dial_to, listen_on};
use super::*;
use crate::{ServerTls, ServerTlsOptions};

/// A loop whose application says which peers it knows, and a client.
fn pair() -> Pair {
    let mut config = NetConfig::new(ShardId(0), 1, Clock::new(), NetKeys::random().unwrap());
    config.accepts_peers = true;
    Pair {
        client: Side::new(NetLimits::default()),
        server: Side {
            net: Net::new(config).unwrap(),
            events: Vec::new(),
        },
    }
}

/// What the application of the server hears when it asks.
fn ask(pair: &mut Pair, server: ConnId) -> Option<bytes::Bytes> {
    let mut command = NetCommand::new(server, NetCommandKind::BindChannel);
    pair.server.net.command(&mut command).map(|event| {
        let NetEventKind::ChannelBinding { data } = event.kind else {
            panic!("{event:?}");
        };
        data
    })
}

#[test]
fn both_ends_have_the_same() {
    let (exporter, end_point) = (BindingType::TlsExporter, BindingType::TlsServerEndPoint);
    for (transport, kind) in [
        (Transport::Quic, Some(exporter)),
        (Transport::Tls, Some(end_point)),
        (Transport::Wss, Some(end_point)),
        (Transport::Tcp, None),
        (Transport::Ws, None),
    ] {
        let mut pair = pair();
        let (client, server) = pair.connect(listen_on(transport), |addr| dial_to(transport, addr));
        let (_, peer) = pair.server.opened().unwrap();
        assert_eq!(peer.binding, kind, "{transport:?}");
        let mut dialled = pair.client.net.conn(client);
        assert_eq!(dialled.binding_type(), kind, "{transport:?}");
        let theirs = dialled.bind_channel();
        assert_eq!(theirs.as_ref().map(|it| it.len()), kind.map(|_| 32));
        assert_eq!(ask(&mut pair, server), theirs, "{transport:?}");
        // Who asked before the peer was known may ask again.
        pair.server.net.conn(server).accept();
        assert_eq!(ask(&mut pair, server), theirs, "{transport:?}");
    }
}

#[test]
fn a_connection_keeps_the_certificate_that_it_was_accepted_with() {
    let transport = Transport::Tls;
    let mut pair = pair();
    let (client, server) = pair.connect(listen_on(transport), |addr| dial_to(transport, addr));
    let (cert, key) = &certs().device;
    let renewed = ServerTlsOptions::new(cert.clone().into(), key.clone().into());
    let renewed = Arc::new(ServerTls::new(&renewed).unwrap());
    let theirs = pair.client.net.conn(client).bind_channel();
    assert_ne!(theirs.as_ref(), renewed.end_point());
    pair.server.net.set_tls(0, &renewed);
    assert!(theirs.is_some() && ask(&mut pair, server) == theirs);
}
