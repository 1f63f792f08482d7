//! The broker's own settings while it runs: read again, shown, changed; users,
//! but no passwords.

use std::sync::PoisonError;

use super::plane::{Outcome, Plane, checked};
use super::topics::bad;
use super::values::{Code, Failure, Page, PageOf, Reply, Setting, User};
use crate::causes::sentence;
use crate::config::Config;

/// The key of the level of the log, which alone is changed without a restart.
const LEVEL: &str = "log.level";

/// What a reload reads besides the configuration.
const FILES: &str = "users, rules, certificates and tokens";

/// Reads users, rules, certificates and tokens again, and the configuration, of which it takes
/// over the level of the log; says what else has changed there.
pub(super) fn reload(plane: &Plane) -> Outcome {
    // A mistake in any file leaves everything as it was.
    let fresh = plane.config.read_again();
    let fresh = fresh.map_err(|error| bad(sentence(&error)))?;
    let reloaded = plane.reload_files();
    reloaded.map_err(|error| bad(sentence(&error)))?;
    let mut changed = vec![FILES.to_owned()];
    let mut restart = plane.config.differences(&fresh);
    restart.retain(|key| key != LEVEL);
    let name = fresh.reports.log.level.name();
    let mut level = plane.level.lock().unwrap_or_else(PoisonError::into_inner);
    if *level != name && std::env::var_os(crate::log::VARIABLE).is_none() {
        match crate::log::change(name) {
            Ok(()) => {
                changed.push(LEVEL.to_owned());
                name.clone_into(&mut level);
            }
            Err(_) => restart.push(LEVEL.to_owned()),
        }
    }
    tracing::info!(?restart, "files read again by an operator");
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
    let (here, default) = (table(&plane.config), table(&Config::default()));
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

/// Users of the password file.
pub(super) fn users(plane: &Plane, page: &PageOf) -> Outcome {
    let limit = checked(page)?;
    let access = plane.reloader.access();
    let Some(users) = &access.users else {
        let text = "there is no password file (auth.password_file)";
        return Err(Failure::new(Code::NotFound, text));
    };
    let after = page.after.as_deref().unwrap_or("");
    let names = users.keys().filter(|name| name.as_str() > after);
    let rows: Vec<User> = names
        .take(limit)
        .map(|name| User {
            name: name.to_string(),
        })
        .collect();
    let next = rows.last().filter(|_| rows.len() == limit);
    let next = next.map(|user| user.name.clone());
    Ok(Reply::Users(Page { rows, next }))
}
