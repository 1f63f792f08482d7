//! Bridges of mosquitto as bridges of Dunlin.

use core::fmt::Write as _;
use std::path::Path;

use super::lines::Line;
use super::{Import, Remark, quoted};
use crate::config::Config;

/// Port when none is given, encrypted or not.
const PORT: u16 = 1883;

/// A bridge as mosquitto's file says it.
#[derive(Debug)]
pub(super) struct Bridge {
    begun: Line,
    host: Option<(String, u16)>,
    encrypted: bool,
    /// It would connect without its key.
    psk: bool,
    password: bool,
    version: &'static str,
    /// Keys and values of the bridge, of its TLS and of its connection.
    keys: Vec<(&'static str, String)>,
    topics: Vec<Topic>,
}

/// A line `topic`.
#[derive(Debug)]
struct Topic {
    pattern: String,
    direction: &'static str,
    qos: u8,
    local: String,
    remote: String,
}

/// Options of bridges, and why they stay behind; empty: they are carried over.
const OPTIONS: &[(&str, &str)] = &[
    ("address", ""),
    ("addresses", ""),
    ("topic", ""),
    ("cleansession", ""),
    ("clientid", ""),
    ("remote_clientid", ""),
    ("username", ""),
    ("remote_username", ""),
    ("password", ""),
    ("remote_password", ""),
    ("keepalive_interval", ""),
    ("restart_timeout", ""),
    ("start_type", ""),
    ("try_private", ""),
    ("notifications", ""),
    ("notification_topic", ""),
    ("bridge_protocol_version", ""),
    ("bridge_cafile", ""),
    ("bridge_certfile", ""),
    ("bridge_keyfile", ""),
    ("bridge_insecure", ""),
    ("bridge_capath", ""),
    ("bridge_identity", ""),
    ("bridge_psk", ""),
    ("bridge_tls_version", ""),
    ("bridge_alpn", "ALPN is `mqtt`"),
    (
        "bridge_attempt_unsubscribe",
        "what is subscribed to no more is ended",
    ),
    ("bridge_bind_address", "the system chooses the address"),
    ("bridge_max_packet_size", "see limits.max_packet_size"),
    ("bridge_max_topic_alias", "see limits.topic_alias_maximum"),
    ("bridge_outgoing_retain", "messages keep their retain flag"),
    ("bridge_receive_maximum", "see max_in_flight of the bridge"),
    ("bridge_reload_type", "bridges are read at the start"),
    (
        "bridge_require_ocsp",
        "certificates are verified without OCSP",
    ),
    (
        "bridge_session_expiry_interval",
        "see session_expiry of the bridge",
    ),
    (
        "bridge_tcp_keepalive",
        "see connection.keep_alive of the bridge",
    ),
    (
        "bridge_tcp_user_timeout",
        "see connection.keep_alive of the bridge",
    ),
    ("idle_timeout", "bridges stay connected"),
    ("local_cleansession", "what waits here is kept"),
    (
        "local_clientid",
        "the broker gives bridges their names here",
    ),
    ("local_password", "bridges need no password here"),
    (
        "local_username",
        "the topics of a bridge are its rights here",
    ),
    (
        "notifications_local_only",
        "its state is below $SYS here; see notification_topic",
    ),
    ("round_robin", "a bridge has one other broker"),
    ("threshold", "bridges stay connected"),
];

/// Whether an option after `connection` is one of the bridge.
pub(super) fn has(name: &str) -> bool {
    name.starts_with("bridge_") || OPTIONS.iter().any(|(option, _)| *option == name)
}

impl Bridge {
    pub(super) fn begin(line: &Line) -> Self {
        Self {
            begun: line.clone(),
            host: None,
            encrypted: false,
            psk: false,
            password: false,
            version: "3.1.1",
            keys: Vec::new(),
            topics: Vec::new(),
        }
    }

    /// Where it begins.
    pub(super) const fn line(&self) -> &Line {
        &self.begun
    }

    fn key(&mut self, key: &'static str, value: String) {
        self.keys.retain(|(known, _)| *known != key);
        self.keys.push((key, value));
    }

