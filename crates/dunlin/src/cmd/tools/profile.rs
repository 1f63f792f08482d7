//! Options of `pub`, `sub` and `rr` that are not on the command line: from a file, one
//! a line, and from the environment. What is nearer counts: the command line, the file
//! of -o, that of the user, the environment.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

/// Commands that have profiles.
const COMMANDS: [&str; 3] = ["pub", "sub", "rr"];

/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Variables of the environment, and the options that they stand for.
const VARIABLES: [(&str, &str); 6] = [
    ("DUNLIN_URL", "url"),
    ("DUNLIN_USER", "username"),
    ("DUNLIN_PASSWORD", "pw"),
    ("DUNLIN_CAFILE", "cafile"),
    ("DUNLIN_CERT", "cert"),
    ("DUNLIN_KEY", "key"),
];

/// Options that say the same in different ways: one that is nearer replaces them all.
const WHERE: [&str; 4] = ["url", "topic_url", "host", "port"];

/// An option of a profile, as the words of a command line.
struct Entry {
    id: String,
    words: Vec<OsString>,
}

/// What may be found around a command: in tests, nothing of this machine.
pub(super) struct Surroundings {
    /// Folder of the user's files.
    folder: Option<PathBuf>,
    variable: fn(&str) -> Option<OsString>,
}

impl Surroundings {
    /// Those of this process.
    pub(super) fn of_process() -> Self {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let home = || Some(PathBuf::from(variable("HOME")?).join(".config"));
        let config = variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
        Self {
            folder: config.map(|config| config.join("dunlin")),
            variable,
        }
    }
}

/// The command line with what profiles add to it; `None`: nothing.
///
/// # Errors
/// A file cannot be read, or has an option that the command has not: a sentence.
pub(super) fn extend(
    cli: &Command,
    words: &[OsString],
    given: &ArgMatches,
    around: &Surroundings,
) -> Result<Option<Vec<OsString>>, String> {
    let Some((name, given)) = given.subcommand() else {
        return Ok(None);
    };
    let at = words.iter().position(|word| word == name);
    let (Some(command), Some(at), true) = (cli.find_subcommand(name), at, COMMANDS.contains(&name))
    else {
        return Ok(None);
    };
    let entries = entries(command, given, around)?;
    if entries.is_empty() {
        return Ok(None);
    }
    let mut all: Vec<OsString> = words.get(..=at).unwrap_or_default().to_vec();
    all.extend(entries.into_iter().flat_map(|entry| entry.words));
    all.extend_from_slice(words.get(at + 1..).unwrap_or_default());
    Ok(Some(all))
}

/// What is added, the nearest first.
fn entries(
    command: &Command,
    given: &ArgMatches,
    around: &Surroundings,
) -> Result<Vec<Entry>, String> {
    let mut taken: Vec<String> = command
        .get_arguments()
        .map(|option| option.get_id().to_string())
        .filter(|id| given.value_source(id) == Some(ValueSource::CommandLine))
        .collect();
    let mut files: Vec<(PathBuf, bool)> = Vec::new();
    if let Some(path) = given.get_one::<PathBuf>("options") {
        files.push((path.clone(), true));
    }
    if let Some(folder) = &around.folder {
        // What all commands share may name options that this one has not.
        files.push((folder.join(command.get_name()), true));
        files.push((folder.join("client"), false));
    }
    let mut all = Vec::new();
    for (index, (path, strict)) in files.iter().enumerate() {
        let is_named = index == 0 && given.contains_id("options");
        if !is_named && !path.exists() {
            continue;
        }
        let found = read(path, command, *strict)?;
        add(found, &mut taken, &mut all);
    }
    for (variable, long) in VARIABLES {
        if let Some(value) = (around.variable)(variable)
            && let Some(option) = find(command, long)
        {
            let words = words(option, Some(&value));
            let id = option.get_id().to_string();
            add(vec![Entry { id, words }], &mut taken, &mut all);
        }
    }
    Ok(all)
}

/// Adds what nothing nearer has said. A file may repeat an option that may be repeated.
fn add(found: Vec<Entry>, taken: &mut Vec<String>, all: &mut Vec<Entry>) {
    let is_where = |id: &String| WHERE.contains(&id.as_str());
    let located = taken.iter().any(is_where);
    let is_taken = |entry: &Entry| taken.contains(&entry.id) || (located && is_where(&entry.id));
    let found: Vec<Entry> = found.into_iter().filter(|entry| !is_taken(entry)).collect();
    taken.extend(found.iter().map(|entry| entry.id.clone()));
    all.extend(found);
}

