//! What the arguments ask for. Knows no system: text comes in, a task goes out.
//! Options are those of `dunlin pub` and `dunlin sub`, as far as there are any.

use core::ffi::CStr;
use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;

use dunlin_mqtt_mini::Qos;

pub(crate) const USAGE: &str = "\
usage: dunlin-tiny [OPTIONS] HOST:PORT KEY TOPIC PAYLOAD [TICKET-FILE]
       dunlin-tiny [OPTIONS] --subscribe FILTER HOST:PORT KEY [TICKET-FILE]
";

pub(crate) const HELP: &str = "
Publishes a message with MQTT 5 over QUIC, or prints messages, a line each.

  KEY          the broker's P-256 key: a PEM file of its certificate or public
               key, or the 65 bytes of the point in hexadecimal
  PAYLOAD      the message; - takes it from standard input
  TICKET-FILE  file for a ticket, with which the next run says what it has to
               say in its first datagram

Options, in front of the rest:
      --ca                 KEY is that of an authority, which has signed the
                           broker's certificate for HOST
      --subscribe FILTER   print the messages of a topic filter
  -C, --count N            end after N messages
  -v, --verbose            print topics as well
  -q, --qos N              quality of service, 0 to 2; 1 if not given
  -r, --retain             the broker keeps the message for later subscribers
  -i, --id ID              client identifier; the broker's choice if not given
  -u, --username USER      user name
  -P, --pw PASSWORD        password, which other users of this machine can see
      --pw-file FILE       file whose first line is the password
      --cert FILE          own certificate in PEM, for a broker that asks for
                           one; others of its chain may follow
      --key FILE           its P-256 key in PEM
  -k, --keepalive SECONDS  longest silence; 60 if not given, 0 for no limit
  -W, --timeout SECONDS    end after this time, with status 27
  -h, --help               show this help
  -V, --version            show the version

Status: 0 done, 1 failed, 2 wrong usage, 27 timed out.
";

/// Most arguments that are no options.
const PLACES: usize = 5;

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Asked<'a> {
    Help,
    Version,
    Task(Task<'a>),
}

/// A connection, and what it is for.
#[derive(Debug)]
pub(crate) struct Task<'a> {
    /// `HOST:PORT`.
    pub(crate) server: &'a str,
    /// A point, or the name of a file.
    pub(crate) key: &'a CStr,
    /// Whether the key is an authority's.
    pub(crate) authority: bool,
    pub(crate) work: Work<'a>,
    pub(crate) qos: Qos,
    pub(crate) id: &'a str,
    pub(crate) user: &'a str,
    pub(crate) password: &'a CStr,
    pub(crate) password_file: Option<&'a CStr>,
    /// Files with the own certificate and its key.
    pub(crate) identity: Option<(&'a CStr, &'a CStr)>,
    /// Seconds; zero is never.
    pub(crate) keep_alive: u16,
    pub(crate) timeout_ms: Option<u32>,
    pub(crate) ticket: Option<&'a CStr>,
}

#[derive(Debug)]
pub(crate) enum Work<'a> {
    Publish {
        topic: &'a str,
        /// `-` for standard input.
        payload: &'a CStr,
        retain: bool,
    },
    Subscribe {
        filter: &'a str,
        verbose: bool,
        /// Messages to end after.
        count: Option<NonZeroU32>,
    },
}

/// What is wrong with the arguments, and with which one.
#[derive(Debug)]
pub(crate) struct Wrong<'a>(&'static str, &'a CStr);

impl fmt::Display for Wrong<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)?;
        match self.1.to_str() {
            Ok("") => Ok(()),
            Ok(argument) => write!(f, ": {argument}"),
            Err(_) => f.write_str(": not UTF-8"),
        }
    }
}

