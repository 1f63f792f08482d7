//! The board below the example in C, QEMU's `mps2-an386`: network, clock,
//! random bytes and pages of flash as the functions of `example/board.h`. The
//! drivers are those of the firmware in Rust. Knows no QUIC and no MQTT.
//!
//! **This board has no source of entropy.** Its random bytes come from the
//! seed in its settings; the seed decrypts everything.

#![allow(
    clippy::deref_addrof,
    reason = "a `static mut` is not to be referred to in another way"
)]

#[allow(dead_code)]
#[path = "../../image/src/pages.rs"]
mod pages;
#[allow(dead_code)]
#[path = "../../image/src/registers.rs"]
mod registers;

use core::{ptr, slice};

use dunlin_mini_crypto::{Entropy, Tiny};
use dunlin_mini_device::{
    FRAME, Generator, HEADER, Input, Interface, Lan9118, NoEntropy, Settings, open, seal,
};
use registers::{Ethernet, TICKS_PER_MS};

/// Milliseconds between two questions for the next hop, and how many there are.
const ASK_MS: u32 = 1000;
const ASKS: u32 = 5;

/// The board once it has begun.
struct Mps2 {
    ethernet: Lan9118<Ethernet>,
    net: Interface,
    settings: Settings<'static>,
    random: Generator<Tiny<NoEntropy>>,
    /// Ticks at which the last whole millisecond began, and which one it was.
    ticks: u32,
    ms: u32,
}

static mut BOARD: Option<Mps2> = None;
static mut BUFFER: [u8; FRAME] = [0; FRAME];

/// The board and the buffer for frames, if it has begun.
fn board() -> Option<(&'static mut Mps2, &'static mut [u8; FRAME])> {
    // SAFETY: there is one thread and no interrupt. Each function below calls
    // this once and lets go of both before it returns.
    unsafe { Some(((*(&raw mut BOARD)).as_mut()?, &mut *(&raw mut BUFFER))) }
}

impl Mps2 {
    fn begin() -> Option<Self> {
        let settings = pages::settings().and_then(Settings::read)?;
        let tiny = Tiny::new(NoEntropy);
        let clock = registers::seconds();
        let pages = &mut pages::Random;
        let (random, known) = Generator::boot(tiny, settings.seed, clock, pages::ticket(), pages);
        if !known {
            // All may come twice, but early data with the same keys must not.
            pages::store_ticket(&[]);
        }
        let mut net = settings.interface();
        // Another port than the last time, among the dynamic ones.
        let [low, high, ..] = clock.to_le_bytes();
        net.port = u16::from_be_bytes([high | 0xc0, low]);
        let mut ethernet = Lan9118::new(Ethernet);
        ethernet.start(settings.mac);
        Some(Self {
            ticks: ethernet.ticks(),
            ms: 0,
            ethernet,
            net,
            settings,
            random,
        })
    }

    fn now(&mut self) -> u32 {
        // The ticks wrap around after 171 s; no wait is that long.
        let gone = self.ethernet.ticks().wrapping_sub(self.ticks) / TICKS_PER_MS;
        self.ticks = self.ticks.wrapping_add(gone * TICKS_PER_MS);
        self.ms = self.ms.wrapping_add(gone);
        self.ms
    }

    fn find_neighbour(&mut self, frame: &mut [u8; FRAME]) -> bool {
        for _ in 0..ASKS {
            let len = self.net.ask(frame);
            self.ethernet.send(frame.get(..len).unwrap_or_default());
            let from = self.now();
            while let rest @ 1.. = ASK_MS.saturating_sub(self.now().wrapping_sub(from)) {
                while self.ethernet.receive(frame).is_some_and(|len| {
                    self.net.handle(frame.get_mut(..len).unwrap_or_default());
                    true
                }) {}
                if self.net.neighbour.is_some() {
                    return true;
                }
                registers::sleep(rest.saturating_mul(TICKS_PER_MS));
            }
        }
        false
    }

    /// The next datagram of the server, if one is there.
    fn receive<'a>(&mut self, frame: &'a mut [u8; FRAME]) -> Option<&'a [u8]> {
        loop {
            let len = self.ethernet.receive(frame)?;
            match self.net.handle(frame.get_mut(..len).unwrap_or_default()) {
                Input::Answer(len) => self.ethernet.send(frame.get(..len).unwrap_or_default()),
                Input::Datagram(range) => return frame.get(range),
                _ => {}
            }
        }
    }
}

/// Copies as much as fits, without a path to a panic.
fn copy(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}

/// Begins: the settings, the generator, the network. False without settings or
/// without a next hop.
#[unsafe(no_mangle)]
pub extern "C" fn board_begin() -> bool {
    registers::start();
    // SAFETY: as in `board`; the old one is not held.
    unsafe { BOARD = Mps2::begin() };
    board().is_some_and(|(board, frame)| board.find_neighbour(frame))
}

