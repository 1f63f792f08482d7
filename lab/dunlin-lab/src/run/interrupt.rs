//! Ctrl-C and its like: what runs ends soon, and what was measured stays.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::{children, trouble};

/// Between two looks at whether to end.
const LOOK: Duration = Duration::from_millis(50);

static ASKED: AtomicBool = AtomicBool::new(false);

/// Ends children when a signal asks for the end, so that waiting for them ends.
pub(crate) fn on_signals() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot await signals")?;
    thread::spawn(move || {
        for _ in signals.forever() {
            ASKED.store(true, Ordering::SeqCst);
            children::end_all();
        }
    });
    Ok(())
}

/// Whether a signal asked for the end.
pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}

/// Waits; fails when a signal asks for the end meanwhile, or a broker or a link
/// fails.
pub(crate) fn pause(time: Duration) -> Result<()> {
    let begun = Instant::now();
    loop {
        if asked() {
            bail!("interrupted");
        }
        if let Some(what) = trouble::found() {
            bail!(what);
        }
        let left = time.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(LOOK));
    }
}
