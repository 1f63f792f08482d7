//! What the background thread is asked to do for a client.

use core::time::Duration;

use dunlin_mqtt::codec::ReasonCode;
use tokio::sync::oneshot;

use crate::work::{Migration, QueuedPublish, Request};

/// What the background thread is asked to do for a client. Bounded by what may
/// be in flight: publishes and requests need a permit, the others happen once.
pub(crate) enum Command {
    /// A message goes out.
    Publish(QueuedPublish),
    /// A subscription is made or ended.
    Request(Request),
    /// Messages were taken or acknowledged: runs the client.
    Run,
    /// The client ends.
    Disconnect {
        reason: ReasonCode,
        expiry: Option<Duration>,
        done: oneshot::Sender<()>,
    },
    /// All handles of the client are gone.
    Release,
    /// The connection moves to another local address.
    Migrate(Migration),
}
