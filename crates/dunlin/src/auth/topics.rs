//! A server that is asked by HTTP whether clients may use topics.

use core::time::Duration;
use std::io;
use std::sync::Arc;

use dunlin_broker::access::Action;
use dunlin_broker::auth::{AuthAnswer, Ruling, TopicRequest};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Reply;
use super::asking::{self, Log, TOO_MANY, Threads};
use super::http::{HttpError, web};
use super::web::{Web, WebError};
use crate::config::AskingTopics;

/// Most questions that wait for a thread; the next one has no answer.
pub(super) const QUEUE_MAX: usize = 4096;

/// Time for which a client is not asked about again after a question without answer.
const DOWN_KEPT: Duration = Duration::from_secs(5);

/// Longest time for which an answer counts.
const KEPT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The server.
#[derive(Clone)]
pub(super) struct Server {
    web: Arc<Web>,
    timeout: Duration,
    connections: u32,
    /// Time for which an answer counts that does not say so: yes, and no.
    kept: (Duration, Duration),
}

dunlin_base::opaque_debug!(Server);

impl Server {
    pub(super) fn load(config: &AskingTopics) -> Result<Self, HttpError> {
        let server = config.server();
        Ok(Self {
            web: Arc::new(web(&server)?),
            timeout: server.timeout,
            connections: server.connections,
            kept: (config.cache.0, config.cache_denied.0),
        })
    }

    /// Whether a client may, and for how long that counts.
    fn ask(&self, request: &TopicRequest) -> Result<(bool, Duration), WebError> {
        match self.web.post(&question(request))? {
            // No content is a yes without more to say.
            None => Ok((true, self.kept.0)),
            Some(body) => read(&body, self.kept),
        }
    }
}

fn question(request: &TopicRequest) -> Value {
    json!({
        "action": match request.action {
            Action::Publish => "publish",
            Action::Subscribe | Action::Receive => "subscribe",
        },
        "topic": request.topic.as_str(),
        "client_id": request.client_id.as_str(),
        "username": request.user.as_deref(),
        "address": request.address.to_canonical().to_string(),
        "listener": request.listener,
    })
}

#[derive(Deserialize)]
struct Body {
    result: Said,
    expires_in: Option<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Said {
    Allow,
    Deny,
    /// It knows no rule, and so there is none that allows it.
    Ignore,
}

fn read(body: &[u8], kept: (Duration, Duration)) -> Result<(bool, Duration), WebError> {
    let wrong = |why: &str| WebError::Answer(format!("the answer is not one: {why}"));
    let body: Body = serde_json::from_slice(body).map_err(|error| wrong(&error.to_string()))?;
    let (allowed, usual) = match body.result {
        Said::Allow => (true, kept.0),
        Said::Deny | Said::Ignore => (false, kept.1),
    };
    let kept = match body.expires_in.map(Duration::try_from_secs_f64) {
        None => usual,
        Some(Ok(kept)) => kept.min(KEPT_MAX),
        Some(Err(_)) => return Err(wrong("`expires_in` is no time")),
    };
    Ok((allowed, kept))
}

/// What is said of a topic; `None`: nothing.
pub(super) fn ruling(request: &TopicRequest, said: Option<(bool, Duration)>) -> AuthAnswer {
    AuthAnswer::Topic(Box::new(Ruling {
        action: request.action,
        topic: request.topic.clone(),
        allowed: said.map(|(allowed, _)| allowed),
        lifetime: said.map_or(DOWN_KEPT, |(_, kept)| kept),
    }))
}

/// A question, and who waits for the answer.
type Question = (Box<TopicRequest>, Reply);

/// Threads that ask the server. They end when this is dropped.
pub(super) struct Pool(asking::Pool<Question>);

impl Pool {
    pub(super) fn start(server: &Server) -> io::Result<Self> {
        let threads = Threads {
            name: "auth-topics",
            count: server.connections,
            queue_max: QUEUE_MAX,
            patience: 2 * server.timeout,
        };
        let started = asking::Pool::start(threads, || {
            let server = server.clone();
            let mut log = Log::new("auth.topics");
            move |(request, reply): Question, is_late| {
                let said = match is_late {
                    true => Err(WebError::Answer(TOO_MANY.into())),
                    false => server.ask(&request),
                };
                if let Err(error) = &said {
                    log.note(error);
                }
                reply(ruling(&request, said.ok()));
            }
        });
        started.map(Self)
    }

