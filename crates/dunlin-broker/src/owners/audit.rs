//! How many lines the log gets about access: so many a second of each kind,
//! the rest is counted.

use core::time::Duration;

use dunlin_base::Instant;

use crate::io::AccessKind;

/// Lines of a kind in [`WINDOW`].
const LINES_MAX: u32 = 20;

/// Time over which lines are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// Lines of this window, by kind.
#[derive(Debug)]
pub(crate) struct Audit {
    since: Instant,
    written: [u32; AccessKind::ALL.len()],
    left_out: [u64; AccessKind::ALL.len()],
}

impl Audit {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            since: now,
            written: Default::default(),
            left_out: Default::default(),
        }
    }

    /// Counts a line, and says whether it is written.
    pub(crate) fn admit(&mut self, kind: AccessKind) -> bool {
        let (Some(written), Some(left_out)) = (
            self.written.get_mut(kind as usize),
            self.left_out.get_mut(kind as usize),
        ) else {
            return false;
        };
        let admitted = *written < LINES_MAX;
        *written += u32::from(admitted);
        *left_out += u64::from(!admitted);
        admitted
    }

    /// Begins the next window when this one is over; what was left out in it.
    pub(crate) fn turn(&mut self, now: Instant) -> impl Iterator<Item = (AccessKind, u64)> + use<> {
        let mut left_out = Default::default();
        if now - self.since >= WINDOW {
            self.since = now;
            self.written = Default::default();
            left_out = core::mem::take(&mut self.left_out);
        }
        let all = AccessKind::ALL.into_iter().zip(left_out);
        all.filter(|(_, lines)| *lines > 0)
    }
}
