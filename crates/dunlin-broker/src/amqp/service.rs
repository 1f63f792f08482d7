//! The services of the broker by their addresses, and how they answer.

/// What the broker does itself for its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// `$management`: queues.
    Management,
    /// `$cbs`: tokens.
    Cbs,
}

impl Service {
    pub(super) const fn address(self) -> &'static str {
        match self {
            Self::Management => "$management",
            Self::Cbs => "$cbs",
        }
    }

    /// The service with this address.
    pub(super) fn at(address: &str) -> Option<Self> {
        let all = [Self::Management, Self::Cbs];
        all.into_iter().find(|it| it.address() == address)
    }

    /// Bytes of a request.
    pub(super) const fn bytes_max(self) -> u64 {
        match self {
            Self::Management => 64 * 1024,
            // The longest token, and what is said of it.
            Self::Cbs => 12 * 1024,
        }
    }

    /// The application properties of an answer that have its status.
    pub(super) const fn names(self) -> [&'static str; 2] {
        match self {
            Self::Management => ["statusCode", "statusDescription"],
            Self::Cbs => ["status-code", "status-description"],
        }
    }
}
