//! What a standby shows of itself over HTTP, at the address at which the broker that it
//! becomes shows its metrics: that it is there, and wants no clients.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

use dunlin_net::http;

use super::http::{Refused, Request, Response};
use super::log::{self, LogViews};
use super::text::{CONTENT_TYPE, Exposition};
use crate::control::cluster::Known;

/// Requests at a time; a further connection is closed.
const ANSWERS_MAX: usize = 8;

/// Pause when no descriptor is left.
const PAUSE: Duration = Duration::from_millis(100);

/// How long the thread is waited for at the end.
const WAKE_TIME: Duration = Duration::from_secs(1);

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Server {
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What the answers are made from.
pub(crate) struct Shown {
    /// Why no clients are wanted.
    why: &'static str,
    views: LogViews,
    /// The cluster that this is a node of, if it is.
    cluster: Option<Arc<dyn Known>>,
    /// Names of this machine, besides `localhost` and addresses.
    hosts: Vec<String>,
    answering: AtomicUsize,
}

impl Server {
    /// Binds the address and starts to answer.
    pub(crate) fn start(addr: SocketAddr, shown: Shown) -> io::Result<Self> {
        let listener = TcpListener::bind(addr)?;
        let addr = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let shown = Arc::new(shown);
        let thread = std::thread::Builder::new()
            .name("metrics".into())
            .spawn(move || accept(&listener, &shown, &stopped))?;
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
        if TcpStream::connect_timeout(&addr, WAKE_TIME).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, shown: &Arc<Shown>, stop: &AtomicBool) {
    loop {
        let accepted = listener.accept();
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let Ok((mut stream, _)) = accepted else {
            std::thread::sleep(PAUSE);
            continue;
        };
        if shown.answering.fetch_add(1, Ordering::Relaxed) >= ANSWERS_MAX {
            shown.answering.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let answering = Arc::clone(shown);
        let spawned = std::thread::Builder::new()
            .name("metrics-answer".into())
            .spawn(move || {
                if let Err(error) = answering.serve(&mut stream) {
                    tracing::debug!(%error, "a request for metrics was not answered");
                }
                answering.answering.fetch_sub(1, Ordering::Relaxed);
            });
        if spawned.is_err() {
            shown.answering.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Shown {
    /// `why`: no clients are wanted; `hosts`: names of this machine.
    pub(crate) const fn new(
        why: &'static str,
        hosts: Vec<String>,
        views: LogViews,
        cluster: Option<Arc<dyn Known>>,
    ) -> Self {
        Self {
            why,
            views,
            cluster,
            hosts,
            answering: AtomicUsize::new(0),
        }
    }

    fn serve(&self, stream: &mut TcpStream) -> io::Result<()> {
        let (response, with_body) = match Request::read(stream)? {
            Ok(request) => (self.answer(&request), request.method != "HEAD"),
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

    /// Whether a client calls this machine by a name that is its own. Any other is of a web
    /// page whose name was pointed here (DNS rebinding).
    fn is_expected(&self, host: Option<&str>) -> bool {
        host.is_none_or(|host| {
            let name = http::name_of(host);
            let listed = |known: &String| known.eq_ignore_ascii_case(name);
            http::is_local_name(host) || self.hosts.iter().any(listed)
        })
    }

    fn answer(&self, request: &Request) -> Response {
        match (request.method.as_str(), request.path.as_str()) {
            _ if !self.is_expected(request.host.as_deref()) => {
                let why = "this machine is not known by that name: see `metrics.hosts`";
                Response::refusal("421 Misdirected Request", why)
            }
            ("GET" | "HEAD", "/metrics") => Response::new(CONTENT_TYPE, self.metrics()),
            ("GET" | "HEAD", "/healthz") => {
                Response::new("text/plain; charset=utf-8", "standby\n".into())
            }
            ("GET" | "HEAD", "/readyz") => Response::refusal("503 Service Unavailable", self.why),
            ("GET" | "HEAD", _) => Response::refusal(
                "404 Not Found",
                "a standby shows /metrics, /healthz and /readyz",
            ),
            _ => Response::refusal("405 Method Not Allowed", "only GET is understood"),
        }
    }

    fn metrics(&self) -> String {
        let mut out = Exposition::default();
        let labels = [("version", env!("CARGO_PKG_VERSION"))];
        let help = "Always 1; the labels tell what runs.";
        out.gauge("dunlin_build_info", help, &labels, 1.0);
        log::metrics(&mut out, (self.views)());
        if let Some(cluster) = &self.cluster {
            cluster.metrics(&mut out);
        }
        out.render()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::super::log::LogView;
    use super::*;

    #[test]
    fn a_standby_is_there_and_wants_no_clients() {
        let views: LogViews = Arc::new(|| LogView {
            behind: 7,
            ..LogView::default()
        });
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let shown = Shown::new("another one serves", Vec::new(), views, None);
        let server = Server::start(any, shown).expect("bound");
        let get = |target: &str, host: &str| {
            let mut stream = TcpStream::connect(server.addr()).expect("connected");
            write!(stream, "GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").expect("sent");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("text");
            answer
        };
        assert!(get("/healthz", "localhost").starts_with("HTTP/1.1 200"));
        let ready = get("/readyz", "localhost");
        assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("another one serves"));
        assert!(get("/healthz", "elsewhere").starts_with("HTTP/1.1 421"));
        let text = get("/metrics", "127.0.0.1");
        for line in [
            "dunlin_store_log_owner 0",
            "dunlin_store_log_behind_records 7",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
        // Its address is free again for the broker that it becomes.
        let addr = server.addr();
        drop(server);
        assert!(TcpListener::bind(addr).is_ok());
    }
}
