//! Renewal of tokens: a thread asks their source again before each one ends, and sets
//! the new one on the open connection.

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::{Arc, Weak};
use std::task::Wake;
use std::thread::{self, Thread};
use std::time::Instant;

use dunlin_amqp::codec::Value;

use crate::client::Client;
use crate::error::{RuntimeError, TokenError};
use crate::events::Events;
use crate::message::Message;
use crate::outcome::Outcome;
use crate::shared::Alive;
use crate::tokens::Tokens;

/// The node of a server that takes tokens (AMQP Claims-based Security 1.0).
const NODE: &str = "$cbs";

/// Time after which a source that failed is asked again, and a token set again of which
/// the server said nothing.
const RETRY: Duration = Duration::from_secs(10);

/// Time for the server to take a token.
const SET_TIME_OUT: Duration = Duration::from_secs(20);

/// Renews the token of a client until that ends, on a thread of its own.
pub(crate) fn start(
    tokens: Arc<Tokens>,
    client: &Client,
    due: Instant,
) -> Result<(), RuntimeError> {
    let (alive, events) = (client.downgrade(), client.events());
    let thread = thread::Builder::new().name("dunlin-token".into());
    let started = thread.spawn(move || run(&tokens, &alive, events, due));
    let started = started.map(drop);
    started.map_err(|error| RuntimeError::Thread(Arc::new(error)))
}

/// When what is to be done.
#[derive(Clone, Copy)]
struct Plan {
    /// When the source is asked.
    fetch: Instant,
    /// When the token in hand is set, or a new one.
    set: Instant,
}

impl Plan {
    /// There is a token; when to ask for the next one.
    const fn fetched(due: Instant) -> Self {
        Self {
            fetch: due,
            set: due,
        }
    }

    /// What the server said of the token, if it did in time.
    fn note<E>(&mut self, said: Option<&Result<(), E>>, now: Instant) {
        let again = self.fetch.min(now + RETRY);
        match said {
            Some(Ok(())) => {}
            // Another one may please it.
            Some(Err(_)) => *self = Self::fetched(again),
            None => self.set = again,
        }
    }
}

fn run(tokens: &Tokens, alive: &Weak<Alive>, mut events: Events, due: Instant) {
    let mut plan = Plan::fetched(due);
    loop {
        let ended = async { while events.next().await.is_some() {} };
        if wait(plan.set, ended).is_some() {
            return;
        }
        if plan.fetch <= Instant::now() {
            plan.fetch = match tokens.fetch() {
                Ok(due) => due,
                Err(error) => {
                    tracing::warn!(%error, "no new token");
                    Instant::now() + RETRY
                }
            };
        }
        plan.set = plan.fetch;
        let Some(alive) = alive.upgrade() else {
            return;
        };
        let client = Client::of(alive);
        // A connection that begins later has it from the start.
        if client.transport().is_none() {
            continue;
        }
        let token = tokens.current();
        let said = wait(Instant::now() + SET_TIME_OUT, client.set_token(&token));
        match &said {
            Some(Ok(())) => {}
            Some(Err(error)) => tracing::warn!(%error, "the server took no token"),
            None => tracing::warn!("the server said nothing of a token"),
        }
        plan.note(said.as_ref(), Instant::now());
    }
}

impl Client {
    /// Sets a token on the open connection, at the node `$cbs`: it prolongs the
    /// connection of its user, or says whose a connection without one is. A client
    /// with [`Builder::tokens`](crate::Builder::tokens) does that itself.
    ///
    /// # Errors
    /// The server has no such node, the token is not valid or of another user, the
    /// connection was lost.
    pub async fn set_token(&self, token: &str) -> Result<(), TokenError> {
        let sender = self.sender(NODE).attach().await?;
        let value = Value::String(token);
        let message = Message::value(&value).subject("set-token");
        let outcome = sender
            .send(message.property("token-type", "amqp:jwt"))
            .await?;
        sender.close().await;
        match outcome {
            Outcome::Accepted => Ok(()),
            other => Err(TokenError::Refused(other.to_string().into())),
        }
    }
}

/// Waits for a future on this thread, until then.
fn wait<F: Future>(until: Instant, future: F) -> Option<F::Output> {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Arc::new(Unpark(thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_which_nothing_is_said_is_set_again() {
        let now = Instant::now();
        let hour = Duration::from_secs(3600);
        let after = |fetch: Instant, said: Option<Result<(), ()>>| {
            let mut plan = Plan::fetched(fetch);
            plan.note(said.as_ref(), now);
            (plan.fetch - now, plan.set - now)
        };
        assert_eq!(after(now + hour, Some(Ok(()))), (hour, hour));
        assert_eq!(after(now + hour, Some(Err(()))), (RETRY, RETRY));
        // The token in hand is good; another one is not asked for.
        assert_eq!(after(now + hour, None), (hour, RETRY));
        let second = Duration::from_secs(1);
        assert_eq!(after(now + second, None), (second, second));
    }
}
