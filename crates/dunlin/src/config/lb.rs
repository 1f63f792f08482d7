//! `[quic.lb]`: connection ids that a load balancer can read.

use core::fmt;

use dunlin_net::{CidCodec, LbConfig, LbError};
use serde::{Deserialize, Serialize};

use super::error::Wrong;

/// Server id and nonce fill one block of the cipher, where they can.
const BLOCK: usize = 16;
/// Shortest nonce: two octets for the shard, six random ones.
const NONCE_MIN: usize = 8;

/// Whether connection ids carry a server id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// They do not.
    #[default]
    Off,
    /// For everyone to read.
    Plaintext,
    /// For those who have the key.
    Encrypted,
}

/// 32 hexadecimal digits that are not shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(String);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// `[quic.lb]`: connection ids in the layout of QUIC-LB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Lb {
    /// Whether, and how.
    pub mode: Mode,
    /// Which of the load balancer's configurations it is.
    pub rotation: u8,
    /// This server, in hexadecimal.
    pub server_id: Option<String>,
    /// Octets that make an id unique.
    pub nonce: Option<usize>,
    /// Common to all servers and their load balancer.
    pub key: Option<Key>,
    /// Whether the first octet tells the length.
    pub length: bool,
}

impl Default for Lb {
    fn default() -> Self {
        Self {
            mode: Mode::Off,
            rotation: 0,
            server_id: None,
            nonce: None,
            key: None,
            length: true,
        }
    }
}

impl Lb {
    /// The layout of connection ids; `None`: without a server id.
    ///
    /// # Errors
    /// What is wrong, as key and sentence.
    pub fn layout(&self) -> Result<Option<LbConfig>, Wrong> {
        let wrong = |key, why: &str| Err((key, why.to_owned()));
        let key = match (self.mode, &self.key) {
            // What else is given waits for it to be switched on.
            (Mode::Off, _) => return Ok(None),
            (Mode::Plaintext, None) => None,
            (Mode::Plaintext, Some(_)) => {
                return wrong("lb.key", "a key is used by mode \"encrypted\" only");
            }
            (Mode::Encrypted, None) => return wrong("lb.key", "mode \"encrypted\" needs a key"),
            (Mode::Encrypted, Some(key)) => Some(parse_key(&key.0).map_err(|why| ("lb.key", why))?),
        };
        let Some(digits) = &self.server_id else {
            return wrong("lb.server_id", "connection ids need the id of this server");
        };
        let server_id = unhex(digits).map_err(|why| ("lb.server_id", why))?;
        let nonce = self.nonce.unwrap_or_else(|| default_nonce(server_id.len()));
        let named = |error: LbError| {
            let key = match error {
                LbError::Rotation(_) => "lb.rotation",
                LbError::ServerId(_) => "lb.server_id",
                LbError::Key => "lb.key",
                _ => "lb.nonce",
            };
            (key, error.to_string())
        };
        let layout = LbConfig::new(self.rotation, &server_id, nonce, key).map_err(named)?;
        let layout = layout.tell_length(self.length);
        CidCodec::new([0; 16], 1, Some(layout.clone())).map_err(named)?;
        Ok(Some(layout))
    }

    /// What is wrong with it, as key and sentence.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        self.layout().map(|_| ())
    }
}

/// Octets of a nonce beside a server id of so many: one block of the cipher
/// together, where that leaves enough.
fn default_nonce(server_id: usize) -> usize {
    BLOCK.saturating_sub(server_id).max(NONCE_MIN)
}

/// A key of 16 octets.
///
/// # Errors
/// It is something else.
pub fn parse_key(digits: &str) -> Result<[u8; 16], String> {
    let bytes = unhex(digits)?;
    let len = bytes.len();
    bytes
        .try_into()
        .map_err(|_| format!("a key has 32 hexadecimal digits, not {}", len * 2))
}

/// Octets from hexadecimal digits.
///
/// # Errors
/// They are not pairs of such digits.
pub fn unhex(digits: &str) -> Result<Vec<u8>, String> {
    if let Some(other) = digits.chars().find(|c| !c.is_ascii_hexdigit()) {
        return Err(format!("{other:?} is not a hexadecimal digit"));
    }
    if digits.len() % 2 == 1 {
        let len = digits.len();
        return Err(format!(
            "{len} hexadecimal digits are half an octet too many"
        ));
    }
    let value = |c: u8| char::from(c).to_digit(16).unwrap_or(0) as u8;
    let (pairs, _) = digits.as_bytes().as_chunks::<2>();
    Ok(pairs
        .iter()
        .map(|[a, b]| value(*a) << 4 | value(*b))
        .collect())
}