/// Options as they were given.
struct Options<'a> {
    authority: bool,
    filter: Option<&'a str>,
    count: Option<NonZeroU32>,
    verbose: bool,
    retain: bool,
    qos: Qos,
    id: &'a str,
    user: &'a str,
    password: &'a CStr,
    password_file: Option<&'a CStr>,
    certificate: Option<&'a CStr>,
    certificate_key: Option<&'a CStr>,
    keep_alive: u16,
    timeout_ms: Option<u32>,
}

impl<'a> Options<'a> {
    const DEFAULT: Self = Self {
        authority: false,
        filter: None,
        count: None,
        verbose: false,
        retain: false,
        qos: Qos::AtLeastOnce,
        id: "",
        user: "",
        password: c"",
        password_file: None,
        certificate: None,
        certificate_key: None,
        keep_alive: 60,
        timeout_ms: None,
    };

    /// Takes an option, and its value if it has one.
    fn take(
        &mut self,
        option: &'a CStr,
        more: &mut impl Iterator<Item = &'a CStr>,
    ) -> Result<(), Wrong<'a>> {
        let (name, given) = split(option);
        let flag = match name {
            b"--ca" => &mut self.authority,
            b"-v" | b"--verbose" => &mut self.verbose,
            b"-r" | b"--retain" => &mut self.retain,
            _ => {
                let value = || given.or_else(|| more.next());
                return self.set(name, option, value);
            }
        };
        *flag = true;
        match given {
            Some(_) => Err(Wrong("an option without a value", option)),
            None => Ok(()),
        }
    }

    fn set(
        &mut self,
        name: &[u8],
        option: &'a CStr,
        value: impl FnOnce() -> Option<&'a CStr>,
    ) -> Result<(), Wrong<'a>> {
        let value = || value().ok_or(Wrong("no value behind", option));
        match name {
            b"--subscribe" => self.filter = Some(text(value()?)?),
            b"-C" | b"--count" => self.count = Some(number(value()?)?),
            b"-q" | b"--qos" => self.qos = qos(value()?)?,
            b"-i" | b"--id" => self.id = text(value()?)?,
            b"-u" | b"--username" => self.user = text(value()?)?,
            b"-P" | b"--pw" => self.password = value()?,
            b"--pw-file" => self.password_file = Some(value()?),
            b"--cert" => self.certificate = Some(value()?),
            b"--key" => self.certificate_key = Some(value()?),
            b"-k" | b"--keepalive" => self.keep_alive = number(value()?)?,
            b"-W" | b"--timeout" => {
                let seconds: u32 = number(value()?)?;
                self.timeout_ms = Some(seconds.saturating_mul(1000));
            }
            _ => return Err(Wrong("unknown option", option)),
        }
        Ok(())
    }

    /// What the options and the rest of the arguments mean together.
    fn task(self, places: &[&'a CStr]) -> Result<Task<'a>, Wrong<'a>> {
        let missing = Wrong("an argument is missing", c"");
        let [server, key, rest @ ..] = places else {
            return Err(missing);
        };
        let (work, ticket) = match (self.filter, rest) {
            (Some(filter), ticket) => {
                let (verbose, count) = (self.verbose, self.count);
                let work = Work::Subscribe {
                    filter,
                    verbose,
                    count,
                };
                (work, ticket)
            }
            (None, [topic, payload, ticket @ ..]) => {
                let (topic, retain) = (text(topic)?, self.retain);
                let work = Work::Publish {
                    topic,
                    payload,
                    retain,
                };
                (work, ticket)
            }
            (None, _) => return Err(missing),
        };
        let subscribes = self.filter.is_some();
        if !subscribes && (self.verbose || self.count.is_some()) {
            return Err(Wrong("--count and --verbose are for --subscribe", c""));
        }
        if subscribes && self.retain {
            return Err(Wrong("--retain is for a message to publish", c""));
        }
        let identity = match (self.certificate, self.certificate_key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(Wrong("--cert and --key go together", c"")),
        };
        if let [_, more, ..] = ticket {
            return Err(Wrong("one argument too many", more));
        }
        Ok(Task {
            server: text(server)?,
            key,
            authority: self.authority,
            work,
            qos: self.qos,
            id: self.id,
            user: self.user,
            password: self.password,
            password_file: self.password_file,
            identity,
            keep_alive: self.keep_alive,
            timeout_ms: self.timeout_ms,
            ticket: ticket.first().copied(),
        })
    }
}

