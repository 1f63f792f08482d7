//! `[redirect]`: clients that another server is to serve.

use dunlin_base::{Text, topic};
use dunlin_broker as broker;
use serde::{Deserialize, Serialize};

use super::error::Wrong;

/// Most rules for links: each attach is compared with them in turn.
const LINKS_MAX: usize = 64;

/// Most bytes of a host name or a Server Reference.
const HOST_BYTES_MAX: usize = 255;

/// Most bytes of an address.
const ADDRESS_BYTES_MAX: usize = 512;

/// `[redirect]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Redirect {
    /// Server Reference for all clients of MQTT.
    pub mqtt: Option<String>,
    /// Server for all clients of AMQP.
    pub amqp: Option<Server>,
    /// Servers for links of AMQP.
    pub links: Vec<Link>,
}

/// Where another server is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Server {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// Links to some addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Link {
    /// Topic filter of these.
    pub addresses: String,
    /// Name or address of the server.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The address there, if that is not the same.
    pub address: Option<String>,
}

/// The rules as the broker takes them.
pub(crate) fn redirect(redirect: &Redirect) -> broker::Redirect {
    let server = |host: &str, port| broker::Server {
        host: Text::from(host),
        port,
    };
    let links = redirect.links.iter().map(|link| broker::LinkRedirect {
        filter: Text::from(link.addresses.as_str()),
        server: server(&link.host, link.port),
        address: link.address.as_deref().map(Text::from),
    });
    let amqp = redirect.amqp.as_ref();
    broker::Redirect {
        mqtt: redirect.mqtt.as_deref().map(Text::from),
        amqp: amqp.map(|it| server(&it.host, it.port)),
        links: links.collect(),
    }
}

/// Whether a text can be part of an answer, and is a word.
fn is_word(text: &str, bytes_max: usize) -> bool {
    let is_plain = |c: char| !c.is_control() && !c.is_whitespace();
    !text.is_empty() && text.len() <= bytes_max && text.chars().all(is_plain)
}

fn check_server(host: &str, port: u16) -> Result<(), (&'static str, String)> {
    if !is_word(host, HOST_BYTES_MAX) {
        return Err(("host", format!("'{host}' is no name and no address")));
    }
    if port == 0 {
        return Err(("port", "a server has no port 0".into()));
    }
    Ok(())
}

fn check_link(link: &Link) -> Result<(), (&'static str, String)> {
    let filter = &link.addresses;
    if topic::validate_filter(filter).is_err() || filter.starts_with("$share/") {
        return Err(("addresses", format!("'{filter}' is not a topic filter")));
    }
    if let Some(address) = &link.address
        && !is_word(address, ADDRESS_BYTES_MAX)
    {
        return Err(("address", format!("'{address}' is no address")));
    }
    check_server(&link.host, link.port)
}

impl Redirect {
    /// What is wrong with it.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        if let Some(reference) = &self.mqtt
            && !is_word(reference, HOST_BYTES_MAX)
        {
            return Err(("mqtt", format!("'{reference}' is no HOST or HOST:PORT")));
        }
        if let Some(server) = &self.amqp {
            check_server(&server.host, server.port).map_err(|(_, why)| ("amqp", why))?;
        }
        if self.links.len() > LINKS_MAX {
            return Err(("links", format!("there are more than {LINKS_MAX}")));
        }
        let mut links = self.links.iter().enumerate();
        links.try_for_each(|(index, link)| {
            let wrong = |(key, why)| ("links", format!("{index}.{key}: {why}"));
            check_link(link).map_err(wrong)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(addresses: &str, host: &str, port: u16, address: Option<&str>) -> Link {
        Link {
            addresses: addresses.into(),
            host: host.into(),
            port,
            address: address.map(String::from),
        }
    }

    #[test]
    fn what_leads_nowhere_is_refused() {
        let of = |links| Redirect {
            links,
            ..Redirect::default()
        };
        let good = link("a/#", "two.example", 5671, Some("b/c"));
        assert_eq!(of(vec![good.clone(); LINKS_MAX]).check(), Ok(()));
        let wrong = of(vec![good.clone(); LINKS_MAX + 1]).check();
        assert_eq!(wrong.expect_err("too many").0, "links");
        let long = "x".repeat(600);
        for bad in [
            link("a/#/b", "h", 1, None),
            link("$share/g/a", "h", 1, None),
            link("a", "", 1, None),
            link("a", "h h", 1, None),
            link("a", "h\n", 1, None),
            link("a", &long, 1, None),
            link("a", "h", 0, None),
            link("a", "h", 1, Some("")),
            link("a", "h", 1, Some(&long)),
        ] {
            let wrong = of(vec![good.clone(), bad]).check();
            let (key, why) = wrong.expect_err("wrong");
            assert!(key == "links" && why.starts_with("1."), "{why}");
        }
        for (mqtt, amqp) in [(Some(""), None), (Some("a b"), None), (None, Some(0))] {
            let redirect = Redirect {
                mqtt: mqtt.map(String::from),
                amqp: amqp.map(|port| Server {
                    host: "h".into(),
                    port,
                }),
                links: Vec::new(),
            };
            redirect.check().expect_err("wrong");
        }
    }
}
