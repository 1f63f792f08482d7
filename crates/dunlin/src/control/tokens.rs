//! Who may come over HTTP: names with roles, a line each in a file. Of a token only a
//! hash is kept. Tokens are random and long, so that a plain SHA-256 hides them.

use core::str::FromStr;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::values::{Bearer, Code, Failure, Role};
use crate::files::{self, Access};

/// Most tokens.
const TOKENS_MAX: usize = 1000;

/// Longest name of a token.
const NAME_BYTES_MAX: usize = 64;

/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;

/// What a token begins with, so that it is known where it is found.
const PREFIX: &str = "dunlin_";

/// What the hash of a token begins with in the file.
const HASH: &str = "sha256:";

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    bearer: Bearer,
    hash: [u8; 32],
}

/// Tokens and their file.
#[derive(Debug)]
pub(crate) struct Tokens {
    path: PathBuf,
    known: RwLock<Arc<[Line]>>,
    /// Held while the file is changed.
    changing: Mutex<()>,
}

/// What the file says, before it is in force. The file is not changed until then.
#[derive(Debug)]
pub(crate) struct Fresh<'a> {
    lines: Arc<[Line]>,
    _alone: MutexGuard<'a, ()>,
}

impl Tokens {
    /// Reads the file; without one there are no tokens.
    ///
    /// # Errors
    /// It cannot be read, or has a mistake.
    pub(crate) fn load(path: PathBuf) -> io::Result<Self> {
        let tokens = Self {
            path,
            known: RwLock::new(Arc::new([])),
            changing: Mutex::default(),
        };
        let lines = tokens.read_again()?.lines;
        tokens.set(lines);
        Ok(tokens)
    }

