//! How many round trips a client of AMQP takes from nothing to its first settled
//! message, over QUIC through a relay that delays every datagram.
//!
//! Each way through the relay is counted: a datagram goes one way further than what
//! its sender had received by then. That is the time in units of half a round trip
//! without what the machine needs for itself, which in a test may be anything.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use std::net::UdpSocket;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use dunlin_amqp_client::{Client, ConnectionEvent, Message, Outcome, TicketFile, TlsOptions};
use dunlin_base::transport::Transport;

use crate::support::{Broker, run};

/// Half of a round trip.
const WAY: Duration = Duration::from_millis(50);

/// Tries of which one counts: a machine that is slower than the link makes both
/// sides send more than they need.
const TRIES: usize = 20;

/// UDP between one client at a time and a broker.
struct Delay {
    port: u16,
    path: Arc<Path>,
}

/// What both ways share.
#[derive(Default)]
struct Path {
    client: Mutex<Option<SocketAddr>>,
    /// Ways behind what the client and the server have received.
    at_client: AtomicU32,
    at_server: AtomicU32,
    over: AtomicBool,
}

/// A datagram under way.
struct Late {
    due: Instant,
    ways: u32,
    bytes: Vec<u8>,
}

impl Delay {
    fn to(server: SocketAddr) -> Self {
        let outside = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let inside = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let port = outside.local_addr().expect("an address").port();
        let path = Arc::new(Path::default());
        let clone = |socket: &UdpSocket| socket.try_clone().expect("cloned");
        let ways = [
            (clone(&outside), clone(&inside), Some(server)),
            (inside, outside, None),
        ];
        for (from, to, server) in ways {
            let (late, queue) = channel();
            let (taking, giving) = (Arc::clone(&path), Arc::clone(&path));
            thread::spawn(move || take(&from, &late, server, &taking));
            thread::spawn(move || give(&to, &queue, server, &giving));
        }
        Self { port, path }
    }

    /// The next client is another.
    fn begin(&self) {
        self.path.at_client.store(0, Ordering::SeqCst);
        self.path.at_server.store(0, Ordering::SeqCst);
    }

    fn round_trips(&self) -> f64 {
        f64::from(self.path.at_client.load(Ordering::SeqCst)) / 2.0
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        self.path.over.store(true, Ordering::SeqCst);
    }
}

/// Takes datagrams for the server, or for the client, and notes where that is.
fn take(from: &UdpSocket, late: &Sender<Late>, server: Option<SocketAddr>, path: &Path) {
    from.set_read_timeout(Some(WAY)).expect("a timeout");
    let mut bytes = [0; 2048];
    while !path.over.load(Ordering::SeqCst) {
        let Ok((len, addr)) = from.recv_from(&mut bytes) else {
            continue;
        };
        let sender = match server {
            Some(_) => {
                *path.client.lock().expect("a lock") = Some(addr);
                &path.at_client
            }
            None => &path.at_server,
        };
        let datagram = Late {
            due: Instant::now() + WAY,
            ways: sender.load(Ordering::SeqCst) + 1,
            bytes: bytes[..len].to_vec(),
        };
        if late.send(datagram).is_err() {
            return;
        }
    }
}

/// Gives them when they are due.
fn give(to: &UdpSocket, queue: &Receiver<Late>, server: Option<SocketAddr>, path: &Path) {
    for Late { due, ways, bytes } in queue {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let client = *path.client.lock().expect("a lock");
        let (addr, receiver) = match server {
            Some(_) => (server, &path.at_server),
            None => (client, &path.at_client),
        };
        receiver.fetch_max(ways, Ordering::SeqCst);
        if let Some(addr) = addr {
            let _ = to.send_to(&bytes, addr);
        }
    }
}

/// Round trips from nothing to the outcome of the first message, and whether early
/// data was accepted.
async fn first_message(
    delay: &Delay,
    tls: &TlsOptions,
    tickets: Option<TicketFile>,
) -> (f64, bool) {
    let url = format!("amqp+quic://localhost:{}", delay.port);
    let mut builder = Client::builder(url).expect("a URL").tls(tls.clone());
    if let Some(tickets) = tickets {
        builder = builder.tickets(tickets);
    }
    delay.begin();
    let (client, mut connecting) = builder.start().expect("options");
    let mut events = connecting.events();
    let (sender, _) = client.sender("a").start().expect("started");
    let sent = sender.start_send(Message::new("x")).await;
    let outcome = sent.expect("handed over").await.expect("sent");
    let round_trips = delay.round_trips();
    assert_eq!(outcome, Outcome::Accepted);
    connecting.await.expect("connected");
    client.close().await;
    let mut early = false;
    while let Some(event) = events.next().await {
        early |= matches!(event, ConnectionEvent::EarlyData { accepted: true });
    }
    // What is still under way belongs to this client.
    tokio::time::sleep(2 * WAY).await;
    (round_trips, early)
}

#[test]
fn the_first_message_is_settled_after_three_round_trips_or_two() {
    let listener = r#"listener=[{transport="quic",address="127.0.0.1:0"}]"#;
    let broker = Broker::start_with(1, &[listener]);
    let delay = Delay::to(broker.addr(Transport::Quic));
    let tls = TlsOptions::new().ca_file(broker.ca());
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tickets");
    for (is_early, most) in [(false, 3.0), (true, 2.0)] {
        let mut best = f64::MAX;
        for _ in 0..TRIES {
            let tickets = is_early.then(|| TicketFile::open(&path).expect("opened"));
            let (round_trips, early) = run(first_message(&delay, &tls, tickets));
            // The first of these only brings the ticket.
            if early == is_early {
                best = best.min(round_trips);
            }
            if best <= most {
                break;
            }
        }
        assert!(best <= most, "early data {is_early}: {best} round trips");
    }
}
