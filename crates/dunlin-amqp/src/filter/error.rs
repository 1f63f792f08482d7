//! What can be wrong with a selector.

/// Why a selector is refused; `at` is the byte where it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectorError {
    /// A character that begins nothing.
    #[error("unexpected character at byte {at}")]
    Character {
        /// Where.
        at: usize,
    },
    /// More levels than [`super::limits::SELECTOR_DEPTH_MAX`].
    #[error("expressions nested too deeply at byte {at}")]
    Depth {
        /// Where.
        at: usize,
    },
    /// `ESCAPE` is not followed by one character, or the escape character by
    /// none that can be escaped.
    #[error("invalid LIKE pattern before byte {at}")]
    Escape {
        /// Where.
        at: usize,
    },
    /// Something else is expected.
    #[error("syntax error at byte {at}")]
    Syntax {
        /// Where.
        at: usize,
    },
    /// Longer than [`super::limits::SELECTOR_BYTES_MAX`], or of more parts than
    /// [`super::limits::SELECTOR_NODES_MAX`].
    #[error("the selector is too long")]
    TooLong,
    /// A string or name without an end.
    #[error("no end of what begins at byte {at}")]
    Unterminated {
        /// Where it begins.
        at: usize,
    },
}
