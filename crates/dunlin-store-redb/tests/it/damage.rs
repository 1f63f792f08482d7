//! Damage on disk: it is corrected or named, never served in silence, and takes
//! nothing with it that can be read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;

use dunlin_base::{Message, QoS, Random, ShardId, Text};
use dunlin_store::limits::LOAD_SEQS_MAX;
use dunlin_store::{
    Batch, MemoryStore, Recovered, Request, Seq, SessionKey, StoreDone, StoreOp, Target,
};
use dunlin_store_redb::{Import, OpenError, RedbStore, Report, import, read, repair};

use crate::former::{config, make, model};
use crate::support::TempDir;

/// What opening, and loading all messages, gives.
struct Found {
    recovered: Recovered,
    messages: BTreeMap<Seq, Arc<Message>>,
    damaged_records: u64,
}

fn open(path: &Path) -> Result<Found, OpenError> {
    let (store, recovered) = RedbStore::open(path, config())?;
    let (answer, answers) = channel();
    let submitter = store.submitter(Box::new(move |done| {
        let _ = answer.send(done);
    }));
    let queued = recovered.sessions.iter().flat_map(|s| &s.queue);
    let mut seqs: Vec<Seq> = queued.map(|queued| queued.seq()).collect();
    seqs.sort_unstable();
    seqs.dedup();
    let mut messages = BTreeMap::new();
    for seqs in seqs.chunks(LOAD_SEQS_MAX) {
        let seqs = seqs.to_vec();
        let load = Request::Load { token: 1, seqs };
        submitter.submit(load).expect("room");
        let Ok(StoreDone::Loaded {
            messages: loaded, ..
        }) = answers.recv()
        else {
            panic!("a load fails in a file that was opened");
        };
        messages.extend(loaded.into_iter().filter_map(|(s, m)| Some((s, m?))));
    }
    let damaged_records = store.metrics().totals().damaged;
    store.close();
    Ok(Found {
        recovered,
        messages,
        damaged_records,
    })
}

fn expected(model: &mut MemoryStore) -> Found {
    let seqs = model.stored_seqs();
    let mut messages = BTreeMap::new();
    for seqs in seqs.chunks(LOAD_SEQS_MAX) {
        let seqs = seqs.to_vec();
        let load = Request::Load { token: 1, seqs };
        let StoreDone::Loaded {
            messages: loaded, ..
        } = model.handle(&load)
        else {
            panic!("a load is answered by messages");
        };
        messages.extend(loaded.into_iter().filter_map(|(s, m)| Some((s, m?))));
    }
    Found {
        recovered: model.recover(),
        messages,
        damaged_records: 0,
    }
}

fn is_same(found: &Found, expected: &Found) -> bool {
    found.recovered == expected.recovered && found.messages == expected.messages
}

/// Everything found was written; what is missing may be.
fn assert_is_part(found: &Found, expected: &Found, marks_lost: bool) {
    let (part, all) = (&found.recovered, &expected.recovered);
    for session in &part.sessions {
        let same = all.sessions.iter().find(|s| s.key == session.key);
        let same = same.expect("a session that was written");
        assert_eq!(session.record, same.record);
        assert!(
            session
                .subscriptions
                .iter()
                .all(|s| same.subscriptions.contains(s))
        );
        assert!(session.inflight.iter().all(|i| same.inflight.contains(i)));
        assert!(session.inbound.iter().all(|i| same.inbound.contains(i)));
        let written = |q| same.queue.contains(q);
        assert!(marks_lost || session.queue.iter().all(written));
    }
    assert!(part.retained.iter().all(|m| all.retained.contains(m)));
    assert!(part.meta.iter().all(|m| all.meta.contains(m)));
    for (seq, message) in &found.messages {
        let same = expected.messages.get(seq);
        assert!(same == Some(message) || (marks_lost && same.is_none()));
    }
}

/// Many messages, so that most of the file is in use.
fn queued() -> Batch {
    let message = |seq: u64| Message {
        topic: Text::from("queued"),
        payload: vec![seq as u8; 200].into(),
        ..Message::default()
    };
    let op = |seq: u64| StoreOp::Enqueue {
        seq: Seq::new(1000 + seq, ShardId(0)),
        message: Arc::new(message(seq)),
        targets: vec![Target::new(SessionKey(1 + seq % 12), QoS::AtLeastOnce)],
    };
    Batch {
        token: 3,
        ops: (0..4000).map(op).collect(),
    }
}

fn all() -> MemoryStore {
    let mut model = model();
    model.apply(&queued());
    model
}

