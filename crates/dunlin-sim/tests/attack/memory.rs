//! What a thread uses: bytes that it holds, counted by the allocator, and time of
//! the processor.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use core::time::Duration;
use std::alloc::System;

use rustix::time::{ClockId, clock_gettime};

/// The system's allocator, with a count of what each thread has taken and not given
/// back. A world stays on its thread.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
}

fn count(more: usize, less: usize) {
    HELD.set(HELD.get() + more as isize - less as isize);
}

// SAFETY: every call goes to `System` as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: as of the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: as of the caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: as of the caller.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: as of the caller.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Bytes that this thread holds more than it did when this number was `before`.
pub(crate) fn held_since(before: isize) -> usize {
    usize::try_from(held() - before).unwrap_or(0)
}

/// Bytes that this thread holds; less than zero if it gave back those of another.
pub(crate) fn held() -> isize {
    HELD.get()
}

/// Time of the processor that this thread has used. Other programs do not count,
/// however busy the machine is.
pub(crate) fn used() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
