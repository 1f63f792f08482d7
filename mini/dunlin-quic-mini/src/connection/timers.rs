//! What happens when time passes: losses, probes, idle connections, delayed
//! acknowledgements (RFC 9002 section 6, RFC 9000 section 10.1).

use dunlin_mini_crypto::Crypto;

use super::handshake::Progress;
use super::space::{APP, HANDSHAKE, INITIAL};
use super::{Connection, State};
use crate::error::Error;
use crate::memory::Memory;
use crate::recovery::{SENT, Sent, what};
use crate::time::{is_due, until};
use crate::verify::Verifier;

impl<C: Crypto, V: Verifier, M: Memory> Connection<C, V, M> {
    /// Milliseconds until [`transmit`](Self::transmit) must be called.
    pub(crate) fn timeout(&self, now: u32) -> Option<u32> {
        match self.life.state {
            State::Idle | State::Closed => return None,
            State::Closing => return Some(until(now, self.life.close_at)),
            State::Connecting | State::Connected => {}
        }
        let idle = self.idle.deadline(self.peer.idle, self.recovery.pto());
        let app = self.spaces.app();
        let ack = (app.unacked > 0).then_some(app.ack_at);
        let probe = self.probe_deadline().map(|(at, _)| at);
        [idle, self.recovery.loss_deadline(now), probe, ack]
            .into_iter()
            .flatten()
            .map(|deadline| until(now, deadline))
            .min()
    }

    /// When to send a probe, and in which space.
    fn probe_deadline(&self) -> Option<(u32, u8)> {
        let base = self.recovery.pto();
        let mut nearest: Option<(u32, u8)> = None;
        for space in [INITIAL, HANDSHAKE, APP] {
            let mut pto = base;
            if space == APP {
                if !self.is_confirmed() {
                    continue;
                }
                pto += self.peer.max_ack_delay;
            }
            if let Some(last) = self.recovery.last(space) {
                let at = last.wrapping_add(self.recovery.backed_off(pto));
                if nearest.is_none_or(|(nearest, _)| is_due(nearest, at)) {
                    nearest = Some((at, space));
                }
            }
        }
        if nearest.is_none() && self.handshake.progress < Progress::Validated {
            // The server may have no credit to send: this side must speak
            // (RFC 9002 section 6.2.2.1).
            let space = self.spaces.newest_of_handshake();
            let from = self.recovery.probe_from;
            let at = from.wrapping_add(self.recovery.backed_off(base));
            nearest = Some((at, space));
        }
        nearest
    }

    /// Does what time has made due.
    #[inline(never)]
    pub(super) fn tick(&mut self, now: u32) {
        match self.life.state {
            State::Idle | State::Closed => return,
            State::Closing => {
                if is_due(now, self.life.close_at) {
                    self.life.state = State::Closed;
                }
                return;
            }
            State::Connecting | State::Connected => {}
        }
        let idle = self.idle.deadline(self.peer.idle, self.recovery.pto());
        if idle.is_some_and(|at| is_due(now, at)) {
            return self.life.forget(Error::IdleTimeout);
        }
        if self.streams.is_spent() {
            return self.end(now, Error::ByteNumbers);
        }
        self.detect_losses(now);
        if let Some((at, space)) = self.probe_deadline()
            && is_due(now, at)
        {
            self.recovery.backoff = self.recovery.backoff.saturating_add(1);
            self.recovery.probe_from = now;
            self.probe(space);
        }
    }

    pub(super) fn detect_losses(&mut self, now: u32) {
        while let Some(lost) = self.recovery.take_lost(now) {
            self.repeat(&lost);
        }
    }

    /// Sends two packets beyond the congestion window, with what is in
    /// flight in this space if there is something.
    #[inline(never)]
    pub(super) fn probe(&mut self, which: u8) {
        if !self.recovery.has_room()
            && let Some(oldest) = self.recovery.take(which, 0, u32::MAX)
        {
            self.repeat(&oldest);
        }
        for index in 0..SENT {
            if let Some(sent) = self.recovery.entry(index)
                && sent.size != 0
                && sent.space == which
            {
                self.repeat(&sent);
            }
        }
        self.spaces.of(which).probes = 2;
    }

    /// Lets what a packet carried be sent again.
    fn repeat(&mut self, sent: &Sent) {
        if sent.space != APP {
            if sent.what & what::DATA != 0 {
                let space = self.spaces.of(sent.space);
                space.next = space.next.min(sent.offset);
            }
            return;
        }
        self.streams.widened |= sent.what & what::MAX_DATA != 0;
        if sent.what & what::CHALLENGE != 0 {
            self.path.lost();
        }
        if sent.what & what::RETIRE != 0 {
            // Without room for it in the list, the server keeps an id for nothing.
            let _ = self.cids.retire(sent.offset);
        }
        if let Some(slot) = self.memory.parts().slot(usize::from(sent.stream)) {
            slot.state.lost(sent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::streams::BYTES;
    use super::State;
    use crate::error::Error;
    use crate::trial::server::Pair;

    #[test]
    fn no_byte_number_is_given_twice() {
        // Bytes before the end, bytes written, and whether it has ended.
        for (left, wrote, ended) in [(9, 8, false), (9, 9, true), (8, 300, true)] {
            let (mut pair, id) = Pair::connected();
            pair.client.connection.streams.credit = u32::MAX;
            pair.client.connection.streams.used = BYTES - left;
            pair.client.write(id, &[7; 300][..wrote]).unwrap();
            let mut out = [0; 1200];
            while pair.client.transmit(1, &mut out) > 0 {}
            let error = pair.client.error();
            assert_eq!(error.is_some(), ended, "{left} {wrote}");
            assert!(error.is_none_or(|error| error == Error::ByteNumbers));
        }
        let (mut pair, id) = Pair::connected();
        pair.client.connection.streams.consumed = BYTES - 5;
        pair.send(2, &[0x0a, 0, 5, 1, 2, 3, 4, 5]);
        assert_eq!(pair.client.error(), None);
        pair.client.consume(id, 5);
        let mut out = [0; 1200];
        // The server learns it.
        assert!(pair.client.transmit(1, &mut out) > 0);
        assert_eq!(pair.client.error(), Some(Error::ByteNumbers));
        assert_eq!(pair.client.state(), State::Closing);
    }
}
