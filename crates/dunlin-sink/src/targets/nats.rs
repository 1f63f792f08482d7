//! NATS JetStream: each row is a message of its own, published with a reply subject; the
//! stream answers when it has stored it. The protocol is lines of text, of which a
//! publisher needs a few, so it is written out here.

mod ops;

use core::hash::{BuildHasher as _, Hasher as _};
use core::time::Duration;
use std::hash::RandomState;
use std::sync::Arc;

use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWriteExt as _, BufReader, WriteHalf};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::stream::{self, Bytes, address};
use crate::config::{self, ConfigError};
use crate::expression::{Expression, Expressions, Scope};
use crate::input::Input;
use crate::refusal::{Cause, Refusal};
use crate::shape::Shape;
use crate::target::{Encode, Failure, Rows, Step, Target};
use ops::{Answer, Op, records};

/// Time for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Answers that wait to be looked at.
const ANSWERS_MAX: usize = 1024;

const PORT: u16 = 4222;

type Writer = Arc<Mutex<WriteHalf<Box<dyn Bytes>>>>;

/// A server.
pub(super) struct Nats {
    host: String,
    port: u16,
    tls: Option<TlsConnector>,
    /// CONNECT, with who the sink is.
    connect: String,
    encoder: Arc<Records>,
    connection: Option<Connection>,
}

struct Connection {
    writer: Writer,
    answers: mpsc::Receiver<Answer>,
    reader: JoinHandle<()>,
    inbox: String,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Nats {
    pub(super) fn new(config: &config::Nats, shape: Arc<Shape>) -> Result<Self, ConfigError> {
        let wrong = |key, why: String| ConfigError::Value { key, why };
        let (encrypted, rest) = match config.url.split_once("://") {
            Some(("nats", rest)) => (false, rest),
            Some(("tls", rest)) => (true, rest),
            _ => {
                let why = format!("`{}` begins with nats:// or tls://", config.url);
                return Err(wrong("nats.url", why));
            }
        };
        let (host, port) = address(rest.trim_end_matches('/'), PORT)
            .ok_or_else(|| wrong("nats.url", format!("`{}` is no address", config.url)))?;
        let tls = match encrypted {
            true => {
                let tls = config.tls.options().build();
                let tls = tls.map_err(|error| wrong("nats.tls", error.to_string()))?;
                Some(TlsConnector::from(tls.over_tcp(&[])))
            }
            false => None,
        };
        let key = config.key.as_ref().map(|key| Expressions::new().parse(key));
        let mut prefix = String::new();
        ops::subject(&config.prefix.replace('.', "/"), &mut prefix);
        Ok(Self {
            host: host.to_owned(),
            port,
            tls,
            connect: ops::connect(config)?,
            encoder: Arc::new(Records {
                shape,
                prefix,
                key: key.transpose().map_err(|why| wrong("nats.key", why))?,
            }),
            connection: None,
        })
    }

    async fn open(&mut self) -> Result<Arc<dyn Encode>, Failure> {
        self.connection = None;
        let later = |what: &dyn core::fmt::Display| Failure::Later(format!("NATS: {what}"));
        let opened = tokio::time::timeout(CONNECT_MAX, self.start()).await;
        let opened = opened.map_err(|_| later(&"it did not answer in time"))?;
        self.connection = Some(opened.map_err(|error| later(&error))?);
        Ok(Arc::clone(&self.encoder) as _)
    }

    async fn start(&self) -> std::io::Result<Connection> {
        use std::io::{Error, ErrorKind};
        let mut tcp = stream::connect(&self.host, self.port, CONNECT_MAX).await?;
        tcp.set_nodelay(true)?;
        // INFO comes before TLS.
        let info = ops::first_line(&mut tcp).await?;
        if !info.starts_with("INFO ") {
            return Err(Error::new(ErrorKind::InvalidData, "that is no NATS server"));
        }
        let mut stream: Box<dyn Bytes> = match &self.tls {
            None => Box::new(tcp),
            Some(connector) => {
                let name = ServerName::try_from(self.host.clone()).map_err(Error::other)?;
                Box::new(connector.connect(name, tcp).await?)
            }
        };
        let random = RandomState::new().build_hasher().finish();
        let inbox = format!("_INBOX.{random:016x}.r");
        let hello = format!("{}SUB {inbox} 1\r\nPING\r\n", self.connect);
        stream.write_all(hello.as_bytes()).await?;
        stream.flush().await?;
        let (read, write) = tokio::io::split(stream);
        let mut read = BufReader::new(read);
        loop {
            match ops::next(&mut read).await? {
                Op::Pong => break,
                Op::Error(why) => return Err(Error::other(why)),
                _ => {}
            }
        }
        let writer = Arc::new(Mutex::new(write));
        let (to_store, answers) = mpsc::channel(ANSWERS_MAX);
        let reader = tokio::spawn(follow(read, Arc::clone(&writer), to_store));
        Ok(Connection {
            writer,
            answers,
            reader,
            inbox,
        })
    }

    async fn publish(&mut self, rows: Rows) -> Result<(), Failure> {
        let Some(connection) = &mut self.connection else {
            return Err(Failure::Later("there is no connection".into()));
        };
        let Connection {
            writer,
            answers,
            inbox,
            ..
        } = connection;
        let out = ops::publishes(records(&rows.bytes), inbox);
        let write = async {
            let mut writer = writer.lock().await;
            let written = async {
                writer.write_all(&out).await?;
                writer.flush().await
            };
            let written = written.await;
            written.map_err(|error: std::io::Error| Failure::Later(format!("NATS: {error}")))
        };
        let read = async {
            for _ in 0..rows.count {
                match answers.recv().await {
                    Some(Answer::Stored) => {}
                    Some(Answer::Refused(why)) => return Err(Failure::Refused(why)),
                    Some(Answer::Failed(why)) => return Err(Failure::Later(why)),
                    None => return Err(Failure::Later("NATS: the connection ended".into())),
                }
            }
            Ok(())
        };
        let outcome = tokio::try_join!(write, read).map(|_| ());
        if outcome.is_err() {
            // What else is answered belongs to none of the next rows.
            self.connection = None;
        }
        outcome
    }
}

/// Reads what the server says until it is gone.
async fn follow<R: AsyncRead + Unpin>(
    mut read: BufReader<R>,
    writer: Writer,
    answers: mpsc::Sender<Answer>,
) {
    loop {
        let answer = match ops::next(&mut read).await {
            Ok(Op::Answer(answer)) => answer,
            Ok(Op::Ping) => {
                let mut writer = writer.lock().await;
                let sent = async {
                    writer.write_all(b"PONG\r\n").await?;
                    writer.flush().await
                };
                match sent.await {
                    Ok(()) => continue,
                    Err(error) => Answer::Failed(format!("NATS: {error}")),
                }
            }
            Ok(Op::Pong | Op::Other) => continue,
            Ok(Op::Error(why)) => Answer::Failed(format!("NATS: {why}")),
            Err(error) => {
                let _ = answers.send(Answer::Failed(format!("NATS: {error}"))).await;
                return;
            }
        };
        if answers.send(answer).await.is_err() {
            return;
        }
    }
}

impl Target for Nats {
    fn open(&mut self) -> Step<'_, Arc<dyn Encode>> {
        Box::pin(Self::open(self))
    }

