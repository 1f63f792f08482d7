//! Performatives of a session (sections 2.7.2, 2.7.8).

use crate::{Error, Map, SerialNumber, Symbols};

composite! {
    /// Begins a session on a channel.
    Begin<'a> = 0x11, "amqp:begin:list" {
        /// The channel of the other side that this one answers to.
        remote_channel: optional u16,
        /// Transfer id of the next transfer frame of the sender.
        next_outgoing_id: mandatory SerialNumber,
        /// Transfer frames that the sender of this one can receive now.
        incoming_window: mandatory u32,
        /// Transfer frames that the sender of this one may send now.
        outgoing_window: mandatory u32,
        /// Highest link handle that the sender of this one accepts.
        handle_max: default u32 = u32::MAX,
        /// Extensions that the sender of this one supports.
        offered_capabilities: optional Symbols<'a>,
        /// Extensions that the sender of this one may use if the other supports them.
        desired_capabilities: optional Symbols<'a>,
        /// Session properties, by symbol.
        properties: optional Map<'a>,
    }
}

composite! {
    /// Ends a session.
    End<'a> = 0x17, "amqp:end:list" {
        /// Why, if not on purpose.
        error: optional Error<'a>,
    }
}
