//! `dunlin passwd`: users of a password file.

use std::io::{self, BufRead, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;

use crate::auth::passwords::{Change, ITERATIONS_DEFAULT, changed};
use crate::files::{self, Access};

/// Add, change and delete users of a password file.
///
/// Without -b the password is read from standard input: asked for twice at a
/// terminal, else one line.
#[derive(Debug, Args)]
pub(super) struct Passwd {
    /// The password file; created if it does not exist.
    file: PathBuf,
    /// The user.
    user: String,
    /// The password, with -b.
    #[arg(requires = "batch")]
    password: Option<String>,
    /// Take the password from the command line, as mosquitto_passwd does. Other
    /// users of this machine can see it while the command runs.
    #[arg(short = 'b', long, requires = "password")]
    batch: bool,
    /// Delete the user.
    #[arg(short = 'D', long, conflicts_with = "batch")]
    delete: bool,
    /// Iterations of the hash, 4096 to 1000000.
    #[arg(long, default_value_t = ITERATIONS_DEFAULT, value_name = "NUMBER")]
    iterations: u32,
}

impl Passwd {
    /// Runs the command.
    ///
    /// # Errors
    /// The file cannot be read or written, or the user is not usable.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let path = &self.file;
        if !path.exists() && Path::new(&self.user).is_file() {
            bail!("{} is a file: the order is FILE USER PASSWORD", self.user);
        }
        let action = |verb| move || format!("cannot {verb} {}", path.display());
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            result => Some(result.with_context(action("read"))?),
        };
        let password;
        let change = if self.delete {
            Change::Delete
        } else {
            password = match self.password {
                Some(password) => password,
                None => read_password()?,
            };
            Change::Set {
                password: password.as_bytes(),
                iterations: self.iterations,
            }
        };
        let new = changed(path, text.as_deref(), &self.user, change)?;
        files::replace(path, new.as_bytes(), Access::Private).with_context(action("write"))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Asks for a password twice at a terminal; else it is the next line.
pub(super) fn read_password() -> anyhow::Result<String> {
    let read = "cannot read the password";
    if io::stdin().is_terminal() {
        let password = rpassword::prompt_password("Password: ").context(read)?;
        if rpassword::prompt_password("Again: ").context(read)? != password {
            bail!("the passwords differ");
        }
        return not_empty(password);
    }
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).context(read)?;
    not_empty(line.trim_end_matches(['\r', '\n']).into())
}

fn not_empty(password: String) -> anyhow::Result<String> {
    if password.is_empty() {
        bail!("the password is empty");
    }
    Ok(password)
}
