//! The command: publishes a message, or prints those that arrive, the way a
//! device would: connect or resume, say what there is to say, keep the ticket.
//! Knows no standard library; who calls it brings the arguments and finds names.

use core::ffi::CStr;
use core::fmt::{self, Write};

pub use rustix::fd::BorrowedFd;

use crate::arguments::{Asked, HELP, Task, USAGE, read};
use crate::files::Text;
pub use crate::host::{ADDRESSES, Host};
use crate::session::perform;

/// Does what the arguments say, without the program's name in front. Gives the
/// status to exit with: 0 if it is done, 1 if it failed, 2 for wrong arguments
/// and 27 if the time given was over.
pub fn run<'a>(arguments: impl Iterator<Item = &'a CStr>, host: &Host<'_>) -> u8 {
    match read(arguments) {
        Ok(Asked::Task(task)) => work(&task, host),
        Ok(Asked::Help) => status(write!(Text(host.output), "{USAGE}{HELP}")),
        Ok(Asked::Version) => {
            let version = env!("CARGO_PKG_VERSION");
            status(writeln!(Text(host.output), "dunlin-tiny {version}"))
        }
        Err(wrong) => {
            let more = "Try dunlin-tiny --help.";
            let _ = writeln!(Text(host.errors), "dunlin-tiny: {wrong}\n{USAGE}{more}");
            2
        }
    }
}

fn status(done: fmt::Result) -> u8 {
    done.is_err().into()
}

fn work(task: &Task<'_>, host: &Host<'_>) -> u8 {
    match perform(task, host) {
        Ok(()) => 0,
        Err(failure) => {
            let _ = failure.tell(host);
            failure.status()
        }
    }
}
