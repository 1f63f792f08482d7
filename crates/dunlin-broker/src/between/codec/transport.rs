//! Connections whose session lives on another shard: what happens on them, what they are
//! to do.

use bytes::Bytes;
use dunlin_base::transport::{
    BindingType, CloseCause, NetCommand, NetCommandKind, NetEvent, NetEventKind, Peer, Transport,
};
use dunlin_base::{Repeat, Text};
use dunlin_store::codec::Reader;

use super::DecodeError;
use super::wire::{Wire, Writer, fixed, growing, variants};

/// What has numbers of its own.
macro_rules! numbered {
    ($($name:ident),+) => {$(
        impl Wire for $name {
            fn put(&self, w: &mut Writer<'_>) {
                self.number().put(w);
            }

            fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Self::from_number(r.u8()?).ok_or(DecodeError::Unknown)
            }
        }
    )+};
}

numbered!(Transport, Repeat, BindingType);

impl Wire for CloseCause {
    fn put(&self, w: &mut Writer<'_>) {
        let (number, code, text) = self.parts();
        number.put(w);
        code.put(w);
        w.text(text);
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (number, code, text) = (r.u8()?, r.u64()?, Text::take(r)?);
        Self::from_parts(number, code, &text).ok_or(DecodeError::Unknown)
    }
}

growing! {
    Peer {
        addr,
        transport,
        listener,
        protocol,
        identity,
        early_data,
        binding,
    }
}

fixed! {
    NetEvent<Bytes> { conn, kind }
    NetCommand { conn, kind }
}

variants! {
    NetEventKind<Bytes> {
        1 = Opened { peer },
        2 = Bytes { stream, data },
        3 = StreamFinished { stream },
        4 = StreamReset { stream, code },
        5 = Datagram { data },
        6 = StreamDelivered { stream },
        7 = StreamOpened { stream },
        8 = StreamsAvailable { bidirectional },
        9 = Sent { stream, bytes },
        10 = StreamBlocked { stream, bytes },
        11 = Migrated { addr },
        12 = EarlyData { accepted },
        13 = ChannelBinding { data },
        14 = Moved { from, to },
        15 = MoveFailed { to },
        16 = Closed { cause },
    }
    NetCommandKind {
        1 = Send { stream, data },
        2 = FinishStream { stream },
        3 = ResetStream { stream, code },
        4 = OpenStream { bidirectional },
        5 = SetPriority { stream, priority },
        6 = IsolateStreams { isolate },
        7 = RepeatPackets { repeat },
        8 = BindChannel,
        9 = ExpectMore,
        10 = SendDatagram { data, expires, fallback },
        11 = Close { code, promptly },
        12 = Accept,
        13 = SetIdleTimeout { timeout },
        14 = PauseReading { paused },
        15 = PauseStream { stream, paused },
        16 = ReadOnly { stream },
    }
}
