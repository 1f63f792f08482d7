//! Flow headers as bytes: what a stream may begin with.

const CONTROL: u8 = 0x11;
const CLIENT_DATA: u8 = 0x12;
const SERVER_DATA: u8 = 0x13;
const USER: u8 = 0x14;

/// Longest header that is understood: type, two integers, flags.
pub const HEADER_BYTES_MAX: usize = 1 + 8 + 8 + 1;

/// Flags of a data flow; bit 0 is the first that the draft lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowFlags(pub u8);

impl FlowFlags {
    /// Begin again, forget what was.
    pub const CLEAN: Self = Self(1);
    /// End the flow if its state is gone.
    pub const ABORT_IF_NO_STATE: Self = Self(1 << 1);
    /// QoS state outlives the stream.
    pub const PERSISTENT_QOS: Self = Self(1 << 4);
    /// Topic aliases outlive the stream.
    pub const PERSISTENT_TOPIC_ALIAS: Self = Self(1 << 5);
    /// Subscriptions outlive the stream.
    pub const PERSISTENT_SUBSCRIPTIONS: Self = Self(1 << 6);
    /// Optional headers follow.
    pub const OPTIONAL_HEADERS: Self = Self(1 << 7);

    const PERSISTENT: u8 = 0b0111_0000;

    /// Whether all flags of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether a stream that ends right after its header asks to forget the
    /// flow (draft, section 9.16).
    #[must_use]
    pub const fn is_discard(self) -> bool {
        self.has(Self::CLEAN) && self.0 & Self::PERSISTENT == 0
    }
}

/// The first bytes of a stream with a flow header (draft, section 9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowHeader {
    /// The stream is the control stream.
    Control {
        /// Not defined by the draft, and ignored.
        flags: u8,
    },
    /// A data flow.
    Data {
        /// Opened by the server (0x13), else by the client (0x12).
        server: bool,
        /// Flow identifier; the lowest bit is set for flows of the server.
        id: u64,
        /// Seconds that the flow's state outlives its stream.
        expire_secs: u64,
        /// Flags.
        flags: FlowFlags,
    },
    /// Another protocol's data.
    User {
        /// Flow identifier.
        id: u64,
    },
}

/// A control flow has identifier 0 and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a control flow with an identifier other than 0")]
pub struct ControlIdError;

impl FlowHeader {
    /// That of a stream for deliveries, which the server opens: nothing of it outlives
    /// the stream.
    pub(super) const fn of_server(number: u64) -> Self {
        Self::Data {
            server: true,
            id: number << 1 | 1,
            expire_secs: 0,
            flags: FlowFlags(0),
        }
    }

    /// Whether a stream that begins with this byte has a flow header. No MQTT
    /// packet that either side may send first begins so: these would be
    /// CONNECT with reserved flags.
    #[must_use]
    pub const fn is_type(byte: u8) -> bool {
        matches!(byte, CONTROL..=USER)
    }

    /// The header at the start of `data` and its length; `None` while it is
    /// incomplete, or when [`FlowHeader::is_type`] is not true of its first
    /// byte. Optional headers look like packets and are not read.
    ///
    /// # Errors
    /// A control flow has another identifier than 0.
    pub fn parse(data: &[u8]) -> Result<Option<(Self, usize)>, ControlIdError> {
        let Some((&kind, rest)) = data.split_first() else {
            return Ok(None);
        };
        if !Self::is_type(kind) {
            return Ok(None);
        }
        let mut reader = Reader(rest);
        let Some(id) = reader.varint() else {
            return Ok(None);
        };
        let header = match kind {
            CONTROL if id != 0 => return Err(ControlIdError),
            CONTROL => reader.byte().map(|flags| Self::Control { flags }),
            USER => Some(Self::User { id }),
            _ => reader
                .varint()
                .zip(reader.byte())
                .map(|(expire_secs, flags)| Self::Data {
                    server: kind == SERVER_DATA,
                    id,
                    expire_secs,
                    flags: FlowFlags(flags),
                }),
        };
        Ok(header.map(|header| (header, data.len() - reader.0.len())))
    }

