//! Calls into the program: what the callbacks of a port promise is said here
//! once, so that the rest is safe code. Knows no protocol.

use core::ptr;

use dunlin_mini_crypto::{CryptoError, Entropy};

use crate::types::{Bytes, Happened, Port};

/// A port with all callbacks that are needed.
#[derive(Clone, Copy)]
pub(crate) struct Calls(Port);

impl Calls {
    /// Nothing if a callback is missing.
    ///
    /// # Safety
    ///
    /// The callbacks of `port` do what [`Port`] says, as long as the value
    /// lives.
    pub(crate) const unsafe fn new(port: Port) -> Option<Self> {
        match port {
            Port {
                send: Some(_),
                receive: Some(_),
                now: Some(_),
                random: Some(_),
                ..
            } => Some(Self(port)),
            _ => None,
        }
    }

    pub(crate) fn send(&self, datagram: &[u8]) {
        if let Some(send) = self.0.send {
            // SAFETY: the bytes are there for the call, as `new` was promised.
            unsafe { send(self.0.context, datagram.as_ptr(), datagram.len()) }
        }
    }

    /// Length of the datagram that was received, zero for none.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> usize {
        let Some(receive) = self.0.receive else {
            return 0;
        };
        // SAFETY: the buffer is ours for the call, as `new` was promised.
        let len = unsafe { receive(self.0.context, buffer.as_mut_ptr(), buffer.len()) };
        // A program that says more than there is room for has dropped it.
        if len > buffer.len() { 0 } else { len }
    }

    pub(crate) fn now(&self) -> u32 {
        // SAFETY: as `new` was promised.
        self.0.now.map_or(0, |now| unsafe { now(self.0.context) })
    }

    pub(crate) fn event(&self, event: &Happened) {
        if let Some(tell) = self.0.event {
            // SAFETY: the event and its bytes live until the call returns.
            unsafe { tell(self.0.context, event) }
        }
    }
}

impl Entropy for Calls {
    fn fill(&mut self, out: &mut [u8]) -> Result<(), CryptoError> {
        let random = self.0.random.ok_or(CryptoError::Entropy)?;
        // SAFETY: the buffer is ours for the call, as `new` was promised.
        let filled = unsafe { random(self.0.context, out.as_mut_ptr(), out.len()) };
        filled.then_some(()).ok_or(CryptoError::Entropy)
    }
}

impl Bytes {
    pub(crate) const NONE: Self = Self {
        data: ptr::null(),
        len: 0,
    };

    pub(crate) const fn of(bytes: &[u8]) -> Self {
        Self {
            data: bytes.as_ptr(),
            len: bytes.len(),
        }
    }
}
