//! `dunlin completions`: what a shell needs to complete commands and options.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Args;
use clap_complete::Shell;

/// Print the completions of a shell.
///
/// Bash: dunlin completions bash > ~/.local/share/bash-completion/completions/dunlin.
/// Zsh: to a file _dunlin in a folder of $fpath. Fish:
/// ~/.config/fish/completions/dunlin.fish. The Debian package has all three.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, mut command: clap::Command) -> anyhow::Result<ExitCode> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut command, "dunlin", &mut text);
        io::stdout().write_all(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}
