//! Transport parameters (RFC 9000 section 18): those this client sends and
//! those it uses of the server. Knows no connection.

use crate::cid::Cid;
use crate::error::Error;
use crate::wire::{Reader, Writer};

/// The server's parameters as far as this client has a use for them.
#[derive(Clone, Copy)]
pub(crate) struct Params {
    /// Milliseconds; zero is never.
    pub(crate) idle: u32,
    pub(crate) max_data: u32,
    /// For data of streams that this side opens.
    pub(crate) stream_data: u32,
    pub(crate) streams: u32,
    /// Milliseconds.
    pub(crate) max_ack_delay: u32,
    pub(crate) ack_exponent: u8,
    pub(crate) migration: bool,
    pub(crate) original: Cid,
    pub(crate) source: Cid,
    pub(crate) retry: Option<Cid>,
    pub(crate) token: Option<[u8; 16]>,
}

impl Params {
    /// How long the server held an acknowledgement of a 1-RTT packet back, in
    /// milliseconds, from the ACK frame; not beyond what it promised (RFC 9002
    /// section 5.3).
    pub(crate) fn held(&self, delay: u32) -> u32 {
        let shift = u32::from(self.ack_exponent);
        let micros = delay.min(u32::MAX >> shift) << shift;
        (micros / 1000).min(self.max_ack_delay)
    }

    /// The defaults, and nothing allowed.
    pub(crate) const NEW: Self = Self {
        max_ack_delay: 25,
        ack_exponent: 3,
        migration: true,
        ..Self::ZERO
    };

    /// Nothing known, as zeros in memory.
    pub(crate) const ZERO: Self = Self {
        idle: 0,
        max_data: 0,
        stream_data: 0,
        streams: 0,
        max_ack_delay: 0,
        ack_exponent: 0,
        migration: false,
        original: Cid::EMPTY,
        source: Cid::EMPTY,
        retry: None,
        token: None,
    };
}

/// Bits of the parameters that must be there once.
const ORIGINAL: u32 = 1 << 0x00;
const SOURCE: u32 = 1 << 0x0f;

impl Params {
    #[inline(never)]
    pub(crate) fn read(mut reader: Reader<'_>) -> Result<Self, Error> {
        let mut params = Self::NEW;
        let mut seen = 0_u32;
        while !reader.is_empty() {
            let id = reader.varint().ok_or(Error::TransportParameter)?;
            let body = reader.varvec().ok_or(Error::TransportParameter)?;
            if id < 32 {
                if seen >> id & 1 != 0 {
                    return Err(Error::TransportParameter);
                }
                seen |= 1 << id;
            }
            params
                .take(id, Reader(body))
                .ok_or(Error::TransportParameter)?;
        }
        if seen & (ORIGINAL | SOURCE) == ORIGINAL | SOURCE {
            Ok(params)
        } else {
            Err(Error::ParameterIds)
        }
    }

    fn take(&mut self, id: u32, mut body: Reader<'_>) -> Option<()> {
        match id {
            0x00 => self.original = Cid::new(body.0)?,
            0x0f => self.source = Cid::new(body.0)?,
            0x10 => self.retry = Some(Cid::new(body.0)?),
            0x02 => {
                self.token = Some(*body.array()?);
                return body.is_empty().then_some(());
            }
            0x0c => {
                self.migration = false;
                return body.is_empty().then_some(());
            }
            0x01 | 0x03..=0x0b | 0x0e => {
                let value = body.varint()?;
                if !body.is_empty() {
                    return None;
                }
                return self.number(id, value);
            }
            _ => {}
        }
        Some(())
    }

    fn number(&mut self, id: u32, value: u32) -> Option<()> {
        let (low, high) = match id {
            0x03 => (1200, u32::MAX),
            0x0a => (0, 20),
            0x0b => (0, (1 << 14) - 1),
            0x0e => (2, u32::MAX),
            // Streams beyond 2^60 saturate and are of no use either.
            _ => (0, u32::MAX),
        };
        if value < low || value > high {
            return None;
        }
        match id {
            0x01 => self.idle = value,
            0x04 => self.max_data = value,
            0x06 => self.stream_data = value,
            0x08 => self.streams = value,
            0x0a => self.ack_exponent = value.to_le_bytes()[0],
            0x0b => self.max_ack_delay = value,
            _ => {}
        }
        Some(())
    }
}

/// What this client tells of itself.
pub(crate) struct Own {
    /// Milliseconds.
    pub(crate) idle: u32,
    pub(crate) max_udp: u32,
    pub(crate) max_data: u32,
    /// For streams that this side opens; the server may open none.
    pub(crate) stream_data: u32,
}

impl Own {
    /// Connection ids of the server that are kept, the one in use included.
    pub(crate) const CIDS: u32 = 3;

    #[inline(never)]
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        let numbers = [
            (0x01, self.idle),
            (0x03, self.max_udp),
            (0x04, self.max_data),
            (0x05, self.stream_data),
            (0x0e, Self::CIDS),
        ];
        for (id, value) in numbers {
            writer.u8(id);
            // Some servers refuse values that are not in their shortest form.
            writer.u8(0);
            let from = writer.len();
            writer.varint(value);
            writer.count(from, writer.len().wrapping_sub(from));
        }
        // initial_source_connection_id: zero bytes long, but it must be there.
        writer.put(&[0x0f, 0]);
    }
}
