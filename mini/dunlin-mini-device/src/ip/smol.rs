//! The network by smoltcp: ARP, IPv4, UDP, and DHCPv4 for a device whose
//! settings have no address. Knows no network interface and no clock: frames
//! and time are the board's.
//!
//! All memory is the caller's ([`Sockets`], [`Queues`]). smoltcp asks for the
//! next hop when there is something to send, once a second at most, and keeps it
//! for a minute, also in sleep. It never says that the next hop is silent: such a
//! wake ends with the connection's timeout. A lease is kept through sleep as well,
//! and renewed while the connection goes on.

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet, SocketStorage};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::{dhcpv4, udp};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{
    EthernetAddress, HardwareAddress, IpAddress, IpCidr, IpEndpoint, Ipv4Address, Ipv4Cidr,
};

use super::{ARP, Address, DATAGRAM, FRAME, Frame, HEADER, Network};
use crate::board::Board;
use crate::settings::Settings;

/// Bytes of a waiting datagram in each direction.
const WAITING: usize = DATAGRAM as usize;
/// Time for an answer of a DHCP server.
const DHCP: Duration = Duration::from_secs(2);
/// Where its answers come from and go to.
const DHCP_PORTS: [u16; 2] = [67, 68];
/// Requests for the address that was offered.
const DHCP_REQUESTS: u16 = 3;

/// What smoltcp knows of its sockets.
#[derive(Debug)]
pub struct Sockets<'a> {
    sockets: [SocketStorage<'a>; 2],
    packets: [[udp::PacketMetadata; 1]; 2],
}

impl Sockets<'_> {
    /// No socket.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            sockets: [const { SocketStorage::EMPTY }; 2],
            packets: [[udp::PacketMetadata::EMPTY; 1]; 2],
        }
    }
}

impl Default for Sockets<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// Bytes that wait. All zeros at first: a `static` one takes no flash.
#[derive(Debug)]
pub struct Queues {
    /// A datagram of the server, which is fetched at once.
    came: [u8; WAITING],
    /// A datagram that waits for the next hop.
    goes: [u8; WAITING],
    /// The answer to a frame: nothing but ARP is answered.
    answer: [u8; ARP],
}

impl Queues {
    /// Nothing waits.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            came: [0; WAITING],
            goes: [0; WAITING],
            answer: [0; ARP],
        }
    }
}

impl Default for Queues {
    fn default() -> Self {
        Self::new()
    }
}

/// An address with its network, and who leads to others.
#[derive(Clone, Copy)]
struct Home {
    address: Ipv4Cidr,
    router: Option<Ipv4Address>,
}

/// The network of a device by smoltcp.
pub struct Smol<'a> {
    interface: Interface,
    sockets: SocketSet<'a>,
    udp: SocketHandle,
    /// The client, if the settings have no address.
    dhcp: Option<SocketHandle>,
    answer: &'a mut [u8],
    clock: Clock,
    server: IpEndpoint,
    port: u16,
    /// The address in the settings.
    ip: Address,
    home: Option<Home>,
    /// The address that the device went to, of the same network.
    away: Option<Ipv4Address>,
}

impl<'a> Smol<'a> {
    /// The network of these settings. The numbers in its requests follow from
    /// `seed`, which may be known to others afterwards.
    #[must_use]
    pub fn new(
        settings: &Settings<'_>,
        sockets: &'a mut Sockets<'a>,
        queues: &'a mut Queues,
        seed: u64,
    ) -> Self {
        let mac = HardwareAddress::Ethernet(EthernetAddress(*settings.mac));
        let mut config = Config::new(mac);
        config.random_seed = seed;
        let interface = Interface::new(config, &mut Unplugged, Instant::ZERO);
        let [came, goes] = &mut sockets.packets;
        let came = udp::PacketBuffer::new(&mut came[..], &mut queues.came[..]);
        let goes = udp::PacketBuffer::new(&mut goes[..], &mut queues.goes[..]);
        let mut sockets = SocketSet::new(&mut sockets.sockets[..]);
        let udp = sockets.add(udp::Socket::new(came, goes));
        let fixed = *settings.ip != [0; 4];
        let dhcp = (!fixed).then(|| sockets.add(client()));
        let prefix = u32::from_be_bytes(*settings.mask).leading_ones();
        let prefix = u8::try_from(prefix).unwrap_or(32);
        let home = unicast(*settings.ip).map(|ip| Home {
            address: Ipv4Cidr::new(ip, prefix),
            router: unicast(*settings.gateway),
        });
        let mut smol = Self {
            interface,
            sockets,
            udp,
            dhcp,
            answer: &mut queues.answer,
            clock: Clock::default(),
            server: IpEndpoint::new(Ipv4Address::from(*settings.server).into(), settings.port),
            port: 0,
            ip: *settings.ip,
            home,
            away: None,
        };
        smol.settle();
        smol
    }

