//! An image that runs a cryptographic provider on a Cortex-M4 of QEMU:
//!
//! - `vectors FILE`: test vectors;
//! - `bench`: every operation once, with the stack that it used;
//! - `steady`: secret operations with many secrets, between marks of the
//!   plugin, which must not be able to tell them apart.

#![no_std]
#![no_main]
#![allow(
    clippy::deref_addrof,
    reason = "a `static mut` is not to be referred to in another way"
)]

mod host;
mod measure;
mod operations;
mod vectors;

use core::fmt::Write as _;

use dunlin_mini_crypto::{Crypto, CryptoError};

/// The provider under test, whose entropy is `seed` again and again.
fn provider(seed: &[u8; 32]) -> impl Crypto + use<> {
    let seed = *seed;
    let entropy = move |out: &mut [u8]| -> Result<(), CryptoError> {
        for (to, from) in out.iter_mut().zip(seed.iter().cycle()) {
            *to = *from;
        }
        Ok(())
    };
    #[cfg(feature = "fast")]
    return dunlin_mini_crypto::Fast::new(entropy);
    #[cfg(not(feature = "fast"))]
    dunlin_mini_crypto::Tiny::new(entropy)
}

#[cortex_m_rt::entry]
fn main() -> ! {
    let mut console = host::console();
    let mut line = [0; 256];
    let mut words = host::command_line(&mut line)
        .split(|byte| *byte == b' ' || *byte == 0)
        .filter(|word| !word.is_empty())
        // The first is the image's name.
        .skip(1);
    let done = match (words.next(), words.next()) {
        (Some(b"bench"), None) => operations::bench(&mut console),
        (Some(b"steady"), None) => operations::steady(&mut console),
        (Some(b"vectors"), Some(path)) => {
            let mut name = [0; 256];
            match name.get_mut(..path.len()) {
                Some(to) => to.copy_from_slice(path),
                None => host::exit(2),
            }
            vectors::run(name.get(..=path.len()).unwrap_or_default(), &mut console)
        }
        _ => {
            let _ = writeln!(console, "usage: vectors FILE | bench | steady");
            host::exit(2)
        }
    };
    host::exit(usize::from(!done))
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let _ = writeln!(host::console(), "{info}");
    host::exit(3)
}
