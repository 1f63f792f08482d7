//! How slow the machine is at the moment. Limits of processor time are for one that does
//! nothing else: where others use its caches and the other half of a core, the same work
//! takes two or three times as long.

use core::time::Duration;
use std::collections::BTreeMap;

use crate::memory;

/// Time of the processor for the work of [`slowness`] on the machine that the limits are
/// for.
const NOMINAL: Duration = Duration::from_millis(if cfg!(debug_assertions) { 12 } else { 4 });

/// Slower than this, and the limits hold all the same.
const SLOWNESS_MAX: f64 = 4.0;

/// Entries of the table that the work fills, and the bytes of one.
const ENTRIES: u64 = 20_000;
const ENTRY_BYTES: usize = 64;

/// How many times as long as on a quiet machine work with memory takes, at least one.
pub(crate) fn slowness() -> f64 {
    let begun = memory::used();
    let mut table = BTreeMap::new();
    let mut key = 1_u64;
    for _ in 0..ENTRIES {
        key = key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        table.insert(key, vec![0_u8; ENTRY_BYTES]);
    }
    drop(core::hint::black_box(table));
    let used = memory::used().saturating_sub(begun);
    used.div_duration_f64(NOMINAL).clamp(1.0, SLOWNESS_MAX)
}
