//! Options of `pub`, `sub`, `rr` and `bench` that would have no effect beside the others: they
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
        options: &["race_memory", "race_probe_after"],
    },
    Rule {
        needs: "MQTT 5.0",
        holds: |mode, _| mode.v5,
        options: &[
            "properties",
            "session_expiry_interval",
            "scram",
            "no_correlation",
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

/// Of `bench`: how clients of the library spread messages.
const LIBRARY: &[Rule] = &[Rule {
    needs: "--library",
    holds: |_, given| given("library"),
    options: &[
        "streams",
        "stream_kind",
        "topic_streams",
        "priority",
        "max_age",
        "datagrams",
        "isolate",
        "repeat_packets",
        "delivery_streams",
        "race_memory",
        "race_probe_after",
    ],
}];

/// Looks for an option of `pub`, `sub` or `rr` that has no effect; says so in a sentence.
/// `given` is the command line, `all` has what profiles add to it: they are for several
/// commands, and may say what this one does not need.
pub(super) fn check(
    command: &Command,
    given: &ArgMatches,
    all: &ArgMatches,
    mode: Mode,
) -> Result<(), String> {
    apply(RULES, command, (given, all), mode)
}

/// Options of `bench` beside `--scenario`; the others stand in its file.
const WITH_SCENARIO: [&str; 13] = [
    "scenario",
    "scale",
    "phase_seconds",
    "url",
    "user",
    "password",
    "ca",
    "pin",
    "insecure",
    "cert",
    "json",
    "broker_pid",
    "quiet",
];

/// The same for `bench`.
pub(super) fn check_bench(command: &Command, matches: &ArgMatches) -> Result<(), String> {
    let all = Mode {
        quic: true,
        tls: true,
        race: true,
        v5: true,
    };
    let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    if is_given("scenario") {
        let options = command
            .get_arguments()
            .map(|option| option.get_id().as_str());
        let mut others = options.filter(|id| *id != "key" && !WITH_SCENARIO.contains(id));
        if let Some(id) = others.find(|id| is_given(id)) {
            let name = name(command, id);
            return Err(format!(
                "{name} has no effect beside --scenario: it stands in the file"
            ));
        }
    }
    apply(LIBRARY, command, (matches, matches), all)
}

fn apply(
    rules: &[Rule],
    command: &Command,
    (given, all): (&ArgMatches, &ArgMatches),
    mode: Mode,
) -> Result<(), String> {
    let is_in = |matches: &ArgMatches, id: &str| {
        // Ids that only the other command has are an error to ask for.
        matches.try_contains_id(id).is_ok_and(|known| known)
            && matches.value_source(id) == Some(ValueSource::CommandLine)
    };
    let (given, all) = (|id: &str| is_in(given, id), |id: &str| is_in(all, id));
    for rule in rules.iter().filter(|rule| !(rule.holds)(&mode, &all)) {
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

    use super::*;
    use crate::cmd::Cli;

    #[test]
    fn every_name_is_one_of_an_option() {
        let cli = Cli::command();
        let commands =
            ["pub", "sub", "rr"].map(|name| cli.find_subcommand(name).expect("a command"));
        let has = |id: &str| {
            let mut options = commands.iter().flat_map(|command| command.get_arguments());
            options.any(|option| option.get_id() == id)
        };
        for id in RULES.iter().flat_map(|rule| rule.options) {
            assert!(has(id), "{id}");
        }
        let bench = cli.find_subcommand("bench").expect("a command");
        for id in LIBRARY.iter().flat_map(|rule| rule.options) {
            assert!(bench.get_arguments().any(|option| option.get_id() == id));
        }
    }
}
