//! Clients that change their address while messages pass: nothing is lost,
//! doubled or out of order, and no client connects again.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use dunlin_base::transport::Transport;
use dunlin_client::{
    Client, ConnectionEvent, DisconnectCause, Messages, MigrateError, NetworkOptions, Publish, QoS,
};

use tokio::task::JoinHandle;

use crate::support::{Broker, connect, run, subscribe};

/// How often each client moves, and the time between two moves.
const MOVES: usize = 25;
const PAUSE: Duration = Duration::from_millis(100);

const QOS: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

/// Moves to and fro between two addresses; how often it worked.
async fn roam(client: &Client) -> usize {
    let mut moved = 0;
    for n in 0..MOVES {
        tokio::time::sleep(PAUSE).await;
        let to = SocketAddr::from(([127, 0, 0, 1 + (n as u8 + 1) % 2], 0));
        let outcome = if n % 3 == 2 {
            client.migrate_at_once(Some(to)).await
        } else {
            client.migrate(Some(to)).await
        };
        let outcome = outcome.expect("moved");
        assert_eq!(outcome.to.ip(), to.ip());
        moved += 1;
    }
    moved
}

/// Reads all messages of a topic until each number up to the last has come.
async fn collect(messages: &mut Messages, counts: &mut BTreeMap<(String, usize), u32>) -> bool {
    let Some(message) = messages.next().await else {
        return false;
    };
    if &*message.payload == b"end" {
        return false;
    }
    let text = core::str::from_utf8(&message.payload).expect("text");
    let n = text.parse().expect("a number");
    *counts.entry((message.topic.to_string(), n)).or_default() += 1;
    true
}

async fn publish(client: &Client, until: impl Future<Output = usize>) -> usize {
    let mut deliveries = Vec::new();
    let mut n = 0;
    let mut until = core::pin::pin!(until);
    loop {
        for qos in QOS {
            let topic = format!("roam/{}", qos as u8);
            let message = Publish::new(topic, n.to_string()).qos(qos);
            deliveries.push(client.start_publish(message).await.expect("taken"));
        }
        n += 1;
        if tokio::time::timeout(Duration::from_millis(3), &mut until)
            .await
            .is_ok()
        {
            break;
        }
    }
    for delivery in deliveries {
        delivery.await.expect("published");
    }
    n
}

/// Counts the moves of a client that never connects again.
fn watch(client: &Client) -> JoinHandle<usize> {
    let mut events = client.events();
    tokio::spawn(async move {
        let mut moves = 0;
        while let Some(event) = events.next().await {
            match event {
                ConnectionEvent::Migrated(_) => moves += 1,
                ConnectionEvent::Closed => {}
                ConnectionEvent::Disconnected {
                    cause: DisconnectCause::Local,
                } => {}
                other => panic!("{other:?}"),
            }
        }
        moves
    })
}

/// Ends a client; how often it moved.
async fn end(client: Client, moves: JoinHandle<usize>) -> usize {
    client.disconnect().await;
    moves.await.expect("it never connected again")
}

fn everyone_roams(shards: u16) {
    let broker = Broker::start(shards);
    run(async {
        let at = |name: &str| {
            let builder = broker.client(Transport::Quic).client_id(name.to_owned());
            builder.connect()
        };
        let (subscriber, mut messages) = at("subscriber").await.expect("connected");
        let (publisher, _) = at("publisher").await.expect("connected");
        subscribe(&subscriber, "roam/#", QoS::ExactlyOnce).await;
        let (sub_events, pub_events) = (watch(&subscriber), watch(&publisher));
        let mut counts = BTreeMap::new();
        let sending = async {
            let both = async { tokio::join!(roam(&publisher), roam(&subscriber)).0 };
            let n = publish(&publisher, both).await;
            let end = Publish::new("roam/1", "end").qos(QoS::AtLeastOnce);
            publisher.publish(end).await.expect("published");
            n
        };
        let receiving = async { while collect(&mut messages, &mut counts).await {} };
        let (n, ()) = tokio::join!(sending, receiving);
        // QoS 2 may still be on its way when the end of QoS 1 has come.
        let whole = |counts: &BTreeMap<(String, usize), u32>| {
            (0..n).all(|i| {
                [1, 2]
                    .iter()
                    .all(|q| counts.contains_key(&(format!("roam/{q}"), i)))
            })
        };
        while !whole(&counts) {
            assert!(collect(&mut messages, &mut counts).await);
        }
        for ((topic, i), times) in &counts {
            assert_eq!(*times, 1, "{topic} {i}");
        }
        assert_eq!(end(subscriber, sub_events).await, MOVES);
        assert_eq!(end(publisher, pub_events).await, MOVES);
    });
}

