//! What one node says to another, as bytes: which shards it has at the moment, and batches
//! of what they say.
//!
//! ```text
//! up    = 1 (1), run (8), home's node (2), home's run (8), shards (2)
//! down  = 2 (1), run (8)
//! batch = 3 (1), run of the receiver (8), a batch of bus messages
//! relay = 4 (1), run of the receiver (8), datagrams of clients (`relay`)
//! about = 5 (1), run of the receiver (8), what is said about tickets (`tickets`)
//! ```
//!
//! Numbers are little endian. A *run* is one time that a node serves clients, from when its
//! shards begin to when they end; its number is random. A node whose home is itself has
//! what is durable.

use bytes::Bytes;

const UP: u8 = 1;
const DOWN: u8 = 2;
const BATCH: u8 = 3;
const RELAY: u8 = 4;
const TICKETS: u8 = 5;

/// Bytes before a batch of bus messages.
pub(super) const BATCH_HEAD: usize = 9;

/// One time that a node serves clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Which one.
    pub(crate) number: u64,
    /// Where what is durable is.
    pub(super) home: Home,
    /// How many shards there are.
    pub(super) shards: u16,
}

impl Run {
    /// Whether the node that serves it is the home.
    pub(super) const fn is_home_at(&self, node: u16) -> bool {
        self.home.node == node && self.home.run == self.number
    }
}

/// The run of the node that has what is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(super) node: u16,
    pub(super) run: u64,
}

/// One message of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// Its shards are there.
    Up(Run),
    /// The shards of this run are gone.
    Down(u64),
    /// What they say to those of a run of the receiver.
    Batch { run: u64, bytes: Bytes },
    /// Datagrams of clients for those of a run of the receiver.
    Relay { run: u64, bytes: Bytes },
    /// What is said about session tickets.
    Tickets { run: u64, bytes: Bytes },
}

impl Frame {
    /// As bytes; of a batch, [`begin_batch`] writes what is before it, and of the others
    /// that are written in parts what is like it.
    pub(super) fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Self::Up(run) => {
                out.push(UP);
                out.extend(run.number.to_le_bytes());
                out.extend(run.home.node.to_le_bytes());
                out.extend(run.home.run.to_le_bytes());
                out.extend(run.shards.to_le_bytes());
            }
            Self::Down(run) => {
                out.push(DOWN);
                out.extend(run.to_le_bytes());
            }
            Self::Batch { run, bytes } => {
                begin_batch(*run, &mut out);
                out.extend_from_slice(bytes);
            }
            Self::Relay { run, bytes } => {
                begin_relay(*run, &mut out);
                out.extend_from_slice(bytes);
            }
            Self::Tickets { run, bytes } => {
                begin(TICKETS, *run, &mut out);
                out.extend_from_slice(bytes);
            }
        }
        out.into()
    }

    /// Reads one; `None`: it is none.
    pub(super) fn decode(bytes: &Bytes) -> Option<Self> {
        let (kind, mut rest) = bytes.split_first()?;
        let frame = match *kind {
            UP => Self::Up(Run {
                number: u64::from_le_bytes(take(&mut rest)?),
                home: Home {
                    node: u16::from_le_bytes(take(&mut rest)?),
                    run: u64::from_le_bytes(take(&mut rest)?),
                },
                shards: u16::from_le_bytes(take(&mut rest)?),
            }),
            DOWN => Self::Down(u64::from_le_bytes(take(&mut rest)?)),
            kind @ (BATCH | RELAY | TICKETS) => {
                let run = u64::from_le_bytes(take(&mut rest)?);
                let bytes = bytes.slice(BATCH_HEAD..);
                return Some(match kind {
                    BATCH => Self::Batch { run, bytes },
                    RELAY => Self::Relay { run, bytes },
                    _ => Self::Tickets { run, bytes },
                });
            }
            _ => return None,
        };
        rest.is_empty().then_some(frame)
    }
}

/// Begins a batch for a run of the receiver.
pub(super) fn begin_batch(run: u64, out: &mut Vec<u8>) {
    begin(BATCH, run, out);
}

/// Begins datagrams for a run of the receiver.
pub(super) fn begin_relay(run: u64, out: &mut Vec<u8>) {
    begin(RELAY, run, out);
}

fn begin(kind: u8, run: u64, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend(run.to_le_bytes());
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Run = Run {
        number: 0x0102_0304_0506_0708,
        home: Home { node: 9, run: 10 },
        shards: 4,
    };

    #[test]
    fn frames_are_read_as_they_are_written() {
        let batch = Frame::Batch {
            run: 7,
            bytes: Bytes::from_static(b"batch"),
        };
        let relay = Frame::Relay {
            run: 7,
            bytes: Bytes::from_static(b"relay"),
        };
        let tickets = Frame::Tickets {
            run: 7,
            bytes: Bytes::from_static(b"tickets"),
        };
        for frame in [Frame::Up(RUN), Frame::Down(3), batch, relay, tickets] {
            assert_eq!(Frame::decode(&frame.encode()), Some(frame));
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let whole = Frame::Up(RUN).encode();
        for cut in 0..whole.len() {
            assert_eq!(Frame::decode(&whole.slice(..cut)), None, "{cut}");
        }
        let mut longer = whole.to_vec();
        longer.push(0);
        assert_eq!(Frame::decode(&longer.into()), None);
        assert_eq!(Frame::decode(&Bytes::from_static(&[9, 0])), None);
        assert_eq!(Frame::decode(&Bytes::from_static(&[BATCH, 0])), None);
    }
}
