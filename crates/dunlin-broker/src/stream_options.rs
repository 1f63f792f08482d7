//! What a client says in CONNECT, or by its application protocol, that it can
//! take besides the control stream.

use core::time::Duration;

use dunlin_base::Repeat;
use dunlin_mqtt::codec::Connect;
use dunlin_mqtt::flow::option;

/// What the client said, in CONNECT or by its application protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamOptions {
    /// Streams of the broker that it takes.
    pub(crate) streams: usize,
    /// Age limit of datagrams to it; zero: it takes none.
    pub(crate) datagram_age: Duration,
    pub(crate) isolate: bool,
    /// When small packets to it are sent twice.
    pub(crate) repeat: Repeat,
    /// Subscriptions of data streams outlive them.
    pub(crate) durable: bool,
}

impl StreamOptions {
    pub(crate) fn of(connect: &Connect<'_>, flows: bool) -> Self {
        let mut options = Self {
            streams: if flows { usize::MAX } else { 0 },
            datagram_age: Duration::ZERO,
            isolate: false,
            repeat: Repeat::Never,
            durable: true,
        };
        for (name, value) in connect.properties.user_properties.iter() {
            let Ok(number) = value.parse::<u32>() else {
                continue;
            };
            match name {
                option::STREAMS => options.streams = number as usize,
                option::DATAGRAMS => {
                    options.datagram_age = Duration::from_millis(u64::from(number));
                }
                option::ISOLATE => options.isolate = number == 1,
                option::REPEAT => {
                    options.repeat = match number {
                        1 => Repeat::Always,
                        2 => Repeat::OnLoss,
                        _ => Repeat::Never,
                    };
                }
                option::DURABLE_STREAMS => options.durable = number != 0,
                _ => {}
            }
        }
        options
    }
}
