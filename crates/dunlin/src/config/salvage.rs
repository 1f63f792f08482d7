//! What a file with a mistake still says: where its broker's control socket is, so that an
//! operator reaches a broker that runs on what the file said before.

use std::path::Path;

use toml::{Table, Value};

use super::Config;

/// How often what is not TOML is cut off at its mistake.
const CUTS_MAX: u32 = 8;

impl Config {
    /// The configuration as far as it concerns the control socket; all else is the default.
    /// `None`: the file cannot be read, or nothing of it that can names the socket, which may
    /// then be another one than the default.
    pub(crate) fn salvage(file: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(file).ok()?;
        let (table, is_whole) = beginning(&text);
        let mut config = Self::default();
        let dir = table.get("data_dir");
        let mut is_named = false;
        if let Some(dir) = dir.and_then(Value::as_str) {
            config.data_dir = dir.into();
            is_named = true;
        }
        if let Some(control) = table.get("control").and_then(Value::as_table) {
            let socket = control.get("socket").and_then(Value::as_str);
            config.control.socket = socket.map(Into::into);
            is_named |= socket.is_some();
            let enabled = control.get("enabled").and_then(Value::as_bool);
            config.control.enabled = enabled.unwrap_or(config.control.enabled);
        }
        // The default is that of a file that says nothing of it.
        (is_named || is_whole && dir.is_none()).then_some(config)
    }
}

/// The lines in front of the first mistake, and whether these are all.
fn beginning(mut text: &str) -> (Table, bool) {
    for cuts in 0..CUTS_MAX {
        let error = match text.parse::<Table>() {
            Ok(table) => return (table, cuts == 0),
            Err(error) => error,
        };
        let at = error.span().map_or(0, |span| span.start);
        let before = text.get(..at).unwrap_or_default();
        text = before.rsplit_once('\n').map_or("", |(lines, _)| lines);
    }
    (Table::new(), false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn salvage(text: &str) -> Option<Config> {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("dunlin.toml");
        std::fs::write(&file, text).expect("written");
        Config::salvage(&file)
    }

    fn socket(text: &str) -> Option<String> {
        let path = salvage(text)?.control_path()?;
        Some(path.display().to_string())
    }

    #[test]
    fn a_mistake_elsewhere_hides_no_socket() {
        let wrong = [
            "data_dir = \"d\"\n[limits]\nmax_inflight = 0\n",
            "data_dir = \"d\"\n[no such section]\n",
            "data_dir = \"d\"\n[sys]\nevents = [\"connected\", \"di",
            "data_dir = \"d\"\n[sys]\nevents = [\n\"connected\",\n[log]\nlevel = \"info\"\n",
            "data_dir = \"d\"\nshards = \"many\"\n= =\n= =\n",
        ];
        for text in wrong {
            assert_eq!(socket(text).as_deref(), Some("d/control.sock"), "{text}");
        }
        let named = "shards = -1\n[control]\nsocket = \"/run/s\"\n";
        assert_eq!(socket(named).as_deref(), Some("/run/s"));
        let silent = "[limits]\nmax_inflight = 0\n";
        let default = socket(silent);
        assert_eq!(default.as_deref(), Some("dunlin-data/control.sock"));
        let refused = salvage("[control]\nenabled = false\nwhat = 1\n").expect("it is named");
        assert_eq!(refused.control_path(), None);
        assert!(Config::salvage(Path::new("/no such file")).is_none());
    }

    #[test]
    fn a_socket_that_was_not_read_is_not_guessed() {
        let hidden = [
            "= =",
            "= =\ndata_dir = \"d\"\n",
            "shards = 2\n[log\nlevel = \"info\"\n[control]\nsocket = \"/run/s\"\n",
            "[control]\nenabled = true\nsocket = /run/s\n",
            "data_dir = 5\n",
        ];
        for text in hidden {
            assert!(salvage(text).is_none(), "{text}");
        }
    }
}
