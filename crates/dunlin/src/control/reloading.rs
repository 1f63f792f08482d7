//! What a reload does, no matter who asks for it: a signal, `dunlin ctl`, HTTP or the program
//! that the broker is part of.

use std::path::Path;
use std::sync::PoisonError;

use super::plane::Plane;
use crate::causes::sentence;
use crate::config::ConfigError;
use crate::daemon::error::StartError;

/// The key of the level of the log.
const LEVEL: &str = "log.level";

/// What a reload reads besides the configuration.
const FILES: &str = "users, rules, certificates and tokens";

/// What a reload has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reloaded {
    /// This is in force.
    pub changed: Vec<String>,
    /// Keys of the configuration that need a restart.
    pub restart: Vec<String>,
}

/// Why a reload has changed nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// The configuration cannot be read or has a mistake.
    #[error("{}", error.while_running(file))]
    Config {
        /// Its file.
        file: Box<Path>,
        /// What is wrong.
        error: ConfigError,
    },
    /// A file that it names cannot be read or has a mistake.
    #[error("{}; nothing has changed: what was read before stays in force", sentence(.0))]
    Files(StartError),
}

impl Plane {
    /// Reads users, rules, certificates and tokens again, and the configuration, of which
    /// it takes over what can change while the broker runs.
    ///
    /// # Errors
    /// A file cannot be read or has a mistake; then nothing changes.
    pub(crate) fn reload(&self) -> Result<Reloaded, ReloadError> {
        let reloaded = self.read_all_again();
        match &reloaded {
            Ok(Reloaded { changed, restart }) => {
                tracing::info!(?changed, ?restart, "configuration and files read again");
            }
            Err(error) => tracing::error!(%error, "nothing was reloaded"),
        }
        reloaded
    }

    fn read_all_again(&self) -> Result<Reloaded, ReloadError> {
        // Held from here on: one reload after the other.
        let mut in_force = self.in_force();
        // A mistake in any file leaves everything as it was.
        let fresh = self
            .config
            .read_again()
            .map_err(|error| ReloadError::Config {
                file: self.config.file().unwrap_or_else(|| Path::new("")).into(),
                error,
            })?;
        self.reload_files().map_err(ReloadError::Files)?;
        let next = in_force.succeeded_by(&fresh, &self.config);
        if !next.changed.is_empty() {
            self.reloader.set_limits(&next.config);
        }
        *in_force = next.config;
        let mut changed = vec![FILES.to_owned()];
        changed.extend(next.changed);
        let mut restart = next.restart;
        restart.retain(|key| key != LEVEL);
        let name = fresh.reports.log.level.name();
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        if *level != name && std::env::var_os(crate::log::VARIABLE).is_none() {
            match crate::log::change(name) {
                Ok(()) => {
                    changed.push(LEVEL.to_owned());
                    name.clone_into(&mut level);
                    in_force.reports.log.level = fresh.reports.log.level;
                }
                Err(_) => restart.push(LEVEL.to_owned()),
            }
        }
        Ok(Reloaded { changed, restart })
    }
}
