//! Directories that answer, hang, lie or send nonsense, as sockets of this test.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use bytes::Bytes;
use dunlin_base::transport::{Peer, Transport};

use super::ber::{ENUMERATED, INTEGER, OCTETS, Reader, SEQUENCE, SET, Writer};
use super::*;
use crate::config::Config;

/// What a directory of a test does with a request: its tag and contents.
type Act = dyn Fn(u32, u8, &[u8]) -> Deed + Send + Sync;

enum Deed {
    Send(Vec<u8>),
    /// It never answers.
    Hang,
    /// It sends a byte now and then.
    Drip,
    Close,
}

/// A directory, its port, and how many connections it has taken.
fn directory(
    act: impl Fn(u32, u8, &[u8]) -> Deed + Send + Sync + 'static,
) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (act, taken): (Arc<Act>, _) = (Arc::new(act), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&taken);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (act, Ok(stream)) = (Arc::clone(&act), stream) else {
                return;
            };
            count.fetch_add(1, Ordering::Relaxed);
            std::thread::spawn(move || serve(stream, &*act));
        }
    });
    (port, taken)
}

fn serve(mut stream: TcpStream, act: &Act) {
    while let Some(message) = receive(&mut stream) {
        let mut reader = Reader::new(&message);
        let (Some(number), Some((tag, body))) = (reader.number(INTEGER), reader.element()) else {
            return;
        };
        match act(number, tag, body) {
            Deed::Send(bytes) => stream.write_all(&bytes).unwrap_or_default(),
            // Until the client has gone.
            Deed::Hang => drop(stream.read(&mut [0; 1])),
            Deed::Drip => {
                while stream.write_all(&[SEQUENCE]).is_ok() {
                    std::thread::sleep(Duration::from_millis(10));
                }
                return;
            }
            Deed::Close => return,
        }
    }
}

fn receive(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut head = vec![0; 2];
    stream.read_exact(&mut head).ok()?;
    if head[1] >= 0x80 {
        head.resize(2 + usize::from(head[1] & 0x7f), 0);
        stream.read_exact(&mut head[2..]).ok()?;
    }
    let mut body = vec![0; ber::length(&head)?.0];
    stream.read_exact(&mut body).ok()?;
    Some(body)
}

/// The end of an operation.
fn done(number: u32, tag: u8, code: u32) -> Vec<u8> {
    let mut out = Writer::default();
    out.nested(SEQUENCE, |it| {
        it.number(INTEGER, number).nested(tag, |it| {
            it.number(ENUMERATED, code)
                .bytes(OCTETS, b"")
                .bytes(OCTETS, b"said");
        });
    });
    out.finish()
}

fn entry(number: u32, name: &str, attributes: &[(&str, &[&str])]) -> Vec<u8> {
    let mut out = Writer::default();
    out.nested(SEQUENCE, |it| {
        it.number(INTEGER, number).nested(0x64, |it| {
            it.bytes(OCTETS, name.as_bytes()).nested(SEQUENCE, |it| {
                for (kind, values) in attributes {
                    it.nested(SEQUENCE, |it| {
                        it.bytes(OCTETS, kind.as_bytes()).nested(SET, |it| {
                            for value in *values {
                                it.bytes(OCTETS, value.as_bytes());
                            }
                        });
                    });
                }
            });
        });
    });
    out.finish()
}

/// What a bind says: name and password.
fn bind_of(body: &[u8]) -> (String, Vec<u8>) {
    let mut reader = Reader::new(body);
    assert_eq!(reader.number(INTEGER), Some(3));
    let name = reader.expect(OCTETS).expect("a name").to_vec();
    let password = reader.expect(0x80).expect("a password").to_vec();
    (String::from_utf8(name).expect("text"), password)
}

