//! Who is let in, what a reload changes, how the daemon stops, and what it
//! says when it cannot start.

use core::net::Ipv4Addr;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use dunlin::auth::passwords::{Change, changed};
use dunlin::config::Config;
use dunlin::daemon::{Daemon, StartError};
use tempfile::TempDir;

use crate::support::PATIENCE;

/// A broker at a free port that keeps nothing, with `extra` in its
/// configuration.
fn start(dir: &TempDir, shards: u16, extra: &str) -> Result<Daemon, StartError> {
    let data = dir.path().join("data");
    let text = format!(
        "data_dir = {data:?}\nshards = {shards}\n\
         [sys]\ninterval = \"0s\"\n[store]\ndurability = \"memory\"\n{extra}"
    );
    let config = Config::parse(Path::new("test"), &text).expect("valid");
    Daemon::start(config)
}

const TCP: &str = "[[listener]]\ntransport = \"tcp\"\naddress = \"127.0.0.1:0\"\n";

fn directory() -> TempDir {
    tempfile::tempdir().expect("directory")
}

/// A CONNECT of protocol `level`, with user name and password if given.
fn connect(level: u8, credentials: Option<(&str, &str)>) -> Vec<u8> {
    let mut body = b"\0\x04MQTT".to_vec();
    let flags = if credentials.is_some() { 0xc2 } else { 0x02 };
    body.extend([level, flags, 0, 60]);
    if level == 5 {
        body.push(0);
    }
    let mut text = |text: &str| {
        let len = u16::try_from(text.len()).expect("short");
        body.extend(len.to_be_bytes());
        body.extend(text.as_bytes());
    };
    text("tester");
    if let Some((user, password)) = credentials {
        text(user);
        text(password);
    }
    packet(0x10, &body)
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let len = u8::try_from(body.len()).expect("short");
    assert!(len < 0x80, "one byte of length");
    [&[first, len], body].concat()
}

/// A connection and what it answered first.
fn dial(daemon: &Daemon, first: &[u8]) -> (TcpStream, Vec<u8>) {
    let addr = daemon.bound()[0].addr;
    let mut stream = TcpStream::connect(addr).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream.write_all(first).expect("sent");
    let answer = read_packet(&mut stream);
    (stream, answer)
}

fn read_packet(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = [0; 2];
    stream.read_exact(&mut head).expect("a packet");
    let mut body = vec![0; usize::from(head[1])];
    stream.read_exact(&mut body).expect("all of it");
    [&head[..], &body].concat()
}

/// The return or reason code of CONNACK.
fn connack(daemon: &Daemon, level: u8, credentials: Option<(&str, &str)>) -> u8 {
    let (_, answer) = dial(daemon, &connect(level, credentials));
    assert_eq!(answer[0], 0x20, "{answer:?}");
    answer[3]
}

fn set_password(path: &Path, user: &str, password: &str) {
    let text = std::fs::read_to_string(path).ok();
    let change = Change::Set {
        password: password.as_bytes(),
        iterations: 4096,
    };
    let text = changed(path, text.as_deref(), user, change).expect("changed");
    std::fs::write(path, text).expect("written");
}

#[test]
fn strangers_are_kept_out() {
    let dir = directory();
    let open = start(&dir, 1, TCP).expect("started");
    assert_eq!((connack(&open, 4, None), connack(&open, 5, None)), (0, 0));
    // Nothing can verify the name; the address is what counts.
    assert_eq!(connack(&open, 5, Some(("alice", "x"))), 0);
    open.shut_down();

    let closed = start(&dir, 1, &format!("[auth]\nanonymous = \"never\"\n{TCP}"));
    let closed = closed.expect("started");
    assert_eq!(
        (connack(&closed, 4, None), connack(&closed, 5, None)),
        (5, 0x87)
    );
    closed.shut_down();
}

