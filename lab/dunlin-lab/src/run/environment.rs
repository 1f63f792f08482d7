//! What a run was measured with: machine, programs, settings. A run goes on
//! only with the same.

use std::collections::BTreeMap;
use std::path::Path;

use super::coap;
use super::congestion::{self, ALGORITHM};
use super::plan::hash;
use super::systems::{System, tshark_version};
use crate::lab::Lab;

/// Everything that a reader needs to judge figures.
pub(crate) fn environment(lab: &Lab, systems: &[&System]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut put = |name: &str, value: Option<String>| {
        let value = value.unwrap_or_else(|| "unknown".to_owned());
        found.insert(name.to_owned(), value);
    };
    put("kernel", read("/proc/sys/kernel/osrelease"));
    put("processor", processor());
    let cores = std::thread::available_parallelism();
    put("cores", cores.ok().map(|cores| cores.to_string()));
    put("memory", memory());
    put("congestion control, TCP", Some(congestion::tcp()));
    let quic = format!("{ALGORITHM}, the default of dunlin and of mqttv5");
    put("congestion control, QUIC", Some(quic));
    let same = "dunlin-client for every broker of MQTT, libcoap for CoAP; \
                same certificates, keep alive, payloads";
    put("clients", Some(same.to_owned()));
    put("priority of the links", Some(priority().to_owned()));
    let captures = tshark_version();
    put(
        "tshark",
        captures.or_else(|| Some("not installed".to_owned())),
    );
    for system in systems {
        let missing = system.missing().map(str::to_owned);
        put(system.id, missing.or_else(|| system.version(lab)));
    }
    if systems.iter().any(|system| system.coap.is_some()) {
        let peer = coap::peer().as_deref().and_then(build);
        put("build of coap-peer", peer.or_else(|| Some("none".into())));
    }
    put("build of dunlin", build(lab.program()));
    let me = std::env::current_exe().ok();
    put("build of dunlin-lab", me.as_deref().and_then(build));
    found
}

fn read(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

fn field(file: &str, name: &str) -> Option<String> {
    let text = read(file)?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn processor() -> Option<String> {
    field("/proc/cpuinfo", "model name").or_else(|| field("/proc/cpuinfo", "Hardware"))
}

fn memory() -> Option<String> {
    let kib = field("/proc/meminfo", "MemTotal")?;
    let kib: u64 = kib.split_whitespace().next()?.parse().ok()?;
    Some(format!("{} MiB", kib / 1024))
}

/// Tried on a thread of its own, as links do.
fn priority() -> &'static str {
    let tried = std::thread::spawn(dunlin_link::linux::set_realtime).join();
    match tried {
        Ok(Ok(())) => "real-time (SCHED_FIFO)",
        _ => "not real-time: delays are off by milliseconds",
    }
}

/// Tells one build from another of the same version.
fn build(path: &Path) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    let kib = bytes.len() / 1024;
    Some(format!("{:016x}, {kib} KiB", hash(&bytes)))
}
