//! Number spaces with their keys, and the phases of the 1-RTT keys (RFC 9001
//! section 6).

use dunlin_mini_crypto::{Crypto, Digest, Suite};

use crate::ack::Received;
use crate::cid::Cid;
use crate::held::Held;
use crate::keys::{self, Keys, PacketKey, decode_pn, next_secret};
use crate::recovery::{Sent, what};
use crate::time::is_due;
use crate::wire::Writer;

/// Milliseconds that an acknowledgement of 1-RTT packets may wait for company;
/// the transport parameter is left at its default of 25.
const ACK_DELAY: u32 = 20;
/// Packets with one key phase, after which the keys are updated. RFC 9001
/// section 6.6 allows twice as many.
const PHASE_PACKETS: u32 = 1 << 22;

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

    /// Writes handshake messages, which begin with `hello` at offset `base`.
    /// Whether there are any.
    pub(super) fn write(
        &mut self,
        base: u32,
        hello: &[u8],
        writer: &mut Writer<'_>,
        sent: &mut Sent,
    ) -> bool {
        self.next = self.next.max(base);
        // Type, offset and length take seven bytes at most here.
        let room = u32::try_from(writer.room().saturating_sub(8)).unwrap_or(0);
        let len = self.end.saturating_sub(self.next).min(room);
        if len == 0 {
            return false;
        }
        let from = self.next.saturating_sub(base) as usize;
        let data = hello.get(from..).unwrap_or_default();
        writer.u8(0x06);
        writer.varint(self.next);
        writer.varint(len);
        writer.put(data.get(..len as usize).unwrap_or_default());
        sent.what = what::DATA;
        sent.offset = self.next;
        sent.len = u16::try_from(len).unwrap_or(0);
        self.next += len;
        true
    }

    /// Writes an ACK frame if one is owed. Whether it is due.
    pub(super) fn write_ack(&self, now: u32, app: bool, writer: &mut Writer<'_>) -> bool {
        if self.unacked == 0 {
            return false;
        }
        let mut delay = 0;
        if app {
            // In units of eight microseconds.
            delay = now.wrapping_sub(self.newest_at).min(1000) * 125;
        }
        self.received.write(writer, delay);
        is_due(now, self.ack_at)
    }

    /// Notes a packet, and when it must be acknowledged.
    #[inline(never)]
    pub(super) fn arrived(&mut self, now: u32, pn: u32, asks: bool, app: bool) {
        let in_order = self.received.expected() == pn;
        if self.received.insert(pn) {
            self.newest_at = now;
        }
        if asks {
            if self.unacked == 0 {
                self.ack_at = now.wrapping_add(ACK_DELAY);
            }
            self.unacked = self.unacked.saturating_add(1);
            // The second packet is acknowledged at once, and so is all that
            // looks like a loss (RFC 9000 section 13.2.1).
            if !app || !in_order || self.unacked > 1 {
                self.ack_at = now;
            }
        }
    }
}

const fn space<C: Crypto>(spaces: &mut [Space<C>; 3], which: u8) -> &mut Space<C> {
    let [initial, handshake, app] = spaces;
    match which {
        INITIAL => initial,
        HANDSHAKE => handshake,
        _ => app,
    }
}

/// Key phases of 1-RTT packets.
struct Phase {
    /// Secrets of the current phase, and of the one before for late packets.
    tx: Digest,
    rx: Digest,
    old: Digest,
    /// The bits in the header, as they are there.
    tx_bit: u8,
    rx_bit: u8,
    /// First numbers of the current phase.
    tx_first: u32,
    rx_first: u32,
    /// Whether a packet of the current phase was acknowledged.
    acked: bool,
}

impl Phase {
    /// Before the first one.
    const NEW: Self = Self {
        tx: [0; 32],
        rx: [0; 32],
        old: [0; 32],
        tx_bit: 0,
        rx_bit: 0,
        tx_first: 0,
        rx_first: 0,
        acked: false,
    };
}

/// All number spaces of a connection.
pub(super) struct Spaces<C: Crypto> {
    all: [Space<C>; 3],
    phase: Phase,
}

