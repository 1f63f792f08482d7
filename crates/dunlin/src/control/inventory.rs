//! What the broker was started with, as it is: configuration, listeners, certificates.
//! Secrets are not shown.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::plane::{Outcome, Plane};
use super::running::shown;
use super::values::{Certificate, Code, Failure, Listening, Page, Protocol, Reply, Setting};
use crate::causes::sentence;
use crate::certs;
use crate::config::Config;
use crate::config::listener::{Kind, Listener, Protocol as Spoken};
use crate::config::shown::hide;

/// The configuration as it runs, and where its file says something else by now. A file
/// that cannot be read says nothing.
pub(super) fn configuration(plane: &Plane) -> Outcome {
    let keys = |config: &Config| {
        let mut found = BTreeMap::new();
        let value = toml::Value::try_from(config);
        flatten(
            String::new(),
            &value.unwrap_or(toml::Value::Boolean(false)),
            &mut found,
        );
        found
    };
    let running = keys(&plane.in_force());
    let default = keys(&Config::default());
    let file = plane.config.read_again().map(|config| keys(&config));
    let file = file.as_ref().unwrap_or(&running);
    let all = running
        .keys()
        .chain(file.keys().filter(|key| !running.contains_key(*key)));
    let rows = all.map(|key| {
        let (here, there) = (running.get(key), file.get(key));
        let text = |value: Option<&String>| value.cloned().unwrap_or_default();
        Setting {
            key: key.clone(),
            value: text(here),
            default: here == default.get(key),
            file: (here != there).then(|| text(there)),
        }
    });
    let rows = rows.collect();
    Ok(Reply::Settings(Page { rows, next: None }))
}

/// Values by their dotted keys; tables in lists have numbers.
fn flatten(key: String, value: &toml::Value, found: &mut BTreeMap<String, String>) {
    let within = |name: &str| match key.as_str() {
        "" => name.to_owned(),
        key => format!("{key}.{name}"),
    };
    match value {
        toml::Value::Table(table) => {
            for (name, value) in table {
                flatten(within(name), value, found);
            }
        }
        toml::Value::Array(values) if values.iter().any(toml::Value::is_table) => {
            for (number, value) in values.iter().enumerate() {
                flatten(within(&number.to_string()), value, found);
            }
        }
        value => {
            let text = shown(&hidden(&key, value));
            found.insert(key, text);
        }
    }
}

/// Without what is secret in it.
fn hidden(key: &str, value: &toml::Value) -> toml::Value {
    match value {
        toml::Value::String(text) => hide(key, text).into(),
        toml::Value::Array(values) => {
            toml::Value::Array(values.iter().map(|it| hidden(key, it)).collect())
        }
        other => other.clone(),
    }
}

/// Where clients are accepted.
pub(super) fn listeners(plane: &Plane) -> Outcome {
    let rows = plane.bound.iter().filter_map(|bound| {
        let listener = plane.config.listener.get(bound.listener)?;
        let has_path = matches!(listener.transport, Kind::Ws | Kind::Wss);
        let protocols = listener.protocols().iter().map(|protocol| match protocol {
            Spoken::Mqtt => Protocol::Mqtt,
            Spoken::Amqp => Protocol::Amqp,
        });
        Some(Listening {
            listener: bound.listener,
            transport: bound.transport.name().to_owned(),
            address: bound.to_string(),
            path: has_path.then(|| listener.path().to_owned()),
            protocols: protocols.collect(),
        })
    });
    let rows = rows.collect();
    Ok(Reply::Listeners(Page { rows, next: None }))
}

/// Certificates of the listeners and of the HTTP door, as their files are now.
pub(super) fn certificates(plane: &Plane) -> Outcome {
    let config = &plane.config;
    let listeners = config.listener.iter().enumerate();
    let listeners = listeners.filter(|(_, it)| it.transport.transport().is_encrypted());
    let of_listeners = listeners.map(|(number, it)| (Some(number), file_of(config, it)));
    let http = config.control.http.tls.as_ref();
    let of_http = http.map(|files| (None, (files.cert.clone(), false)));
    let rows = of_listeners
        .chain(of_http)
        .map(|(listener, (path, development))| certificate(listener, &path, development));
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    Ok(Reply::Certificates(Page { rows, next: None }))
}

/// The file of a listener's certificate, and whether it is a development one.
fn file_of(config: &Config, listener: &Listener) -> (PathBuf, bool) {
    match &listener.tls {
        Some(tls) => (tls.cert.clone(), false),
        None => (
            config.certs_dir().join(certs::SERVER).with_extension("pem"),
            true,
        ),
    }
}

fn certificate(
    listener: Option<usize>,
    path: &Path,
    development: bool,
) -> Result<Certificate, Failure> {
    let found = certs::inspect(path);
    let found = found.map_err(|error| Failure::new(Code::Unavailable, sentence(&error)))?;
    let none = || Failure::new(Code::Unavailable, "a file of certificates is empty");
    let own = found.into_iter().next().ok_or_else(none)?;
    Ok(Certificate {
        listener,
        file: path.display().to_string(),
        development,
        subject: own.subject,
        names: own.names,
        not_before: own.not_before,
        not_after: own.not_after,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::shown::HIDDEN;

    #[test]
    fn secrets_are_hidden_and_lists_have_numbers() {
        let text = "a = 1\n[b]\npassword = 'x'\npassword_file = 'p'\n\
                    url = 'mqtts://ann:pw@h:1'\nurls = ['nats://u:p@h', 'tls://i']\nlist = [1, 2]\n[[c]]\nk = 'v'\n[[c]]\nk = 'w'\n";
        let value: toml::Table = text.parse().expect("toml");
        let mut found = BTreeMap::new();
        flatten(String::new(), &value.into(), &mut found);
        let of = |key: &str| found.get(key).map(String::as_str);
        assert_eq!(of("a"), Some("1"));
        assert_eq!(of("b.password"), Some(HIDDEN));
        assert_eq!(of("b.password_file"), Some("p"));
        assert_eq!(of("b.url"), Some("mqtts://(hidden)@h:1"));
        let urls = r#"["nats://(hidden)@h", "tls://i"]"#;
        assert_eq!(of("b.urls"), Some(urls));
        assert_eq!(of("b.list"), Some("[1, 2]"));
        assert_eq!((of("c.0.k"), of("c.1.k")), (Some("v"), Some("w")));
    }
}
