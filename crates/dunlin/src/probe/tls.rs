//! TLS of the server: version, certificate, resumption.

use core::time::Duration;
use std::time::{Instant, SystemTime};

use dunlin_base::transport::Transport;

use super::fault::Fault;
use super::wire::plain;
use super::{Check, Checked, Needs, Probe, Verdict};
use crate::certs;

/// Time for session tickets, which come after the handshake.
const TICKETS_AFTER: Duration = Duration::from_millis(300);

const DAY_SECONDS: i64 = 24 * 3600;

/// The checks.
pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "tls",
        title: "TLS version and cipher",
        needs: Needs::Tls,
        run: version,
    },
    Check {
        name: "certificate",
        title: "certificate",
        needs: Needs::Tls,
        run: certificate,
    },
    Check {
        name: "tls-resumption",
        title: "TLS session resumption",
        needs: Needs::TlsOverTcp,
        run: resumption,
    },
];

fn version(probe: &mut Probe, until: Instant) -> Checked {
    let mut wire = probe.dial(until)?;
    let stats = wire.stats();
    wire.abandon();
    let suite = stats.as_ref().and_then(|stats| stats.cipher_suite);
    let group = stats.as_ref().and_then(|stats| stats.key_exchange);
    let is_quic = probe.transport() == Transport::Quic;
    let version = match suite {
        _ if is_quic => "1.3",
        Some(suite) if suite.starts_with("TLS13_") => "1.3",
        Some(_) => "1.2",
        None => return Err(Fault::Other("the TLS library does not say".into())),
    };
    let more = [suite, group].into_iter().flatten();
    let detail = [version].into_iter().chain(more).collect::<Vec<_>>();
    Ok(Verdict::yes(detail.join(", ")).value(version))
}

fn certificate(probe: &mut Probe, until: Instant) -> Checked {
    let mut wire = probe.dial(until)?;
    let der = wire.certificate();
    wire.abandon();
    let missing = || Fault::Other("the server presents none".into());
    let unreadable = || Fault::Other("the certificate cannot be read".into());
    let found = certs::summary(&der.ok_or_else(missing)?).ok_or_else(unreadable)?;
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let days = (found.not_after - now).div_euclid(DAY_SECONDS);
    let names = plain(&found.names.join(", "));
    let verdict = match days {
        ..0 => Verdict::no(format!("expired {} days ago, for {names}", -days)),
        _ => Verdict::yes(format!("{days} days left, for {names}")),
    };
    Ok(verdict.value(days))
}

fn resumption(probe: &mut Probe, until: Instant) -> Checked {
    let mut first = probe.dial(until)?;
    // The end of the connection is as good as the end of the time.
    let _ = first.linger(TICKETS_AFTER);
    first.abandon();
    let mut second = probe.dial(until)?;
    let resumed = second.stats().and_then(|stats| stats.resumed);
    second.abandon();
    Ok(match resumed {
        Some(true) => Verdict::yes(""),
        _ => Verdict::no("the second connection is a full handshake"),
    })
}
