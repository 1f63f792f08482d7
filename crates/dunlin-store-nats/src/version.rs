//! Version of a server.

use core::fmt;

/// Version of a NATS server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerVersion {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
}

impl ServerVersion {
    /// The oldest that is accepted: from there on, one sync serves all that one turn of
    /// Raft appends, and what an earlier leader proposed does not come late.
    pub const LEAST: Self = Self {
        major: 2,
        minor: 15,
    };

    /// What a server says that it is, such as `2.15.2`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.trim_start_matches('v').split('.');
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next()?.parse().ok()?;
        Some(Self { major, minor })
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        let new_enough =
            |text| ServerVersion::parse(text).is_some_and(|v| v >= ServerVersion::LEAST);
        for text in ["2.15.0", "2.15.2", "v2.16.0-RC.1", "3.0.0", "2.100.0"] {
            assert!(new_enough(text), "{text}");
        }
        for text in ["2.14.9", "2.9.10", "1.99.0", "", "x.y.z", "2"] {
            assert!(!new_enough(text), "{text}");
        }
    }
}
