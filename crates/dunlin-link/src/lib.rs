//! A link with delay, limited rate, loss and a NAT, between two hosts.
//!
//! The core ([`Link`]) is sans-IO and deterministic: time, packets and one
//! seed go in, a schedule of packets comes out. The Linux part ([`linux`])
//! gives it two network namespaces, joined through TUN devices by one thread.
//! Nothing here knows a protocol above UDP and TCP ports.
//!
//! ```
//! use core::time::Duration;
//! use dunlin_link::{Link, Profile, Side};
//!
//! let mut link = Link::new(7);
//! let mut profile = Profile::default();
//! profile.set("delay", "10ms").unwrap();
//! link.set_profile(Side::A, &profile);
//! link.handle_packet(Duration::ZERO, Side::A, vec![0x45; 20]);
//! assert_eq!(link.next_timeout(), Some(Duration::from_millis(10)));
//! assert!(link.poll(Duration::from_millis(9)).is_none());
//! assert!(link.poll(Duration::from_millis(10)).is_some());
//! ```

mod capture;
mod counters;
mod link;
#[cfg(target_os = "linux")]
pub mod linux;
mod loss;
mod nat;
mod packet;
mod pipe;
mod profile;
mod random;
mod script;
mod units;

pub use capture::{Capture, Point};
pub use counters::{Counters, Fate};
pub use link::{Delivered, Link, Side};
pub use loss::{Loss, LossModel};
pub use nat::Nat;
pub use packet::{FlowKey, Packet};
pub use profile::{Jitter, Profile, Reorder, SettingError};
pub use random::Random;
pub use script::{Action, Script, ScriptError, Step};
pub use units::{UnitError, parse_bytes, parse_duration, parse_probability, parse_rate};