    fn store(&mut self, rows: Rows) -> Step<'_, ()> {
        Box::pin(async move {
            if self.connection.is_none() {
                // A part that was refused has ended the connection.
                Self::open(self).await?;
            }
            self.publish(rows).await
        })
    }
}

/// Writes messages.
struct Records {
    shape: Arc<Shape>,
    prefix: String,
    key: Option<Expression>,
}

impl Encode for Records {
    fn encode(&self, input: &Input<'_>, out: &mut Vec<u8>) -> Result<usize, Refusal> {
        let mut subject = self.prefix.clone();
        subject.push('.');
        ops::subject(input.topic, &mut subject);
        let mut body = Vec::new();
        self.shape.rows(input, |scope| {
            body.clear();
            self.shape.write_body(scope, &mut body)?;
            let header = self.header(scope)?;
            ops::write_record(&subject, &header, &body, out)
                .ok_or_else(|| Refusal::new(Cause::Value, "it is too long"))
        })
    }

    fn runs_programs(&self) -> bool {
        self.shape.runs_programs() || self.key.is_some()
    }
}

impl Records {
    fn header(&self, scope: &Scope<'_>) -> Result<String, Refusal> {
        let Some(key) = &self.key else {
            return Ok(String::new());
        };
        let value = key.eval(scope)?;
        let text = value.to_text().filter(|text| !text.is_empty());
        match text {
            Some(text) if !text.contains(['\r', '\n']) => {
                Ok(format!("NATS/1.0\r\nNats-Msg-Id: {text}\r\n\r\n"))
            }
            _ => {
                let why = format!("`nats.key` gives {}, and no text on one line", value.kind());
                Err(Refusal::new(Cause::Value, why))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nats(url: &str) -> Result<(String, u16, bool), String> {
        let text = format!("broker = {{ filters = ['a'] }}\nnats = {{ url = '{url}' }}");
        let config = config::Config::parse(&"f", &text).expect("TOML");
        let shape = Arc::new(Shape::of(&config).expect("expressions"));
        let nats = Nats::new(config.nats.as_ref().expect("given"), shape);
        let nats = nats.map_err(|error| error.to_string())?;
        Ok((nats.host, nats.port, nats.tls.is_some()))
    }

    #[test]
    fn addresses_are_read() {
        assert_eq!(nats("nats://h"), Ok(("h".into(), 4222, false)));
        assert_eq!(nats("nats://[::1]:5/"), Ok(("::1".into(), 5, false)));
        assert_eq!(nats("nats://[::1]"), Ok(("::1".into(), 4222, false)));
        for url in ["h", "http://h", "nats://", "nats://u:p@h", "nats://h:x"] {
            nats(url).expect_err(url);
        }
    }

    #[test]
    fn rows_become_messages() {
        let text = "broker = { filters = ['a'] }\n\
                    nats = { url = 'nats://h', prefix = 'iot.in', key = 'payload.id' }";
        let config = config::Config::parse(&"f", text).expect("TOML");
        let shape = Arc::new(Shape::of(&config).expect("expressions"));
        let nats = Nats::new(config.nats.as_ref().expect("given"), shape).expect("valid");
        let input = |payload| Input {
            topic: "a/b c/d.e",
            payload,
            time: 0,
            qos: 1,
            retain: false,
            properties: None,
        };
        let mut out = Vec::new();
        let written = nats.encoder.encode(&input(b"{\"id\":7}"), &mut out);
        assert_eq!(written, Ok(1));
        let text = ops::publishes(records(&out), "I");
        let want =
            "HPUB iot.in.a.b_c.d_e I 28 36\r\nNATS/1.0\r\nNats-Msg-Id: 7\r\n\r\n{\"id\":7}\r\n";
        assert_eq!(String::from_utf8_lossy(&text), want);
        for payload in [&b"{}"[..], b"{\"id\":\"a\\nb\"}", b"{\"id\":\"\"}"] {
            let refused = nats.encoder.encode(&input(payload), &mut Vec::new());
            assert_eq!(refused.map_err(|it| it.cause), Err(Cause::Value));
        }
    }
}
