//! What is live, read from the copy while others write, in groups that become records.
//! Knows no server.

use dunlin_store::StoreOp;
use dunlin_store::codec::encode_ops;
use dunlin_store_redb::Snapshot;
use tokio::sync::mpsc::Sender;

use crate::chain::Place;
use crate::limits::LIVE_BYTES;

/// Operations that are live as of a place.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Everything up to here is in what all chunks say.
    pub(crate) base: Place,
    pub(crate) first: bool,
    pub(crate) last: bool,
    /// The body of its record.
    pub(crate) body: Vec<u8>,
}

/// Reads `snapshot` in a thread of its own, which ends when there is nothing more to
/// read, or no receiver.
pub(crate) fn start(snapshot: Snapshot, base: Place, to: Sender<Chunk>) {
    let builder = std::thread::Builder::new().name("store-live".to_owned());
    let run = move || {
        let mut out = Gather {
            base,
            to,
            ops: Vec::new(),
            bytes: 0,
            first: true,
        };
        let read = snapshot.read(&mut |op| out.push(op));
        match read {
            // The file lost something, so the log has to keep it.
            Ok(report) if !report.damage.is_empty() => {
                tracing::error!("the copy is damaged: the log is not made shorter");
            }
            Ok(_) => out.send(true),
            Err(error) => tracing::debug!("what is live was not read to its end: {error}"),
        }
    };
    if let Err(error) = builder.spawn(run) {
        tracing::warn!("no thread to make the log shorter: {error}");
    }
}

struct Gather {
    base: Place,
    to: Sender<Chunk>,
    ops: Vec<StoreOp>,
    bytes: usize,
    first: bool,
}

impl Gather {
    fn push(&mut self, op: StoreOp) -> std::io::Result<()> {
        self.bytes += op.bytes();
        self.ops.push(op);
        if self.bytes >= LIVE_BYTES {
            self.send(false);
        }
        if self.to.is_closed() {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    }

    fn send(&mut self, last: bool) {
        let mut body = Vec::new();
        encode_ops(&self.ops, &mut body);
        self.ops.clear();
        self.bytes = 0;
        let chunk = Chunk {
            base: self.base,
            first: core::mem::take(&mut self.first),
            last,
            body,
        };
        // Without a receiver, nothing wants it.
        let _ = self.to.blocking_send(chunk);
    }
}
