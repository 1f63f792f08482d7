//! Measures what a message costs the loop: a server on one thread echoes what
//! a client on another sends, and the server's CPU time is divided by the
//! number of messages. With `idle N` it holds N silent connections instead,
//! dialled by a child process, and divides the growth of its own memory.
//!
//! ```text
//! cargo run --release -p dunlin-net --example echo [tcp|tls|ws|wss|quic] [messages]
//! cargo run --release -p dunlin-net --example echo idle quic 2000
//! ```

#![allow(clippy::print_stdout)]

use core::error::Error;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Instant;

use dunlin_base::transport::{NetEvent, NetEventKind, Transport};
use dunlin_base::{ConnId, SendBuf, ShardId, StreamId, Text};
use dunlin_net::{
    ClientTls, Clock, DialConfig, ListenerConfig, Net, NetConfig, NetKeys, NetLimits, ServerTls,
    ServerTlsOptions,
};

type Result<T> = core::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Size of a message.
const MESSAGE_BYTES: usize = 64;
/// Connections, and messages in flight on each.
const SHAPES: [(usize, usize); 3] = [(1, 64), (1, 1), (100, 1)];
/// Connections of `idle` dialled before the others wait.
const DIALS_PENDING_MAX: usize = 200;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["idle", name, count] => idle_server(transport(name)?, count.parse()?),
        ["idle-client", name, addr, count] => {
            idle_client(transport(name)?, addr.parse()?, count.parse()?)
        }
        [name] => measure(&[transport(name)?], 2_000_000),
        [name, count] => measure(&[transport(name)?], count.parse()?),
        _ => {
            use Transport::{Quic, Tcp, Tls, Ws, Wss};
            measure(&[Tcp, Tls, Quic, Ws, Wss], 2_000_000)
        }
    }
}

fn transport(name: &str) -> Result<Transport> {
    Ok(match name {
        "tcp" => Transport::Tcp,
        "tls" => Transport::Tls,
        "ws" => Transport::Ws,
        "wss" => Transport::Wss,
        "quic" => Transport::Quic,
        other => return Err(format!("unknown transport {other}").into()),
    })
}

fn server_tls() -> Result<Arc<ServerTls>> {
    let cert = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
    let (pem, key) = (cert.cert.pem(), cert.signing_key.serialize_pem());
    let options = ServerTlsOptions::new(pem.into(), key.into());
    Ok(Arc::new(ServerTls::new(&options)?))
}

fn client_tls() -> Result<Arc<ClientTls>> {
    let builder = ClientTls::builder().dangerous_accept_any_certificate();
    Ok(Arc::new(builder.build()?))
}

fn net() -> Result<Net> {
    let mut config = NetConfig::new(ShardId(0), 1, Clock::new(), NetKeys::random()?);
    config.limits = limits();
    Ok(Net::new(config)?)
}

fn limits() -> NetLimits {
    let mut limits = NetLimits::default();
    limits.first_bytes_timeout = Duration::from_secs(3600);
    limits
}

fn listen(net: &mut Net, transport: Transport) -> Result<SocketAddr> {
    let mut config = ListenerConfig::new(transport, SocketAddr::from(([127, 0, 0, 1], 0)));
    config.protocols = vec![Text::from_static("mqtt")];
    config.tls = Some(server_tls()?);
    Ok(net.listen(config)?)
}

fn dial(
    net: &mut Net,
    transport: Transport,
    addr: SocketAddr,
    tls: &Arc<ClientTls>,
) -> Result<ConnId> {
    let mut config = DialConfig::new(transport, addr, "localhost");
    config.protocols = vec![Text::from_static("mqtt")];
    config.tls = Some(Arc::clone(tls));
    Ok(net.dial(&config)?)
}

