//! The records of one log: quinn-proto's own are brought to the present schema,
//! others are added between them, and both leave in pieces.
//!
//! quinn-proto 0.11.19 writes qlog 0.3: other names of events, round-trip times
//! in seconds, where the schema has milliseconds, and times of events with the
//! precision of an `f32`. All of that is put right here.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use core::sync::atomic::{AtomicU64, Ordering};

use dunlin_base::Instant;
use serde_json::{Map, Value, json};

use super::Qlog;
use super::file::{EXTENSION, Piece};

/// Bytes that leave for the file together.
pub(super) const PIECE_BYTES: usize = 16 << 10;

/// Bytes kept of a connection whose client is not known yet; then the rest is
/// left out until it is.
const WAITING_BYTES_MAX: usize = 256 << 10;

/// Time after which bytes leave although they are few, when something is added.
const PIECE_MICROS: u64 = 500_000;

/// Record separator of JSON text sequences (RFC 7464 section 2.2).
const RECORD_SEPARATOR: u8 = 0x1e;

const FILE_SCHEMA: &str = "urn:ietf:params:qlog:file:sequential";
const FORMAT: &str = "application/qlog+json-seq";
const EVENT_SCHEMAS: [&str; 2] = [
    "urn:ietf:params:qlog:events:quic-12",
    "urn:ietf:params:qlog:events:loglevel-13",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Kept in memory: it is not known yet whether anybody wants it.
    Waiting,
    Writing,
    Off,
}

/// One log. Clones write to the same.
#[derive(Clone)]
pub(super) struct Log(Arc<Mutex<Records>>);

struct Records {
    qlog: Qlog,
    id: u64,
    server: bool,
    /// Destination connection id of the client's first packet, which names the
    /// connection; a client learns it from its first record.
    odcid: Option<String>,
    started: Instant,
    state: State,
    headed: bool,
    out: Vec<u8>,
    left_at: Instant,
    written: u64,
}

