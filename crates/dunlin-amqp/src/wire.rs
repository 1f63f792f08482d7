//! What sessions and links write to: frames, events, and the counts that all
//! sessions of a connection share.

use alloc::collections::VecDeque;

use crate::event::Event;
use crate::limits::Limits;
use crate::output::Output;

/// The connection, as a session sees it.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) out: Output,
    /// Events that the driver has not taken. One frame causes at most one for
    /// each link of the connection.
    pub(crate) events: VecDeque<Event<'static>>,
    pub(crate) limits: Limits,
    /// Bytes of messages that have not come whole.
    pub(crate) partial_bytes: usize,
    serial: u32,
}

impl Wire {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            out: Output::default(),
            events: VecDeque::new(),
            limits,
            partial_bytes: 0,
            serial: 0,
        }
    }

    /// A number for the next session or link.
    pub(crate) fn next_serial(&mut self) -> u32 {
        self.serial = self.serial.wrapping_add(1);
        self.serial
    }
}
