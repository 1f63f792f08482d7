//! The server: a thread with a runtime of its own that accepts, reads and writes, and
//! few more that ask the control plane, which may take its time.

use core::convert::Infallible;
use core::fmt;
use core::future::poll_fn;
use core::net::{IpAddr, SocketAddr};
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use bytes::Bytes;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::answer::{self, Content};
use super::gate::Gate;
use super::input::Input;
use super::open::{Place, Table};
use super::problem::Problem;
use super::routes::{self, Act, BASE, Found, Route};
use super::steady::{Io, Steady, UNREAD_TIME, Watch};
use super::tls::Tls;
use super::{backup, openapi, orders, page};
use crate::control::audit::Who;
use crate::control::plane::Plane;
use crate::control::values::{Reply, Request as Asked};
use crate::metrics::history::Recorder;

/// Questions to the control plane that are under way at a time; others wait.
const ANSWERS_MAX: usize = 8;

/// Longest that a question waits for its turn.
const TURN_TIME: Duration = Duration::from_secs(10);

/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Headers of a request.
const HEADERS_MAX: usize = 64;

/// Time for the head of a request, since the connection began or the answer before.
const HEAD_TIME: Duration = Duration::from_secs(30);

/// Bytes of a request's body: a message to publish, with escapes.
const BODY_BYTES_MAX: usize = 2 << 20;

/// Time for a body.
const BODY_TIME: Duration = Duration::from_secs(10);

/// Time for the handshake of TLS.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// Time for a copy of the store to begin.
const COPY_TIME: Duration = Duration::from_secs(30);

/// Time for answers that are under way when the server stops.
const STOP_TIME: Duration = Duration::from_secs(2);

/// Pause when no descriptor is left.
const PAUSE: Duration = Duration::from_millis(100);

/// What a client gets for whom there is no room, where it is not encrypted.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n\
    Content-Length: 0\r\nConnection: close\r\n\r\n";

/// What the server needs.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) addr: SocketAddr,
    pub(crate) tls: Option<Tls>,
    /// Names of this machine, besides `localhost` and addresses.
    pub(crate) hosts: Vec<String>,
    pub(crate) plane: Arc<Plane>,
    pub(crate) recorder: Recorder,
}

/// A running server. Dropping it stops it.
pub(crate) struct Server {
    addr: SocketAddr,
    is_encrypted: bool,
    stopping: Arc<AtomicBool>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the connections share.
struct Shared {
    plane: Arc<Plane>,
    recorder: Recorder,
    gate: Gate,
    turns: Arc<Semaphore>,
    document: OnceLock<Bytes>,
    stopping: Arc<AtomicBool>,
}

impl Server {
    /// Binds the address and starts to answer.
    pub(crate) fn start(settings: Settings) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(settings.addr)?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        // One more for a copy of the store, and one to refuse another.
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(ANSWERS_MAX + 2)
            .thread_name("http-answer")
            .build()?;
        let stopping = Arc::new(AtomicBool::new(false));
        let shared = Arc::new(Shared {
            plane: settings.plane,
            recorder: settings.recorder,
            gate: Gate::new(settings.hosts),
            turns: Arc::new(Semaphore::new(ANSWERS_MAX)),
            document: OnceLock::new(),
            stopping: Arc::clone(&stopping),
        });
        let (stop, stopped) = oneshot::channel();
        let (tls, is_encrypted) = (settings.tls.clone(), settings.tls.is_some());
        let thread = std::thread::Builder::new().name("http".into());
        let thread = thread.spawn(move || run(runtime, listener, tls, shared, stopped))?;
        Ok(Self {
            addr,
            is_encrypted,
            stopping,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    pub(crate) const fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) const fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Server");
        shown.field("addr", &self.addr).finish_non_exhaustive()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It ends with its panic, if it had one.
            let _ = thread.join();
        }
    }
}

fn run(
    runtime: Runtime,
    listener: std::net::TcpListener,
    tls: Option<Tls>,
    shared: Arc<Shared>,
    stopped: oneshot::Receiver<()>,
) {
    let table = Table::default();
    runtime.block_on(async {
        let listener = match TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "no HTTP door"),
        };
        tokio::select! {
            () = accept(&listener, tls.as_ref(), &shared, &table) => {}
            _ = stopped => {}
        }
        table.end();
        // They are gone after this.
        tokio::task::yield_now().await;
    });
    runtime.shutdown_timeout(STOP_TIME);
}

