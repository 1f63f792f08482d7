//! The scenarios of `scripts/interop/scenarios.py` for clients in Rust that
//! speak QUIC. Knows no client: each program brings one as a [`Peer`].

#![allow(
    async_fn_in_trait,
    reason = "used by the programs of this package only"
)]

pub mod features;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};

/// Longest that one expected message or answer may take.
pub const WAIT_MAX: Duration = Duration::from_secs(10);
const BURST_MESSAGES: usize = 500;
const LARGE_BYTES: usize = 200_000;
const SHARED_MESSAGES: usize = 10;
/// Keep Alive of the client that vanishes: the broker notices after 1.5 times
/// that, because over QUIC nothing else tells it.
const VANISH_KEEP_ALIVE_SECONDS: u16 = 2;

/// Where the broker is and how to speak to it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Host name, as in the certificate.
    pub host: String,
    /// UDP port.
    pub port: u16,
    /// MQTT 5.0 rather than 3.1.1.
    pub is_v5: bool,
    /// File with the certificate authority.
    pub ca: PathBuf,
    /// Which streams the client uses besides the control stream: `topic`, one
    /// for each topic; `publish`, one for each message; else as it likes.
    pub streams: String,
}

/// How to connect.
#[derive(Clone, Debug)]
pub struct Options {
    /// Client identifier.
    pub client_id: String,
    /// Clean Start.
    pub clean: bool,
    /// Session Expiry Interval in seconds.
    pub expiry: u32,
    /// Keep Alive in seconds.
    pub keep_alive: u16,
    /// Topic and payload of a will at QoS 1.
    pub will: Option<(String, Vec<u8>)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            client_id: unique("peer"),
            clean: true,
            expiry: 0,
            keep_alive: 30,
            will: None,
        }
    }
}

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Topic name.
    pub topic: String,
    /// Payload.
    pub payload: Vec<u8>,
    /// QoS of the delivery.
    pub qos: u8,
    /// Retain flag.
    pub retain: bool,
}

/// A connected client.
pub trait Peer: Sized {
    /// Whether its DISCONNECT reaches the broker. A client that closes the
    /// QUIC connection right after writing it takes it along.
    const DISCONNECTS: bool = true;

    /// Connects; the CONNACK has arrived.
    async fn open(target: &Target, options: Options) -> Result<Self>;
    /// Session Present of the last CONNACK.
    fn session_present(&self) -> bool;
    /// Subscribes; the SUBACK has arrived and grants this QoS.
    async fn subscribe(&mut self, filter: &str, qos: u8) -> Result<()>;
    /// Publishes all, at once where the client can; all are acknowledged.
    async fn publish_all(
        &mut self,
        topic: &str,
        payloads: Vec<Vec<u8>>,
        qos: u8,
        retain: bool,
    ) -> Result<()>;
    /// The next message.
    async fn message(&mut self) -> Result<Message>;
    /// Disconnects.
    async fn suspend(&mut self) -> Result<()>;
    /// Connects again with the same session.
    async fn resume(&mut self) -> Result<()>;
    /// Connects and then ends without a DISCONNECT.
    async fn open_and_vanish(target: &Target, options: Options) -> Result<()>;

    /// Publishes one message.
    async fn publish(&mut self, topic: &str, payload: &[u8], qos: u8, retain: bool) -> Result<()> {
        self.publish_all(topic, vec![payload.to_vec()], qos, retain)
            .await
    }
}

/// A name that no other run uses.
pub fn unique(prefix: &str) -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let micros = now.map_or(0, |now| now.as_micros());
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{micros:x}-{serial}")
}

/// Fails when a future takes longer than [`WAIT_MAX`].
pub async fn within<T>(what: &str, future: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(WAIT_MAX, future).await {
        Ok(result) => result,
        Err(_) => bail!("no {what} in {WAIT_MAX:?}"),
    }
}

