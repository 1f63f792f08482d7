//! A new file from operations. Knows nothing of where they come from.

use std::io;
use std::path::{Path, PathBuf};

use dunlin_store::{Batch, StoreError, StoreOp};

use crate::engine::{Engine, EngineConfig};
use crate::error::OpenError;
use crate::file::{self, Unborn};

/// Operations written in one transaction.
pub(crate) const OPS_MAX: usize = 4096;

/// Bytes of messages written in one transaction, give or take one.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// A store that is being filled. It is no store until it is finished, and is
/// removed if it is not.
pub struct Import {
    engine: Engine,
    unborn: PathBuf,
    ops: Vec<StoreOp>,
    bytes: usize,
    finished: bool,
}

dunlin_base::opaque_debug!(Import);

impl Import {
    /// A store to take the place of `path`, beside it.
    pub(crate) fn beside(path: &Path) -> Result<Self, OpenError> {
        let unborn = file::beside(path, &format!("new-{}", std::process::id()));
        // Left by a process that had this number.
        let _ = std::fs::remove_file(&unborn);
        let config = EngineConfig {
            // Once, at the end.
            sync: false,
            ..EngineConfig::new(&unborn)
        };
        let (engine, _) = Engine::open(Unborn(unborn.clone()), config)?;
        Ok(Self {
            engine,
            unborn,
            ops: Vec::new(),
            bytes: 0,
            finished: false,
        })
    }

    /// Adds what `op` says. Sessions come before what belongs to them.
    ///
    /// # Errors
    /// What the disk says.
    pub fn push(&mut self, op: StoreOp) -> io::Result<()> {
        self.bytes += op.bytes();
        self.ops.push(op);
        if self.ops.len() >= OPS_MAX || self.bytes >= BYTES_MAX {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let batch = Batch {
            token: 0,
            ops: core::mem::take(&mut self.ops),
        };
        self.bytes = 0;
        let verdicts = self.engine.write(&[batch]);
        verdicts
            .into_iter()
            .collect::<Result<(), _>>()
            .map_err(store_error)
    }

    /// Syncs the file; its name.
    pub(crate) fn finish(mut self) -> io::Result<PathBuf> {
        self.write()?;
        self.engine.flush().map_err(store_error)?;
        self.finished = true;
        Ok(self.unborn.clone())
    }
}

/// What a store says, as the system would.
pub(crate) fn store_error(error: StoreError) -> io::Error {
    match error {
        StoreError::DiskFull => io::ErrorKind::StorageFull.into(),
        other => io::Error::other(other),
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        if !self.finished {
            // What cannot be removed is not there.
            let _ = std::fs::remove_file(&self.unborn);
        }
    }
}

/// Makes the store `path`, which must not exist, from what `fill` adds.
///
/// # Errors
/// The file exists or cannot be written; what `fill` fails with. There is no
/// file then.
pub fn import(
    path: &Path,
    fill: &mut dyn FnMut(&mut Import) -> io::Result<()>,
) -> Result<(), OpenError> {
    let io_error = |error| OpenError::Io {
        path: path.to_owned(),
        error,
    };
    let _lock = file::lock(path)?;
    if path.try_exists().map_err(io_error)? {
        return Err(io_error(io::ErrorKind::AlreadyExists.into()));
    }
    let mut import = Import::beside(path)?;
    fill(&mut import).map_err(io_error)?;
    let new = import.finish().map_err(io_error)?;
    file::appear(&new, path).map_err(io_error)
}
