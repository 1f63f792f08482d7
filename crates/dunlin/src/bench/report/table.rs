//! The result of a run as a table for people.

use core::fmt::{self, Write as _};

use super::{Broker, Messages, Report, Setup};
use crate::bench::fleet::Report as Devices;
use crate::bench::stats::Summary;

impl Setup {
    /// What is promised to the publisher, as its protocol calls it.
    fn quality(&self) -> String {
        let durable = if self.durable { ", durable" } else { "" };
        match (self.mqtt, self.qos) {
            (Some(_), qos) => format!("QoS {qos}"),
            (None, 0) => format!("settled{durable}"),
            (None, 1) => format!("unsettled{durable}"),
            (None, _) => format!("unsettled, receivers settle second{durable}"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_setup(f)?;
        self.write_connections(f)?;
        if let Some(messages) = &self.messages {
            self.write_messages(messages, f)?;
        }
        if let Some(fleet) = &self.fleet {
            write_fleet(fleet, f)?;
        }
        if let Some(broker) = &self.broker {
            self.write_broker(broker, f)?;
        }
        if let Some(generator) = &self.generator {
            let busy = format!("{:.0} % of its threads", generator.busy * 100.0);
            let cpu = format!("{:.2} s CPU, {busy}", generator.cpu_seconds);
            row(f, "generator", &cpu)?;
            if generator.busy > 0.9 {
                row(f, "", "it was the bottleneck: rates are lower bounds")?;
            }
        }
        Ok(())
    }
}

impl Report {
    fn write_setup(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = &self.setup;
        let protocol = match s.mqtt {
            Some(version) => format!("MQTT {version}"),
            None => "AMQP 1.0".into(),
        };
        row(f, "broker", &format!("{}, {protocol}", s.url))?;
        if let Some(url) = &s.subscribers_url {
            row(f, "", &format!("subscribers at {url}"))?;
        }
        if let Some(address) = &s.queue {
            row(f, "queue", address)?;
        }
        if s.idle > 0 {
            return row(
                f,
                "pattern",
                &format!("{} idle connections", n(s.idle as u64)),
            );
        }
        let who = format!(
            "{}: {} publishers, {} subscribers, {} topics",
            s.pattern, s.publishers, s.subscribers, s.topics
        );
        row(f, "pattern", &who)?;
        let pace = match (s.rate, s.open_loop) {
            (Some(rate), _) => format!("{} msg/s", n(rate as u64)),
            (None, true) => "saturation, open loop".into(),
            (None, false) => format!("saturation, {} in flight per publisher", s.in_flight),
        };
        let what = format!(
            "{}, {} B, {pace}, {} s after {} s of warm-up",
            s.quality(),
            s.payload_bytes,
            s.duration_s,
            s.warmup_s
        );
        row(f, "load", &what)
    }

    fn write_connections(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = &self.connections;
        let text = format!(
            "{} of {} in {:.2} s ({}/s)",
            n(c.ready as u64),
            n(c.wanted as u64),
            c.seconds,
            n(c.per_second as u64)
        );
        row(f, "connections", &text)?;
        row(f, "connect time", &times(&c.time))?;
        for (what, causes) in [("failed", &c.failures), ("ended early", &c.losses)] {
            for (cause, count) in causes {
                row(f, what, &format!("{} × {cause}", n(*count)))?;
            }
        }
        Ok(())
    }

    fn write_messages(&self, m: &Messages, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        row(f, "offered", &n(m.offered))?;
        row(f, "sent", &counted(m.sent, m.sent_per_second))?;
        if self.setup.qos > 0 {
            let text = counted(m.acknowledged, m.acknowledged_per_second);
            row(f, "acknowledged", &text)?;
        }
        if m.refused > 0 {
            row(f, "refused", &n(m.refused))?;
        }
        if self.setup.subscribers > 0 {
            let rate = format!("{:.1} MB/s", m.delivered_mb_per_second);
            let text = counted(m.delivered, m.delivered_per_second);
            row(f, "delivered", &format!("{text}, {rate}"))?;
            let percent = m.lost as f64 * 100.0 / m.expected.max(1) as f64;
            row(f, "lost", &format!("{} ({percent:.3} %)", n(m.lost)))?;
        }
        for (what, count) in [("duplicates", m.duplicates), ("reordered", m.reordered)] {
            if count > 0 {
                row(f, what, &n(count))?;
            }
        }
        if let Some(latency) = &self.latency {
            row(f, "latency", &times(latency))?;
        }
        if let Some(latency) = &self.acknowledgement {
            row(f, "to the ack", &times(latency))?;
        }
        let note = if m.coordinated_omission_corrected {
            "from when a message was due (coordinated omission corrected)"
        } else {
            "from sending; at saturation it is the length of the queues"
        };
        row(f, "", note)
    }

    fn write_broker(&self, b: &Broker, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        row(f, "broker process", &format!("{} (pid {})", b.name, b.pid))?;
        let cpu = format!("{:.2} s CPU ({:.2} cores)", b.cpu_seconds, b.cores);
        row(f, "broker CPU", &cpu)?;
        let by_message = |rate: f64| format!("{} ({:.2} µs each)", n(rate as u64), 1e6 / rate);
        if b.delivered_per_cpu_second > 0.0 {
            let text = by_message(b.delivered_per_cpu_second);
            row(f, "delivered/CPU s", &text)?;
        }
        if b.acknowledged_per_cpu_second > 0.0 {
            row(f, "acked/CPU s", &by_message(b.acknowledged_per_cpu_second))?;
        }
        let memory = |before: u64, after: u64, each: f64| {
            let (before, after) = (n(before / 1024), n(after / 1024));
            let each = each / 1024.0;
            format!("{before} → {after} KiB, {each:.1} KiB by connection")
        };
        let resident = memory(b.rss_before, b.rss_after, b.rss_per_connection);
        row(f, "broker memory", &resident)?;
        let own = memory(b.private_before, b.private_after, b.private_per_connection);
        row(f, "  of its own", &own)
    }
}

fn write_fleet(fleet: &Devices, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if fleet.sleeping > 0 {
        let each = format!("{} devices that sleep", n(fleet.sleeping as u64));
        row(f, "wakes", &format!("{} of {each}", n(fleet.wakes)))?;
        row(f, "wake time", &times(&fleet.wake))?;
        let (taken, refused) = (fleet.early_data_accepted, fleet.early_data_refused);
        let text = format!("{} taken, {} refused", n(taken), n(refused));
        row(f, "early data", &text)?;
    }
    if fleet.moving > 0 {
        let devices = format!("{} devices that move", n(fleet.moving as u64));
        let text = format!(
            "{} of {devices}, {} failed",
            n(fleet.moves),
            n(fleet.moves_failed)
        );
        row(f, "moves", &text)?;
    }
    Ok(())
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, value: &str) -> fmt::Result {
    writeln!(f, "{name:<16} {value}")
}

fn counted(count: u64, rate: f64) -> String {
    format!("{} ({}/s)", n(count), n(rate as u64))
}

/// A distribution in one line.
fn times(s: &Summary) -> String {
    if s.count == 0 {
        return "none".into();
    }
    let parts = [
        ("p50", s.p50_us),
        ("p90", s.p90_us),
        ("p99", s.p99_us),
        ("p99.9", s.p999_us),
        ("max", s.max_us),
    ];
    let texts: Vec<String> = parts
        .iter()
        .map(|(name, us)| format!("{name} {}", duration(*us)))
        .collect();
    texts.join("  ")
}

/// Three digits and a unit.
pub(crate) fn duration(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{:.2} ms", us as f64 / 1e3),
        _ => format!("{:.2} s", us as f64 / 1e6),
    }
}

/// A number with its thousands set apart.
pub(crate) fn n(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        // Writing to a string does not fail.
        let _ = text.write_char(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        let cases = [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ];
        for (value, want) in cases {
            assert_eq!(n(value), want);
        }
        assert_eq!(duration(999), "999 µs");
        assert_eq!(duration(44_130), "44.13 ms");
        assert_eq!(duration(1_500_000), "1.50 s");
    }
}
