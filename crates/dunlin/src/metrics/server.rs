//! The HTTP server: a thread that accepts, and few more that answer. What it
//! shows it asks of the shards.

use core::cmp::Reverse;
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use dunlin_net::{Qlog, http};
use dunlin_store_redb::StoreMetrics;
use serde_json::json;

use super::connection::conn_id;
use super::http::{JSON, Refused, Request, Response, decode};
use super::log::LogViews;
use super::ready::Readiness;
use super::shards::Shards;
use super::text::{self, Exposition};
use super::{log, logs, report};
use crate::bridge::{Bridges, stats as bridge};
use crate::control::audit::Who;
use crate::control::cluster::Known;
use crate::control::plane::Plane;
use crate::control::values::{self as control, ClientFilter, Code, Page, PageOf, Reply, Role};
use crate::daemon::mailbox::Addresses;
use crate::daemon::query::Query;

/// Connections at a time. The oldest one of the address that has the most makes
/// room for a new one: a request takes milliseconds, so it is one that is
/// silent.
const CONNECTIONS_MAX: usize = 64;

/// Requests answered at a time; more wait for their turn.
const ANSWERS_MAX: usize = 8;

/// Age up to which metrics are shown again instead of asked for: a flood of
/// scrapes costs the shards no more than one a second.
const METRICS_AGE_MAX: Duration = Duration::from_secs(1);

/// Where everything is known.
pub(crate) struct Sources {
    pub(crate) shards: Addresses,
    pub(crate) plane: Arc<Plane>,
    /// How many threads serve them.
    pub(crate) threads: Arc<AtomicUsize>,
    pub(crate) store: Option<Arc<StoreMetrics>>,
    /// What this broker is to the store, where that is a log.
    pub(crate) log: Option<LogViews>,
    pub(crate) qlog: Option<Qlog>,
    pub(crate) ready: Arc<Readiness>,
    /// Names of this machine, besides `localhost` and addresses.
    pub(crate) hosts: Vec<String>,
    pub(crate) bridges: Option<Arc<Bridges>>,
    /// The cluster that this broker is a node of, if it is.
    pub(crate) cluster: Option<Arc<dyn Known>>,
    pub(crate) started: Instant,
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Server {
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Binds the address and starts to answer.
    pub(crate) fn start(addr: SocketAddr, sources: Sources) -> io::Result<Self> {
        let listener = TcpListener::bind(addr)?;
        let addr = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let shared = Arc::new(Shared {
            shards: Shards::new(sources.shards.clone()),
            sources,
            latest: Mutex::new(None),
            open: Mutex::new(VecDeque::new()),
            answering: Mutex::new(0),
            answered: Condvar::new(),
        });
        let thread = std::thread::Builder::new()
            .name("metrics".into())
            .spawn(move || accept(&listener, &shared, &stopped))?;
        Ok(Self {
            addr,
            stop,
            thread: Some(thread),
        })
    }

    pub(crate) const fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let mut addr = self.addr;
        if addr.ip().is_unspecified() {
            addr.set_ip(match addr {
                SocketAddr::V4(_) => core::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => core::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        // Wakes the thread. Where that fails it goes with the process.
        if TcpStream::connect_timeout(&addr, Duration::from_secs(1)).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>, stop: &AtomicBool) {
    /// Pause when no descriptor is left.
    const PAUSE: Duration = Duration::from_millis(100);
    let mut number = 0;
    loop {
        let accepted = listener.accept();
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let Ok((mut stream, peer)) = accepted else {
            std::thread::sleep(PAUSE);
            continue;
        };
        number += 1;
        let Ok(handle) = stream.try_clone() else {
            continue;
        };
        shared.enter(Open {
            number,
            ip: peer.ip().to_canonical(),
            stream: handle,
        });
        let answering = Arc::clone(shared);
        let spawned = std::thread::Builder::new()
            .name("metrics-answer".into())
            .spawn(move || {
                if let Err(error) = answering.serve(&mut stream) {
                    tracing::debug!(%error, "a request for metrics was not answered");
                }
                answering.leave(number);
            });
        if spawned.is_err() {
            shared.leave(number);
        }
    }
}

/// A connection under way.
struct Open {
    number: u64,
    ip: IpAddr,
    /// To end it from another thread.
    stream: TcpStream,
}

/// What the answering threads share.
struct Shared {
    sources: Sources,
    shards: Shards,
    /// The latest metrics, and when they were asked for.
    latest: Mutex<Option<(Instant, String)>>,
    /// Connections, the oldest first.
    open: Mutex<VecDeque<Open>>,
    answering: Mutex<usize>,
    /// One of those is over.
    answered: Condvar,
}

impl Shared {
    /// Lists a connection, and ends another one if there are too many.
    fn enter(&self, new: Open) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= CONNECTIONS_MAX
            && let Some(oldest) = crowded(open.iter().map(|o| o.ip))
            && let Some(oldest) = open.remove(oldest)
        {
            let _ = oldest.stream.shutdown(Shutdown::Both);
        }
        open.push_back(new);
    }

    fn leave(&self, number: u64) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|o| o.number != number);
    }

    /// Answers in turn with the others.
    fn in_turn(&self, answer: impl FnOnce() -> Response) -> Response {
        let full = |answering: &mut usize| *answering >= ANSWERS_MAX;
        let answering = self.answering.lock();
        let answering = answering.unwrap_or_else(PoisonError::into_inner);
        let waited = self.answered.wait_while(answering, full);
        *waited.unwrap_or_else(PoisonError::into_inner) += 1;
        let response = answer();
        let answering = self.answering.lock();
        *answering.unwrap_or_else(PoisonError::into_inner) -= 1;
        self.answered.notify_one();
        response
    }

    /// Whether a client calls this machine by a name that is its own. Any other
    /// is of a web page whose name was pointed here (DNS rebinding).
    fn is_expected(&self, host: Option<&str>) -> bool {
        host.is_none_or(|host| {
            let name = http::name_of(host);
            let listed = |known: &String| known.eq_ignore_ascii_case(name);
            http::is_local_name(host) || self.sources.hosts.iter().any(listed)
        })
    }

    fn serve(&self, stream: &mut TcpStream) -> io::Result<()> {
        let (response, with_body) = match Request::read(stream)? {
            Ok(request) if !self.is_expected(request.host.as_deref()) => {
                let why = "this machine is not known by that name: see `metrics.hosts`";
                (Response::refusal("421 Misdirected Request", why), true)
            }
            Ok(request) => {
                let here = stream.peer_addr()?.ip().is_loopback() && !request.foreign;
                (
                    self.in_turn(|| self.answer(&request, here)),
                    request.method != "HEAD",
                )
            }
            Err(Refused::Malformed) => (
                Response::refusal("400 Bad Request", "that is not HTTP"),
                true,
            ),
            Err(Refused::TooLong) => {
                let status = "431 Request Header Fields Too Large";
                (Response::refusal(status, "the request is too long"), true)
            }
        };
        response.write(stream, with_body)
    }

    /// Whether clients should come here, or why not.
    fn wants_clients(&self) -> Result<(), &'static str> {
        self.sources.ready.check()?;
        match self.sources.plane.is_draining() {
            true => Err("the broker is being drained"),
            false => Ok(()),
        }
    }

