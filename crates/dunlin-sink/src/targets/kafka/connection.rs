//! A connection to one server: TLS, who the sink is, and one request at a time.

use std::io::{Error, ErrorKind};

use dunlin_sasl::scram;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio_rustls::TlsConnector;

use super::CONNECT_MAX;
use super::error::KafkaError;
use super::wire::{self, Api};
use crate::targets::stream::{self, Bytes};

/// Longest answer: that with the leaders of a topic of 100,000 partitions.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// Who the sink is.
pub(super) enum Login {
    Plain { user: String, password: String },
    Scram { user: String, password: String },
}

/// How servers are spoken to.
pub(super) struct Dial {
    pub(super) client_id: String,
    pub(super) tls: Option<TlsConnector>,
    pub(super) login: Option<Login>,
}

/// A connection.
pub(super) struct Connection {
    stream: BufReader<Box<dyn Bytes>>,
    client_id: String,
    correlation: i32,
    /// What the server takes, as `(request, least, most)`.
    versions: Vec<(i16, i16, i16)>,
}

impl Connection {
    pub(super) async fn open(dial: &Dial, host: &str, port: u16) -> Result<Self, KafkaError> {
        let tcp = stream::connect(host, port, CONNECT_MAX).await?;
        tcp.set_nodelay(true)?;
        let stream: Box<dyn Bytes> = match &dial.tls {
            None => Box::new(tcp),
            Some(connector) => {
                let name = ServerName::try_from(host.to_owned()).map_err(Error::other)?;
                Box::new(connector.connect(name, tcp).await?)
            }
        };
        let mut connection = Self {
            stream: BufReader::new(stream),
            client_id: dial.client_id.clone(),
            correlation: 0,
            versions: vec![(Api::Versions as i16, 0, 0)],
        };
        let answer = connection.ask(Api::Versions, |_| {}).await?;
        connection.versions = wire::api_versions(&answer)?;
        if let Some(login) = &dial.login {
            connection.log_in(login).await?;
        }
        Ok(connection)
    }

    /// The version of a request that both have.
    pub(super) fn version(&self, api: Api) -> Result<i16, KafkaError> {
        let mut all = self.versions.iter();
        let found = all.find(|(number, ..)| *number == api as i16);
        let version = found.and_then(|(_, least, most)| api.common(*least, *most));
        version.ok_or_else(|| KafkaError::Version(api.name()))
    }

    /// Sends a request, the rest of which `body` appends.
    pub(super) async fn send(
        &mut self,
        api: Api,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), KafkaError> {
        self.correlation = self.correlation.wrapping_add(1);
        let version = self.version(api)?;
        let mut request = wire::begin(api, version, self.correlation, &self.client_id);
        body(&mut request);
        wire::finish(&mut request);
        self.stream.write_all(&request).await?;
        self.stream.flush().await?;
        Ok(())
    }

    /// The answer to the request that was sent last.
    pub(super) async fn answer(&mut self) -> Result<Vec<u8>, KafkaError> {
        let length = self.stream.read_i32().await?;
        let length = usize::try_from(length).map_err(|_| KafkaError::Malformed)?;
        if length > ANSWER_BYTES_MAX {
            return Err(KafkaError::TooLong(length));
        }
        let rest = length.checked_sub(4).ok_or(KafkaError::Malformed)?;
        if self.stream.read_i32().await? != self.correlation {
            return Err(KafkaError::Malformed);
        }
        // As much as comes, not as much as is promised.
        let mut answer = Vec::new();
        let count = (&mut self.stream)
            .take(rest as u64)
            .read_to_end(&mut answer)
            .await?;
        match count == rest {
            true => Ok(answer),
            false => Err(Error::new(ErrorKind::UnexpectedEof, "the connection ended").into()),
        }
    }

    /// A request and its answer.
    pub(super) async fn ask(
        &mut self,
        api: Api,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Vec<u8>, KafkaError> {
        self.send(api, body).await?;
        self.answer().await
    }

    async fn log_in(&mut self, login: &Login) -> Result<(), KafkaError> {
        match login {
            Login::Plain { user, password } => {
                self.handshake("PLAIN").await?;
                let mut message = Vec::new();
                let plain = dunlin_sasl::plain::Plain {
                    authzid: "",
                    user,
                    password: password.as_bytes(),
                };
                plain.encode(&mut message);
                self.authenticate(&message).await.map(drop)
            }
            Login::Scram { user, password } => {
                self.handshake("SCRAM-SHA-256").await?;
                let nonce = nonce()?;
                let client = scram::Client {
                    user,
                    password: password.as_bytes(),
                    nonce: &nonce,
                    binding: scram::Binding::Unsupported,
                };
                let mut first = Vec::new();
                client.first(&mut first).map_err(KafkaError::Scram)?;
                let challenge = self.authenticate(&first).await?;
                let mut proof = Vec::new();
                let expected = client.respond(&challenge, &mut proof);
                let expected = expected.map_err(KafkaError::Scram)?;
                let last = self.authenticate(&proof).await?;
                expected.verify(&last).map_err(KafkaError::Scram)
            }
        }
    }

    async fn handshake(&mut self, mechanism: &str) -> Result<(), KafkaError> {
        let body = |out: &mut Vec<u8>| wire::put_sasl_handshake(mechanism, out);
        let answer = self.ask(Api::SaslHandshake, body).await?;
        wire::sasl_handshake(&answer)
    }

    async fn authenticate(&mut self, message: &[u8]) -> Result<Vec<u8>, KafkaError> {
        let body = |out: &mut Vec<u8>| wire::put_sasl_authenticate(message, out);
        let answer = self.ask(Api::SaslAuthenticate, body).await?;
        wire::sasl_authenticate(&answer).map(<[u8]>::to_vec)
    }
}

fn nonce() -> Result<String, Error> {
    use base64::Engine as _;
    let mut random = [0; 18];
    getrandom::fill(&mut random).map_err(Error::other)?;
    Ok(base64::engine::general_purpose::STANDARD.encode(random))
}
