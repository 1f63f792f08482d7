//! How long a shard with a million clients does nothing else while an operator looks at
//! it, without sockets: each step of each question, and the longest.
//!
//! ```text
//! cargo run --release -p dunlin-broker --example operators [CLIENTS] [TIMES]
//! ```
//!
//! A question is asked page by page until the last one, `TIMES` times; a page counts with
//! the quickest of these, so that another program on the machine does not count. Orders
//! are given once. Exits with 1 where a step takes longer than [`STEP_MAX`]. A million
//! clients take some 4 GiB and half a minute.

#![allow(clippy::print_stdout, reason = "its table is its answer")]

use core::time::Duration;
use std::env;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant as Clock;

use dunlin_base::transport::{NetCommandKind, NetEvent, NetEventKind, Peer, Transport};
use dunlin_base::{ConnId, Instant, ShardId, StreamId, Text};
use dunlin_broker::auth::{Anonymous, AuthPolicy};
use dunlin_broker::bans::{Banned, Bans};
use dunlin_broker::control::values::{
    ClientFilter, Ending, EndingKind, Place, Reply, Request, SessionFilter,
};
use dunlin_broker::{Config, Input, Output, Shard};
use dunlin_store::{MemoryStore, Request as StoreRequest, StoreDone};

/// Clients, unless the command line says how many.
const CLIENTS: u64 = 1_000_000;

/// How often each question is asked, likewise.
const TIMES: u64 = 3;

/// Longest time that one step may take.
const STEP_MAX: Duration = Duration::from_millis(2);

/// Rows of a page, as the HTTP API has at most.
const ROWS: usize = 1000;

/// Subscriptions of the client that has many, whose session is ended.
const MANY: u64 = 100_000;

/// Pages of a question that are looked at: 10,000 bans of networks make them short.
const PAGES_MAX: usize = 40_000;

/// A shard, and its store.
struct World {
    shard: Shard,
    store: MemoryStore,
    now: Instant,
    replies: Vec<Reply>,
    /// What the store took, which has a thread of its own.
    stored: Duration,
    /// The store says that it has what it is to write, and keeps what it had: what it frees
    /// would take the time of this thread's next steps.
    is_idle: bool,
}

impl World {
    fn new() -> Self {
        let mut config = Config {
            listeners: vec![AuthPolicy {
                anonymous: Anonymous::Always,
                ..AuthPolicy::default()
            }],
            retained_max: usize::MAX,
            ..Config::default()
        };
        config.sys.interval = Duration::ZERO;
        config.clients.connections_max = usize::MAX;
        config.memory.bytes = 64 << 30;
        config.memory.sessions_max = usize::MAX;
        config.memory.subscription_bytes_max = 1 << 30;
        let now = Instant::from_micros(1_000_000);
        Self {
            shard: Shard::new(config, now),
            store: MemoryStore::new(),
            now,
            replies: Vec::new(),
            stored: Duration::ZERO,
            is_idle: false,
        }
    }

    fn event(&mut self, conn: ConnId, kind: NetEventKind<&[u8]>) {
        let event = NetEvent::new(conn, kind);
        self.shard.handle(self.now, Input::Net(event));
    }

    fn bytes(&mut self, conn: ConnId, data: &[u8]) {
        let stream = StreamId::CONTROL;
        self.event(conn, NetEventKind::Bytes { stream, data });
    }

    /// Does what the shard asks for, until it asks for nothing.
    fn turn(&mut self) {
        while let Some(output) = self.shard.poll_output() {
            match output {
                Output::Net(command) => {
                    if let NetCommandKind::Send { stream, data } = command.kind {
                        let bytes = data.len();
                        self.shard.recycle(data);
                        self.event(command.conn, NetEventKind::Sent { stream, bytes });
                    }
                }
                Output::Store(request) => {
                    let begun = Clock::now();
                    let done = match request {
                        StoreRequest::Write(batch) if self.is_idle => {
                            StoreDone::Committed { token: batch.token }
                        }
                        request => self.store.handle(&request),
                    };
                    self.stored += begun.elapsed();
                    self.shard.handle(self.now, Input::Store(done));
                }
                Output::Control { reply, .. } => self.replies.push(reply),
                _ => {}
            }
        }
    }

