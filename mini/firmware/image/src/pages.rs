//! Pages of flash behind the image: the settings, which are written when the
//! device is made, the ticket, and the state of the generator.
//!
//! The memory of this board is RAM in all places, so that a page is written by
//! copying; it outlives a reset, not the emulator. A chip erases and programs
//! here. Knows no contents.

use core::slice;

use dunlin_mini_device::{Copies, open};

/// Where the pages are. Nothing of the image is here, see `memory/`.
const PAGES: usize = 0x0030_0000;
const PAGE: usize = 0x400;

const SETTINGS: usize = 0;
const TICKET: usize = 1;
/// The first of two.
const RANDOM: usize = 2;

fn page(number: usize) -> &'static [u8] {
    // SAFETY: the memory is there, initialised, and no part of the image. Only
    // `write` changes it, whose callers below hold no reference to that page.
    unsafe { slice::from_raw_parts((PAGES + number * PAGE) as *const u8, PAGE) }
}

fn write(number: usize, parts: &[&[u8]]) {
    // SAFETY: as above; there is one thread.
    let page = unsafe { slice::from_raw_parts_mut((PAGES + number * PAGE) as *mut u8, PAGE) };
    let bytes = parts.iter().copied().flatten();
    for (to, from) in page.iter_mut().zip(bytes.chain(&[0xff; 8])) {
        *to = *from;
    }
}

/// The settings.
pub fn settings() -> Option<&'static [u8]> {
    open(page(SETTINGS))
}

/// The page with the ticket. Its borrow is shorter than the page lives, so that
/// it is not held while the page is written.
pub fn ticket<'a>() -> &'a [u8] {
    page(TICKET)
}

/// Replaces the ticket.
pub fn store_ticket(parts: &[&[u8]]) {
    write(TICKET, parts);
}

/// The two pages with the state of the generator.
pub struct Random;

impl Copies for Random {
    fn read(&self, copy: usize) -> &[u8] {
        page(RANDOM + copy)
    }

    fn write(&mut self, copy: usize, parts: &[&[u8]]) {
        write(RANDOM + copy, parts);
    }
}
