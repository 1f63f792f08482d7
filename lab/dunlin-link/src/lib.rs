//! Links with delay, limited rate, loss and a NAT, between hosts.
//!
//! The core ([`Network`]) is sans-IO and deterministic: time, packets and one
//! seed go in, a schedule of packets comes out. The Linux part ([`linux`])
//! gives it network namespaces, joined through TUN devices by one thread.
//! Nothing here knows a protocol above UDP and TCP ports.
//!
//! ```
//! use core::time::Duration;
//! use dunlin_link::{Network, Profile, Topology};
//!
//! let mut up = Profile::default();
//! up.set("delay", "10ms").unwrap();
//! let topology = Topology::pair([up, Profile::default()]);
//! let mut network = Network::new(&topology, 7).unwrap();
//! let host = topology.host_id("a").unwrap();
//! network.handle_packet(Duration::ZERO, host, vec![0x45; 20]).unwrap();
//! assert_eq!(network.next_timeout(), Some(Duration::from_millis(10)));
//! assert!(network.poll(Duration::from_millis(9)).is_none());
//! assert!(network.poll(Duration::from_millis(10)).is_some());
//! ```

mod capture;
mod counters;
#[cfg(target_os = "linux")]
pub mod linux;
mod loss;
mod nat;
mod network;
mod packet;
mod pipe;
mod profile;
mod random;
mod routes;
mod script;
mod shapes;
mod side;
mod topology;
mod units;

pub use capture::{Capture, Point};
pub use counters::{Counters, Fate};
pub use loss::{Loss, LossModel};
pub use nat::Nat;
pub use network::{Exit, Network};
pub use packet::{FlowKey, Packet};
pub use profile::{Jitter, Profile, Reorder, SettingError};
pub use random::Random;
pub use script::{Action, Script, ScriptError, Step};
pub use side::Side;
pub use topology::{HOSTS_MAX, HostId, LinkId, Topology, TopologyError};
pub use units::{UnitError, parse_bytes, parse_duration, parse_probability, parse_rate};
