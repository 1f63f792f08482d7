//! What a database is to the sink: something that turns messages into rows of its own
//! form, and stores many of them at a time. Knows no database.

use core::future::Future;
use core::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;

use crate::input::Input;
use crate::refusal::Refusal;

/// Why rows are not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The target is away, full, or not set up as it should be: the same rows may be
    /// stored later.
    Later(String),
    /// It refuses at least one of the rows for good.
    Refused(String),
}

/// A step that takes time.
pub type Step<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// Rows as their target wrote them.
#[derive(Clone, Debug)]
pub struct Rows {
    /// All of them.
    pub bytes: Bytes,
    /// How many.
    pub count: usize,
}

/// Turns messages into rows of a target's form.
pub trait Encode: Send + Sync {
    /// Appends the rows of a message; gives how many there are. What was appended before
    /// an error is cut off by the caller.
    ///
    /// # Errors
    /// The message cannot be stored.
    fn encode(&self, input: &Input<'_>, out: &mut Vec<u8>) -> Result<usize, Refusal>;

    /// Whether it runs programs of the configuration over messages.
    fn runs_programs(&self) -> bool {
        true
    }
}

/// A database.
pub trait Target: Send {
    /// Connects, or connects again after a failure, and gives what turns messages into
    /// rows: the same as before unless the target's columns have changed.
    fn open(&mut self) -> Step<'_, Arc<dyn Encode>>;

    /// Stores rows, all or none as far as the target can. After an error of the kind
    /// [`Failure::Later`] the target is opened again first.
    fn store(&mut self, rows: Rows) -> Step<'_, ()>;
}
