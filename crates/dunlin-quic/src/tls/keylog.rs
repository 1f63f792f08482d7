//! A file of the secrets of TLS connections, for people who read captures of
//! their own traffic: the format is that of the variable `SSLKEYLOGFILE`, which
//! Wireshark and curl know. Who has the file reads everything.

use core::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::TlsError;

/// A file that secrets are appended to. Handshakes write to it, data does not.
#[derive(Clone)]
pub struct KeyLog {
    file: Arc<Mutex<File>>,
}

impl KeyLog {
    /// Opens the file, for its owner alone when it is new.
    ///
    /// # Errors
    /// It cannot be opened or made.
    pub fn append(path: &Path) -> Result<Self, TlsError> {
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path).map_err(|source| TlsError::KeyLog {
            path: path.into(),
            source,
        })?;
        Ok(Self {
            file: Arc::new(Mutex::new(file)),
        })
    }
}

impl rustls::KeyLog for KeyLog {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let mut line = format!("{label} ");
        hex(&mut line, client_random);
        line.push(' ');
        hex(&mut line, secret);
        line.push('\n');
        // One write, so that lines of two processes do not mix.
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(line.as_bytes()) {
            tracing::warn!(%error, "a secret could not be logged");
        }
    }
}

fn hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            out.push(char::from_digit(u32::from(digit), 16).unwrap_or('?'));
        }
    }
}

impl fmt::Debug for KeyLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyLog(..)")
    }
}
