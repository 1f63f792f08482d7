//! Marks that the emulator's plugin counts between, and the stack by painting
//! it.

use core::arch::asm;

/// Bytes below the stack that are painted: more than anything here uses.
const PAINTED: usize = 16 * 1024;
const PAINT: u32 = 0x5ca1_ab1e;

/// Tells the plugin that something begins.
#[inline(always)]
pub fn begin() {
    // SAFETY: a hint that does nothing.
    unsafe { asm!("dbg #1") }
}

/// Tells the plugin that it ended.
#[inline(always)]
pub fn end() {
    // SAFETY: a hint that does nothing.
    unsafe { asm!("dbg #2") }
}

fn stack_pointer() -> usize {
    let pointer;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, sp", out(reg) pointer) };
    pointer
}

/// Runs `work` between marks and returns what it returns and the bytes of
/// stack below the caller that it used.
#[inline(never)]
pub fn stack_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let top = stack_pointer() & !3;
    let bottom = top - PAINTED;
    for address in (bottom..top).step_by(4) {
        // SAFETY: between the static variables and the stack there are
        // megabytes of memory that is not used; interrupts are off.
        unsafe { (address as *mut u32).write_volatile(PAINT) };
    }
    begin();
    let result = work();
    end();
    let used = (bottom..top)
        .step_by(4)
        // SAFETY: as above.
        .find(|address| unsafe { (*address as *const u32).read_volatile() } != PAINT)
        .map_or(0, |address| top - address);
    (result, used)
}