async fn accept(listener: &TcpListener, tls: Option<&Tls>, shared: &Arc<Shared>, table: &Table) {
    let mut number = 0;
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        if !table.has_room() {
            if tls.is_none() {
                // It fits into the buffer of the socket, or the client goes without.
                let _ = stream.try_write(FULL);
            }
            continue;
        }
        number += 1;
        let peer = peer.ip().to_canonical();
        table.enter(number, peer, |place| {
            let (shared, tls) = (Arc::clone(shared), tls.cloned());
            let serving = async move {
                if let Err(error) = serve(stream, peer, tls, shared, place).await {
                    tracing::debug!(%error, %peer, "a connection over HTTP ended");
                }
            };
            tokio::spawn(serving).abort_handle()
        });
    }
}

type Failed = Box<dyn core::error::Error + Send + Sync>;

/// Serves one connection to its end.
async fn serve(
    stream: TcpStream,
    peer: IpAddr,
    tls: Option<Tls>,
    shared: Arc<Shared>,
    place: Place,
) -> Result<(), Failed> {
    stream.set_nodelay(true)?;
    let stream = Steady::new(stream, UNREAD_TIME);
    match tls {
        None => talk(stream, peer, shared, place).await,
        Some(tls) => {
            let stream = timeout(HANDSHAKE_TIME, tls.acceptor().accept(stream)).await??;
            talk(stream, peer, shared, place).await
        }
    }
}

async fn talk<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    peer: IpAddr,
    shared: Arc<Shared>,
    place: Place,
) -> Result<(), Failed> {
    let place = &place;
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move {
            place.set_busy(true);
            let answered = shared.answer(peer, request).await;
            place.set_busy(false);
            let refused = |problem| answer::refusal(&problem);
            Ok::<_, Infallible>(answered.unwrap_or_else(refused))
        }
    });
    let serving = http1::Builder::new()
        .timer(Watch)
        .header_read_timeout(HEAD_TIME)
        .max_header_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(Io(stream), service);
    Ok(serving.await?)
}

impl Shared {
    /// Answers a request, or says why not.
    async fn answer(
        self: Arc<Self>,
        peer: IpAddr,
        request: Request<Incoming>,
    ) -> Result<Response<Content>, Problem> {
        let (head, body) = request.into_parts();
        self.gate.expect(&head.uri, &head.headers)?;
        let path = head.uri.path();
        let Some(path) = path.strip_prefix(BASE) else {
            return file(head.method.as_str(), path, &head.headers);
        };
        let found = routes::find(head.method.as_str(), path);
        if let Found::Route(Route { role: None, .. }, _) = found {
            return Ok(self.document());
        }
        let who = self.gate.admit(&self.plane, peer, &head.headers)?;
        let Found::Route(route, name) = found else {
            return Err(answer::missing(found));
        };
        // What comes without the role for it is not read.
        let is_allowed = route.role.is_none_or(|role| role <= who.role);
        let body = match route.body {
            Some(_) if !is_allowed => {
                let what = format!("{} {}", head.method, route.path);
                return Err(self.plane.refuse(&who, &what).into());
            }
            Some(_) => read(&head.headers, body).await?,
            None => Bytes::new(),
        };
        let input = Input {
            name,
            query: head.uri.query().unwrap_or_default(),
            body: &body,
        };
        match route.act {
            Act::Ask(make) => {
                let request = make(&input)?;
                self.ask(who, request).await
            }
            Act::Backup => self.copy(who).await,
            Act::WhoAmI => {
                let orders::Nothing {} = input.query()?;
                Ok(answer::json(&json!({ "name": who.name, "role": who.role })))
            }
            Act::History => {
                let orders::Since { since } = input.query()?;
                Ok(answer::json(&self.recorder.history(since)))
            }
            Act::Totals => {
                let recorder = self.recorder.clone();
                let totals = self.in_turn(move || recorder.totals()).await?;
                Ok(answer::json(&totals))
            }
            Act::Document => Ok(self.document()),
        }
    }