    pub(super) fn set(&mut self, line: &Line, import: &mut Import) {
        let (name, value) = (line.name.as_str(), line.value.as_str());
        let known = OPTIONS.iter().find(|(option, _)| *option == name);
        match known {
            Some((_, "")) => {}
            Some((_, why)) => return import.leave(line, why),
            None => return import.leave(line, "there is no such option in mosquitto 2"),
        }
        let text = || quoted(value);
        let seconds = |text: &str| text.parse::<u64>().map(|it| quoted(&format!("{it}s")));
        match name {
            "address" | "addresses" => self.address(line, import),
            "topic" => match topic(value) {
                Some(topic) => self.topics.push(topic),
                None => import.leave(line, "it is no topic of a bridge"),
            },
            "cleansession" => self.key("clean_start", (value == "true").to_string()),
            "clientid" | "remote_clientid" => self.key("client_id", text()),
            "username" | "remote_username" => self.key("user", text()),
            "password" | "remote_password" => self.password = true,
            "try_private" => self.key("connection.bridge_flag", (value == "true").to_string()),
            "notification_topic" => self.key("status_topic", text()),
            "bridge_cafile" => self.tls("tls.ca", text()),
            "bridge_certfile" => self.tls("tls.cert", text()),
            "bridge_keyfile" => self.tls("tls.key", text()),
            "bridge_insecure" => self.key("tls.insecure", (value == "true").to_string()),
            "bridge_identity" | "bridge_psk" => self.psk = true,
            "bridge_tls_version" => self.encrypted = true,
            "bridge_capath" => {
                self.encrypted = true;
                import.leave(
                    line,
                    "tls.ca is one file; until then the system's are trusted",
                );
            }
            "bridge_protocol_version" => {
                self.version = if value == "mqttv50" { "5.0" } else { "3.1.1" };
            }
            "keepalive_interval" => match seconds(value) {
                Ok(time) => self.key("connection.keep_alive", time),
                Err(_) => import.leave(line, "the value is no number"),
            },
            "restart_timeout" => {
                let mut times = value.split_whitespace();
                let (first, last) = (times.next(), times.next());
                let times = first.map(seconds).zip(last.or(first).map(seconds));
                match times {
                    Some((Ok(min), Ok(max))) => {
                        self.key("connection.reconnect_min", min);
                        self.key("connection.reconnect_max", max);
                    }
                    _ => import.leave(line, "the values are no numbers"),
                }
            }
            "start_type" if value != "automatic" => import.leave(
                line,
                "bridges connect at the start: `dunlin ctl bridge pause` ends that",
            ),
            _ => {}
        }
    }

    fn tls(&mut self, key: &'static str, value: String) {
        self.encrypted = true;
        self.key(key, value);
    }

    fn address(&mut self, line: &Line, import: &mut Import) {
        let mut all = line.value.split_whitespace();
        let first = all.next().and_then(|text| {
            let (host, port) = match text.rsplit_once(':') {
                Some((host, port)) if !host.ends_with(':') => (host, port.parse().ok()?),
                _ => (text, PORT),
            };
            Some((host.to_owned(), port))
        });
        match first {
            Some(first) => self.host = Some(first),
            None => return import.leave(line, "it is no address"),
        }
        if all.next().is_some() {
            import.leave(line, "a bridge has one other broker: the first one counts");
        }
    }

    /// Whether it is a bridge here.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.psk {
            return Err("there is no TLS-PSK: use certificates".into());
        }
        if self.host.is_none() || self.topics.is_empty() {
            return Err("it has no address, or no topic".into());
        }
        let mut text = String::new();
        self.write(&mut text);
        let parsed = Config::parse(Path::new("bridge"), &text);
        parsed.map(|_| ()).map_err(|error| error.to_string())
    }

    /// What is not as it was.
    pub(super) fn remarks(&self) -> Vec<Remark> {
        let name = &self.begun.value;
        let mut remarks = Vec::new();
        let mut say = |why: String| {
            remarks.push(Remark {
                at: None,
                option: String::new(),
                why,
            });
        };
        if self.password {
            say(format!(
                "bridge {name}: write its password, which is not copied, to {}",
                self.password_file()
            ));
        }
        say(format!(
            "bridge {name}: its state is below $SYS here, and at the other broker where \
             status_topic says; what waited in mosquitto for it is not carried over"
        ));
        remarks
    }

    fn password_file(&self) -> String {
        format!("bridge-{}.password", self.begun.value)
    }

    pub(super) fn write(&self, out: &mut String) {
        let Some((host, port)) = &self.host else {
            return;
        };
        let scheme = if self.encrypted { "mqtts" } else { "mqtt" };
        let url = quoted(&format!("{scheme}://{host}:{port}"));
        let name = quoted(&self.begun.value);
        let version = quoted(self.version);
        let _ = write!(
            out,
            "[[bridge]]\nname = {name}\nurl = {url}\nversion = {version}\n"
        );
        for (key, value) in &self.keys {
            let _ = writeln!(out, "{key} = {value}");
        }
        if self.password {
            let _ = writeln!(out, "password_file = {}", quoted(&self.password_file()));
        }
        for topic in &self.topics {
            let _ = write!(
                out,
                "[[bridge.topic]]\npattern = {}\ndirection = \"{}\"\nqos = {}\n",
                quoted(&topic.pattern),
                topic.direction,
                topic.qos
            );
            for (key, prefix) in [
                ("local_prefix", &topic.local),
                ("remote_prefix", &topic.remote),
            ] {
                if !prefix.is_empty() {
                    let _ = writeln!(out, "{key} = {}", quoted(prefix));
                }
            }
        }
        out.push('\n');
    }
}

/// `PATTERN [out|in|both [QOS [LOCAL [REMOTE]]]]`, where `""` is nothing.
fn topic(value: &str) -> Option<Topic> {
    let mut words = value.split_whitespace();
    let mut word = || words.next().map(|it| if it == "\"\"" { "" } else { it });
    let pattern = word()?.to_owned();
    let direction = match word() {
        None | Some("out") => "out",
        Some("in") => "in",
        Some("both") => "both",
        Some(_) => return None,
    };
    let qos = word().map_or(Some(0), |qos| qos.parse().ok())?;
    let local = word().unwrap_or_default().to_owned();
    let remote = word().unwrap_or_default().to_owned();
    words.next().is_none().then_some(Topic {
        pattern,
        direction,
        qos,
        local,
        remote,
    })
}
