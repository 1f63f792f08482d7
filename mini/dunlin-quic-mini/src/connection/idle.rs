//! How long a connection may be silent (RFC 9000 section 10.1).

/// Silence, and how much of it is too much.
pub(super) struct Idle {
    /// What this side wants, in milliseconds; zero is never.
    own: u32,
    /// Since when nothing was heard, or answered.
    from: u32,
    /// Whether something ack-eliciting was sent since the last packet came.
    asked: bool,
}

impl Idle {
    /// Never.
    pub(super) const NEW: Self = Self {
        own: 0,
        from: 0,
        asked: false,
    };

    /// The connection begins.
    pub(super) const fn begin(&mut self, now: u32, own: u32) {
        self.own = own;
        self.heard(now);
    }

    /// A packet was understood.
    pub(super) const fn heard(&mut self, now: u32) {
        self.from = now;
        self.asked = false;
    }

    /// Something ack-eliciting was sent.
    pub(super) const fn ask(&mut self, now: u32) {
        if !self.asked {
            self.asked = true;
            self.from = now;
        }
    }

    /// When the connection is over. `peer` is what the server wants; three
    /// probes have the chance to be answered in any case.
    pub(super) fn deadline(&self, peer: u32, pto: u32) -> Option<u32> {
        let idle = match (self.own, peer) {
            (0, 0) => return None,
            (0, idle) | (idle, 0) => idle,
            (own, peer) => own.min(peer),
        };
        let idle = idle.max(3 * pto).min(i32::MAX.cast_unsigned());
        Some(self.from.wrapping_add(idle))
    }
}
