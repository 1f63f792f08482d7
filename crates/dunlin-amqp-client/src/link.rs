//! What senders and receivers have alike: options, the answer to an attach, and
//! the end of a link.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::command::{Answer, Command, LinkKey, Status};
use crate::error::LinkError;
use crate::shared::{Alive, Shared};
use crate::terminus::{Attached, LinkSpec};

/// Methods of both builders that write to their `spec`, for use within an
/// `impl`.
macro_rules! spec_methods {
    () => {
        /// Sets the name of the link, unique among the links of one direction of a
        /// container id. A durable subscription is known by both. Default: a random one.
        pub fn name(mut self, name: impl AsRef<str>) -> Self {
            self.spec.name = dunlin_base::Text::from(name.as_ref());
            self
        }

        /// What of the server's end of the link survives a failure. A source that
        /// does is a durable subscription: dropping the receiver leaves it, closing it
        /// ends it.
        pub fn durable(mut self, durable: dunlin_amqp::codec::TerminusDurability) -> Self {
            self.spec.durable = durable;
            self
        }

        /// When the server may forget its end of the link: so long after this.
        pub fn expiry(
            mut self,
            policy: dunlin_amqp::codec::TerminusExpiryPolicy,
            timeout: core::time::Duration,
        ) -> Self {
            self.spec.expiry = policy;
            self.spec.timeout = u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX);
            self
        }

        /// Asks for a capability of the node, such as `queue`, `topic`, `shared`.
        pub fn capability(mut self, name: impl AsRef<str>) -> Self {
            let name = dunlin_base::Text::from(name.as_ref());
            self.spec.capabilities.push(name);
            self
        }
    };
}
pub(crate) use spec_methods;

/// The server's answer to a link that was asked for.
#[derive(Debug)]
#[must_use = "tells whether the server accepts"]
pub struct Attaching {
    answer: oneshot::Receiver<Result<Attached, LinkError>>,
}

impl Attaching {
    pub(crate) fn new() -> (Answer, Self) {
        let (attached, answer) = oneshot::channel();
        (attached, Self { answer })
    }
}

impl Future for Attaching {
    type Output = Result<Attached, LinkError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.answer)
            .poll(context)
            .map(|answer| answer.unwrap_or(Err(LinkError::Closed)))
    }
}

/// A link of the application: dropping it detaches it, or closes it if nothing
/// of it is to outlive it.
pub(crate) struct Handle {
    pub(crate) alive: Arc<Alive>,
    pub(crate) key: LinkKey,
    /// Dropping it closes the link.
    closes: bool,
}

impl Handle {
    pub(crate) fn new(alive: Arc<Alive>, spec: &LinkSpec) -> Self {
        Self {
            key: alive.0.next_link(),
            alive,
            closes: !spec.is_lasting(),
        }
    }

    pub(crate) fn push(&self, command: Command) {
        self.alive.0.push(command);
    }

    pub(crate) fn why_ended(&self, status: &Status) -> LinkError {
        why_ended(status, &self.alive.0)
    }

    /// Closes the link, and waits for that.
    pub(crate) async fn close(self) {
        let (done, closed) = oneshot::channel();
        self.detach(true, Some(done));
        let _ = closed.await;
    }

    fn detach(&self, closed: bool, done: Option<oneshot::Sender<()>>) {
        self.push(Command::Detach {
            link: self.key,
            closed,
            done,
        });
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.detach(self.closes, None);
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt(f)
    }
}

/// Why a link has ended.
pub(crate) fn why_ended(status: &Status, client: &Shared) -> LinkError {
    let why = status.ended();
    why.unwrap_or_else(|| LinkError::Client(client.closed()))
}