    /// Writes the header to the start of `out`; returns its length. Integers
    /// above 2^62 - 1 are lowered to that.
    pub fn emit(&self, out: &mut [u8; HEADER_BYTES_MAX]) -> usize {
        let mut writer = Writer { out, len: 0 };
        match *self {
            Self::Control { flags } => {
                writer.bytes(&[CONTROL, 0, flags]);
            }
            Self::Data {
                server,
                id,
                expire_secs,
                flags,
            } => {
                writer.bytes(&[if server { SERVER_DATA } else { CLIENT_DATA }]);
                writer.varint(id);
                writer.varint(expire_secs);
                writer.bytes(&[flags.0]);
            }
            Self::User { id } => {
                writer.bytes(&[USER]);
                writer.varint(id);
            }
        }
        writer.len
    }
}

/// Reads integers as QUIC encodes them (RFC 9000 section 16).
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let first = *self.0.first()?;
        let (number, rest) = self.0.split_at_checked(1 << (first >> 6))?;
        self.0 = rest;
        let value = number
            .iter()
            .fold(0u64, |value, byte| value << 8 | u64::from(*byte));
        // The two highest bits of the first byte are the length.
        let bits = 8 * number.len() as u32 - 2;
        Some(value & ((1 << bits) - 1))
    }
}

struct Writer<'a> {
    out: &'a mut [u8; HEADER_BYTES_MAX],
    len: usize,
}

impl Writer<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if let Some(place) = self.out.get_mut(self.len..end) {
            place.copy_from_slice(bytes);
            self.len = end;
        }
    }

    fn varint(&mut self, value: u64) {
        const MAX: u64 = (1 << 62) - 1;
        let value = value.min(MAX);
        match value {
            0..=0x3f => self.bytes(&[value as u8]),
            0x40..=0x3fff => self.bytes(&(value as u16 | 0x4000).to_be_bytes()),
            0x4000..=0x3fff_ffff => self.bytes(&(value as u32 | 0x8000_0000).to_be_bytes()),
            _ => self.bytes(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emitted(header: FlowHeader) -> ([u8; HEADER_BYTES_MAX], usize) {
        let mut out = [0; HEADER_BYTES_MAX];
        let len = header.emit(&mut out);
        (out, len)
    }

    #[test]
    fn headers_survive_any_cut_and_every_length_of_integer() {
        let data = |server, id, expire_secs| FlowHeader::Data {
            server,
            id,
            expire_secs,
            flags: FlowFlags(0x51),
        };
        let headers = [
            FlowHeader::Control { flags: 7 },
            FlowHeader::User { id: 63 },
            FlowHeader::User { id: 64 },
            data(true, 0x3fff, 0x4000),
            data(false, 0x3fff_ffff, 0x4000_0000),
            data(true, (1 << 62) - 1, (1 << 62) - 1),
        ];
        for header in headers {
            let (bytes, len) = emitted(header);
            assert_eq!(FlowHeader::parse(&bytes), Ok(Some((header, len))));
            for cut in 0..len {
                assert_eq!(FlowHeader::parse(&bytes[..cut]), Ok(None), "{header:?}");
            }
        }
    }

    #[test]
    fn bytes_are_those_that_others_send() {
        // As the mqtt5 crate writes them: flow 1 of the server, 300 s.
        let header = FlowHeader::Data {
            server: true,
            id: 3,
            expire_secs: 300,
            flags: FlowFlags::default(),
        };
        let (bytes, len) = emitted(header);
        assert_eq!(bytes[..len], [0x13, 3, 0x41, 0x2c, 0]);
        // Integers need not be short.
        let long = [0x14, 0x40, 0x05];
        let parsed = FlowHeader::parse(&long);
        assert_eq!(parsed, Ok(Some((FlowHeader::User { id: 5 }, 3))));
    }

    #[test]
    fn what_is_no_header_is_none() {
        assert_eq!(FlowHeader::parse(&[0x10, 0, 0, 0]), Ok(None));
        assert_eq!(FlowHeader::parse(&[0x15, 0, 0, 0]), Ok(None));
        assert_eq!(FlowHeader::parse(&[0x11, 2, 0]), Err(ControlIdError));
        assert!(!FlowHeader::is_type(0x30) && FlowHeader::is_type(0x14));
    }

    #[test]
    fn a_discard_keeps_nothing() {
        assert!(FlowFlags::CLEAN.is_discard());
        assert!(!FlowFlags::default().is_discard());
        let keeps = FlowFlags::CLEAN.with(FlowFlags::PERSISTENT_QOS);
        assert!(!keeps.is_discard());
    }
}
