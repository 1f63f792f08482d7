//! Why something is refused, in no protocol's terms.

/// There is no room for it: a limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom {
    /// For the log, and for the client where its protocol has words.
    pub(crate) text: &'static str,
}
