//! Plain TCP.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use super::*;

fn open(pair: &mut Pair) -> (ConnId, ConnId) {
    pair.connect(ListenerConfig::new(Transport::Tcp, loopback()), |addr| {
        DialConfig::new(Transport::Tcp, addr, "localhost")
    })
}

#[test]
fn echo() {
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair);
    every::echo(pair, client, server, Transport::Tcp);
}

#[test]
fn bulk_with_back_pressure() {
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair);
    every::bulk_with_back_pressure(pair, client, server);
}

#[test]
fn idle_timeout() {
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair);
    every::idle_timeout(pair, client, server);
}

#[test]
fn paused_is_not_idle() {
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair);
    every::paused_is_not_idle(pair, client, server);
}

#[test]
fn silent_client() {
    let mut pair = Pair::with_limits(NetLimits::default(), every::awaiting_bytes());
    open(&mut pair);
    every::silent_client(pair);
}

#[test]
fn half_close() {
    let mut server = Side::new(NetLimits::default());
    let addr = server
        .net
        .listen(ListenerConfig::new(Transport::Tcp, loopback()))
        .unwrap();
    let mut socket = TcpStream::connect(addr).unwrap();
    socket.write_all(b"question").unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    let finished = |e: &Ev| matches!(e, Ev::Finished(..));
    while !server.events.iter().any(finished) {
        server.poll();
    }
    assert_eq!(server.received(StreamId::CONTROL), b"question");
    let conn = server.opened().unwrap().0;
    assert_eq!(server.send(conn, StreamId::CONTROL, b"answer"), 6);
    server.net.close(conn, 0);
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"answer");
    server.poll();
    assert_eq!(server.closed(), Some(CloseCause::Peer { code: 0 }));
    assert_eq!(server.net.connections(), 0);
}

#[test]
fn close_flushes_a_backlog_larger_than_the_socket_buffers() {
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair);
    let data = pattern(20 << 20);
    let left = pair.client.send(client, StreamId::CONTROL, &data);
    assert!(left < data.len(), "the kernel took everything at once");
    pair.client.net.close(client, 0);
    let fin = Ev::Finished(server, StreamId::CONTROL);
    pair.until("end", |p| p.server.events.contains(&fin));
    assert!(pair.server.received(StreamId::CONTROL) == data);
    pair.until("closed", |p| p.client.closed().is_some());
    assert_eq!(pair.client.closed(), Some(CloseCause::Local));
}

#[test]
fn a_peer_that_never_reads_does_not_hold_a_closed_connection() {
    let limits = NetLimits {
        close_linger: Duration::from_millis(50),
        ..NetLimits::default()
    };
    let mut pair = Pair::with_limits(limits, NetLimits::default());
    let (client, server) = open(&mut pair);
    pair.server.net.conn(server).pause_reading(true);
    let _ = pair
        .client
        .send(client, StreamId::CONTROL, &pattern(20 << 20));
    pair.client.net.close(client, 0);
    pair.until("closed", |p| p.client.net.connections() == 0);
    assert_eq!(pair.client.closed(), Some(CloseCause::Local));
}

#[test]
fn a_backlog_beyond_its_cap_aborts_the_connection() {
    let limits = NetLimits {
        backlog_bytes_max: 1 << 20,
        ..NetLimits::default()
    };
    let mut pair = Pair::with_limits(limits, NetLimits::default());
    let (client, server) = open(&mut pair);
    pair.server.net.conn(server).pause_reading(true);
    let data = pattern(1 << 20);
    for _ in 0..40 {
        let _ = pair.client.send(client, StreamId::CONTROL, &data);
    }
    pair.until("closed", |p| p.client.closed().is_some());
    assert!(matches!(pair.client.closed(), Some(CloseCause::Failed(t)) if t.contains("backlog")));
    assert_eq!(pair.client.net.counters().backlog_overflows, 1);
}

#[test]
fn what_a_peer_sent_before_it_vanished_is_delivered() {
    let mut server = Side::new(NetLimits::default());
    let addr = server
        .net
        .listen(ListenerConfig::new(Transport::Tcp, loopback()))
        .unwrap();
    let mut socket = TcpStream::connect(addr).unwrap();
    while server.opened().is_none() {
        server.poll();
    }
    let conn = server.opened().unwrap().0;
    socket.write_all(b"last words").unwrap();
    // Closing with unread bytes sends RST.
    let _ = server.send(conn, StreamId::CONTROL, b"unread");
    let mut byte = [0];
    socket.read_exact(&mut byte).unwrap();
    drop(socket);
    while server.closed().is_none() {
        let _ = server.send(conn, StreamId::CONTROL, b"into the void");
        server.poll();
    }
    assert_eq!(server.received(StreamId::CONTROL), b"last words");
}