    fn answer(&self, request: &Request, here: bool) -> Response {
        match (request.method.as_str(), request.path.as_str()) {
            ("GET" | "HEAD", "/metrics") => Response::new(text::CONTENT_TYPE, self.metrics()),
            ("GET" | "HEAD", "/healthz") => self.health(),
            ("GET" | "HEAD", "/readyz") => match self.wants_clients() {
                Ok(()) => self.health(),
                Err(why) => Response::refusal("503 Service Unavailable", why),
            },
            ("GET" | "HEAD", "/connections") => self.connections(request),
            ("GET" | "HEAD", path) if path.starts_with("/connections/") => {
                match path.strip_prefix("/connections/").and_then(decode) {
                    Some(client_id) => self.client(&client_id),
                    None => Response::refusal("400 Bad Request", "that is no client identifier"),
                }
            }
            ("GET" | "HEAD", "/qlog") => self.qlog(logs::show),
            ("POST" | "DELETE", "/qlog") if here => self.qlog(|qlog| self.log(request, qlog)),
            ("POST" | "DELETE", "/qlog") => Response::refusal(
                "403 Forbidden",
                "only from this machine, and by no web page",
            ),
            ("GET" | "HEAD", _) => Response::refusal(
                "404 Not Found",
                "there are /metrics, /healthz, /readyz, /connections?limit=&after=, \
                 /connections/CLIENT_ID and /qlog",
            ),
            _ => Response::refusal("405 Method Not Allowed", "only GET is understood"),
        }
    }

    fn qlog(&self, answer: impl FnOnce(&Qlog) -> Response) -> Response {
        let none = || Response::refusal("404 Not Found", "no directory: see [qlog]");
        self.sources.qlog.as_ref().map_or_else(none, answer)
    }

    /// Changes what is logged, and finds a client that is there already.
    fn log(&self, request: &Request, qlog: &Qlog) -> Response {
        let change = match logs::change(request, qlog.filter()) {
            Ok(change) => change,
            Err(refusal) => return refusal,
        };
        qlog.select(change.filter);
        let client_id = change.client_id.map(|id| id.as_str().to_owned());
        if let Some(client_id) = client_id
            && let Reply::Client(client) = self.ask(&control::Request::Client { client_id })
            && let Some(conn) = client.connection.as_deref().and_then(conn_id)
        {
            self.shards.mail(conn.shard(), Query::Log(conn));
        }
        if let Some(conn) = change.conn {
            self.shards.mail(conn.shard(), Query::Log(conn));
        }
        logs::show(qlog)
    }

