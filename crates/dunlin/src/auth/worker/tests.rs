//! Who is let in by which step, and what waits for keys or for a server.

use std::path::Path;
use std::sync::mpsc::{Receiver as Answers, channel, sync_channel};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use dunlin_base::transport::Transport;
use serde_json::json;

use super::super::fake::{Answer, Web};
use super::super::passwords::{Change, changed};
use super::super::tokens::tests::{Pair, claims, fetched};
use super::super::{Authenticator, Reply};
use super::*;
use crate::config::Config;

const DELAYS: Delays = Delays {
    first: Duration::from_secs(60),
    longest: Duration::from_secs(60),
};

/// Where clients come from that others may read.
const FAR: &str = "192.0.2.1:1";

fn login(user: &str, password: &[u8]) -> AuthRequest {
    AuthRequest::Password {
        user: Text::from(user),
        password: Bytes::copy_from_slice(password),
        client_id: Text::from_static("c"),
        peer: Peer {
            addr: FAR.parse().expect("address"),
            transport: Transport::Tls,
            listener: 0,
            identity: None,
            protocol: Text::from_static("mqtt"),
            early_data: false,
            binding: None,
        },
    }
}

fn over(mut request: AuthRequest, transport: Transport) -> AuthRequest {
    if let AuthRequest::Password { peer, .. } = &mut request {
        peer.transport = transport;
    }
    request
}

fn certified(mut request: AuthRequest) -> AuthRequest {
    if let AuthRequest::Password { peer, .. } = &mut request {
        peer.identity = Some(Text::from_static("device"));
    }
    request
}

/// A directory with a password file, where alice has `one`, and keys.
fn files(pair: &Pair) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let passwords = dir.path().join("passwords");
    let change = Change::Set {
        password: b"one",
        iterations: 4096,
    };
    let text = changed(&passwords, None, "alice", change).expect("changed");
    std::fs::write(passwords, text).expect("written");
    let set = json!({"keys": [pair.jwk("k")]}).to_string();
    std::fs::write(dir.path().join("keys"), set).expect("written");
    dir
}

const PASSWORDS: &str = "password_file = \"DIR/passwords\"\n";

const JWT: &str = "jwt = { key_file = \"DIR/keys\", algorithms = [\"ES256\"] }\n";

fn start(dir: &tempfile::TempDir, auth: &str) -> Authenticator {
    let auth = auth.replace("DIR", &dir.path().display().to_string());
    let config = Config::parse(Path::new("f"), &format!("[auth]\n{auth}")).expect("valid");
    let credentials = Credentials::load(&config.auth).expect("loaded");
    let started = credentials.start(DELAYS).expect("started");
    started.expect("there is something to verify")
}

fn reply() -> (Reply, Answers<AuthAnswer>) {
    let (sender, answer) = channel();
    let reply = move |answer| sender.send(answer).expect("waited for");
    (Box::new(reply), answer)
}

/// What is answered, in short.
fn ask(authenticator: &Authenticator, request: AuthRequest) -> String {
    let (reply, answer) = reply();
    authenticator.submit(request, reply);
    shown(answer.recv().expect("answered"))
}

