//! A server that does what its script says, frame by frame through the engine.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Instant as Clock;

use dunlin_amqp::codec::{Open, SaslCode, Symbol, Symbols};
use dunlin_amqp::{Connection, Event, Limits, LinkId, SaslPolicy, Settings, Side};
use dunlin_amqp_client::{Backoff, Builder, Client};
use dunlin_base::{Instant, SendBuf};

use super::{Duration, PATIENCE};

/// A running script.
pub(crate) struct Server {
    pub(crate) port: u16,
    script: Option<JoinHandle<()>>,
}

impl Server {
    /// Runs a script, which accepts connections from the listener.
    pub(crate) fn run(script: impl FnOnce(Listener) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let script = thread::spawn(move || script(Listener(listener)));
        Self {
            port,
            script: Some(script),
        }
    }

    /// A client of this server that reconnects at once.
    pub(crate) fn client(&self) -> Builder {
        self.client_as("")
    }

    /// The same with `user:password@` before the host.
    pub(crate) fn client_as(&self, user: &str) -> Builder {
        Client::builder(format!("amqp://{user}127.0.0.1:{}", self.port))
            .expect("a URL")
            .container_id("c")
            .reconnect(Backoff {
                min: Duration::ZERO,
                max: Duration::ZERO,
                jitter: 0.0,
            })
    }

    /// Waits for the end of the script and passes on its failure.
    pub(crate) fn end(mut self) {
        if let Err(panic) = self.script.take().expect("once").join() {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Where clients arrive.
pub(crate) struct Listener(TcpListener);

impl Listener {
    /// The next connection.
    pub(crate) fn accept(&self) -> Peer {
        self.accept_with(&["ANONYMOUS", "PLAIN", "SCRAM-SHA-256"], Limits::default())
    }

    pub(crate) fn accept_with(&self, mechanisms: &[&'static str], limits: Limits) -> Peer {
        let (stream, _) = self.0.accept().expect("a client");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        let mechanisms: Vec<_> = mechanisms.iter().map(|m| Symbol::from_static(m)).collect();
        let settings = Settings {
            side: Side::Server,
            container_id: "server",
            sasl: SaslPolicy::Optional,
            mechanisms: Symbols::new(&mechanisms),
            limits: Limits {
                first_frame_bytes_max: 4096,
                ..limits
            },
        };
        Peer {
            stream,
            engine: Connection::new(Instant::ZERO, &settings),
            by_hand: false,
            began: Clock::now(),
        }
    }
}

/// A client, as the server sees it.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    pub(crate) engine: Connection,
    /// The script answers links itself.
    pub(crate) by_hand: bool,
    began: Clock,
}

impl Peer {
    fn now(&self) -> Instant {
        Instant::ZERO + self.began.elapsed()
    }

    pub(crate) fn flush(&mut self) {
        let mut out = SendBuf::new();
        self.engine.poll_output(self.now(), &mut out);
        let bytes: Vec<u8> = out.slices().flatten().copied().collect();
        // The client may be gone.
        let _ = self.stream.write_all(&bytes);
    }

    /// Reads until `wanted` has found what it looks for; `None` at the end. SASL
    /// and `open` are answered, and links accepted as they were asked for.
    pub(crate) fn until<T>(
        &mut self,
        mut wanted: impl FnMut(&mut Connection, &Event<'_>) -> Option<T>,
    ) -> Option<T> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            self.flush();
            let len = match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => unreachable!("nothing to read: {error}"),
            };
            let now = self.now();
            let mut data = &buffer[..len];
            let mut found = None;
            while let Some(event) = self.engine.poll_event(now, &mut data) {
                serve(&mut self.engine, now, &event, self.by_hand);
                found = found.or_else(|| wanted(&mut self.engine, &event));
            }
            if found.is_some() {
                self.flush();
                return found;
            }
        }
    }

    /// Serves until the client is gone.
    pub(crate) fn serve(&mut self) {
        let _ = self.until(|_, _| None::<()>);
    }

    /// The next link, which is accepted.
    pub(crate) fn link(&mut self) -> LinkId {
        let link = self.until(|_, event| match event {
            Event::Attach { link, .. } => Some(*link),
            _ => None,
        });
        link.expect("a link")
    }
}

/// What a server does by itself.
fn serve(engine: &mut Connection, now: Instant, event: &Event<'_>, by_hand: bool) {
    match event {
        Event::SaslInit { mechanism, .. } if *mechanism == "ANONYMOUS" => {
            engine.sasl_outcome(SaslCode::Ok, None).expect("it waits");
        }
        Event::Opened(_) => engine.open(now, &Open::default()).expect("it waits"),
        Event::Attach { link, attach, .. } => {
            let attach = attach.attach().expect("decoded before");
            // The script may have refused it, or mean to.
            if !by_hand && attach.name != "by hand" {
                let answer = dunlin_amqp::codec::Attach {
                    unsettled: None,
                    ..attach
                };
                engine.accept_attach(*link, &answer).expect("it waits");
            }
        }
        _ => {}
    }
}
