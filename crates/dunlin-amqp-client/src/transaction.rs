//! Transactions: messages that are sent and taken over together or not at all.

use core::convert::Infallible;
use core::future::poll_fn;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use bytes::Bytes;
use dunlin_amqp::Demand;
use tokio::sync::mpsc;

use crate::command::{Posted, Reply};
use crate::delivery::Delivery;
use crate::error::{SendError, TransactionError};
use crate::message::Message;
use crate::outcome::Outcome;
use crate::sender::{Sender, Sending};
use crate::settlement::Settlement;

/// A link to the coordinator of transactions. Transactions that are open when
/// the connection breaks are rolled back.
///
/// # Examples
/// ```no_run
/// # use dunlin_amqp_client::{Client, Sender};
/// # async fn run(client: Client, a: Sender, b: Sender) -> Result<(), Box<dyn std::error::Error>> {
/// let controller = client.controller().await?;
/// let transaction = controller.declare().await?;
/// let first = transaction.send(&a, "both").await?;
/// let second = transaction.send(&b, "or none").await?;
/// first.await?;
/// second.await?;
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Controller {
    link: Sender,
}

impl Controller {
    pub(crate) fn new(link: Sender) -> Self {
        Self { link }
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// The coordinator refuses, or the link has ended.
    pub async fn declare(&self) -> Result<Transaction<'_>, TransactionError> {
        match self.ask(&Demand::Declare { global_id: None }).await? {
            Reply::Declared(id) => {
                let (waits, left) = mpsc::channel(1);
                Ok(Transaction {
                    controller: self,
                    id,
                    is_over: Arc::default(),
                    is_lost: Arc::default(),
                    waits,
                    left,
                })
            }
            Reply::Outcome(Outcome::Rejected(why)) => Err(TransactionError::Refused(why)),
            Reply::Outcome(_) => Err(TransactionError::Answer),
        }
    }

    async fn ask(&self, demand: &Demand) -> Result<Reply, SendError> {
        let bytes = demand.encode().map_err(|_| SendError::Encoding)?;
        let mut sending = self.link.send_in(&Message::raw(bytes), None).await?;
        poll_fn(|context| sending.poll_reply(context)).await
    }
}

/// A transaction that was begun. It is rolled back when its controller is
/// dropped, or [`Transaction::rollback`] says so; dropping it leaves it open.
#[derive(Debug)]
#[must_use = "stays open until it is ended"]
pub struct Transaction<'c> {
    controller: &'c Controller,
    id: Bytes,
    is_over: Arc<AtomicBool>,
    /// A message never left.
    is_lost: Arc<AtomicBool>,
    /// Each message has one of these until it has left.
    waits: mpsc::Sender<Infallible>,
    /// Ends when all have left.
    left: mpsc::Receiver<Infallible>,
}

impl Transaction<'_> {
    /// The identifier that the coordinator gave.
    #[must_use]
    pub fn id(&self) -> &[u8] {
        &self.id
    }

    /// Sends a message that counts if the transaction is committed. Its outcome
    /// comes before that.
    ///
    /// # Errors
    /// As [`Sender::start_send`]; the outcome may be [`SendError::RolledBack`].
    pub async fn send(
        &self,
        sender: &Sender,
        message: impl Into<Message>,
    ) -> Result<Sending, SendError> {
        let posted = Posted {
            id: self.id.clone(),
            is_over: Arc::clone(&self.is_over),
            waits: Some(self.waits.clone()),
            is_lost: Arc::clone(&self.is_lost),
        };
        sender.send_in(&message.into(), Some(posted)).await
    }

    /// Takes over a message if the transaction is committed.
    pub fn accept(&self, delivery: &Delivery) -> Settlement {
        delivery.accept_in(&self.id)
    }

    /// Has all of it count. Waits until its messages have left, for which their
    /// senders need credit. If one of them never leaves, as it is too large or its link has
    /// ended, the transaction is rolled back.
    ///
    /// # Errors
    /// A message never left: [`SendError::RolledBack`]. The coordinator refuses, and has rolled it back, or is not heard: then it
    /// is not known which.
    pub async fn commit(mut self) -> Result<(), TransactionError> {
        let (none, _) = mpsc::channel(1);
        drop(core::mem::replace(&mut self.waits, none));
        // None comes: it ends with the last that could send one.
        let _ = self.left.recv().await;
        if self.is_lost.load(Ordering::Acquire) {
            self.discharge(true).await?;
            return Err(SendError::RolledBack.into());
        }
        self.discharge(false).await
    }

    /// Has none of it count; messages that have not left do not leave.
    ///
    /// # Errors
    /// The coordinator refuses, or is not heard.
    pub async fn rollback(self) -> Result<(), TransactionError> {
        self.is_over.store(true, Ordering::Release);
        self.discharge(true).await
    }

    async fn discharge(self, fail: bool) -> Result<(), TransactionError> {
        let txn_id = self.id.clone();
        let demand = Demand::Discharge { txn_id, fail };
        match self.controller.ask(&demand).await? {
            Reply::Outcome(Outcome::Rejected(why)) => Err(TransactionError::Refused(why)),
            Reply::Outcome(outcome) if outcome.is_accepted() => Ok(()),
            Reply::Outcome(_) | Reply::Declared(_) => Err(TransactionError::Answer),
        }
    }
}
