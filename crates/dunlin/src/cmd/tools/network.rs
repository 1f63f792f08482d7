//! Options of clients that say how QUIC and TLS behave: shared by `pub`, `sub`
//! and `bench`.

use core::time::Duration;

use clap::Args;
use dunlin_client::{Cipher, Congestion, Group, NetworkOptions, TlsOptions};
use dunlin_net::{QuicTuning, TlsPolicy};

/// Where the options are in the help.
const HEADING: &str = "Network";

/// How QUIC and TLS behave.
#[derive(Debug, Args)]
pub(super) struct Network {
    /// Congestion control of QUIC: cubic, newreno or bbr.
    #[arg(help_heading = HEADING, long, value_name = "NAME", default_value = "cubic", value_parser = congestion)]
    congestion: Congestion,
    /// Round-trip time that QUIC assumes until it has measured one, in
    /// milliseconds; 250 if not given, or what was measured the last time
    /// (--tickets).
    #[arg(help_heading = HEADING, long, value_name = "MS", value_parser = millis)]
    initial_rtt: Option<Duration>,
    /// How soon the server is asked to acknowledge over QUIC, in milliseconds;
    /// 0: it is not asked. With more than 25, five packets are acknowledged
    /// together instead of two.
    #[arg(help_heading = HEADING, long, value_name = "MS", default_value = "5", value_parser = millis)]
    ack_delay: Duration,
    /// Bytes that QUIC may have in flight at first.
    #[arg(help_heading = HEADING, long, value_name = "BYTES")]
    initial_window: Option<u32>,
    /// Do not search for a larger packet size than 1200 bytes.
    #[arg(help_heading = HEADING, long)]
    no_mtu_discovery: bool,
    /// Do not mark packets for explicit congestion notification.
    #[arg(help_heading = HEADING, long)]
    no_ecn: bool,
    /// Stay at the local address of a connection when it disappears or the
    /// system prefers another.
    #[arg(help_heading = HEADING, long)]
    no_follow: bool,
    /// Ciphers to offer, best first: aes-128-gcm, aes-256-gcm,
    /// chacha20-poly1305.
    #[arg(help_heading = HEADING, long = "tls-ciphers", value_name = "NAME,...", value_delimiter = ',', value_parser = cipher)]
    ciphers: Vec<Cipher>,
    /// Key exchanges to offer, best first: x25519, secp256r1, secp384r1,
    /// x25519mlkem768.
    #[arg(help_heading = HEADING, long = "tls-groups", value_name = "NAME,...", value_delimiter = ',', value_parser = group)]
    groups: Vec<Group>,
}

impl Network {
    /// For the client library.
    pub(super) fn options(&self) -> NetworkOptions {
        let mut options = NetworkOptions::new()
            .congestion(self.congestion)
            .ack_delay(self.ack_delay)
            .mtu_discovery(!self.no_mtu_discovery)
            .ecn(!self.no_ecn)
            .follow(!self.no_follow);
        if let Some(rtt) = self.initial_rtt {
            options = options.initial_rtt(rtt);
        }
        if let Some(bytes) = self.initial_window {
            options = options.initial_window(bytes);
        }
        options
    }

    /// Likewise, what concerns TLS.
    pub(super) fn tls(&self, mut tls: TlsOptions) -> TlsOptions {
        if !self.ciphers.is_empty() {
            tls = tls.ciphers(self.ciphers.clone());
        }
        if !self.groups.is_empty() {
            tls = tls.groups(self.groups.clone());
        }
        tls
    }

    /// For the load generator.
    pub(super) fn tuning(&self) -> QuicTuning {
        let mut tuning = QuicTuning::default();
        tuning.congestion = self.congestion;
        tuning.initial_rtt = self.initial_rtt.unwrap_or(tuning.initial_rtt);
        tuning.ack_delay = Some(self.ack_delay).filter(|delay| !delay.is_zero());
        tuning.initial_window = self.initial_window;
        tuning.mtu_discovery = !self.no_mtu_discovery;
        tuning.ecn = !self.no_ecn;
        tuning.follow_network = !self.no_follow;
        tuning
    }

    /// Likewise, what concerns TLS.
    pub(super) fn policy(&self) -> TlsPolicy {
        let mut policy = TlsPolicy::default();
        if !self.ciphers.is_empty() {
            policy.ciphers.clone_from(&self.ciphers);
        }
        if !self.groups.is_empty() {
            policy.groups.clone_from(&self.groups);
        }
        policy
    }
}

fn congestion(text: &str) -> Result<Congestion, String> {
    text.parse()
        .map_err(|error: dunlin_net::TuningError| error.to_string())
}

fn cipher(text: &str) -> Result<Cipher, String> {
    let all = Cipher::ALL.map(Cipher::name).join(", ");
    text.parse().map_err(|_| format!("it is one of {all}"))
}

fn group(text: &str) -> Result<Group, String> {
    let all = Group::ALL.map(Group::name).join(", ");
    text.parse().map_err(|_| format!("it is one of {all}"))
}

fn millis(text: &str) -> Result<Duration, String> {
    let millis = text.parse().map_err(|_| "it is a number of milliseconds")?;
    Ok(Duration::from_millis(millis))
}
