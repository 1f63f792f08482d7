//! The static library: the functions of `dunlin-tiny-c`, and what a program
//! without Rust's standard library needs. Knows nothing else, unless it is asked
//! for the board of the example.

#![no_std]

pub use dunlin_tiny_c::api;

#[cfg(feature = "mps2")]
pub mod mps2;

/// Never reached: nothing in the library can panic, which
/// `scripts/mcu/c-api.sh` holds it to. The name would be in the image.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    unsafe extern "C" {
        fn dunlin_cannot_panic() -> !;
    }
    // SAFETY: a symbol without a definition, so that a program with a path to
    // here does not link.
    unsafe { dunlin_cannot_panic() }
}
