//! The password file: one user a line, hashes instead of passwords.
//!
//! ```text
//! # decoy: BASE64
//! USER:SCRAM-SHA-256$ITERATIONS:SALT$STOREDKEY:SERVERKEY
//! USER:$7$ITERATIONS$SALT$HASH
//! ```
//!
//! The first form is PostgreSQL's and serves both plain passwords and
//! SCRAM-SHA-256 (RFC 5803 has the same parts); `dunlin passwd` writes it. The
//! second is what mosquitto_passwd writes (PBKDF2 with SHA-512), accepted for
//! migration; its users cannot use SCRAM. The decoy is a secret from which
//! salts of unknown users are derived, so that they stay the same across
//! restarts.

use core::fmt::{self, Write as _};
use core::hash::{Hash as _, Hasher};
use std::collections::BTreeMap;
use std::hash::DefaultHasher;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use dunlin_base::Text;
use dunlin_broker::auth::ScramCredential;
use dunlin_mqtt::scram::{ITERATIONS_MAX, ITERATIONS_MIN, SALT_BYTES_MAX, StoredKeys};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha512};
use subtle::ConstantTimeEq;

/// Most users of one file.
pub const USERS_MAX: usize = 1_000_000;

/// Bytes of salt in new lines.
const SALT_BYTES: usize = 16;

/// Iterations in new lines when nothing else is said: the least that RFC 7677
/// allows and PostgreSQL's default; more makes log-in slower on small devices.
pub const ITERATIONS_DEFAULT: u32 = ITERATIONS_MIN;

/// Longest user name, as MQTT limits it.
const USER_BYTES_MAX: usize = dunlin_base::limits::MQTT_STRING_BYTES_MAX;

const SCRAM_PREFIX: &str = "SCRAM-SHA-256$";
const MOSQUITTO_PREFIX: &str = "$7$";
const DECOY_PREFIX: &str = "# decoy: ";

/// Why a password file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PasswordError {
    /// The file cannot be read or written.
    #[error("cannot {action} the password file {}: {source}", path.display())]
    File {
        /// "read" or "write".
        action: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line is wrong.
    #[error("{}:{line}: {kind}", path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong.
        kind: LineError,
    },
    /// A user name cannot be written to the file.
    #[error(
        "`{0}` is not usable as a user name: it is empty or too long, begins with `#`, or has a colon or a control character"
    )]
    User(String),
    /// The number of iterations is out of range.
    #[error("the number of iterations must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}, not {0}")]
    Iterations(u32),
    /// There is no such user.
    #[error("there is no user `{user}` in {}", path.display())]
    NoUser {
        /// Which file.
        path: PathBuf,
        /// The name.
        user: String,
    },
    /// The operating system gave no random salt.
    #[error("cannot draw a random salt: {0}")]
    Random(getrandom::Error),
}

/// What is wrong with a line. The line itself is not repeated: it may hold a
/// password by mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// Without colon, or nothing before it.
    #[error("expected USER:HASH")]
    Form,
    /// The hash is of no known form.
    #[error(
        "the hash is neither SCRAM-SHA-256 nor mosquitto's $7$ form; `dunlin passwd` makes one"
    )]
    Hash,
    /// The user is there already.
    #[error("the user has a line already")]
    Twice,
    /// There are more than [`USERS_MAX`].
    #[error("there are more than {USERS_MAX} users")]
    TooMany,
}

/// What is kept instead of a password.
#[derive(Clone, PartialEq, Eq)]
enum Hash {
    Scram(ScramCredential),
    Mosquitto {
        iterations: u32,
        salt: Vec<u8>,
        hash: Vec<u8>,
    },
}

impl Hash {
    fn parse(text: &str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix(SCRAM_PREFIX) {
            let (parameters, keys) = rest.split_once('$')?;
            let (iterations, salt) = parameters.split_once(':')?;
            let (stored_key, server_key) = keys.split_once(':')?;
            let iterations = iterations.parse().ok()?;
            let salt = BASE64.decode(salt).ok()?;
            let acceptable = (1..=ITERATIONS_MAX).contains(&iterations)
                && (1..=SALT_BYTES_MAX).contains(&salt.len());
            return acceptable.then_some(Self::Scram(ScramCredential {
                salt: salt.into(),
                iterations,
                stored_key: BASE64.decode(stored_key).ok()?.try_into().ok()?,
                server_key: BASE64.decode(server_key).ok()?.try_into().ok()?,
            }));
        }
        let mut parts = text.strip_prefix(MOSQUITTO_PREFIX)?.split('$');
        let iterations = parts.next()?.parse().ok()?;
        let salt = BASE64.decode(parts.next()?).ok()?;
        let hash = BASE64.decode(parts.next()?).ok()?;
        let acceptable = (1..=ITERATIONS_MAX).contains(&iterations)
            && hash.len() == <Sha512 as Digest>::output_size()
            && parts.next().is_none();
        acceptable.then_some(Self::Mosquitto {
            iterations,
            salt,
            hash,
        })
    }

