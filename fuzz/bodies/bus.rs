//! Any bytes as messages from another node: reading them does not panic, and what was
//! read is written as bytes that say the same. The includer provides `bus`.

use bytes::Bytes;
use dunlin_base::Instant;

use super::bus::{self, Addressed, Batch};

/// What the reader's clock says.
const NOW: Instant = Instant::from_micros(1_764_000_000_000_000);

fn write(addressed: &Addressed) -> Bytes {
    let Addressed { from, to, message } = addressed;
    let mut out = Vec::new();
    bus::begin(NOW, &mut out);
    bus::encode(*from, *to, message, &mut out).expect("what was read can be written");
    out.into()
}

/// One input.
pub(crate) fn run(data: &[u8]) {
    let Ok(batch) = Batch::open(Bytes::copy_from_slice(data), NOW) else {
        return;
    };
    for addressed in batch.flatten() {
        let bytes = write(&addressed);
        let mut batch = Batch::open(bytes.clone(), NOW).expect("a batch");
        let again = batch.next().expect("a message").expect("what was written");
        assert_eq!(write(&again), bytes);
        assert_eq!(format!("{again:?}"), format!("{addressed:?}"));
    }
}
