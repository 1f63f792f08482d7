//! Every second the NAT forgets its ports and the host gets another address,
//! under traffic of all qualities of service and 5 % loss.

use std::io::Read as _;
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use dunlin_link::Side;
use dunlin_link::linux::Emulator;

use super::lab::{Lab, QUIC_PORT, valid};
use super::table::{Table, Target, figure};
use crate::load::Done;

pub(super) fn run(lab: &Lab) -> Result<Table> {
    let mut table = Table::default();
    for shards in ["1", "2"] {
        for policy in ["single", "per-topic"] {
            one(lab, &mut table, shards, policy, Kind::Rebind)?;
            one(lab, &mut table, shards, policy, Kind::Both)?;
        }
    }
    Ok(table)
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Rebind,
    /// Rebinding, and in the middle of each second the host's address changes.
    Both,
}

impl Kind {
    const fn words(self) -> &'static str {
        match self {
            Self::Rebind => "rebinding",
            Self::Both => "rebinding and moving",
        }
    }

    fn script(self, seconds: u32) -> String {
        let mut script = format!("every 1s from 3s until {}s rebind a\n", seconds + 2);
        if self == Self::Both {
            for second in 0..seconds {
                let (high, low) = (second / 200, second % 200 + 10);
                script.push_str(&format!(
                    "{}.5s move a 10.203.{}.{low}\n",
                    second + 3,
                    high + 1
                ));
            }
        }
        script
    }
}

fn one(lab: &Lab, table: &mut Table, shards: &str, policy: &str, kind: Kind) -> Result<()> {
    let seconds = if lab.short { 10 } else { 60 };
    let script = kind.script(seconds);
    let emulator = lab.link(&["delay=10ms", "loss=5%"], &script, None)?;
    let setting = format!("shards={shards}");
    let broker = lab.broker(&emulator, &[&setting])?;
    let url = format!("quic://{}:{QUIC_PORT}", Emulator::address(Side::B));
    let mut loads = Vec::new();
    for qos in ["0", "1", "2"] {
        let mut command = lab.me(emulator.namespace(Side::A));
        command.args(["load", "--url", &url, "--policy", policy, "--qos", qos]);
        command.args([
            "--id",
            &format!("storm{qos}"),
            "--rate",
            "50",
            "--patience",
            "10s",
        ]);
        command.args(["--time", &format!("{}s", seconds + 2)]);
        command.arg("--ca").arg(lab.certificate("ca.pem"));
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        loads.push((qos, child));
    }
    let name = format!("{shards} shard(s), {policy}, {}", kind.words());
    for (qos, mut child) in loads {
        let mut said = String::new();
        if let Some(out) = &mut child.stdout {
            out.read_to_string(&mut said)?;
        }
        if !child.wait()?.success() {
            bail!("{name}: the load of QoS {qos} failed");
        }
        let done: Done = serde_json::from_str(said.trim()).context("the load's figures")?;
        let what = |figure: &str| format!("{name}, QoS {qos}: {figure}");
        let none = Target::AtMost(0.0);
        table.row(&what("published"), figure(done.published), "", Target::None);
        let target = if qos == "0" { Target::None } else { none };
        table.row(&what("lost"), figure(done.lost), "", target);
        let target = if qos == "2" { none } else { Target::None };
        table.row(&what("doubled"), figure(done.duplicated), "", target);
        table.row(
            &what("disconnections"),
            figure(done.disconnections),
            "",
            none,
        );
    }
    drop(broker);
    let report = emulator.stop();
    valid(&report)
}
