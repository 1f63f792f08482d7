//! What a bridge had subscribed to when it ran before, in a file: a session keeps
//! subscriptions that the configuration has no more. And its client identifier at the
//! other broker, where the configuration names none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use dunlin_dial::random_u64;
use serde::{Deserialize, Serialize};

use crate::files::{self, Access};

/// The file of a bridge, in the data directory.
#[derive(Debug)]
pub(super) struct Known(PathBuf);

/// Its contents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Filters {
    pub(super) local: Vec<String>,
    pub(super) remote: Vec<String>,
}

impl Known {
    pub(super) fn new(dir: &Path, name: &str) -> Self {
        Self(path(dir, name))
    }

    /// What was subscribed to; nothing if the file is not there or not understood.
    pub(super) fn read(&self) -> Filters {
        let text = fs::read(&self.0).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    pub(super) fn write(&self, filters: &Filters) -> io::Result<()> {
        if self.read() == *filters {
            return Ok(());
        }
        let text = serde_json::to_vec(filters)?;
        files::replace(&self.0, &text, Access::Private)
    }
}

/// The file of a bridge.
pub(super) fn path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.json"))
}

/// The number of this broker among those that have bridges; made up once.
pub(super) fn broker_id(dir: &Path) -> io::Result<String> {
    let path = dir.join("id");
    match fs::read_to_string(&path) {
        Ok(id) if id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit()) => Ok(id),
        Ok(_) => Err(io::Error::other(format!("{} is damaged", path.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let id = format!("{:016x}", random_u64());
            files::create(&path, id.as_bytes(), Access::Private)?;
            Ok(id)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let known = Known::new(dir.path(), "up");
        assert_eq!(known.read(), Filters::default());
        let filters = Filters {
            local: vec!["a/#".into()],
            remote: vec!["b \n c".into()],
        };
        known.write(&filters).expect("written");
        assert_eq!(known.read(), filters);
        let id = broker_id(dir.path()).expect("made");
        assert_eq!(broker_id(dir.path()).expect("read"), id);
        fs::write(dir.path().join("id"), "?").expect("written");
        broker_id(dir.path()).expect_err("damaged");
    }
}