#[test]
fn a_refused_connection_says_so() {
    let addr = {
        let socket = std::net::TcpListener::bind(loopback()).unwrap();
        socket.local_addr().unwrap()
    };
    let mut side = Side::new(NetLimits::default());
    side.net
        .dial(&DialConfig::new(Transport::Tcp, addr, "localhost"))
        .unwrap();
    while side.closed().is_none() {
        side.poll();
    }
    assert!(matches!(side.closed(), Some(CloseCause::Failed(t)) if t.contains("refused")));
}

#[test]
fn a_busy_port_is_one_clear_sentence() {
    let mut side = Side::new(NetLimits::default());
    let addr = side
        .net
        .listen(ListenerConfig::new(Transport::Tcp, loopback()))
        .unwrap();
    let error = side
        .net
        .listen(ListenerConfig::new(Transport::Tcp, addr))
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with(&format!("cannot listen on tcp {addr}: ")),
        "{error}"
    );
}

#[test]
fn shards_share_a_port_and_address_limits_hold() {
    let limits = NetLimits {
        connections_per_address_max: 2,
        ..NetLimits::default()
    };
    let keys = NetKeys::random().unwrap();
    let mut shards = [0, 1].map(|n| Side::shard(n, 2, limits.clone(), keys.clone()));
    let mut config = ListenerConfig::new(Transport::Tcp, loopback());
    config.reuse_port = true;
    config.addr = shards[0].net.listen(config.clone()).unwrap();
    assert_eq!(shards[1].net.listen(config.clone()).unwrap(), config.addr);
    let sockets: Vec<_> = (0..16)
        .map(|_| TcpStream::connect(config.addr).unwrap())
        .collect();
    let refused =
        |s: &[Side; 2]| -> u64 { s.iter().map(|s| s.net.counters().refused_per_address).sum() };
    let accepted = |s: &[Side; 2]| -> u64 { s.iter().map(|s| s.net.counters().accepted).sum() };
    while refused(&shards) + accepted(&shards) < 16 {
        shards.iter_mut().for_each(Side::poll);
    }
    for (n, side) in shards.iter().enumerate() {
        assert!(side.net.counters().accepted <= 2);
        let shard = side.opened().map(|(conn, _)| conn.shard());
        assert!(shard.is_none_or(|s| usize::from(s.0) == n));
    }
    drop(sockets);
}

#[test]
fn another_thread_wakes_the_loop() {
    let mut side = Side::new(NetLimits::default());
    let waker = side.net.waker();
    let thread = std::thread::spawn(move || (0..100).for_each(|_| waker.wake()));
    side.net.poll(None, &mut |_| {}).unwrap();
    thread.join().unwrap();
}

#[test]
fn stop_listening_frees_the_port_and_keeps_connections() {
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair);
    pair.server.net.stop_listening();
    let _ = pair.client.send(client, StreamId::CONTROL, b"still here");
    pair.until_server_has(b"still here");
    pair.server.net.conn(server).abort();
    pair.until("closed", |p| p.server.closed() == Some(CloseCause::Local));
    pair.until("client sees it", |p| p.client.closed().is_some());
}

/// Runs itself in a process that may open few files.
#[test]
#[cfg(target_os = "linux")]
fn without_descriptors_the_loop_waits_and_goes_on() {
    let exe = std::env::current_exe().unwrap();
    let name = "tests::tcp::exhausted_in_a_small_process";
    let output = std::process::Command::new("sh")
        .args(["-c", "ulimit -n 48; exec \"$0\" --exact \"$1\" --ignored"])
        .arg(exe)
        .arg(name)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn exhausted_in_a_small_process() {
    let mut server = Side::new(NetLimits::default());
    let config = ListenerConfig::new(Transport::Tcp, loopback());
    let addr = server.net.listen(config).unwrap();
    let mut clients = Vec::new();
    while clients.len() < 100
        && let Ok(client) = TcpStream::connect(addr)
    {
        clients.push(client);
    }
    if clients.len() == 100 {
        return; // This process may open many files; the test says nothing.
    }
    // Leaves fewer descriptors than connections wait.
    clients.truncate(clients.len() - 5);
    while server.net.counters().accept_exhausted == 0 {
        server.poll();
    }
    let mut polls = 0;
    let start = StdInstant::now();
    while start.elapsed() < Duration::from_millis(300) {
        let long = Some(Duration::from_secs(1));
        server.net.poll(long, &mut |_| {}).unwrap();
        polls += 1;
    }
    assert!(polls < 20, "the loop spins: {polls} rounds");
    let wanted = clients.len() as u64;
    clients.truncate(3);
    while server.net.counters().accepted < wanted {
        server.poll();
    }
}
