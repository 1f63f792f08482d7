//! A small HTTP server: a thread that accepts, and few more that answer. It knows no
//! page.

use core::cmp::Reverse;
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use dunlin_net::http;

use super::http::{Refused, Request, Response};

/// Connections at a time. The oldest one of the address that has the most makes
/// room for a new one: a request takes milliseconds, so it is one that is
/// silent.
const CONNECTIONS_MAX: usize = 64;

/// Requests answered at a time; more wait for their turn.
const ANSWERS_MAX: usize = 8;

/// What is shown.
pub(crate) trait Pages: Send + Sync + 'static {
    /// Answers a request; `here`: of this machine, and of no web page.
    fn answer(&self, request: &Request, here: bool) -> Response;
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Server {
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Binds the address and starts to answer; `hosts`: names of this machine, besides
    /// `localhost` and addresses.
    pub(crate) fn start(
        addr: SocketAddr,
        hosts: Vec<String>,
        pages: impl Pages,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(addr)?;
        let addr = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let shared = Arc::new(Shared {
            pages: Box::new(pages),
            hosts,
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
    pages: Box<dyn Pages>,
    hosts: Vec<String>,
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
            http::is_local_name(host) || self.hosts.iter().any(listed)
        })
    }

    fn serve(&self, stream: &mut TcpStream) -> io::Result<()> {
        let (response, with_body) = match Request::read(stream)? {
            Ok(request) if !self.is_expected(request.host.as_deref()) => {
                let why = "this machine is not known by that name: use its address, or \
                           `metrics.hosts` of a broker";
                (Response::refusal("421 Misdirected Request", why), true)
            }
            Ok(request) => {
                let here = stream.peer_addr()?.ip().is_loopback() && !request.foreign;
                (
                    self.in_turn(|| self.pages.answer(&request, here)),
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
