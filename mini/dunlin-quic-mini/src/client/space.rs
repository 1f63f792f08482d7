//! Number spaces with their keys, and the phases of the 1-RTT keys. Knows no
//! frame.

use dunlin_mini_crypto::{Crypto, Digest};

use crate::ack::Received;
use crate::held::Held;
use crate::keys::Keys;

/// The space of Initial packets.
pub(super) const INITIAL: u8 = 0;
/// The space of Handshake packets.
pub(super) const HANDSHAKE: u8 = 1;
/// The space of 0-RTT and 1-RTT packets.
pub(super) const APP: u8 = 2;

/// A number space.
pub(super) struct Space<C: Crypto> {
    pub(super) tx: Held<Keys<C>>,
    pub(super) rx: Held<Keys<C>>,
    pub(super) received: Received,
    /// Number of the next packet.
    pub(super) next_pn: u32,
    /// Handshake bytes: the next one to send, and one after the last.
    pub(super) next: u32,
    pub(super) end: u32,
    /// Ack-eliciting packets that are not acknowledged yet.
    pub(super) unacked: u8,
    /// When they must be.
    pub(super) ack_at: u32,
    /// When the packet with the largest number came.
    pub(super) newest_at: u32,
    /// Packets to send beyond the congestion window.
    pub(super) probes: u8,
}

impl<C: Crypto> Space<C> {
    /// A space without keys.
    pub(super) const NEW: Self = Self {
        tx: Held::Nothing,
        rx: Held::Nothing,
        received: Received::NEW,
        next_pn: 0,
        next: 0,
        end: 0,
        unacked: 0,
        ack_at: 0,
        newest_at: 0,
        probes: 0,
    };

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.discard();
        self.received = Received::NEW;
        (self.next_pn, self.next, self.end) = (0, 0, 0);
        (self.ack_at, self.newest_at) = (0, 0);
    }

    /// Forgets the keys and all that was to be sent.
    pub(super) fn discard(&mut self) {
        self.tx = Held::Nothing;
        self.rx = Held::Nothing;
        self.unacked = 0;
        self.probes = 0;
        self.next = self.end;
    }
}

/// One of the spaces.
pub(super) const fn space<C: Crypto>(spaces: &mut [Space<C>; 3], which: u8) -> &mut Space<C> {
    let [initial, handshake, app] = spaces;
    match which {
        INITIAL => initial,
        HANDSHAKE => handshake,
        _ => app,
    }
}

/// Key phases of 1-RTT packets.
pub(super) struct Phase<C: Crypto> {
    /// Secrets of the current phase, and of the one before for late packets.
    pub(super) tx: Digest,
    pub(super) rx: Digest,
    pub(super) old: Digest,
    /// The bits in the header, as they are there.
    pub(super) tx_bit: u8,
    pub(super) rx_bit: u8,
    /// First numbers of the current phase.
    pub(super) tx_first: u32,
    pub(super) rx_first: u32,
    /// Whether a packet of the current phase was acknowledged.
    pub(super) acked: bool,
    pub(super) crypto: core::marker::PhantomData<C>,
}

impl<C: Crypto> Phase<C> {
    /// Before the first one.
    pub(super) const NEW: Self = Self {
        tx: [0; 32],
        rx: [0; 32],
        old: [0; 32],
        tx_bit: 0,
        rx_bit: 0,
        tx_first: 0,
        rx_first: 0,
        acked: false,
        crypto: core::marker::PhantomData,
    };
}
