//! An import: what another store holds becomes the beginning of an empty log.
//!
//! It is written as what is live at number 1, and no record has that number: the log begins
//! with record 2. So the log of an import without an end has a beginning that is nowhere, and
//! no reader, of this release or of one before, takes it for whole.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use dunlin_store::StoreOp;
use dunlin_store::codec::encode_ops;
use tokio::sync::mpsc::{Sender, channel};

use crate::config::NatsConfig;
use crate::counts::{Counts, Sums};
use crate::error::{ImportError, OpenError};
use crate::importing::Importing;
use crate::limits::{BATCH_BYTES_MAX, LIVE_BYTES, LIVE_GROUPS_MAX};
use crate::position::POSITION;

/// What the thread is to do next.
enum Order {
    /// Write what is live.
    Write(Bytes),
    /// Compare what the log has with this.
    Check(Sums),
    /// Write that nothing more comes.
    End,
}

/// What came of an order.
type Said = Result<Counts, ImportError>;

/// An import that is not finished. Dropped so, it leaves a log that is not served, and that
/// another import begins again.
pub struct Import {
    /// None while it is dropped.
    orders: Option<Sender<Order>>,
    said: Receiver<Said>,
    thread: Option<JoinHandle<()>>,
    body: Vec<u8>,
    sums: Sums,
}

dunlin_base::opaque_debug!(Import);

impl Import {
    /// Takes an empty log over, or one with an import that was not finished, which it
    /// empties. Waits for the server.
    ///
    /// # Errors
    /// See [`ImportError`]; nothing was changed then, but that a stream without a message may
    /// be there.
    pub fn begin(config: NatsConfig) -> Result<Self, ImportError> {
        let (orders, taken) = channel(LIVE_GROUPS_MAX);
        let (says, said) = sync_channel(1);
        let thread = thread::Builder::new()
            .name("store-import".to_owned())
            .spawn(move || run(&config, taken, &says))
            .map_err(OpenError::Thread)?;
        let import = Self {
            orders: Some(orders),
            said,
            thread: Some(thread),
            body: Vec::new(),
            sums: Sums::default(),
        };
        import.answer()?;
        Ok(import)
    }

    /// Adds what `op` says. Sessions come before what belongs to them. Waits while the log
    /// has not taken what came before.
    ///
    /// # Errors
    /// What [`ImportError`] says, as its source.
    pub fn push(&mut self, op: StoreOp) -> io::Result<()> {
        if matches!(&op, StoreOp::PutMeta { key, .. } if key.as_str() == POSITION) {
            return Err(io::Error::other(ImportError::Copy));
        }
        let before = self.body.len();
        let op = [op];
        encode_ops(&op, &mut self.body);
        let bytes = self.body.get(before..).unwrap_or_default();
        if bytes.len() > BATCH_BYTES_MAX {
            return Err(io::Error::other(ImportError::TooLarge(bytes.len())));
        }
        self.sums.add(&op, bytes);
        if self.body.len() > BATCH_BYTES_MAX {
            // No reader takes both in one body.
            let last = self.body.split_off(before);
            self.flush().map_err(io::Error::other)?;
            self.body = last;
        }
        if self.body.len() >= LIVE_BYTES {
            self.flush().map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ImportError> {
        let body = core::mem::take(&mut self.body);
        self.order(Order::Write(body.into()))
    }

    fn order(&self, order: Order) -> Result<(), ImportError> {
        let sent = self.orders.as_ref().map(|to| to.blocking_send(order));
        match sent {
            Some(Ok(())) => Ok(()),
            // It has said why it ended.
            _ => Err(self.answer().err().unwrap_or(ImportError::Ended)),
        }
    }

    fn answer(&self) -> Said {
        self.said.recv().unwrap_or(Err(ImportError::Ended))
    }

    /// Reads the log and compares everything in it with what was added: how much of each it
    /// has.
    ///
    /// # Errors
    /// See [`ImportError`].
    pub fn check(&mut self) -> Result<Counts, ImportError> {
        if !self.body.is_empty() {
            self.flush()?;
        }
        self.order(Order::Check(self.sums.clone()))?;
        self.answer()
    }

    /// Says in the log that nothing more comes, and gives it back: from here on it can be
    /// served. Meant for after [`Import::check`].
    ///
    /// # Errors
    /// See [`ImportError`].
    pub fn finish(mut self) -> Result<(), ImportError> {
        if !self.body.is_empty() {
            self.flush()?;
        }
        self.order(Order::End)?;
        self.answer().map(drop)
    }
}

impl Drop for Import {
    /// Waits until the lease is given back.
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // It has said what went wrong.
            let _ = thread.join();
        }
    }
}

fn run(
    config: &NatsConfig,
    mut orders: tokio::sync::mpsc::Receiver<Order>,
    says: &SyncSender<Said>,
) {
    // Without a receiver, nothing wants it.
    let say = |said| drop(says.send(said));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return say(Err(OpenError::Thread(error).into())),
    };
    runtime.block_on(async {
        let mut importing = match Importing::begin(config).await {
            Ok(importing) => importing,
            Err(error) => return say(Err(error)),
        };
        say(Ok(Counts::default()));
        while let Some(order) = orders.recv().await {
            let done = match order {
                Order::Write(body) => match importing.write(&body).await {
                    Ok(()) => continue,
                    Err(error) => Err(error),
                },
                Order::Check(sums) => importing.check(config, &sums).await,
                Order::End => {
                    let ended = importing.end().await;
                    drop(importing);
                    return say(ended.map(|()| Counts::default()));
                }
            };
            let failed = done.is_err();
            say(done);
            if failed {
                return;
            }
        }
    });
}

/// Whether a broker or a standby has the lease of this log. Waits for the server.
///
/// # Errors
/// See [`OpenError`].
pub fn is_in_use(config: &NatsConfig) -> Result<bool, OpenError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(OpenError::Thread)?;
    runtime.block_on(crate::importing::is_in_use(config))
}
