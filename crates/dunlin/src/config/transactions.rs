//! `[transactions]`: what one transaction of AMQP may be.

use serde::{Deserialize, Serialize};

use super::units::{Size, Span};

/// Limits of transactions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Transactions {
    /// Longest time from declare to discharge.
    pub timeout: Span,
    /// Most of one connection.
    pub max_per_connection: usize,
    /// Most messages and outcomes in one.
    pub max_operations: usize,
    /// Most bytes of them.
    pub max_bytes: Size,
}

impl Default for Transactions {
    fn default() -> Self {
        Self {
            timeout: Span::secs(120),
            max_per_connection: 64,
            max_operations: 1000,
            max_bytes: Size::mib(16),
        }
    }
}

/// The limits as a shard takes them.
pub(crate) fn transactions(limits: &Transactions) -> dunlin_broker::Transactions {
    dunlin_broker::Transactions {
        max: limits.max_per_connection,
        timeout: limits.timeout.0,
        operations_max: limits.max_operations,
        bytes_max: limits.max_bytes.as_usize(),
        ..dunlin_broker::Transactions::default()
    }
}