#[test]
fn passwords_are_verified_on_every_shard() {
    for shards in [1, 2] {
        let dir = directory();
        let path = dir.path().join("passwords");
        set_password(&path, "alice", "one");
        let auth = format!("[auth]\npassword_file = {path:?}\nanonymous = \"never\"");
        let auth = format!("{auth}\nlogin_delay = \"0s\"\n{TCP}");
        let daemon = start(&dir, shards, &auth).expect("started");
        for _ in 0..4 {
            assert_eq!(connack(&daemon, 5, Some(("alice", "one"))), 0);
            assert_eq!(connack(&daemon, 5, Some(("alice", "two"))), 0x86);
            assert_eq!(connack(&daemon, 4, Some(("alice", "two"))), 4);
            assert_eq!(connack(&daemon, 5, Some(("eve", "one"))), 0x86);
            assert_eq!(connack(&daemon, 5, None), 0x87);
        }
        daemon.shut_down();
    }
}

#[test]
fn after_three_wrong_passwords_the_next_attempt_has_to_wait() {
    let dir = directory();
    let path = dir.path().join("passwords");
    set_password(&path, "alice", "one");
    set_password(&path, "bob", "two");
    let auth = format!("[auth]\npassword_file = {path:?}\nlogin_delay = \"1m\"\n{TCP}");
    // Whichever shards they come to.
    let daemon = start(&dir, 2, &auth).expect("started");
    for _ in 0..3 {
        assert_eq!(connack(&daemon, 5, Some(("alice", "guess"))), 0x86);
    }
    assert_eq!(connack(&daemon, 5, Some(("alice", "one"))), 0x9f);
    assert_eq!(connack(&daemon, 4, Some(("alice", "one"))), 3);
    assert_eq!(connack(&daemon, 5, Some(("bob", "two"))), 0);
    daemon.shut_down();
}

#[test]
fn reload_changes_passwords_and_rules_or_nothing() {
    let dir = directory();
    let (passwords, acl) = (dir.path().join("passwords"), dir.path().join("acl"));
    set_password(&passwords, "alice", "one");
    std::fs::write(&acl, "user alice\ntopic write a\n").expect("written");
    let auth = format!("[auth]\npassword_file = {passwords:?}\nacl_file = {acl:?}\n{TCP}");
    let daemon = start(&dir, 2, &auth).expect("started");
    let (mut stream, answer) = dial(&daemon, &connect(5, Some(("alice", "one"))));
    assert_eq!(answer[3], 0);
    // PUBLISH at QoS 1 to `topic`; the reason code of PUBACK, 0 if it has none.
    let publish = |stream: &mut TcpStream, topic: u8| {
        let publish = packet(0x32, &[0, 1, topic, 0, 7, 0, b'x']);
        stream.write_all(&publish).expect("sent");
        let answer = read_packet(stream);
        assert_eq!(answer[0], 0x40, "{answer:?}");
        answer.get(4).copied().unwrap_or_default()
    };
    let both = |stream: &mut TcpStream| (publish(stream, b'a'), publish(stream, b'b'));
    // 0x10: no subscriber, which counts as accepted.
    assert_eq!(both(&mut stream), (0x10, 0x87));

    std::fs::write(&acl, "user alice\ntopic write b\n").expect("written");
    set_password(&passwords, "alice", "two");
    daemon.reload().expect("reloaded");
    // The old password is good for nothing any more, the connection included.
    let disconnect = read_packet(&mut stream);
    assert_eq!((disconnect[0], disconnect[2]), (0xe0, 0x87));
    assert_eq!(connack(&daemon, 5, Some(("alice", "one"))), 0x86);
    let (mut stream, answer) = dial(&daemon, &connect(5, Some(("alice", "two"))));
    assert_eq!(answer[3], 0);
    assert_eq!(both(&mut stream), (0x87, 0x10));

    std::fs::write(&acl, "nonsense").expect("written");
    let error = daemon.reload().expect_err("wrong").to_string();
    assert!(error.contains("acl:1: `nonsense` is not "), "{error}");
    assert_eq!(both(&mut stream), (0x87, 0x10));
    daemon.shut_down();
}

