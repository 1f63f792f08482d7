//! A copy of the store as the body of an answer: a thread writes it, as fast as the
//! client reads.

use core::sync::atomic::{AtomicBool, Ordering};
use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

use crate::control::audit::Who;
use crate::control::plane::Plane;
use crate::control::values::Failure;

/// Bytes of a piece.
const PIECE_BYTES: usize = 64 << 10;

/// Pieces that wait for a client.
const PIECES_MAX: usize = 4;

/// Begins a copy on this thread, tells `begun` where it comes or why there is none, and
/// returns when it is over.
pub(super) fn copy(
    plane: &Plane,
    who: &Who,
    begun: oneshot::Sender<Result<Receiver<Bytes>, Failure>>,
    stopping: &Arc<AtomicBool>,
) {
    let mut begun = Some(begun);
    let mut tell = |what| {
        if let Some(begun) = begun.take() {
            // Who asked may be gone.
            let _ = begun.send(what);
        }
    };
    let open = || {
        let (to, pieces) = channel(PIECES_MAX);
        tell(Ok(pieces));
        Pieces {
            to,
            piece: Vec::new(),
        }
    };
    let copied = plane.copy(who, open, || stopping.load(Ordering::Relaxed));
    match copied {
        Err(failure) => tell(Err(failure)),
        Ok(Err(error)) => tracing::debug!(%error, "a copy of the store was not taken to its end"),
        Ok(Ok(())) => {}
    }
}

/// Gathers what is written to pieces, and waits where the client is slow.
struct Pieces {
    to: Sender<Bytes>,
    piece: Vec<u8>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = core::mem::take(&mut self.piece);
        if piece.is_empty() {
            return Ok(());
        }
        let sent = self.to.blocking_send(piece.into());
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
