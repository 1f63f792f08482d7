//! The control plane over HTTP: roles, resources, and clients that mean harm.

use core::time::Duration;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use dunlin_base::transport::Transport;
use dunlin_client::QoS;
use serde_json::{Value, json};

use crate::control::{Device, ctl, fail, rows};
use crate::support::{Broker, PATIENCE, run};

/// A broker with an HTTP door.
fn start(shards: u16) -> Broker {
    Broker::start_with(shards, &["control.http.address=127.0.0.1:0"])
}

/// A new token.
fn token(broker: &Broker, name: &str, role: &str) -> String {
    let text = ctl(broker, &["token", "add", name, "--role", role]);
    let token = text.trim();
    assert!(token.starts_with("dunlin_"), "{text}");
    token.to_owned()
}

/// An answer.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.find_map(|(found, value)| found.eq_ignore_ascii_case(name).then(|| value.trim()))
    }
}

/// A connection that is used again.
struct Connection {
    stream: BufReader<TcpStream>,
    token: String,
}

impl Connection {
    fn new(broker: &Broker, token: &str) -> Self {
        let url = broker.http();
        let addr = url.strip_prefix("http://").expect("not encrypted");
        let stream = TcpStream::connect(addr).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        Self {
            stream: BufReader::new(stream),
            token: token.to_owned(),
        }
    }

    fn send(&mut self, text: &[u8]) {
        // A server that refuses early may close before everything is sent.
        let _ = self.stream.get_mut().write_all(text);
    }

    /// The next answer; `None`: the connection has ended.
    fn answer(&mut self, with_body: bool) -> Option<Answer> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.stream.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let status = head
            .get(9..12)
            .and_then(|it| it.parse().ok())
            .expect("a status");
        let mut answer = Answer {
            status,
            head,
            body: Vec::new(),
        };
        if !with_body || status == 304 {
            return Some(answer);
        }
        let length = answer
            .header("content-length")
            .map(|it| it.parse().expect("a number"));
        match length {
            Some(length) => {
                answer.body = vec![0; length];
                self.stream.read_exact(&mut answer.body).ok()?;
            }
            None => loop {
                let mut line = String::new();
                self.stream.read_line(&mut line).ok()?;
                let length = usize::from_str_radix(line.trim(), 16).expect("a chunk");
                let mut chunk = vec![0; length + 2];
                self.stream.read_exact(&mut chunk).ok()?;
                if length == 0 {
                    break;
                }
                answer.body.extend_from_slice(&chunk[..length]);
            },
        }
        Some(answer)
    }

    fn ask_with(&mut self, method: &str, target: &str, more: &str, body: &[u8]) -> Answer {
        let token = &self.token;
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
             {more}\r\n"
        );
        self.send(&[head.as_bytes(), body].concat());
        self.answer(method != "HEAD").expect("an answer")
    }

    fn ask(&mut self, method: &str, path: &str) -> Answer {
        self.ask_with(method, &format!("/api/v1{path}"), "", b"")
    }

    fn send_json(&mut self, method: &str, path: &str, body: &Value) -> Answer {
        let body = body.to_string();
        let more = format!(
            "Content-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        );
        self.ask_with(method, &format!("/api/v1{path}"), &more, body.as_bytes())
    }

    /// What a resource says, which must be there.
    fn get(&mut self, path: &str) -> Value {
        let answer = self.ask("GET", path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.json());
        answer.json()
    }
}

fn audited(broker: &Broker) -> Vec<Value> {
    let log = std::fs::read_to_string(broker.data_dir().join("audit.log")).expect("written");
    let line = |line| serde_json::from_str(line).expect("JSON");
    log.lines().map(line).collect()
}

