//! The windows of a session, counted in transfer frames (section 2.5.6).

use dunlin_amqp_codec::{Begin, Flow, SerialNumber};

use crate::link::FIRST;

/// What `outgoing-window` says: this side keeps nothing back.
const OUTGOING_WINDOW: u32 = i32::MAX.cast_unsigned();

/// Flow state of a session.
#[derive(Debug)]
pub(crate) struct Windows {
    /// `None` until the peer's `begin` came.
    next_incoming_id: Option<SerialNumber>,
    incoming: u32,
    incoming_max: u32,
    next_outgoing_id: SerialNumber,
    /// Transfer frames that the peer takes now.
    remote_incoming: u32,
}

impl Windows {
    pub(crate) const fn new(incoming_max: u32) -> Self {
        Self {
            next_incoming_id: None,
            incoming: incoming_max,
            incoming_max,
            next_outgoing_id: FIRST,
            remote_incoming: 0,
        }
    }

    /// Our `begin`, without what the windows do not know.
    pub(crate) fn begin(&self) -> Begin<'static> {
        Begin {
            next_outgoing_id: self.next_outgoing_id,
            incoming_window: self.incoming,
            outgoing_window: OUTGOING_WINDOW,
            ..Begin::default()
        }
    }

    /// Our flow state, which opens the incoming window again.
    pub(crate) fn flow(&mut self) -> Flow<'static> {
        self.incoming = self.incoming_max;
        Flow {
            next_incoming_id: self.next_incoming_id,
            incoming_window: self.incoming,
            next_outgoing_id: self.next_outgoing_id,
            outgoing_window: OUTGOING_WINDOW,
            ..Flow::default()
        }
    }

    /// The peer's `begin`.
    pub(crate) fn handle_begin(&mut self, begin: &Begin<'_>) {
        self.next_incoming_id = Some(begin.next_outgoing_id);
        self.remote_incoming = begin.incoming_window;
    }

    /// The peer's flow state.
    pub(crate) fn handle_flow(&mut self, flow: &Flow<'_>) {
        self.next_incoming_id = Some(flow.next_outgoing_id);
        // Without an id the peer has not seen our `begin`.
        let seen = flow.next_incoming_id.unwrap_or(FIRST);
        let in_flight = self.next_outgoing_id.since(seen).max(0).unsigned_abs();
        self.remote_incoming = flow.incoming_window.saturating_sub(in_flight);
    }

    /// A transfer frame came: `None` if the window was closed, else whether it
    /// is to be opened again.
    pub(crate) fn receive(&mut self) -> Option<bool> {
        self.incoming = self.incoming.checked_sub(1)?;
        self.next_incoming_id = self.next_incoming_id.map(SerialNumber::next);
        Some(self.incoming <= self.incoming_max / 2)
    }

    /// Whether a transfer frame may be sent.
    pub(crate) const fn is_open(&self) -> bool {
        self.remote_incoming > 0
    }

    /// A transfer frame was sent.
    pub(crate) const fn send(&mut self) {
        self.remote_incoming = self.remote_incoming.saturating_sub(1);
        self.next_outgoing_id = self.next_outgoing_id.next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remote_window_counts_from_what_the_peer_has_seen() {
        let mut windows = Windows::new(4);
        assert!(!windows.is_open(), "before begin");
        windows.handle_begin(&Begin {
            next_outgoing_id: SerialNumber(7),
            incoming_window: 5,
            ..Begin::default()
        });
        for _ in 0..5 {
            assert!(windows.is_open());
            windows.send();
        }
        assert!(!windows.is_open());
        let flow = |seen: Option<u32>, window| Flow {
            next_incoming_id: seen.map(SerialNumber),
            incoming_window: window,
            next_outgoing_id: SerialNumber(7),
            ..Flow::default()
        };
        windows.handle_flow(&flow(Some(FIRST.add(3).0), 3));
        assert_eq!(windows.remote_incoming, 1);
        windows.handle_flow(&flow(None, 5));
        assert_eq!(windows.remote_incoming, 0);
        windows.handle_flow(&flow(Some(FIRST.add(5).0), u32::MAX));
        assert_eq!(windows.remote_incoming, u32::MAX);
    }

    #[test]
    fn the_incoming_window_opens_again_with_each_flow() {
        let mut windows = Windows::new(4);
        let took: [Option<bool>; 5] = core::array::from_fn(|_| windows.receive());
        assert_eq!(
            took,
            [Some(false), Some(true), Some(true), Some(true), None]
        );
        assert_eq!(windows.flow().incoming_window, 4);
        assert_eq!(windows.receive(), Some(false));
    }
}