#[test]
fn nothing_is_lost_or_doubled_while_everyone_roams() {
    everyone_roams(1);
}

#[test]
fn nor_with_two_shards() {
    everyone_roams(2);
}

/// Enough clients that some live at another shard than the one that the kernel
/// chose, and that their packets change sockets when they move.
#[test]
fn sessions_of_every_shard_follow_their_clients() {
    const CLIENTS: usize = 16;
    let broker = Broker::start(2);
    run(async {
        let mut clients = Vec::new();
        for n in 0..CLIENTS {
            let builder = broker.client(Transport::Quic).client_id(format!("r{n}"));
            let (client, mut messages) = builder.connect().await.expect("connected");
            let mine = format!("to/{n}");
            subscribe(&client, &mine, QoS::AtLeastOnce).await;
            let events = watch(&client);
            for (round, to) in [[127, 0, 0, 2], [127, 0, 0, 1], [127, 0, 0, 3]]
                .into_iter()
                .enumerate()
            {
                client.migrate(Some((to, 0).into())).await.expect("moved");
                let text = round.to_string();
                let message = Publish::new(mine.clone(), text.clone()).qos(QoS::ExactlyOnce);
                client.publish(message).await.expect("published");
                let message = messages.next().await.expect("a message");
                assert_eq!(message.payload, text);
            }
            clients.push((client, events));
        }
        for (client, events) in clients {
            assert_eq!(end(client, events).await, 3);
        }
    });
}

#[test]
fn a_listener_can_forbid_it() {
    let broker = Broker::start_with(1, &["quic.migration=false"]);
    run(async {
        let (client, _) = connect(
            broker
                .client(Transport::Quic)
                .network(NetworkOptions::new().follow(false)),
        )
        .await;
        let refused = client.migrate(None).await.expect_err("forbidden");
        assert!(matches!(refused, MigrateError::Refused(_)));
        assert_eq!(
            refused.to_string(),
            "the server does not allow connections to move"
        );
        let message = Publish::new("still/there", "1").qos(QoS::AtLeastOnce);
        client.publish(message).await.expect("published");
        client.disconnect().await;
        let closed = client.migrate(None).await.expect_err("closed");
        assert!(matches!(closed, MigrateError::Closed(_)), "{closed:?}");
    });
}

/// The ids that a load balancer reads carry everything else through, too.
#[test]
fn nothing_changes_behind_a_load_balancer() {
    let modes: [&[&str]; 3] = [
        &["quic.lb={mode=\"plaintext\",server_id=\"0a01\"}"],
        &[
            "quic.lb={mode=\"encrypted\",server_id=\"0a01\",key=\"8f95f09245765f80256934e50c66207f\"}",
        ],
        &[
            "quic.lb={mode=\"encrypted\",server_id=\"0a01\",nonce=9,length=false,key=\"8f95f09245765f80256934e50c66207f\"}",
        ],
    ];
    for overrides in modes {
        let broker = Broker::start_with(2, overrides);
        run(async {
            for n in 0..6 {
                let builder = broker.client(Transport::Quic).client_id(format!("lb{n}"));
                let (client, _) = builder.connect().await.expect("connected");
                let events = watch(&client);
                for to in [2, 1] {
                    let to = SocketAddr::from(([127, 0, 0, to], 0));
                    client.migrate(Some(to)).await.expect("moved");
                    let message = Publish::new("lb", "1").qos(QoS::AtLeastOnce);
                    client.publish(message).await.expect("published");
                }
                assert_eq!(end(client, events).await, 2);
            }
        });
    }
}
