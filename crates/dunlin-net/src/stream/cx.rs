//! What connections use of the loop while they run.

use dunlin_base::Instant;
use dunlin_base::transport::{CloseCause, NetEvent};
use dunlin_quic::Counters;

use crate::NetLimits;
use crate::admission::Admission;
use crate::tls::OutBuf;
use crate::ws::MaskKeys;

/// Bytes read with one call, and the size of the buffer shared by all
/// connections of a loop.
const READ_BYTES: usize = 64 << 10;
/// Datagram batches: how many buffers, and the size of each. The kernel may
/// coalesce datagrams up to the largest IP packet.
pub(crate) const UDP_BATCH: usize = 8;
pub(crate) const UDP_BYTES: usize = 64 << 10;

/// The loop, as a connection sees it.
pub(crate) struct Cx<'a> {
    pub(crate) now: Instant,
    pub(crate) limits: &'a NetLimits,
    pub(crate) admission: &'a Admission,
    pub(crate) counters: &'a mut Counters,
    pub(crate) scratch: &'a mut Scratch,
    /// Bytes that the application was given.
    pub(crate) delivered: usize,
    pub(crate) out: &'a mut dyn FnMut(NetEvent<&[u8]>),
}

/// Buffers shared by all connections of a loop.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// For one read.
    pub(crate) read: Vec<u8>,
    /// For what TLS encodes.
    pub(crate) tls_out: OutBuf,
    /// For decrypted bytes that must be unmasked, and bytes that must be
    /// contiguous.
    pub(crate) plain: Vec<u8>,
    /// For stream data of several datagrams; empty until there is any.
    pub(crate) gather: Vec<u8>,
    /// For one batch of received datagrams; empty until there is a UDP socket.
    pub(crate) udp_in: Vec<u8>,
    /// For one transmission.
    pub(crate) udp_out: Vec<u8>,
    pub(crate) masks: MaskKeys,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self {
            read: vec![0; READ_BYTES],
            tls_out: OutBuf::default(),
            plain: Vec::new(),
            gather: Vec::new(),
            udp_in: Vec::new(),
            udp_out: Vec::new(),
            masks: MaskKeys::new(),
        }
    }

    /// Makes room for datagrams.
    pub(crate) fn reserve_udp(&mut self) {
        // Zeroed by the system as it is used, most of it never.
        if self.udp_in.is_empty() {
            self.udp_in = vec![0; UDP_BATCH * UDP_BYTES];
        }
    }
}

/// What the loop must do with a connection after it ran.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Wait for the next readiness.
    Wait,
    /// Its read budget is spent: run it again soon.
    Again,
    /// Remove it; report the cause unless the end was reported before.
    Gone(CloseCause),
}