    /// Takes milliseconds.
    fn verify(&self, password: &[u8]) -> bool {
        match self {
            Self::Scram(credential) => {
                let keys = StoredKeys::derive(password, &credential.salt, credential.iterations);
                keys.stored_key.ct_eq(&credential.stored_key).into()
            }
            Self::Mosquitto {
                iterations,
                salt,
                hash,
            } => {
                let mut got = [0; 64];
                pbkdf2::pbkdf2_hmac::<Sha512>(password, salt, *iterations, &mut got);
                got.as_slice().ct_eq(hash).into()
            }
        }
    }
}

/// A password file in memory.
#[derive(Clone)]
pub struct Passwords {
    users: BTreeMap<Box<str>, Hash>,
    decoy: [u8; 32],
    /// What an unknown user seems to have.
    iterations: u32,
}

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passwords")
            .field("users", &self.users.len())
            .finish_non_exhaustive()
    }
}

impl Passwords {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or a line is wrong.
    pub fn load(path: &Path) -> Result<Self, PasswordError> {
        let text = std::fs::read_to_string(path).map_err(|source| PasswordError::File {
            action: "read",
            path: path.into(),
            source,
        })?;
        Self::parse(&text).map_err(|(line, kind)| PasswordError::Line {
            path: path.into(),
            line,
            kind,
        })
    }

    /// Whether a line of a password file is one that can be used.
    #[must_use]
    pub fn is_line(line: &str) -> bool {
        Self::parse(line).is_ok()
    }

    fn parse(text: &str) -> Result<Self, (usize, LineError)> {
        let mut decoy = None;
        let mut users = BTreeMap::new();
        let mut iterations = None;
        for (index, line) in text.lines().enumerate() {
            let at = |kind| (index + 1, kind);
            let line = line.trim_end();
            if let Some(secret) = line.strip_prefix(DECOY_PREFIX) {
                decoy = BASE64.decode(secret).ok().and_then(|s| s.try_into().ok());
            }
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (user, hash) = line.split_once(':').ok_or_else(|| at(LineError::Form))?;
            if user.is_empty() {
                return Err(at(LineError::Form));
            }
            let hash = Hash::parse(hash).ok_or_else(|| at(LineError::Hash))?;
            if let Hash::Scram(credential) = &hash {
                iterations.get_or_insert(credential.iterations);
            }
            if users.insert(user.into(), hash).is_some() {
                return Err(at(LineError::Twice));
            }
            if users.len() > USERS_MAX {
                return Err(at(LineError::TooMany));
            }
        }
        Ok(Self {
            users,
            // Not known to those who do not know the file; changes with it.
            decoy: decoy.unwrap_or_else(|| Sha256::digest(text).into()),
            iterations: iterations.unwrap_or(ITERATIONS_DEFAULT),
        })
    }

    /// The users, each with a number that changes with the password.
    #[must_use]
    pub fn users(&self) -> BTreeMap<Text, u64> {
        let number = |hash: &Hash| {
            let mut hasher = DefaultHasher::new();
            match hash {
                Hash::Scram(credential) => {
                    (&credential.salt, credential.stored_key).hash(&mut hasher);
                }
                Hash::Mosquitto { salt, hash, .. } => (salt, hash).hash(&mut hasher),
            }
            hasher.finish()
        };
        let users = self.users.iter();
        users
            .map(|(user, hash)| (Text::from(&**user), number(hash)))
            .collect()
    }

    /// How many users there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Whether there is a user of this name.
    #[must_use]
    pub fn has(&self, user: &str) -> bool {
        self.users.contains_key(user)
    }

    /// Whether there is no user.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Whether this is the user's password. Takes milliseconds, also for users
    /// that do not exist, so that the time it takes does not show them.
    #[must_use]
    pub fn verify(&self, user: &str, password: &[u8]) -> bool {
        match self.users.get(user) {
            Some(hash) => hash.verify(password),
            None => {
                let unknown = Hash::Scram(self.decoy_credential(user));
                // Never true: no password fits made-up keys.
                unknown.verify(password) && self.users.contains_key(user)
            }
        }
    }