/// A directory with alice, who is of two groups.
fn good(number: u32, tag: u8, body: &[u8]) -> Deed {
    Deed::Send(match tag {
        0x60 => {
            let code = match bind_of(body) {
                (name, password) if name.is_empty() && password.is_empty() => 0,
                (name, password) if name == "uid=alice,dc=x" && password == b"right" => 0,
                // Of a real one, without a password: an anonymous bind.
                (_, password) if password.is_empty() => 0,
                _ => 49,
            };
            done(number, 0x61, code)
        }
        _ => {
            let groups: &[&str] = &[
                "cn=ops,ou=groups,dc=x",
                "cn=\\00,dc=x",
                "cn=Night Shift,dc=x",
            ];
            let attributes = [("UID", &["alice"][..]), ("memberOf", groups)];
            let found = entry(number, "uid=alice,dc=x", &attributes);
            [found, done(number, 0x65, 0)].concat()
        }
    })
}

const DN: &str = "user_dn = \"uid={user},dc=x\"";
const FILTER: &str = "base = \"dc=x\", filter = \"(uid={user})\"";

fn asker(port: u16, how: &str) -> Asker {
    let text = format!("[auth]\nldap = {{ url = \"ldap://127.0.0.1:{port}\", {how} }}\n");
    let config = Config::parse(Path::new("f"), &text).expect("valid");
    let server = Server::load(config.auth.ldap.as_ref().expect("there")).expect("loaded");
    Asker {
        shared: server.0,
        connection: None,
    }
}

fn request(user: &str, password: &[u8]) -> AuthRequest {
    AuthRequest::Password {
        user: Text::from(user),
        password: Bytes::copy_from_slice(password),
        client_id: Text::from_static("c"),
        peer: Peer {
            addr: "192.0.2.1:1".parse().expect("an address"),
            transport: Transport::Tls,
            listener: 0,
            identity: None,
            protocol: Text::new(),
            early_data: false,
            binding: None,
        },
    }
}

/// The groups that let a user in, as lines; `None`: it is refused.
fn groups(verdict: Verdict) -> Option<String> {
    match verdict {
        Verdict::Allow(grant) => {
            assert_eq!((grant.user.as_deref(), grant.by), (Some("alice"), By::Ldap));
            Some(
                grant
                    .rules
                    .map(|it| it.text().to_owned())
                    .unwrap_or_default(),
            )
        }
        Verdict::Deny => None,
        Verdict::Ignore => Some("ignored".into()),
    }
}

#[test]
fn a_right_password_lets_in_with_the_groups_of_the_entry() {
    for how in [DN, FILTER] {
        let (port, taken) = directory(good);
        let how = format!("{how}, cache = \"0s\"");
        let mut asker = asker(port, &how);
        for _ in 0..2 {
            let verdict = asker.ask(&request("alice", b"right")).expect("an answer");
            let lines = groups(verdict).expect("let in");
            assert!(lines.contains("group ops\n"), "{lines}");
            assert!(lines.contains("group Night Shift\n"), "{lines}");
            let verdict = asker.ask(&request("alice", b"wrong")).expect("an answer");
            assert_eq!(groups(verdict), None);
        }
        assert_eq!(taken.load(Ordering::Relaxed), 1, "one connection");
    }
}

/// A bind with a name and no password succeeds at a directory, and says nothing.
#[test]
fn no_password_is_never_right() {
    let (port, taken) = directory(good);
    for how in [DN, FILTER] {
        let mut asker = asker(port, how);
        let cases: [(&str, &[u8]); 4] = [
            ("alice", b""),
            ("alice\0", b"right"),
            ("a\nb", b"right"),
            ("$bridge:x", b"right"),
        ];
        for (user, password) in cases {
            let verdict = asker.ask(&request(user, password));
            assert_eq!(groups(verdict.expect("an answer")), None, "{user:?}");
        }
        let verdict = asker.ask(&request("", b"right")).expect("an answer");
        assert_eq!(verdict, Verdict::Ignore);
    }
    assert_eq!(taken.load(Ordering::Relaxed), 0, "nothing was asked");
}

