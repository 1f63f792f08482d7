//! The broker's own settings while it runs: read again, shown, changed.

use std::sync::PoisonError;

use super::plane::{Outcome, Plane};
use super::reloading::Reloaded;
use super::topics::bad;
use super::values::{Page, Reply, Setting};
use crate::causes::sentence;
use crate::config::Config;

/// Reads users, rules, certificates, tokens and the configuration again.
pub(super) fn reload(plane: &Plane) -> Outcome {
    let Reloaded { changed, restart } = plane.reload().map_err(|error| bad(sentence(&error)))?;
    Ok(Reply::Reloaded { changed, restart })
}

/// Changes what the log writes, until the next start or reload.
pub(super) fn set_level(plane: &Plane, filter: &str) -> Outcome {
    let changed = crate::log::change(filter);
    changed.map_err(|error| bad(error.to_string()))?;
    let mut level = plane.level.lock().unwrap_or_else(PoisonError::into_inner);
    filter.clone_into(&mut level);
    Ok(Reply::LogLevel {
        filter: filter.to_owned(),
    })
}

/// What the log writes.
pub(super) fn level(plane: &Plane) -> Outcome {
    let level = plane.level.lock().unwrap_or_else(PoisonError::into_inner);
    let filter = level.clone();
    Ok(Reply::LogLevel { filter })
}

/// Limits as they are, with what is not the default.
pub(super) fn limits(plane: &Plane) -> Outcome {
    let table = |config: &Config| toml::Table::try_from(&config.limits).unwrap_or_default();
    let (here, default) = (table(&plane.in_force()), table(&Config::default()));
    let rows = here.into_iter().map(|(key, value)| Setting {
        default: default.get(&key) == Some(&value),
        value: shown(&value),
        key: format!("limits.{key}"),
        file: None,
    });
    let rows = rows.collect();
    Ok(Reply::Settings(Page { rows, next: None }))
}

/// A value as a person writes it.
pub(super) fn shown(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
