//! What of a configuration changes while the broker runs.

use super::Config;

/// A configuration that takes the place of another, as far as it can.
pub(crate) struct Succession {
    /// What is in force then.
    pub(crate) config: Config,
    /// Keys of what has changed.
    pub(crate) changed: Vec<String>,
    /// Keys that need a restart.
    pub(crate) restart: Vec<String>,
}

impl Config {
    /// What is in force after a reload that has read `fresh`. `start` is what the broker
    /// was started with.
    pub(crate) fn succeeded_by(&self, fresh: &Self, start: &Self) -> Succession {
        let mut config = self.clone();
        config.take_limits(fresh);
        if config.may_take_quotas(fresh, start) {
            config.rules.quota.clone_from(&fresh.rules.quota);
        }
        Succession {
            changed: self.differences(&config),
            restart: config.differences(fresh),
            config,
        }
    }

    /// Limits that shards look at when something happens. Those that were announced to clients,
    /// and those of transports, are not among them.
    fn take_limits(&mut self, fresh: &Self) {
        let (limits, fresh) = (&mut self.limits, &fresh.limits);
        limits.times.max_keep_alive = fresh.times.max_keep_alive;
        limits.times.idle_timeout = fresh.times.idle_timeout;
        limits.times.max_session_expiry = fresh.times.max_session_expiry;
        limits.queue.max_inflight = fresh.queue.max_inflight;
        limits.queue.max_queued_messages = fresh.queue.max_queued_messages;
        limits.queue.max_queued_in_memory = fresh.queue.max_queued_in_memory;
        limits.queue.queue_full = fresh.queue.queue_full;
        // A queue has room for the largest packet that clients may send still.
        if fresh.queue.max_queued_bytes >= limits.packets.max_packet_size {
            limits.queue.max_queued_bytes = fresh.queue.max_queued_bytes;
        }
        let per_user = limits.kept.max_sessions_per_user;
        limits.kept.clone_from(&fresh.kept);
        limits.kept.max_sessions_per_user = per_user;
        limits.memory.clone_from(&fresh.memory);
    }

    /// Whether quotas mean the same here: the listeners are those that they number, and
    /// sessions, if they limit these, were counted from the start.
    fn may_take_quotas(&self, fresh: &Self, start: &Self) -> bool {
        let counts = |config: &Self| config.rules.quota.iter().any(|it| it.sessions > 0);
        let is_counted = counts(start) || start.limits.kept.max_sessions_per_user > 0;
        // As for queues without a quota.
        let largest = self.limits.packets.max_packet_size;
        let mut rooms = fresh.rules.quota.iter().map(|it| it.queue_bytes);
        let fits = rooms.all(|room| room.0 == 0 || room >= largest);
        fits && self.listener == fresh.listener && (is_counted || !counts(fresh))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parse(text: &str) -> Config {
        Config::parse(Path::new("f"), text).expect(text)
    }

    fn names(keys: &[String]) -> Vec<&str> {
        keys.iter().map(String::as_str).collect()
    }

    #[test]
    fn limits_are_taken_over_and_the_rest_is_named() {
        let start = Config::default();
        let fresh = parse(
            "shards = 3\n[limits]\nmax_inflight = 7\nmax_packet_size = \"2MiB\"\n\
             max_sessions = 9\nmax_sessions_per_user = 2\nmemory = \"20MiB\"\n\
             [[quota]]\nmessages = 5\n",
        );
        let next = start.succeeded_by(&fresh, &start);
        assert_eq!(
            names(&next.changed),
            [
                "limits.max_inflight",
                "limits.max_sessions",
                "limits.memory",
                "quota"
            ]
        );
        assert_eq!(
            names(&next.restart),
            [
                "limits.max_packet_size",
                "limits.max_sessions_per_user",
                "shards"
            ]
        );
        assert_eq!(next.config.limits.queue.max_inflight, 7);
        // Back to what it was.
        let back = next.config.succeeded_by(&start, &start);
        assert_eq!(back.changed, next.changed);
        assert_eq!((back.restart.len(), back.config == start), (0, true));
    }

    #[test]
    fn what_would_not_fit_needs_a_restart() {
        let start = Config::default();
        // A queue with less room than a packet of now.
        let fresh = parse("[limits]\nmax_packet_size = \"1KiB\"\nmax_queued_bytes = \"2KiB\"\n");
        let next = start.succeeded_by(&fresh, &start);
        assert_eq!(names(&next.changed), [""; 0]);
        assert!(next.restart.contains(&"limits.max_queued_bytes".to_owned()));
        let small = "[limits]\nmax_packet_size = \"1KiB\"\n[[quota]]\nqueue_bytes = \"2KiB\"\n";
        let next = start.succeeded_by(&parse(small), &start);
        assert_eq!(names(&next.changed), [""; 0]);
        assert!(next.restart.contains(&"quota".to_owned()));
        // Sessions that were not counted, and other listeners.
        let quota = "[[quota]]\nsessions = 1\n";
        let counted = parse("[[quota]]\nsessions = 2\n");
        assert_eq!(start.succeeded_by(&parse(quota), &start).restart, ["quota"]);
        let next = counted.succeeded_by(&parse(quota), &counted);
        assert_eq!(
            (names(&next.changed), next.restart.len()),
            (vec!["quota"], 0)
        );
        let other =
            parse("[[listener]]\ntransport = \"tcp\"\n[[quota]]\nlisteners = [0]\nmessages = 1\n");
        let next = start.succeeded_by(&other, &start);
        assert!(next.changed.is_empty() && next.restart.contains(&"quota".to_owned()));
    }
}
