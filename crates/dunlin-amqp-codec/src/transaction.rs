//! Types of transactions (section 4.5).

use crate::{Outcome, Symbols};

composite! {
    /// A target that is the coordinator of transactions.
    Coordinator<'a> = 0x30, "amqp:coordinator:list" {
        /// What the coordinator can do, see [`crate::capability`].
        capabilities: optional Symbols<'a>,
    }
}

composite! {
    /// Asks for a transaction: the body of a message to the coordinator.
    Declare<'a> = 0x31, "amqp:declare:list" {
        /// Identifier of a distributed transaction.
        global_id: optional &'a [u8],
    }
}

composite! {
    /// Ends a transaction: the body of a message to the coordinator.
    Discharge<'a> = 0x32, "amqp:discharge:list" {
        /// The transaction.
        txn_id: mandatory &'a [u8],
        /// It is rolled back, not committed.
        fail: default bool = false,
    }
}

composite! {
    /// Outcome of [`Declare`].
    Declared<'a> = 0x33, "amqp:declared:list" {
        /// The transaction.
        txn_id: mandatory &'a [u8],
    }
}

composite! {
    /// State of a delivery that belongs to a transaction.
    TransactionalState<'a> = 0x34, "amqp:transactional-state:list" {
        /// The transaction.
        txn_id: mandatory &'a [u8],
        /// The outcome, if the transaction is committed.
        outcome: optional Outcome<'a>,
    }
}
