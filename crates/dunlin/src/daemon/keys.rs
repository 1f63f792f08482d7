//! The secret from which QUIC keys are derived. It outlives the process, so
//! that clients of the process before learn at once that their connection
//! is gone (stateless reset), and their address tokens stay good.

use std::io;
use std::path::Path;

use dunlin_net::{NET_SECRET_BYTES, NetKeys};

use super::StartError;
use crate::files::{self, Access};

/// Name of the file in the data directory.
const FILE: &str = "quic.key";
/// First line of the file; another one is another layout.
const TITLE: &str = "dunlin quic key 1";

/// The keys of this data directory, made when it has none.
pub(super) fn load(data_dir: &Path) -> Result<NetKeys, StartError> {
    let path = data_dir.join(FILE);
    let wrong = |source| StartError::Key {
        path: path.clone(),
        source,
    };
    match std::fs::read(&path) {
        Ok(text) => match parse(&text) {
            Some(secret) => return Ok(NetKeys::derived(&secret)),
            None => tracing::warn!(
                path = %path.display(),
                "the QUIC key is damaged and was replaced; clients connect again"
            ),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(wrong(error)),
    }
    let mut secret = [0; NET_SECRET_BYTES];
    getrandom::fill(&mut secret).map_err(|e| wrong(io::Error::other(e)))?;
    files::replace(&path, text(&secret).as_bytes(), Access::Private).map_err(wrong)?;
    Ok(NetKeys::derived(&secret))
}

/// The keys of this data directory, if it has any; makes none.
pub(super) fn existing(data_dir: &Path) -> Result<Option<NetKeys>, StartError> {
    let path = data_dir.join(FILE);
    match std::fs::read(&path) {
        Ok(text) => Ok(parse(&text).map(|secret| NetKeys::derived(&secret))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StartError::Key { path, source }),
    }
}

fn text(secret: &[u8; NET_SECRET_BYTES]) -> String {
    use core::fmt::Write as _;
    let mut text = format!("{TITLE}\n");
    for byte in secret {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\n');
    text
}

fn parse(text: &[u8]) -> Option<[u8; NET_SECRET_BYTES]> {
    let text = core::str::from_utf8(text).ok()?;
    let digits = text.strip_prefix(TITLE)?.strip_prefix('\n')?;
    let digits = digits.strip_suffix('\n')?;
    let mut secret = [0; NET_SECRET_BYTES];
    super::tickets::unhex(digits, &mut secret).then_some(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_is_made_once_kept_private_and_replaced_when_damaged() {
        let dir = tempfile::tempdir().expect("directory");
        let first = load(dir.path()).expect("made");
        let again = load(dir.path()).expect("read");
        assert_eq!(first.reset, again.reset);
        assert_ne!(first.reset, first.token);
        let path = dir.path().join(FILE);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = std::fs::metadata(&path)
                .expect("there")
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let whole = std::fs::read(&path).expect("read");
        for damaged in [&whole[..whole.len() - 3], b"", &b"dunlin quic key 2\n"[..]] {
            std::fs::write(&path, damaged).expect("written");
            let other = load(dir.path()).expect("replaced");
            assert_ne!(first.reset, other.reset);
        }
    }
}
