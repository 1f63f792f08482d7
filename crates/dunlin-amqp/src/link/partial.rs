//! A message whose transfers have not all come.

use alloc::vec::Vec;

use dunlin_amqp_codec::ReceiverSettleMode;

use crate::state::State;
use crate::tag::Tag;

/// What has come of a delivery.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(crate) id: u32,
    pub(crate) tag: Tag,
    pub(crate) format: u32,
    pub(crate) settled: bool,
    pub(crate) resume: bool,
    /// It is resumed and not known here: nothing of it is kept.
    pub(crate) is_ignored: bool,
    pub(crate) rcv_settle_mode: ReceiverSettleMode,
    pub(crate) state: Option<State>,
    pub(crate) bytes: Vec<u8>,
}
