//! Early data (0-RTT) of AMQP: a first flight that attaches a durable subscription and a
//! sender to a queue that is made for it, which an attacker recorded and sends again.

use core::time::Duration;
use std::net::UdpSocket;

use dunlin_amqp::codec::{TerminusDurability, TerminusExpiryPolicy};
use dunlin_amqp_client::{
    Builder, Client, ConnectionEvent, Message, Outcome, Receiver, ReceiverBuilder, Runtime,
    RuntimeLimits, TicketFile, TlsOptions,
};
use dunlin_base::transport::Transport;

use crate::early::{Rig, becomes, refused, replay};
use crate::queues::queue;
use crate::support::{Broker, PATIENCE, run};

/// The device, as a new process would make it.
fn device(rig: &Rig) -> Builder {
    let url = format!("amqp+quic://localhost:{}", rig.relay.port());
    Client::builder(url)
        .expect("a URL")
        .container_id("device")
        .tls(TlsOptions::new().ca_file(rig.certificate("ca.pem")))
        .tickets(TicketFile::open(rig.file()).expect("a file"))
        .runtime(&Runtime::new(RuntimeLimits::default()).expect("a runtime"))
        .connect_timeout(PATIENCE)
}

/// A client that was never near the attacker, of this container.
async fn other(broker: &Broker, container_id: &str) -> Client {
    let url = format!("amqp://{}", broker.addr(Transport::Tcp));
    let builder = Client::builder(url).expect("a URL");
    let connected = builder.container_id(container_id).connect().await;
    connected.expect("connected")
}

/// The subscription of the device.
fn subscription(client: &Client) -> ReceiverBuilder {
    let receiver = client.receiver("command/#").name("commands");
    receiver
        .durable(TerminusDurability::Configuration)
        .expiry(TerminusExpiryPolicy::Never, Duration::ZERO)
}

async fn send(client: &Client, address: &str, text: &str) {
    let sender = client.sender(address).attach().await.expect("attached");
    let sent = sender.send(Message::new(text.to_owned()).durable(true));
    assert_eq!(sent.await.expect("sent"), Outcome::Accepted);
}

/// All that there is for a receiver.
async fn drained(receiver: &mut Receiver) -> Vec<String> {
    receiver.drain().await.expect("drained");
    let mut texts = Vec::new();
    while let Some(delivery) = receiver.try_recv() {
        texts.push(String::from_utf8_lossy(&delivery.payload()).into_owned());
        delivery.accept().await.expect("settled");
    }
    texts
}

/// Connects so that the first flight asks for everything, and sends one message to the
/// queue; the subscription that is left, and whether early data was taken.
async fn wake(rig: &Rig) -> (Client, Receiver, bool) {
    let (client, mut connecting) = device(rig).start().expect("options");
    let mut events = connecting.events();
    let (receiver, subscribing) = subscription(&client).start().expect("started");
    let (sender, attaching) = client.sender("/queues/fresh").start().expect("started");
    let sent = sender.start_send(Message::new("once").durable(true)).await;
    connecting.await.expect("connected");
    subscribing.await.expect("subscribed");
    attaching.await.expect("attached");
    let outcome = sent.expect("handed over").await.expect("sent");
    assert_eq!(outcome, Outcome::Accepted);
    let mut early = false;
    loop {
        match events.next().await.expect("open") {
            ConnectionEvent::EarlyData { accepted } => early = accepted,
            ConnectionEvent::Connected { .. } => return (client, receiver, early),
            _ => {}
        }
    }
}

#[test]
fn a_recorded_first_flight_attaches_and_makes_nothing_again() {
    const TIMES: usize = 100;
    for shards in [1, 2] {
        let rig = Rig::new();
        let mut broker = rig.broker(shards, &[]);
        let elsewhere = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        // The first one only brings the ticket.
        let (client, receiver, _) = run(wake(&rig));
        run(async {
            receiver.close().await;
            client.close().await;
        });
        queue(&broker, "delete fresh");
        let (client, mut receiver, early) = run(wake(&rig));
        assert!(early, "a known device");
        let flight = rig.relay.recorded();
        replay(&broker, &flight, &elsewhere, TIMES);
        run(async {
            // Its links are its own, and the message is there once.
            let other = other(&broker, "other").await;
            send(&other, "command/a", "go").await;
            let delivery = receiver.recv().await.expect("not stolen");
            assert_eq!(&delivery.payload()[..], b"go");
            delivery.accept().await.expect("settled");
            let fresh = other.receiver("/queues/fresh").attach().await;
            let mut fresh = fresh.expect("attached");
            assert_eq!(drained(&mut fresh).await, ["once"]);
            fresh.close().await;
            receiver.close().await;
            client.close().await;
            other.close().await;
        });
        queue(&broker, "delete fresh");
        for restarts in [false, true] {
            if restarts {
                rig.again(&mut broker, shards, &[]);
            }
            replay(&broker, &flight, &elsewhere, TIMES);
            // As long as the connection is remembered, it is not a new one.
            let cause = if restarts { "unknown" } else { "used" };
            let again = || {
                replay(&broker, &flight, &elsewhere, 1);
                refused(&broker, cause)
            };
            assert!(becomes(again, 1) >= 1, "{cause}");
            let list = queue(&broker, "list");
            assert_eq!(list.lines().count(), 1, "the head alone: {list}");
            run(async {
                let device = other(&broker, "device").await;
                send(&device, "command/a", "late").await;
                let mut receiver = subscription(&device).attach().await.expect("attached");
                assert!(drained(&mut receiver).await.is_empty(), "it was ended");
                receiver.close().await;
                device.close().await;
            });
        }
    }
}
