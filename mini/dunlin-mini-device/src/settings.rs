//! The page with which a device is given its identity. Knows no flash.

use dunlin_mini_crypto::Point;
#[cfg(feature = "client-certificate")]
use dunlin_quic_mini::Identity;

use crate::board::Mac;
use crate::ip::{Address, Interface, Reader};

/// What a device is given before it is sent out, borrowed from flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings<'a> {
    /// Address of the network interface.
    pub mac: &'a Mac,
    /// Address of the device; zeros to ask for one (DHCP), which needs smoltcp.
    pub ip: &'a Address,
    /// Address to move to on command; the same one for none.
    pub other: &'a Address,
    /// Bits of the addresses of the network; not read where one is asked for.
    pub mask: &'a Address,
    /// Where datagrams to other networks go; not read where one is asked for.
    pub gateway: &'a Address,
    /// Address of the server.
    pub server: &'a Address,
    /// Port of the server.
    pub port: u16,
    /// Seed of the generator; secret, and another one for each device.
    pub seed: &'a [u8; 32],
    /// The server's public key.
    pub key: &'a Point,
    /// Milliseconds that the device listens after its last reading.
    pub listen_ms: u16,
    /// Milliseconds between two readings on one connection.
    pub gap_ms: u16,
    /// Readings on one connection.
    pub readings: u16,
    /// Times that the device wakes before it stops; zero for ever.
    pub wakes: u16,
    /// Milliseconds of sleep.
    pub sleep_ms: u32,
    /// Name of the server; may be empty.
    pub name: &'a [u8],
    /// The client identifier.
    pub client_id: &'a [u8],
    /// Where readings go.
    pub topic: &'a [u8],
    /// Where commands come from; may be empty.
    pub filter: &'a [u8],
    /// User name and password for the broker; both may be empty. A page from
    /// before they were there has none.
    pub user: &'a [u8],
    /// See [`user`](Self::user).
    pub password: &'a [u8],
}

/// Bytes of the fields that have a fixed length.
const FIXED: usize = 6 + 5 * 4 + 2 + 32 + 65 + 4 * 2 + 4;
/// Fields behind them that have a length in front.
#[cfg(feature = "client-certificate")]
const STRINGS: usize = 6;

impl<'a> Settings<'a> {
    /// Reads the contents of a page: the fields in their order, numbers in
    /// network order, the last six behind a byte with their length.
    #[must_use]
    pub fn read(contents: &'a [u8]) -> Option<Self> {
        let (fixed, rest) = contents.split_at_checked(FIXED)?;
        let (mut read, mut strings) = (Reader(fixed), Reader(rest));
        Some(Self {
            mac: read.array()?,
            ip: read.array()?,
            other: read.array()?,
            mask: read.array()?,
            gateway: read.array()?,
            server: read.array()?,
            port: u16::from_be_bytes(*read.array()?),
            seed: read.array()?,
            key: read.array()?,
            listen_ms: u16::from_be_bytes(*read.array()?),
            gap_ms: u16::from_be_bytes(*read.array()?),
            readings: u16::from_be_bytes(*read.array()?),
            wakes: u16::from_be_bytes(*read.array()?),
            sleep_ms: u32::from_be_bytes(*read.array()?),
            name: strings.string()?,
            client_id: strings.string()?,
            topic: strings.string()?,
            filter: strings.string()?,
            user: strings.string().unwrap_or_default(),
            password: strings.string().unwrap_or_default(),
        })
    }

    /// What the device shows a server that asks who it is, of the contents of a page:
    /// behind the settings the certificates with their length in two bytes, then the
    /// key. Nothing if the page has none.
    #[cfg(feature = "client-certificate")]
    #[must_use]
    pub fn identity(contents: &'a [u8]) -> Option<Identity<'a>> {
        let mut read = Reader(contents.get(FIXED..)?);
        for _ in 0..STRINGS {
            read.string()?;
        }
        let len = u16::from_be_bytes(*read.array()?);
        let (certificates, key) = read.0.split_at_checked(len.into())?;
        Some(Identity {
            certificates,
            key: key.first_chunk()?,
        })
    }

    /// The network as it is at the start.
    #[must_use]
    pub const fn interface(&self) -> Interface {
        Interface {
            mac: *self.mac,
            ip: *self.ip,
            port: 0,
            mask: *self.mask,
            gateway: *self.gateway,
            server: *self.server,
            server_port: self.port,
            neighbour: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_as_the_scripts_write_it() {
        let mut page = std::vec::Vec::new();
        page.extend(0..28);
        page.extend([7; 32]);
        page.extend([4; 65]);
        page.extend([0, 1, 0, 2, 0, 3, 0, 4, 0, 0, 0, 5]);
        page.extend(b"\x04host\x02id\x02up\x00");
        let settings = Settings::read(&page).unwrap();
        assert_eq!(settings.mac, &[0, 1, 2, 3, 4, 5]);
        assert_eq!(settings.server, &[22, 23, 24, 25]);
        assert_eq!(settings.port, 0x1a1b);
        assert_eq!((settings.listen_ms, settings.gap_ms), (1, 2));
        assert_eq!((settings.readings, settings.wakes), (3, 4));
        assert_eq!(settings.sleep_ms, 5);
        assert_eq!(
            (settings.name, settings.client_id),
            (&b"host"[..], &b"id"[..])
        );
        assert_eq!((settings.topic, settings.filter), (&b"up"[..], &b""[..]));
        for cut in 0..page.len() {
            assert_eq!(Settings::read(&page[..cut]), None, "{cut}");
        }
        assert_eq!((settings.user, settings.password), (&b""[..], &b""[..]));
        let mut login = page.clone();
        login.extend(b"\x02me\x03key");
        let settings = Settings::read(&login).unwrap();
        assert_eq!(
            (settings.user, settings.password),
            (&b"me"[..], &b"key"[..])
        );
        assert_eq!(settings.interface().server, [22, 23, 24, 25]);
    }

    #[cfg(feature = "client-certificate")]
    #[test]
    fn a_page_has_certificates_behind_the_settings() {
        let mut page = std::vec![0; FIXED];
        page.extend(b"\x04host\x02id\x02up\x00\x02me\x03key");
        let settings = page.clone();
        page.extend([1, 4]);
        page.extend([0x30; 260]);
        page.extend([7; 32]);
        let identity = Settings::identity(&page).unwrap();
        assert_eq!(identity.certificates, [0x30; 260]);
        assert_eq!(identity.key, &[7; 32]);
        assert_eq!(Settings::read(&page), Settings::read(&settings));
        for cut in 0..page.len() {
            assert!(Settings::identity(&page[..cut]).is_none(), "{cut}");
        }
    }
}
