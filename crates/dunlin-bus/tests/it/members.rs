//! Who is a member, when nodes come, leave, die and stand still.

use core::time::Duration;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use dunlin_bus::{Bus, Config, Encoding, Event, Expelled, JoinError, Lost, NodeId};

use crate::node::{Node, SECRET, config, link_all};
use crate::server::{Server, Sync, WAIT};

/// Where a node in a process of its own joins.
const URL: &str = "DUNLIN_BUS_TEST_URL";

/// In a process that [`Process`] starts: a node that says on standard output what it is given.
#[test]
fn in_a_process() {
    let Ok(url) = std::env::var(URL) else {
        return;
    };
    let mut config = config(&url, "process");
    config.timing.ttl = Duration::from_secs(5);
    let (to, events) = channel();
    let bus = Bus::join(config, move |event| drop(to.send(event))).expect("joins");
    let mut out = std::io::stdout();
    writeln!(out, "node {}", bus.member().node).expect("written");
    for event in events {
        match event {
            Event::Linked(_) => writeln!(out, "linked"),
            Event::Expelled(cause) => writeln!(out, "expelled: {}", cause.name()),
            _ => Ok(()),
        }
        .expect("written");
    }
}

/// A node in a process of its own.
struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    fn start(url: &str) -> Self {
        let program = std::env::current_exe().expect("this test");
        let mut child = Command::new(program)
            .args(["--exact", "members::in_a_process", "--nocapture"])
            .env(URL, url)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a process");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let (to, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if to.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    fn wait(&self, wanted: &str) -> String {
        let until = Instant::now() + WAIT;
        loop {
            let line = self.lines.recv_timeout(until - Instant::now());
            let line = line.unwrap_or_else(|_| panic!("{wanted}: it does not come"));
            if let Some((_, rest)) = line.split_once(wanted) {
                return rest.to_owned();
            }
        }
    }

    fn id(&self) -> NodeId {
        let number = self.wait("node ").parse().expect("a number");
        NodeId::new(number).expect("a node's")
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &id]).status();
        assert!(sent.expect("kill").success());
    }

    fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it has ended");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// With the times that a cluster has by default, but for silence: machines of tests are busy.
fn watching(server: &Server, name: &str) -> Config {
    let mut config = config(&server.url("dl:d"), name);
    config.timing.silence = Duration::from_secs(5);
    config.timing.evict_after = Duration::from_secs(3);
    config
}

fn lost(node: &mut Node, id: NodeId) -> Lost {
    node.wait(|_, event| match event {
        Event::Lost { link, cause } if link.node == id => Some(*cause),
        _ => None,
    })
}

fn expelled(node: &mut Node) -> Expelled {
    node.wait(|_, event| match event {
        Event::Expelled(cause) => Some(*cause),
        _ => None,
    })
}

fn left(node: &mut Node, id: NodeId) {
    if node.members.contains_key(&id) {
        node.wait(|own, _| (!own.members.contains_key(&id)).then_some(()));
    }
}

/// Its links fall silent, its entry is ended, and the next node with its number is another one.
#[test]
fn a_node_that_is_killed_leaves_and_its_number_is_used_again() {
    let Some(server) = Server::start(Sync::Default) else {
        return;
    };
    let mut nodes: Vec<_> = ["a", "b"]
        .map(|name| Node::join(watching(&server, name)))
        .into();
    link_all(&mut nodes);
    let mut process = Process::start(&server.url("dl:d"));
    let id = process.id();
    process.wait("linked");
    process.wait("linked");
    let mut before = Vec::new();
    for node in &mut nodes {
        node.linked_to(id);
        assert!(node.send(id, 100));
        before.push(node.peers[&id].clone());
    }
    process.kill();
    for node in &mut nodes {
        let cause = lost(node, id);
        assert!(matches!(cause, Lost::Silence | Lost::Left), "{cause:?}");
        left(node, id);
    }
    let mut config = config(&server.url("dl:d"), "another");
    config.wanted = Some(id);
    let other = Node::join(config);
    assert_eq!(other.id(), id);
    for (node, before) in nodes.iter_mut().zip(&before) {
        node.linked_to(id);
        let peer = node.peers[&id].clone();
        assert_ne!(peer.id().incarnation, before.id().incarnation);
        assert!(
            before.send(bytes::Bytes::new()).is_err(),
            "it leads to no other node"
        );
        assert!(node.send(id, 100));
    }
    nodes.push(other);
    let others: Vec<_> = nodes[..2].iter().map(Node::id).collect();
    for from in others {
        nodes[2].received_from(from, 1);
    }
}

