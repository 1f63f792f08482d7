//! The bans of a broker, and their file in the data directory.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin_base::{Instant, Text};
use dunlin_broker::bans::{Banned, Bans};

use super::values::{Ban, Whom};
use crate::files::{self, Access};

/// The bans of a broker.
#[derive(Debug)]
pub(crate) struct Banlist {
    path: PathBuf,
    bans: Mutex<Vec<Ban>>,
}

impl Banlist {
    /// Reads the file; without one there are none.
    ///
    /// # Errors
    /// It cannot be read, or is damaged: who is banned must not come in.
    pub(crate) fn load(path: PathBuf) -> io::Result<Self> {
        let bans = match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let bans = Mutex::new(bans);
        Ok(Self { path, bans })
    }

    /// As shards take them.
    pub(crate) fn in_force(&self) -> Arc<Bans> {
        Arc::new(in_force(&self.lock()))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<Ban>> {
        self.bans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the file in one step.
    pub(super) fn write(&self, bans: &[Ban]) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(bans)?;
        text.push(b'\n');
        files::replace(&self.path, &text, Access::Private)
    }
}

/// As shards take them.
pub(super) fn in_force(bans: &[Ban]) -> Bans {
    let entry = |ban: &Ban| {
        let banned = match &ban.whom {
            Whom::ClientId(client_id) => Banned::Client(Text::from(client_id.as_str())),
            Whom::User(user) => Banned::User(Text::from(user.as_str())),
            Whom::Address(range) => Banned::Address(range.0),
        };
        let micros = |secs: u64| secs.saturating_mul(1_000_000);
        let until = ban.until.map(micros).map(Instant::from_micros);
        (banned, until.unwrap_or(Instant::FAR_FUTURE))
    };
    bans.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_was_written_and_damage_is_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("bans.json");
        let list = Banlist::load(path.clone()).expect("none");
        assert!(list.bans.lock().expect("free").is_empty());
        let range = "10.0.0.0/8".parse().expect("a range");
        let whoms = [
            Whom::ClientId("a".to_owned()),
            Whom::User("ann".to_owned()),
            Whom::Address(crate::config::qlog::Range(range)),
        ];
        let bans = whoms.map(|whom| Ban {
            whom,
            until: Some(1),
            why: "tests".to_owned(),
        });
        list.write(&bans).expect("written");
        let list = Banlist::load(path.clone()).expect("read");
        assert_eq!(*list.bans.lock().expect("free"), bans);
        std::fs::write(&path, "[{").expect("written");
        Banlist::load(path).expect_err("damaged");
    }
}