    /// The OpenAPI document, which anyone gets: it is written once.
    fn document(&self) -> Response<Content> {
        let text = || Bytes::from(openapi::document().to_string());
        answer::json_text(self.document.get_or_init(text).clone())
    }

    /// Asks the control plane.
    async fn ask(&self, who: Who, request: Asked) -> Result<Response<Content>, Problem> {
        let plane = Arc::clone(&self.plane);
        let reply = self.in_turn(move || plane.answer(&who, &request)).await?;
        match reply {
            Reply::Failed(failure) => Err(failure.into()),
            reply => Ok(answer::json(&fields(&reply))),
        }
    }

    /// Does what may take its time, in turn with others.
    async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let turn = timeout(TURN_TIME, Arc::clone(&self.turns).acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            return Err(Problem::busy("too much is asked at a time"));
        };
        let work = move || {
            let _turn = turn;
            work()
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|error| {
            tracing::error!(%error, "a request over HTTP was not answered");
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            Problem::new(status, "internal", "the broker's log says more")
        })
    }

    async fn copy(&self, who: Who) -> Result<Response<Content>, Problem> {
        let (plane, stopping) = (Arc::clone(&self.plane), Arc::clone(&self.stopping));
        let (begun, begins) = oneshot::channel();
        tokio::task::spawn_blocking(move || backup::copy(&plane, &who, begun, &stopping));
        match timeout(COPY_TIME, begins).await {
            Ok(Ok(Ok(pieces))) => Ok(answer::lines(pieces)),
            Ok(Ok(Err(failure))) => Err(failure.into()),
            _ => {
                let why = "the copy does not begin in time";
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Err(Problem::new(status, "unavailable", why))
            }
        }
    }
}

/// A reply without its name, which the resource says.
fn fields(reply: &Reply) -> Value {
    let mut value = serde_json::to_value(reply).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        // The others keep their order.
        fields.retain(|name, _| name != "reply");
    }
    value
}

/// A file of the page.
fn file(method: &str, path: &str, asked: &HeaderMap) -> Result<Response<Content>, Problem> {
    let asset = page::find(path).ok_or_else(Problem::not_found)?;
    match method {
        "GET" | "HEAD" => Ok(answer::file(asset, asked)),
        _ => Err(answer::missing(Found::Methods("GET".to_owned()))),
    }
}

/// Reads a body of JSON.
async fn read(headers: &HeaderMap, mut body: Incoming) -> Result<Bytes, Problem> {
    let media = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    let media = media.map(|it| it.split(';').next().unwrap_or_default().trim());
    if !media.is_some_and(|it| it.eq_ignore_ascii_case("application/json")) {
        let why = "the body is `Content-Type: application/json`";
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(Problem::new(status, "unsupported-media-type", why));
    }
    let too_large = || {
        let why = format!("a body has at most {BODY_BYTES_MAX} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", why)
    };
    let length = headers.get(CONTENT_LENGTH).and_then(|it| it.to_str().ok());
    let length: Option<u64> = length.and_then(|it| it.parse().ok());
    if length.is_some_and(|length| length > BODY_BYTES_MAX as u64) {
        return Err(too_large());
    }
    let reading = async {
        let mut bytes = Vec::new();
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let damaged = |_| {
                let why = "the body does not come whole";
                Problem::new(StatusCode::BAD_REQUEST, "bad-request", why)
            };
            if let Ok(data) = frame.map_err(damaged)?.into_data() {
                if bytes.len() + data.len() > BODY_BYTES_MAX {
                    return Err(too_large());
                }
                bytes.extend_from_slice(&data);
            }
        }
        Ok(Bytes::from(bytes))
    };
    timeout(BODY_TIME, reading).await.unwrap_or_else(|_| {
        let why = "the body does not come in time";
        let status = StatusCode::REQUEST_TIMEOUT;
        Err(Problem::new(status, "too-slow", why))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::values::Page;

    #[test]
    fn an_answer_has_the_fields_of_the_reply() {
        let done = Reply::Done {
            count: 1,
            next: None,
        };
        assert_eq!(fields(&done), json!({ "count": 1 }));
        let page = Page {
            rows: Vec::new(),
            next: None,
        };
        let page = fields(&Reply::Bans(page));
        assert_eq!(page, json!({ "rows": [], "next": null }));
    }
}
