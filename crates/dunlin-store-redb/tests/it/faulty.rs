//! A disk in memory that can lose power, be killed with the process, or fill
//! up. Knows nothing of what is written to it.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use dunlin_store::conformance::Histories;
use dunlin_store_redb::Place;
use redb::StorageBackend;

/// Smallest piece that a disk writes whole.
const SECTOR_BYTES: usize = 512;

/// What space is handed out in.
const BLOCK_BYTES: usize = 4096;

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// The process is killed: what it wrote is in the page cache, the write
    /// under way in part.
    Kill,
    /// Power is cut: of what was not synced, any sectors are there and any
    /// are not.
    PowerCut,
}

#[derive(Debug, Default)]
struct State {
    synced: Vec<u8>,
    seen: Vec<u8>,
    unsynced: Vec<Change>,
    /// Calls that change something, until the end.
    calls_left: Option<u64>,
    dead: bool,
    blocks_used: BTreeSet<usize>,
    blocks_max: Option<usize>,
    reserve_held: bool,
    /// Reads until one fails.
    reads_left: Option<u64>,
}

#[derive(Clone, Debug)]
enum Change {
    Length(usize),
    Bytes(usize, Vec<u8>),
}

/// The disk; clones are the same disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultyDisk(Arc<Mutex<State>>);

impl FaultyDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics while it holds this")
    }

    /// Dies at the call after `calls` more calls that change something.
    pub(crate) fn die_after(&self, calls: u64) {
        self.state().calls_left = Some(calls);
    }

    /// Fails the read after `reads` more reads, once.
    pub(crate) fn fail_read_after(&self, reads: u64) {
        self.state().reads_left = Some(reads);
    }

    /// Has at most this many blocks, or as many as wanted.
    pub(crate) fn set_blocks_max(&self, blocks_max: Option<usize>) {
        self.state().blocks_max = blocks_max;
    }

    /// Blocks in use, with the reserve.
    pub(crate) fn blocks_used(&self) -> usize {
        let state = self.state();
        let reserve = if state.reserve_held {
            RESERVE_BLOCKS
        } else {
            0
        };
        state.blocks_used.len() + reserve
    }

    /// What is found when the machine, or the process, is back.
    pub(crate) fn revive(&self, death: Death, chance: &mut Histories) {
        let mut state = self.state();
        let mut found = match death {
            Death::Kill => core::mem::take(&mut state.seen),
            Death::PowerCut => core::mem::take(&mut state.synced),
        };
        if death == Death::PowerCut {
            for change in core::mem::take(&mut state.unsynced) {
                apply_in_part(&mut found, &change, chance);
            }
        }
        *state = State {
            synced: found.clone(),
            seen: found,
            ..State::default()
        };
    }

    /// Counts a call that changes something; an error when dead.
    fn call(state: &mut State) -> io::Result<()> {
        if state.dead {
            return Err(io::Error::other("no power"));
        }
        if let Some(left) = &mut state.calls_left {
            if *left == 0 {
                state.dead = true;
                return Err(io::Error::other("the power goes"));
            }
            *left -= 1;
        }
        Ok(())
    }
}

/// Each sector arrives or not; most writes arrive or not as a whole.
fn apply_in_part(found: &mut Vec<u8>, change: &Change, chance: &mut Histories) {
    let fate = chance.below(4);
    match change {
        Change::Length(len) if fate != 0 => found.resize(*len, 0),
        Change::Length(_) => {}
        Change::Bytes(offset, bytes) => {
            for (at, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                let arrives = match fate {
                    0 => false,
                    1 => chance.below(2) == 0,
                    _ => true,
                };
                if arrives {
                    put(found, offset + at * SECTOR_BYTES, sector);
                }
            }
        }
    }
}

fn put(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(data);
}

impl StorageBackend for FaultyDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.state();
        if state.dead {
            return Err(io::Error::other("no power"));
        }
        if let Some(left) = state.reads_left {
            state.reads_left = left.checked_sub(1);
            if left == 0 {
                return Err(io::Error::other("a bad sector"));
            }
        }
        let offset = offset as usize;
        let bytes = state.seen.get(offset..offset + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state();
        Self::call(&mut state)?;
        let len = len as usize;
        state.seen.resize(len, 0);
        state.unsynced.push(Change::Length(len));
        state.blocks_used.retain(|block| block * BLOCK_BYTES < len);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state();
        Self::call(&mut state)?;
        for change in core::mem::take(&mut state.unsynced) {
            match change {
                Change::Length(len) => state.synced.resize(len, 0),
                Change::Bytes(offset, bytes) => put(&mut state.synced, offset, &bytes),
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let offset = offset as usize;
        let was_dead = state.dead;
        if let Err(error) = Self::call(&mut state) {
            if !was_dead {
                // The last write: some of it.
                let some = &data[..data.len() / 2];
                put(&mut state.seen, offset, some);
                state.unsynced.push(Change::Bytes(offset, some.to_vec()));
            }
            return Err(error);
        }
        let blocks = offset / BLOCK_BYTES..(offset + data.len()).div_ceil(BLOCK_BYTES);
        let new = blocks.clone().filter(|b| !state.blocks_used.contains(b));
        let mut used = state.blocks_used.len() + new.count();
        if state.reserve_held {
            used += RESERVE_BLOCKS;
        }
        if state.blocks_max.is_some_and(|max| used > max) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.blocks_used.extend(blocks);
        put(&mut state.seen, offset, data);
        state.unsynced.push(Change::Bytes(offset, data.to_vec()));
        Ok(())
    }
}

/// Blocks of the reserve.
const RESERVE_BLOCKS: usize = 512;

impl Place for FaultyDisk {
    fn open(&mut self) -> io::Result<Box<dyn StorageBackend>> {
        Ok(Box::new(self.clone()))
    }

    fn hold(&mut self) -> io::Result<()> {
        let mut state = self.state();
        let room = state.blocks_max.unwrap_or(usize::MAX) - state.blocks_used.len();
        if !state.reserve_held && room < RESERVE_BLOCKS {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.reserve_held = true;
        Ok(())
    }

    fn spend(&mut self) {
        self.state().reserve_held = false;
    }
}
