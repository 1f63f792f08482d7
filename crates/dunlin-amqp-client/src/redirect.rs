//! A server that names another one: what it says, and whether that is followed.

use core::fmt;
use std::sync::Arc;

use dunlin_amqp::codec::{Error, Map, Value};

/// Redirects that [`Builder::connect`](crate::Builder::connect) follows, one after
/// another.
pub(crate) const REDIRECTS_MAX: usize = 4;

/// Longest name or address that is believed.
const TEXT_BYTES_MAX: usize = 512;

/// Where another server is, as a server says. Nothing of it has been verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    pub(crate) hostname: Option<Arc<str>>,
    host: Arc<str>,
    port: u16,
    address: Option<Arc<str>>,
}

impl Redirect {
    /// What an error says; `None` if host or port are not there or cannot be.
    pub(crate) fn of(error: &Error<'_>) -> Option<Self> {
        let info = error.info?;
        let port = info.get("port").and_then(|port| number(&port));
        Some(Self {
            hostname: text(&info, "hostname"),
            host: text(&info, "network-host")?,
            port: port.filter(|port| *port > 0)?,
            address: text(&info, "address"),
        })
    }

    /// Name or address of the machine (`network-host`).
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of the node there, where a link is redirected.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }
}

/// A word of the map: no more than one can print and compare.
fn text(info: &Map<'_>, name: &str) -> Option<Arc<str>> {
    let value = info.get(name)?;
    let text = value.as_str()?;
    let is_plain = |c: char| !c.is_control() && !c.is_whitespace();
    let is_word = !text.is_empty() && text.len() <= TEXT_BYTES_MAX && text.chars().all(is_plain);
    is_word.then(|| text.into())
}

fn number(value: &Value<'_>) -> Option<u16> {
    let signed = || value.as_i64().and_then(|it| u16::try_from(it).ok());
    let number = value.as_u64().and_then(|it| u16::try_from(it).ok());
    number.or_else(signed)
}

impl fmt::Display for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port)?,
            false => write!(f, "{}:{}", self.host, self.port)?,
        }
        match &self.address {
            Some(address) => write!(f, ", address {address}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_amqp::codec::{Symbol, condition};

    fn redirect(entries: &[(&'static str, Value<'_>)]) -> Option<Redirect> {
        let entries = entries.iter();
        let entries: Vec<_> = entries
            .map(|(name, value)| (Value::Symbol(Symbol::from_static(name)), *value))
            .collect();
        Redirect::of(&Error {
            info: Some(Map::new(&entries)),
            ..Error::new(condition::LINK_REDIRECT, "")
        })
    }

    #[test]
    fn a_redirect_has_a_host_and_a_port() {
        let host = ("network-host", Value::String("two.example"));
        for port in [Value::Uint(5671), Value::Int(5671), Value::Ushort(5671)] {
            let found = redirect(&[host, ("port", port)]).expect("valid");
            assert_eq!(found.to_string(), "two.example:5671");
        }
        let port = ("port", Value::Uint(1));
        let address = ("address", Value::String("a/b"));
        let v6 = ("network-host", Value::String("::1"));
        let found = redirect(&[v6, port, address]).expect("valid");
        assert_eq!(found.to_string(), "[::1]:1, address a/b");
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        let of_host = |text| redirect(&[("network-host", Value::String(text)), port]);
        for wrong in ["", "a b", "a\r\nb", &long] {
            assert_eq!(of_host(wrong), None, "{wrong}");
        }
        let wrong = [
            Value::Uint(0),
            Value::Uint(65_536),
            Value::Int(-1),
            Value::String("5671"),
        ];
        for wrong in wrong {
            assert_eq!(redirect(&[host, ("port", wrong)]), None, "{wrong:?}");
        }
        assert_eq!(redirect(&[host]), None);
        assert_eq!(redirect(&[port]), None);
        assert_eq!(
            Redirect::of(&Error::new(condition::LINK_REDIRECT, "")),
            None
        );
    }
}
