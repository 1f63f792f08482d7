//! What the process uses: bytes that it holds, counted by its allocator, and
//! time of the processor.

use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::alloc::System;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The system's allocator, with a count of what it has given out.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to `System` as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as of the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as of the caller.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// One test at a time may look at what the process uses.
static ALONE: Mutex<()> = Mutex::new(());

/// Has the other tests wait.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that the process holds.
pub(crate) fn held() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// Time of the processor that this thread has used; zero where the system does
/// not say. Other programs do not count, however busy the machine is.
pub(crate) fn used() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().map(str::parse);
    Duration::from_nanos(nanos.and_then(Result::ok).unwrap_or_default())
}
