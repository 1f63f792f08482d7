//! `dunlin ctl bridge`: bridges to other brokers.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use toml::{Table, Value};

use super::Session;
use super::columns::BRIDGES;
use crate::config::bridge::Bridge as Settings;
use crate::control::values::{Leftover, Request};

/// Add, change, see, pause and remove bridges.
#[derive(Debug, Subcommand)]
pub(super) enum Bridge {
    /// List the bridges.
    List,
    /// All that is known of one bridge.
    Show {
        /// Its name.
        name: String,
    },
    /// Add a bridge, which begins at once. It stays until it is removed.
    Add(Box<New>),
    /// Put another bridge in the place of one that was added. It carries what waits.
    Change(Box<New>),
    /// Remove a bridge that was added.
    Remove {
        /// Its name.
        name: String,
        /// Drop messages that wait for the other broker. Without this or --keep, the bridge
        /// is not removed while there are any.
        #[arg(long, conflicts_with = "keep")]
        discard: bool,
        /// Keep messages that wait for an hour, for a bridge of the same name.
        #[arg(long)]
        keep: bool,
    },
    /// Keep a bridge from its other broker until it is resumed or the broker starts
    /// again. What it would carry waits.
    Pause {
        /// Its name.
        name: String,
    },
    /// Have a bridge that was paused go on.
    Resume {
        /// Its name.
        name: String,
    },
    /// End the connections of a bridge, and connect it again at once.
    Reconnect {
        /// Its name.
        name: String,
    },
}

/// What a bridge is like, as in `[[bridge]]` of the configuration.
#[derive(Debug, Args)]
pub(super) struct New {
    /// Its name.
    name: String,
    /// Where the other broker is, such as quic://hub.example.
    url: String,
    /// Topic filter of messages that go out; may be repeated.
    #[arg(long, value_name = "FILTER")]
    out: Vec<String>,
    /// Topic filter of messages that come in; may be repeated.
    #[arg(long = "in", value_name = "FILTER")]
    back: Vec<String>,
    /// Topic filter of messages both ways; may be repeated.
    #[arg(long, value_name = "FILTER")]
    both: Vec<String>,
    /// Highest QoS of these.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=2))]
    qos: u8,
    /// User at the other broker.
    #[arg(long)]
    user: Option<String>,
    /// File here with the password, which is sent to the broker; - for standard input.
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
    /// File here with more keys of [[bridge]], as TOML. Files that these name are in the
    /// folder bridges of the broker's data directory.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

impl New {
    /// The bridge, and the password.
    fn read(self) -> anyhow::Result<(Box<Settings>, Option<String>)> {
        let mut table = match &self.from {
            Some(path) => text_of(path)?
                .parse::<Table>()
                .with_context(|| path.display().to_string())?,
            None => Table::new(),
        };
        let mut topics = match table.remove("topic") {
            Some(Value::Array(topics)) => topics,
            None => Vec::new(),
            Some(_) => bail!("`topic` is not an array of tables, as in [[topic]]"),
        };
        for (direction, filters) in [("out", self.out), ("in", self.back), ("both", self.both)] {
            for pattern in filters {
                let mut topic = Table::new();
                topic.insert("pattern".into(), pattern.into());
                topic.insert("direction".into(), direction.into());
                topic.insert("qos".into(), i64::from(self.qos).into());
                topics.push(topic.into());
            }
        }
        table.insert("topic".into(), topics.into());
        table.insert("name".into(), self.name.into());
        table.insert("url".into(), self.url.into());
        if let Some(user) = self.user {
            table.insert("user".into(), user.into());
        }
        let password = self.password_file.as_deref().map(text_of).transpose()?;
        let password = password.map(|text| text.trim_end_matches(['\n', '\r']).to_owned());
        let settings: Settings = table.try_into().context("this is no bridge")?;
        Ok((Box::new(settings), password))
    }
}

fn text_of(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    match path.as_os_str() == "-" {
        true => io::stdin().lock().read_to_string(&mut text).map(drop),
        false => std::fs::read_to_string(path).map(|read| text = read),
    }
    .with_context(|| path.display().to_string())?;
    Ok(text)
}

impl Bridge {
    pub(super) fn run(self, session: &mut Session) -> anyhow::Result<()> {
        let request = match self {
            Self::List => return session.list(&BRIDGES, None, |_| Request::Bridges {}),
            Self::Remove {
                name,
                discard,
                keep,
            } => {
                let waiting = match (discard, keep) {
                    (true, _) => Leftover::Discard,
                    (false, true) => Leftover::Keep,
                    (false, false) => Leftover::Refuse,
                };
                let request = Request::RemoveBridge { name, waiting };
                return session.order(&request, "messages dropped");
            }
            Self::Show { name } => Request::Bridge { name },
            Self::Add(new) => {
                let (bridge, password) = new.read()?;
                Request::AddBridge { bridge, password }
            }
            Self::Change(new) => {
                let (bridge, password) = new.read()?;
                Request::ChangeBridge { bridge, password }
            }
            Self::Pause { name } => Request::PauseBridge { name },
            Self::Resume { name } => Request::ResumeBridge { name },
            Self::Reconnect { name } => Request::ReconnectBridge { name },
        };
        session.show(&request)
    }
}
