//! Types of the coordinator of transactions (section 4.5); states of deliveries
//! in a transaction are beside the other states.

use crate::Symbols;

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
        /// It is rolled back, not committed. The specification has no default, and
        /// ActiveMQ Artemis wants it.
        fail: optional bool,
    }
}
