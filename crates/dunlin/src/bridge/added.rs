//! Bridges that operators have added while the broker ran: their file in the data
//! directory, and what they may be. The configuration file's bridges stay its own.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::config::Config;
use crate::config::bridge::{self, Bridge};
use crate::control::values::{Code, Failure};
use crate::daemon::error::StartError;
use crate::files::{self, Access};

/// Longest password of a bridge.
const PASSWORD_BYTES_MAX: usize = 65_535;

/// The bridges that were added.
#[derive(Debug)]
pub(crate) struct Added {
    path: PathBuf,
    bridges: Mutex<Vec<Bridge>>,
}

impl Added {
    /// Reads the file of a broker; without one there are none.
    ///
    /// # Errors
    /// It cannot be read, or has a bridge that cannot be, or that the configuration has.
    pub(crate) fn load(config: &Config) -> Result<Self, StartError> {
        let path = config.data_dir.join("bridges.json");
        let unusable = |source| StartError::AddedBridges {
            path: path.clone(),
            source,
        };
        let added: Vec<Bridge> = match std::fs::read(&path) {
            // Bridges are the home's.
            _ if config.is_edge() => Vec::new(),
            Ok(text) => serde_json::from_slice(&text).map_err(|it| unusable(it.into()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(unusable(error)),
        };
        if let Some(both) = added.iter().find(|it| is_configured(config, &it.name)) {
            return Err(StartError::Bridge {
                name: both.name.clone(),
                message: format!(
                    "it is in the configuration file, and was added before: give one of them \
                     another name, or take it out of {}",
                    path.display()
                ),
            });
        }
        let all = [config.bridge.as_slice(), &added].concat();
        if let Err((index, (key, why))) = bridge::check(&all) {
            let name = all.get(index).map_or("", |it| it.name.as_str());
            return Err(unusable(io::Error::other(format!("{name}: {key}: {why}"))));
        }
        let bridges = Mutex::new(added);
        Ok(Self { path, bridges })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Bridge>> {
        self.bridges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Bridge> {
        self.lock().clone()
    }

    /// Writes the file with another list, which is the list from then on.
    ///
    /// # Errors
    /// It cannot be written, and nothing has changed.
    pub(super) fn change(&self, change: impl FnOnce(&mut Vec<Bridge>)) -> Result<(), Failure> {
        let mut bridges = self.lock();
        let mut changed = bridges.clone();
        change(&mut changed);
        let written = serde_json::to_vec_pretty(&changed).map_err(io::Error::from);
        let written = written.and_then(|mut text| {
            text.push(b'\n');
            files::replace(&self.path, &text, Access::Private)
        });
        written.map_err(|error| {
            let text = format!("cannot write {}: {error}", self.path.display());
            Failure::new(Code::Unavailable, text)
        })?;
        *bridges = changed;
        Ok(())
    }
}

/// Whether the configuration file has a bridge of this name.
pub(super) fn is_configured(config: &Config, name: &str) -> bool {
    config.bridge.iter().any(|it| it.name == name)
}

/// What is wrong with a bridge beside others.
pub(super) fn check(others: &[Bridge], bridge: &Bridge) -> Result<(), Failure> {
    let all = [others, core::slice::from_ref(bridge)].concat();
    bridge::check(&all).map_err(|(_, (key, why))| {
        let text = format!("bridge {}: {key}: {why}", bridge.name);
        Failure::new(Code::BadRequest, text)
    })
}

/// Has a bridge use files of the folder for bridges only, by their names there: who may
/// add bridges cannot have the broker read others.
pub(super) fn confine(bridge: &mut Bridge, folder: &Path) -> Result<(), Failure> {
    let tls = &mut bridge.tls;
    let files = [
        &mut bridge.password_file,
        &mut tls.ca,
        &mut tls.cert,
        &mut tls.key,
    ];
    for file in files.into_iter().flatten() {
        let within = file.strip_prefix(folder).unwrap_or(file).to_path_buf();
        let mut parts = within.components();
        match (parts.next(), parts.next()) {
            (Some(Component::Normal(_)), None) => *file = folder.join(within),
            _ => {
                let text = format!(
                    "{} is not the name of a file in {}, where those of bridges that are added \
                     have to be",
                    file.display(),
                    folder.display()
                );
                return Err(Failure::new(Code::BadRequest, text));
            }
        }
    }
    Ok(())
}

/// Where the password of a bridge is kept that came with the order to add it.
pub(super) fn password_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.password"))
}

/// Keeps the password of a bridge.
pub(super) fn keep_password(
    bridge: &mut Bridge,
    folder: &Path,
    password: Option<&str>,
) -> Result<(), Failure> {
    let Some(password) = password else {
        return Ok(());
    };
    let refused = |text: &str| Err(Failure::new(Code::BadRequest, text));
    if bridge.password_file.is_some() || bridge.user.is_none() {
        return refused("a password needs a user, and no password_file beside it");
    }
    if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
        return refused("a password has 1 to 65535 bytes");
    }
    let path = password_path(folder, &bridge.name);
    let kept = files::replace(&path, password.as_bytes(), Access::Private);
    kept.map_err(|error| {
        let text = format!("cannot write {}: {error}", path.display());
        Failure::new(Code::Unavailable, text)
    })?;
    bridge.password_file = Some(path);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bridge(name: &str, more: &str) -> Bridge {
        let text = format!(
            "name = '{name}'\nurl = 'quic://h'\n{more}\n[[topic]]\npattern = 'a/#'\ndirection = 'out'\n"
        );
        toml::from_str(&text).expect("a bridge")
    }

    #[test]
    fn what_was_added_is_read_again_and_damage_is_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut config = Config::default();
        config.data_dir = dir.path().into();
        let added = Added::load(&config).expect("none");
        let one = bridge("one", "session_expiry = '1h'");
        added.change(|all| all.push(one.clone())).expect("written");
        assert_eq!(
            Added::load(&config).expect("read").all(),
            core::slice::from_ref(&one)
        );
        config.bridge = vec![one];
        let error = Added::load(&config).expect_err("two of a name").to_string();
        assert!(
            error.contains("bridge one: it is in the configuration file"),
            "{error}"
        );
        config.bridge.clear();
        std::fs::write(dir.path().join("bridges.json"), "[{").expect("written");
        Added::load(&config).expect_err("damaged");
    }

    #[test]
    fn files_are_those_of_the_folder() {
        let folder = Path::new("/data/bridges");
        let mut good = bridge("a", "user = 'u'\npassword_file = 'p'");
        confine(&mut good, folder).expect("a name");
        assert_eq!(good.password_file.as_deref(), Some(&*folder.join("p")));
        confine(&mut good, folder).expect("the same again");
        for path in [
            "/etc/shadow",
            "../x",
            "a/b",
            ".",
            "/data/bridges/../x",
            "/data/bridges",
        ] {
            let mut bad = bridge("a", "");
            bad.tls.ca = Some(path.into());
            confine(&mut bad, folder).expect_err(path);
        }
    }
}
