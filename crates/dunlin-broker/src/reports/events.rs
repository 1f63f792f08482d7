//! `$SYS/events/…`: what happens to clients, as JSON, for those who may read it. At most
//! [`EVENTS_MAX`](crate::owners::figures::EVENTS_MAX) a second and shard; of the rest it
//! is said how many there were.

use alloc::format;
use alloc::string::String;
use core::fmt::Write as _;

use dunlin_base::ConnId;
use dunlin_base::transport::ShownAddr;

use crate::config::SysEvent;
use crate::io::{AccessKind, Event};
use crate::owners::Owners;
use crate::reports::sys;

/// Publishes an event, if it is one that is published.
pub(crate) fn publish(own: &mut Owners, event: &Event) {
    let Some((kind, conn)) = kind(event) else {
        return;
    };
    if !own.config.sys.events.contains(&kind) {
        return;
    }
    let Some(left_out) = own.figures.admit_event(own.now) else {
        return;
    };
    let mut json = Json::new();
    json.number("time_ms", own.now.as_micros() / 1000);
    describe(&mut json, event);
    if let Event::Connected { .. } | Event::Subscribed { .. } = event {
        describe_conn(&mut json, own, conn);
    }
    if left_out > 0 {
        json.number("left_out", left_out);
    }
    let topic = format!("$SYS/events/{}", kind.name());
    sys::publish_here(own, &topic, json.end());
}

/// What an event is for those who subscribe.
fn kind(event: &Event) -> Option<(SysEvent, ConnId)> {
    let found = match event {
        Event::Connected { conn, .. } => (SysEvent::Connected, *conn),
        Event::Disconnected {
            conn,
            client_id: Some(_),
            ..
        }
        | Event::Ended { conn, .. } => (SysEvent::Disconnected, *conn),
        Event::Access(access) => {
            let kind = match access.kind {
                AccessKind::TakenOver | AccessKind::Revoked => SysEvent::Disconnected,
                AccessKind::Refused => SysEvent::Refused,
                AccessKind::Denied => SysEvent::Denied,
                AccessKind::Accepted => return None,
            };
            (kind, access.conn)
        }
        Event::Subscribed {
            conn, subscribed, ..
        } => {
            let kind = match subscribed {
                true => SysEvent::Subscribed,
                false => SysEvent::Unsubscribed,
            };
            (kind, *conn)
        }
        _ => return None,
    };
    Some(found)
}

fn describe(json: &mut Json, event: &Event) {
    match event {
        Event::Connected {
            client_id, resumed, ..
        } => {
            json.text("client_id", client_id);
            json.raw("session_present", if *resumed { "true" } else { "false" });
        }
        Event::Disconnected {
            client_id, cause, ..
        } => {
            json.text("client_id", client_id.as_deref().unwrap_or_default());
            json.text("reason", cause);
        }
        Event::Ended { client_id, why, .. } => {
            json.text("client_id", client_id);
            json.text("reason", "ended by an operator");
            json.text("why", why);
        }
        Event::Access(access) => {
            json.text("client_id", &access.client_id);
            json.text("reason", access.cause);
            if let Some(user) = &access.user {
                json.text("user", user);
            }
            if let Some(topic) = &access.topic {
                json.text("topic", topic);
            }
            json.text("address", &format!("{}", ShownAddr(access.peer.addr)));
            json.text("transport", access.peer.transport.name());
        }
        Event::Subscribed {
            client_id, filter, ..
        } => {
            json.text("client_id", client_id);
            json.text("filter", filter);
        }
        _ => {}
    }
}

/// Who is at the other end, as far as the connection is still there.
fn describe_conn(json: &mut Json, own: &Owners, conn: ConnId) {
    let conn = own.conns.find(conn).and_then(|c| own.conns.peek(c));
    let Some(conn) = conn else {
        return;
    };
    let session = conn.session().and_then(|s| own.sessions.peek(s));
    if let Some(user) = session.and_then(|session| session.user.as_ref()) {
        json.text("user", user);
    }
    json.text("address", &format!("{}", ShownAddr(conn.peer.addr)));
    json.text("transport", conn.peer.transport.name());
    json.number("listener", u64::from(conn.peer.listener));
}

/// One JSON object.
struct Json(String);

impl Json {
    fn new() -> Self {
        Self(String::from("{"))
    }

    fn raw(&mut self, key: &str, value: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        // Writing to a string does not fail.
        let _ = write!(self.0, "\"{key}\":{value}");
    }

    fn number(&mut self, key: &str, value: u64) {
        self.raw(key, &format!("{value}"));
    }

    fn text(&mut self, key: &str, value: &str) {
        let mut quoted = String::from("\"");
        for letter in value.chars() {
            match letter {
                '"' | '\\' => {
                    quoted.push('\\');
                    quoted.push(letter);
                }
                letter if letter.is_control() => {
                    let _ = write!(quoted, "\\u{:04x}", u32::from(letter));
                }
                letter => quoted.push(letter),
            }
        }
        quoted.push('"');
        self.raw(key, &quoted);
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_clients_stay_in_their_quotes() {
        let mut json = Json::new();
        json.text("client_id", "a\"b\\c\n\u{7f}\u{e4}");
        json.number("n", 7);
        let want = "{\"client_id\":\"a\\\"b\\\\c\\u000a\\u007f\u{e4}\",\"n\":7}";
        assert_eq!(json.end(), want);
    }

    #[test]
    fn an_event_says_who_and_why() {
        let conn = ConnId::new(dunlin_base::ShardId(0), 1);
        let said = |event: &Event| {
            let mut json = Json::new();
            describe(&mut json, event);
            (kind(event).map(|(kind, _)| kind.name()), json.end())
        };
        let (kind, text) = said(&Event::Disconnected {
            conn,
            client_id: Some("a".into()),
            cause: "keep alive".into(),
        });
        assert_eq!(kind, Some("disconnected"));
        assert_eq!(text, "{\"client_id\":\"a\",\"reason\":\"keep alive\"}");
        let (kind, text) = said(&Event::Subscribed {
            conn,
            client_id: "a".into(),
            filter: "t/#".into(),
            subscribed: false,
        });
        assert_eq!(kind, Some("unsubscribed"));
        assert_eq!(text, "{\"client_id\":\"a\",\"filter\":\"t/#\"}");
        let unknown = Event::Disconnected {
            conn,
            client_id: None,
            cause: "closed".into(),
        };
        assert_eq!(said(&unknown).0, None);
    }
}
