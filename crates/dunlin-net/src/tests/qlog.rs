//! Logs of connections, read back by the types of the `qlog` crate, which
//! others wrote after the same drafts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ::qlog::reader::{Event, QlogSeqReader};

use super::certs::{dial_to, listen_on};
use super::*;
use crate::{Qlog, QlogFilter, QlogLimits};

/// A directory that goes with the test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = format!("dunlin-qlog-{name}-{}", std::process::id());
        let dir = std::env::temp_dir().join(dir);
        let _ = std::fs::remove_dir_all(&dir);
        Self(dir)
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn logging(dir: &Dir, limits: QlogLimits, filter: QlogFilter) -> (Side, Qlog) {
    let mut config = NetConfig::client(Clock::new()).unwrap();
    let log = Qlog::open(&dir.0, limits, config.clock).unwrap();
    log.select(filter);
    config.qlog = Some(log.clone());
    let side = Side {
        net: Net::new(config).unwrap(),
        events: Vec::new(),
    };
    (side, log)
}

/// Opens, sends `bytes` to the server, closes, and waits for the end. `meanwhile`
/// runs between, with the server's connection.
fn converse(pair: &mut Pair, bytes: usize, meanwhile: impl FnOnce(&mut Pair, ConnId)) {
    let (client, server) = pair.connect(listen_on(Transport::Quic), |addr| {
        dial_to(Transport::Quic, addr)
    });
    meanwhile(pair, server);
    pair.client.send(client, StreamId::CONTROL, &pattern(bytes));
    pair.until("bytes", |p| {
        p.server.received_len(StreamId::CONTROL) == bytes
    });
    pair.client.net.close(client, 7);
    pair.until("end", |p| {
        p.client.net.connections() + p.server.net.connections() == 0
    });
}

/// Names of the members of an object, in objects within it too.
fn keys(value: &serde_json::Value) -> std::collections::BTreeSet<String> {
    let Some(members) = value.as_object() else {
        return std::collections::BTreeSet::new();
    };
    let inner = |(name, value): (&String, _)| {
        let below = keys(value).into_iter().map(|key| format!("{name}.{key}"));
        below.chain([name.clone()]).collect::<Vec<_>>()
    };
    members.iter().flat_map(inner).collect()
}

/// Events by name, and whether their times never fall. Fails where a record is
/// not what the schema says.
fn read(path: &Path) -> (::qlog::QlogSeq, BTreeMap<String, Vec<serde_json::Value>>) {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes.first(), Some(&0x1e), "a record separator comes first");
    assert_eq!(bytes.last(), Some(&b'\n'), "the last record is whole");
    let records: Vec<&[u8]> = bytes.split(|b| *b == 0x1e).skip(1).collect();
    assert!(records.iter().all(|r| r.ends_with(b"\n")));
    let reader = QlogSeqReader::with_file(path).unwrap();
    let header = reader.qlog.clone();
    let (mut events, mut count, mut last) = (BTreeMap::<_, Vec<_>>::new(), 1, 0.0);
    for (event, record) in reader.zip(records.iter().skip(1)) {
        let event = match event {
            Event::Qlog(event) => event,
            Event::Json(event) => panic!("not of the schema: {event:?}"),
        };
        assert!(event.time >= last, "times do not fall");
        last = event.time;
        count += 1;
        let value = serde_json::to_value(&event).unwrap();
        // What the reader does not know it leaves out.
        let written: serde_json::Value = serde_json::from_slice(record).unwrap();
        assert_eq!(keys(&written), keys(&value), "unknown to the schema");
        let name = value["name"].as_str().unwrap().to_owned();
        events.entry(name).or_default().push(value["data"].clone());
    }
    assert_eq!(count, records.len(), "no record is skipped");
    (header, events)
}