fn measure(transports: &[Transport], messages: usize) -> Result<()> {
    println!(
        "transport  conns  in flight  messages/s  server CPU us/message  client CPU us/message"
    );
    for &transport in transports {
        for (conns, in_flight) in SHAPES {
            // Without a pipeline there is far less to send in the same time.
            let messages = if in_flight > 1 {
                messages
            } else {
                messages / 20
            };
            let run = run(transport, conns, in_flight, messages)?;
            println!(
                "{:<9}  {conns:>5}  {in_flight:>9}  {:>10.0}  {:>21.3}  {:>21.3}",
                transport.name(),
                messages as f64 / run.elapsed.as_secs_f64(),
                run.server_cpu.as_secs_f64() * 1e6 / messages as f64,
                run.client_cpu.as_secs_f64() * 1e6 / messages as f64,
            );
        }
    }
    Ok(())
}

struct Run {
    elapsed: Duration,
    server_cpu: Duration,
    client_cpu: Duration,
}

fn run(transport: Transport, conns: usize, in_flight: usize, messages: usize) -> Result<Run> {
    let mut server = net()?;
    let addr = listen(&mut server, transport)?;
    let stop = Arc::new(AtomicBool::new(false));
    let (cpu_in, cpu_out) = channel();
    let waker = server.waker();
    let stopped = Arc::clone(&stop);
    let thread = std::thread::spawn(move || -> Result<()> {
        // The time of connecting is not counted.
        let mut before = None;
        serve(&mut server, &stopped, &mut || {
            before.get_or_insert_with(thread_cpu);
        })?;
        let spent = thread_cpu().saturating_sub(before.unwrap_or_default());
        Ok(cpu_in.send(spent)?)
    });
    let mut client = net()?;
    let tls = client_tls()?;
    for _ in 0..conns {
        dial(&mut client, transport, addr, &tls)?;
    }
    let (elapsed, client_cpu) = pump(&mut client, conns, in_flight, messages)?;
    stop.store(true, Ordering::SeqCst);
    waker.wake();
    thread.join().map_err(|_| "the server failed")??;
    Ok(Run {
        elapsed,
        server_cpu: cpu_out.recv()?,
        client_cpu,
    })
}

/// Echoes until it is to stop.
fn serve(net: &mut Net, stop: &AtomicBool, on_bytes: &mut dyn FnMut()) -> Result<()> {
    let mut pending: Vec<(ConnId, SendBuf)> = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let mut used = 0;
        net.poll(None, &mut |event| {
            if let NetEvent {
                conn,
                kind: NetEventKind::Bytes { data, .. },
            } = event
            {
                on_bytes();
                if !pending.iter().take(used).any(|(c, _)| *c == conn) {
                    if pending.len() == used {
                        pending.push((conn, SendBuf::new()));
                    }
                    if let Some(slot) = pending.get_mut(used) {
                        slot.0 = conn;
                    }
                    used += 1;
                }
                if let Some((_, buf)) = pending.iter_mut().take(used).find(|(c, _)| *c == conn) {
                    buf.put_slice(data);
                }
            }
        })?;
        for (conn, buf) in pending.iter_mut().take(used) {
            let _ = net.send(*conn, StreamId::CONTROL, buf);
        }
        net.flush();
    }
    Ok(())
}

