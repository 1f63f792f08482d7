//! The image: boots, reads its settings from flash, and lets the device of
//! `dunlin-mini-device` wake, report and sleep for ever. The board is QEMU's
//! `mps2-an386`.
//!
//! **This board has no source of entropy.** Its random bytes come from the
//! seed in its settings; the seed decrypts everything. On a chip
//! with a generator, implement `Entropy` over it instead.

#![no_std]
#![no_main]
#![allow(
    clippy::deref_addrof,
    reason = "a `static mut` is not to be referred to in another way"
)]

mod board;
mod copies;
mod network;
mod pages;
mod registers;

use core::mem::MaybeUninit;
use core::panic::PanicInfo;

use board::Mps2;
use cortex_m_rt::{ExceptionFrame, entry, exception};
#[cfg(feature = "fast")]
use dunlin_mini_crypto::Fast as Suite;
#[cfg(not(feature = "fast"))]
use dunlin_mini_crypto::Tiny as Suite;
use dunlin_mini_crypto::{Crypto, CryptoError, Entropy, Point};
use dunlin_mini_device::{Board, Device, Frame, Generator, NoEntropy, Note, Settings};
#[cfg(feature = "client-certificate")]
use dunlin_quic_mini::Identity;
#[cfg(not(feature = "authority"))]
use dunlin_quic_mini::Pinned;
#[cfg(feature = "authority")]
use dunlin_quic_mini::{Authority, Name};
use dunlin_quic_mini::{Buffers, Client, Error, Memory, Parts, Verifier};
use network::Network;

/// One stream, with a second one in reserve; short messages; a ticket of up to
/// 400 bytes and a certificate of up to 1400.
type Bytes = Buffers<1, 384, 384, HELLO, 1536>;
/// With the own certificates, which have room for less than a page of settings.
const HELLO: usize = if cfg!(feature = "client-certificate") {
    1536
} else {
    768
};
type Quic = Client<Suite<Source>, Server, Arena>;
type Random = Generator<Suite<NoEntropy>>;
type Whole = Device<'static, Mps2, Network>;

/// Handlers of interrupts. None is ever taken, but the runtime wants a table.
#[used]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".vector_table.interrupts")]
pub static __INTERRUPTS: [usize; 1] = [0];

static mut MEMORY: Bytes = Bytes::new();
/// Key and name in the settings.
static mut GIVEN: Option<(&'static Point, &'static [u8])> = None;
static mut RANDOM: MaybeUninit<Random> = MaybeUninit::uninit();
static mut DEVICE: MaybeUninit<Whole> = MaybeUninit::uninit();
static mut FRAME: Frame = [0; dunlin_mini_device::FRAME];
// A client that has not begun is zeros: it is made by the runtime, which clears
// memory, and not on the stack, which would have to be as large.
static mut CLIENT: Quic = Client::new(Suite::new(Source), Server, Arena);

/// The generator, once `main` has seeded it.
struct Source;

impl Entropy for Source {
    fn fill(&mut self, out: &mut [u8]) -> Result<(), CryptoError> {
        // SAFETY: `main` has written the generator before it uses the client,
        // there is one thread and no interrupt, and no reference is kept.
        unsafe { (*(&raw mut RANDOM)).assume_init_mut() }.fill(out)
    }
}

/// The server with the key that is in the settings; with the feature
/// `authority`, one with a certificate for the name there that this key has
/// signed. The board does not know the date.
struct Server;

impl Server {
    fn given() -> Option<(&'static Point, &'static [u8])> {
        // SAFETY: there is one thread, and `main` wrote it before it used the
        // client.
        unsafe { GIVEN }
    }

    #[cfg(not(feature = "authority"))]
    fn trusted() -> Pinned<'static> {
        Pinned::new(Self::given().map_or(&[][..], |(key, _)| core::slice::from_ref(key)))
    }

    #[cfg(feature = "authority")]
    fn trusted() -> Authority<'static> {
        // No point of the curve: it has signed nothing.
        static NONE: Point = [0; 65];
        let (key, name) = Self::given().unwrap_or((&NONE, &[]));
        Authority::new(key, Name::Host(name), None)
    }
}

impl Verifier for Server {
    fn verify<C: Crypto>(&self, crypto: &mut C, certificate: &[u8]) -> Result<Point, Error> {
        Self::trusted().verify(crypto, certificate)
    }

    fn believed<C: Crypto>(&self, crypto: &mut C, hash: &mut C::Hash) {
        Self::trusted().believed(crypto, hash);
    }

    #[cfg(feature = "client-certificate")]
    fn identity(&self) -> Option<Identity<'_>> {
        pages::settings().and_then(Settings::identity)
    }
}

/// The buffers of the only client.
struct Arena;

impl Memory for Arena {
    fn parts(&mut self) -> Parts<'_> {
        // SAFETY: there is one arena, in one client, so that its borrow is the
        // only one.
        unsafe { (*(&raw mut MEMORY)).parts() }
    }
}

#[entry]
fn main() -> ! {
    let Some((device, mut wakes)) = boot() else {
        registers::exit();
    };
    // SAFETY: this is the only thread and runs once; nothing else touches it.
    let client = unsafe { &mut *(&raw mut CLIENT) };
    loop {
        // A failure was reported; the reading waits for the next time.
        let _ = device.wake(client);
        if wakes == 1 {
            registers::exit();
        }
        // Zero stays zero, which is for ever.
        wakes = wakes.saturating_sub(1);
        device.sleep();
    }
}

/// Makes the device and its generator of what is in flash; gives also how often
/// it is to wake. Not inlined: its stack is free again when the device wakes.
#[inline(never)]
fn boot() -> Option<(&'static mut Whole, u16)> {
    let mut board = Mps2::start();
    let Some(settings) = pages::settings().and_then(Settings::read) else {
        board.note(Note::NoSettings, 0);
        return None;
    };
    let suite = Suite::new(NoEntropy);
    let clock = board.seconds();
    let pages = &mut pages::Random;
    let (mut random, known) = Random::boot(suite, settings.seed, clock, pages::ticket(), pages);
    board.note(Note::Boot, u32::from(known));
    if !known {
        // All may come twice, but early data with the same keys must not.
        pages::store_ticket(&[]);
    }
    let Ok(net) = network::start(&settings, &mut random) else {
        return None;
    };
    // SAFETY: `main` calls this once, and nothing else touches these statics but
    // the three types above, each for one call.
    unsafe {
        GIVEN = Some((settings.key, settings.name));
        (*(&raw mut RANDOM)).write(random);
        let frame = &mut *(&raw mut FRAME);
        let wakes = settings.wakes;
        let device = (*(&raw mut DEVICE)).write(Device::new(board, settings, net, frame));
        Some((device, wakes))
    }
}

/// A fault of the processor: begins again.
#[exception]
unsafe fn HardFault(_: &ExceptionFrame) -> ! {
    registers::reset();
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    image_can_panic()
}

/// The size check looks for this symbol, which the linker drops from an image
/// without a path to a panic.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn image_can_panic() -> ! {
    registers::reset();
}
