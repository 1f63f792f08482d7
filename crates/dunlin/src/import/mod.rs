//! `dunlin import`: a mosquitto.conf as a dunlin.toml, and a list of what it cannot
//! say. Nothing is guessed: what is not carried over is named with its file and line.

mod bridges;
mod lines;
mod listeners;
mod passwords;
mod settings;

use core::fmt;
use core::fmt::Write as _;
use std::path::Path;

use dunlin_broker::access::Acl;

pub use lines::{Place, ReadError};

use bridges::Bridge;
use lines::Line;
use listeners::Listener;
use settings::Setting;

/// Something of mosquitto's that is not carried over, or is otherwise here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Where it stands; `None`: it concerns several lines.
    pub at: Option<Place>,
    /// What it says there.
    pub option: String,
    /// What to do about it.
    pub why: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(at) = &self.at {
            write!(f, "{}:{}: ", at.file.display(), at.line)?;
        }
        match self.option.is_empty() {
            true => f.write_str(&self.why),
            false => write!(f, "{}: {}", self.option, self.why),
        }
    }
}

/// What became of a configuration.
#[derive(Debug, Default)]
pub struct Imported {
    /// The text of a dunlin.toml.
    pub toml: String,
    /// What is not in it.
    pub remarks: Vec<Remark>,
    /// The lines of mosquitto's password file that are good here, if not all are.
    pub passwords: Option<String>,
}

impl Imported {
    /// Says where Dunlin keeps its store; without that it is `dunlin-data` in the directory
    /// in which the broker is started.
    pub fn set_data_dir(&mut self, dir: &Path) {
        let line = format!("data_dir = {}\n\n", quoted(&dir.display().to_string()));
        // Keys outside of tables come before all tables.
        let at = self.toml.find("\n\n").map_or(0, |end| end + 2);
        self.toml.insert_str(at, &line);
    }
}

/// An import under way.
#[derive(Default)]
pub(crate) struct Import {
    settings: Vec<Setting>,
    listeners: Vec<Listener>,
    bridges: Vec<Bridge>,
    remarks: Vec<Remark>,
}

/// Reads a mosquitto.conf. `passwords` is where the password file goes if a part of
/// it only can be carried over.
///
/// # Errors
/// A file cannot be read.
pub fn mosquitto(path: &Path, passwords: &str) -> Result<Imported, ReadError> {
    let lines = lines::read(path)?;
    let mut import = Import::default();
    let by_listener = lines
        .iter()
        .any(|line| line.name == "per_listener_settings" && line.value == "true");
    let mut bridge = false;
    for line in &lines {
        if line.name == "connection" {
            bridge = true;
            import.bridges.push(Bridge::begin(line));
        } else if bridge && bridges::has(&line.name) {
            import.of_bridge(line);
        } else {
            bridge = false;
            import.option(line, by_listener);
        }
    }
    import.check_bridges();
    let kept = import.password_file(passwords);
    import.acl_file();
    import.defaults();
    Ok(Imported {
        toml: import.toml(path),
        remarks: import.remarks,
        passwords: kept,
    })
}

/// What Dunlin does in any case.
const SAME: &[(&str, &str)] = &[
    ("allow_duplicate_messages", "false"),
    ("allow_zero_length_clientid", "true"),
    ("auto_id_prefix", "auto-"),
    ("max_inflight_bytes", "0"),
    ("max_qos", "2"),
    ("queue_qos0_messages", "false"),
    ("retain_available", "true"),
    ("upgrade_outgoing_qos", "false"),
    ("use_subject_as_username", "false"),
    ("use_username_as_clientid", "false"),
];

impl Import {
    fn option(&mut self, line: &Line, by_listener: bool) {
        let name = line.name.as_str();
        if SAME.contains(&(name, line.value.as_str())) {
            return;
        }
        if name == "listener" {
            let listener = Listener::begin(line, self);
            return self.listeners.push(listener);
        }
        let anonymous = name == "allow_anonymous" && by_listener;
        if !listeners::has(name) && !anonymous {
            return self.setting(line);
        }
        // A global limit before any listener concerns the one that is implied.
        let mut listener = self.listeners.pop().unwrap_or_else(Listener::implied);
        listener.set(line, self);
        self.listeners.push(listener);
    }

    /// An option of the bridge that was begun last.
    fn of_bridge(&mut self, line: &Line) {
        if let Some(mut bridge) = self.bridges.pop() {
            bridge.set(line, self);
            self.bridges.push(bridge);
        }
    }

    /// Leaves bridges out that could not be one here.
    fn check_bridges(&mut self) {
        for bridge in core::mem::take(&mut self.bridges) {
            match bridge.check() {
                Ok(()) => {
                    self.remarks.extend(bridge.remarks());
                    self.bridges.push(bridge);
                }
                Err(why) => self.leave(bridge.line(), &format!("the bridge is left out: {why}")),
            }
        }
    }

    /// Files of users and rights are one for all listeners.
    fn setting(&mut self, line: &Line) {
        if ["password_file", "acl_file"].contains(&line.name.as_str()) {
            let value = quoted(&line.value);
            let is_other = |(_, key, set): &Setting| *key == line.name && *set != value;
            if self.settings.iter().any(is_other) {
                return self.leave(line, "there is one for all listeners; the first one counts");
            }
        }
        settings::set(line, self);
    }