/// Keeps `in_flight` messages under way on each connection.
fn pump(
    net: &mut Net,
    conns: usize,
    in_flight: usize,
    messages: usize,
) -> Result<(Duration, Duration)> {
    let message = [0x5a; MESSAGE_BYTES];
    let mut open = Vec::new();
    while open.len() < conns {
        let mut closed = None;
        net.poll(None, &mut |event| match event.kind {
            NetEventKind::Opened { .. } => open.push(event.conn),
            NetEventKind::Closed { cause } => closed = Some(cause),
            _ => {}
        })?;
        if let Some(cause) = closed {
            return Err(cause.to_string().into());
        }
    }
    let (start, cpu) = (Instant::now(), thread_cpu());
    let mut buf = SendBuf::new();
    for conn in &open {
        (0..in_flight).for_each(|_| buf.put_slice(&message));
        let _ = net.send(*conn, StreamId::CONTROL, &mut buf);
    }
    net.flush();
    let (mut received, mut got) = (0, Vec::<(ConnId, usize)>::new());
    while received < messages * MESSAGE_BYTES {
        got.clear();
        net.poll(None, &mut |event| {
            if let NetEvent {
                conn,
                kind: NetEventKind::Bytes { data, .. },
            } = event
            {
                match got.last_mut() {
                    Some((last, n)) if *last == conn => *n += data.len(),
                    _ => got.push((conn, data.len())),
                }
            }
        })?;
        for (conn, n) in &got {
            received += n;
            // As many bytes as came back; their boundaries mean nothing here.
            let mut left = *n;
            while left > 0 {
                let part = left.min(MESSAGE_BYTES);
                buf.put_slice(message.get(..part).unwrap_or_default());
                left -= part;
            }
            let _ = net.send(*conn, StreamId::CONTROL, &mut buf);
        }
        net.flush();
    }
    Ok((start.elapsed(), thread_cpu().saturating_sub(cpu)))
}

fn idle_server(transport: Transport, count: usize) -> Result<()> {
    let mut net = net()?;
    let addr = listen(&mut net, transport)?;
    let before = resident_bytes()?;
    let name = match transport {
        Transport::Tcp => "tcp",
        Transport::Tls => "tls",
        Transport::Ws => "ws",
        Transport::Wss => "wss",
        _ => "quic",
    };
    let (addr, dials) = (addr.to_string(), count.to_string());
    let mut child = std::process::Command::new(std::env::current_exe()?)
        .args(["idle-client", name, &addr, &dials])
        .stdin(std::process::Stdio::piped())
        .spawn()?;
    let mut spoke = 0;
    let cpu = thread_cpu();
    while spoke < count {
        let mut conns = Vec::new();
        net.poll(None, &mut |event| {
            if let NetEventKind::Bytes { .. } = event.kind {
                conns.push(event.conn);
            }
        })?;
        for conn in conns {
            spoke += 1;
            let mut buf = SendBuf::new();
            buf.put_slice(b"welcome");
            let _ = net.send(conn, StreamId::CONTROL, &mut buf);
        }
        net.flush();
    }
    let cpu = thread_cpu().saturating_sub(cpu);
    // What handshakes leave behind goes with the next round trips.
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        net.poll(Some(Duration::from_millis(100)), &mut |_| {})?;
    }
    let grown = resident_bytes()?.saturating_sub(before);
    println!(
        "{name}: {count} idle connections, {} bytes each, {:.3} ms of CPU each to accept",
        grown / count,
        cpu.as_secs_f64() * 1e3 / count as f64,
    );
    child.kill()?;
    child.wait()?;
    Ok(())
}

fn idle_client(transport: Transport, addr: SocketAddr, count: usize) -> Result<()> {
    let mut net = net()?;
    let tls = client_tls()?;
    let (mut dialled, mut open) = (0, 0);
    loop {
        while dialled < count && dialled - open < DIALS_PENDING_MAX {
            dial(&mut net, transport, addr, &tls)?;
            dialled += 1;
        }
        let mut fresh = Vec::new();
        net.poll(None, &mut |event| {
            if let NetEventKind::Opened { .. } = event.kind {
                fresh.push(event.conn);
            }
        })?;
        for conn in fresh {
            open += 1;
            let mut buf = SendBuf::new();
            buf.put_slice(b"hello");
            let _ = net.send(conn, StreamId::CONTROL, &mut buf);
        }
        net.flush();
    }
}

/// CPU time of this thread (Linux).
fn thread_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|n| n.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// Resident memory of this process (Linux).
fn resident_bytes() -> Result<usize> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kilobytes: usize = line
        .and_then(|l| l.trim().strip_suffix(" kB"))
        .ok_or("no VmRSS in /proc/self/status")?
        .trim()
        .parse()?;
    Ok(kilobytes * 1024)
}