#[test]
fn a_log_tells_of_packets_streams_and_ends_by_the_schema() {
    let (at_client, at_server) = (Dir::new("client"), Dir::new("server"));
    let (client, client_log) = logging(&at_client, QlogLimits::default(), QlogFilter::all());
    let (server, server_log) = logging(&at_server, QlogLimits::default(), QlogFilter::all());
    let mut pair = Pair { client, server };
    converse(&mut pair, 100_000, |_, _| {});
    client_log.flush();
    server_log.flush();
    let mut names = Vec::new();
    for (dir, side) in [(&at_client, "client"), (&at_server, "server")] {
        let [file] = &dir.files()[..] else {
            panic!("one file");
        };
        let name = file.file_name().unwrap().to_str().unwrap();
        let odcid = name.strip_suffix(&format!("_{side}.sqlog")).unwrap();
        let (header, events) = read(file);
        assert_eq!(header.file_schema, "urn:ietf:params:qlog:file:sequential");
        let common = header.trace.common_fields.unwrap();
        assert_eq!(common.group_id.as_deref(), Some(odcid));
        assert!(common.reference_time.wall_clock_time.is_some());
        for name in [
            "connection_started",
            "parameters_set",
            "alpn_information",
            "connection_state_updated",
            "packet_sent",
            "packet_received",
            "datagrams_sent",
            "datagrams_received",
            "recovery_metrics_updated",
            "stream_state_updated",
            "stream_data_moved",
            "mtu_updated",
            "connection_closed",
        ] {
            assert!(
                events.contains_key(&format!("quic:{name}")),
                "{side}: {name}"
            );
        }
        let moved: u64 = events["quic:stream_data_moved"]
            .iter()
            .map(|data| data["raw"]["length"].as_u64().unwrap())
            .sum();
        assert_eq!(moved, 100_000);
        let rtts = &events["quic:recovery_metrics_updated"];
        let rtts = rtts.iter().filter_map(|data| data["smoothed_rtt"].as_f64());
        assert!(rtts.clone().count() > 0, "{side}");
        // On loopback: far more would be seconds taken for milliseconds.
        assert!(rtts.clone().all(|ms| ms < 10_000.0));
        assert!(
            rtts.clone().any(|ms| ms > 0.01),
            "{:?}",
            rtts.collect::<Vec<_>>()
        );
        assert_eq!(events["quic:connection_closed"].len(), 1);
        names.push(odcid.to_owned());
    }
    assert_eq!(names[0], names[1], "both sides give it the same name");
    let at_peer = read(&at_server.files()[0]).1;
    assert_eq!(at_peer["quic:connection_closed"][0]["error_code"], 7);
}

#[test]
fn the_client_decides_late_whether_its_connection_is_logged() {
    for (client_id, files) in [("sensor-1", 1), ("other", 0)] {
        let dir = Dir::new(client_id);
        let mut filter = QlogFilter::default();
        filter.clients = vec!["sensor-*".into()];
        let (server, log) = logging(&dir, QlogLimits::default(), filter);
        let mut pair = Pair {
            client: Side::new(NetLimits::default()),
            server,
        };
        converse(&mut pair, 1000, |p, conn| {
            p.server.net.conn(conn).name_log(client_id)
        });
        log.flush();
        assert_eq!(dir.files().len(), files, "{client_id}");
        for file in dir.files() {
            let events = read(&file).1;
            // From its first packet on.
            let first = &events["quic:packet_received"][0]["header"];
            assert_eq!(first["packet_type"], "initial");
        }
    }
}

#[test]
fn a_connection_under_way_can_be_logged_without_its_packets() {
    let dir = Dir::new("late");
    let (server, log) = logging(&dir, QlogLimits::default(), QlogFilter::default());
    let mut pair = Pair {
        client: Side::new(NetLimits::default()),
        server,
    };
    converse(&mut pair, 50_000, |p, conn| {
        p.server.net.conn(conn).begin_log()
    });
    log.flush();
    let events = read(&dir.files()[0]).1;
    assert!(!events.contains_key("quic:packet_sent"));
    for name in [
        "recovery_metrics_updated",
        "stream_data_moved",
        "connection_closed",
    ] {
        assert!(events.contains_key(&format!("quic:{name}")), "{name}");
    }
}

#[test]
fn files_and_bytes_are_bounded() {
    let dir = Dir::new("bounds");
    let mut limits = QlogLimits::default();
    limits.files_max = 1;
    limits.file_bytes_max = 40_000;
    for round in 0..2 {
        let (server, log) = logging(&dir, limits.clone(), QlogFilter::all());
        let mut pair = Pair {
            client: Side::new(NetLimits::default()),
            server,
        };
        converse(&mut pair, 1_000_000, |_, _| {});
        log.flush();
        let [file] = &dir.files()[..] else {
            panic!("one file");
        };
        // The last record says that the log was cut.
        let size = std::fs::metadata(file).unwrap().len();
        assert!(size < limits.file_bytes_max + 200, "{size}");
        assert!(read(file).1.contains_key("loglevel:warning"));
        assert_eq!(log.totals().files, 1, "those of earlier runs count");
        assert_eq!(log.totals().refused, round);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_ends_all_logs_until_they_are_asked_for_again() {
    let dir = Dir::new("full");
    let clock = Clock::new();
    let full = |_: &Path| std::fs::OpenOptions::new().write(true).open("/dev/full");
    let log = Qlog::open_by(full, &dir.0, QlogLimits::default(), clock).unwrap();
    log.select(QlogFilter::all());
    let pair = || {
        let mut config = NetConfig::client(clock).unwrap();
        config.qlog = Some(log.clone());
        let server = Side {
            net: Net::new(config).unwrap(),
            events: Vec::new(),
        };
        let client = Side::new(NetLimits::default());
        Pair { client, server }
    };
    // The conversation itself does not notice.
    converse(&mut pair(), 1_000_000, |_, _| {});
    log.flush();
    let why = log.failure().unwrap();
    assert!(why.contains("No space left"), "{why}");
    assert!(!log.is_active());
    let dropped = log.totals().dropped_bytes;
    converse(&mut pair(), 1000, |_, _| {});
    assert_eq!(
        log.totals().dropped_bytes,
        dropped,
        "nothing more is logged"
    );
    log.select(QlogFilter::all());
    assert!(log.is_active() && log.failure().is_none());
}
