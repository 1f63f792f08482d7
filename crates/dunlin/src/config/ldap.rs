//! `auth.ldap`: a directory that is asked who clients are.

use core::time::Duration;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::asking::{WhenDown, check_bounds, eight, one_minute, two_seconds};
use super::error::Wrong;
use super::units::Span;
use super::web;
use crate::auth::ldap_names::{Filter, is_attribute};

/// Longest time for which a right password counts without asking again.
const CACHE_MAX: Duration = Duration::from_secs(60 * 60);

/// What stands for the name of a user.
const USER: &str = "{user}";

/// A directory that is asked who clients are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Ldap {
    /// Where: `ldaps://HOST[:PORT]` or `ldap://HOST[:PORT]`.
    pub url: String,
    /// TLS begins on a connection that is not encrypted at first.
    #[serde(default)]
    pub start_tls: bool,
    /// Authorities of the directory; absent: those of the system.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// Name of the entry of a user, with `{user}` in it; absent: it is searched for.
    #[serde(default)]
    pub user_dn: Option<String>,
    /// Where users are searched.
    #[serde(default)]
    pub base: Option<String>,
    /// What finds a user, with `{user}` in it.
    #[serde(default)]
    pub filter: Option<String>,
    /// Who searches; absent: that is not said.
    #[serde(default)]
    pub bind_dn: Option<String>,
    /// The password of who searches.
    #[serde(default)]
    pub bind_password_file: Option<PathBuf>,
    /// Attribute that is the name of a user, as clients write it.
    #[serde(default = "uid")]
    pub user_attribute: String,
    /// Attribute with the groups of a user; empty: none are read.
    #[serde(default = "member_of")]
    pub group_attribute: String,
    /// Groups that count; all when absent.
    #[serde(default)]
    pub groups: Option<Vec<String>>,
    /// Time for a question and its answer.
    #[serde(default = "two_seconds")]
    pub timeout: Span,
    /// Questions at a time, on as many threads and connections.
    #[serde(default = "eight")]
    pub connections: u32,
    /// Time for which a right password counts without asking again.
    #[serde(default = "one_minute")]
    pub cache: Span,
    /// What is done without an answer.
    #[serde(default)]
    pub when_down: WhenDown,
}

