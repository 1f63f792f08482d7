//! The future of what the application said of a delivery.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::error::SettleError;

/// What was said of a delivery is on its way: done when it was written, or, on
/// a link that is [`exactly_once`](crate::ReceiverBuilder::exactly_once), when
/// the sender has settled. It may be dropped.
#[derive(Debug)]
pub struct Settlement {
    answer: oneshot::Receiver<Result<(), SettleError>>,
}

impl Settlement {
    pub(crate) fn new() -> (oneshot::Sender<Result<(), SettleError>>, Self) {
        let (done, answer) = oneshot::channel();
        (done, Self { answer })
    }
}

impl Future for Settlement {
    type Output = Result<(), SettleError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.answer)
            .poll(context)
            .map(|answer| answer.unwrap_or(Err(SettleError::Ended)))
    }
}