/// Text in UTF-8, which all that MQTT has a name for is.
fn text(argument: &CStr) -> Result<&str, Wrong<'_>> {
    argument.to_str().map_err(|_| Wrong("wrong text", argument))
}

/// A number in decimal, without a sign.
fn number<T: FromStr>(argument: &CStr) -> Result<T, Wrong<'_>> {
    let digits = text(argument)?;
    let number = digits.parse().ok().filter(|_| !digits.starts_with('+'));
    number.ok_or(Wrong("wrong number", argument))
}

fn qos(argument: &CStr) -> Result<Qos, Wrong<'_>> {
    match argument.to_bytes() {
        b"0" => Ok(Qos::AtMostOnce),
        b"1" => Ok(Qos::AtLeastOnce),
        b"2" => Ok(Qos::ExactlyOnce),
        _ => Err(Wrong("wrong quality of service", argument)),
    }
}

/// The name of an option, and the value behind a `=`.
fn split(argument: &CStr) -> (&[u8], Option<&CStr>) {
    let bytes = argument.to_bytes_with_nul();
    let long = bytes.starts_with(b"--");
    let at = bytes.iter().position(|&byte| byte == b'=' && long);
    match at.and_then(|at| bytes.split_at_checked(at)) {
        Some((name, value)) => {
            let value = value.get(1..).unwrap_or_default();
            (name, CStr::from_bytes_with_nul(value).ok())
        }
        None => (argument.to_bytes(), None),
    }
}