/// How the entry of a user is found.
pub(crate) enum Finding<'a> {
    /// By its name.
    Template(&'a str),
    /// By a search.
    Search { base: &'a str, filter: Filter },
}

fn uid() -> String {
    "uid".into()
}

fn member_of() -> String {
    "memberOf".into()
}

impl Ldap {
    /// Whether passwords travel encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.start_tls || self.url.starts_with("ldaps://")
    }

    /// Host and port.
    pub(crate) fn place(&self) -> (&str, u16) {
        let (scheme, rest) = self.url.split_once("://").unwrap_or_default();
        let usual = if scheme == "ldaps" { 636 } else { 389 };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let host = web::host(authority);
        let port = authority
            .rsplit_once(':')
            .filter(|(_, it)| !it.contains(']'));
        let port = port.and_then(|(_, port)| port.parse().ok());
        (host, port.unwrap_or(usual))
    }

    /// How the entry of a user is found.
    pub(crate) fn finding(&self) -> Finding<'_> {
        match &self.user_dn {
            Some(template) => Finding::Template(template),
            None => Finding::Search {
                base: self.base.as_deref().unwrap_or_default(),
                filter: Filter::parse(self.filter.as_deref().unwrap_or_default())
                    .unwrap_or_else(|_| Filter::Equal(uid(), USER.into())),
            },
        }
    }

    /// What is wrong with it, as key and sentence.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        self.check_url().map_err(|why| ("ldap.url", why))?;
        check_bounds(
            ["ldap.timeout", "ldap.connections"],
            self.timeout.0,
            self.connections,
        )?;
        if self.cache.0 > CACHE_MAX {
            return Err(("ldap.cache", format!("is more than {}", Span(CACHE_MAX))));
        }
        for (key, name) in [
            ("ldap.user_attribute", &self.user_attribute),
            ("ldap.group_attribute", &self.group_attribute),
        ] {
            let may_be_empty = key == "ldap.group_attribute" && name.is_empty();
            if !is_attribute(name) && !may_be_empty {
                return Err((key, format!("`{name}` is no name of an attribute")));
            }
        }
        self.check_finding()
    }

    fn check_url(&self) -> Result<(), String> {
        let (scheme, rest) = self.url.split_once("://").unwrap_or_default();
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let port = authority
            .rsplit_once(':')
            .filter(|(_, it)| !it.contains(']'));
        let is_port = port.is_none_or(|(_, port)| port.parse::<u16>().is_ok_and(|it| it > 0));
        let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | '?' | '#' | '@');
        if web::host(authority).is_empty() || !authority.chars().all(is_plain) || !is_port {
            return Err("is not a URL such as ldaps://host or ldap://host:389".into());
        }
        match scheme {
            "ldaps" if self.start_tls => Err("needs no start_tls: ldaps is encrypted".into()),
            "ldaps" => Ok(()),
            "ldap" if self.start_tls || web::is_here(web::host(authority)) => Ok(()),
            "ldap" => {
                Err("must be ldaps://, or have start_tls, because it is not on this machine".into())
            }
            _ => Err("must begin with ldaps:// or ldap://".into()),
        }
    }

    fn check_finding(&self) -> Result<(), Wrong> {
        let wrong = |key, why: &str| Err((key, why.to_owned()));
        let searches = [
            ("ldap.base", self.base.is_some()),
            ("ldap.filter", self.filter.is_some()),
            ("ldap.bind_dn", self.bind_dn.is_some()),
            ("ldap.bind_password_file", self.bind_password_file.is_some()),
        ];
        if let Some(template) = &self.user_dn {
            if !template.contains(USER) {
                return wrong("ldap.user_dn", "has no `{user}`");
            }
            return match searches.iter().find(|(_, is_set)| *is_set) {
                Some((key, _)) => wrong(key, "is for a search, which `user_dn` replaces"),
                None => Ok(()),
            };
        }
        let (Some(_), Some(filter)) = (&self.base, &self.filter) else {
            return wrong("ldap.user_dn", "or both `base` and `filter` must be there");
        };
        let filter = Filter::parse(filter).map_err(|why| ("ldap.filter", why))?;
        if !filter.has_user() {
            return wrong("ldap.filter", "has no `{user}`");
        }
        match (&self.bind_dn, &self.bind_password_file) {
            (Some(name), Some(_)) if !name.is_empty() => Ok(()),
            (None, None) => Ok(()),
            _ => wrong("ldap.bind_dn", "and bind_password_file go together"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn check(text: &str) -> Result<Ldap, String> {
        let text = format!("[auth]\nldap = {{ {text} }}\n");
        let config = Config::parse(std::path::Path::new("f"), &text);
        let config = config.map_err(|error| error.to_string())?;
        Ok(config.auth.ldap.expect("there"))
    }

    #[test]
    fn passwords_travel_encrypted_or_not_at_all() {
        let dn = "user_dn = \"uid={user},dc=x\"";
        for (url, place) in [
            ("url = \"ldaps://h\"", ("h", 636)),
            ("url = \"ldaps://h:1636/\"", ("h", 1636)),
            ("url = \"ldap://h\", start_tls = true", ("h", 389)),
            ("url = \"ldap://127.0.0.1:3890\"", ("127.0.0.1", 3890)),
            ("url = \"ldap://[::1]\"", ("::1", 389)),
            ("url = \"ldap://[::1]:7\"", ("::1", 7)),
        ] {
            let ldap = check(&format!("{url}, {dn}")).expect(url);
            assert_eq!(ldap.place(), place, "{url}");
        }
        for (url, why) in [
            ("url = \"ldap://h\"", "start_tls"),
            ("url = \"ldap://localhost.example\"", "start_tls"),
            (
                "url = \"ldaps://h\", start_tls = true",
                "needs no start_tls",
            ),
            ("url = \"ldaps://\"", "is not a URL"),
            ("url = \"ldaps://u@h\"", "is not a URL"),
            ("url = \"ldaps://h:0\"", "is not a URL"),
            ("url = \"ldaps://h/dc=x\"", "is not a URL"),
            ("url = \"https://h\"", "must begin with ldaps://"),
        ] {
            let error = check(&format!("{url}, {dn}")).expect_err(url);
            assert!(error.contains(why), "{url}: {error}");
        }
    }

    #[test]
    fn an_entry_is_named_or_searched_for() {
        let url = "url = \"ldaps://h\"";
        for good in [
            "user_dn = \"cn={user}\"",
            "base = \"dc=x\", filter = \"(uid={user})\"",
            "base = \"dc=x\", filter = \"(uid={user})\", bind_dn = \"cn=s\", bind_password_file = \"f\"",
            "user_dn = \"cn={user}\", group_attribute = \"\", cache = \"0s\"",
        ] {
            check(&format!("{url}, {good}")).expect(good);
        }
        for (wrong, why) in [
            ("timeout = \"2s\"", "must be there"),
            ("user_dn = \"cn=user\"", "has no `{user}`"),
            (
                "user_dn = \"cn={user}\", base = \"dc=x\"",
                "is for a search",
            ),
            ("base = \"dc=x\"", "must be there"),
            (
                "base = \"dc=x\", filter = \"(uid=alice)\"",
                "has no `{user}`",
            ),
            ("base = \"dc=x\", filter = \"uid={user}\"", "is no filter"),
            (
                "base = \"dc=x\", filter = \"(uid={user})\", bind_dn = \"cn=s\"",
                "go together",
            ),
            ("user_dn = \"cn={user}\", cache = \"2h\"", "is more than"),
            ("user_dn = \"cn={user}\", timeout = \"1h\"", "100ms"),
            (
                "user_dn = \"cn={user}\", user_attribute = \"u v\"",
                "no name of",
            ),
        ] {
            let error = check(&format!("{url}, {wrong}")).expect_err(wrong);
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }
}