impl<C: Crypto> Spaces<C> {
    /// Spaces without keys.
    pub(super) const NEW: Self = Self {
        all: [Space::NEW; 3],
        phase: Phase::NEW,
    };

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        for space in &mut self.all {
            space.clear();
        }
        self.phase = Phase::NEW;
    }

    /// One of the spaces.
    pub(super) const fn of(&mut self, which: u8) -> &mut Space<C> {
        space(&mut self.all, which)
    }

    /// The space of 0-RTT and 1-RTT packets.
    pub(super) const fn app(&self) -> &Space<C> {
        let [_, _, app] = &self.all;
        app
    }

    /// The keys of Initial packets.
    pub(super) fn initial_keys(&mut self, crypto: &mut C, cid: &Cid) {
        let [tx, rx] = keys::initial(crypto, cid.bytes());
        let [initial, _, _] = &mut self.all;
        let suite = Suite::Aes128Gcm;
        Keys::install(&mut initial.tx, crypto, suite, &tx);
        Keys::install(&mut initial.rx, crypto, suite, &rx);
    }

    /// The keys of the handshake, or of 1-RTT packets.
    pub(super) fn install(
        &mut self,
        crypto: &mut C,
        which: u8,
        suite: Suite,
        client: &Digest,
        server: &Digest,
    ) {
        let space = self.of(which);
        Keys::install(&mut space.tx, crypto, suite, client);
        Keys::install(&mut space.rx, crypto, suite, server);
        (self.phase.tx, self.phase.rx) = (*client, *server);
    }

    /// The 1-RTT packets begin.
    pub(super) const fn begin_app(&mut self) {
        self.phase.tx_first = self.app().next_pn;
    }

    /// Where the anti-deadlock timer sends its probes.
    pub(super) const fn newest_of_handshake(&self) -> u8 {
        let [_, handshake, _] = &self.all;
        if handshake.tx.as_ref().is_some() {
            HANDSHAKE
        } else {
            INITIAL
        }
    }

    /// A 1-RTT packet was acknowledged. Whether the server thereby has the
    /// client's Finished.
    pub(super) const fn acked(&mut self, pn: u32) -> bool {
        let current = pn >= self.phase.tx_first;
        self.phase.acked |= current;
        current
    }

    /// Whether keys may be updated: a packet with the current ones was
    /// acknowledged.
    #[cfg(feature = "key-update")]
    pub(super) const fn may_update(&self) -> bool {
        self.phase.acked
    }

    /// The bit of the key phase in the header of a packet.
    pub(super) const fn phase_bit(&self) -> u8 {
        self.phase.tx_bit
    }

    /// Takes the protection off. Gives the packet number, the length of the
    /// payload and where it begins.
    pub(super) fn decrypt(
        &mut self,
        crypto: &mut C,
        suite: Suite,
        (which, at): (u8, usize),
        packet: &mut [u8],
    ) -> Option<(u32, usize, usize)> {
        let space = space(&mut self.all, which);
        let keys = space.rx.as_ref()?;
        let (truncated, header) = keys.unmask(crypto, packet, at)?;
        let len = header.saturating_sub(at);
        let pn = decode_pn(space.received.expected(), truncated, len)?;
        let bit = packet.first()? & 4;
        if which == APP && bit != self.phase.rx_bit {
            let payload = self.other_phase(crypto, suite, pn, packet, header)?;
            return Some((pn, payload, header));
        }
        let payload = keys.packet().open(crypto, pn, packet, header)?;
        Some((pn, payload.len(), header))
    }

    /// Opens a packet of the phase before, or of the next one, which then
    /// becomes the current one.
    #[inline(never)]
    fn other_phase(
        &mut self,
        crypto: &mut C,
        suite: Suite,
        pn: u32,
        packet: &mut [u8],
        header: usize,
    ) -> Option<usize> {
        let late = pn < self.phase.rx_first;
        let secret = if late {
            self.phase.old
        } else {
            next_secret(crypto, &self.phase.rx)
        };
        let key = PacketKey::new(crypto, suite, &secret);
        let len = key.open(crypto, pn, packet, header)?.len();
        if late {
            return Some(len);
        }
        self.phase.old = self.phase.rx;
        self.phase.rx = secret;
        self.phase.rx_bit ^= 4;
        self.phase.rx_first = pn;
        if let Some(keys) = self.of(APP).rx.as_mut() {
            keys.replace(key);
        }
        if self.phase.tx_bit != self.phase.rx_bit {
            self.update(crypto, suite);
        }
        Some(len)
    }

    /// Begins to send with the keys of the next phase.
    pub(super) fn update(&mut self, crypto: &mut C, suite: Suite) {
        let secret = next_secret(crypto, &self.phase.tx);
        let key = PacketKey::new(crypto, suite, &secret);
        self.phase.tx = secret;
        self.phase.tx_bit ^= 4;
        self.phase.tx_first = self.app().next_pn;
        self.phase.acked = false;
        if let Some(keys) = self.of(APP).tx.as_mut() {
            keys.replace(key);
        }
    }

    /// Updates the keys in time (RFC 9001 section 6.6).
    pub(super) fn refresh(&mut self, crypto: &mut C, suite: Suite, which: u8) {
        if which == APP
            && self.app().next_pn.wrapping_sub(self.phase.tx_first) > PHASE_PACKETS
            && self.phase.acked
        {
            self.update(crypto, suite);
        }
    }
}
