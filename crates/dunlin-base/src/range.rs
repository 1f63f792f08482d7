//! Ranges of addresses, as configurations and operators write them.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::str::FromStr;

/// A range of addresses, as `192.0.2.0/24`, or one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddrRange {
    base: IpAddr,
    bits: u8,
}

/// That is no range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an address or a range such as 192.0.2.0/24 or 2001:db8::/32")]
pub struct ParseRangeError;

impl AddrRange {
    /// This address alone.
    #[must_use]
    pub const fn one(addr: IpAddr) -> Self {
        let bits = match addr {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        Self { base: addr, bits }
    }

    /// The address, if it is one alone.
    #[must_use]
    pub fn alone(&self) -> Option<IpAddr> {
        (self.bits == number(self.base).1).then_some(self.base)
    }

    /// Whether the address is in it. IPv4 and IPv6 are kept apart.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        let (base, base_len) = number(self.base);
        let (ip, len) = number(ip);
        let shift = u32::from(len.saturating_sub(self.bits));
        base_len == len && (shift >= 128 || (base ^ ip) >> shift == 0)
    }
}

/// An address as a number, and its bits.
fn number(ip: IpAddr) -> (u128, u8) {
    match ip {
        IpAddr::V4(ip) => (u128::from(ip.to_bits()), 32),
        IpAddr::V6(ip) => (Ipv6Addr::to_bits(ip), 128),
    }
}

impl FromStr for AddrRange {
    type Err = ParseRangeError;

    fn from_str(text: &str) -> Result<Self, ParseRangeError> {
        let (base, bits) = match text.split_once('/') {
            Some((base, bits)) => (base, Some(bits.parse().map_err(|_| ParseRangeError)?)),
            None => (text, None),
        };
        let base: IpAddr = base.parse().map_err(|_| ParseRangeError)?;
        let len = number(base).1;
        let bits = bits.unwrap_or(len);
        if bits > len {
            return Err(ParseRangeError);
        }
        Ok(Self { base, bits })
    }
}

impl fmt::Display for AddrRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn ranges_are_read_written_and_matched() {
        for (text, inside, outside) in [
            ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
            ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("0.0.0.0/0", "203.0.113.9", "::1"),
            ("::/0", "2001:db8::1", "127.0.0.1"),
        ] {
            let range: AddrRange = text.parse().unwrap();
            assert!(range.contains(inside.parse().unwrap()), "{text}");
            assert!(!range.contains(outside.parse().unwrap()), "{text}");
            assert_eq!(range.to_string().parse(), Ok(range));
            assert_eq!(range.alone().is_some(), !text.contains('/'), "{text}");
        }
        for text in ["", "1.2.3", "1.2.3.4/33", "::/129", "1.2.3.4/x", "1.2.3.4/"] {
            assert_eq!(text.parse::<AddrRange>(), Err(ParseRangeError), "{text}");
        }
    }
}