#[test]
fn a_name_that_is_written_otherwise_is_another() {
    let (port, _) = directory(|number, tag, body| match tag {
        // Compared as a directory does.
        0x60 => Deed::Send(done(number, 0x61, 0)),
        _ => good(number, tag, body),
    });
    for how in [DN, FILTER] {
        let mut asker = asker(port, how);
        for user in ["Alice", "alice ", " alice"] {
            let verdict = asker.ask(&request(user, b"right")).expect("an answer");
            assert_eq!(groups(verdict), None, "{user:?}");
        }
        let verdict = asker.ask(&request("alice", b"right")).expect("an answer");
        assert!(groups(verdict).is_some());
    }
}

#[test]
fn a_right_password_is_remembered_for_a_while_and_a_wrong_one_never() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let (port, _) = directory(move |number, tag, body| {
        count.fetch_add(1, Ordering::Relaxed);
        good(number, tag, body)
    });
    let mut asker = asker(port, DN);
    for _ in 0..3 {
        let verdict = asker.ask(&request("alice", b"right")).expect("an answer");
        assert!(groups(verdict).expect("let in").contains("group ops\n"));
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2, "a bind and a search");
    for _ in 0..2 {
        let verdict = asker.ask(&request("alice", b"wrong")).expect("an answer");
        assert_eq!(groups(verdict), None);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 4);
    // What is over is asked again.
    let later = Instant::now() + Duration::from_secs(61);
    assert_eq!(asker.shared.cache.get("alice", b"right", later), None);
}

