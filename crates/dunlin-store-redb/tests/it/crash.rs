//! The crash back end: at every moment at which the process or the power may go, a
//! reopened store holds everything that was reported committed, and the group
//! that was under way as a whole or not at all.

use core::time::Duration;
use std::path::Path;
use std::sync::Arc;

use dunlin_base::{Message, QoS, Text};

use dunlin_store::conformance::{Histories, compare};
use dunlin_store::limits::LOAD_SEQS_MAX;
use dunlin_store::{
    Batch, MemoryStore, Recovered, Request, Seq, SessionKey, SessionRecord, StoreDone, StoreError,
    StoreOp, Target,
};
use dunlin_store_redb::{Engine, EngineConfig, OpenError};

use crate::faulty::{Death, FaultyDisk};

fn config(sync: bool, quick_repair: bool) -> EngineConfig {
    EngineConfig {
        sync,
        quick_repair_bytes_min: if quick_repair { 0 } else { u64::MAX },
        retry_after: Duration::ZERO,
        // Small, so that pages leave before the commit too.
        cache_bytes: 64 * 1024,
        ..EngineConfig::new(Path::new("test"))
    }
}

fn open(disk: &FaultyDisk, config: &EngineConfig) -> Result<(Engine, Recovered), OpenError> {
    Engine::open(disk.clone(), config.clone())
}

fn is_same(engine: &mut Engine, recovered: &Recovered, model: &MemoryStore) -> bool {
    *recovered == model.recover() && has_messages(engine, model)
}

fn has_messages(engine: &mut Engine, model: &MemoryStore) -> bool {
    let mut model = model.clone();
    let seqs = model.stored_seqs();
    seqs.chunks(LOAD_SEQS_MAX).all(|seqs| {
        let request = Request::Load {
            token: 0,
            seqs: seqs.to_vec(),
        };
        let messages = engine.load(seqs).expect("a disk that works");
        let token = 0;
        model.handle(&request) == StoreDone::Loaded { token, messages }
    })
}

/// One life after another on the same disk, each ended at a seeded call.
fn check(death: Death, quick_repair: bool, seed: u64) {
    check_with(&config(death == Death::PowerCut, quick_repair), death, seed);
}

fn check_with(config: &EngineConfig, death: Death, seed: u64) {
    let disk = FaultyDisk::default();
    let mut history = Histories::new(seed);
    let mut model = MemoryStore::new();
    // What the group under way would make of the model.
    let mut perhaps = MemoryStore::new();
    // Files are made under another name; see `RedbStore::open`.
    drop(open(&disk, config).expect("a disk that works"));
    let mut lives = 0;
    while lives < 6 {
        disk.die_after(history.below(160));
        match open(&disk, config) {
            Ok((mut engine, recovered)) => {
                disk.die_after(u64::MAX);
                if is_same(&mut engine, &recovered, &perhaps) {
                    model = perhaps;
                } else {
                    compare(&recovered, &model);
                    assert!(has_messages(&mut engine, &model), "seed {seed}");
                }
                disk.die_after(history.below(160));
                perhaps = live(&mut engine, &mut history, &mut model);
                lives += 1;
            }
            Err(OpenError::Io { .. }) => {}
            Err(error) => panic!("seed {seed}: {error}"),
        }
        disk.revive(death, &mut history);
    }
}

/// Writes groups until the end; returns what the last group would make of the
/// model.
fn live(engine: &mut Engine, history: &mut Histories, model: &mut MemoryStore) -> MemoryStore {
    loop {
        let group: Vec<Batch> = (0..=history.below(4))
            .map(|token| Batch {
                token,
                ops: history.batch(),
            })
            .collect();
        let mut after = model.clone();
        for batch in &group {
            after.apply(batch);
        }
        let verdicts = engine.write(&group);
        if verdicts.iter().all(Result::is_ok) {
            *model = after;
            continue;
        }
        assert!(verdicts.iter().all(Result::is_err), "one transaction");
        return after;
    }
}

/// Histories for each kind of death; more for a long night.
fn seeds() -> u64 {
    let wanted = std::env::var("DUNLIN_CRASH_SEEDS").ok();
    wanted.and_then(|n| n.parse().ok()).unwrap_or(60)
}

#[test]
fn a_power_cut_loses_nothing_committed() {
    for seed in 0..seeds() {
        check(Death::PowerCut, false, seed);
    }
}

#[test]
fn a_power_cut_loses_nothing_with_quick_repair() {
    for seed in 1_000_000..1_000_000 + seeds() {
        check(Death::PowerCut, true, seed);
    }
}

#[test]
fn a_kill_loses_nothing_committed_without_syncing() {
    for seed in 2_000_000..2_000_000 + seeds() {
        check(Death::Kill, false, seed);
    }
    for seed in 3_000_000..3_000_000 + seeds() / 4 {
        check(Death::Kill, true, seed);
    }
}