    /// What SCRAM needs of a user; made up for users that do not exist or have
    /// no such hash, the same each time.
    #[must_use]
    pub fn scram(&self, user: &str) -> ScramCredential {
        match self.users.get(user) {
            Some(Hash::Scram(credential)) => credential.clone(),
            _ => self.decoy_credential(user),
        }
    }

    /// A fingerprint of user and password for a cache; useless without `key`.
    #[must_use]
    pub(super) fn fingerprint(key: &[u8; 32], user: &str, password: &[u8]) -> [u8; 32] {
        let length = user.len().to_be_bytes();
        keyed(key, &[&length, user.as_bytes(), password])
    }

    fn decoy_credential(&self, user: &str) -> ScramCredential {
        let part = |label: &str| keyed(&self.decoy, &[label.as_bytes(), user.as_bytes()]);
        ScramCredential {
            salt: Bytes::copy_from_slice(&part("salt:")[..SALT_BYTES]),
            iterations: self.iterations,
            stored_key: part("stored:"),
            server_key: part("server:"),
        }
    }
}

fn keyed(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    let mut block = hmac::digest::Key::<Hmac<Sha256>>::default();
    for (to, from) in block.iter_mut().zip(key) {
        *to = *from;
    }
    let mut mac = Hmac::<Sha256>::new(&block);
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// What to do with a user of a file.
#[derive(Clone, Copy)]
pub enum Change<'a> {
    /// Add the user, or give it this password.
    Set {
        /// Password.
        password: &'a [u8],
        /// Iterations of its hash.
        iterations: u32,
    },
    /// Take the user out.
    Delete,
}

/// The text of a password file with one user changed; other lines stay as they
/// are. `text` is `None` for a file that does not exist yet.
///
/// # Errors
/// The name or the iterations cannot be used, or there is no such user to
/// delete; `path` is named in errors.
pub fn changed(
    path: &Path,
    text: Option<&str>,
    user: &str,
    change: Change<'_>,
) -> Result<String, PasswordError> {
    let usable = !user.is_empty()
        && user.len() <= USER_BYTES_MAX
        && !user.starts_with('#')
        && !user.contains(|c: char| c == ':' || c.is_control());
    if !usable {
        return Err(PasswordError::User(user.into()));
    }
    let is_user = |line: &str| line.split_once(':').is_some_and(|(name, _)| name == user);
    let old = text.unwrap_or_default();
    let mut new = match change {
        Change::Delete if !old.lines().any(is_user) => {
            return Err(PasswordError::NoUser {
                path: path.into(),
                user: user.into(),
            });
        }
        Change::Delete => None,
        Change::Set {
            password,
            iterations,
        } => Some(line(user, password, iterations)?),
    };
    let mut out = String::with_capacity(old.len() + 256);
    if !old.lines().any(|line| line.starts_with(DECOY_PREFIX)) {
        push_line(
            &mut out,
            &format!("{DECOY_PREFIX}{}", BASE64.encode(random::<32>()?)),
        );
    }
    for line in old.lines() {
        if is_user(line) {
            // In its old place; further lines of the same user go.
            if let Some(new) = new.take() {
                push_line(&mut out, &new);
            }
        } else {
            push_line(&mut out, line);
        }
    }
    if let Some(new) = new {
        push_line(&mut out, &new);
    }
    Ok(out)
}

fn push_line(out: &mut String, line: &str) {
    out.push_str(line);
    out.push('\n');
}

fn line(user: &str, password: &[u8], iterations: u32) -> Result<String, PasswordError> {
    if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations) {
        return Err(PasswordError::Iterations(iterations));
    }
    let salt = random::<SALT_BYTES>()?;
    let keys = StoredKeys::derive(password, &salt, iterations);
    let mut line = String::new();
    // Writing to a string does not fail.
    let _ = write!(
        line,
        "{user}:{SCRAM_PREFIX}{iterations}:{}${}:{}",
        BASE64.encode(salt),
        BASE64.encode(keys.stored_key),
        BASE64.encode(keys.server_key)
    );
    Ok(line)
}

