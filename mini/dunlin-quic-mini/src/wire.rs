//! Reading and writing the integers and vectors of QUIC, TLS and DER. Knows
//! no format beyond them, and cannot panic on any input.

pub(crate) use dunlin_mini_crypto::fill;

/// A reader that eats the front of a slice.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) const fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let Some((head, tail)) = self.0.split_at_checked(n) else {
            return None;
        };
        self.0 = tail;
        Some(head)
    }

    pub(crate) const fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let Some((head, tail)) = self.0.split_first_chunk() else {
            return None;
        };
        self.0 = tail;
        Some(head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|&[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(|&bytes| u16::from_be_bytes(bytes))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(|&bytes| u32::from_be_bytes(bytes))
    }

    /// A big-endian integer of `n` bytes, [`u32::MAX`] if it needs more than
    /// 32 bits.
    pub(crate) fn uint(&mut self, n: usize) -> Option<u32> {
        let mut value = 0_u32;
        let mut high = 0;
        for &byte in self.take(n)? {
            high |= value >> 24;
            value = value << 8 | u32::from(byte);
        }
        Some(if high == 0 { value } else { u32::MAX })
    }

    /// A variable-length integer (RFC 9000 section 16). Values of more than 32
    /// bits are read as [`u32::MAX`]: this engine has no use for them, and a
    /// limit or an offset that large behaves like the largest one it knows.
    #[inline(never)]
    pub(crate) fn varint(&mut self) -> Option<u32> {
        let first = *self.0.first()?;
        let mut reader = *self;
        let value = match first >> 6 {
            0 => reader.uint(1)?,
            1 => reader.uint(2)? & 0x3fff,
            2 => reader.uint(4)? & 0x3fff_ffff,
            _ => {
                let high = reader.u32()? & 0x3fff_ffff;
                let low = reader.u32()?;
                if high == 0 { low } else { u32::MAX }
            }
        };
        *self = reader;
        Some(value)
    }

    /// A vector with a length of `n` bytes in front (TLS).
    #[inline(never)]
    pub(crate) fn vector(&mut self, n: usize) -> Option<Self> {
        let len = self.uint(n)?;
        self.take(len as usize).map(Reader)
    }

    /// A vector with a variable-length integer in front (QUIC).
    #[inline(never)]
    pub(crate) fn varvec(&mut self) -> Option<&'a [u8]> {
        let len = self.varint()?;
        self.take(len as usize)
    }
}

/// A writer over the caller's buffer. Overflow is remembered, not returned:
/// [`Writer::full`] is asked once at the end.
pub(crate) struct Writer<'a> {
    pub(crate) buf: &'a mut [u8],
    at: usize,
    full: bool,
}

impl<'a> Writer<'a> {
    pub(crate) const fn new(buf: &'a mut [u8]) -> Self {
        Self {
            buf,
            at: 0,
            full: false,
        }
    }

    /// A writer that has written `at` bytes of the buffer.
    pub(crate) const fn at(buf: &'a mut [u8], at: usize) -> Self {
        Self {
            buf,
            at,
            full: false,
        }
    }

    /// Bytes written.
    pub(crate) const fn len(&self) -> usize {
        self.at
    }

    /// Bytes that still fit.
    pub(crate) fn room(&self) -> usize {
        self.buf.len().saturating_sub(self.at)
    }

    /// Whether something did not fit; what was written is then useless.
    pub(crate) const fn full(&self) -> bool {
        self.full
    }

    #[inline(never)]
    pub(crate) fn put(&mut self, data: &[u8]) {
        let room = self.buf.get_mut(self.at..);
        match room.and_then(|room| room.get_mut(..data.len())) {
            Some(room) => {
                self.at += fill(room, data);
            }
            None => self.full = true,
        }
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.put(&value.to_be_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    /// `n` zero bytes.
    pub(crate) fn zeros(&mut self, n: usize) {
        let room = self.buf.get_mut(self.at..);
        match room.and_then(|room| room.get_mut(..n)) {
            Some(room) => {
                room.fill(0);
                self.at += n;
            }
            None => self.full = true,
        }
    }

    /// A variable-length integer in its shortest form.
    #[inline(never)]
    pub(crate) fn varint(&mut self, value: u32) {
        if value < 0x40 {
            self.put(&[value.to_le_bytes()[0]]);
        } else if value < 0x4000 {
            let [a, b, _, _] = value.to_le_bytes();
            self.put(&[b | 0x40, a]);
        } else if value < 0x4000_0000 {
            self.u32(value | 0x8000_0000);
        } else {
            self.u32(0xc000_0000);
            self.u32(value);
        }
    }

    /// Sets the byte before `mark` to a number below 256.
    pub(crate) fn count(&mut self, mark: usize, value: usize) {
        if let Some(field) = mark.checked_sub(1).and_then(|at| self.buf.get_mut(at)) {
            *field = value.to_le_bytes()[0];
        }
    }

    /// Leaves room for a length of two bytes, to be [`closed`](Self::close).
    pub(crate) fn open(&mut self) -> usize {
        self.u16(0);
        self.at
    }

    /// Writes the length of what follows `mark` in front of it, with the bits
    /// of `or` set in the first byte.
    #[inline(never)]
    pub(crate) fn close(&mut self, mark: usize, or: u16) {
        let len = self.at.saturating_sub(mark);
        let value = u16::try_from(len).unwrap_or(u16::MAX) | or;
        let field = mark
            .checked_sub(2)
            .and_then(|from| self.buf.get_mut(from..mark));
        if let Some(field) = field
            && field.len() == 2
        {
            fill(field, &value.to_be_bytes());
        }
    }
}

/// Removes `n` bytes from the front; what is behind the moved bytes stays.
#[inline(never)]
pub(crate) fn shift(buf: &mut [u8], n: usize) {
    if n <= buf.len() {
        buf.copy_within(n.., 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_of_rfc_9000() {
        // RFC 9000 appendix A.1; the first one has 62 bits and saturates.
        let cases: [(&[u8], u32); 5] = [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], u32::MAX),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x40, 0x25], 37),
            (&[0x25], 37),
        ];
        for (bytes, value) in cases {
            let mut reader = Reader(bytes);
            assert_eq!(reader.varint(), Some(value));
            assert!(reader.is_empty());
            assert_eq!(Reader(&bytes[..bytes.len() - 1]).varint(), None);
        }
    }

    #[test]
    fn varints_come_back() {
        for value in [
            0,
            63,
            64,
            16_383,
            16_384,
            0x3fff_ffff,
            0x4000_0000,
            u32::MAX,
        ] {
            let mut buf = [0; 8];
            let mut writer = Writer::new(&mut buf);
            writer.varint(value);
            let len = writer.len();
            assert!(!writer.full());
            let mut reader = Reader(&buf[..len]);
            assert_eq!(reader.varint(), Some(value));
            assert!(reader.is_empty());
        }
    }

    #[test]
    fn a_full_writer_says_so() {
        let mut buf = [0; 4];
        let mut writer = Writer::new(&mut buf);
        let mark = writer.open();
        writer.put(b"ab");
        assert!(!writer.full());
        writer.u8(1);
        assert!(writer.full());
        writer.close(mark, 0x4000);
        assert_eq!(buf, [0x40, 2, b'a', b'b']);
    }
}