/// Runs every scenario with one kind of client and prints a line for each.
pub async fn run<P: Peer>(name: &str) -> ExitCode {
    let target = match target() {
        Ok(target) => target,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let version = if target.is_v5 { "5" } else { "3.1.1" };
    let run = Run {
        prefix: unique(&format!("interop/{name}/{version}")),
        target,
    };
    report("qos0", run.at_qos::<P>(0).await);
    report("qos1", run.at_qos::<P>(1).await);
    report("qos2", run.at_qos::<P>(2).await);
    report("wildcard", run.wildcard::<P>().await);
    report("retained", run.retained::<P>().await);
    report("will", run.will::<P>().await);
    report("shared", run.shared::<P>().await);
    report("persistent", run.persistent::<P>().await);
    report("large", run.large::<P>().await);
    report("burst", run.burst::<P>().await);
    ExitCode::SUCCESS
}

fn report(name: &str, result: Result<()>) {
    match result {
        Ok(()) => println!("ok {name}"),
        Err(error) => println!("not ok {name}: {}", format!("{error:#}").replace('\n', " ")),
    }
}

/// Reads the arguments that every client program takes.
fn target() -> Result<Target> {
    target_from(&mut arguments()?)
}

/// The command line: pairs of option and value.
fn arguments() -> Result<BTreeMap<String, String>> {
    let mut options = BTreeMap::new();
    let mut words = std::env::args().skip(1);
    while let Some(option) = words.next() {
        let value = words
            .next()
            .with_context(|| format!("{option} needs a value"))?;
        options.insert(option, value);
    }
    Ok(options)
}

/// Takes the options that say where the broker is.
fn target_from(options: &mut BTreeMap<String, String>) -> Result<Target> {
    let mut take = |option: &str| options.remove(option);
    Ok(Target {
        host: take("--host").unwrap_or_else(|| "localhost".to_owned()),
        port: take("--port").context("--port is missing")?.parse()?,
        is_v5: take("--version").as_deref() != Some("3.1.1"),
        ca: take("--ca").context("--ca is missing")?.into(),
        streams: take("--streams").unwrap_or_else(|| "control".to_owned()),
    })
}

struct Run {
    target: Target,
    prefix: String,
}

impl Run {
    async fn open<P: Peer>(&self) -> Result<P> {
        P::open(&self.target, Options::default()).await
    }

    fn topic(&self, tail: &str) -> String {
        format!("{}/{tail}", self.prefix)
    }

    async fn at_qos<P: Peer>(&self, qos: u8) -> Result<()> {
        let topic = self.topic(&format!("qos{qos}"));
        let mut client: P = self.open().await?;
        client.subscribe(&topic, qos).await?;
        for payload in ["one", "", "drei €"] {
            client
                .publish(&topic, payload.as_bytes(), qos, false)
                .await?;
            let want = Message {
                topic: topic.clone(),
                payload: payload.into(),
                qos,
                retain: false,
            };
            let got = client.message().await?;
            ensure!(got == want, "got {got:?}, want {want:?}");
        }
        client.suspend().await
    }

    async fn wildcard<P: Peer>(&self) -> Result<()> {
        let mut client: P = self.open().await?;
        client.subscribe(&self.topic("w/+/c/#"), 1).await?;
        for tail in ["a/x", "a/c", "b/c/d/e", "c"] {
            let topic = self.topic(&format!("w/{tail}"));
            client.publish(&topic, tail.as_bytes(), 1, false).await?;
        }
        // No order between topics is promised.
        let mut got = [
            client.message().await?.payload,
            client.message().await?.payload,
        ];
        got.sort_unstable();
        ensure!(got == [&b"a/c"[..], b"b/c/d/e"], "got {got:?}");
        client.suspend().await
    }

    async fn retained<P: Peer>(&self) -> Result<()> {
        let topic = self.topic("retained");
        let end = format!("{topic}/end");
        let mut publisher: P = self.open().await?;
        publisher.publish(&topic, b"kept", 1, true).await?;
        let mut client: P = self.open().await?;
        client.subscribe(&topic, 1).await?;
        let got = client.message().await?;
        ensure!(got.payload == b"kept" && got.retain, "got {got:?}");
        client.suspend().await?;
        publisher.publish(&topic, b"", 1, true).await?;
        publisher.publish(&end, b"end", 1, true).await?;
        let mut client: P = self.open().await?;
        client.subscribe(&format!("{topic}/#"), 1).await?;
        expect_payloads(&mut client, &["end"]).await?;
        client.suspend().await?;
        publisher.publish(&end, b"", 1, true).await?;
        publisher.suspend().await
    }

    async fn will<P: Peer>(&self) -> Result<()> {
        let topic = self.topic("will");
        let with_will = |payload: &str| Options {
            will: Some((topic.clone(), payload.into())),
            keep_alive: VANISH_KEEP_ALIVE_SECONDS,
            ..Options::default()
        };
        let mut watcher: P = self.open().await?;
        watcher.subscribe(&topic, 1).await?;
        if P::DISCONNECTS {
            let mut clean = P::open(&self.target, with_will("clean")).await?;
            clean.suspend().await?;
        }
        P::open_and_vanish(&self.target, with_will("gone")).await?;
        expect_payloads(&mut watcher, &["gone"]).await?;
        watcher.suspend().await
    }

    async fn shared<P: Peer>(&self) -> Result<()> {
        let topic = self.topic("shared");
        let end = format!("{topic}/end");
        let mut publisher: P = self.open().await?;
        let mut members: [P; 2] = [self.open().await?, self.open().await?];
        for member in &mut members {
            member
                .subscribe(&format!("$share/group/{topic}"), 1)
                .await?;
        }
        for number in 0..SHARED_MESSAGES {
            let payload = number.to_string();
            publisher
                .publish(&topic, payload.as_bytes(), 1, false)
                .await?;
        }
        // A marker that both get ends the wait for surplus messages.
        for member in &mut members {
            member.subscribe(&end, 1).await?;
        }
        publisher.publish(&end, b"end", 1, false).await?;
        let mut all = Vec::new();
        for mut member in members {
            let before = all.len();
            loop {
                let payload = member.message().await?.payload;
                if payload == b"end" {
                    break;
                }
                all.push(String::from_utf8(payload)?.parse::<usize>()?);
            }
            ensure!(all.len() > before, "a member got nothing");
            member.suspend().await?;
        }
        all.sort_unstable();
        ensure!(
            all == (0..SHARED_MESSAGES).collect::<Vec<_>>(),
            "got {all:?}"
        );
        publisher.suspend().await
    }

    async fn persistent<P: Peer>(&self) -> Result<()> {
        let topic = self.topic("persistent");
        let keep = Options {
            clean: false,
            expiry: 300,
            ..Options::default()
        };
        let mut client = P::open(&self.target, keep).await?;
        ensure!(!client.session_present(), "session present at first");
        client.subscribe(&topic, 1).await?;
        client.suspend().await?;
        let mut publisher: P = self.open().await?;
        for payload in ["0", "1", "2"] {
            publisher
                .publish(&topic, payload.as_bytes(), 1, false)
                .await?;
        }
        publisher.suspend().await?;
        client.resume().await?;
        ensure!(client.session_present(), "session not present");
        expect_payloads(&mut client, &["0", "1", "2"]).await?;
        client.suspend().await
    }

    async fn large<P: Peer>(&self) -> Result<()> {
        let topic = self.topic("large");
        let payload: Vec<u8> = (0..=255).cycle().take(LARGE_BYTES).collect();
        let mut client: P = self.open().await?;
        client.subscribe(&topic, 1).await?;
        client.publish(&topic, &payload, 1, false).await?;
        ensure!(
            client.message().await?.payload == payload,
            "the payload changed"
        );
        client.suspend().await
    }

    async fn burst<P: Peer>(&self) -> Result<()> {
        let topic = self.topic("burst");
        let mut client: P = self.open().await?;
        client.subscribe(&topic, 1).await?;
        let payloads: Vec<String> = (0..BURST_MESSAGES).map(|n| n.to_string()).collect();
        let bytes = payloads.iter().map(|p| p.clone().into_bytes()).collect();
        client.publish_all(&topic, bytes, 1, false).await?;
        let payloads: Vec<&str> = payloads.iter().map(String::as_str).collect();
        expect_payloads(&mut client, &payloads).await?;
        client.suspend().await
    }
}

async fn expect_payloads<P: Peer>(client: &mut P, wanted: &[&str]) -> Result<()> {
    for want in wanted {
        let got = client.message().await?;
        ensure!(got.payload == want.as_bytes(), "got {got:?}, want {want}");
    }
    Ok(())
}