    fn metrics(&self) -> String {
        // Who comes meanwhile waits for the same answer.
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, text)) = &*latest
            && at.elapsed() < METRICS_AGE_MAX
        {
            return text.clone();
        }
        let sources = &self.sources;
        let mut reports = self.shards.reports();
        reports.sort_by_key(|report| report.shard);
        let mut out = report::metrics(&reports, sources.store.as_ref(), sources.started);
        let threads = sources.threads.load(Ordering::Relaxed);
        shards(&mut out, self.shards.count(), reports.len(), threads);
        if let Some(view) = &sources.log {
            log::metrics(&mut out, view());
        }
        if let Some(cluster) = &sources.cluster {
            cluster.metrics(&mut out);
            sources.ready.metrics(&mut out);
        }
        if let Some(qlog) = &sources.qlog {
            logs::metrics(&mut out, &qlog.totals(), qlog.failure().is_some());
        }
        if let Reply::Certificates(page) = self.ask(&control::Request::Certificates {}) {
            report::certificates(&mut out, &page.rows);
        }
        let views = sources.bridges.as_deref().map(Bridges::views);
        for view in views.iter().flatten() {
            let session = view.session.clone();
            let session =
                session.map(|client_id| self.ask(&control::Request::Client { client_id }));
            let waiting = match session {
                Some(Reply::Client(it)) => Some(it.queued_messages + it.inflight_messages),
                _ => None,
            };
            bridge::metrics(&mut out, view, waiting);
        }
        let text = out.render();
        *latest = Some((Instant::now(), text.clone()));
        text
    }

    fn health(&self) -> Response {
        let shards = self.shards.count();
        let answering = self.shards.answering();
        let body = format!("{answering} of {shards} shards answer");
        if answering == shards {
            Response::new("text/plain; charset=utf-8", format!("{body}\n"))
        } else {
            Response::refusal("503 Service Unavailable", &body)
        }
    }

    /// One page of connected clients.
    fn connections(&self, request: &Request) -> Response {
        let limit = match request.query("limit").map(|text| text.parse()) {
            None => PageOf::default().limit,
            // The plane says what a limit is.
            Some(limit) => limit.unwrap_or(0),
        };
        let after = request.query("after");
        let question = control::Request::Clients {
            filter: ClientFilter::default(),
            page: PageOf { after, limit },
        };
        match self.ask(&question) {
            Reply::Clients(Page { rows, next }) => {
                let body = json!({ "connections": rows, "next": next });
                Response::new(JSON, format!("{body:#}\n"))
            }
            other => refusal(&other),
        }
    }

    fn client(&self, client_id: &str) -> Response {
        let client_id = client_id.to_owned();
        match self.ask(&control::Request::Client { client_id }) {
            Reply::Client(client) => {
                let body = json!(client);
                Response::new(JSON, format!("{body:#}\n"))
            }
            other => refusal(&other),
        }
    }

    fn ask(&self, question: &control::Request) -> Reply {
        let who = Who {
            door: "metrics",
            name: String::new(),
            role: Role::Read,
        };
        self.sources.plane.answer(&who, question)
    }
}

/// Why there is no answer.
fn refusal(reply: &Reply) -> Response {
    let Reply::Failed(failure) = reply else {
        return Response::refusal("500 Internal Server Error", "an answer to another question");
    };
    let status = match failure.code {
        Code::BadRequest => "400 Bad Request",
        Code::NotFound => "404 Not Found",
        Code::Forbidden => "403 Forbidden",
        Code::Conflict => "409 Conflict",
        Code::Busy | Code::Unavailable => "503 Service Unavailable",
    };
    Response::refusal(status, &failure.text)
}

/// Index of the oldest connection of the address that has the most of them.
fn crowded(ips: impl Iterator<Item = IpAddr>) -> Option<usize> {
    let mut of: HashMap<IpAddr, (usize, usize)> = HashMap::new();
    for (index, ip) in ips.enumerate() {
        of.entry(ip).or_insert((0, index)).0 += 1;
    }
    let most = of
        .into_values()
        .max_by_key(|(n, oldest)| (*n, Reverse(*oldest)));
    most.map(|(_, oldest)| oldest)
}

/// How many shards there are, how many of them have answered, and how many
/// threads serve them.
pub(super) fn shards(out: &mut Exposition, all: usize, answering: usize, threads: usize) {
    let help = "Shards of the broker.";
    out.gauge("dunlin_shards", help, &[], all as f64);
    let help = "Shards that answered in time; values of the others are missing.";
    out.gauge("dunlin_shards_answering", help, &[], answering as f64);
    let help = "Threads that serve shards: one until it is busy.";
    out.gauge("dunlin_shard_threads", help, &[], threads as f64);
}