fn random<const N: usize>() -> Result<[u8; N], PasswordError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(PasswordError::Random)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: Option<&str>, user: &str, password: &str) -> String {
        let change = Change::Set {
            password: password.as_bytes(),
            iterations: ITERATIONS_MIN,
        };
        changed(Path::new("p"), text, user, change).expect("changed")
    }

    #[test]
    fn users_come_change_and_go() {
        let one = set(None, "alice", "one");
        let two = set(Some(&one), "bob", "two") + "# by hand\n";
        let three = set(Some(&two), "alice", "three");
        let passwords = Passwords::parse(&three).expect("valid");
        assert_eq!(passwords.len(), 2);
        assert!(passwords.verify("alice", b"three") && passwords.verify("bob", b"two"));
        for (user, password) in [("alice", "one"), ("bob", ""), ("eve", "three"), ("", "")] {
            assert!(!passwords.verify(user, password.as_bytes()), "{user}");
        }
        let four = changed(Path::new("p"), Some(&three), "alice", Change::Delete).expect("gone");
        assert!(four.contains("# by hand\n") && !four.contains("alice"));
        let error = changed(Path::new("p"), Some(&four), "alice", Change::Delete);
        let error = error.expect_err("gone").to_string();
        assert_eq!(error, "there is no user `alice` in p");
        // What says who is a decoy stays the same.
        assert_eq!(one.lines().next(), four.lines().next());
    }

    #[test]
    fn lines_of_postgresql_and_mosquitto_are_understood() {
        // RFC 7677 section 3: user "user", password "pencil".
        let scram = "user:SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
            WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
            wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
        // mosquitto_passwd 2.0: password "pw".
        let old = "old:$7$101$lE8GLadD+lZl6YAk$\
            dyx1SXrQ2DjyxPdkOeA/MVmPoS1k1K33Eo0dXhH35QZ4ES22+JSlfZZthAo/\
            W8aq/U0YVtmrUJI3w7+I+xGCMg==";
        let text = format!("{scram}\r\n\n{old}\n");
        let passwords = Passwords::parse(&text).expect("valid");
        assert!(passwords.verify("user", b"pencil"));
        assert!(!passwords.verify("user", b"pencils"));
        assert!(passwords.verify("old", b"pw"));
        assert!(!passwords.verify("old", b"Pw"));
    }

    #[test]
    fn unknown_users_look_like_known_ones() {
        let text = set(None, "alice", "x");
        let again = set(Some(&text), "bob", "y");
        let (a, b) = (
            Passwords::parse(&text).expect("valid"),
            Passwords::parse(&again).expect("valid"),
        );
        let real = a.scram("alice");
        let made_up = a.scram("eve");
        assert_eq!(made_up, b.scram("eve"), "stays when others come");
        assert_ne!(made_up.salt, a.scram("mallory").salt);
        assert_eq!(made_up.salt.len(), real.salt.len());
        assert_eq!(made_up.iterations, real.iterations);
    }

    #[test]
    fn mistakes_name_their_line_and_not_its_contents() {
        let cases = [
            ("\nalice", "p:2: expected USER:HASH"),
            (":x", "p:1: expected USER:HASH"),
            (
                "alice:hunter2",
                "p:1: the hash is neither SCRAM-SHA-256 nor mosquitto's $7$ form; `dunlin passwd` makes one",
            ),
            (
                "a:SCRAM-SHA-256$0:AA==$AA==:AA==",
                "p:1: the hash is neither",
            ),
            ("a:$7$101$AA==$AA==", "p:1: the hash is neither"),
        ];
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("p");
        for (text, sentence) in cases {
            std::fs::write(&path, text).expect("written");
            let error = Passwords::load(&path).expect_err(text).to_string();
            let prefix = format!("{}/", dir.path().display());
            assert!(error.replace(&prefix, "").starts_with(sentence), "{error}");
        }
        let line = set(None, "a", "x");
        let line = line.lines().last().expect("line");
        let twice = Passwords::parse(&format!("{line}\n{line}")).expect_err("twice");
        assert_eq!(twice, (2, LineError::Twice));
        let error = Passwords::load(&dir.path().join("none")).expect_err("missing");
        let error = error.to_string();
        assert!(
            error.starts_with("cannot read the password file "),
            "{error}"
        );
    }

    #[test]
    fn names_and_iterations_are_checked() {
        let try_set = |user: &str, iterations| {
            let change = Change::Set {
                password: b"x",
                iterations,
            };
            changed(Path::new("p"), None, user, change)
        };
        for user in ["", "a:b", "#a", "a\nb"] {
            try_set(user, ITERATIONS_MIN).expect_err(user);
        }
        let error = try_set("a", 1000).expect_err("too few").to_string();
        assert_eq!(
            error,
            "the number of iterations must be from 4096 to 1000000, not 1000"
        );
        try_set("Ünïcode with spaces", ITERATIONS_MIN).expect("fine");
    }
}