/// A store in both states: closed, and left behind by a kill.
struct Files {
    dir: TempDir,
    closed: Vec<u8>,
    killed: Vec<u8>,
}

impl Files {
    fn new() -> Self {
        let dir = TempDir::new();
        let path = dir.path().join("store");
        let killed = make(&path, &[queued()]);
        let closed = std::fs::read(&path).expect("a file");
        Self {
            dir,
            closed,
            killed,
        }
    }

    /// A file of this content with nothing beside it.
    fn put(&self, name: &str, content: &[u8]) -> PathBuf {
        let dir = self.dir.path().join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).expect("a folder");
        let path = dir.join("store");
        std::fs::write(&path, content).expect("writable");
        path
    }
}

fn is_set_aside(path: &Path) -> bool {
    path.with_file_name("store.damaged-1").exists()
}

fn check(path: &Path) -> Result<Report, OpenError> {
    read(path, &mut |_| Ok(()))
}

fn trials() -> u64 {
    let wanted = std::env::var("DUNLIN_DAMAGE_TRIALS").ok();
    wanted.and_then(|n| n.parse().ok()).unwrap_or(60)
}

/// As in the trials that found it: one bit of the part of the file that is in
/// use, 60 times after a clean stop and 60 times after a kill.
#[test]
fn a_flipped_bit_costs_nothing_and_is_named() {
    let files = Files::new();
    let expected = expected(&mut all());
    let mut random = Random::new(18);
    for (state, whole) in [("closed", &files.closed), ("killed", &files.killed)] {
        let used = 1 + whole.iter().rposition(|b| *b != 0).expect("not empty");
        let (mut harmless, mut corrected) = (0, 0);
        for trial in 0..trials() {
            let mut bytes = whole.clone();
            let at = random.below(used as u64) as usize;
            let bit = random.below(8);
            bytes[at] ^= 1 << bit;
            let path = files.put("flipped", &bytes);
            let report = check(&path).expect("a store");
            let found = open(&path).expect("opens");
            assert!(
                is_same(&found, &expected),
                "{state}, trial {trial}, byte {at}, bit {bit}: {:?}",
                report.damage
            );
            if report.is_sound() {
                harmless += 1;
            } else {
                assert_eq!(report.damaged_pages, report.corrected_pages);
                assert!(is_set_aside(&path));
                corrected += 1;
            }
        }
        println!("{state}: {harmless} in unused bytes, {corrected} named and corrected");
        assert!(corrected > trials() / 4);
    }
}

/// More than a bit: 64 bytes, or a sector of zeros.
#[test]
fn a_damaged_file_keeps_what_can_be_read() {
    let files = Files::new();
    let expected = expected(&mut all());
    let rows = check(&files.put("whole", &files.closed))
        .expect("a store")
        .rows();
    let mut random = Random::new(64);
    let (mut lost, mut refused) = (0, 0);
    for trial in 0..trials() {
        let whole = match trial % 2 {
            0 => &files.closed,
            _ => &files.killed,
        };
        let used = 1 + whole.iter().rposition(|b| *b != 0).expect("not empty");
        let mut bytes = whole.clone();
        let at = random.below(used as u64) as usize;
        if trial % 3 == 0 {
            let sector = at / 512 * 512;
            bytes[sector..sector + 512].fill(0);
        } else {
            for byte in bytes.iter_mut().skip(at).take(64) {
                *byte ^= 0xa5;
            }
        }
        let path = files.put("damaged", &bytes);
        let Ok(report) = check(&path) else {
            // Both commits in the header are gone.
            assert!(at < 4096);
            open(&path).err().expect("not a store");
            refused += 1;
            continue;
        };
        let found = open(&path).expect("opens");
        let marks = report.tables.iter().find(|t| t.name == "marks");
        let marks_lost = marks.is_some_and(|marks| marks.lost > 0);
        if is_same(&found, &expected) {
            continue;
        }
        lost += 1;
        if report.rolled_back {
            // As a commit that a power cut tore: nothing of it is there.
            assert!(trial % 2 == 1);
            continue;
        }
        assert!(!report.is_sound(), "byte {at}: not in silence");
        assert!(found.damaged_records > 0 || is_set_aside(&path));
        if !report.damage.iter().any(|d| d.contains("last commit")) {
            assert_is_part(&found, &expected, marks_lost);
        }
        assert!(report.rows() * 2 > rows, "{}", report.rows());
    }
    println!("{lost} of {} lost rows, {refused} were refused", trials());
    assert!(lost > 0 && refused <= 3);
}

