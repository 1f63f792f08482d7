//! Capabilities, filters, annotations and node properties by name: of AMQP 1.0,
//! of its companion specifications, and of clients in wide use.

use crate::Symbol;

macro_rules! symbols {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub const $name: Symbol<'static> = Symbol::from_static($text);)*
    };
}

symbols! {
    /// Connection: senders may attach to a null target (Anonymous Terminus 1.0).
    ANONYMOUS_RELAY = "ANONYMOUS-RELAY";
    /// Connection: subscriptions that several links share.
    SHARED_SUBS = "SHARED-SUBS";
    /// Connection: only one for a container id.
    SOLE_CONNECTION = "sole-connection-for-container";
    /// Connection: messages may be delayed.
    DELAYED_DELIVERY = "DELAYED_DELIVERY";
    /// Connection: links come in pairs (Link Pairing 1.0).
    LINK_PAIR = "LINK_PAIR_V1_0";
    /// Connection: tokens are taken at `$cbs` (Claims-based Security 1.0).
    CBS = "AMQP_CBS_V1_0";
    /// Link property: it belongs to a pair.
    PAIRED = "paired";
    /// Terminus: the node is a queue.
    QUEUE = "queue";
    /// Terminus: the node is a topic.
    TOPIC = "topic";
    /// Terminus: the node is a queue that lives as long as the connection.
    TEMPORARY_QUEUE = "temporary-queue";
    /// Terminus: the node is a topic that lives as long as the connection.
    TEMPORARY_TOPIC = "temporary-topic";
    /// Source: the subscription is shared by links of one container.
    SHARED = "shared";
    /// Source: the subscription is shared by all containers.
    GLOBAL = "global";
    /// Coordinator: transactions of this broker only.
    LOCAL_TRANSACTIONS = "amqp:local-transactions";
    /// Coordinator: distributed transactions.
    DISTRIBUTED_TRANSACTIONS = "amqp:distributed-transactions";
    /// Coordinator: transactions that change hands.
    PROMOTABLE_TRANSACTIONS = "amqp:promotable-transactions";
    /// Coordinator: several transactions of a session at once.
    MULTI_TXNS_PER_SSN = "amqp:multi-txns-per-ssn";
    /// Coordinator: a transaction over several sessions.
    MULTI_SSNS_PER_TXN = "amqp:multi-ssns-per-txn";
    /// Node property: when a dynamic node is deleted.
    LIFETIME_POLICY = "lifetime-policy";
    /// Node property: distribution modes that it supports.
    SUPPORTED_DIST_MODES = "supported-dist-modes";
    /// Connection property: bytes of different streams of QUIC are to leave in
    /// different packets (1).
    ISOLATE = "dunlin-isolate";
    /// Connection property: small packets are to leave twice, always (1) or for a
    /// while after a loss (2).
    REPEAT = "dunlin-repeat";
    /// Connection property: what the program is (Connection Properties 1.0).
    PRODUCT = "product";
    /// Connection property: its version (likewise).
    VERSION = "version";
    /// Connection property: what clients of JMS put in front of the name of a queue.
    QUEUE_PREFIX = "queue-prefix";
    /// Message annotation: what a client of JMS sends to: a queue (0), a topic (1), a
    /// temporary queue (2), a temporary topic (3).
    JMS_DESTINATION = "x-opt-jms-dest";
    /// Outcome: accepted.
    ACCEPTED = "amqp:accepted:list";
    /// Outcome: rejected.
    REJECTED = "amqp:rejected:list";
    /// Outcome: released.
    RELEASED = "amqp:released:list";
    /// Outcome: modified.
    MODIFIED = "amqp:modified:list";
    /// Filter: a selector of JMS.
    SELECTOR_FILTER = "apache.org:selector-filter:string";
    /// Filter: not what the same container sent.
    NO_LOCAL_FILTER = "apache.org:no-local-filter:list";
    /// Filter: by properties (Filter Expressions 1.0).
    PROPERTIES_FILTER = "amqp:properties-filter";
    /// Filter: by application properties (Filter Expressions 1.0).
    APPLICATION_PROPERTIES_FILTER = "amqp:application-properties-filter";
    /// Filter: an expression in SQL (Filter Expressions 1.0).
    SQL_FILTER = "amqp:sql-filter";
}