    /// What the file says now.
    ///
    /// # Errors
    /// As [`Tokens::load`].
    pub(crate) fn read_again(&self) -> io::Result<Fresh<'_>> {
        let alone = self.alone();
        let text = self.text()?;
        Ok(Fresh {
            lines: parse(&text)?.into(),
            _alone: alone,
        })
    }

    fn alone(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has this be in force.
    pub(crate) fn replace(&self, fresh: Fresh<'_>) {
        self.set(fresh.lines);
    }

    fn set(&self, lines: Arc<[Line]>) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = lines;
    }

    /// Whose token this is. How long that takes says nothing about the tokens there are.
    pub(crate) fn find(&self, token: &str) -> Option<Bearer> {
        let hash = hash(token);
        let (known, mut found) = (self.known(), None);
        for line in &*known {
            if bool::from(line.hash.ct_eq(&hash)) {
                found = Some(line.bearer.clone());
            }
        }
        found
    }

    /// Those who have one, by name.
    pub(super) fn bearers(&self) -> Vec<Bearer> {
        let known = self.known();
        let mut all: Vec<Bearer> = known.iter().map(|line| line.bearer.clone()).collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Makes a token, of which only the hash stays here.
    pub(super) fn add(&self, name: &str, role: Role) -> Result<String, Failure> {
        check_name(name).map_err(|why| Failure::new(Code::BadRequest, why))?;
        let mut bytes = [0; TOKEN_BYTES];
        let drawn = getrandom::fill(&mut bytes);
        drawn.map_err(|error| Failure::new(Code::Unavailable, error.to_string()))?;
        let token = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
        let hash = hash(&token);
        let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        self.change(|text, lines| {
            if lines.iter().any(|line| line.bearer.name == name) {
                let text = format!("there is a token \"{name}\" already");
                return Err(Failure::new(Code::Conflict, text));
            }
            if lines.len() >= TOKENS_MAX {
                let text = format!("there are {TOKENS_MAX} tokens, the most that there may be");
                return Err(Failure::new(Code::Busy, text));
            }
            let is_whole = text.is_empty() || text.ends_with('\n');
            let end = if is_whole { "" } else { "\n" };
            Ok(format!("{text}{end}{} {name} {HASH}{hex}\n", role.name()))
        })?;
        Ok(token)
    }

    /// Takes a token away.
    pub(super) fn remove(&self, name: &str) -> Result<(), Failure> {
        self.change(|text, lines| {
            if !lines.iter().any(|line| line.bearer.name == name) {
                let text = format!("there is no token {name:?}");
                return Err(Failure::new(Code::NotFound, text));
            }
            let is_it = |line: &&str| {
                let parsed: Result<Line, _> = line.trim().parse();
                parsed.is_ok_and(|line| line.bearer.name == name)
            };
            let kept = text.lines().filter(|line| !is_it(line));
            Ok(kept.map(|line| format!("{line}\n")).collect())
        })
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }

    fn known(&self) -> Arc<[Line]> {
        let known = self.known.read();
        Arc::clone(&known.unwrap_or_else(PoisonError::into_inner))
    }

    fn text(&self) -> io::Result<String> {
        match std::fs::read_to_string(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            read => read,
        }
    }

    /// Changes the text of the file, and has it be in force.
    fn change(
        &self,
        change: impl FnOnce(&str, &[Line]) -> Result<String, Failure>,
    ) -> Result<(), Failure> {
        let failed = |error: io::Error| {
            let text = format!("cannot use {}: {error}", self.path.display());
            Failure::new(Code::Unavailable, text)
        };
        let _alone = self.alone();
        let text = self.text().map_err(failed)?;
        let lines = parse(&text).map_err(failed)?;
        let changed = change(&text, &lines)?;
        let lines = parse(&changed).map_err(failed)?;
        files::replace(&self.path, changed.as_bytes(), Access::Private).map_err(failed)?;
        self.set(lines.into());
        Ok(())
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// The lines of the file that are neither empty nor comments.
fn parse(text: &str) -> io::Result<Vec<Line>> {
    let mut lines: Vec<Line> = Vec::new();
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: String| {
            let text = format!("line {number}: {why}");
            io::Error::new(io::ErrorKind::InvalidData, text)
        };
        let line: Line = line.parse().map_err(wrong)?;
        if lines.iter().any(|it| it.bearer.name == line.bearer.name) {
            return Err(wrong(format!("\"{}\" is there twice", line.bearer.name)));
        }
        if lines.len() >= TOKENS_MAX {
            return Err(wrong(format!("there are at most {TOKENS_MAX} tokens")));
        }
        lines.push(line);
    }
    Ok(lines)
}

impl FromStr for Line {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let &[role, name, hash] = &words[..] else {
            return Err("expected ROLE NAME sha256:HASH".to_owned());
        };
        let role = Role::ALL.into_iter().find(|it| it.name() == role);
        let role = role.ok_or("the role is read, operate or admin")?;
        check_name(name)?;
        let hash = hash.strip_prefix(HASH).and_then(unhex);
        let hash = hash.ok_or("the hash is sha256: and 64 hexadecimal digits")?;
        let name = name.to_owned();
        Ok(Self {
            bearer: Bearer { name, role },
            hash,
        })
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.@".contains(letter);
    match !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_plain) {
        true => Ok(()),
        false => Err(format!(
            "a name has 1 to {NAME_BYTES_MAX} letters, digits, and - _ . @"
        )),
    }
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    if !text.is_ascii() || text.len() != 64 {
        return None;
    }
    let digits = text.as_bytes().chunks_exact(2);
    let bytes = digits.map(|pair| u8::from_str_radix(core::str::from_utf8(pair).ok()?, 16).ok());
    bytes.collect::<Option<Vec<u8>>>()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff";

    #[test]
    fn lines_are_read_and_mistakes_are_named() {
        let text = format!("# who may\n\nread page sha256:{HEX}\n  admin ann sha256:{HEX}  \n");
        let lines = parse(&text).expect("good");
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1].bearer.role, Role::Admin);
        assert_eq!(lines[0].hash[..2], [0, 0xff]);
        for (wrong, says) in [
            ("read page", "line 1: expected ROLE"),
            ("root page sha256:00", "line 1: the role"),
            ("read page sha256:00", "line 1: the hash"),
            ("read pa/ge sha256:00", "line 1: a name"),
        ] {
            let error = parse(wrong).expect_err("wrong").to_string();
            assert!(error.contains(says), "{wrong}: {error}");
        }
        let digits = "é".repeat(32);
        parse(&format!("read a sha256:{digits}")).expect_err("no digits");
        let twice = format!("read a sha256:{HEX}\nread a sha256:{HEX}\n");
        let error = parse(&twice).expect_err("twice").to_string();
        assert!(error.contains("line 2"), "{error}");
        let many = |count: usize| -> String {
            (0..count)
                .map(|at| format!("read t{at} sha256:{HEX}\n"))
                .collect()
        };
        assert_eq!(parse(&many(TOKENS_MAX)).expect("good").len(), TOKENS_MAX);
        parse(&many(TOKENS_MAX + 1)).expect_err("too many");
    }

    /// A token that is taken away while files are read again stays away.
    #[test]
    fn the_file_does_not_change_while_it_is_read_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = Tokens::load(dir.path().join("tokens")).expect("none");
        let token = tokens.add("ann", Role::Admin).expect("made");
        let fresh = tokens.read_again().expect("good");
        std::thread::scope(|scope| {
            let removing = scope.spawn(|| tokens.remove("ann"));
            // It waits, or is done at once.
            let since = std::time::Instant::now();
            while !removing.is_finished() && since.elapsed().as_millis() < 100 {
                std::thread::yield_now();
            }
            tokens.replace(fresh);
            removing.join().expect("no panic").expect("removed");
        });
        assert_eq!(tokens.find(&token), None);
    }

    #[test]
    fn a_token_is_found_by_its_hash_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("tokens");
        let tokens = Tokens::load(path.clone()).expect("none");
        assert_eq!(tokens.find(""), None);
        let hex: String = hash("dunlin_x")
            .iter()
            .map(|it| format!("{it:02x}"))
            .collect();
        std::fs::write(&path, format!("operate bob sha256:{hex}\n")).expect("written");
        assert_eq!(tokens.find("dunlin_x"), None, "not read yet");
        let fresh = tokens.read_again().expect("good");
        tokens.replace(fresh);
        let bob = tokens.find("dunlin_x").expect("known");
        assert_eq!((bob.name.as_str(), bob.role), ("bob", Role::Operate));
        assert_eq!(tokens.find("dunlin_y"), None);
        assert_eq!(tokens.find(&hex), None);
        std::fs::write(&path, "nonsense\n").expect("written");
        tokens.read_again().expect_err("damaged");
        assert!(tokens.find("dunlin_x").is_some(), "the old ones stay");
    }
}
