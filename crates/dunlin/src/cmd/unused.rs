//! Options of `pub` and `sub` that would have no effect beside the others: they
//! are refused, because the user counts on them.

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

/// What decides about the options.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mode {
    /// QUIC is spoken, or tried.
    pub(super) quic: bool,
    /// The connection is encrypted.
    pub(super) tls: bool,
    /// QUIC and TLS race.
    pub(super) race: bool,
    /// MQTT 5.0.
    pub(super) v5: bool,
}

/// Whether an option is on the command line.
type Given<'a> = &'a dyn Fn(&str) -> bool;

/// A condition, in words, and the options that have an effect only under it.
struct Rule {
    needs: &'static str,
    holds: fn(&Mode, Given<'_>) -> bool,
    options: &'static [&'static str],
}

/// By the names of the fields.
const RULES: &[Rule] = &[
    Rule {
        needs: "an encrypted connection (--url quic, mqtts, wss or auto)",
        holds: |mode, _| mode.tls,
        options: &[
            "cafile",
            "capath",
            "cert",
            "key",
            "pin",
            "insecure",
            "tls_use_os_certs",
            "tls_version",
            "tls_max",
            "ciphers",
            "groups",
        ],
    },
    Rule {
        needs: "QUIC (--url quic or auto)",
        holds: |mode, _| mode.quic,
        options: &[
            "tickets",
            "qlog",
            "congestion",
            "initial_rtt",
            "ack_delay",
            "initial_window",
            "no_mtu_discovery",
            "no_ecn",
            "streams",
            "datagrams",
            "isolate",
            "repeat_packets",
            "delivery_streams",
        ],
    },
    Rule {
        needs: "--streams",
        holds: |_, given| given("streams"),
        options: &["stream_kind", "topic_streams"],
    },
    Rule {
        needs: "--url auto",
        holds: |mode, _| mode.race,
        options: &["race_memory"],
    },
    Rule {
        needs: "MQTT 5.0",
        holds: |mode, _| mode.v5,
        options: &[
            "properties",
            "session_expiry_interval",
            "scram",
            "no_local",
            "retain_as_published",
            "retain_handling",
        ],
    },
    Rule {
        needs: "--will-topic",
        holds: |_, given| given("will_topic"),
        options: &["will_qos"],
    },
    Rule {
        needs: "no URL, which says where to connect",
        holds: |_, given| !given("url") && !given("topic_url"),
        options: &["host", "port"],
    },
    Rule {
        needs: "one message: with -l each line is published once",
        holds: |_, given| !given("stdin_line"),
        options: &["repeat", "repeat_delay"],
    },
    Rule {
        needs: "--repeat",
        holds: |_, given| given("repeat"),
        options: &["repeat_delay"],
    },
    Rule {
        needs: "-F",
        holds: |_, given| given("format"),
        options: &["pretty"],
    },
    Rule {
        needs: "no -F, which says what is printed",
        holds: |_, given| !given("format"),
        options: &["verbose"],
    },
    Rule {
        needs: "messages: with -E none are awaited",
        holds: |_, given| !given("exit_after_subscribe"),
        options: &["count", "format", "verbose", "random_filter"],
    },
];

/// Looks for an option that has no effect; says so in a sentence.
pub(super) fn check(command: &Command, matches: &ArgMatches, mode: Mode) -> Result<(), String> {
    let given = |id: &str| {
        // Ids that only the other command has are an error to ask for.
        matches.try_contains_id(id).is_ok_and(|known| known)
            && matches.value_source(id) == Some(ValueSource::CommandLine)
    };
    for rule in RULES.iter().filter(|rule| !(rule.holds)(&mode, &given)) {
        if let Some(id) = rule.options.iter().find(|id| given(id)) {
            let name = name(command, id);
            return Err(format!(
                "{name} has no effect here: it needs {}",
                rule.needs
            ));
        }
    }
    Ok(())
}

fn name(command: &Command, id: &str) -> String {
    let option = command.get_arguments().find(|option| option.get_id() == id);
    match option.map(|option| (option.get_long(), option.get_short())) {
        Some((Some(long), _)) => format!("--{long}"),
        Some((None, Some(short))) => format!("-{short}"),
        _ => id.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::Cli;
    use super::*;

    #[test]
    fn every_name_is_one_of_an_option() {
        let cli = Cli::command();
        let commands = ["pub", "sub"].map(|name| cli.find_subcommand(name).expect("a command"));
        let has = |id: &str| {
            let mut options = commands.iter().flat_map(|command| command.get_arguments());
            options.any(|option| option.get_id() == id)
        };
        for id in RULES.iter().flat_map(|rule| rule.options) {
            assert!(has(id), "{id}");
        }
    }
}
