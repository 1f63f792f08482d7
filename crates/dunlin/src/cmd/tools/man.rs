//! `dunlin man`: the manual pages, made from the options.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

/// Write the manual pages, one for each command.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Folder of the pages; made if it is not there.
    #[arg(long, value_name = "DIR", default_value = "man1")]
    out: PathBuf,
}

impl Man {
    pub(crate) fn run(self, command: clap::Command) -> anyhow::Result<ExitCode> {
        let dir = &self.out;
        std::fs::create_dir_all(dir)
            .and_then(|()| clap_mangen::generate_to(command, dir))
            .with_context(|| format!("cannot write the pages to {}", dir.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}
