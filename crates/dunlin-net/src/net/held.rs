//! Connections counted by transport.

use dunlin_base::transport::Transport;

/// Transports that connections are counted by.
const TRANSPORTS: [Transport; 6] = [
    Transport::Quic,
    Transport::Tcp,
    Transport::Tls,
    Transport::Ws,
    Transport::Wss,
    Transport::Unix,
];

/// Connections by transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    counts: [usize; TRANSPORTS.len()],
}

impl Held {
    /// Every transport with the number of its connections, those in their
    /// handshake or still closing included.
    pub fn iter(&self) -> impl Iterator<Item = (Transport, usize)> + '_ {
        TRANSPORTS.into_iter().zip(self.counts.iter().copied())
    }

    pub(super) fn add(&mut self, transport: Transport) {
        if let Some(count) = self.count(transport) {
            *count += 1;
        }
    }

    pub(super) fn remove(&mut self, transport: Transport) {
        if let Some(count) = self.count(transport) {
            *count = count.saturating_sub(1);
        }
    }

    fn count(&mut self, transport: Transport) -> Option<&mut usize> {
        let at = TRANSPORTS.iter().position(|t| *t == transport)?;
        self.counts.get_mut(at)
    }
}
