//! Measures what carries a message best over a link that loses packets: one
//! stream, a stream for each topic (with and without isolation), or datagrams.
//! Client, relay and server run in this process, on one clock.
//!
//! ```text
//! cargo run --release -p dunlin-net --example carriers [LOSS_PERCENT] [DELAY_MS] [SECONDS]
//! ```

#![allow(clippy::print_stdout)]

use core::error::Error;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::collections::VecDeque;
use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use dunlin_base::transport::{NetEvent, NetEventKind, Transport};
use dunlin_base::{ConnId, SendBuf, ShardId, StreamId, Text};
use dunlin_net::{
    ClientTls, Clock, DialConfig, ListenerConfig, Net, NetConfig, NetKeys, ServerTls,
    ServerTlsOptions,
};

type Result<T> = core::result::Result<T, Box<dyn Error + Send + Sync>>;

const TOPICS: usize = 8;
/// Messages a second, all topics together.
const RATE: u64 = 500;
const MESSAGE_BYTES: usize = 100;
/// Age at which a datagram is not sent any more.
const AGE_MAX: Duration = Duration::from_secs(1);
/// Wait for the last messages.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Carrier {
    OneStream,
    StreamPerTopic,
    Isolated,
    Datagrams,
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut number = |default: f64| -> Result<f64> {
        Ok(args
            .next()
            .map(|arg| arg.parse())
            .transpose()?
            .unwrap_or(default))
    };
    let (loss, delay_ms, seconds) = (number(5.0)?, number(25.0)?, number(20.0)?);
    println!(
        "{TOPICS} topics, {RATE} messages of {MESSAGE_BYTES} B a second, {loss} % loss, \
         {delay_ms} ms each way, {seconds} s"
    );
    println!("carrier             arrived    p50 ms    p99 ms    max ms  packets");
    for carrier in [
        Carrier::OneStream,
        Carrier::StreamPerTopic,
        Carrier::Isolated,
        Carrier::Datagrams,
    ] {
        run(carrier, loss / 100.0, delay_ms, seconds)?;
    }
    Ok(())
}

fn net(clock: Clock) -> Result<Net> {
    let config = NetConfig::new(ShardId(0), 1, clock, NetKeys::random()?);
    Ok(Net::new(config)?)
}

/// How long each message took.
type Arrivals = Vec<Duration>;

fn run(carrier: Carrier, loss: f64, delay_ms: f64, seconds: f64) -> Result<()> {
    let cert = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
    let (pem, key) = (cert.cert.pem(), cert.signing_key.serialize_pem());
    let tls = ServerTls::new(&ServerTlsOptions::new(pem.into(), key.into()))?;
    let mut listen = ListenerConfig::new(Transport::Quic, SocketAddr::from(([127, 0, 0, 1], 0)));
    listen.protocols = vec![Text::from_static("mqtt")];
    listen.tls = Some(Arc::new(tls));
    let clock = Clock::new();
    let (mut server, mut client) = (net(clock)?, net(clock)?);
    let target = server.listen(listen)?;
    let stop = Arc::new(AtomicBool::new(false));
    let (relay, thread) = relay(target, loss, delay_ms, Arc::clone(&stop))?;
    let mut dial = DialConfig::new(Transport::Quic, relay, "localhost");
    dial.protocols = vec![Text::from_static("mqtt")];
    let trust = ClientTls::builder().dangerous_accept_any_certificate();
    dial.tls = Some(Arc::new(trust.build()?));
    client.dial(&dial)?;
    let result = talk(carrier, &mut client, &mut server, seconds);
    stop.store(true, Ordering::Relaxed);
    let _ = thread.join();
    let (sent, arrivals, packets) = result?;
    show(carrier, sent, &arrivals, packets);
    Ok(())
}

fn talk(
    carrier: Carrier,
    client: &mut Net,
    server: &mut Net,
    seconds: f64,
) -> Result<(u64, Arrivals, u64)> {
    let start = Instant::now();
    let mut conn = None;
    while conn.is_none() {
        turn(client, &mut |event| {
            if let NetEventKind::Opened { .. } = event.kind {
                conn = Some(event.conn);
            }
        })?;
        turn(server, &mut |_| {})?;
    }
    let conn = conn.ok_or("not connected")?;
    let streams = open(carrier, client, conn)?;
    let packets = client.counters().datagrams_out;
    let (begin, mut sent, mut arrivals) = (start.elapsed(), 0u64, Arrivals::new());
    let mut partial = vec![Vec::new(); 1 << 8];
    let total = (RATE as f64 * seconds) as u64;
    let mut last = start.elapsed();
    while (arrivals.len() as u64) < total && start.elapsed() < last + PATIENCE {
        let now = start.elapsed();
        while sent < total && (now - begin).as_micros() as u64 >= sent * 1_000_000 / RATE {
            let topic = sent as usize % TOPICS;
            let mut message = vec![topic as u8; MESSAGE_BYTES];
            message[1..9].copy_from_slice(&(now.as_micros() as u64).to_be_bytes());
            send(carrier, client, conn, streams[topic], &message)?;
            sent += 1;
            last = now;
        }
        client.flush();
        turn(client, &mut |_| {})?;
        turn(server, &mut |event| {
            let arrived = start.elapsed();
            match event.kind {
                NetEventKind::Datagram { data } => arrivals.extend(read(data, arrived)),
                NetEventKind::Bytes { stream, data } => {
                    let rest = &mut partial[stream.0 as usize % 256];
                    rest.extend_from_slice(data);
                    while rest.len() >= MESSAGE_BYTES {
                        let message: Vec<u8> = rest.drain(..MESSAGE_BYTES).collect();
                        arrivals.extend(read(&message, arrived));
                    }
                }
                _ => {}
            }
        })?;
    }
    Ok((sent, arrivals, client.counters().datagrams_out - packets))
}