#[test]
fn repair_keeps_the_damaged_file() {
    let files = Files::new();
    let mut bytes = files.closed.clone();
    let at = bytes
        .windows(7)
        .position(|w| w == b"topic/9")
        .expect("there");
    bytes[at..at + 20].fill(0xff);
    let path = files.put("repaired", &bytes);
    let before = check(&path).expect("a store");
    assert!(!before.is_sound());
    let (report, kept) = repair(&path).expect("space");
    assert_eq!(report.damage, before.damage);
    assert_eq!(std::fs::read(kept).expect("kept"), bytes);
    let after = check(&path).expect("a store");
    assert!(after.is_sound(), "{:?}", after.damage);
    assert!(after.rows() > 100);
    open(&path).expect("opens");
}

#[test]
fn an_empty_file_is_refused() {
    let files = Files::new();
    let path = files.put("empty", b"");
    for error in [open(&path).err(), check(&path).err(), repair(&path).err()] {
        let error = error.expect("refused");
        assert!(matches!(error, OpenError::Empty { .. }), "{error}");
    }
    assert_eq!(std::fs::read(&path).expect("left alone"), b"");
}

#[test]
#[cfg(unix)]
fn what_is_no_file_is_refused_and_a_link_stays_one() {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    let dir = TempDir::new();
    let socket = dir.path().join("socket");
    let _listener = UnixListener::bind(&socket).expect("bound");
    for error in [
        open(&socket).err(),
        check(&socket).err(),
        repair(&socket).err(),
    ] {
        let error = error.expect("refused");
        assert!(error.to_string().contains("no regular file"), "{error}");
    }
    assert!(std::os::unix::net::UnixStream::connect(&socket).is_ok());

    let files = Files::new();
    let mut bytes = files.killed.clone();
    let at = bytes.windows(7).position(|w| w == b"topic/9");
    let at = at.expect("there");
    bytes[at..at + 20].fill(0xff);
    let path = files.put("elsewhere", &bytes);
    let link = dir.path().join("link");
    symlink(&path, &link).expect("linked");
    let (_, kept) = repair(&link).expect("space");
    assert!(link.is_symlink());
    assert_eq!(kept.parent(), path.canonicalize().expect("there").parent());
    assert!(check(&path).expect("a store").is_sound());
}

#[test]
fn a_copy_of_all_operations_is_the_same_store() {
    let files = Files::new();
    let expected = expected(&mut all());
    let from = files.put("from", &files.killed);
    let mut ops = Vec::new();
    let report = read(&from, &mut |op| {
        ops.push(op);
        Ok(())
    });
    assert!(report.expect("a store").is_sound());
    let to = from.with_file_name("copy");
    let mut fill = |import: &mut Import| ops.drain(..).try_for_each(|op| import.push(op));
    import(&to, &mut fill).expect("space");
    let copied = open(&to).expect("opens");
    assert!(is_same(&copied, &expected));
    let error = import(&to, &mut |_| Ok(())).expect_err("it exists");
    assert!(error.to_string().contains("exists"), "{error}");
}

/// A view of a running store is of one moment, and writing goes on.
#[test]
fn a_snapshot_of_a_running_store_is_consistent() {
    let files = Files::new();
    let expected = expected(&mut all());
    let path = files.put("running", &files.closed);
    let (store, _) = RedbStore::open(&path, config()).expect("opens");
    let snapshot = store.snapshots().take().expect("a view");
    let submitter = store.submitter(Box::new(|_| {}));
    for key in 1..=12 {
        let op = StoreOp::DeleteSession {
            key: SessionKey(key),
        };
        let batch = Batch {
            token: key,
            ops: vec![op],
        };
        submitter.submit(Request::Write(batch)).expect("room");
    }
    let later = store.snapshots().take().expect("a view");
    assert!(check(&path).is_err(), "another part of this process has it");
    let to = path.with_file_name("copy");
    let mut fill = |import: &mut Import| {
        let report = snapshot.read(&mut |op| import.push(op));
        assert!(report.expect("readable").is_sound());
        Ok(())
    };
    import(&to, &mut fill).expect("space");
    assert!(is_same(&open(&to).expect("opens"), &expected));
    let mut sessions = 0;
    let report = later.read(&mut |op| {
        sessions += u64::from(matches!(op, StoreOp::PutSession { .. }));
        Ok(())
    });
    assert_eq!((sessions, report.expect("readable").lost()), (0, 0));
}
