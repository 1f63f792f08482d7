//! The image: boots, reads its settings from flash, and lets the device of
//! `dunlin-mini-device` wake, report and sleep for ever. The board is QEMU's
//! `mps2-an386`.
//!
//! **This board has no source of entropy.** Its random bytes come from the
//! seed in its settings; whoever knows the seed can read everything. On a chip
//! with a generator, implement `Entropy` over it instead.

#![no_std]
#![no_main]

mod board;
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
use dunlin_mini_crypto::{CryptoError, Entropy};
use dunlin_mini_device::{Board, Device, Generator, NoEntropy, Note, Settings};
use dunlin_quic_mini::{Buffers, Client, Pinned};

/// One stream, with a second one in reserve; short messages; a ticket of up to
/// 400 bytes and a certificate of up to 1400.
type Memory = Buffers<1, 384, 384, 768, 1536>;
type Provider = Suite<Source>;
type Random = Generator<Suite<NoEntropy>>;

/// Handlers of interrupts. None is ever taken, but the runtime wants a table.
#[used]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".vector_table.interrupts")]
pub static __INTERRUPTS: [usize; 1] = [0];

static mut MEMORY: Memory = Memory::new();
static mut RANDOM: MaybeUninit<Random> = MaybeUninit::uninit();
static mut DEVICE: MaybeUninit<Device<'static, Mps2>> = MaybeUninit::uninit();
static mut CLIENT: MaybeUninit<Client<Provider, Pinned<'static>, &'static mut Memory>> =
    MaybeUninit::uninit();

/// The generator, once `main` has seeded it.
struct Source;

impl Entropy for Source {
    fn fill(&mut self, out: &mut [u8]) -> Result<(), CryptoError> {
        // SAFETY: `main` has written the generator before it made a client,
        // there is one thread and no interrupt, and nobody keeps a reference.
        unsafe { (*(&raw mut RANDOM)).assume_init_mut() }.fill(out)
    }
}

#[entry]
fn main() -> ! {
    let mut board = Mps2::start();
    let Some(settings) = pages::settings().and_then(Settings::read) else {
        board.note(Note::NoSettings, 0);
        registers::exit();
    };
    let last = pages::random();
    board.note(Note::Boot, u32::from(last.is_some()));
    let mut random = Random::new(Suite::new(NoEntropy), settings.seed, last.unwrap_or(&[]));
    pages::store_random(&random.successor());
    let keys = core::slice::from_ref(settings.key);
    let mut wakes = settings.wakes;

    // SAFETY: this is the only thread and runs once; nothing else touches
    // these statics but `Source`, which borrows for one call.
    let device = unsafe {
        (*(&raw mut RANDOM)).write(random);
        (*(&raw mut DEVICE)).write(Device::new(board, settings))
    };
    loop {
        // SAFETY: as above; the last client and its borrow of the memory are
        // not used after this.
        let client = unsafe {
            let memory = &mut *(&raw mut MEMORY);
            (*(&raw mut CLIENT)).write(Client::new(Suite::new(Source), Pinned::new(keys), memory))
        };
        // A failure was told; the reading waits for the next time.
        let _ = device.wake(client);
        wakes = wakes.wrapping_sub(1);
        if wakes == 0 {
            registers::exit();
        }
        device.sleep();
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
