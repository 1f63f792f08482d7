//! What the lines of `dunlin sub` need beside the message.

use super::time::WallTime;

/// What a line says about one message besides the message itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context {
    /// When it arrived.
    pub(super) now: WallTime,
    /// JSON over several lines.
    pub(super) pretty: bool,
}