#[test]
fn roles_are_enforced_and_orders_are_audited() {
    let broker = start(1);
    let mut of = ["read", "operate", "admin"]
        .map(|role| Connection::new(&broker, &token(&broker, &format!("{role}er"), role)));
    for (method, path, body, status) in [
        ("GET", "/whoami", None, [200, 200, 200]),
        ("GET", "/status", None, [200, 200, 200]),
        ("GET", "/history", None, [200, 200, 200]),
        ("DELETE", "/clients/gone", None, [403, 404, 404]),
        ("DELETE", "/sessions/gone", None, [403, 404, 404]),
        ("DELETE", "/retained?filter=gone", None, [403, 200, 200]),
        (
            "POST",
            "/publish",
            Some(json!({ "topic": "t" })),
            [403, 200, 200],
        ),
        (
            "POST",
            "/bans",
            Some(json!({ "whom": { "user": "eve" } })),
            [403, 200, 200],
        ),
        ("DELETE", "/bans?user=eve", None, [403, 200, 404]),
        ("POST", "/reload", None, [403, 403, 200]),
        (
            "PUT",
            "/log-level",
            Some(json!({ "filter": "[" })),
            [403, 403, 400],
        ),
        ("GET", "/tokens", None, [403, 403, 200]),
        (
            "POST",
            "/tokens",
            Some(json!({ "name": "x", "role": "read" })),
            [403, 403, 200],
        ),
        ("DELETE", "/tokens/x", None, [403, 403, 200]),
        (
            "POST",
            "/users",
            Some(json!({ "name": "bob", "password": "pass-of-bob" })),
            [403, 403, 404],
        ),
        (
            "PUT",
            "/users/bob",
            Some(json!({ "password": "pass-of-bob" })),
            [403, 403, 404],
        ),
        ("DELETE", "/users/bob", None, [403, 403, 404]),
        ("GET", "/backup", None, [403, 403, 200]),
        (
            "POST",
            "/drain",
            Some(json!({ "rate": 0 })),
            [403, 403, 400],
        ),
    ] {
        for (connection, status) in of.iter_mut().zip(status) {
            let answer = match &body {
                Some(body) => connection.send_json(method, path, body),
                None => connection.ask(method, path),
            };
            let text = String::from_utf8_lossy(&answer.body);
            assert_eq!(answer.status, status, "{method} {path}: {text}");
            if status >= 400 {
                let media = answer.header("content-type");
                assert_eq!(media, Some("application/problem+json"));
                let problem = answer.json();
                assert_eq!(problem["status"], status, "{problem}");
                assert!(problem["detail"].as_str().is_some_and(|it| !it.is_empty()));
            }
        }
    }
    let whoami = of[1].get("/whoami");
    assert_eq!(whoami, json!({ "name": "operateer", "role": "operate" }));
    let lines = audited(&broker);
    let of_door: Vec<_> = lines.iter().filter(|line| line["door"] == "http").collect();
    assert_eq!(of_door.len(), 16 * 3, "orders, and no questions");
    let count = |who: &str, outcome: &str| {
        let found = of_door
            .iter()
            .filter(|it| it["who"] == who && it["outcome"] == outcome);
        found.count()
    };
    assert_eq!(count("reader", "your role does not allow this"), 16);
    assert_eq!(count("operateer", "your role does not allow this"), 10);
    assert_eq!(count("adminer", "your role does not allow this"), 0);
    assert_eq!(count("adminer", "done"), 8);
    let text = lines.iter().map(Value::to_string).collect::<String>();
    assert!(!text.contains("dunlin_"), "no token is in the log: {text}");
    assert!(!text.contains("pass-of-bob"), "nor a password: {text}");
}