#[test]
fn clients_learn_that_the_server_goes() {
    let dir = directory();
    let daemon = start(&dir, 2, TCP).expect("started");
    let (mut five, _) = dial(&daemon, &connect(5, None));
    let addr = daemon.bound()[0].addr;
    daemon.shut_down();
    let disconnect = read_packet(&mut five);
    assert_eq!((disconnect[0], disconnect[2]), (0xe0, 0x8b));
    assert_eq!(five.read(&mut [0]).expect("closed"), 0);
    TcpStream::connect(addr).expect_err("nobody listens");
}

#[test]
fn what_prevents_a_start_is_one_sentence() {
    let dir = directory();
    let sentence = |shards, extra: &str| {
        let error = start(&dir, shards, extra).expect_err(extra);
        error.to_string()
    };
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("free port");
    let addr = taken.local_addr().expect("bound");
    for shards in [1, 2] {
        let listener = format!("[[listener]]\ntransport = \"tcp\"\naddress = \"{addr}\"\n");
        let error = sentence(shards, &listener);
        let begin = format!("listener 0 cannot listen on tcp {addr}: ");
        assert!(
            error.starts_with(&begin) && error.contains("in use"),
            "{error}"
        );
    }
    let tls = "[[listener]]\ntransport = \"tls\"\naddress = \"127.0.0.1:0\"\n\
        tls = { cert = \"no/such.pem\", key = \"no/such.key\" }\n";
    let error = sentence(1, tls);
    assert!(
        error.starts_with("listener 0: cannot read no/such.pem: "),
        "{error}"
    );
    let passwords = format!("[auth]\npassword_file = \"no/such\"\n{TCP}");
    let error = sentence(1, &passwords);
    assert!(
        error.starts_with("cannot read the password file no/such: "),
        "{error}"
    );
    let acl = format!("[auth]\nacl_file = \"no/such\"\n{TCP}");
    let error = sentence(1, &acl);
    assert!(
        error.starts_with("cannot read the access list no/such: "),
        "{error}"
    );
    std::fs::remove_dir_all(dir.path().join("data")).expect("removed");
    std::fs::write(dir.path().join("data"), "a file").expect("written");
    let error = sentence(1, TCP);
    assert!(
        error.starts_with("cannot create the data directory "),
        "{error}"
    );
}

#[test]
fn two_brokers_do_not_share_a_port() {
    let dir = directory();
    let first = start(&dir, 2, TCP).expect("started");
    let addr = first.bound()[0].addr;
    let same = format!("[[listener]]\ntransport = \"tcp\"\naddress = \"{addr}\"\n");
    let error = start(&dir, 2, &same).expect_err("taken").to_string();
    assert!(error.contains("in use"), "{error}");
    first.shut_down();
}

#[test]
fn check_reads_everything_and_makes_nothing() {
    let dir = directory();
    let data = dir.path().join("data");
    let config = |extra: &str| {
        let text = format!("data_dir = {data:?}\n{extra}");
        Config::parse(Path::new("test"), &text).expect("valid")
    };
    Daemon::check(&config("")).expect("fine");
    assert!(!data.exists());
    for (extra, sentence) in [
        (
            "[auth]\npassword_file = \"no/such\"\n",
            "cannot read the password file no/such",
        ),
        (
            "[auth]\nacl_file = \"no/such\"\n",
            "cannot read the access list no/such",
        ),
        (
            "[[listener]]\ntransport = \"quic\"\ntls = { cert = \"no/a\", key = \"no/b\" }\n",
            "listener 0: cannot read no/a",
        ),
        (
            "[[bridge]]\nname = \"b\"\nurl = \"mqtt://h\"\nuser = \"u\"\npassword_file = \"no/p\"\n\
                topic = [{ pattern = \"a\", direction = \"out\" }]\n",
            "bridge b: cannot read no/p",
        ),
        (
            "[[bridge]]\nname = \"b\"\nurl = \"mqtts://h\"\ntls = { ca = \"no/ca\" }\n\
                topic = [{ pattern = \"a\", direction = \"out\" }]\n",
            "bridge b: cannot read no/ca",
        ),
    ] {
        let error = Daemon::check(&config(extra)).expect_err(extra).to_string();
        assert!(error.starts_with(sentence), "{error}");
    }
}