/// Sends a datagram to the broker.
///
/// # Safety
///
/// There are `len` bytes at `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn board_send(data: *const u8, len: usize) {
    // SAFETY: promised by the caller.
    let data = unsafe { slice::from_raw_parts(data, len) };
    if let Some((board, frame)) = board() {
        let room = frame.get_mut(HEADER..).and_then(|room| room.get_mut(..len));
        if let Some(room) = room {
            copy(room, data);
            let len = board.net.wrap(frame, len);
            board.ethernet.send(frame.get(..len).unwrap_or_default());
        }
    }
}

/// Takes a datagram of the broker; zero if there is none.
///
/// # Safety
///
/// There is room for `room` bytes at `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn board_receive(data: *mut u8, room: usize) -> usize {
    // SAFETY: promised by the caller.
    let out = unsafe { slice::from_raw_parts_mut(data, room) };
    let Some((board, frame)) = board() else {
        return 0;
    };
    while let Some(datagram) = board.receive(frame) {
        if let Some(out) = out.get_mut(..datagram.len()) {
            copy(out, datagram);
            return datagram.len();
        }
    }
    0
}

/// Milliseconds since the start.
#[unsafe(no_mangle)]
pub extern "C" fn board_ms() -> u32 {
    board().map_or(0, |(board, _)| board.now())
}

/// Sleeps until a frame is there, at most this long.
#[unsafe(no_mangle)]
pub extern "C" fn board_sleep(ms: u32) {
    registers::sleep(ms.saturating_mul(TICKS_PER_MS));
}

/// Fills `data` with bytes of the generator.
///
/// # Safety
///
/// There is room for `len` bytes at `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn board_random(data: *mut u8, len: usize) -> bool {
    // SAFETY: promised by the caller.
    let out = unsafe { slice::from_raw_parts_mut(data, len) };
    board().is_some_and(|(board, _)| board.random.fill(out).is_ok())
}

/// What the settings say of the broker and of the device, as `board.h` has it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Given {
    key: *const u8,
    name: *const u8,
    name_len: usize,
    certificates: *const u8,
    certificates_len: usize,
    private_key: *const u8,
}

/// The key of the broker and its name, the certificates of the device and their key;
/// null pointers for what there is not.
#[unsafe(no_mangle)]
pub extern "C" fn board_settings() -> Given {
    let mut given = Given {
        key: ptr::null(),
        name: ptr::null(),
        name_len: 0,
        certificates: ptr::null(),
        certificates_len: 0,
        private_key: ptr::null(),
    };
    if let Some((board, _)) = board() {
        given.key = board.settings.key.as_ptr();
        given.name = board.settings.name.as_ptr();
        given.name_len = board.settings.name.len();
    }
    #[cfg(feature = "client-certificate")]
    if let Some(identity) = pages::settings().and_then(Settings::identity) {
        given.certificates = identity.certificates.as_ptr();
        given.certificates_len = identity.certificates.len();
        given.private_key = identity.key.as_ptr();
    }
    given
}

/// Keeps a ticket in flash, with the time.
///
/// # Safety
///
/// There are `len` bytes at `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn board_store(data: *const u8, len: usize) {
    // SAFETY: promised by the caller.
    let ticket = unsafe { slice::from_raw_parts(data, len) };
    let time = registers::seconds().to_be_bytes();
    if let Some(front) = seal(&[&time, ticket]) {
        pages::store_ticket(&[&front, &time, ticket]);
    }
}

/// Gives the ticket and its age; zero if there is none that fits.
///
/// # Safety
///
/// There is room for `room` bytes at `data`, and `age_ms` is no null pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn board_load(data: *mut u8, room: usize, age_ms: *mut u32) -> usize {
    // SAFETY: promised by the caller.
    let out = unsafe { slice::from_raw_parts_mut(data, room) };
    let stored = open(pages::ticket()).and_then(<[u8]>::split_first_chunk);
    let Some((time, ticket)) = stored else {
        return 0;
    };
    let age = registers::seconds().checked_sub(u32::from_be_bytes(*time));
    let (Some(age), Some(out)) = (age, out.get_mut(..ticket.len())) else {
        return 0;
    };
    copy(out, ticket);
    // SAFETY: promised by the caller.
    unsafe { *age_ms = age.saturating_mul(1000) };
    ticket.len()
}

/// Writes a letter to the UART.
#[unsafe(no_mangle)]
pub extern "C" fn board_print(letter: u8) {
    registers::print(letter);
}

/// Sleeps until the device is to wake, and begins again as after a reset: what
/// is not in flash is lost, as in the deepest sleep of many chips.
#[unsafe(no_mangle)]
pub extern "C" fn board_rest() -> ! {
    if let Some((board, _)) = board() {
        let from = board.now();
        let ms = board.settings.sleep_ms;
        board.ethernet.stop();
        while let rest @ 1.. = ms.saturating_sub(board.now().wrapping_sub(from)) {
            registers::sleep(rest.saturating_mul(TICKS_PER_MS));
        }
    }
    registers::reset();
}
