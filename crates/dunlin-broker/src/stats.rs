//! Counters of a shard. A counter that is added to [`Stats`] appears in the
//! broker's metrics by itself.

use dunlin_base::QoS;

use crate::memory::Part;
use crate::owners::holders::Holder;

dunlin_base::totals! {
    /// Counters since the start of the shard.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Stats {
        /// Connections opened.
        pub connections: u64,
        /// Clients accepted.
        pub clients_accepted: u64,
        /// Clients refused, and tokens at `$cbs`.
        pub clients_refused: u64,
        /// Clients refused because they are banned.
        pub clients_banned: u64,
        /// Times that a client was not read because it sent faster than its quota.
        pub clients_paced: u64,
        /// Clients disconnected because they sent far more than their quota.
        pub clients_over_quota: u64,
        /// Connections that an operator ended.
        pub connections_ended: u64,
        /// Connections ended for want of a packet within 1.5 times keep alive.
        pub keep_alive_timeouts: u64,
        /// Sessions taken over by a new connection.
        pub take_overs: u64,
        /// PUBLISH packets received.
        pub messages_received_qos0: u64,
        /// PUBLISH packets received.
        pub messages_received_qos1: u64,
        /// PUBLISH packets received.
        pub messages_received_qos2: u64,
        /// PUBLISH packets sent.
        pub messages_sent_qos0: u64,
        /// PUBLISH packets sent.
        pub messages_sent_qos1: u64,
        /// PUBLISH packets sent.
        pub messages_sent_qos2: u64,
        /// QoS 0 messages dropped because a receiver did not keep up.
        pub messages_dropped_slow: u64,
        /// QoS 1 and 2 messages dropped for a receiver by policy `drop-newest`.
        pub messages_dropped_full: u64,
        /// Subscriptions refused because one message could match too many of
        /// their session.
        pub subscriptions_overlapping: u64,
        /// QoS 1 and 2 messages not sent because the receiver's rights to them
        /// ended while they waited.
        pub deliveries_denied: u64,
        /// Lines about access that the log did not get because there were too
        /// many of their kind.
        pub log_lines_left_out: u64,
        /// Publishes refused because a queue was full.
        pub publishes_refused: u64,
        /// Messages that expired in a queue.
        pub messages_expired: u64,
        /// Questions to a server about topics.
        pub topics_asked: u64,
        /// Such questions that had no answer.
        pub topics_unanswered: u64,
        /// Links of AMQP ended because of a message larger than they take.
        pub messages_too_large: u64,
        /// Messages of queues that could not be delivered: rejected, or tried too
        /// often.
        pub messages_dead: u64,
        /// Bytes received.
        pub bytes_received: u64,
        /// Bytes sent.
        pub bytes_sent: u64,
        /// Connections that broke the protocol.
        pub protocol_errors: u64,
        /// Connections closed because a packet before CONNACK was too large.
        pub connects_too_large: u64,
        /// QUIC datagrams received that carried MQTT.
        pub datagrams_received: u64,
        /// Messages given to the transport as QUIC datagrams.
        pub datagrams_sent: u64,
        /// QUIC datagrams dropped because too many came before CONNACK.
        pub datagrams_dropped: u64,
        /// Address changes of QUIC connections.
        pub migrations: u64,
        /// Requests refused for want of room in a part of the memory budget.
        pub memory_refused_sessions: u64,
        /// Requests refused for want of room in a part of the memory budget.
        pub memory_refused_subscriptions: u64,
        /// Requests refused for want of room in a part of the memory budget.
        pub memory_refused_wills: u64,
        /// Requests refused for want of room in a part of the memory budget.
        pub memory_refused_retained: u64,
        /// Requests refused for want of room in a part of the memory budget.
        pub memory_refused_queued: u64,
        /// Requests refused for want of room in a part of the memory budget.
        pub memory_refused_unsent: u64,
        /// Requests refused for want of room in a part of the memory budget.
        pub memory_refused_unfinished: u64,
        /// Requests refused to a user that has all the memory that it may have.
        pub memory_refused_user: u64,
        /// Requests refused to an address that has all the memory that it may have.
        pub memory_refused_address: u64,
        /// Messages for homes with other stores, and values that say how far those have
        /// taken them, that could not be read: they stay in the store and are left out.
        pub posts_unreadable: u64,
        /// Table entries that were missing although they cannot be: bugs.
        pub internal_errors: u64,
    }
}

impl Stats {
    /// PUBLISH packets received.
    #[must_use]
    pub const fn messages_received(&self) -> u64 {
        self.messages_received_qos0 + self.messages_received_qos1 + self.messages_received_qos2
    }

    /// PUBLISH packets sent.
    #[must_use]
    pub const fn messages_sent(&self) -> u64 {
        self.messages_sent_qos0 + self.messages_sent_qos1 + self.messages_sent_qos2
    }

    pub(crate) const fn note_received(&mut self, qos: QoS) {
        match qos {
            QoS::AtMostOnce => self.messages_received_qos0 += 1,
            QoS::AtLeastOnce => self.messages_received_qos1 += 1,
            QoS::ExactlyOnce => self.messages_received_qos2 += 1,
        }
    }

    pub(crate) const fn note_refused(&mut self, part: Part, times: u64) {
        let refused = match part {
            Part::Sessions => &mut self.memory_refused_sessions,
            Part::Subscriptions => &mut self.memory_refused_subscriptions,
            Part::Wills => &mut self.memory_refused_wills,
            Part::Retained => &mut self.memory_refused_retained,
            Part::Queued => &mut self.memory_refused_queued,
            Part::Unsent => &mut self.memory_refused_unsent,
            Part::Unfinished => &mut self.memory_refused_unfinished,
        };
        *refused += times;
    }

    pub(crate) const fn note_full_holder(&mut self, holder: &Holder, times: u64) {
        match holder {
            Holder::User(_) => self.memory_refused_user += times,
            Holder::Address(_) => self.memory_refused_address += times,
        }
    }

    pub(crate) const fn note_sent(&mut self, qos: QoS) {
        match qos {
            QoS::AtMostOnce => self.messages_sent_qos0 += 1,
            QoS::AtLeastOnce => self.messages_sent_qos1 += 1,
            QoS::ExactlyOnce => self.messages_sent_qos2 += 1,
        }
    }
}
