//! The library against a server that is an engine in a thread: real TCP
//! connections on loopback. Conversations with the broker over every transport
//! are among the broker's tests.

mod connect;
mod links;
mod messages;
mod redirecting;
mod resuming;
mod server;
mod transactions;

use core::future::Future;
use core::time::Duration;

/// Longest that anything here may take; a loaded machine must not fail a test,
/// a hang must.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a conversation, but not for ever.
fn run<T>(conversation: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE, conversation)
            .await
            .expect("in time")
    })
}
