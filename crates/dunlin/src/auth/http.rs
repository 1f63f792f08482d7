//! A server that is asked by HTTP who a client is.

use core::time::Duration;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dunlin_base::Text;
use dunlin_broker::auth::{AuthRequest, By, Grant};
use dunlin_broker::is_bridge_name;
use serde::Deserialize;
use serde_json::{Value, json};

use super::asking::{self, Knows, Pool, Verdict};
use super::rules::Given;
use super::tokens::is_user;
use super::web::{Manner, Web, WebError};
use super::{Asked, Door};
use crate::config::{AskedServer, Asking, WhenDown};

/// Longest answer.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// Longest value of the header `Authorization`.
const AUTHORIZATION_BYTES_MAX: usize = 4096;

/// Longest time for which an answer lets a client in.
const EXPIRES_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Why a server cannot be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// Its address or authorities cannot be used.
    #[error(transparent)]
    Web(#[from] WebError),
    /// The file with the header cannot be used.
    #[error("cannot use {}: {why}", path.display())]
    Authorization {
        /// Which file.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

/// A server as the configuration has it.
pub(super) fn web(config: &AskedServer<'_>) -> Result<Web, HttpError> {
    let manner = Manner {
        ca_file: config.ca_file,
        timeout: config.timeout,
        connections: config.connections as usize,
        bytes_max: ANSWER_BYTES_MAX,
    };
    let mut web = Web::new(config.url, &manner)?;
    if let Some(path) = config.authorization_file {
        let wrong = |why: String| HttpError::Authorization {
            path: path.into(),
            why,
        };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let value = text.trim();
        let fits = !value.is_empty()
            && value.len() <= AUTHORIZATION_BYTES_MAX
            && !value.contains(|c: char| !c.is_ascii() || c.is_control());
        if !fits {
            return Err(wrong("it is not one line of ASCII".into()));
        }
        web.set_authorization(value.into());
    }
    Ok(web)
}

/// The server.
#[derive(Clone)]
pub(super) struct Server {
    web: Arc<Web>,
    timeout: Duration,
    connections: u32,
    when_down: WhenDown,
}

dunlin_base::opaque_debug!(Server);

impl Server {
    pub(super) fn load(config: &Asking) -> Result<Self, HttpError> {
        let server = config.server();
        Ok(Self {
            web: Arc::new(web(&server)?),
            timeout: server.timeout,
            connections: server.connections,
            when_down: config.when_down,
        })
    }

    /// Threads that ask it.
    pub(super) fn start(&self, door: &Door) -> io::Result<Pool<Box<Asked>>> {
        let manner = asking::Manner {
            key: "auth.http",
            thread: "auth-http",
            timeout: self.timeout,
            connections: self.connections,
            when_down: self.when_down,
        };
        asking::about_clients(manner, door, || self.clone())
    }
}

impl Knows for Server {
    type Error = WebError;

    fn ask(&mut self, request: &AuthRequest) -> Result<Verdict, WebError> {
        let AuthRequest::Password {
            user,
            password,
            client_id,
            peer,
        } = request
        else {
            return Ok(Verdict::Ignore);
        };
        let mut question = json!({
            "client_id": client_id.as_str(),
            "username": user.as_str(),
            "address": peer.addr.ip().to_canonical().to_string(),
            "port": peer.addr.port(),
            "transport": peer.transport.name(),
            "protocol": peer.protocol.as_str(),
            "listener": peer.listener,
            "certificate": peer.identity.as_deref(),
        });
        let (name, text) = match core::str::from_utf8(password) {
            Ok(text) => ("password", text.to_owned()),
            Err(_) => ("password_base64", STANDARD.encode(password)),
        };
        if let Some(members) = question.as_object_mut() {
            members.insert(name.into(), Value::String(text));
        }
        match self.web.post(&question)? {
            // No content is a yes without more to say.
            None => Ok(Verdict::Allow(Box::new(grant(user)))),
            Some(body) => read(&body, user),
        }
    }
}

#[derive(Deserialize)]
struct Body {
    result: Said,
    user: Option<String>,
    rules: Option<Value>,
    groups: Option<Value>,
    limits: Option<Value>,
    expires_in: Option<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Said {
    Allow,
    Deny,
    Ignore,
}

/// A grant to the user that the client says it is.
fn grant(user: &Text) -> Grant {
    // A copy, because the name may be a slice of a large packet.
    let user = (!user.is_empty()).then(|| Text::from(user.as_str()));
    Grant::new(user, By::Http)
}

fn read(body: &[u8], user: &Text) -> Result<Verdict, WebError> {
    let wrong = |why: &str| WebError::Answer(format!("the answer is not one: {why}"));
    let body: Body = serde_json::from_slice(body).map_err(|error| wrong(&error.to_string()))?;
    match body.result {
        Said::Deny => return Ok(Verdict::Deny),
        Said::Ignore => return Ok(Verdict::Ignore),
        Said::Allow => {}
    }
    let mut grant = grant(user);
    if let Some(user) = body.user {
        if !is_user(&user) {
            return Err(wrong("`user` is no name"));
        }
        grant.user = Some(Text::from(user));
    }
    let given = Given {
        rules: body.rules.as_ref(),
        groups: body.groups.as_ref(),
        limits: body.limits.as_ref(),
    };
    let wanted = "`rules`, `groups` or `limits` cannot be used";
    grant.rules = given.read().ok_or_else(|| wrong(wanted))?;
    if let Some(secs) = body.expires_in {
        let lifetime = Duration::try_from_secs_f64(secs).ok();
        let lifetime = lifetime.filter(|lifetime| !lifetime.is_zero());
        let lifetime = lifetime.ok_or_else(|| wrong("`expires_in` is no time"))?;
        grant.lifetime = Some(lifetime.min(EXPIRES_MAX));
    }
    // Only the broker's own bridges have such names.
    let is_free = !grant.user.as_deref().is_some_and(is_bridge_name);
    match is_free {
        true => Ok(Verdict::Allow(Box::new(grant))),
        false => Err(wrong("`user` is the name of a bridge")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_strictly() {
        let user = Text::from_static("u");
        let read = |text: &str| read(text.as_bytes(), &user).ok();
        let allow = |text: &str| match read(text) {
            Some(Verdict::Allow(grant)) => *grant,
            other => panic!("{other:?}"),
        };
        assert_eq!(read(r#"{"result":"deny"}"#), Some(Verdict::Deny));
        assert_eq!(
            read(r#"{"result":"ignore","more":1}"#),
            Some(Verdict::Ignore)
        );
        assert_eq!(allow(r#"{"result":"allow"}"#).user, Some(user.clone()));
        let text = r#"{"result":"allow","user":"v","rules":{"pub":["a"]},"expires_in":1.5}"#;
        let granted = allow(text);
        assert_eq!(granted.user.as_deref(), Some("v"));
        assert_eq!(granted.lifetime, Some(Duration::from_millis(1500)));
        assert_eq!(
            granted.rules.map(|it| it.text().to_owned()).as_deref(),
            Some("write a\n")
        );
        for text in [
            "",
            "<html>allow</html>",
            "allow",
            "{}",
            r#"{"result":"yes"}"#,
            r#"{"result":true}"#,
            r#"{"result":"allow","result":"deny"}"#,
            r#"{"result":"allow","user":""}"#,
            r#"{"result":"allow","user":1}"#,
            r#"{"result":"allow","user":"$bridge:x"}"#,
            r#"{"result":"allow","rules":[]}"#,
            r#"{"result":"allow","groups":{}}"#,
            r#"{"result":"allow","groups":[1]}"#,
            r#"{"result":"allow","groups":["a\nlimit messages 1"]}"#,
            r#"{"result":"allow","limits":{"message":1}}"#,
            r#"{"result":"allow","limits":{"messages":-1}}"#,
            r#"{"result":"allow","limits":{"bytes":"1 litre"}}"#,
            r#"{"result":"allow","limits":[]}"#,
            r#"{"result":"allow","expires_in":0}"#,
            r#"{"result":"allow","expires_in":-1}"#,
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