/// Reads the arguments, without the program's name in front. The first one that
/// is no option, or `--`, ends the options: a payload may begin with a dash.
pub(crate) fn read<'a>(
    mut arguments: impl Iterator<Item = &'a CStr>,
) -> Result<Asked<'a>, Wrong<'a>> {
    let mut options = Options::DEFAULT;
    let mut places = [c""; PLACES];
    let mut count = 0;
    let mut ended = false;
    while let Some(argument) = arguments.next() {
        ended |= !argument.to_bytes().starts_with(b"-");
        match argument.to_bytes() {
            _ if ended => {
                let place = places.get_mut(count);
                *place.ok_or(Wrong("one argument too many", argument))? = argument;
                count += 1;
            }
            b"--" => ended = true,
            b"-h" | b"--help" => return Ok(Asked::Help),
            b"-V" | b"--version" => return Ok(Asked::Version),
            _ => options.take(argument, &mut arguments)?,
        }
    }
    let places = places.get(..count).unwrap_or_default();
    options.task(places).map(Asked::Task)
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::{String, ToString};

    use super::*;

    /// What a line asks for; blanks part the arguments.
    fn ask(line: &str) -> Result<String, String> {
        let line = line.replace(' ', "\0") + "\0";
        let arguments = line.split_inclusive('\0');
        let arguments = arguments.map(|word| CStr::from_bytes_with_nul(word.as_bytes()).unwrap());
        match read(arguments) {
            Ok(Asked::Task(task)) => Ok(format!("{task:?}")),
            Ok(other) => Ok(format!("{other:?}")),
            Err(wrong) => Err(wrong.to_string()),
        }
    }

    #[test]
    fn options_come_before_the_rest() {
        let plain = ask("h:1 04 t 21.5").unwrap();
        for part in [
            "server: \"h:1\", key: \"04\", authority: false",
            "Publish { topic: \"t\", payload: \"21.5\", retain: false }",
            "qos: AtLeastOnce, id: \"\", user: \"\", password: \"\", password_file: None",
            "identity: None, keep_alive: 60, timeout_ms: None, ticket: None",
        ] {
            assert!(plain.contains(part), "{part} is not in {plain}");
        }
        assert_eq!(ask("-- h:1 04 t 21.5").unwrap(), plain);
        // A reading below zero is no option, nor is anything behind it.
        let cold = ask("h:1 04 t -5 --help").unwrap();
        assert!(cold.contains("payload: \"-5\""), "{cold}");
        assert!(cold.contains("ticket: Some(\"--help\")"), "{cold}");

        let short = "-q 2 -r -i me -u you -P pass -k 9 -W 3 h:1 04 t -";
        let long = "--qos=2 --retain --id=me --username=you --pw pass --keepalive=9 \
                    --timeout 3 h:1 04 t -";
        assert_eq!(ask(short), ask(long));
        let all = ask(short).unwrap();
        for part in [
            "qos: ExactlyOnce, id: \"me\", user: \"you\", password: \"pass\"",
            "keep_alive: 9, timeout_ms: Some(3000)",
            "payload: \"-\", retain: true",
        ] {
            assert!(all.contains(part), "{part} is not in {all}");
        }

        let listen =
            ask("--ca --subscribe=a/# -v -C 3 --pw-file f --cert c --key=k h:1 ca.pem ticket")
                .unwrap();
        for part in [
            "authority: true",
            "Subscribe { filter: \"a/#\", verbose: true, count: Some(3) }",
            "password_file: Some(\"f\"), identity: Some((\"c\", \"k\"))",
            "ticket: Some(\"ticket\")",
        ] {
            assert!(listen.contains(part), "{part} is not in {listen}");
        }
        for (line, asked) in [
            ("--help", "Help"),
            ("-q 0 -h", "Help"),
            ("-V h:1", "Version"),
        ] {
            assert_eq!(ask(line).unwrap(), asked, "{line}");
        }
    }

    #[test]
    fn what_is_wrong_is_reported() {
        let missing = "an argument is missing";
        for (line, error) in [
            ("h:1 04", missing),
            ("h:1 04 t", missing),
            ("--subscribe f h:1", missing),
            ("h:1 04 t 1 f more", "one argument too many: more"),
            ("--subscribe f h:1 04 t more", "one argument too many: more"),
            ("--what h:1 04 t 1", "unknown option: --what"),
            ("-x", "unknown option: -x"),
            ("-q", "no value behind: -q"),
            ("--qos", "no value behind: --qos"),
            ("--qos=3 h:1 04 t 1", "wrong quality of service: 3"),
            (
                "--retain=1 h:1 04 t 1",
                "an option without a value: --retain=1",
            ),
            ("-k 65536 h:1 04 t 1", "wrong number: 65536"),
            ("-k +1 h:1 04 t 1", "wrong number: +1"),
            ("-W -1 h:1 04 t 1", "wrong number: -1"),
            ("--subscribe f -C 0 h:1 04", "wrong number: 0"),
            ("--cert c h:1 04 t 1", "--cert and --key go together"),
            ("--key k h:1 04 t 1", "--cert and --key go together"),
            ("-v h:1 04 t 1", "--count and --verbose are for --subscribe"),
            (
                "-r --subscribe f h:1 04",
                "--retain is for a message to publish",
            ),
        ] {
            assert_eq!(ask(line).unwrap_err(), error, "{line}");
        }
        let wrong = [c"-i", c"\xff"];
        assert_eq!(
            read(wrong.into_iter()).unwrap_err().to_string(),
            "wrong text: not UTF-8"
        );
    }

    #[test]
    fn every_option_is_in_the_help() {
        let source = include_str!("arguments.rs")
            .split("mod tests")
            .next()
            .unwrap();
        let mut options = 0;
        for name in source.split("b\"-").skip(1) {
            let name = name.split('"').next().unwrap();
            let named = [" ", ","].map(|end| HELP.contains(&format!("-{name}{end}")));
            if !matches!(name, "" | "-") {
                assert!(named.contains(&true), "-{name}");
                options += 1;
            }
        }
        assert!(options > 20, "{options}");
        assert!(
            HELP.lines()
                .chain(USAGE.lines())
                .all(|line| line.len() <= 80)
        );
    }
}