fn shown(answer: AuthAnswer) -> String {
    match answer {
        AuthAnswer::Accept { user } => format!("{} by password", user.unwrap_or_default()),
        AuthAnswer::Granted(grant) => {
            let rules = grant.rules.map(|rules| rules.text().replace('\n', ";"));
            let user = grant.user.unwrap_or_default();
            format!("{user} by {}{}", grant.by.name(), rules.unwrap_or_default())
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn what_looks_like_a_token_waits_like_a_password() {
    let dir = files(&Pair::new());
    let auth = format!("order = [\"password\", \"jwt\"]\n{PASSWORDS}{JWT}");
    let authenticator = start(&dir, &auth);
    for _ in 0..3 {
        let answer = ask(&authenticator, login("alice", b"ey.a.b"));
        assert_eq!(answer, "Refuse");
    }
    assert_eq!(ask(&authenticator, login("alice", b"ey.a.b")), "TooSoon");
    assert_eq!(ask(&authenticator, login("bob", b"ey.a.b")), "Refuse");
}

#[test]
fn the_first_step_that_knows_decides() {
    let pair = Pair::new();
    let dir = files(&pair);
    let server = Web::start(|_, content| match content {
        _ if content.contains("carol") => Answer::Ok(r#"{"result":"allow"}"#.into()),
        _ if content.contains("dave") => Answer::Ok(r#"{"result":"deny"}"#.into()),
        _ if content.contains("alice") => Answer::Ok(r#"{"result":"allow","user":"she"}"#.into()),
        _ => Answer::Ok(r#"{"result":"ignore"}"#.into()),
    });
    let http = format!("http = {{ url = \"{}\" }}\n", server.url("/"));
    let token = pair.named("k", &claims("", json!(1)));
    let token = token.as_bytes();
    let (none, one) = (login("", b""), login("alice", b"one"));
    let all = format!("{PASSWORDS}{JWT}{http}");
    let order = |names: &str| format!("{all}order = [{names}]\n");
    for (auth, cases) in [
        (
            all.clone(),
            vec![
                (one.clone(), "alice by password"),
                (login("alice", b"two"), "Refuse"),
                (login("bob", b"one"), "Refuse"),
                (login("any", token), "alice by token"),
                (login("carol", b"x"), "carol by http"),
                (login("dave", b"x"), "Refuse"),
                (none.clone(), "Unknown"),
                // A certificate is for those that send nothing else.
                (certified(none.clone()), "device by client certificate"),
                (certified(login("bob", b"two")), "Refuse"),
            ],
        ),
        (
            order("\"http\", \"certificate\", \"password\""),
            vec![
                (one, "she by http"),
                (login("any", token), "Refuse"),
                (certified(none), "device by client certificate"),
            ],
        ),
        (
            format!("{PASSWORDS}{JWT}"),
            vec![
                (login("eve", b"one"), "Refuse"),
                (login("alice", token), "alice by token"),
                (login("", token), "alice by token"),
                (over(login("", token), Transport::Tcp), "Refuse"),
                (login("", b"ey.no.token"), "Refuse"),
            ],
        ),
    ] {
        let authenticator = start(&dir, &auth);
        for (request, answer) in cases {
            let shown_request = format!("{request:?}");
            assert_eq!(
                ask(&authenticator, request),
                answer,
                "{auth}: {shown_request}"
            );
        }
    }
    let readable = JWT.replace(" }", ", unencrypted = true }");
    let authenticator = start(&dir, &readable);
    let answer = ask(&authenticator, over(login("", token), Transport::Tcp));
    assert_eq!(answer, "alice by token");
}

#[test]
fn wrong_passwords_are_slowed_down_at_any_step() {
    let dir = files(&Pair::new());
    let server = Web::start(|_, _| Answer::Ok(r#"{"result":"deny"}"#.into()));
    let http = format!("http = {{ url = \"{}\" }}\n", server.url("/"));
    let authenticator = start(&dir, &http);
    let answers: Vec<String> = (0..5)
        .map(|_| ask(&authenticator, login("dave", b"x")))
        .collect();
    assert_eq!(
        answers,
        ["Refuse", "Refuse", "Refuse", "TooSoon", "TooSoon"]
    );
    // Tokens cannot be guessed, and count for nothing.
    let authenticator = start(&dir, JWT);
    for _ in 0..5 {
        assert_eq!(ask(&authenticator, login("dave", b"eyJ.x.y")), "Refuse");
    }
}

#[test]
fn a_server_that_does_not_answer_is_down() {
    let dir = files(&Pair::new());
    let server = Web::start(|line, _| match line.split(' ').nth(1) {
        Some("/html") => Answer::Ok("<html>allow</html>".into()),
        Some("/huge") => Answer::Ok(format!(
            r#"{{"result":"allow","x":"{}"}}"#,
            "x".repeat(1 << 20)
        )),
        Some("/elsewhere") => Answer::Status(302, "location: /allow\r\n"),
        Some("/kept") => Answer::Status(307, "location: /allow\r\n"),
        Some("/error") => Answer::Status(500, ""),
        Some("/forbidden") => Answer::Status(403, ""),
        Some("/noise") => Answer::Raw(vec![0xff; 100_000]),
        Some("/nothing") => Answer::Status(204, ""),
        Some("/allow") => Answer::Ok(r#"{"result":"allow"}"#.into()),
        _ => Answer::Nothing,
    });
    let server_at = |path: &str, rest: &str| {
        let url = server.url(path);
        format!("http = {{ url = \"{url}\", timeout = \"300ms\"{rest} }}\n")
    };
    for (path, up) in [
        ("/allow", true),
        ("/nothing", true),
        ("/html", false),
        ("/huge", false),
        ("/elsewhere", false),
        ("/kept", false),
        ("/error", false),
        ("/forbidden", false),
        ("/noise", false),
        ("/hangs", false),
    ] {
        let closed = start(&dir, &server_at(path, ""));
        let answer = ask(&closed, login("bob", b"x"));
        assert_eq!(answer, if up { "bob by http" } else { "Busy" }, "{path}");
        // The next step knows alice, and nothing knows bob.
        let next = server_at(path, ", when_down = \"next\"");
        let next = format!("{next}{PASSWORDS}order = [\"http\", \"password\"]\n");
        let next = start(&dir, &next);
        let answer = ask(&next, login("alice", b"one"));
        let by = if up { "http" } else { "password" };
        assert_eq!(answer, format!("alice by {by}"), "{path}");
    }
}

#[test]
fn as_many_questions_as_allowed_are_asked_at_a_time() {
    let dir = files(&Pair::new());
    let (sender, seen) = channel();
    let (go, gate) = sync_channel::<()>(0);
    let gate = std::sync::Mutex::new(gate);
    let server = Web::start(move |_, _| {
        sender.send(()).expect("counted");
        gate.lock().expect("whole").recv().expect("opened");
        Answer::Ok(r#"{"result":"allow"}"#.into())
    });
    let url = server.url("/");
    let auth =
        format!("http = {{ url = \"{url}\", connections = 2, timeout = \"15s\" }}\n{PASSWORDS}");
    let authenticator = start(&dir, &auth);
    let answers: Vec<_> = (0..3)
        .map(|_| {
            let (reply, answer) = reply();
            authenticator.submit(login("bob", b"x"), reply);
            answer
        })
        .collect();
    for _ in 0..2 {
        seen.recv().expect("asked");
    }
    // Passwords are verified meanwhile, and the third question waits.
    assert_eq!(
        ask(&authenticator, login("alice", b"one")),
        "alice by password"
    );
    assert!(seen.try_recv().is_err());
    for _ in 0..3 {
        go.send(()).expect("it waits");
    }
    for answer in answers {
        assert_eq!(shown(answer.recv().expect("answered")), "bob by http");
    }
}

/// A worker whose keys are fetched by the test.
fn fetching(ended: Option<Instant>) -> (Worker, Receiver<()>) {
    let (wake, woken) = sync_channel(1);
    let credentials = Credentials {
        topics: None,
        passwords: None,
        tokens: Some(fetched("http://127.0.0.1:1/", "")),
        server: None,
        directory: None,
        order: vec![Step::Jwt],
    };
    let worker = Worker {
        credentials,
        key: [0; 32],
        known: BTreeMap::new(),
        throttle: Throttle::new(DELAYS),
        refusals: Refusals::default(),
        fetching: Some(Fetching {
            wake,
            ended,
            waiting: Vec::new(),
        }),
        http: None,
        ldap: None,
    };
    (worker, woken)
}

fn put(worker: &mut Worker, request: AuthRequest, now: Instant) -> Answers<AuthAnswer> {
    let (reply, answer) = reply();
    worker.answer(Box::new(Asked::new(request, reply)), now);
    answer
}

#[test]
fn an_unknown_key_has_the_keys_fetched_once() {
    let (old, new) = (Pair::new(), Pair::new());
    let set = |keys: &[serde_json::Value]| Fetched::of(&json!({"keys": keys}).to_string(), "ES256");
    let token = |pair: &Pair, id| login("", pair.named(id, &claims("", json!(1))).as_bytes());
    let begin = Instant::now();
    let (mut worker, woken) = fetching(None);
    // The first keys are on their way.
    let early = put(&mut worker, token(&old, "old"), begin);
    assert!(early.try_recv().is_err() && woken.try_recv().is_err());
    worker.handle_fetched(set(&[old.jwk("old")]), begin);
    assert_eq!(shown(early.recv().expect("answered")), "alice by token");
    // Keys are new enough.
    let soon = put(
        &mut worker,
        token(&new, "new"),
        begin + Duration::from_secs(9),
    );
    assert_eq!(soon.recv().expect("answered"), AuthAnswer::Refuse);
    let later = begin + EARLY_MIN;
    let waiting = put(&mut worker, token(&new, "new"), later);
    let unknown = put(&mut worker, token(&new, "none"), later);
    assert!(woken.try_recv().is_ok() && woken.try_recv().is_err());
    // Known keys do not wait.
    let known = put(&mut worker, token(&old, "old"), later);
    assert_eq!(shown(known.recv().expect("answered")), "alice by token");
    worker.handle_fetched(set(&[old.jwk("old"), new.jwk("new")]), later);
    assert_eq!(shown(waiting.recv().expect("answered")), "alice by token");
    assert_eq!(unknown.recv().expect("answered"), AuthAnswer::Refuse);
    // A key that the server has no longer.
    worker.handle_fetched(set(&[new.jwk("new")]), later);
    let gone = put(&mut worker, token(&old, "old"), later);
    assert_eq!(gone.recv().expect("answered"), AuthAnswer::Refuse);
}

#[test]
fn few_wait_for_keys() {
    let pair = Pair::new();
    let token = pair.named("none", &claims("", json!(1)));
    let request = login("", token.as_bytes());
    let now = Instant::now();
    let (mut worker, _woken) = fetching(None);
    let waiting: Vec<_> = (0..WAITING_MAX)
        .map(|_| put(&mut worker, request.clone(), now))
        .collect();
    assert!(waiting.iter().all(|answer| answer.try_recv().is_err()));
    let more = put(&mut worker, request, now);
    assert_eq!(more.recv().expect("answered"), AuthAnswer::Busy);
}

#[test]
fn a_server_of_keys_that_was_never_there_tells_clients_to_come_again() {
    let pair = Pair::new();
    let token = |id| login("", pair.named(id, &claims("", json!(1))).as_bytes());
    let set = json!({"keys": [pair.jwk("b")]}).to_string();
    let now = Instant::now();
    let (mut worker, _woken) = fetching(None);
    let first = put(&mut worker, token("a"), now);
    worker.handle_fetched(Fetched::none(), now);
    assert_eq!(first.recv().expect("answered"), AuthAnswer::Busy);
    let soon = put(&mut worker, token("a"), now);
    assert_eq!(soon.recv().expect("answered"), AuthAnswer::Busy);
    worker.handle_fetched(Fetched::of(&set, "ES256"), now);
    let other = put(&mut worker, token("a"), now);
    assert_eq!(other.recv().expect("answered"), AuthAnswer::Refuse);
}

#[test]
fn a_reload_keeps_the_keys_that_were_fetched() {
    let pair = Pair::new();
    let now = Instant::now();
    let (mut worker, woken) = fetching(Some(now));
    let set = json!({"keys": [pair.jwk("k")]}).to_string();
    worker.handle_fetched(Fetched::of(&set, "ES256"), now);
    let (other, _) = fetching(Some(now));
    worker.replace(other.credentials);
    // And asks for newer ones.
    assert!(woken.try_recv().is_ok());
    let token = pair.named("k", &claims("", json!(1)));
    let answer = put(&mut worker, login("", token.as_bytes()), now);
    assert_eq!(shown(answer.recv().expect("answered")), "alice by token");
}

#[test]
fn threads_end_with_the_authenticator() {
    let door = Door(Weak::new());
    let asked = Box::new(Asked::new(login("", b""), reply().0));
    assert!(door.try_send(Job::Ask(asked)).is_err());
    let (jobs, queue) = sync_channel(1);
    let jobs = Arc::new(jobs);
    let door = Door(Arc::downgrade(&jobs));
    drop(jobs);
    assert!(
        queue.recv().is_err()
            && !door.send(Job::Fetched(Fetched::of(
                &json!({"keys": [Pair::new().jwk("k")]}).to_string(),
                "ES256",
            )))
    );
}
