//! What a broker shows of itself over HTTP. It asks the shards for it.

use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use dunlin_net::Qlog;
use dunlin_store_redb::StoreMetrics;
use serde_json::json;

use super::connection::conn_id;
use super::http::{JSON, Request, Response, decode};
use super::log::LogViews;
use super::ready::Readiness;
use super::server::Pages;
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
    pub(crate) bridges: Option<Arc<Bridges>>,
    /// The cluster that this broker is a node of, if it is.
    pub(crate) cluster: Option<Arc<dyn Known>>,
    pub(crate) started: Instant,
}

/// What a broker shows.
pub(crate) struct BrokerPages {
    sources: Sources,
    shards: Shards,
    /// The latest metrics, and when they were asked for.
    latest: Mutex<Option<(Instant, String)>>,
}

impl BrokerPages {
    pub(crate) fn new(sources: Sources) -> Self {
        Self {
            shards: Shards::new(sources.shards.clone()),
            sources,
            latest: Mutex::new(None),
        }
    }

    /// Whether clients should come here, or why not.
    fn wants_clients(&self) -> Result<(), &'static str> {
        self.sources.ready.check()?;
        match self.sources.plane.is_draining() {
            true => Err("the broker is being drained"),
            false => Ok(()),
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

impl Pages for BrokerPages {
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
