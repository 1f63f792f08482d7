//! Pages of flash that carry a length and a checksum, so that an erased page
//! or one that was written halfway is not believed. Knows no contents.

/// Bytes in front of the contents: the length and the checksum.
pub const FRONT: usize = 6;

/// The contents of a page.
#[must_use]
pub fn open(page: &[u8]) -> Option<&[u8]> {
    let (front, rest) = page.split_first_chunk::<FRONT>()?;
    let [high, low, ..] = *front;
    let len = u16::from_be_bytes([high, low]);
    let contents = rest.get(..usize::from(len))?;
    (seal(&[contents])? == *front).then_some(contents)
}

/// What to write in front of the contents; nothing if they are too long.
#[must_use]
pub fn seal(parts: &[&[u8]]) -> Option<[u8; FRONT]> {
    // FNV-1a: a page is damaged by accident here, not by an attacker.
    let mut check = 0x811c_9dc5_u32;
    let mut len = 0_u16;
    for byte in parts.iter().copied().flatten() {
        check = (check ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        len = len.checked_add(1)?;
    }
    let [high, low] = len.to_be_bytes();
    let [a, b, c, d] = check.to_be_bytes();
    Some([high, low, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read_as_written() {
        let front = seal(&[b"ab", b"", b"c"]).unwrap();
        assert_eq!(front, [0, 3, 0x1a, 0x47, 0xe9, 0x0b]);
        let page = [&front[..], b"abc\xff\xff"].concat();
        assert_eq!(open(&page), Some(&b"abc"[..]));
        for at in 0..9 {
            for bit in 0..8 {
                let mut page = page.clone();
                page[at] ^= 1 << bit;
                assert_eq!(open(&page), None, "{at}");
            }
        }
        for cut in 0..9 {
            assert_eq!(open(&page[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn erased_pages_are_empty() {
        assert_eq!(open(&[0xff; 512]), None);
        assert_eq!(open(&[0; 512]), None);
        assert_eq!(seal(&[&std::vec![0; 0x1_0000]]), None);
    }
}
