//! Keys that another server has: a thread fetches its key set again and again, and
//! keeps the last one while the server does not answer.

use core::time::Duration;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Instant;

use super::keys::{self, Key};
use super::verified::{Fingerprint, fingerprint};
use super::{Manner, TokenError, Web, WebError};
use crate::config::Jwt;

/// Longest key set.
const SET_BYTES_MAX: u64 = 256 * 1024;

/// Time for a fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// Time after the first fetch that fails; doubled with each one more, up to the time
/// between fetches.
const RETRY_FIRST: Duration = Duration::from_secs(5);

/// Where keys are fetched, and how often.
pub(crate) struct Source {
    web: Web,
    url: String,
    algorithms: Vec<String>,
    refresh: Duration,
    max_age: Duration,
}

/// What came of a fetch.
pub(crate) struct Fetched(Option<KeySet>);

/// Keys that are used from now on.
#[derive(Default)]
pub(super) struct KeySet {
    pub(super) keys: Vec<Key>,
    /// The fingerprint of the key set that has them; `None`: they are too old, and gone.
    pub(super) text: Option<Fingerprint>,
}

impl KeySet {
    fn read(at: &str, text: &[u8], algorithms: &[String]) -> Result<Self, TokenError> {
        Ok(Self {
            keys: keys::read(Path::new(at), text, algorithms)?,
            text: fingerprint(text),
        })
    }
}

impl Fetched {
    /// Keys as a server would say them.
    #[cfg(test)]
    pub(crate) fn of(set: &str, algorithm: &str) -> Self {
        let keys = KeySet::read("f", set.as_bytes(), &[algorithm.into()]);
        Self(Some(keys.expect("a key set")))
    }

    /// What a server says that does not answer.
    #[cfg(test)]
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    /// Keys to use from now on; `None`: those that there are.
    pub(super) fn keys(self) -> Option<KeySet> {
        self.0
    }
}

impl Source {
    pub(super) fn of(config: &Jwt) -> Result<Option<Self>, WebError> {
        let Some(url) = &config.jwks_url else {
            return Ok(None);
        };
        let manner = Manner {
            ca_file: config.jwks_ca_file.as_deref(),
            timeout: FETCH_TIMEOUT,
            connections: 0,
            bytes_max: SET_BYTES_MAX,
        };
        Ok(Some(Self {
            web: Web::new(url, &manner)?,
            url: url.clone(),
            algorithms: config.algorithms.clone(),
            refresh: config.jwks_refresh.0,
            max_age: config.jwks_max_age.0,
        }))
    }

    /// The keys that the server has now. One that has none that can be used has none to
    /// say.
    fn fetch(&self) -> Result<KeySet, TokenError> {
        let text = self.web.get()?;
        if !text.trim_ascii_start().starts_with(b"{") {
            return Err(WebError::Answer("the answer is no key set".into()).into());
        }
        KeySet::read(&self.url, &text, &self.algorithms)
    }
}

/// Fetches on a thread of its own, until the sender that is returned is dropped, or
/// `deliver` says that nothing listens. A value through the sender has it fetch at
/// once.
pub(crate) fn start(
    source: Arc<Source>,
    deliver: impl Fn(Fetched) -> bool + Send + 'static,
) -> io::Result<SyncSender<()>> {
    let (wake, woken) = sync_channel(1);
    let run = move || {
        let mut state = State::default();
        loop {
            let fetched = state.note(&source, source.fetch(), Instant::now());
            if !deliver(fetched) {
                return;
            }
            let pause = state.pause(&source);
            if woken.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    };
    std::thread::Builder::new().name("jwks".into()).spawn(run)?;
    Ok(wake)
}

/// How it went so far.
#[derive(Debug, Default)]
struct State {
    /// When keys came last.
    good: Option<Instant>,
    /// Fetches that failed since.
    failures: u32,
}

impl State {
    fn note(
        &mut self,
        source: &Source,
        outcome: Result<KeySet, TokenError>,
        now: Instant,
    ) -> Fetched {
        let error = match outcome {
            Ok(set) => {
                if self.failures > 0 || self.good.is_none() {
                    tracing::info!(keys = set.keys.len(), "fetched the keys of tokens");
                }
                *self = Self {
                    good: Some(now),
                    failures: 0,
                };
                return Fetched(Some(set));
            }
            Err(error) => error,
        };
        self.failures = self.failures.saturating_add(1);
        let age = self.good.map(|good| now.saturating_duration_since(good));
        let is_old = age.is_some_and(|age| age >= source.max_age);
        match self.good {
            Some(_) if is_old => {
                self.good = None;
                tracing::error!(%error, "cannot fetch the keys of tokens: those that there are are too old, and no token is valid");
            }
            Some(_) => {
                tracing::warn!(%error, "cannot fetch the keys of tokens; the last ones stay")
            }
            None => tracing::warn!(%error, "cannot fetch the keys of tokens; no token is valid"),
        }
        Fetched(is_old.then(KeySet::default))
    }

    /// Time to the next fetch.
    fn pause(&self, source: &Source) -> Duration {
        match self.failures {
            0 => jittered(source.refresh),
            failures => {
                let doubled = RETRY_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(16));
                jittered(doubled.min(source.refresh))
            }
        }
    }
}