    /// A client that is connected: its session ends with the connection, or stays.
    fn client(&mut self, number: u64, stays: bool) -> ConnId {
        let conn = ConnId::new(ShardId(0), number);
        let [_, a, b, c] = (number as u32).to_be_bytes();
        let peer = Peer {
            addr: ([10, a, b, c], 1).into(),
            transport: Transport::Tcp,
            listener: 0,
            identity: None,
            protocol: Text::from_static("mqtt"),
            early_data: false,
            binding: None,
        };
        self.event(conn, NetEventKind::Opened { peer });
        // No keep alive.
        let mut head = b"\0\x04MQTT\x05".to_vec();
        head.extend_from_slice(match stays {
            true => &[0, 0, 0, 5, 0x11, 0xff, 0xff, 0xff, 0xff],
            false => &[2, 0, 0, 0],
        });
        head.extend(string(&format!("client-{number:07}")));
        self.bytes(conn, &packet(0x10, &head));
        conn
    }

    fn subscribe(&mut self, conn: ConnId, filter: &str) {
        let body = [&[0, 1, 0][..], &string(filter), &[1]].concat();
        self.bytes(conn, &packet(0x82, &body));
    }

    /// What a request takes, with what the shard wants done for it.
    fn ask(&mut self, request: Request) -> (Duration, Reply) {
        self.replies.clear();
        let number = 1;
        let took = self.time(|world| {
            let input = Input::Control { number, request };
            world.shard.handle(world.now, input);
        });
        (took, self.replies.pop().expect("a reply"))
    }

    /// What something takes, with what the shard wants done for it, but for the store.
    fn time(&mut self, act: impl FnOnce(&mut Self)) -> Duration {
        self.stored = Duration::ZERO;
        let begun = Clock::now();
        act(self);
        self.turn();
        begun.elapsed().saturating_sub(self.stored)
    }

    /// What each step takes that is due from now on, until nothing is.
    fn steps(&mut self) -> Vec<Duration> {
        let mut took = Vec::new();
        while let Some(at) = self.shard.poll_timeout() {
            self.now = at;
            took.push(self.time(|world| world.shard.handle_timeout(at)));
        }
        took
    }

    /// What each page of a question takes.
    fn pages(&mut self, question: &Question) -> Vec<Duration> {
        let (mut next, mut took) = (Next::Place(0), Vec::new());
        loop {
            let (time, reply) = self.ask(question(&next));
            took.push(time);
            match next_of(reply) {
                Some(after) if took.len() < PAGES_MAX => next = after,
                _ => return took,
            }
        }
    }
}

impl World {
    /// What each step of a count takes, and the answers before and after it.
    fn figures(&mut self) -> Vec<Duration> {
        let counted = self.shard.census();
        // The next count begins no sooner.
        self.now += Duration::from_secs(60);
        let begun = Clock::now();
        self.shard.figures(self.now);
        let mut took = vec![begun.elapsed()];
        took.extend(self.steps());
        let begun = Clock::now();
        let figures = self.shard.figures(self.now);
        took.push(begun.elapsed());
        assert_eq!(figures.spoken, counted.spoken);
        took
    }
}

/// Where a page begins.
enum Next {
    Place(Place),
    After(Text),
}

impl Next {
    const fn place(&self) -> Place {
        match self {
            Self::Place(place) => *place,
            Self::After(_) => 0,
        }
    }

    fn after(&self) -> Option<Text> {
        match self {
            Self::Place(_) => None,
            Self::After(text) => Some(text.clone()),
        }
    }
}