#[test]
fn clients_sessions_and_messages_are_resources() {
    let broker = start(2);
    let mut http = Connection::new(&broker, &token(&broker, "ops", "admin"));
    run(async {
        let mut first = Device::connect(&broker, Transport::Quic, "plant/1 ä").await;
        let second = Device::connect(&broker, Transport::Tcp, "b").await;
        let subscribed = second.client().subscribe("t/#", QoS::AtLeastOnce).await;
        subscribed.expect("subscribed");
        let page = http.get("/clients?prefix=plant%2F&address=127.0.0.0/8&protocol=mqtt");
        assert_eq!(page["rows"][0]["client_id"], "plant/1 ä");
        assert_eq!(
            (page["rows"].as_array().map(Vec::len), &page["next"]),
            (Some(1), &Value::Null)
        );
        let client = http.get("/clients/plant%2F1%20%C3%A4");
        assert!(client["quic"]["rtt_us"].is_number(), "{client}");
        let mut seen = Vec::new();
        let mut after = String::new();
        loop {
            let page = http.get(&format!("/sessions?limit=1{after}"));
            let found = page["rows"].as_array().expect("rows").iter();
            seen.extend(found.map(|row| row["client_id"].as_str().expect("an id").to_owned()));
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        seen.sort();
        assert_eq!(seen, ["b", "plant/1 ä"]);
        let page = http.get("/sessions/b/subscriptions");
        assert_eq!(page["rows"][0]["filter"], "t/#");
        let receivers = http.get("/receivers?topic=t/x");
        assert_eq!(
            (&receivers["count"], &receivers["rows"][0]["client_id"]),
            (&json!(1), &json!("b"))
        );

        let message = json!({ "topic": "t/a b", "payload": "hi", "qos": 1, "retain": true });
        assert_eq!(
            http.send_json("POST", "/publish", &message).json(),
            json!({ "matched": true })
        );
        let page = http.get("/retained");
        assert_eq!(
            page["rows"],
            json!([{ "topic": "t/a b", "qos": 1, "bytes": 2 }])
        );
        for path in ["/retained/t/a%20b", "/retained/t%2Fa%20b"] {
            assert_eq!(http.get(path)["payload"], "hi");
        }
        let gone = http.ask("DELETE", "/retained?filter=t/%23");
        assert_eq!(gone.json(), json!({ "count": 1 }));
        assert_eq!(http.ask("GET", "/retained/t/a%20b").status, 404);

        let gone = http.ask("DELETE", "/clients/plant%2F1%20%C3%A4?why=at+noon");
        assert_eq!(gone.json(), json!({ "count": 1 }));
        let ended = first.ended().await;
        assert!(ended.contains("at noon"), "{ended}");
        let ban = json!({ "whom": { "client_id": "b" }, "seconds": 60, "why": "tests" });
        assert_eq!(
            http.send_json("POST", "/bans", &ban).json(),
            json!({ "count": 1 })
        );
    });
    let bans = http.get("/bans");
    assert_eq!(bans["rows"][0]["whom"], json!({ "client_id": "b" }));
    assert!(bans["rows"][0]["until"].is_u64(), "{bans}");
    let table = ctl(&broker, &["bans"]);
    assert!(table.contains(" UTC"), "{table}");
    assert_eq!(http.ask("DELETE", "/bans?client_id=b").status, 200);
    let rights = http.get("/rights?user=ann&topic=a");
    assert_eq!(rights["rows"].as_array().map(Vec::len), Some(3));
    assert_eq!(
        http.ask("GET", "/users").status,
        404,
        "there is no password file"
    );
    assert_eq!(http.get("/log-level"), json!({ "filter": "info" }));
}

/// A message is in a queue of another shard a moment after it is stored.
fn until_it_has(http: &mut Connection, queue: &str, messages: u64) {
    let since = Instant::now();
    while http.get(&format!("/queues/{queue}"))["messages"] != messages {
        assert!(since.elapsed() < PATIENCE, "{messages} messages of {queue}");
    }
}

#[test]
fn queues_are_made_looked_into_moved_and_emptied() {
    let broker = start(2);
    let mut http = Connection::new(&broker, &token(&broker, "ops", "operate"));
    let options = json!({ "topics": ["t/#"], "max_messages": 2000, "dead_letter": "late/1" });
    let made = http.send_json("PUT", "/queues/jobs", &options).json();
    assert_eq!(
        (&made["name"], &made["full"]),
        (&json!("jobs"), &json!("reject"))
    );
    assert_eq!(http.send_json("PUT", "/queues/jobs", &options).status, 409);
    for wrong in [
        json!({ "topics": ["#/x"] }),
        json!({ "levels": 11 }),
        json!({ "x": 1 }),
    ] {
        assert_eq!(
            http.send_json("PUT", "/queues/x", &wrong).status,
            400,
            "{wrong}"
        );
    }
    let none = json!({});
    assert_eq!(http.send_json("PUT", "/queues/a%23", &none).status, 400);
    assert_eq!(http.send_json("PUT", "/queues/late%2F1", &none).status, 200);
    for number in 0..1500 {
        let payload = format!("m{number}");
        let message = json!({ "topic": "t/1", "payload": payload, "qos": 1 });
        assert_eq!(http.send_json("POST", "/publish", &message).status, 200);
    }
    until_it_has(&mut http, "jobs", 1500);
    let rows = http.get("/queues");
    let found: Vec<_> = rows["rows"].as_array().expect("rows").iter().collect();
    assert_eq!(found.len(), 2, "{rows}");
    let jobs = http.get("/queues/jobs");
    assert_eq!(
        (&jobs["messages"], &jobs["dead_letter"]),
        (&json!(1500), &json!("late/1"))
    );
    let first = http.get("/queues/jobs/messages?limit=2");
    assert_eq!(first["rows"][1]["payload"], "m1", "{first}");
    assert_eq!(first["rows"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        http.ask("GET", "/queues/jobs/messages?limit=101").status,
        400
    );
    assert_eq!(http.ask("GET", "/queues/gone/messages").status, 404);
    let to = |name: &str| json!({ "to": name });
    for (name, status) in [("jobs", 400), ("gone", 404)] {
        let refused = http.send_json("POST", "/queues/jobs/move", &to(name));
        assert_eq!(refused.status, status);
    }
    let mut body = to("late/1");
    body["left"] = json!(1200);
    let (mut moved, mut left) = (0, Some(1200));
    while let Some(some) = left {
        body["left"] = json!(some);
        let step = http.send_json("POST", "/queues/jobs/move", &body).json();
        moved += step["count"].as_u64().expect("a number");
        left = step["next"]
            .as_str()
            .map(|it| it.parse::<u64>().expect("a number"));
    }
    assert_eq!(moved, 1200);
    let late = http.get("/queues/late%2F1/messages?limit=1");
    assert_eq!(late["rows"][0]["payload"], "m0");
    let first = http.get("/queues/jobs/messages?limit=1");
    assert_eq!(first["rows"][0]["payload"], "m1200");
    let text = ctl(&broker, &["queue", "purge", "jobs"]);
    assert_eq!(text, "300 messages removed\n");
    let small = json!({ "max_messages": 1200 });
    assert_eq!(
        http.send_json("PATCH", "/queues/late%2F1", &small).status,
        200
    );
    let message = json!({ "topic": "t/1", "payload": "last", "qos": 1 });
    assert_eq!(http.send_json("POST", "/publish", &message).status, 200);
    until_it_has(&mut http, "jobs", 1);
    let full = http.send_json("POST", "/queues/jobs/move", &to("late/1"));
    assert_eq!(full.status, 409, "it has no room");
    assert_eq!(http.get("/queues/jobs")["messages"], 1);
    assert_eq!(
        http.ask("DELETE", "/queues/jobs").json(),
        json!({ "count": 1 })
    );
    assert_eq!(http.ask("GET", "/queues/jobs").status, 404);
    let orders = audited(&broker);
    let order = |name: &str| {
        orders
            .iter()
            .filter(|it| it["order"]["request"] == name)
            .count()
    };
    assert!(
        order("move-messages") >= 4 && order("purge-queue") >= 1,
        "{orders:?}"
    );
    assert_eq!(
        order("peek-queue") + order("queue"),
        0,
        "questions are not in it"
    );
}

#[test]
fn an_operator_publishes_only_what_receivers_can_read() {
    let broker = start(1);
    let mut http = Connection::new(&broker, &token(&broker, "ops", "admin"));
    for content_type in ["x".repeat(70_000), "a\0b".to_owned()] {
        let message = json!({ "topic": "t", "content_type": content_type });
        assert_eq!(http.send_json("POST", "/publish", &message).status, 400);
    }
    let drain = json!({ "rate": 1, "server": "a\nb" });
    assert_eq!(http.send_json("POST", "/drain", &drain).status, 400);
}

#[test]
fn the_broker_tells_what_it_was_started_with() {
    let broker = start(1);
    let mut http = Connection::new(&broker, &token(&broker, "page", "read"));
    let setting = |rows: &Value, key: &str| {
        let mut rows = rows["rows"].as_array().expect("rows").iter();
        rows.find(|row| row["key"] == key).cloned().expect(key)
    };
    let limits = http.get("/limits");
    assert_eq!(setting(&limits, "limits.max_inflight")["default"], true);
    let before = http.get("/configuration");
    let address = setting(&before, "control.http.address");
    assert_eq!(
        (&address["value"], &address["default"]),
        (&json!("127.0.0.1:0"), &json!(false))
    );
    assert_eq!(address.get("file"), None, "the file says the same");
    let file = broker.data_dir().with_file_name("dunlin.toml");
    let text = std::fs::read_to_string(&file).expect("there");
    std::fs::write(&file, format!("[limits]\nmax_inflight = 7\n{text}")).expect("written");
    let after = http.get("/configuration");
    let changed = setting(&after, "limits.max_inflight");
    assert_eq!(
        (&changed["value"], &changed["file"]),
        (&json!("1024"), &json!("7"))
    );
    let table = rows(&broker, &["configuration", "--changed"]);
    assert!(
        table.iter().any(|row| row["key"] == "limits.max_inflight"),
        "{table:?}"
    );
    assert!(
        !table
            .iter()
            .any(|row| row["key"] == "limits.max_keep_alive"),
        "{table:?}"
    );

    let listeners = http.get("/listeners");
    let listeners = listeners["rows"].as_array().expect("rows");
    let ws = listeners
        .iter()
        .find(|row| row["transport"] == "ws")
        .expect("there");
    assert_eq!(ws["path"], "/mqtt");
    assert_eq!(ws["address"], broker.addr(Transport::Ws).to_string());
    let certificates = http.get("/certificates");
    let certificates = certificates["rows"].as_array().expect("rows");
    assert_eq!(certificates.len(), 3, "QUIC, TLS and secure WebSocket");
    assert!(certificates.iter().all(|row| row["development"] == true));
    let table = ctl(&broker, &["certificates"]);
    assert!(table.contains(" UTC"), "{table}");
}

#[test]
fn the_last_hour_and_the_totals_are_shown() {
    let broker = start(2);
    let mut http = Connection::new(&broker, &token(&broker, "page", "read"));
    run(async {
        let device = Device::connect(&broker, Transport::Quic, "a").await;
        let message = dunlin_client::Publish::new("t", "x").qos(QoS::AtLeastOnce);
        device.client().publish(message).await.expect("published");
        let totals = http.get("/totals");
        assert_eq!(
            totals["messages_received"],
            json!({ "qos0": 0, "qos1": 1, "qos2": 0 })
        );
        assert_eq!(
            (
                &totals["connections"]["quic"],
                &totals["connections"]["tcp"]
            ),
            (&json!(1), &json!(0))
        );
        assert_eq!(totals["clients"]["mqtt_5_0"], 1);
        assert_eq!(
            totals["quic"]["handshakes"],
            json!({ "full": 1, "resumed": 0, "early_data": 0 })
        );
        assert!(
            totals["quic"]["rtt_p50_us"]
                .as_u64()
                .is_some_and(|it| it > 0),
            "{totals}"
        );
        assert_eq!(totals["shard_load"].as_array().map(Vec::len), Some(2));
    });
    let history = http.get("/history?since=1");
    assert_eq!(history["interval_seconds"], 10);
    let samples = history["samples"].as_array().expect("samples");
    // On a machine that took its time there are some.
    for sample in samples {
        assert!(
            sample["seconds"].as_f64().is_some_and(|it| it >= 10.0),
            "{sample}"
        );
    }
    let later = http.get(&format!("/history?since={}", u64::MAX));
    assert_eq!(later["samples"], json!([]));
}

#[test]
fn bad_requests_are_refused_with_a_reason() {
    let broker = start(1);
    let mut http = Connection::new(&broker, &token(&broker, "ops", "admin"));
    for (method, path, status, says) in [
        ("GET", "/nothing", 404, "nothing at this path"),
        ("GET", "/clients/a/b", 404, "nothing at this path"),
        ("GET", "/clients/gone", 404, "gone"),
        ("PATCH", "/clients/gone", 405, "GET, DELETE"),
        ("OPTIONS", "/clients", 405, "GET"),
        ("GET", "/clients?limit=0", 400, "`limit`"),
        ("GET", "/clients?limit=1001", 400, "`limit`"),
        ("GET", "/clients?limit=x", 400, "query"),
        ("GET", "/clients?after=x", 400, "`after`"),
        ("GET", "/clients?colour=red", 400, "unknown field"),
        ("GET", "/clients?user=a&user=b", 400, "twice"),
        ("GET", "/clients?address=x", 400, "query"),
        ("GET", "/status?x=1", 400, "unknown field"),
        ("GET", "/receivers", 400, "missing field"),
        ("GET", "/receivers?topic=a/%23", 400, "no topic"),
        ("DELETE", "/retained", 400, "missing field"),
        ("DELETE", "/bans", 400, "one of"),
        ("DELETE", "/bans?user=a&client_id=b", 400, "one of"),
        ("DELETE", "/clients/a?why=%0a", 400, "control characters"),
        ("POST", "/publish", 415, "application/json"),
    ] {
        let answer = http.ask(method, path);
        let problem = answer.json();
        assert_eq!(answer.status, status, "{method} {path}: {problem}");
        let detail = problem["detail"].as_str().expect("why");
        assert!(detail.contains(says), "{method} {path}: {detail}");
        if status == 405 {
            assert_eq!(answer.header("allow"), Some(says));
        }
    }
    // Pages past the end are empty.
    for path in [
        "/clients?after=7:7",
        "/sessions?after=1:0",
        "/retained?after=zzz",
        "/bans?after=9",
    ] {
        let page = http.get(path);
        assert_eq!(
            (&page["rows"], &page["next"]),
            (&json!([]), &Value::Null),
            "{path}"
        );
    }
    for (path, body, says) in [
        ("/publish", "{", "EOF"),
        ("/publish", r#"{"topic":"a","x":1}"#, "unknown field"),
        ("/publish", r#"{"topic":"a/#"}"#, "no topic"),
        ("/publish", r#"{"topic":"$SYS/a"}"#, "$SYS"),
        ("/bans", r#"{"whom":{"who":"a"}}"#, "unknown variant"),
        ("/tokens", r#"{"name":"a b","role":"read"}"#, "a name"),
        ("/drain", r#"{"rate":"fast"}"#, "body"),
    ] {
        let more = format!(
            "Content-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        );
        let answer = http.ask_with("POST", &format!("/api/v1{path}"), &more, body.as_bytes());
        let problem = answer.json();
        assert_eq!(answer.status, 400, "{path} {body}: {problem}");
        let detail = problem["detail"].as_str().expect("why");
        assert!(detail.contains(says), "{path} {body}: {detail}");
    }
    let again = json!({ "name": "ops", "role": "read" });
    assert_eq!(http.send_json("POST", "/tokens", &again).status, 409);
    let head = http.ask("HEAD", "/status");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert!(head.header("content-length").is_some_and(|it| it != "0"));
}

#[test]
fn hosts_origins_and_wrong_tokens_are_refused() {
    let broker = start(1);
    let good = token(&broker, "page", "read");
    let mut http = Connection::new(&broker, &good);
    for (head, status) in [
        (
            format!("Host: localhost\r\nAuthorization: Bearer {good}\r\n"),
            200,
        ),
        (
            format!("Host: evil.example\r\nAuthorization: Bearer {good}\r\n"),
            421,
        ),
        (
            format!("Host: localhost\r\nHost: localhost\r\nAuthorization: Bearer {good}\r\n"),
            400,
        ),
        (
            format!(
                "Host: localhost\r\nOrigin: http://evil.example\r\nAuthorization: Bearer {good}\r\n"
            ),
            403,
        ),
        (
            format!(
                "Host: localhost\r\nOrigin: http://localhost\r\nAuthorization: Bearer {good}\r\n"
            ),
            200,
        ),
        ("Host: localhost\r\n".to_owned(), 401),
        (
            format!("Host: localhost\r\nAuthorization: Basic {good}\r\n"),
            401,
        ),
        (
            "Host: localhost\r\nAuthorization: Bearer dunlin_x\r\n".to_owned(),
            401,
        ),
    ] {
        http.send(format!("GET /api/v1/status HTTP/1.1\r\n{head}\r\n").as_bytes());
        let answer = http.answer(true).expect("an answer");
        assert_eq!(answer.status, status, "{head}");
        let expected = (status == 401).then_some("Bearer realm=\"dunlin\"");
        assert_eq!(answer.header("www-authenticate"), expected);
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    // What has no token finds out nothing.
    http.token.clear();
    assert_eq!(http.ask("GET", "/nothing").status, 401);
    let document = http.ask("GET", "/openapi.json");
    assert_eq!(
        (document.status, &document.json()["openapi"]),
        (200, &json!("3.1.0"))
    );
    let page = http.ask_with("GET", "/", "", b"");
    assert_eq!(page.status, 200);
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.contains("default-src 'none'"), "{policy}");
    let tag = page.header("etag").expect("a tag").to_owned();
    let again = http.ask_with("GET", "/", &format!("If-None-Match: {tag}\r\n"), b"");
    assert_eq!(again.status, 304);
    assert_eq!(http.ask_with("POST", "/", "", b"").status, 405);
    assert_eq!(http.ask_with("GET", "/../tokens", "", b"").status, 404);

    let mut wrong = Connection::new(&broker, &"x".repeat(40));
    let statuses: Vec<u16> = (0..20)
        .map(|_| wrong.ask("GET", "/status").status)
        .collect();
    assert!(
        statuses.contains(&401) && statuses.ends_with(&[429, 429]),
        "{statuses:?}"
    );
    assert!(wrong.ask("GET", "/status").header("retry-after").is_some());
    let mut http = Connection::new(&broker, &good);
    http.get("/status");

    // Tokens that are taken away are good no more, on open connections too.
    assert_eq!(
        ctl(&broker, &["token", "remove", "page"]),
        "1 token removed\n"
    );
    assert_eq!(http.ask("GET", "/status").status, 429);
    assert_eq!(fail(&broker, &["token", "remove", "page"]).0, 2);
    // A file with a mistake leaves those that there are.
    let admin = token(&broker, "admin", "admin");
    let path = broker.data_dir().join("tokens");
    let text = std::fs::read_to_string(&path).expect("there");
    assert!(!text.contains(&admin), "the hash, not the token");
    std::fs::write(&path, format!("{text}nonsense\n")).expect("written");
    let mut http = Connection::new(&broker, &admin);
    let answer = http.ask("POST", "/reload");
    let detail = answer.json()["detail"].as_str().expect("why").to_owned();
    assert!(
        answer.status == 400 && detail.contains("line 2"),
        "{detail}"
    );
    std::fs::write(&path, text).expect("written");
    assert_eq!(http.ask("POST", "/reload").status, 200);
}

#[test]
fn large_slow_and_silent_clients_hold_up_no_other() {
    let broker = start(1);
    let good = token(&broker, "ops", "operate");
    let mut large = Connection::new(&broker, &good);
    let more = "Content-Type: application/json\r\nContent-Length: 99999999\r\n";
    let answer = large.ask_with("POST", "/api/v1/publish", more, b"{");
    assert_eq!(answer.status, 413, "{}", answer.json());
    let mut large = Connection::new(&broker, &good);
    let more = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n";
    let chunk = [&b"100000\r\n"[..], &vec![b' '; 1 << 20], b"\r\n"].concat();
    let body = [&chunk[..], &chunk, &chunk, b"0\r\n\r\n"].concat();
    let answer = large.ask_with("POST", "/api/v1/publish", more, &body);
    assert_eq!(answer.status, 413, "{}", answer.json());
    let mut long = Connection::new(&broker, &good);
    let more = format!("X: {}\r\n", "x".repeat(64 << 10));
    assert_eq!(
        long.ask_with("GET", "/api/v1/status", &more, b"").status,
        431
    );
    let mut many = Connection::new(&broker, &good);
    let more = "X: x\r\n".repeat(100);
    assert_eq!(
        many.ask_with("GET", "/api/v1/status", &more, b"").status,
        431
    );

    // Half a body has ten seconds; who has begun keeps the place of nothing else.
    let mut slow = Connection::new(&broker, &good);
    slow.send(
        format!(
            "POST /api/v1/publish HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {good}\r\n\
             Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{"
        )
        .as_bytes(),
    );
    // More than may be open: the oldest silent ones make room.
    let silent: Vec<_> = (0..400).map(|_| Connection::new(&broker, &good)).collect();
    let since = Instant::now();
    let mut http = Connection::new(&broker, &good);
    http.get("/status");
    assert!(since.elapsed() < PATIENCE / 2);
    drop(silent);
    assert_eq!(slow.answer(true).expect("an answer").status, 408);
}

#[test]
fn ten_thousand_orders_at_once_are_answered() {
    const CONNECTIONS: usize = 20;
    const EACH: usize = 500;
    let broker = start(2);
    let good = token(&broker, "ops", "operate");
    run(async {
        let _device = Device::connect(&broker, Transport::Tcp, "innocent").await;
        let workers: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                let mut http = Connection::new(&broker, &good);
                let order = format!(
                    "DELETE /api/v1/clients/gone HTTP/1.1\r\nHost: localhost\r\n\
                     Authorization: Bearer {good}\r\n\r\n"
                );
                std::thread::spawn(move || {
                    let mut writer = http.stream.get_ref().try_clone().expect("cloned");
                    let orders = order.repeat(EACH);
                    let writing = std::thread::spawn(move || writer.write_all(orders.as_bytes()));
                    for _ in 0..EACH {
                        let answer = http.answer(true).expect("an answer");
                        assert!([404, 429].contains(&answer.status), "{}", answer.json());
                    }
                    writing.join().expect("ended").expect("taken");
                })
            })
            .collect();
        for worker in workers {
            worker.join().expect("answered");
        }
    });
    let mut http = Connection::new(&broker, &good);
    let client = http.get("/status");
    assert_eq!(client["shards_answering"], 2);
    assert!(audited(&broker).len() <= CONNECTIONS * EACH + 1);
}

#[test]
fn a_backup_is_streamed_to_who_reads() {
    let broker = start(1);
    let good = token(&broker, "admin", "admin");
    let mut http = Connection::new(&broker, &good);
    for number in 0..40 {
        let payload = "x".repeat(100_000);
        let message =
            json!({ "topic": format!("t/{number}"), "payload": payload, "retain": true, "qos": 1 });
        assert_eq!(http.send_json("POST", "/publish", &message).status, 200);
    }
    // A client that does not read holds up no shard, and only other copies.
    let mut idle = Connection::new(&broker, &good);
    let order = format!(
        "GET /api/v1/backup HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {good}\r\n\r\n"
    );
    idle.send(order.as_bytes());
    let mut first = [0; 12];
    idle.stream.read_exact(&mut first).expect("it begins");
    http.get("/status");
    drop(idle);
    let deadline = Instant::now() + PATIENCE;
    let copy = loop {
        let answer = http.ask("GET", "/backup");
        match answer.status {
            200 => break answer,
            // The thread of the other copy finds out that its client is gone.
            429 if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            other => panic!("{other}: {}", answer.json()),
        }
    };
    assert_eq!(copy.header("content-type"), Some("application/jsonl"));
    let text = String::from_utf8(copy.body).expect("text");
    let path = broker.data_dir().join("copy.jsonl");
    ctl(
        &broker,
        &["backup", "--output", path.to_str().expect("text")],
    );
    assert_eq!(text, std::fs::read_to_string(path).expect("written"));
    assert!(text.lines().count() >= 42, "{}", text.lines().count());
}

#[test]
fn a_broker_that_stops_leaves_no_door_behind() {
    let mut broker = start(1);
    let good = token(&broker, "page", "read");
    let mut http = Connection::new(&broker, &good);
    http.get("/status");
    let url = broker.http();
    let idle = Connection::new(&broker, &good);
    broker.stop();
    let addr = url.strip_prefix("http://").expect("not encrypted");
    TcpStream::connect(addr).expect_err("the door is closed");
    drop(idle);
    // Tokens hold over restarts.
    broker.start_again(1, &["control.http.address=127.0.0.1:0"]);
    Connection::new(&broker, &good).get("/status");
}