    /// Gives the interface its addresses and its route, and forgets the next hop.
    /// The first address is that of what is sent; a lease is held beside it, since
    /// who renews it answers there.
    fn settle(&mut self) {
        let home = self.home.map(|home| home.address);
        let away = home.zip(self.away);
        let away = away.map(|(home, away)| Ipv4Cidr::new(away, home.prefix_len()));
        let held = home.filter(|_| away.is_none() || self.dhcp.is_some());
        self.interface.update_ip_addrs(|addresses| {
            addresses.clear();
            for address in away.into_iter().chain(held) {
                // There is room for two.
                let _ = addresses.push(IpCidr::Ipv4(address));
            }
        });
        let routes = self.interface.routes_mut();
        routes.remove_default_ipv4_route();
        if let Some(router) = self.home.and_then(|home| home.router) {
            let _ = routes.add_default_ipv4_route(router);
        }
    }

    /// Follows the lease.
    fn lease(&mut self) {
        let Some(dhcp) = self.dhcp else {
            return;
        };
        match self.sockets.get_mut::<dhcpv4::Socket<'_>>(dhcp).poll() {
            Some(dhcpv4::Event::Configured(config)) => {
                self.home = Some(Home {
                    address: config.address,
                    // smoltcp panics over a route to an address that is none.
                    router: config.router.and_then(|ip| unicast(ip.octets())),
                });
            }
            Some(dhcpv4::Event::Deconfigured) => (self.home, self.away) = (None, None),
            None => return,
        }
        self.settle();
    }
}

impl Network for Smol<'_> {
    // Servers look for a second or more whether an address is free.
    const ASKS: u32 = 50;
    const LEASES: bool = true;

    fn begin<B: Board>(&mut self, board: &mut B, fresh: bool) {
        self.clock.wake(board.now(), board.seconds());
        if fresh {
            if let Some(dhcp) = self.dhcp {
                self.sockets.get_mut::<dhcpv4::Socket<'_>>(dhcp).reset();
            }
            self.settle();
        }
    }

    fn ask<B: Board>(&mut self, board: &mut B, frame: &mut Frame) {
        self.poll(board, frame);
    }

    fn is_found(&self) -> bool {
        self.home.is_some()
    }

    fn bind(&mut self, port: u16) {
        self.port = port;
        let socket = self.sockets.get_mut::<udp::Socket<'_>>(self.udp);
        socket.close();
        // Refuses port zero, and sends nothing then.
        let _ = socket.bind(port);
    }

    fn address(&self) -> Address {
        let address = self.interface.ipv4_addr();
        address.map_or([0; 4], |address| address.octets())
    }

    fn migrate(&mut self, to: &Address) {
        self.away = unicast(*to).filter(|_| *to != self.ip);
        self.settle();
        self.bind(self.port ^ 1);
    }

    fn send<B: Board>(&mut self, board: &mut B, frame: &mut Frame, len: usize) {
        let datagram = frame.get(HEADER..).and_then(|rest| rest.get(..len));
        let socket = self.sockets.get_mut::<udp::Socket<'_>>(self.udp);
        // One that does not fit behind what waits is lost.
        let _ = datagram.map(|datagram| socket.send_slice(datagram, self.server));
        self.poll(board, frame);
    }

    fn receive<'f, B: Board>(
        &mut self,
        board: &mut B,
        frame: &'f mut Frame,
        len: usize,
    ) -> Option<&'f mut [u8]> {
        let now = self.clock.advance(board.now());
        if !is_wanted(frame.get(..len)?, self.port, self.dhcp.is_some()) {
            return None;
        }
        let mut wire = Wire {
            board,
            frame,
            answer: self.answer,
            came: Some(len),
        };
        self.interface
            .poll_ingress_single(now, &mut wire, &mut self.sockets);
        self.lease();
        let socket = self.sockets.get_mut::<udp::Socket<'_>>(self.udp);
        let (datagram, from) = socket.recv().ok()?;
        let out = frame.get_mut(..datagram.len())?;
        if from.endpoint != self.server {
            return None;
        }
        out.copy_from_slice(datagram);
        Some(out)
    }

    fn poll<B: Board>(&mut self, board: &mut B, frame: &mut Frame) {
        let now = self.clock.advance(board.now());
        let mut wire = Wire {
            board,
            frame,
            answer: self.answer,
            came: None,
        };
        self.interface
            .poll_egress(now, &mut wire, &mut self.sockets);
        self.lease();
    }

    fn delay(&mut self, now: u32) -> u32 {
        let now = self.clock.advance(now);
        let delay = self.interface.poll_delay(now, &self.sockets);
        // Rounded up, or the last millisecond would be spent awake.
        delay.map_or(u32::MAX, |delay| {
            u32::try_from(delay.total_micros().div_ceil(1000)).unwrap_or(u32::MAX)
        })
    }
}