    /// Asks; never waits.
    pub(super) fn submit(&self, request: Box<TopicRequest>, reply: Reply) {
        if let Err((request, reply)) = self.0.submit((request, reply)) {
            reply(ruling(&request, None));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use dunlin_base::Text;

    use super::super::fake;
    use super::*;
    use crate::config::Config;

    const KEPT: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(10));

    #[test]
    fn answers_are_read_strictly() {
        let read = |text: &str| read(text.as_bytes(), KEPT).ok();
        assert_eq!(read(r#"{"result":"allow"}"#), Some((true, KEPT.0)));
        assert_eq!(read(r#"{"result":"deny","more":1}"#), Some((false, KEPT.1)));
        assert_eq!(read(r#"{"result":"ignore"}"#), Some((false, KEPT.1)));
        let short = Some((true, Duration::from_millis(500)));
        assert_eq!(read(r#"{"result":"allow","expires_in":0.5}"#), short);
        let none = Some((false, Duration::ZERO));
        assert_eq!(read(r#"{"result":"deny","expires_in":0}"#), none);
        let long = Some((true, KEPT_MAX));
        assert_eq!(read(r#"{"result":"allow","expires_in":1e12}"#), long);
        for text in [
            "",
            "allow",
            "{}",
            r#"{"result":true}"#,
            r#"{"result":"Allow"}"#,
            r#"{"result":"allow","result":"deny"}"#,
            r#"{"result":"allow","expires_in":-1}"#,
            r#"{"result":"allow","expires_in":"1"}"#,
            r#"{"result":"allow","expires_in":1e300}"#,
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    fn start(url: &str, connections: u32) -> Pool {
        let text = format!(
            "[auth]\ntopics = {{ url = {url:?}, timeout = \"200ms\", connections = {connections} }}\n"
        );
        let config = Config::parse(std::path::Path::new("f"), &text).expect("valid");
        let server = config.auth.topics.as_ref().expect("a server");
        let server = Server::load(server).expect("loaded");
        Pool::start(&server).expect("started")
    }

    fn request(topic: &str) -> Box<TopicRequest> {
        Box::new(TopicRequest {
            user: Some(Text::from_static("u")),
            client_id: Text::from_static("c"),
            address: "::ffff:192.0.2.1".parse().expect("an address"),
            listener: 1,
            action: Action::Publish,
            topic: Text::from(topic),
        })
    }

    /// What is said of each of these.
    fn ask(pool: &Pool, topics: &[&str]) -> Vec<Option<bool>> {
        let (sender, answers) = channel();
        for topic in topics {
            let sender = sender.clone();
            let reply = move |answer| sender.send(answer).expect("waited for");
            pool.submit(request(topic), Box::new(reply));
        }
        let said = |answer| match answer {
            AuthAnswer::Topic(ruling) => ruling.allowed,
            other => panic!("{other:?}"),
        };
        answers.into_iter().take(topics.len()).map(said).collect()
    }

    #[test]
    fn questions_say_who_and_what() {
        assert_eq!(
            question(&request("a/b")),
            json!({
                "action": "publish", "topic": "a/b", "client_id": "c", "username": "u",
                "address": "192.0.2.1", "listener": 1,
            })
        );
    }

    /// A server that hangs, lies, leads elsewhere or answers without end gives no answer,
    /// in time.
    #[test]
    fn what_is_no_answer_is_none() {
        let elsewhere = fake::Web::start(|_, _| fake::Answer::Ok(r#"{"result":"allow"}"#.into()));
        let location = format!("location: {}\r\n", elsewhere.url("/"));
        let location: &'static str = Box::leak(location.into_boxed_str());
        let server = fake::Web::start(move |_, body| {
            let body: Value = serde_json::from_str(body).expect("JSON");
            match body["topic"].as_str().expect("a topic") {
                "yes" => fake::Answer::Ok(r#"{"result":"allow"}"#.into()),
                "no" => fake::Answer::Ok(r#"{"result":"deny"}"#.into()),
                "empty" => fake::Answer::Status(204, ""),
                "error" => fake::Answer::Status(500, ""),
                "elsewhere" => fake::Answer::Status(307, location),
                "long" => fake::Answer::Ok(format!(
                    "{{\"result\":\"allow\",\"more\":\"{}\"}}",
                    "x".repeat(1 << 20)
                )),
                "raw" => fake::Answer::Raw(b"allow".to_vec()),
                _ => fake::Answer::Nothing,
            }
        });
        let pool = start(&server.url("/topics"), 1);
        for (topic, said) in [
            ("yes", Some(true)),
            ("no", Some(false)),
            ("empty", Some(true)),
            ("error", None),
            ("elsewhere", None),
            ("long", None),
            ("raw", None),
            ("hangs", None),
            ("yes", Some(true)),
        ] {
            assert_eq!(ask(&pool, &[topic]), [said], "{topic}");
        }
    }

    /// What waits behind a server that hangs is over in a bounded time, and what does not
    /// fit into the queue at once.
    #[test]
    fn a_server_that_hangs_holds_nothing_for_long() {
        let server = fake::Web::start(|_, _| fake::Answer::Nothing);
        let pool = start(&server.url("/"), 2);
        let begun = Instant::now();
        let topics = vec!["t"; QUEUE_MAX + 100];
        let said = ask(&pool, &topics);
        assert!(said.iter().all(Option::is_none));
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{:?}",
            begun.elapsed()
        );
    }
}