/// The disk is as cruel as it should be: without syncing, a power cut costs
/// what was reported committed.
#[test]
fn a_power_cut_is_noticed_without_syncing() {
    let lost = (0..20).filter(|seed| {
        let config = config(false, false);
        let check = || check_with(&config, Death::PowerCut, *seed);
        std::panic::catch_unwind(check).is_err()
    });
    assert!(lost.count() > 0);
}

/// A group of one batch with one message for session 1.
fn one_message(counter: u64, bytes: usize) -> [Batch; 1] {
    let message = Message {
        topic: Text::from("t"),
        payload: vec![7; bytes].into(),
        ..Message::default()
    };
    [Batch {
        token: counter,
        ops: vec![StoreOp::Enqueue {
            seq: Seq(counter),
            message: Arc::new(message),
            targets: vec![Target::new(SessionKey(1), QoS::AtLeastOnce)],
        }],
    }]
}

fn session() -> [Batch; 1] {
    [Batch {
        token: 0,
        ops: vec![StoreOp::PutSession {
            key: SessionKey(1),
            record: SessionRecord::default(),
        }],
    }]
}

fn dequeue(counter: u64) -> [Batch; 1] {
    [Batch {
        token: counter,
        ops: vec![StoreOp::Dequeue {
            seq: Seq(counter),
            session: SessionKey(1),
        }],
    }]
}

#[test]
fn a_full_disk_refuses_messages_and_recovers() {
    let disk = FaultyDisk::default();
    let (mut engine, _) = open(&disk, &config(true, false)).expect("an empty disk");
    let mut model = MemoryStore::new();
    let write = |engine: &mut Engine, model: &mut MemoryStore, group: &[Batch]| {
        let verdicts = engine.write(group);
        for (batch, verdict) in group.iter().zip(&verdicts) {
            if verdict.is_ok() {
                model.apply(batch);
            }
        }
        verdicts
    };
    assert_eq!(write(&mut engine, &mut model, &session()), [Ok(())]);
    for counter in 0..50 {
        let verdicts = write(&mut engine, &mut model, &one_message(counter, 3000));
        assert_eq!(verdicts, [Ok(())]);
    }
    disk.set_blocks_max(Some(disk.blocks_used() + 2000));
    let full = Err(StoreError::DiskFull);
    let mut counter = 50;
    while write(&mut engine, &mut model, &one_message(counter, 3000)) != [full.clone()] {
        counter += 1;
        assert!(counter < 10_000, "the disk fills up");
    }
    assert!(has_messages(&mut engine, &model), "still readable");
    // What frees space is done, in a group with what needs it.
    let [small] = dequeue(0);
    let [large] = one_message(counter, 200_000);
    let verdicts = write(&mut engine, &mut model, &[small, large]);
    assert_eq!(verdicts, [Ok(()), full]);
    for freed in 1..counter {
        assert_eq!(write(&mut engine, &mut model, &dequeue(freed)), [Ok(())]);
    }
    // What was freed is used again without a larger disk, give or take a
    // refusal before the file is compacted; with one there is room for more.
    let taken = (0..200).filter(|again| {
        let group = one_message(counter + again, 3000);
        write(&mut engine, &mut model, &group) == [Ok(())]
    });
    assert!(taken.count() > 150);
    disk.set_blocks_max(None);
    let large = one_message(counter + 1000, 9_000_000);
    assert_eq!(write(&mut engine, &mut model, &large), [Ok(())]);
    drop(engine);
    let (mut engine, recovered) = open(&disk, &config(true, false)).expect("a disk that works");
    compare(&recovered, &model);
    assert!(has_messages(&mut engine, &model));
}

#[test]
fn a_failed_read_fails_its_request_alone() {
    let disk = FaultyDisk::default();
    let (mut engine, _) = open(&disk, &config(true, false)).expect("an empty disk");
    assert_eq!(engine.write(&session()), [Ok(())]);
    for counter in 1..=200 {
        assert_eq!(engine.write(&one_message(counter, 3000)), [Ok(())]);
    }
    disk.fail_read_after(0);
    let all: Vec<Seq> = (1..=200).map(Seq).collect();
    let error = engine.load(&all).expect_err("a bad sector");
    assert!(matches!(error, StoreError::Io(_)), "{error}");
    // Both kinds of request find a store that works again.
    assert_eq!(engine.load(&all).expect("read again").len(), 200);
    disk.fail_read_after(0);
    engine.load(&all).expect_err("a bad sector");
    assert_eq!(engine.write(&dequeue(7)), [Ok(())]);
    let gone = engine.load(&[Seq(7), Seq(8)]).expect("readable");
    assert!(matches!(gone.as_slice(), [(_, None), (_, Some(_))]));
}
