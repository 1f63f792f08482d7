//! The features of `scripts/interop/features.py` for clients in Rust: the
//! arguments, the answers, the requests to the runner. Knows no client.

use std::fmt;
use std::io::{BufRead as _, Write as _};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::{Target, arguments, target_from, unique};

/// Longest that one feature may take.
const FEATURE_MAX: Duration = Duration::from_secs(30);

/// The client or the broker cannot do this, and why.
#[derive(Debug)]
pub struct Skip(pub String);

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}

/// What was asked for on the command line.
#[derive(Debug)]
pub struct Run {
    /// Where the broker is.
    pub target: Target,
    setting: String,
    only: Option<String>,
    prefix: String,
}

impl Run {
    /// Reads the command line.
    ///
    /// # Errors
    /// An argument is missing or wrong.
    pub fn from_arguments(name: &str) -> Result<Self> {
        let mut options = arguments()?;
        Ok(Self {
            target: target_from(&mut options)?,
            setting: options.remove("--setting").unwrap_or_default(),
            only: options.remove("--only"),
            prefix: unique(&format!("interop/{name}")),
        })
    }

    /// A topic of this run.
    #[must_use]
    pub fn topic(&self, tail: &str) -> String {
        format!("{}/{tail}", self.prefix)
    }

    /// Tries a feature, if this setting of the broker is the one for it, and
    /// prints how that went.
    pub async fn feature(
        &self,
        setting: &str,
        name: &str,
        attempt: impl AsyncFnOnce(&Self) -> Result<()>,
    ) {
        if self.setting != setting || self.only.as_deref().is_some_and(|only| only != name) {
            return;
        }
        let result = match tokio::time::timeout(FEATURE_MAX, attempt(self)).await {
            Ok(result) => result,
            Err(_) => Err(anyhow::anyhow!("no end in {FEATURE_MAX:?}")),
        };
        match result {
            Ok(()) => println!("ok {name}"),
            Err(error) if error.is::<Skip>() => println!("skip {name}: {error}"),
            Err(error) => println!("not ok {name}: {}", format!("{error:#}").replace('\n', " ")),
        }
    }

    /// Every feature has its answer; the others are not tried.
    pub fn end(self) {
        println!("end");
    }
}

/// Asks the runner for something and waits until it is done.
///
/// # Errors
/// There is no answer.
pub fn ask(word: &str) -> Result<()> {
    println!("{word}");
    std::io::stdout().flush()?;
    if std::io::stdin().lock().read_line(&mut String::new())? == 0 {
        bail!(Skip(format!("no answer to `{word}`")));
    }
    Ok(())
}
