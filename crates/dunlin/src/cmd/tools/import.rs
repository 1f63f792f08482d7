//! `dunlin import`: the options. What becomes of a file is in [`crate::import`].

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;

use crate::config::Config;
use crate::files::{self, Access};
use crate::import;

/// Name of the password file, beside the configuration.
const PASSWORDS: &str = "passwords";

/// Exit code of --strict when something is left behind.
const LEFT_BEHIND: u8 = 2;

/// Turn a mosquitto.conf into a configuration of Dunlin, and list what is not carried
/// over.
///
/// Nothing of mosquitto is changed. Password and access files stay where they are; if
/// some lines of the password file cannot be used, the others are copied.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The mosquitto.conf.
    file: PathBuf,
    /// File to write; - for standard output.
    #[arg(short, long, value_name = "FILE", default_value = "dunlin.toml")]
    output: PathBuf,
    /// Data directory of the new broker; /var/lib/dunlin for the service of the Debian
    /// package. Without it the configuration names none, and it is dunlin-data where the
    /// broker is started.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Replace files that are there.
    #[arg(long)]
    force: bool,
    /// Exit with code 2 if something is not carried over.
    #[arg(long)]
    strict: bool,
}

impl Import {
    /// Writes the files and the list.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let is_stdout = self.output.as_os_str() == "-";
        let passwords = match is_stdout {
            true => PathBuf::from(PASSWORDS),
            false => self.output.with_file_name(PASSWORDS),
        };
        let mut imported = import::mosquitto(&self.file, &passwords.display().to_string())?;
        if let Some(dir) = &self.data_dir {
            imported.set_data_dir(dir);
        }
        Config::parse(&self.output, &imported.toml)
            .context("a value of mosquitto's is none that Dunlin takes")?;
        if is_stdout {
            io::stdout().write_all(imported.toml.as_bytes())?;
        } else {
            if let Some(text) = &imported.passwords {
                self.write(&passwords, text, Access::Private)?;
            }
            self.write(&self.output, &imported.toml, Access::Public)?;
        }
        let mut err = io::stderr().lock();
        let written = self.output.display();
        match imported.remarks.len() {
            0 => writeln!(err, "{written}: everything is carried over")?,
            count => writeln!(
                err,
                "{written}: not carried over, or otherwise here: {count}"
            )?,
        }
        for remark in &imported.remarks {
            writeln!(err, "  {remark}")?;
        }
        Ok(match self.strict && !imported.remarks.is_empty() {
            true => ExitCode::from(LEFT_BEHIND),
            false => ExitCode::SUCCESS,
        })
    }

    fn write(&self, path: &Path, text: &str, access: Access) -> anyhow::Result<()> {
        let what = || format!("cannot write {}", path.display());
        if self.force {
            return files::replace(path, text.as_bytes(), access).with_context(what);
        }
        match files::create(path, text.as_bytes(), access) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                bail!("{} is there already; --force replaces it", path.display())
            }
            written => written.with_context(what),
        }
    }
}
