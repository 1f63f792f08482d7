//! The quota that a Receive Maximum gives (MQTT 5.0 section 4.9): how many more
//! PUBLISHes of QoS 1 and 2 one side may send.

/// A send or receive quota of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    left: u16,
    maximum: u16,
}

impl Quota {
    /// A whole quota.
    #[must_use]
    pub const fn new(maximum: u16) -> Self {
        Self {
            left: maximum,
            maximum,
        }
    }

    /// Whether another PUBLISH may be sent.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.left > 0
    }

    /// Exchanges that are not over.
    #[must_use]
    pub const fn used(&self) -> u16 {
        self.maximum - self.left
    }

    /// A PUBLISH was sent; `false` if none was allowed.
    pub const fn take(&mut self) -> bool {
        let is_open = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_open
    }

    /// An exchange is over. The quota never exceeds the Receive Maximum.
    pub const fn restore(&mut self) {
        if self.left < self.maximum {
            self.left += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quota_stays_within_the_receive_maximum() {
        let mut quota = Quota::new(2);
        quota.restore();
        assert!(quota.take() && quota.take());
        assert!(!quota.is_open() && !quota.take());
        quota.restore();
        assert!(quota.take() && !quota.take());
    }
}
