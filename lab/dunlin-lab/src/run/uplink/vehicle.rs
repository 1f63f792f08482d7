//! The programs in the vehicle and in the cloud: the vehicle's broker with its bridge,
//! publishers beside it, and the subscriber.

use core::net::Ipv4Addr;
use core::time::Duration;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use dunlin_link::linux::Namespace;

use super::super::running::Running;
use super::super::systems::{Broker, System};
use super::WARM_UP;
use super::seen::Sent;
use crate::lab::{Lab, TCP_PORT, TLS_PORT};
use crate::process::Server;

/// Publishers, each with a topic of its own.
const PUBLISHERS: usize = 4;

/// Between two messages of all together: 25 a second of each publisher.
const EVERY: Duration = Duration::from_millis(10);

/// Bytes of a message.
const BYTES: usize = 200;

/// What a message is that only says whether the bridge is there.
const PROBE: &str = "probe";

/// Between two of them, and how long the bridge may take.
const PROBE_EVERY: Duration = Duration::from_millis(250);
const PROBE_PATIENCE: Duration = Duration::from_secs(30);

/// Longest wait for the end of a publisher.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest silence on a bridge's connection: the least that mosquitto takes.
const KEEP_ALIVE_SECONDS: u32 = 5;

/// Messages on their way on mosquitto's bridge; Dunlin's has as many by default.
const IN_FLIGHT: u32 = 256;

/// A broker in the vehicle whose bridge goes to the cloud.
pub(super) fn bridge(
    lab: &Lab,
    vehicle: &Namespace,
    system: &System,
    cloud: Ipv4Addr,
) -> Result<Server> {
    match system.broker {
        Broker::Mosquitto => {
            // A bridge of MQTT 5.0 says this number, and 0 for no limit is no number then.
            let lines = format!(
                "max_inflight_messages {IN_FLIGHT}\nconnection cloud\naddress {cloud}:{TLS_PORT}\nbridge_cafile FOLDER/ca.pem\n\
                 bridge_protocol_version mqttv50\ncleansession false\nrestart_timeout 1\n\
                 keepalive_interval {KEEP_ALIVE_SECONDS}\nnotifications false\n\
                 topic vehicle/# out 1\n"
            );
            let server = lab.mosquitto_with(vehicle, &lines)?;
            server.context("mosquitto is not installed")
        }
        _ => {
            let (url, ca) = (system.url(cloud), lab.certificate("ca.pem"));
            let streams = system.streams;
            let table = format!(
                "[[bridge]]\nname = \"cloud\"\nurl = \"{url}\"\ntls.ca = {:?}\n\
                 connection = {{ keep_alive = \"{KEEP_ALIVE_SECONDS}s\", streams = \"{streams}\" }}\n\
                 [[bridge.topic]]\npattern = \"vehicle/#\"\ndirection = \"out\"\n",
                ca.display().to_string()
            );
            lab.dunlin_with(vehicle, &[], &table)
        }
    }
}

/// `dunlin pub` or `sub` with QoS 1 at the broker of the same host.
fn client(lab: &Lab, namespace: &Namespace, tool: &str, topic: &str) -> Command {
    let mut command = lab.dunlin(namespace);
    let url = format!("mqtt://127.0.0.1:{TCP_PORT}");
    command.args([tool, "--url", &url, "-q", "1", "-t", topic]);
    command
}

/// The subscriber in the cloud.
pub(super) fn subscriber(lab: &Lab, cloud: &Namespace) -> Command {
    client(lab, cloud, "sub", "vehicle/#")
}

/// Numbers of messages and when they came, as they come.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals(Arc<Mutex<Came>>);

#[derive(Debug, Default)]
struct Came {
    all: Vec<(u64, Instant)>,
    different: BTreeSet<u64>,
}

impl Arrivals {
    fn lock(&self) -> MutexGuard<'_, Came> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many different messages have come.
    pub(super) fn different(&self) -> u64 {
        self.lock().different.len() as u64
    }

    /// All that have come, in their order, by a clock.
    pub(super) fn all(&self, clock: Instant) -> Vec<(u64, Duration)> {
        let came = self.lock();
        let times = came.all.iter();
        times
            .map(|(number, at)| (*number, at.saturating_duration_since(clock)))
            .collect()
    }
}

/// Reads what the subscriber prints until it ends: messages, and probes.
pub(super) fn read(subscriber: &mut Running) -> Result<(Arrivals, Receiver<()>)> {
    let lines = BufReader::new(subscriber.output()?).lines();
    let (arrivals, (came, probe)) = (Arrivals::default(), channel());
    let all = arrivals.clone();
    thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let now = Instant::now();
            let begin = line.split('.').next().unwrap_or_default();
            if begin == PROBE {
                // After the first none waits.
                let _ = came.send(());
            } else if let Ok(number) = begin.parse() {
                let mut came = all.lock();
                came.all.push((number, now));
                came.different.insert(number);
            }
        }
    });
    Ok((arrivals, probe))
}

/// The publishers in the vehicle.
pub(super) struct Publishers(Vec<Running>);

impl Publishers {
    pub(super) fn start(lab: &Lab, vehicle: &Namespace) -> Result<Self> {
        let start = |number| {
            let mut command = client(lab, vehicle, "pub", &format!("vehicle/{number}"));
            command.arg("-l");
            Running::start(command)
        };
        let all = (0..PUBLISHERS).map(start).collect::<Result<_>>()?;
        Ok(Self(all))
    }

    /// Publishes numbered messages until the end, publishers in turn. Those of the
    /// warm-up are sent and not counted.
    pub(super) fn publish(mut self, clock: Instant, end: Duration) -> Result<Sent> {
        let (mut sent, mut late) = (Sent::default(), Vec::new());
        let turns = (0..PUBLISHERS).cycle();
        let dues = (0..).map(|n| EVERY * n).take_while(|due| *due < end);
        for (due, turn) in dues.zip(turns) {
            thread::sleep(due.saturating_sub(clock.elapsed()));
            let now = clock.elapsed();
            late.push(u64::try_from((now - due).as_micros())?);
            let counts = due >= WARM_UP;
            let publisher = self.0.get_mut(turn).context("no publisher")?;
            publisher.write(&line(&match counts {
                true => sent.count.to_string(),
                false => "warm-up".to_owned(),
            }))?;
            match counts {
                true => {
                    sent.at.push(now);
                    sent.count += 1;
                }
                false => sent.warm_up += 1,
            }
        }
        late.sort_unstable();
        let p98 = late.get(late.len() * 98 / 100);
        sent.late_us = p98.copied().unwrap_or_default();
        for publisher in &mut self.0 {
            publisher.await_end(PATIENCE)?;
        }
        Ok(sent)
    }
}

/// A message that begins like this.
fn line(begin: &str) -> String {
    format!("{begin:.<BYTES$}\n")
}

/// Publishes until something comes through the bridge.
pub(super) fn await_probe(publishers: &mut Publishers, probe: &Receiver<()>) -> Result<()> {
    let begun = Instant::now();
    let publisher = publishers.0.first_mut().context("no publisher")?;
    while begun.elapsed() < PROBE_PATIENCE {
        publisher.write(&line(PROBE))?;
        if probe.recv_timeout(PROBE_EVERY).is_ok() {
            return Ok(());
        }
    }
    bail!("nothing comes through the bridge")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_their_number_and_have_their_size() {
        let text = line("17");
        assert_eq!(text.len(), BYTES + 1);
        assert_eq!(text.split('.').next(), Some("17"));
        assert!(text.ends_with(".\n"));
    }
}
