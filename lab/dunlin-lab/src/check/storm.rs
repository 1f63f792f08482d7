//! Every second the NAT forgets its ports and the host gets another address,
//! under traffic of all qualities of service and 5 % loss.

use core::time::Duration;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Stdio};
use std::thread::sleep;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use dunlin_link::linux::Emulator;
use dunlin_link::{Action, Side};

use super::lab::{Lab, QUIC_PORT, valid};
use super::table::{Table, Target, figure};
use crate::load::Done;

/// Between two changes of the same kind.
const PERIOD: Duration = Duration::from_secs(1);

/// Publishing goes on for so long after the last change.
const AFTER: Duration = Duration::from_secs(2);

pub(super) fn run(lab: &Lab) -> Result<Table> {
    let mut table = Table::default();
    if lab.short {
        one(lab, &mut table, "1", "single", Kind::Rebind)?;
        one(lab, &mut table, "2", "per-topic", Kind::Both)?;
        return Ok(table);
    }
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
    /// Now and then the application moves to another socket, too.
    Both,
}

impl Kind {
    const fn words(self) -> &'static str {
        match self {
            Self::Rebind => "rebinding",
            Self::Both => "rebinding and moving",
        }
    }
}

/// A process with a publisher and a subscriber.
struct Load {
    qos: &'static str,
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Load {
    fn start(
        lab: &Lab,
        emulator: &Emulator,
        qos: &'static str,
        policy: &str,
        kind: Kind,
        time: Duration,
    ) -> Result<Self> {
        let url = format!("quic://{}:{QUIC_PORT}", Emulator::address(Side::B));
        let mut command = lab.me(emulator.namespace(Side::A));
        command.args(["load", "--announce", "--url", &url]);
        command.args(["--policy", policy, "--qos", qos]);
        command.args(["--id", &format!("storm{qos}"), "--rate", "50"]);
        command.args(["--patience", "10s"]);
        command.args(["--time", &format!("{}s", time.as_secs())]);
        if kind == Kind::Both {
            // Not in step with the link's seconds.
            command.args(["--migrate", "1700ms"]);
        }
        command.arg("--ca").arg(lab.certificate("ca.pem"));
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let said = child.stdout.take().context("no output of the load")?;
        let said = BufReader::new(said);
        Ok(Self { qos, child, said })
    }

    fn await_connected(&mut self) -> Result<()> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        if line.trim() != "connected" {
            bail!("the load of QoS {} did not connect: {line}", self.qos);
        }
        Ok(())
    }

    fn end(mut self) -> Result<Done> {
        let mut said = String::new();
        self.said.read_to_string(&mut said)?;
        if !self.child.wait()?.success() {
            bail!("the load of QoS {} failed", self.qos);
        }
        serde_json::from_str(said.trim()).context("the load's figures")
    }
}

/// Changes the link every second.
fn blow(emulator: &Emulator, kind: Kind, seconds: u32) -> Result<()> {
    let start = Instant::now();
    let until = |at: Duration| sleep(at.saturating_sub(start.elapsed()));
    for second in 0..seconds {
        let at = PERIOD * second;
        if kind == Kind::Both {
            until(at + PERIOD / 2);
            let (high, low) = (second / 200 + 1, second % 200 + 10);
            emulator.apply(Action::parse(&format!("move a 10.203.{high}.{low}"))?);
        }
        until(at + PERIOD);
        emulator.apply(Action::parse("rebind a")?);
    }
    Ok(())
}

fn one(lab: &Lab, table: &mut Table, shards: &str, policy: &str, kind: Kind) -> Result<()> {
    let seconds = if lab.short { 10 } else { 60 };
    let emulator = lab.link(&["delay=10ms", "loss=5%"], "", None)?;
    let mut broker = lab.broker(&emulator, &[&format!("shards={shards}")])?;
    let name = format!("{shards} shard(s), {policy}, {}", kind.words());
    let time = PERIOD * seconds + AFTER;
    let start = |qos| Load::start(lab, &emulator, qos, policy, kind, time);
    let mut loads = Vec::new();
    for qos in ["0", "1", "2"] {
        loads.push(start(qos)?);
    }
    // Addresses must not change during handshakes (RFC 9000 section 9).
    for load in &mut loads {
        load.await_connected().context(name.clone())?;
    }
    blow(&emulator, kind, seconds)?;
    broker.runs()?;
    for load in loads {
        let qos = load.qos;
        let done = load.end().context(name.clone())?;
        let what = |figure: &str| format!("{name}, QoS {qos}: {figure}");
        let none = Target::AtMost(0.0);
        table.row(&what("published"), figure(done.published), "", Target::None);
        if kind == Kind::Both {
            // One a second of each of the two clients.
            let least = Target::AtLeast(2.0 * f64::from(seconds));
            table.row(&what("moves"), figure(done.moves), "", least);
        }
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
    broker.runs()?;
    drop(broker);
    let report = emulator.stop();
    valid(&report)
}