/// A time a tenth shorter or longer, so that brokers do not ask together.
fn jittered(time: Duration) -> Duration {
    let mut byte = [128];
    // Without randomness it is the time itself.
    let _ = getrandom::fill(&mut byte);
    let [byte] = byte;
    time.mul_f64(0.9 + 0.2 * f64::from(byte) / 255.0)
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use serde_json::json;

    use super::super::fake::{self, Answer};
    use super::super::tests::Pair;
    use super::*;

    fn source(refresh: u64, max_age: u64) -> Source {
        source_at("http://127.0.0.1:1/", refresh, max_age)
    }

    fn source_at(url: &str, refresh: u64, max_age: u64) -> Source {
        let manner = Manner {
            ca_file: None,
            timeout: Duration::from_millis(500),
            connections: 0,
            bytes_max: SET_BYTES_MAX,
        };
        Source {
            web: Web::new(url, &manner).expect("an agent"),
            url: url.into(),
            algorithms: vec!["ES256".into()],
            refresh: Duration::from_secs(refresh),
            max_age: Duration::from_secs(max_age),
        }
    }

    #[test]
    fn keys_outlive_their_server_for_a_time() {
        let source = source(300, 1000);
        let failed = || Err(WebError::Status(500).into());
        let begin = Instant::now();
        let after = |secs| begin + Duration::from_secs(secs);
        let mut state = State::default();
        // There never were any.
        assert!(state.note(&source, failed(), begin).keys().is_none());
        let came = state.note(&source, Ok(KeySet::default()), begin).keys();
        assert!(came.is_some());
        assert!(state.note(&source, failed(), after(999)).keys().is_none());
        // Too old: once.
        let gone = state.note(&source, failed(), after(1000)).keys();
        assert!(gone.is_some_and(|set| set.keys.is_empty()));
        assert!(state.note(&source, failed(), after(2000)).keys().is_none());
    }

    #[test]
    fn a_server_that_is_down_is_asked_sooner_and_then_less_often() {
        let source = source(60, 1000);
        let pauses = [(0, 60), (1, 5), (2, 10), (4, 40), (5, 60), (u32::MAX, 60)];
        for (failures, secs) in pauses {
            let state = State {
                good: None,
                failures,
            };
            let pause = state.pause(&source).as_secs_f64();
            let (low, high) = (0.9 * f64::from(secs), 1.1 * f64::from(secs));
            assert!((low..=high + 0.001).contains(&pause), "{failures}: {pause}");
        }
    }

    #[test]
    fn servers_that_lie_have_no_keys() {
        let served = json!({"keys": [Pair::new().jwk("k")]}).to_string();
        let server = fake::Web::start(move |line, _| match line.split(' ').nth(1) {
            Some("/keys") => Answer::Ok(served.clone()),
            Some("/html") => Answer::Ok("<html>no keys</html>".into()),
            Some("/secret") => Answer::Ok("a secret that is thirty-two bytes".into()),
            Some("/none") => Answer::Ok(r#"{"keys":[]}"#.into()),
            Some("/huge") => Answer::Ok(format!("{served}{}", " ".repeat(1024 * 1024))),
            Some("/elsewhere") => Answer::Status(302, "location: /keys\r\n"),
            Some("/moved") => Answer::Status(307, "location: http://127.0.0.1:1/\r\n"),
            Some("/error") => Answer::Status(500, ""),
            Some("/empty") => Answer::Status(204, ""),
            Some("/noise") => Answer::Raw(vec![0xff; 100_000]),
            Some("/cut") => Answer::Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{".to_vec()),
            _ => Answer::Nothing,
        });
        let fetch = |path: &str| source_at(&server.url(path), 60, 60).fetch();
        assert_eq!(fetch("/keys").map(|set| set.keys.len()).ok(), Some(1));
        for path in [
            "/html",
            "/secret",
            "/none",
            "/huge",
            "/elsewhere",
            "/moved",
            "/error",
            "/empty",
            "/noise",
            "/cut",
            "/hangs",
        ] {
            assert!(fetch(path).is_err(), "{path}");
        }
    }

    #[test]
    fn the_thread_fetches_when_it_is_woken_and_ends_with_its_listener() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let set = json!({"keys": [Pair::new().jwk("k")]}).to_string();
        let server = fake::Web::start(move |_, _| {
            count.fetch_add(1, Ordering::Relaxed);
            Answer::Ok(set.clone())
        });
        let (sender, fetched) = channel();
        let source = Arc::new(source_at(&server.url("/"), 3600, 3600));
        let deliver =
            move |news: Fetched| sender.send(news.keys().map(|set| set.keys.len())).is_ok();
        let wake = start(source, deliver).expect("a thread");
        for times in 1..=3 {
            assert_eq!(fetched.recv().expect("fetched"), Some(1));
            assert_eq!(asked.load(Ordering::Relaxed), times);
            wake.send(()).expect("it listens");
        }
        drop(wake);
        // What was under way comes, and then nothing more.
        while fetched.recv().is_ok() {}
    }
}