type Question = dyn Fn(&Next) -> Request;

fn next_of(reply: Reply) -> Option<Next> {
    match reply {
        Reply::Clients(page) => page.next.map(Next::Place),
        Reply::Queues(page) => page.next.map(Next::Place),
        Reply::Ended { next, .. } => next.map(Next::Place),
        Reply::Subscriptions(found) => found?.1.map(Next::After),
        Reply::Retained(_, next) => next.map(Next::After),
        _ => None,
    }
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes(), text.as_bytes()].concat()
}

/// A packet of less than 128 bytes.
fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    [&[first, body.len() as u8], body].concat()
}

/// Of each step the quicker one.
fn lower(best: &mut [Duration], again: Vec<Duration>) {
    for (best, again) in best.iter_mut().zip(again) {
        *best = again.min(*best);
    }
}

/// Prints a row; whether no step took too long.
fn row(name: &str, mut took: Vec<Duration>) -> bool {
    took.sort_unstable();
    let micros = |it: Option<&Duration>| it.map_or(0, Duration::as_micros);
    let sum: Duration = took.iter().sum();
    println!(
        "| {name} | {} | {} | {} | {:.1} |",
        took.len(),
        micros(took.get(took.len() / 2)),
        micros(took.last()),
        sum.as_secs_f64() * 1000.0
    );
    took.last().is_none_or(|longest| *longest <= STEP_MAX)
}

fn clients(filter: ClientFilter) -> Box<Question> {
    Box::new(move |next| Request::Clients {
        filter: filter.clone(),
        at: next.place(),
        limit: ROWS,
    })
}

fn sessions(filter: SessionFilter) -> Box<Question> {
    Box::new(move |next| Request::Sessions {
        filter: filter.clone(),
        at: next.place(),
        limit: ROWS,
    })
}

fn retained(filter: &'static str) -> Box<Question> {
    Box::new(move |next| Request::Retained {
        filter: Text::from_static(filter),
        after: next.after(),
        limit: ROWS,
    })
}

/// What changes nothing.
fn questions() -> Vec<(&'static str, Box<Question>)> {
    let prefix = |text| Text::from_static(text);
    vec![
        ("clients, all", clients(ClientFilter::default())),
        (
            "clients whose name begins so: none",
            clients(ClientFilter {
                client_id: prefix("device"),
                ..ClientFilter::default()
            }),
        ),
        (
            "clients of a network: none",
            clients(ClientFilter {
                network: "192.0.2.0/24".parse().ok(),
                ..ClientFilter::default()
            }),
        ),
        ("sessions, all", sessions(SessionFilter::default())),
        (
            "sessions with a filter: one",
            sessions(SessionFilter {
                subscribed: Some(prefix("fleet/7/command")),
                ..SessionFilter::default()
            }),
        ),
        (
            "sessions that wait: none",
            sessions(SessionFilter {
                connected: Some(false),
                ..SessionFilter::default()
            }),
        ),
        (
            "clients whose page on $SYS is read",
            Box::new(|next| Request::Watched {
                at: next.place(),
                limit: ROWS,
            }),
        ),
        (
            "queues of AMQP: none",
            Box::new(|next| Request::Queues {
                at: next.place(),
                limit: ROWS,
            }),
        ),
        (
            "subscriptions of one client",
            Box::new(|next| Request::Subscriptions {
                client_id: Text::from_static("client-0000002"),
                after: next.after(),
                limit: ROWS,
            }),
        ),
        (
            "receivers of a topic: all",
            Box::new(|_| Request::Receivers {
                topic: Text::from_static("all/now"),
                limit: ROWS,
            }),
        ),
        ("retained, all", retained("#")),
        ("retained, one level any", retained("fleet/+/state")),
        ("retained, nothing matches", retained("fleet/+/none/+")),
    ]
}