/// Reads a file: an option a line, its value after white space.
fn read(path: &Path, command: &Command, strict: bool) -> Result<Vec<Entry>, String> {
    let fail = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    if std::fs::metadata(path).map_err(fail)?.len() > FILE_BYTES_MAX {
        return Err(format!(
            "{} is longer than {FILE_BYTES_MAX} bytes",
            path.display()
        ));
    }
    let text = std::fs::read_to_string(path).map_err(fail)?;
    let mut entries = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: &str| Err(format!("{}:{}: {why}", path.display(), index + 1));
        let (name, value) = line.split_once([' ', '\t', '=']).unwrap_or((line, ""));
        let value = value.trim();
        let Some(option) = find(command, name.trim_start_matches('-')) else {
            if strict {
                let command = command.get_name();
                return wrong(&format!("`dunlin {command}` has no option {name}"));
            }
            continue;
        };
        let takes_value = !matches!(option.get_action(), ArgAction::SetTrue | ArgAction::Count);
        let may_be_empty = option
            .get_num_args()
            .is_some_and(|range| range.min_values() == 0);
        match (takes_value, value.is_empty()) {
            (true, true) if !may_be_empty => return wrong(&format!("{name} needs a value")),
            (false, false) => return wrong(&format!("{name} has no value")),
            _ => {}
        }
        // An option of several words, such as -D.
        let several = option
            .get_num_args()
            .is_some_and(|range| range.max_values() > 1);
        let words = match several {
            true => {
                let mut words = words(option, None);
                words.extend(value.split_whitespace().map(OsString::from));
                words
            }
            false => words(option, Some(value.as_ref()).filter(|_| !value.is_empty())),
        };
        let id = option.get_id().to_string();
        if !["options", "help"].contains(&id.as_str()) {
            entries.push(Entry { id, words });
        }
    }
    Ok(entries)
}

/// An option as a command line has it. Its value is in the same word, since it may begin
/// with a dash.
fn words(option: &Arg, value: Option<&OsStr>) -> Vec<OsString> {
    let (mut word, between) = match (option.get_long(), option.get_short()) {
        (Some(long), _) => (OsString::from(format!("--{long}")), "="),
        (None, Some(short)) => (OsString::from(format!("-{short}")), ""),
        (None, None) => (OsString::new(), ""),
    };
    if let Some(value) = value {
        word.push(between);
        word.push(value);
    }
    vec![word]
}

/// The option of this name, which is a long or a short one.
fn find<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let mut chars = name.chars();
    let short = chars.next().filter(|_| chars.next().is_none());
    command.get_arguments().find(|option| {
        let mut aliases = option.get_all_aliases().unwrap_or_default().into_iter();
        option.get_long() == Some(name)
            || (short.is_some() && option.get_short() == short)
            || aliases.any(|alias| alias == name)
    })
}

