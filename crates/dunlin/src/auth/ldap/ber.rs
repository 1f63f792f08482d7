//! The encoding of LDAP (RFC 4511 section 5.1, X.690): definite lengths only. Reading is
//! bounded by the message, which is bounded itself.

/// Universal tags.
pub(super) const BOOLEAN: u8 = 0x01;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const OCTETS: u8 = 0x04;
pub(super) const ENUMERATED: u8 = 0x0a;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;

/// Writes elements.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    /// An element of bytes.
    pub(super) fn bytes(&mut self, tag: u8, value: &[u8]) -> &mut Self {
        self.0.push(tag);
        match u8::try_from(value.len()) {
            Ok(short) if short < 0x80 => self.0.push(short),
            _ => {
                // A message is shorter than 2^32 bytes by far.
                let length = u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes();
                self.0.push(0x80 | 4);
                self.0.extend(length);
            }
        }
        self.0.extend(value);
        self
    }

    /// A number, or an enumerated value.
    pub(super) fn number(&mut self, tag: u8, value: u32) -> &mut Self {
        let bytes = value.to_be_bytes();
        let zeros = bytes.iter().take(3).take_while(|byte| **byte == 0).count();
        let significant = bytes.get(zeros..).unwrap_or_default();
        // The first bit is the sign.
        let is_negative = significant.first().is_some_and(|byte| byte & 0x80 != 0);
        let sign: &[u8] = if is_negative { &[0] } else { &[] };
        let value = [sign, significant].concat();
        self.bytes(tag, &value)
    }

    /// An element of elements.
    pub(super) fn nested(&mut self, tag: u8, write: impl FnOnce(&mut Self)) -> &mut Self {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(tag, &inner.0)
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Reads elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next element and its tag; `None`: it is not whole, or not of LDAP.
    pub(super) fn element(&mut self) -> Option<(u8, &'a [u8])> {
        let (length, head) = length(self.0)?;
        let tag = *self.0.first()?;
        let end = head.checked_add(length)?;
        let value = self.0.get(head..end)?;
        self.0 = self.0.get(end..)?;
        Some((tag, value))
    }

    /// The next element, which must have this tag.
    pub(super) fn expect(&mut self, wanted: u8) -> Option<&'a [u8]> {
        let (tag, value) = self.element()?;
        (tag == wanted).then_some(value)
    }

    /// A number that is not negative.
    pub(super) fn number(&mut self, tag: u8) -> Option<u32> {
        let value = self.expect(tag)?;
        let fits = !value.is_empty() && value.len() <= 5 && value.first()? & 0x80 == 0;
        let number = value
            .iter()
            .fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        u32::try_from(number).ok().filter(|_| fits)
    }
}

/// Length of the value of an element, and of what is before it; `None`: more bytes are
/// needed, or it is not of LDAP.
pub(super) fn length(bytes: &[u8]) -> Option<(usize, usize)> {
    // Tags of LDAP have one byte.
    if bytes.first()? & 0x1f == 0x1f {
        return None;
    }
    let first = *bytes.get(1)?;
    if first < 0x80 {
        return Some((usize::from(first), 2));
    }
    let count = usize::from(first & 0x7f);
    if !(1..=4).contains(&count) {
        return None;
    }
    let digits = bytes.get(2..2 + count)?;
    let length = digits
        .iter()
        .fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte));
    Some((length, 2 + count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut out = Writer::default();
        let long = vec![7; 300];
        out.nested(SEQUENCE, |it| {
            for number in [0, 1, 127, 128, 255, 256, 65_535, u32::MAX] {
                it.number(INTEGER, number);
            }
            it.bytes(OCTETS, &long);
        });
        let bytes = out.finish();
        let mut reader = Reader::new(&bytes);
        let mut inner = Reader::new(reader.expect(SEQUENCE).expect("whole"));
        for number in [0, 1, 127, 128, 255, 256, 65_535, u32::MAX] {
            assert_eq!(inner.number(INTEGER), Some(number));
        }
        assert_eq!(inner.expect(OCTETS), Some(&long[..]));
        assert!(inner.is_empty() && reader.is_empty());
        for end in 0..bytes.len() {
            assert_eq!(Reader::new(&bytes[..end]).element(), None, "{end}");
        }
    }

    #[test]
    fn what_is_not_of_ldap_is_refused() {
        let cases: [&[u8]; 7] = [
            &[0x30, 0x80, 0, 0],
            &[0x30, 0x85, 0, 0, 0, 0, 1, 0],
            &[0x1f, 1, 0],
            &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff],
            &[0x30, 2, 0],
            &[0x30],
            &[],
        ];
        for bytes in cases {
            assert_eq!(Reader::new(bytes).element(), None, "{bytes:x?}");
        }
        for bytes in [&[2, 0][..], &[2, 1, 0x80], &[2, 6, 0, 0, 0, 0, 0, 1]] {
            assert_eq!(Reader::new(bytes).number(INTEGER), None, "{bytes:x?}");
        }
    }
}
