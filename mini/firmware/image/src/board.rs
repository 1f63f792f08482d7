//! The board for the application: time from the Ethernet controller, sleep,
//! notes on the UART, and marks that a measuring emulator sees. Knows no
//! addresses.

use core::arch::asm;

use dunlin_mini_device::{Board, Lan9118, Mac, Note};

use crate::pages;
use crate::registers::{self, Ethernet, TICKS_PER_MS};

/// QEMU's `mps2-an386`.
pub struct Mps2 {
    ethernet: Lan9118<Ethernet>,
    /// Ticks at which the last whole millisecond began, and which one it was.
    ticks: u32,
    ms: u32,
}

impl Mps2 {
    /// The board, after a reset.
    pub fn start() -> Self {
        registers::start();
        Self {
            ethernet: Lan9118::new(Ethernet),
            ticks: 0,
            ms: 0,
        }
    }
}

impl Board for Mps2 {
    fn now(&mut self) -> u32 {
        // The ticks wrap around after 171 s; sleep ends before that.
        let gone = self.ethernet.ticks().wrapping_sub(self.ticks) / TICKS_PER_MS;
        self.ticks = self.ticks.wrapping_add(gone * TICKS_PER_MS);
        self.ms = self.ms.wrapping_add(gone);
        self.ms
    }

    fn seconds(&mut self) -> u32 {
        registers::seconds()
    }

    fn wait(&mut self, ms: u32) {
        registers::sleep(ms.saturating_mul(TICKS_PER_MS));
    }

    fn network(&mut self, mac: Option<&Mac>) {
        match mac {
            Some(mac) => self.ethernet.start(mac),
            None => self.ethernet.stop(),
        }
    }

    fn send(&mut self, frame: &[u8]) {
        self.ethernet.send(frame);
    }

    fn receive(&mut self, frame: &mut [u8]) -> Option<usize> {
        self.ethernet.receive(frame)
    }

    fn stored(&self) -> &[u8] {
        pages::ticket()
    }

    fn store(&mut self, parts: &[&[u8]]) {
        pages::store_ticket(parts);
    }

    fn switch(&mut self, value: u8) {
        registers::led(value);
    }

    /// A line on the UART: the note and the number in hexadecimal.
    fn note(&mut self, note: Note, value: u32) {
        mark(note);
        let [low] = (note as u8).to_le_bytes();
        hex(u32::from(low) << 24, 2);
        registers::print(b' ');
        hex(value, 8);
        registers::print(b'\n');
    }
}

fn hex(mut value: u32, digits: u32) {
    for _ in 0..digits {
        let [.., high] = value.to_le_bytes();
        let digit = high >> 4;
        let letter = if digit < 10 { b'0' } else { b'a' - 10 };
        registers::print(letter + digit);
        value <<= 4;
    }
}

/// Executes a hint that does nothing, but that an emulator can look for: the
/// phases of a wake. The measurement counts from one to the next.
fn mark(note: Note) {
    macro_rules! hint {
        ($number:literal) => {
            // SAFETY: a hint without an effect.
            unsafe {
                asm!(
                    concat!("dbg #", $number),
                    options(nomem, nostack, preserves_flags)
                )
            }
        };
    }
    match note {
        Note::Wake => hint!(1),
        Note::Connect => hint!(2),
        Note::Connected => hint!(3),
        Note::Reading => hint!(4),
        Note::Published => hint!(5),
        Note::Sleep => hint!(6),
        _ => {}
    }
}
