//! Performatives of a connection (sections 2.7.1, 2.7.9) and the error that
//! closing performatives carry (section 2.8.14).

use crate::{Map, Symbol, Symbols};

composite! {
    /// Opens a connection; the first frame of each side.
    Open<'a> = 0x10, "amqp:open:list" {
        /// Id of the container that sends it.
        container_id: mandatory &'a str,
        /// Name of the host that the connection is meant for.
        hostname: optional &'a str,
        /// Largest frame that the sender of this one accepts.
        max_frame_size: default u32 = u32::MAX,
        /// Highest channel number that the sender of this one accepts.
        channel_max: default u16 = u16::MAX,
        /// Milliseconds without a frame after which the sender of this one closes.
        idle_time_out: optional u32,
        /// Locales for text that the sender of this one sends.
        outgoing_locales: optional Symbols<'a>,
        /// Locales for text that the sender of this one wants.
        incoming_locales: optional Symbols<'a>,
        /// Extensions that the sender of this one supports.
        offered_capabilities: optional Symbols<'a>,
        /// Extensions that the sender of this one may use if the other supports them.
        desired_capabilities: optional Symbols<'a>,
        /// Connection properties, by symbol.
        properties: optional Map<'a>,
    }
}

composite! {
    /// Closes a connection; the last frame of each side.
    Close<'a> = 0x18, "amqp:close:list" {
        /// Why, if not on purpose.
        error: optional Error<'a>,
    }
}

composite! {
    /// Why a link, session or connection ended, or a message was rejected.
    Error<'a> = 0x1d, "amqp:error:list" {
        /// What happened, see [`crate::condition`].
        condition: mandatory Symbol<'a>,
        /// Text for people.
        description: optional &'a str,
        /// Further facts, by symbol.
        info: optional Map<'a>,
    }
}

impl<'a> Error<'a> {
    /// An error with this condition and text.
    #[must_use]
    pub const fn new(condition: Symbol<'a>, description: &'a str) -> Self {
        Self {
            condition,
            description: Some(description),
            info: None,
        }
    }
}
