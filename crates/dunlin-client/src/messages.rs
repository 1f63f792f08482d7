//! The application's end of the received messages.

use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;

use futures_core::Stream;

use crate::message::Message;
use crate::shared::Shared;

/// The messages that a client receives, in the order of their arrival. Also a
/// [`Stream`].
///
/// When the queue is full ([`Builder::receive_queue`](crate::Builder::receive_queue)),
/// no more is read from the connection until messages are taken: look often
/// enough. Dropping it lets the client throw away and acknowledge what it receives
/// later.
///
/// # Examples
/// ```no_run
/// # async fn run(mut messages: dunlin_client::Messages) {
/// while let Some(message) = messages.next().await {
///     println!("{} {:?}", message.topic, message.payload);
/// }
/// # }
/// ```
#[must_use = "received messages pile up here"]
pub struct Messages {
    pub(crate) shared: Arc<Shared>,
}

impl Messages {
    /// The next message; `None` when the client is closed and all messages
    /// are taken. Taking a message acknowledges it, unless the client
    /// acknowledges by hand.
    ///
    /// # Cancel safety
    /// No message is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Message> {
        poll_fn(|cx| self.shared.poll_message(cx)).await
    }

    /// The next message if there is one already.
    pub fn try_next(&mut self) -> Option<Message> {
        let cx = Context::from_waker(Waker::noop());
        match self.shared.poll_message(&cx) {
            Poll::Ready(message) => message,
            Poll::Pending => None,
        }
    }
}

impl Stream for Messages {
    type Item = Message;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        self.shared.poll_message(cx)
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        if self.shared.inbox.abandon() {
            self.shared.notify();
        }
        self.shared.release();
    }
}

dunlin_base::opaque_debug!(Messages);
