//! `[[quota]]`: how fast some clients may send, and what they may have.

use dunlin_base::Text;
use dunlin_broker as broker;
use dunlin_broker::QUOTAS_MAX;
use serde::{Deserialize, Serialize};

use super::error::Wrong;
use super::limits::Limits;
use super::topics::check_pattern;
use super::units::{Size, Span};

/// Smallest packet that a quota may allow.
const PACKET_BYTES_MIN: u64 = 256;

/// One quota. A limit that is 0 is that of all clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Quota {
    /// Client identifiers; all when absent.
    pub client: Option<String>,
    /// User names; all clients, with or without, when absent.
    pub user: Option<String>,
    /// A group of the access list, or that a token or an answer names; all clients when
    /// absent.
    pub group: Option<String>,
    /// Listeners, counted from 0; all when empty.
    pub listeners: Vec<u16>,
    /// Messages a second.
    pub messages: u64,
    /// Bytes a second.
    pub bytes: Size,
    /// Time for which a client may save up what it has not sent.
    pub burst: Span,
    /// Time that a client may be ahead.
    pub debt: Span,
    /// Largest packet.
    pub packet_size: Size,
    /// Messages that wait for a session.
    pub queue_messages: usize,
    /// Bytes of these.
    pub queue_bytes: Size,
    /// Sessions of one user.
    pub sessions: usize,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            client: None,
            user: None,
            group: None,
            listeners: Vec::new(),
            messages: 0,
            bytes: Size(0),
            burst: Span::secs(1),
            debt: Span::secs(10),
            packet_size: Size(0),
            queue_messages: 0,
            queue_bytes: Size(0),
            sessions: 0,
        }
    }
}

/// The quotas as the broker takes them.
pub(crate) fn quotas(quotas: &[Quota]) -> broker::Quotas {
    let text = |it: &Option<String>| it.as_deref().map(Text::from);
    let all = quotas.iter().map(|quota| broker::Quota {
        client_id: text(&quota.client),
        user: text(&quota.user),
        group: text(&quota.group),
        listeners: quota.listeners.clone(),
        messages: quota.messages,
        bytes: quota.bytes.0,
        burst: quota.burst.0,
        debt: quota.debt.0,
        packet_bytes_max: quota.packet_size.as_u32(),
        queue_messages_max: quota.queue_messages,
        queue_bytes_max: quota.queue_bytes.as_usize(),
        sessions_max: quota.sessions,
    });
    broker::Quotas(all.collect())
}

/// What is wrong with a quota of a broker with so many listeners, by its number.
pub(super) fn check(
    quotas: &[Quota],
    listeners: usize,
    limits: &Limits,
) -> Result<(), (usize, Wrong)> {
    for (index, quota) in quotas.iter().enumerate() {
        let wrong = |key, why: String| Err((index, (key, why)));
        if index >= QUOTAS_MAX {
            return wrong(
                "messages",
                format!("there are more than {QUOTAS_MAX} quotas"),
            );
        }
        for (key, pattern) in [("client", &quota.client), ("user", &quota.user)] {
            if let Err(why) = check_pattern(pattern.as_deref()) {
                return wrong(key, why);
            }
        }
        if quota
            .group
            .as_deref()
            .is_some_and(|it| it.trim().is_empty())
        {
            return wrong("group", "is empty".into());
        }
        let missing = |it: &&u16| usize::from(**it) >= listeners;
        if let Some(listener) = quota.listeners.iter().find(missing) {
            let why = format!("there is no listener {listener} among {listeners}, from 0");
            return wrong("listeners", why);
        }
        let largest = limits.packets.max_packet_size;
        let packet = quota.packet_size;
        if packet.0 > 0 && !(PACKET_BYTES_MIN..=largest.0).contains(&packet.0) {
            let why = format!("{packet} is not between 256B and limits.max_packet_size");
            return wrong("packet_size", why);
        }
        if quota.queue_bytes.0 > 0 && quota.queue_bytes < largest {
            let why = format!("{} is less than limits.max_packet_size", quota.queue_bytes);
            return wrong("queue_bytes", why);
        }
        if !quota.listeners.is_empty() && (quota.queue_messages > 0 || quota.queue_bytes.0 > 0) {
            let why = "queues belong to sessions, which no listener has: leave `listeners` out";
            return wrong("listeners", why.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_quotas_are_named_by_their_key() {
        let good = Quota {
            user: Some("fleet-*".into()),
            messages: 10,
            packet_size: Size::kib(64),
            queue_bytes: Size::mib(2),
            ..Quota::default()
        };
        let limits = Limits::default();
        assert!(check(&[good], 1, &limits).is_ok());
        let usual = Quota::default;
        for (bad, key) in [
            (
                Quota {
                    client: Some("*a".into()),
                    ..usual()
                },
                "client",
            ),
            (
                Quota {
                    group: Some(" ".into()),
                    ..usual()
                },
                "group",
            ),
            (
                Quota {
                    listeners: vec![0, 1],
                    ..usual()
                },
                "listeners",
            ),
            (
                Quota {
                    packet_size: Size(100),
                    ..usual()
                },
                "packet_size",
            ),
            (
                Quota {
                    packet_size: Size::mib(2),
                    ..usual()
                },
                "packet_size",
            ),
            (
                Quota {
                    queue_bytes: Size::kib(1),
                    ..usual()
                },
                "queue_bytes",
            ),
            (
                Quota {
                    listeners: vec![0],
                    queue_messages: 5,
                    ..usual()
                },
                "listeners",
            ),
        ] {
            let found = check(&[bad], 1, &limits);
            assert_eq!(
                found.map_err(|(index, (key, _))| (index, key)),
                Err((0, key))
            );
        }
    }
}