/// Orders, each of which ends what it is about.
fn orders(world: &mut World) -> bool {
    let ending = || Ending {
        kind: EndingKind::Ordered,
        why: Text::from_static("tests"),
    };
    let mut good = true;
    let forget = |from: u64| {
        let topics = (from..from + 128).map(|at| Text::from(format!("fleet/{at}/state")));
        Request::Forget(topics.collect())
    };
    let took = (0..100).map(|at| world.ask(forget(1 + 128 * at)).0);
    good &= row("retained, removed", took.collect());
    let bans = |limit: u32| {
        let address = |at: u32| {
            let range = format!("192.{}.{}.0/24", at / 256, at % 256);
            let range = range.parse().expect("a range");
            (Banned::Address(range), Instant::FAR_FUTURE)
        };
        Request::Ban(Arc::new((0..limit).map(address).collect::<Bans>()))
    };
    good &= row("bans, replaced", vec![world.ask(bans(10_000)).0]);
    world.is_idle = true;
    let (client_id, ending_one) = (Text::from_static("client-0000002"), ending());
    let mut took = vec![
        world
            .ask(Request::EndSession {
                client_id,
                ending: ending_one,
            })
            .0,
    ];
    took.extend(world.steps());
    world.is_idle = false;
    assert!(took.len() > 100, "in one piece");
    good &= row("session with many subscriptions, ended", took);
    let end_all = |banned| {
        move |next: &Next| Request::EndAll {
            filter: ClientFilter {
                banned,
                ..ClientFilter::default()
            },
            at: next.place(),
            limit: usize::MAX,
            ending: ending(),
        }
    };
    good &= row("clients that are banned: none", world.pages(&end_all(true)));
    let took = (0..1000).map(|at| {
        let conn = ConnId::new(ShardId(0), 3 + at);
        let ending = ending();
        world.ask(Request::End { conn, ending }).0
    });
    good &= row("clients, disconnected one by one", took.collect());
    good &= row("clients, disconnected all", world.pages(&end_all(false)));
    good
}

fn main() -> ExitCode {
    let mut args = env::args().skip(1).map(|arg| arg.parse::<u64>());
    let mut number = |default| args.next().map_or(default, |it| it.expect("a number"));
    let clients = number(CLIENTS);
    let times = number(TIMES).max(1);
    let mut world = World::new();
    let begun = Clock::now();
    for number in 1..=clients {
        let conn = world.client(number, number % 2 == 0);
        world.subscribe(conn, &format!("fleet/{number}/command"));
        world.subscribe(conn, "all/+");
        let topic = string(&format!("fleet/{number}/state"));
        world.bytes(conn, &packet(0x31, &[&topic[..], b"\0on"].concat()));
        world.turn();
    }
    let second = ConnId::new(ShardId(0), 2);
    for number in 0..MANY {
        world.subscribe(second, &format!("many/{number}"));
        world.turn();
    }
    let census = world.shard.census();
    assert_eq!(census.sessions as u64, clients, "all are there");
    assert_eq!(census.retained as u64, clients, "all are retained");
    assert_eq!(census.subscriptions as u64, 2 * clients + MANY);
    println!(
        "{clients} clients, filled in {:.0} s.\n",
        begun.elapsed().as_secs_f64()
    );
    println!("| | steps | median, µs | longest, µs | all, ms |");
    println!("|---|--:|--:|--:|--:|");
    let mut good = true;
    for (name, question) in questions() {
        let mut best = world.pages(&*question);
        for _ in 1..times {
            lower(&mut best, world.pages(&*question));
        }
        good &= row(name, best);
    }
    let mut best = world.figures();
    for _ in 1..times {
        lower(&mut best, world.figures());
    }
    good &= row("figures for metrics", best);
    let begun = Clock::now();
    let census = world.shard.census();
    println!(
        "\nAt once, as tests do: {} ms for {} sessions.\n",
        begun.elapsed().as_millis(),
        census.sessions
    );
    good &= orders(&mut world);
    match good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