/// A node that stood still is expelled, and knows it when it wakes.
#[test]
fn a_node_that_stands_still_is_expelled() {
    let Some(server) = Server::start(Sync::Default) else {
        return;
    };
    let mut node = Node::join(watching(&server, "a"));
    let process = Process::start(&server.url("dl:d"));
    let id = process.id();
    process.wait("linked");
    node.linked_to(id);
    process.signal("-STOP");
    left(&mut node, id);
    process.signal("-CONT");
    process.wait("expelled: ");
    assert!(!node.members.contains_key(&id));
}

#[test]
fn a_node_that_leaves_is_seen_at_once() {
    let Some(server) = Server::start(Sync::Default) else {
        return;
    };
    let mut nodes: Vec<_> = ["a", "b", "c"]
        .map(|name| Node::join(config(&server.url("dl:d"), name)))
        .into();
    link_all(&mut nodes);
    let gone = nodes.remove(1);
    let id = gone.id();
    assert_eq!(gone.bus.member().about.addresses, ["mqtt://b"]);
    gone.bus.leave();
    for node in &mut nodes {
        let cause = lost(node, id);
        assert!(matches!(cause, Lost::Closed | Lost::Left), "{cause:?}");
        left(node, id);
    }
    let again = Node::join(config(&server.url("dl:d"), "d"));
    assert_eq!(again.id(), id, "the lowest that is free");
}

/// Nodes of releases that understand each other are linked; one that does not fit is refused.
#[test]
fn a_node_joins_those_that_it_understands() {
    let Some(server) = Server::start(Sync::Default) else {
        return;
    };
    let of = |name: &str, version, least, oldest| {
        let mut config = config(&server.url("dl:d"), name);
        config.about.encoding = Encoding {
            version,
            least,
            oldest,
        };
        config
    };
    let mut nodes = vec![
        Node::join(of("old", 1, 1, 1)),
        Node::join(of("new", 2, 1, 1)),
    ];
    link_all(&mut nodes);
    let ids = [nodes[0].id(), nodes[1].id()];
    assert!(nodes[0].send(ids[1], 100) && nodes[1].send(ids[0], 100));
    nodes[0].received_from(ids[1], 1);
    nodes[1].received_from(ids[0], 1);
    for (least, oldest) in [(2, 1), (2, 2)] {
        let refused = Bus::join(of("newer", 3, least, oldest), drop);
        let error = refused.expect_err("the old one does not fit");
        let is_old =
            |error: &JoinError| matches!(error, JoinError::Encoding { name, .. } if name == "old");
        assert!(is_old(&error), "{error}");
    }
    // The others know of no attempt, and it works when the old one has left.
    nodes.remove(0).bus.leave();
    left(&mut nodes[0], ids[0]);
    nodes.push(Node::join(of("newer", 3, 2, 2)));
    link_all(&mut nodes);
}

/// Who writes over an entry, or ends it, expels the node; it joins again as another one.
#[test]
fn an_entry_that_is_gone_expels() {
    let Some(server) = Server::start(Sync::Default) else {
        return;
    };
    let mut nodes: Vec<_> = ["a", "b"]
        .map(|name| Node::join(config(&server.url("dl:d"), name)))
        .into();
    link_all(&mut nodes);
    let (a, b) = (nodes[0].id(), nodes[1].id());
    let incarnation = nodes[0].bus.member().incarnation;
    let key = format!("$KV.dl-nodes.{b}");
    crate::strangers::publish(&server, &key, b"another");
    assert_eq!(expelled(&mut nodes[1]), Expelled::Taken);
    left(&mut nodes[0], b);
    crate::strangers::end_key(&server, &format!("$KV.dl-nodes.{a}"));
    assert_eq!(expelled(&mut nodes[0]), Expelled::Ended);
    let again = Node::join(config(&server.url("dl:d"), "a"));
    assert_eq!(again.id(), a);
    assert_ne!(again.bus.member().incarnation, incarnation);
    let wanted = Config {
        wanted: Some(b),
        ..config(&server.url("dl:d"), "c")
    };
    let other = Node::join(wanted);
    assert_ne!(
        other.id(),
        b,
        "what a stranger wrote is in the way until it is ended"
    );
}