/// The client of a server of addresses.
fn client<'a>() -> dhcpv4::Socket<'a> {
    let mut client = dhcpv4::Socket::new();
    let mut retry = client.get_retry_config();
    retry.discover_timeout = DHCP;
    retry.initial_request_timeout = DHCP;
    retry.request_retries = DHCP_REQUESTS;
    client.set_retry_config(retry);
    client
}

/// An address that one host may have; smoltcp panics over others.
fn unicast(address: Address) -> Option<Ipv4Address> {
    Some(Ipv4Address::from(address)).filter(|ip| IpAddress::Ipv4(*ip).is_unicast())
}

/// Milliseconds since the first wake, which never run backwards, through sleep
/// in which the board's milliseconds stand still.
#[derive(Default)]
struct Clock {
    ms: i64,
    /// The board's milliseconds at that time.
    now: u32,
    /// What both clocks showed at the last wake; nothing before the first.
    woke: Option<(i64, u32)>,
}

impl Clock {
    fn advance(&mut self, now: u32) -> Instant {
        self.ms += i64::from(now.wrapping_sub(self.now));
        self.now = now;
        Instant::from_millis(self.ms)
    }

    fn wake(&mut self, now: u32, seconds: u32) {
        match self.woke {
            Some((ms, woke)) => {
                self.advance(now);
                let slept = i64::from(seconds.saturating_sub(woke)) * 1000;
                self.ms = self.ms.max(ms + slept);
            }
            None => self.now = now,
        }
        self.woke = Some((self.ms, seconds));
    }
}

/// Whether smoltcp may see a frame: ARP, datagrams to this port, and what comes
/// from a DHCP server. It would answer to others by ICMP, for which there is no
/// room and which wakes a radio for an address that wants that, and it panics when a DHCP
/// server without an address is to be asked again.
fn is_wanted(frame: &[u8], port: u16, dhcp: bool) -> bool {
    match frame.get(12..) {
        Some([8, 6, ..]) => true,
        Some([8, 0, ip @ ..]) => {
            let options = ip.first().map_or(0, |first| usize::from(first & 15) * 4);
            let ports = ip.get(options..).and_then(<[u8]>::first_chunk);
            let udp = ip.get(9) == Some(&17) && ip.get(12..16) != Some(&[0; 4]);
            udp && ports.is_some_and(|&[a, b, c, d]| {
                let ports = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
                ports[1] == port || dhcp && ports == DHCP_PORTS
            })
        }
        _ => false,
    }
}

/// The board as smoltcp wants it.
struct Wire<'w, B> {
    board: &'w mut B,
    frame: &'w mut Frame,
    answer: &'w mut [u8],
    /// Bytes of the frame that came.
    came: Option<usize>,
}

struct Rx<'w>(&'w [u8]);

struct Tx<'w, B>(&'w mut B, &'w mut [u8]);

impl<B: Board> Device for Wire<'_, B> {
    type RxToken<'a>
        = Rx<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = Tx<'a, B>
    where
        Self: 'a;

    fn receive(&mut self, _: Instant) -> Option<(Rx<'_>, Tx<'_, B>)> {
        let frame = self.frame.get(..self.came.take()?)?;
        Some((Rx(frame), Tx(self.board, self.answer)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Tx<'_, B>> {
        Some(Tx(self.board, self.frame))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        Unplugged.capabilities()
    }
}

impl RxToken for Rx<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(self.0)
    }
}

impl<B: Board> TxToken for Tx<'_, B> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: F) -> R {
        // What smoltcp makes fits: it knows how long a frame may be, and has
        // no reason for other answers than ARP.
        let frame = self.1.get_mut(..len).unwrap_or_default();
        let result = fill(frame);
        self.0.send(frame);
        result
    }
}

/// What the interface can do, for as long as there is no board.
struct Unplugged;

/// No frame.
enum Never {}

impl Device for Unplugged {
    type RxToken<'a> = Never;
    type TxToken<'a> = Never;

    fn receive(&mut self, _: Instant) -> Option<(Never, Never)> {
        None
    }

    fn transmit(&mut self, _: Instant) -> Option<Never> {
        None
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = FRAME;
        capabilities
    }
}

impl RxToken for Never {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, _: F) -> R {
        match self {}
    }
}

impl TxToken for Never {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, _: usize, _: F) -> R {
        match self {}
    }
}
