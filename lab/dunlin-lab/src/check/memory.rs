//! Four publishers and four subscribers as fast as they can, under loss:
//! memory of the broker stays bounded whatever the streams.

use core::time::Duration;

use anyhow::{Context as _, Result};
use dunlin_link::Side;
use dunlin_link::linux::Emulator;

use super::lab::{Lab, QUIC_PORT};
use super::process::output;
use super::table::{Table, Target, figure};
use crate::load::Done;
use crate::say;

/// Most resident memory of the broker, in MiB.
const MEMORY_MAX_MIB: f64 = 64.0;

/// Clients that get every message.
const SUBSCRIBERS: u64 = 4;

/// Longest that a load takes on top of its time.
const PATIENCE: Duration = Duration::from_secs(3);

pub(super) fn run(lab: &Lab) -> Result<Table> {
    let mut table = Table::default();
    let losses: &[&str] = if lab.short {
        &["0%", "5%"]
    } else {
        &["0%", "1%", "5%", "10%"]
    };
    for qos in ["0", "1"] {
        for loss in losses {
            for policy in ["single", "per-topic", "per-publish", "auto"] {
                one(lab, &mut table, qos, loss, policy)?;
            }
        }
    }
    Ok(table)
}

fn one(lab: &Lab, table: &mut Table, qos: &str, loss: &str, policy: &str) -> Result<()> {
    let loss_setting = format!("loss={loss}");
    let settings = ["delay=10ms", "rate=100mbit", "queue=250kB", &loss_setting];
    let emulator = lab.link(&settings, "", None)?;
    let broker = lab.broker(&emulator, &[])?;
    let mut command = lab.me(emulator.namespace(Side::A));
    let url = format!("quic://{}:{QUIC_PORT}", Emulator::address(Side::B));
    command.args(["load", "--url", &url, "--policy", policy, "--qos", qos]);
    command.arg("--ca").arg(lab.certificate("ca.pem"));
    let subscribers = SUBSCRIBERS.to_string();
    command.args([
        "--publishers",
        "4",
        "--subscribers",
        &subscribers,
        "--topics",
        "8",
    ]);
    command.args([
        "--payload",
        "256",
        "--time",
        if lab.short { "5s" } else { "15s" },
    ]);
    command.args(["--patience", &format!("{}s", PATIENCE.as_secs())]);
    let said = output(command)?;
    let done: Done =
        serde_json::from_str(said.trim()).context("the load printed something else")?;
    let (_, most) = broker.memory()?;
    let what = format!("QoS {qos}, loss {loss}, {policy}: memory of the broker");
    table.row(
        &what,
        figure(most) / 1024.0 / 1024.0,
        "MiB",
        Target::AtMost(MEMORY_MAX_MIB),
    );
    // A publisher that was refused (full queues, 0x97) knows; that is no loss.
    let lost = done.lost.saturating_sub(done.failed * SUBSCRIBERS);
    let rate = |count: u64| figure(count) / done.seconds;
    let (published, received) = (rate(done.published), rate(done.received));
    say::out(format_args!(
        "      published {published:.0}/s, received {received:.0}/s, \
         disconnections {}, refused {}, not arrived {}",
        done.disconnections, done.failed, done.lost
    ));
    table.note(serde_json::json!({
        "what": what, "published_per_s": published, "received_per_s": received,
        "lost": lost, "refused": done.failed, "not_arrived": done.lost, "disconnections": done.disconnections, "duplicated": done.duplicated,
    }));
    if qos != "0" {
        let what = format!("QoS {qos}, loss {loss}, {policy}: messages lost");
        table.row(&what, figure(lost), "", Target::AtMost(0.0));
    }
    Ok(())
}