    /// Names a line that is not carried over.
    fn leave(&mut self, line: &Line, why: &str) {
        let option = match line.value.as_str() {
            // Passwords and secrets of bridges stay where they are.
            _ if line.name.ends_with("password") || line.name.ends_with("psk") => line.name.clone(),
            "" => line.name.clone(),
            value => format!("{} {value}", line.name),
        };
        self.remarks.push(Remark {
            at: Some(line.at.clone()),
            option,
            why: why.to_owned(),
        });
    }

    fn remark(&mut self, why: String) {
        self.remarks.push(Remark {
            at: None,
            option: String::new(),
            why,
        });
    }

    fn value(&self, key: &str) -> Option<String> {
        let setting = self.settings.iter().find(|(_, name, _)| *name == key)?;
        let table: toml::Table = format!("value = {}", setting.2).parse().ok()?;
        table.get("value")?.as_str().map(str::to_owned)
    }

    /// Hashes that cannot be verified are left out, in a file of its own: with them
    /// the broker would not start.
    fn password_file(&mut self, to: &str) -> Option<String> {
        let path = self.value("password_file")?;
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => {
                self.remark(format!("{path}: cannot be read: {error}"));
                return None;
            }
        };
        let (good, bad) = passwords::sort(Path::new(&path), &text);
        if bad.is_empty() {
            return None;
        }
        self.remarks.extend(bad);
        let [from, into] = [path.as_str(), to].map(std::fs::canonicalize);
        if from.is_ok_and(|from| into.is_ok_and(|into| from == into)) {
            self.remark(format!(
                "{path}: is mosquitto's and stays; the broker does not start with these lines: \
                 write to another folder (-o), and the others are copied"
            ));
            return None;
        }
        let file = self
            .settings
            .iter_mut()
            .find(|(_, key, _)| *key == "password_file");
        if let Some(setting) = file {
            setting.2 = quoted(to);
        }
        Some(good)
    }

    /// The file stays where it is; a line that Dunlin does not know keeps the broker
    /// from starting, so that rights are never wider than before.
    fn acl_file(&mut self) {
        let Some(path) = self.value("acl_file") else {
            return;
        };
        let read = std::fs::read_to_string(&path).map_err(|error| error.to_string());
        let parsed = read.and_then(|text| Acl::parse(&text).map_err(|error| error.to_string()));
        match parsed {
            Ok(_) => self.remark(format!(
                "{path}: a filter of which its lines allow nothing, and a shared subscription \
                 that they allow in part, is refused, where mosquitto accepts it and leaves \
                 out messages"
            )),
            Err(error) => self.remark(format!(
                "{path}: {error}; the broker does not start before this is changed"
            )),
        }
    }

    /// What mosquitto does where its file says nothing.
    fn defaults(&mut self) {
        let said = self.settings.iter().any(|(_, key, _)| *key == "anonymous");
        let has_none = self.listeners.is_empty();
        if !has_none && !said {
            self.settings.push(("auth", "anonymous", quoted("never")));
        }
        if self.listeners.iter().all(Listener::is_left_out) {
            // Without any, those of Dunlin's defaults would listen on all addresses.
            let mut local = Listener::implied();
            local.bind("127.0.0.1");
            self.listeners.push(local);
            if !has_none {
                self.remark("no listener is left: there is one for this machine only".into());
            }
        }
        if !self
            .settings
            .iter()
            .any(|(section, _, _)| *section == "store")
        {
            self.remark(
                "mosquitto keeps nothing unless `persistence true`, and saves every half hour; \
                 here store.durability decides, and every acknowledged message is on disk"
                    .into(),
            );
        }
        let remarks: Vec<_> = self.listeners.iter().flat_map(Listener::remarks).collect();
        for remark in remarks {
            self.remark(remark);
        }
        self.connections();
    }

    /// mosquitto counts connections by listener.
    fn connections(&mut self) {
        let limits: Vec<_> = self.listeners.iter().map(|it| it.max_connections).collect();
        if limits.iter().all(Option::is_none) {
            return;
        }
        let all: Option<u64> = limits.into_iter().sum();
        match all.filter(|all| *all > 0) {
            Some(all) => {
                self.settings
                    .push(("limits", "max_connections", all.to_string()));
                self.remark(format!(
                    "max_connections: {all} for all listeners together (limits.max_connections)"
                ));
            }
            None => self.remark(
                "max_connections of single listeners: there is a limit for all of them \
                 together only (limits.max_connections)"
                    .into(),
            ),
        }
    }

    fn toml(&self, from: &Path) -> String {
        let mut out = format!("# Made by `dunlin import` from {}.\n\n", from.display());
        for section in ["limits", "store", "auth", "log", "sys"] {
            let mut settings = self.settings.iter().filter(|(at, _, _)| *at == section);
            if let Some((_, key, value)) = settings.next() {
                let _ = write!(out, "[{section}]\n{key} = {value}\n");
                for (_, key, value) in settings {
                    let _ = writeln!(out, "{key} = {value}");
                }
                out.push('\n');
            }
        }
        for listener in &self.listeners {
            listener.write(&mut out);
        }
        for bridge in &self.bridges {
            bridge.write(&mut out);
        }
        out
    }
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests;
