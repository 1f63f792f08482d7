//! What stands between a payload and the process: a panic while rows are made of a message
//! is a refusal of that message, and one that ended the process twice is not tried again.

use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

use xxhash_rust::xxh3::Xxh3;

use crate::input::Input;
use crate::marks::{Mark, Worker};
use crate::refusal::{Cause, Refusal};
use crate::target::Encode;

/// Makes rows of messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guard(Option<Worker>);

impl Guard {
    /// With what remembers messages that ended the process, if there is something.
    pub(crate) const fn new(marks: Option<Worker>) -> Self {
        Self(marks)
    }

    /// Appends the rows of a message; gives how many there are, or why there are none.
    pub(crate) fn encode(
        &self,
        encoder: &dyn Encode,
        input: &Input<'_>,
        out: &mut Vec<u8>,
    ) -> (usize, Option<Refusal>) {
        let before = out.len();
        let rows = match &self.0 {
            Some(marks) if encoder.runs_programs() => marks
                .during(mark(input), || caught(encoder, input, out))
                .unwrap_or_else(|| {
                    let why = "the sink ended twice while it worked on it";
                    Err(Refusal::new(Cause::Fault, why))
                }),
            _ => caught(encoder, input, out),
        };
        match rows {
            Ok(rows) => (rows, None),
            Err(refusal) => {
                out.truncate(before);
                (0, Some(refusal))
            }
        }
    }
}

fn caught(encoder: &dyn Encode, input: &Input<'_>, out: &mut Vec<u8>) -> Result<usize, Refusal> {
    // What an encoder has appended is cut off; it has no other state.
    let encoded = catch_unwind(AssertUnwindSafe(|| encoder.encode(input, out)));
    encoded.unwrap_or_else(|_| {
        let why = "its evaluation panicked; what standard error says about it is a fault to report";
        Err(Refusal::new(Cause::Fault, why))
    })
}

/// Stands for a message: the same message that comes again has the same.
fn mark(input: &Input<'_>) -> Mark {
    let mut hash = Xxh3::new();
    hash.update(&(input.topic.len() as u64).to_le_bytes());
    hash.update(input.topic.as_bytes());
    hash.update(input.payload);
    hash.digest128()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Panics;

    impl Encode for Panics {
        fn encode(&self, input: &Input<'_>, out: &mut Vec<u8>) -> Result<usize, Refusal> {
            out.extend_from_slice(b"half");
            assert!(!input.payload.is_empty(), "a payload");
            Ok(1)
        }
    }

    #[test]
    fn a_panic_is_a_refusal() {
        let input = |payload| Input {
            topic: "t",
            payload,
            time: 0,
            qos: 1,
            retain: false,
            properties: None,
        };
        let mut out = b"row".to_vec();
        let (rows, refused) = Guard::default().encode(&Panics, &input(b""), &mut out);
        assert_eq!((rows, &out[..]), (0, &b"row"[..]));
        assert_eq!(refused.map(|it| it.cause), Some(Cause::Fault));
        let (rows, refused) = Guard::default().encode(&Panics, &input(b"x"), &mut out);
        assert_eq!((rows, refused), (1, None));
        assert_ne!(mark(&input(b"a")), mark(&input(b"b")));
    }
}
