//! `dunlin cert`: an authority of one's own and what it signs.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::certs::{self, CA_DAYS, LEAF_DAYS, Options, Purpose};

/// Directory in which a broker without configuration keeps its certificates.
const DIRECTORY: &str = "dunlin-data/certs";

/// Make and show certificates.
#[derive(Debug, Args)]
pub(super) struct Cert {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make an authority and a server certificate for this machine.
    Init {
        /// Directory for ca.pem, ca.key, server.pem and server.key.
        #[arg(default_value = DIRECTORY)]
        dir: PathBuf,
        /// Days that the authority is valid.
        #[arg(long, default_value_t = CA_DAYS)]
        ca_days: u32,
        #[command(flatten)]
        leaf: Leaf,
    },
    /// Make a server certificate signed by the authority.
    Server {
        /// Host name, which also names the files.
        name: String,
        #[command(flatten)]
        signed: Signed,
    },
    /// Make a client certificate signed by the authority.
    Device {
        /// Name of the device: common name, user name and name of the files.
        name: String,
        #[command(flatten)]
        signed: Signed,
    },
    /// Show what certificates say.
    Show {
        /// PEM files.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

#[derive(Debug, Args)]
struct Signed {
    /// Directory of the authority, and of what is made.
    #[arg(long, default_value = DIRECTORY)]
    dir: PathBuf,
    #[command(flatten)]
    leaf: Leaf,
}

#[derive(Debug, Args)]
struct Leaf {
    /// Host name or address that the certificate is for, besides the usual
    /// ones; may be repeated.
    #[arg(long = "san", value_name = "NAME")]
    sans: Vec<String>,
    /// Days that the certificate is valid.
    #[arg(long, default_value_t = LEAF_DAYS)]
    days: u32,
    /// Replace files that exist.
    #[arg(long)]
    force: bool,
}

impl From<Leaf> for Options {
    fn from(leaf: Leaf) -> Self {
        Self {
            sans: leaf.sans,
            days: leaf.days,
            force: leaf.force,
        }
    }
}

impl Cert {
    /// Runs the command.
    ///
    /// # Errors
    /// A certificate cannot be made or read.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let mut out = io::stdout().lock();
        let made = match self.action {
            Action::Init { dir, ca_days, leaf } => certs::init(&dir, ca_days, &leaf.into())?.into(),
            Action::Server { name, signed } => vec![signed.issue(&name, Purpose::Server)?],
            Action::Device { name, signed } => vec![signed.issue(&name, Purpose::Device)?],
            Action::Show { files } => {
                for (number, path) in files.iter().enumerate() {
                    for summary in certs::inspect(path)? {
                        if number > 0 {
                            writeln!(out)?;
                        }
                        writeln!(out, "file         {}\n{summary}", path.display())?;
                    }
                }
                Vec::new()
            }
        };
        for files in made {
            writeln!(out, "{}", files.cert.display())?;
            writeln!(out, "{}", files.key.display())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Signed {
    fn issue(self, name: &str, purpose: Purpose) -> Result<certs::Files, certs::CertError> {
        certs::issue(&self.dir, name, purpose, &self.leaf.into())
    }
}
