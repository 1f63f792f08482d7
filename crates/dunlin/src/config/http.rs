//! `[control.http]`: the HTTP door of the control plane.

use core::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::error::Wrong;

/// The file of tokens within the data directory.
pub(super) const TOKENS: &str = "tokens";

/// `[control.http]`: orders over HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Http {
    /// Where; nowhere when absent.
    pub address: Option<SocketAddr>,
    /// Names of this machine by which it may be asked, besides `localhost` and
    /// addresses.
    pub hosts: Vec<String>,
    /// Certificate and key; not encrypted when absent.
    pub tls: Option<Files>,
    /// Whether tokens may cross a network in the clear.
    pub plaintext: bool,
    /// Who may come; within the data directory when absent.
    pub tokens_file: Option<PathBuf>,
}

/// Files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Files {
    /// Certificate chain, in PEM.
    pub cert: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
}

impl Http {
    /// Web pages that the door serves, as browsers name them in `Origin`.
    pub(crate) fn origins(&self) -> impl Iterator<Item = String> {
        let address = self.address.filter(|address| address.port() != 0);
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let hosts = address.into_iter().flat_map(move |address| {
            let own = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned);
            let ip = match address.ip() {
                core::net::IpAddr::V4(ip) => ip.to_string(),
                core::net::IpAddr::V6(ip) => format!("[{ip}]"),
            };
            let named = self.hosts.iter().cloned();
            let all = own.into_iter().chain([ip]).chain(named);
            all.map(move |host| match (scheme, address.port()) {
                ("http", 80) | ("https", 443) => format!("{scheme}://{host}"),
                (_, port) => format!("{scheme}://{host}:{port}"),
            })
        });
        hosts.collect::<Vec<_>>().into_iter()
    }

    /// What is wrong with it, as key and sentence.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        let is_open = self
            .address
            .is_some_and(|address| !address.ip().is_loopback());
        if is_open && self.tls.is_none() && !self.plaintext {
            let why = "others reach this address, and tokens would cross the network in the \
                       clear: give tls, or say plaintext = true where a proxy in front encrypts";
            return Err(("address", why.into()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_cross_no_network_in_the_clear_by_mistake() {
        let mut http = Http::default();
        assert_eq!(http.check(), Ok(()));
        http.address = Some(([127, 0, 0, 1], 8085).into());
        assert_eq!(http.check(), Ok(()));
        http.address = Some(([0, 0, 0, 0], 8085).into());
        assert_eq!(http.check().expect_err("open").0, "address");
        http.plaintext = true;
        assert_eq!(http.check(), Ok(()));
        http.plaintext = false;
        http.tls = Some(Files {
            cert: "c".into(),
            key: "k".into(),
        });
        assert_eq!(http.check(), Ok(()));
    }

    #[test]
    fn the_pages_origins_are_those_of_the_door() {
        let mut http = Http::default();
        assert_eq!(http.origins().count(), 0);
        http.address = Some(([127, 0, 0, 1], 8085).into());
        http.hosts = vec!["broker.example".to_owned()];
        let origins: Vec<_> = http.origins().collect();
        for origin in [
            "http://localhost:8085",
            "http://127.0.0.1:8085",
            "http://broker.example:8085",
        ] {
            assert!(origins.iter().any(|it| it == origin), "{origins:?}");
        }
    }
}
