//! The lines of a mosquitto.conf and of what it includes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Most lines of all files together; a file with more is none that people write.
const LINES_MAX: usize = 100_000;

/// Files that include each other, at most.
const DEPTH_MAX: usize = 8;

/// Where a line stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
}

/// One option with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) at: Place,
    pub(super) name: String,
    /// Without the white space around it; empty where there is none.
    pub(super) value: String,
}

/// Why files cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file or folder cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is more than people write.
    #[error("{}: more than {LINES_MAX} lines, or files that include each other", .0.display())]
    TooMuch(PathBuf),
}

/// Reads a file and the folders that it includes, in their order.
pub(super) fn read(path: &Path) -> Result<Vec<Line>, ReadError> {
    let mut lines = Vec::new();
    read_into(path, 0, &mut lines)?;
    Ok(lines)
}

fn read_into(path: &Path, depth: usize, lines: &mut Vec<Line>) -> Result<(), ReadError> {
    let fail = |path: &Path| {
        let path = path.to_owned();
        |source| ReadError::File { path, source }
    };
    let text = fs::read_to_string(path).map_err(fail(path))?;
    for (index, text) in text.lines().enumerate() {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let (name, value) = text.split_once([' ', '\t']).unwrap_or((text, ""));
        let line = Line {
            at: Place {
                file: path.to_owned(),
                line: index + 1,
            },
            name: name.to_owned(),
            value: value.trim().to_owned(),
        };
        if line.name != "include_dir" {
            lines.push(line);
            if lines.len() > LINES_MAX {
                return Err(ReadError::TooMuch(path.to_owned()));
            }
            continue;
        }
        if depth >= DEPTH_MAX {
            return Err(ReadError::TooMuch(path.to_owned()));
        }
        let folder = PathBuf::from(&line.value);
        let entries = fs::read_dir(&folder).map_err(fail(&folder))?;
        let paths = entries.map(|entry| entry.map(|entry| entry.path()));
        let mut paths = paths
            .collect::<Result<Vec<_>, _>>()
            .map_err(fail(&folder))?;
        paths.retain(|path| path.extension().is_some_and(|it| it == "conf"));
        // By name, as mosquitto does.
        paths.sort();
        for path in paths {
            read_into(&path, depth + 1, lines)?;
        }
    }
    Ok(())
}
