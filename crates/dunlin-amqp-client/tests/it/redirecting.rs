//! Servers that name another one, for a connection or a link: what is followed, and
//! what is an error.

use core::time::Duration;

use dunlin_amqp::codec::{Error, Map, Symbol, Value, condition};
use dunlin_amqp::{Connection, Event};
use dunlin_amqp_client::{
    Backoff, Builder, Client, ConnectError, ConnectionEvent, DisconnectCause, LinkError,
};
use dunlin_base::Instant;

use super::run;
use super::server::{Listener, Server};

/// Gives an error of this kind that names a server.
fn with_error(
    condition: Symbol<'static>,
    (host, port): (&str, u16),
    address: Option<&str>,
    then: impl FnOnce(&Error<'_>),
) {
    let name = |name| Value::Symbol(Symbol::from_static(name));
    let mut entries = vec![
        (name("network-host"), Value::String(host)),
        (name("port"), Value::Uint(port.into())),
    ];
    entries.extend(address.map(|it| (name("address"), Value::String(it))));
    then(&Error {
        info: Some(Map::new(&entries)),
        ..Error::new(condition, "elsewhere")
    });
}

/// Sends so many clients on; a port of 0 is its own.
fn sends_on(clients: usize, host: &'static str, port: u16) -> Server {
    Server::run(move |listener: Listener| {
        for _ in 0..clients {
            let mut peer = listener.accept();
            let own = peer.stream.local_addr().expect("an address").port();
            let port = if port == 0 { own } else { port };
            let _ = peer.until(|engine: &mut Connection, event| {
                if matches!(event, Event::Opened(_)) {
                    let close = |error: &Error<'_>| {
                        let _ = engine.close(Instant::from_micros(1), Some(error));
                    };
                    with_error(condition::CONNECTION_REDIRECT, (host, port), None, close);
                }
                None::<()>
            });
        }
    })
}

/// Where a client was sent that did not go there.
async fn refused(builder: Builder) -> String {
    match builder.connect().await {
        Err(ConnectError::Failed(DisconnectCause::Redirected(to))) => to.to_string(),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_connection_is_followed_to_hosts_that_are_allowed() {
    let second = Server::run(|listener| listener.accept().serve());
    let port = second.port;
    let first = sends_on(3, "127.0.0.1", port);
    run(async {
        let there = format!("127.0.0.1:{port}");
        assert_eq!(refused(first.client()).await, there);
        let other = first.client().follow_redirects(["two.example"]);
        assert_eq!(refused(other).await, there);
        let allowed = first
            .client()
            .follow_redirects(["two.example", "127.0.0.1"]);
        let client: Client = allowed.connect().await.expect("at the second");
        client.close().await;
    });
    first.end();
    second.end();
}

#[test]
fn servers_that_send_a_client_round_are_given_up() {
    let server = sends_on(5, "127.0.0.1", 0);
    run(async {
        let builder = server.client().follow_redirects(["127.0.0.1"]);
        let there = format!("127.0.0.1:{}", server.port);
        assert_eq!(refused(builder).await, there);
    });
    server.end();
}

#[test]
fn what_names_no_server_is_an_error_like_any_other() {
    let server = sends_on(1, "", 1);
    run(async {
        // Attempts that fail at once would push the event out of the queue of events.
        let builder = server.client().follow_redirects([""]);
        let builder = builder.reconnect(Backoff {
            min: Duration::from_secs(3600),
            max: Duration::from_secs(3600),
            jitter: 0.0,
        });
        let (client, mut connecting) = builder.start().expect("started");
        let mut events = connecting.events();
        let why = loop {
            let event = events.next().await.expect("an end of the connection");
            if let ConnectionEvent::Disconnected { cause } = event {
                break cause;
            }
        };
        let DisconnectCause::Server(Some(why)) = why else {
            unreachable!("{why:?}");
        };
        assert_eq!(why.name(), "amqp:connection:redirect");
        client.close().await;
    });
    server.end();
}

#[test]
fn a_link_says_which_server_has_its_node() {
    let server = Server::run(|listener: Listener| {
        let mut peer = listener.accept();
        peer.by_hand = true;
        let _ = peer.until(|engine, event| {
            if let Event::Attach { link, .. } = event {
                let refuse = |error: &Error<'_>| {
                    engine.refuse_attach(*link, error).expect("it waits");
                };
                let there = ("Two.Example", 5671);
                with_error(condition::LINK_REDIRECT, there, Some("b"), refuse);
            }
            None::<()>
        });
    });
    run(async {
        let builder = server.client();
        let client = builder.clone().connect().await.expect("connected");
        let Err(LinkError::Redirected(to)) = client.sender("a").attach().await else {
            unreachable!("a redirect");
        };
        assert_eq!(
            (to.host(), to.port(), to.address()),
            ("Two.Example", 5671, Some("b"))
        );
        assert!(builder.redirected(&to).is_none());
        let builder = builder.follow_redirects(["two.example"]);
        let next = builder.redirected(&to).expect("allowed");
        assert!(
            format!("{next:?}").contains("amqp://two.example:5671"),
            "{next:?}"
        );
        client.close().await;
    });
    server.end();
}
