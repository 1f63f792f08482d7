//! The network of the image: the own one, or smoltcp by a feature.

use dunlin_mini_crypto::{CryptoError, Entropy};
use dunlin_mini_device::Settings;

#[cfg(not(feature = "smoltcp"))]
pub type Network = dunlin_mini_device::Interface;
#[cfg(feature = "smoltcp")]
pub type Network = dunlin_mini_device::Smol<'static>;

/// The network of these settings; to be called once.
#[cfg(not(feature = "smoltcp"))]
pub fn start(settings: &Settings<'_>, _: &mut impl Entropy) -> Result<Network, CryptoError> {
    Ok(settings.interface())
}

/// The network of these settings; to be called once.
#[cfg(feature = "smoltcp")]
pub fn start(settings: &Settings<'_>, random: &mut impl Entropy) -> Result<Network, CryptoError> {
    use dunlin_mini_device::{Queues, Smol, Sockets};

    static mut SOCKETS: Sockets<'static> = Sockets::new();
    static mut QUEUES: Queues = Queues::new();
    let mut seed = [0; 8];
    random.fill(&mut seed)?;
    // SAFETY: there is one thread, and the caller promises to come once.
    let (sockets, queues) = unsafe { (&mut *(&raw mut SOCKETS), &mut *(&raw mut QUEUES)) };
    Ok(Smol::new(
        settings,
        sockets,
        queues,
        u64::from_le_bytes(seed),
    ))
}