fn open(carrier: Carrier, client: &mut Net, conn: ConnId) -> Result<Vec<StreamId>> {
    let mut control = SendBuf::new();
    control.put_slice(&[0; MESSAGE_BYTES]);
    let _ = client.send(conn, StreamId::CONTROL, &mut control);
    client
        .conn(conn)
        .isolate_streams(carrier == Carrier::Isolated);
    if matches!(carrier, Carrier::OneStream | Carrier::Datagrams) {
        return Ok(vec![StreamId::CONTROL; TOPICS]);
    }
    let streams = (0..TOPICS).map(|_| client.conn(conn).open_stream(true));
    Ok(streams
        .collect::<Option<_>>()
        .ok_or("no credit for streams")?)
}

fn send(
    carrier: Carrier,
    client: &mut Net,
    conn: ConnId,
    stream: StreamId,
    message: &[u8],
) -> Result<()> {
    if carrier == Carrier::Datagrams {
        let expires = client.now() + AGE_MAX;
        client
            .conn(conn)
            .send_datagram(Bytes::copy_from_slice(message), expires)?;
    } else {
        let mut data = SendBuf::new();
        data.put_slice(message);
        let _ = client.send(conn, stream, &mut data);
    }
    Ok(())
}

/// The first message opens control and has no time.
fn read(message: &[u8], arrived: Duration) -> Option<Duration> {
    let sent = u64::from_be_bytes(message.get(1..9)?.try_into().ok()?);
    let sent = Duration::from_micros(sent);
    (!sent.is_zero()).then(|| arrived.saturating_sub(sent))
}

fn turn(net: &mut Net, handler: &mut dyn FnMut(NetEvent<&[u8]>)) -> io::Result<()> {
    net.poll(Some(Duration::from_micros(200)), handler)
        .map(drop)
}

fn show(carrier: Carrier, sent: u64, arrivals: &Arrivals, packets: u64) {
    let mut ways: Vec<f64> = arrivals.iter().map(|way| way.as_secs_f64() * 1e3).collect();
    ways.sort_by(f64::total_cmp);
    let at = |q: f64| ways.get(((ways.len() as f64 - 1.0) * q) as usize).copied();
    println!(
        "{:<16} {:>5}/{:<5} {:>9.1} {:>9.1} {:>9.1} {packets:>8}",
        format!("{carrier:?}"),
        ways.len(),
        sent,
        at(0.5).unwrap_or(f64::NAN),
        at(0.99).unwrap_or(f64::NAN),
        at(1.0).unwrap_or(f64::NAN),
    );
}

/// Passes packets on after a delay, but for those that it loses.
fn relay(
    target: SocketAddr,
    loss: f64,
    delay_ms: f64,
    stop: Arc<AtomicBool>,
) -> Result<(SocketAddr, std::thread::JoinHandle<()>)> {
    let (near, far) = (
        UdpSocket::bind("127.0.0.1:0")?,
        UdpSocket::bind("127.0.0.1:0")?,
    );
    far.connect(target)?;
    for socket in [&near, &far] {
        socket.set_nonblocking(true)?;
    }
    let addr = near.local_addr()?;
    let delay = Duration::from_secs_f64(delay_ms / 1e3);
    let thread = std::thread::spawn(move || {
        let (mut waiting, mut client, mut seed) = (VecDeque::new(), None, 0x5eed_u64);
        let mut buf = [0; 2048];
        while !stop.load(Ordering::Relaxed) {
            let mut lost = || {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                ((seed >> 33) as f64) < loss * (1u64 << 31) as f64
            };
            while let Ok((len, from)) = near.recv_from(&mut buf) {
                client = Some(from);
                if !lost() {
                    waiting.push_back((Instant::now() + delay, true, buf[..len].to_vec()));
                }
            }
            while let Ok(len) = far.recv(&mut buf) {
                if !lost() {
                    waiting.push_back((Instant::now() + delay, false, buf[..len].to_vec()));
                }
            }
            while let Some((_, up, data)) = waiting.front().filter(|w| w.0 <= Instant::now()) {
                let _ = match (up, client) {
                    (true, _) => far.send(data),
                    (false, Some(client)) => near.send_to(data, client),
                    (false, None) => Ok(0),
                };
                waiting.pop_front();
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    });
    Ok((addr, thread))
}