#[test]
fn groups_that_do_not_count_are_left_out_and_too_many_are_an_error() {
    let (port, _) = directory(|number, tag, body| match tag {
        0x60 => good(number, tag, body),
        _ => {
            let names: Vec<String> = (0..40).map(|it| format!("cn=g{it},dc=x")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let attributes = [("uid", &["alice"][..]), ("memberOf", &names)];
            let found = entry(number, "uid=alice,dc=x", &attributes);
            Deed::Send([found, done(number, 0x65, 0)].concat())
        }
    });
    let counts = format!("{DN}, groups = [\"g7\", \"none\"]");
    let verdict = asker(port, &counts).ask(&request("alice", b"right"));
    let lines = groups(verdict.expect("an answer")).expect("let in");
    assert!(
        lines.ends_with("group g7\n") && !lines.contains("none"),
        "{lines}"
    );
    let error = asker(port, DN).ask(&request("alice", b"right"));
    let error = error.expect_err("too many").to_string();
    assert!(error.contains("auth.ldap.groups"), "{error}");
}

#[test]
fn who_is_not_found_is_for_the_next_step_and_two_entries_are_none() {
    let found = |entries: usize| {
        let (port, _) = directory(move |number, tag, body| match tag {
            0x60 => good(number, tag, body),
            _ => {
                let one = entry(number, "uid=alice,dc=x", &[("uid", &["alice"])]);
                Deed::Send([one.repeat(entries), done(number, 0x65, 0)].concat())
            }
        });
        asker(port, FILTER).ask(&request("alice", b"right"))
    };
    assert_eq!(
        groups(found(0).expect("an answer")).as_deref(),
        Some("ignored")
    );
    assert!(groups(found(1).expect("an answer")).is_some());
    let error = found(2).expect_err("two").to_string();
    assert!(error.contains("more than one entry"), "{error}");
}

#[test]
fn a_connection_that_was_closed_meanwhile_is_made_again() {
    let (port, taken) = directory(|number, tag, body| match (tag, number) {
        (0x60, 3) => Deed::Close,
        _ => good(number, tag, body),
    });
    let mut asker = asker(port, &format!("{DN}, cache = \"0s\""));
    for _ in 0..3 {
        let verdict = asker.ask(&request("alice", b"right")).expect("an answer");
        assert!(groups(verdict).is_some());
    }
    assert_eq!(taken.load(Ordering::Relaxed), 3);
}

/// A directory that hangs, drips, closes, or sends what is no LDAP gives no answer, in
/// bounded time and memory.
#[test]
fn what_is_no_answer_is_none() {
    let long = [&[SEQUENCE, 0x84, 0x7f, 0xff, 0xff, 0xff][..], &[0; 64]].concat();
    let other = |number: u32| done(number.wrapping_add(1), 0x61, 0);
    type Odd = Box<dyn Fn(u32) -> Deed + Send + Sync>;
    let cases: Vec<(&str, Odd)> = vec![
        ("hangs", Box::new(|_| Deed::Hang)),
        ("drips", Box::new(|_| Deed::Drip)),
        ("closes", Box::new(|_| Deed::Close)),
        ("garbage", Box::new(|_| Deed::Send(vec![0xff; 4096]))),
        (
            "http",
            Box::new(|_| Deed::Send(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec())),
        ),
        ("endless", Box::new(move |_| Deed::Send(long.clone()))),
        (
            "indefinite",
            Box::new(|_| Deed::Send(vec![SEQUENCE, 0x80, 0, 0])),
        ),
        ("another", Box::new(move |number| Deed::Send(other(number)))),
        ("notice", Box::new(|_| Deed::Send(done(0, 0x78, 52)))),
        (
            "busy",
            Box::new(|number| Deed::Send(done(number, 0x61, 51))),
        ),
        (
            "search",
            Box::new(|number| Deed::Send(done(number, 0x65, 0))),
        ),
        (
            "empty",
            Box::new(|number| {
                let mut out = Writer::default();
                out.nested(SEQUENCE, |it| {
                    it.number(INTEGER, number).bytes(0x61, b"");
                });
                Deed::Send(out.finish())
            }),
        ),
    ];
    for (what, act) in cases {
        let (port, _) = directory(move |number, _, _| act(number));
        for how in [DN, FILTER] {
            let begun = Instant::now();
            let mut asker = asker(port, &format!("{how}, timeout = \"300ms\""));
            let answer = asker.ask(&request("alice", b"right"));
            assert!(answer.is_err(), "{what}: {answer:?}");
            assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        }
    }
    // Entries without end.
    let (port, _) = directory(|number, tag, body| match tag {
        0x60 => good(number, tag, body),
        _ => Deed::Send(entry(number, "uid=alice,dc=x", &[("uid", &["alice"])]).repeat(100)),
    });
    let error = asker(port, FILTER).ask(&request("alice", b"right"));
    let error = error.expect_err("no end").to_string();
    assert!(error.contains("too many messages"), "{error}");
    // No one listens.
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = port.local_addr().expect("an address").port();
    assert!(asker(port, DN).ask(&request("alice", b"right")).is_err());
}

/// TLS is not begun on what came before it, and a directory without it gets no password.
#[test]
fn no_password_goes_to_a_directory_that_begins_no_tls() {
    let binds = Arc::new(AtomicUsize::new(0));
    for code in [0, 2, 52] {
        let count = Arc::clone(&binds);
        let (port, _) = directory(move |number, tag, _| {
            count.fetch_add(usize::from(tag == 0x60), Ordering::Relaxed);
            // With bytes of what pretends to be the answer to a bind.
            Deed::Send([done(number, 0x78, code), done(2, 0x61, 0)].concat())
        });
        let ca = tempfile::tempdir().expect("a directory");
        crate::certs::init(ca.path(), 1, &crate::certs::Options::default()).expect("an authority");
        let ca = ca.path().join("ca.pem");
        let how = format!("{DN}, start_tls = true, ca_file = {ca:?}, timeout = \"2s\"");
        let answer = asker(port, &how).ask(&request("alice", b"right"));
        assert!(answer.is_err(), "{code}: {answer:?}");
    }
    assert_eq!(binds.load(Ordering::Relaxed), 0);
}