/// What replaces an option of mosquitto's clients that there is not.
pub(super) fn replacement(option: &str) -> Option<&'static str> {
    let option = option.split('=').next()?;
    Some(match option {
        "--proxy" => "there are no SOCKS proxies: dunlin tunnel goes through where UDP does",
        "--psk" | "--psk-identity" => "there is no TLS-PSK: use --cert and --key, or --scram",
        "--ciphers" => "use --tls-ciphers",
        "--tls-alpn" => "the protocol is mqtt always",
        "--tls-engine" | "--tls-engine-kpass-sha1" | "--keyform" => "keys are files in PEM",
        "--tls-keylog" => "set the environment variable SSLKEYLOGFILE",
        "--ws" => "use --url ws:// or wss://",
        "-S" => "there is no look-up of SRV records: name the host",
        "--latency" => "use --timing",
        "-w" | "--watch" => "print with -v, or use a terminal's own means",
        "--message-rate" => "use dunlin bench",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cmd::Cli;

    fn none(_: &str) -> Option<OsString> {
        None
    }

    fn environment(name: &str) -> Option<OsString> {
        let value = match name {
            "DUNLIN_URL" => "mqtt://from.environment",
            "DUNLIN_USER" => "env",
            _ => return None,
        };
        Some(value.into())
    }

    fn extended(line: &str, around: &Surroundings) -> Result<String, String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let cli = Cli::command();
        let given = cli.clone().try_get_matches_from(&words).expect(line);
        let all = extend(&cli, &words, &given, around)?.unwrap_or(words);
        Cli::command().try_get_matches_from(&all).expect("parsed");
        let texts = all.iter().map(|word| word.to_string_lossy());
        Ok(texts.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn what_is_nearer_counts() {
        let dir = tempfile::tempdir().expect("a directory");
        let folder = dir.path().join("dunlin");
        std::fs::create_dir(&folder).expect("made");
        let write = |name: &str, text: &str| {
            std::fs::write(folder.join(name), text).expect("written");
        };
        write(
            "client",
            "# all\n-u file\n--cafile=ca.pem\n-q 1\n--retained-only\n",
        );
        write("sub", "-t a/#\n-t b\n-D connect user-property k v\n-v\n");
        let around = Surroundings {
            folder: Some(folder.clone()),
            variable: environment,
        };
        let got = extended("dunlin pub -t x -m y", &around);
        let all = "dunlin pub --username=file --cafile=ca.pem --qos=1 --url=mqtt://from.environment \
                   -t x -m y";
        assert_eq!(got.as_deref(), Ok(all));
        let got = extended("dunlin pub -t x -m y -h host -u me -q 2", &around);
        let all = "dunlin pub --cafile=ca.pem -t x -m y -h host -u me -q 2";
        assert_eq!(got.as_deref(), Ok(all));
        let got = extended("dunlin sub -h host", &around).expect("extended");
        let all = "dunlin sub --topic=a/# --topic=b --property connect user-property k v --verbose \
                   --username=file";
        assert!(got.starts_with(all), "{got}");
        assert!(got.contains("--retained-only"), "{got}");
        let got = extended("dunlin sub -h host -t c", &around).expect("extended");
        assert!(!got.contains("a/#"), "{got}");
        // Others have none.
        let got = extended("dunlin cert show x", &around);
        assert_eq!(got.as_deref(), Ok("dunlin cert show x"));
    }

    #[test]
    fn a_file_that_is_named_must_be_right() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("options");
        let around = Surroundings {
            folder: None,
            variable: none,
        };
        let line = format!("dunlin pub -t x -m y -o {}", path.display());
        assert!(
            extended(&line, &around)
                .expect_err("missing")
                .contains("cannot read")
        );
        for (text, words) in [
            (
                "\n--nonsense 1\n",
                ":2: `dunlin pub` has no option --nonsense",
            ),
            ("-q\n", ":1: -q needs a value"),
            ("-r yes\n", ":1: -r has no value"),
        ] {
            std::fs::write(&path, text).expect("written");
            let error = extended(&line, &around).expect_err(text);
            assert!(error.contains(words), "{error}");
        }
        std::fs::write(&path, "-h far.example\n").expect("written");
        let got = extended(&line, &around).expect("read");
        assert!(
            got.starts_with("dunlin pub --host=far.example -t x"),
            "{got}"
        );
        // A dash begins a value here, and none has to begin a name.
        std::fs::write(&path, "-P -secret\nusername -me\n").expect("written");
        let got = extended(&line, &around).expect("read");
        assert!(got.contains("--pw=-secret --username=-me"), "{got}");
    }

    #[test]
    fn options_of_mosquitto_have_a_replacement_or_are_there() {
        let cli = Cli::command();
        let lists = [
            (
                "pub",
                "-A -c -d -D -f -h -i -I -k -l -L -m -M -n -p -P -q -r -s -t -u -V -x --unix \
              --nodelay --quiet --repeat --repeat-delay --will-payload --will-qos --will-retain \
              --will-topic --proxy --cafile --capath --cert --key --ciphers --tls-version \
              --tls-alpn --tls-engine --keyform --tls-engine-kpass-sha1 --tls-use-os-certs \
              --insecure --psk --psk-identity",
            ),
            (
                "sub",
                "-A -c -C -d -D -E -F -h -i -I -k -L -N -p -P -q -R -t -T -u -U -v -V -W -x \
              --pretty --quiet --random-filter --remove-retained --retained-only \
              --retain-as-published --retain-handling --unix --nodelay",
            ),
            (
                "rr",
                "-A -c -d -D -e -f -F -h -i -I -k -L -m -n -N -p -P -q -R -s -t -u -v -V -W -x \
              --nodelay --pretty --quiet --unix",
            ),
        ];
        for (name, options) in lists {
            let command = cli.find_subcommand(name).expect(name);
            for option in options.split_whitespace() {
                let is_there = find(command, option.trim_start_matches('-')).is_some();
                assert!(is_there != replacement(option).is_some(), "{name} {option}");
            }
        }
    }
}