impl Log {
    pub(super) fn new(qlog: &Qlog, server: bool, odcid: Option<String>, wanted: bool) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let now = qlog.0.clock.now();
        let log = Self(Arc::new(Mutex::new(Records {
            qlog: qlog.clone(),
            id: IDS.fetch_add(1, Ordering::Relaxed),
            server,
            odcid,
            started: now,
            state: State::Waiting,
            headed: false,
            out: Vec::new(),
            left_at: now,
            written: 0,
        })));
        if wanted {
            log.decide(true);
        }
        log
    }

    /// Whether it is of an accepted connection.
    pub(super) fn is_server(&self) -> bool {
        self.lock().server
    }

    /// Whether it is wanted.
    pub(super) fn decide(&self, wanted: bool) {
        let mut records = self.lock();
        if records.state != State::Waiting {
            return;
        }
        if !wanted || !records.qlog.take_file() {
            records.state = State::Off;
            records.out = Vec::new();
            return;
        }
        records.state = State::Writing;
        // The list of logs is locked before a log, never after.
        let qlog = records.qlog.clone();
        drop(records);
        qlog.note_live(WeakLog(Arc::downgrade(&self.0)));
    }

    pub(super) fn is_off(&self) -> bool {
        self.lock().state == State::Off
    }

    /// Adds an event.
    pub(super) fn add(&self, name: &str, data: Value) {
        self.lock().add(name, data);
    }

    /// Sends what has gathered to the file.
    pub(super) fn leave(&self) {
        let mut records = self.lock();
        if records.state == State::Writing && !records.out.is_empty() {
            let now = records.qlog.0.clock.now();
            records.leave(now);
        }
    }

    /// Nothing more comes.
    pub(super) fn end(&self) {
        self.lock().end();
    }

    /// What quinn-proto writes to.
    pub(super) fn sink(&self) -> Sink {
        Sink {
            log: self.clone(),
            partial: Vec::new(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A log that may have ended.
pub(super) struct WeakLog(Weak<Mutex<Records>>);

impl WeakLog {
    pub(super) fn upgrade(&self) -> Option<Log> {
        self.0.upgrade().map(Log)
    }

    pub(super) fn is_open(&self) -> bool {
        self.upgrade().is_some_and(|log| !log.is_off())
    }
}

impl Records {
    fn add(&mut self, name: &str, data: Value) {
        if self.state == State::Off || self.out.len() > WAITING_BYTES_MAX {
            return;
        }
        let now = self.qlog.0.clock.now();
        self.put(now, name, data);
        if self.state == State::Writing {
            let since = (now - self.left_at).as_micros();
            if self.out.len() >= PIECE_BYTES || since >= u128::from(PIECE_MICROS) {
                self.leave(now);
            }
        }
    }

    /// A client's first packet names the connection, so the header can wait no
    /// longer than for that.
    fn learn(&mut self, odcid: &str) {
        if self.odcid.is_none() {
            self.odcid = Some(odcid.to_owned());
        }
    }

    fn header(&self) -> Value {
        let vantage = if self.server { "server" } else { "client" };
        let mut common = Map::new();
        if let Some(odcid) = &self.odcid {
            common.insert("group_id".into(), odcid.as_str().into());
        }
        common.insert("time_format".into(), "relative_to_epoch".into());
        let reference = json!({
            "clock_type": "monotonic",
            "epoch": "unknown",
            "wall_clock_time": rfc3339(self.started),
        });
        common.insert("reference_time".into(), reference);
        json!({
            "file_schema": FILE_SCHEMA,
            "serialization_format": FORMAT,
            "title": concat!("dunlin ", env!("CARGO_PKG_VERSION")),
            "trace": {
                "vantage_point": { "type": vantage },
                "common_fields": common,
                "event_schemas": EVENT_SCHEMAS,
            },
        })
    }

    fn put(&mut self, now: Instant, name: &str, data: Value) {
        let millis = (now - self.started).as_micros() as f64 / 1e3;
        let record = json!({ "time": millis, "name": name, "data": data });
        write(&mut self.out, &record);
    }

    /// Sends what has gathered to the file.
    fn leave(&mut self, now: Instant) {
        self.left_at = now;
        if self.qlog.0.failure.is_there() {
            self.qlog.note_dropped(self.out.len());
            self.out = Vec::new();
            return self.finish();
        }
        let mut bytes = Vec::new();
        if !core::mem::replace(&mut self.headed, true) {
            write(&mut bytes, &self.header());
        }
        bytes.append(&mut self.out);
        let count = bytes.len() as u64;
        let fits = self.written + count <= self.qlog.0.limits.file_bytes_max;
        if !fits || !self.qlog.take_bytes(count) {
            self.qlog.note_dropped(bytes.len());
            if self.written > 0 {
                let why = json!({ "message": "the log ends here: a bound is reached" });
                self.put(now, "loglevel:warning", why);
                let last = core::mem::take(&mut self.out);
                self.give(last);
            }
            self.finish();
            return;
        }
        self.written += count;
        self.give(bytes);
    }

    fn give(&self, bytes: Vec<u8>) {
        let count = bytes.len();
        let piece = Piece::Bytes {
            id: self.id,
            path: self.path(),
            bytes,
        };
        if !self.qlog.0.writer.put(piece) {
            self.qlog.note_dropped(count);
        }
    }

    fn path(&self) -> PathBuf {
        let side = if self.server { "server" } else { "client" };
        let name = self.odcid.as_deref().unwrap_or("unknown");
        self.qlog.0.dir.join(format!("{name}_{side}.{EXTENSION}"))
    }

    fn end(&mut self) {
        if self.state == State::Writing && !self.out.is_empty() {
            self.leave(self.qlog.0.clock.now());
        }
        if self.state == State::Writing {
            self.finish();
        }
        self.state = State::Off;
    }

    fn finish(&mut self) {
        self.state = State::Off;
        self.qlog.0.writer.put(Piece::End { id: self.id });
    }

    /// A record of quinn-proto.
    fn translate(&mut self, record: &[u8]) {
        if self.state == State::Off {
            return;
        }
        let Ok(Value::Object(mut record)) = serde_json::from_slice::<Value>(record) else {
            return;
        };
        // Its header has no name and is not needed: there is one already.
        let (Some(Value::String(name)), Some(data)) =
            (record.remove("name"), record.remove("data"))
        else {
            return;
        };
        if let Some(Value::String(odcid)) = record.get("group_id") {
            self.learn(odcid);
        }
        let name = name.rsplit(':').next().unwrap_or_default();
        match name {
            "packet_lost" => self.add("quic:packet_lost", without_trigger(data)),
            "metrics_updated" => self.add("quic:recovery_metrics_updated", metrics(data)),
            _ => self.add(&format!("quic:{name}"), data),
        }
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        self.end();
    }
}

fn write(out: &mut Vec<u8>, record: &Value) {
    out.push(RECORD_SEPARATOR);
    // Values of our own making are always written.
    let _ = serde_json::to_writer(&mut *out, record);
    out.push(b'\n');
}

/// quinn-proto names the same cause of every loss.
fn without_trigger(mut data: Value) -> Value {
    if let Some(data) = data.as_object_mut() {
        data.remove("trigger");
    }
    data
}

/// Round-trip times of quinn-proto are in seconds, and a threshold that is not
/// there yet is a number that JavaScript cannot hold.
fn metrics(mut data: Value) -> Value {
    if let Some(data) = data.as_object_mut()
        && data.get("ssthresh").and_then(Value::as_u64) == Some(u64::MAX)
    {
        data.remove("ssthresh");
    }
    for key in ["min_rtt", "smoothed_rtt", "latest_rtt", "rtt_variance"] {
        if let Some(value) = data.get_mut(key)
            && let Some(seconds) = value.as_f64()
        {
            *value = ((seconds * 1e6).round() / 1e3).into();
        }
    }
    data
}

/// A moment as RFC 3339 writes it, in milliseconds and UTC.
fn rfc3339(at: Instant) -> String {
    let millis = at.as_micros() / 1000;
    let (days, in_day) = (millis / 86_400_000, millis % 86_400_000);
    // Days since 0000-03-01, in years that begin with March (Hinnant,
    // "chrono-compatible low-level date algorithms").
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let day = day - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year + era * 400 + u64::from(month <= 2);
    let (seconds, millis) = (in_day / 1000, in_day % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Collects what quinn-proto writes until a record is whole.
pub(super) struct Sink {
    log: Log,
    partial: Vec<u8>,
}

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.partial.extend_from_slice(bytes);
        // It ends each record with a line feed, which JSON text escapes.
        if bytes.ends_with(b"\n") {
            let record = self.partial.trim_ascii();
            let record = record.strip_prefix(&[RECORD_SEPARATOR]).unwrap_or(record);
            self.log.lock().translate(record);
            self.partial.clear();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_dates() {
        for (secs, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_827_696, "2000-02-29T12:34:56.000Z"),
            (1_795_132_799, "2026-11-19T23:59:59.000Z"),
        ] {
            let at = Instant::from_micros(secs * 1_000_000);
            assert_eq!(rfc3339(at), text);
        }
    }
}
