//! Which network this machine is on, as far as it matters to a server: the
//! local address's prefix and, on Linux, the hardware address of the gateway,
//! because many networks use the same prefixes.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::net::UdpSocket;

/// A name for the network towards a server.
pub(crate) fn name(server: SocketAddr, host: &str, port: u16) -> String {
    let local = local_addr(server);
    let prefix = local.map_or_else(|| "?".into(), prefix);
    let gateway = match local {
        Some(IpAddr::V4(_)) if !server.ip().is_loopback() => gateway().unwrap_or_default(),
        _ => String::new(),
    };
    format!("{prefix}-{gateway}>{host}:{port}")
}

/// The address that packets to a server would have. Sends nothing.
fn local_addr(server: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(server).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn prefix(addr: IpAddr) -> String {
    match addr {
        IpAddr::V4(addr) => {
            let [a, b, c, _] = addr.octets();
            format!("{a}.{b}.{c}.0/24")
        }
        IpAddr::V6(addr) => {
            let [a, b, c, d, ..] = addr.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
    }
}

/// Hardware address of the default gateway, from the kernel's tables.
#[cfg(target_os = "linux")]
fn gateway() -> Option<String> {
    let routes = std::fs::read_to_string("/proc/net/route").ok()?;
    let neighbours = std::fs::read_to_string("/proc/net/arp").ok()?;
    hardware_of(gateway_in(&routes)?, &neighbours)
}

#[cfg(not(target_os = "linux"))]
fn gateway() -> Option<String> {
    None
}

/// The gateway of the default route in the text of `/proc/net/route`.
#[cfg(any(target_os = "linux", test))]
fn gateway_in(routes: &str) -> Option<Ipv4Addr> {
    routes.lines().skip(1).find_map(|line| {
        let mut words = line.split_whitespace();
        let destination = words.nth(1)?;
        let gateway = u32::from_str_radix(words.next()?, 16).ok()?;
        // In the byte order of the machine.
        let gateway = Ipv4Addr::from(gateway.to_ne_bytes());
        (destination == "00000000" && !gateway.is_unspecified()).then_some(gateway)
    })
}

/// Its line in the text of `/proc/net/arp`.
#[cfg(any(target_os = "linux", test))]
fn hardware_of(gateway: Ipv4Addr, neighbours: &str) -> Option<String> {
    let gateway = gateway.to_string();
    neighbours.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let is_it = words.next() == Some(&gateway);
        let hardware = words.nth(2).filter(|_| is_it)?;
        Some(hardware.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_differ_by_prefix_and_gateway() {
        let routes = format!(
            "Iface\tDestination\tGateway\tFlags\n\
             eth0\t0002000A\t00000000\t0001\n\
             eth0\t00000000\t{:08X}\t0003\n",
            u32::from_ne_bytes([10, 0, 2, 1])
        );
        let gateway = gateway_in(&routes).expect("a gateway");
        assert_eq!(gateway, Ipv4Addr::new(10, 0, 2, 1));
        let neighbours = "IP address  HW type Flags HW address        Mask Device\n\
                          10.0.2.11   0x1     0x2   52:54:00:12:35:0f *    eth0\n\
                          10.0.2.1    0x1     0x2   52:54:00:12:35:02 *    eth0\n";
        let hardware = hardware_of(gateway, neighbours);
        assert_eq!(hardware.as_deref(), Some("52:54:00:12:35:02"));
        assert_eq!(hardware_of(Ipv4Addr::LOCALHOST, neighbours), None);
        assert_eq!(gateway_in("Iface\n"), None);
        let v6 = "2001:db8:1:2:3::4".parse().expect("an address");
        assert_eq!(prefix(v6), "2001:db8:1:2::/64");
    }

    #[test]
    fn a_name_is_made_for_every_server() {
        let local = name("127.0.0.1:1".parse().expect("an address"), "h", 1);
        assert_eq!(local, "127.0.0.0/24->h:1");
    }
}