/// Without a server, a node does not stay a member by its own judgement.
#[test]
fn a_node_without_a_server_is_expelled() {
    let Some(mut server) = Server::start(Sync::Default) else {
        return;
    };
    let mut short = config(&server.url("dl:d"), "a");
    short.timing.ttl = Duration::from_secs(3);
    let mut nodes = vec![
        Node::join(short),
        Node::join(config(&server.url("dl:d"), "b")),
    ];
    link_all(&mut nodes);
    server.kill();
    assert_eq!(expelled(&mut nodes[0]), Expelled::Silent);
    server.run();
    let id = nodes[0].id();
    left(&mut nodes[1], id);
}

/// 20 at once: each has a number of its own.
#[test]
fn nodes_that_join_at_once_have_different_numbers() {
    let Some(server) = Server::start(Sync::Default) else {
        return;
    };
    let url = server.url("dl:d");
    let joining: Vec<_> = (0..20)
        .map(|at| {
            let url = url.clone();
            std::thread::spawn(move || {
                let joined = Bus::join(config(&url, &format!("n{at}")), |_| ());
                joined.expect("joins")
            })
        })
        .collect();
    let nodes: Vec<_> = joining
        .into_iter()
        .map(|t| t.join().expect("ended"))
        .collect();
    let mut ids: Vec<_> = nodes.iter().map(|bus| bus.member().node).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 20);
}

/// The leader of the bucket is killed: none is a member less.
#[test]
fn members_outlive_an_election() {
    let Some(mut servers) = Server::cluster() else {
        return;
    };
    let join = |name: &str, urls: Vec<String>| {
        let mut config = config("", name);
        config.replicas = 3;
        config.patience = WAIT;
        config.timing.evict_after = Duration::from_secs(3);
        config.urls = urls;
        Node::join(config)
    };
    let urls: Vec<_> = servers.iter().map(|server| server.url("dl:d")).collect();
    let mut nodes = vec![join("a", urls.clone()), join("b", urls)];
    link_all(&mut nodes);
    let leader = servers[0].leader("KV_dl-nodes").expect("a leader");
    let leader: usize = leader[1..].parse().expect("a number");
    servers[leader].kill();
    // Longer than an election; a link may be lost with the connection, but no member.
    let until = Instant::now() + Duration::from_secs(15);
    while Instant::now() < until {
        for node in &mut nodes {
            let event = node.look(Duration::from_millis(100));
            let is_bad = matches!(event, Some(Event::Left { .. } | Event::Expelled(_)));
            assert!(!is_bad, "{event:?}");
        }
    }
    link_all(&mut nodes);
    let (a, b) = (nodes[0].id(), nodes[1].id());
    let until = Instant::now() + WAIT;
    while nodes[1].received.values().sum::<u64>() == 0 {
        assert!(Instant::now() < until);
        nodes[0].send(b, 10);
        for node in &mut nodes {
            while node.look(Duration::from_millis(10)).is_some() {}
        }
    }
    assert_eq!(nodes[1].members.keys().collect::<Vec<_>>(), [&a]);
}

#[test]
fn a_bucket_of_others_is_refused() {
    let Some(server) = Server::start(Sync::Default) else {
        return;
    };
    let other = r#"{"name":"KV_dl-nodes","subjects":["$KV.dl-nodes.>"],"storage":"file"}"#;
    let made = crate::strangers::ask(&server, "$JS.API.STREAM.CREATE.KV_dl-nodes", other);
    assert!(!made.contains("error"), "{made}");
    let refused = Bus::join(config(&server.url("dl:d"), "a"), |_| ()).expect_err("refused");
    assert!(matches!(refused, JoinError::Bucket { .. }), "{refused}");
    let short = Config::new(&server.url("dl:d"), &SECRET[..15], Default::default());
    let refused = Bus::join(short, |_| ()).expect_err("refused");
    assert!(matches!(refused, JoinError::Config(_)), "{refused}");
}

#[test]
fn a_server_that_is_not_there_is_waited_for() {
    let Some(mut server) = Server::start(Sync::Default) else {
        return;
    };
    server.kill();
    let mut impatient = config(&server.url("dl:d"), "a");
    impatient.patience = Duration::from_millis(100);
    let refused = Bus::join(impatient, |_| ()).expect_err("refused");
    assert!(matches!(refused, JoinError::Connect(_)), "{refused}");
    let patient = config(&server.url("dl:d"), "a");
    let joining = std::thread::spawn(|| Node::join(patient));
    std::thread::sleep(Duration::from_secs(1));
    server.run();
    assert_eq!(joining.join().expect("joined").id().get(), 1);
}
