//! QUIC and TLS race for a connection to the broker; a relay stands for the
//! firewall that lets UDP through or not.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use dunlin_base::transport::Transport;
use dunlin_client::{Builder, Client, ConnectionEvent, Publish, QoS, Race, RaceMemory, TlsOptions};

use crate::support::{Broker, connect, run, subscribe};

/// Passes UDP between one client and the broker while it is open.
struct Firewall {
    port: u16,
    open: Arc<AtomicBool>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Firewall {
    fn new(server: SocketAddr, open: bool) -> Self {
        let outside = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let inside = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let tick = Some(Duration::from_millis(1));
        outside.set_read_timeout(tick).expect("a timeout");
        inside.set_read_timeout(tick).expect("a timeout");
        let port = outside.local_addr().expect("an address").port();
        let open = Arc::new(AtomicBool::new(open));
        let end = Arc::new(AtomicBool::new(false));
        let (is_open, is_over) = (Arc::clone(&open), Arc::clone(&end));
        let thread = thread::spawn(move || {
            let mut client = None;
            let mut bytes = [0; 2048];
            while !is_over.load(Ordering::Relaxed) {
                if let Some((len, from)) = receive(&outside, &mut bytes) {
                    client = Some(from);
                    if is_open.load(Ordering::Relaxed) {
                        let _ = inside.send_to(&bytes[..len], server);
                    }
                }
                while let Some((len, _)) = receive(&inside, &mut bytes) {
                    if let Some(client) = client {
                        let _ = outside.send_to(&bytes[..len], client);
                    }
                }
            }
        });
        Self {
            port,
            open,
            end,
            thread: Some(thread),
        }
    }

    fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::Relaxed);
    }
}

impl Drop for Firewall {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn receive(socket: &UdpSocket, bytes: &mut [u8]) -> Option<(usize, SocketAddr)> {
    match socket.recv_from(bytes) {
        Ok(received) => Some(received),
        Err(error) => {
            let idle = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            assert!(
                idle || error.kind() == ErrorKind::ConnectionRefused,
                "{error}"
            );
            None
        }
    }
}

fn race(broker: &Broker, firewall: &Firewall, memory: &RaceMemory) -> (Builder, Race) {
    let builder = Client::builder("auto://127.0.0.1")
        .expect("a URL")
        .tls(TlsOptions::new().ca_file(broker.ca()));
    let race = Race::new()
        .quic_port(firewall.port)
        .tls_port(broker.addr(Transport::Tls).port())
        .memory(memory);
    (builder, race)
}

#[test]
fn quic_is_taken_where_it_gets_through() {
    let broker = Broker::start(1);
    let firewall = Firewall::new(broker.addr(Transport::Quic), true);
    let memory = RaceMemory::new();
    run(async {
        let (builder, race) = race(&broker, &firewall, &memory);
        // Enough for a loaded machine; how much is needed is tested in
        // virtual time.
        let race = race.head_start(Duration::from_secs(20));
        let (client, _) = builder.race(race).connect().await.expect("connected");
        assert_eq!(client.transport(), Some(Transport::Quic));
        client.disconnect().await;
        assert_eq!(client.transport(), None);
    });
}

#[test]
fn a_blocked_quic_is_remembered_and_costs_one_session() {
    let broker = Broker::start(1);
    let firewall = Firewall::new(broker.addr(Transport::Quic), false);
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("race");
    run(async {
        for known in [false, true] {
            let memory = RaceMemory::file(&file).expect("a memory");
            let (builder, mut race) = race(&broker, &firewall, &memory);
            if known {
                // Now it would get through, and is not tried.
                firewall.set_open(true);
                race = race.head_start(Duration::from_secs(20));
            }
            let (client, _) = builder.race(race).connect().await.expect("connected");
            assert_eq!(client.transport(), Some(Transport::Tls), "{known}");
            client.disconnect().await;
            // Written by another thread.
            while !file.exists() {
                thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let text = std::fs::read_to_string(&file).expect("a file");
    assert!(
        text.starts_with("dunlin-race 1\n127.0.0.0/24->127.0.0.1:"),
        "{text}"
    );
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(&file)
            .expect("a file")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

/// A session moves to QUIC while messages of all kinds are under way.
#[test]
fn a_session_goes_back_to_quic_and_loses_nothing() {
    const MESSAGES: u32 = 600;
    let broker = Broker::start(2);
    let firewall = Firewall::new(broker.addr(Transport::Quic), false);
    let memory = RaceMemory::new();
    run(async {
        let (subscriber, mut messages) = connect(broker.client(Transport::Tcp)).await;
        subscribe(&subscriber, "up/#", QoS::ExactlyOnce).await;
        let (builder, race) = race(&broker, &firewall, &memory);
        let race = race.probe_after(Duration::from_millis(300));
        let (client, mut own) = builder.race(race).connect().await.expect("connected");
        assert_eq!(client.transport(), Some(Transport::Tls));
        subscribe(&client, "echo", QoS::AtLeastOnce).await;
        let mut events = client.events();
        let mut deliveries = Vec::new();
        let mut sent = 0;
        let mut transport = Transport::Tls;
        firewall.set_open(true);
        // Publishes all the time until the change, and a while after it.
        while transport == Transport::Tls || sent < MESSAGES {
            let qos = [QoS::AtLeastOnce, QoS::ExactlyOnce][sent as usize % 2];
            let message = Publish::new(format!("up/{}", qos as u8), sent.to_string()).qos(qos);
            deliveries.push(client.start_publish(message).await.expect("taken"));
            sent += 1;
            let event = tokio::time::timeout(Duration::from_millis(1), events.next()).await;
            match event {
                Ok(Some(ConnectionEvent::Connected {
                    session_present,
                    transport: now,
                })) => {
                    assert!(session_present);
                    transport = now;
                }
                Ok(other) => unreachable!("{other:?}"),
                Err(_) => {}
            }
        }
        assert_eq!(transport, Transport::Quic);
        for delivery in deliveries {
            delivery.await.expect("published");
        }
        // Subscriptions of the old connection go on.
        let echo = Publish::new("echo", "!").qos(QoS::AtLeastOnce);
        subscriber.publish(echo).await.expect("published");
        assert!(own.next().await.is_some());
        let mut seen = vec![0_u32; sent as usize];
        while seen.contains(&0) {
            let message = messages.next().await.expect("a message");
            let text = core::str::from_utf8(&message.payload).expect("text");
            let n: usize = text.parse().expect("a number");
            seen[n] += 1;
            assert!(seen[n] == 1 || message.qos == QoS::AtLeastOnce, "{n} twice");
        }
        client.disconnect().await;
    });
}
