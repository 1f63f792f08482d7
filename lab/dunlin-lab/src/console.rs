//! Output to people and to programs that read lines.

use core::fmt::Display;
use std::io::{self, Write as _};

/// A line on standard output.
pub(crate) fn line(line: impl Display) {
    // A closed output is no error.
    let _ = writeln!(io::stdout(), "{line}");
}

/// A line on standard error.
pub(crate) fn error(line: impl Display) {
    let _ = writeln!(io::stderr(), "dunlin-lab: {line}");
}
