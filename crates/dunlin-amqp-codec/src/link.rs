//! Performatives of a link (sections 2.7.3 to 2.7.7).

use crate::{
    AnyTarget, DeliveryState, Error, Map, ReceiverSettleMode, Role, SenderSettleMode, SerialNumber,
    Source, Symbols, Unsettled,
};

composite! {
    /// Attaches a link to a session.
    Attach<'a> = 0x12, "amqp:attach:list" {
        /// Name of the link, unique for its direction between two containers.
        name: mandatory &'a str,
        /// The sender's number for the link on this session.
        handle: mandatory u32,
        /// What the sender of this frame is on the link.
        role: mandatory Role,
        /// How the sending end of the link settles.
        snd_settle_mode: default SenderSettleMode = SenderSettleMode::Mixed,
        /// How the receiving end of the link settles.
        rcv_settle_mode: default ReceiverSettleMode = ReceiverSettleMode::First,
        /// Where messages come from.
        source: optional Source<'a>,
        /// Where messages go to.
        target: optional AnyTarget<'a>,
        /// Deliveries that the sender of this frame has not settled.
        unsettled: optional Unsettled<'a>,
        /// There are more unsettled deliveries than fit into the frame.
        incomplete_unsettled: default bool = false,
        /// The delivery count that a sender begins with; absent from a receiver.
        initial_delivery_count: optional SerialNumber,
        /// Largest message that the sender of this frame accepts; 0 is any.
        max_message_size: optional u64,
        /// Extensions that the sender of this one supports.
        offered_capabilities: optional Symbols<'a>,
        /// Extensions that the sender of this one may use if the other supports them.
        desired_capabilities: optional Symbols<'a>,
        /// Link properties, by symbol.
        properties: optional Map<'a>,
    }
}

composite! {
    /// Updates the flow state of a session, and of a link if it names one.
    Flow<'a> = 0x13, "amqp:flow:list" {
        /// Transfer id that the sender of this one expects next; absent before `begin` of
        /// the other side was seen.
        next_incoming_id: optional SerialNumber,
        /// Transfer frames that the sender of this one can receive now.
        incoming_window: mandatory u32,
        /// Transfer id of the next transfer frame of the sender.
        next_outgoing_id: mandatory SerialNumber,
        /// Transfer frames that the sender of this one may send now.
        outgoing_window: mandatory u32,
        /// The link, by the handle of the sender of this frame; absent: session only.
        handle: optional u32,
        /// Delivery count of the link, as the sender of this frame knows it.
        delivery_count: optional SerialNumber,
        /// Deliveries that the receiving end can take after `delivery_count`.
        link_credit: optional u32,
        /// Deliveries that wait at the sending end.
        available: optional u32,
        /// The sending end is to use up its credit.
        drain: default bool = false,
        /// The other side is to answer with its flow state.
        echo: default bool = false,
        /// Link state properties, by symbol.
        properties: optional Map<'a>,
    }
}

composite! {
    /// A message or a part of one, which follows it in the frame.
    Transfer<'a> = 0x14, "amqp:transfer:list" {
        /// The link.
        handle: mandatory u32,
        /// Number of the delivery on the session; in its first frame.
        delivery_id: optional SerialNumber,
        /// Name of the delivery on the link; in its first frame, at most
        /// [`crate::limits::DELIVERY_TAG_BYTES_MAX`] bytes.
        delivery_tag: optional &'a [u8],
        /// Format of the message, 0 for AMQP; in its first frame.
        message_format: optional u32,
        /// The sender has settled the delivery.
        settled: optional bool,
        /// Another frame of the delivery follows.
        more: default bool = false,
        /// Settlement that this delivery asks for, if not that of the link.
        rcv_settle_mode: optional ReceiverSettleMode,
        /// State of the delivery at the sender.
        state: optional DeliveryState<'a>,
        /// The delivery is resumed.
        resume: default bool = false,
        /// The delivery is given up.
        aborted: default bool = false,
        /// The answer may wait for others.
        batchable: default bool = false,
    }
}

composite! {
    /// Tells the state of a range of deliveries, and settles them.
    Disposition<'a> = 0x15, "amqp:disposition:list" {
        /// What the sender of this frame is for these deliveries.
        role: mandatory Role,
        /// The first delivery.
        first: mandatory SerialNumber,
        /// The last delivery; absent: `first` only.
        last: optional SerialNumber,
        /// The sender of this frame has settled them.
        settled: default bool = false,
        /// Their state at the sender of this frame.
        state: optional DeliveryState<'a>,
        /// The answer may wait for others.
        batchable: default bool = false,
    }
}

composite! {
    /// Detaches a link from its session.
    Detach<'a> = 0x16, "amqp:detach:list" {
        /// The link.
        handle: mandatory u32,
        /// The link ends, it is not only suspended.
        closed: default bool = false,
        /// Why, if not on purpose.
        error: optional Error<'a>,
    }
}
