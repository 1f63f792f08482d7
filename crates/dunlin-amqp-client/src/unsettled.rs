//! What a receiver has not settled, as the application keeps it over the end of its
//! process.

use bytes::Bytes;
use dunlin_amqp::{State, Tag};
use tokio::sync::oneshot;

use crate::error::{LinkError, SettleError};
use crate::limits::HELD_MAX;
use crate::outcome::Outcome;
use crate::settlement::Settlement;

/// A delivery that a receiver has and has not settled:
/// [`Receiver::unsettled`](crate::Receiver::unsettled) gives it out, and
/// [`ReceiverBuilder::resume`](crate::ReceiverBuilder::resume) takes it in, in another
/// process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsettled {
    /// The delivery-tag, at most 32 bytes.
    pub tag: Bytes,
    /// What the application has said of the message; `None`: nothing yet.
    pub outcome: Option<Outcome>,
}

/// The same, on its way to the link.
pub(crate) struct Restored {
    pub(crate) tag: Tag,
    pub(crate) said: Option<(State, oneshot::Sender<Result<(), SettleError>>)>,
}

/// What goes to the link, and the futures that the application has of it.
pub(crate) type Prepared = (Vec<Restored>, Vec<(Bytes, Settlement)>);

/// Checks what the application gives, and makes futures of what it has said.
pub(crate) fn prepare(all: Vec<Unsettled>) -> Result<Prepared, LinkError> {
    if all.len() > HELD_MAX {
        return Err(LinkError::Unsettled("too many deliveries"));
    }
    let (mut restored, mut settlements) = (Vec::with_capacity(all.len()), Vec::new());
    for Unsettled {
        tag: bytes,
        outcome,
    } in all
    {
        let tag = Tag::new(&bytes).ok_or(LinkError::Unsettled("a tag with over 32 bytes"))?;
        let said = outcome.map(|outcome| {
            let (done, settlement) = Settlement::new();
            settlements.push((bytes, settlement));
            (outcome.state(), done)
        });
        restored.push(Restored { tag, said });
    }
    let mut tags: Vec<Tag> = restored.iter().map(|it| it.tag).collect();
    tags.sort_unstable();
    let len = tags.len();
    tags.dedup();
    match tags.len() == len {
        true => Ok((restored, settlements)),
        false => Err(LinkError::Unsettled("a tag that comes twice")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(tags: &[&'static [u8]]) -> Vec<Unsettled> {
        let one = |tag: &&'static [u8]| Unsettled {
            tag: Bytes::from_static(tag),
            outcome: Some(Outcome::Accepted),
        };
        tags.iter().map(one).collect()
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let (restored, settlements) = prepare(tags(&[b"", b"a", &[7; 32]])).expect("valid");
        assert_eq!((restored.len(), settlements.len()), (3, 3));
        for wrong in [tags(&[&[7; 33]]), tags(&[b"a", b"b", b"a"])] {
            let refused = prepare(wrong);
            assert!(matches!(refused, Err(LinkError::Unsettled(_))));
        }
        let many = |count: usize| {
            let one = |at: usize| Unsettled {
                tag: Bytes::from(at.to_string()),
                outcome: None,
            };
            prepare((0..count).map(one).collect())
        };
        assert!(many(HELD_MAX).is_ok() && many(HELD_MAX + 1).is_err());
    }
}
