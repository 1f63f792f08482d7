//! Receivers: how one is described, and where messages arrive.

use core::fmt;
use core::sync::atomic::Ordering;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_amqp::codec::{
    DistributionMode, List, ReceiverSettleMode, Role, SenderSettleMode, Value, capability,
};
use dunlin_base::Text;
use dunlin_dial::random_u64;
use tokio::sync::{mpsc, oneshot};

use crate::command::{Command, NewReceiver, Received, ReceiverShared};
use crate::delivery::Delivery;
use crate::error::LinkError;
use crate::limits::{CREDIT, CREDIT_MAX, MESSAGE_BYTES_MAX};
use crate::link::{Attaching, Handle, spec_methods};
use crate::settlement::Settlement;
use crate::shared::Alive;
use crate::terminus::{Attached, Filter, LinkSpec, Node};
use crate::unsettled::{self, Unsettled};

/// Numeric descriptors of filters, as Apache registered them.
const NO_LOCAL: u64 = 0x0000_468c_0000_0003;
const SELECTOR: u64 = 0x0000_468c_0000_0004;

/// Describes a [`Receiver`].
#[must_use = "does nothing until it is attached"]
pub struct ReceiverBuilder {
    alive: Arc<Alive>,
    spec: LinkSpec,
    credit: u32,
    accepts: bool,
    unsettled: Vec<Unsettled>,
}

impl ReceiverBuilder {
    pub(crate) fn new(alive: &Arc<Alive>, node: Node) -> Self {
        let name = Text::from(format!("r-{:016x}", random_u64()));
        let mut spec = LinkSpec::new(name, Role::Receiver, node);
        spec.message_bytes_max = Some(MESSAGE_BYTES_MAX);
        Self {
            alive: Arc::clone(alive),
            spec,
            credit: CREDIT,
            accepts: false,
            unsettled: Vec::new(),
        }
    }

    spec_methods!();

    /// Asks for settled messages: at most once.
    pub fn settled(mut self) -> Self {
        self.spec.snd_settle_mode = SenderSettleMode::Settled;
        self
    }

    /// Asks for unsettled messages, which the application settles. Default: as
    /// the server chooses.
    pub fn unsettled(mut self) -> Self {
        self.spec.snd_settle_mode = SenderSettleMode::Unsettled;
        self
    }

    /// This end settles after the server has: exactly once, also over
    /// reconnections, where the server keeps the state of a link.
    pub fn exactly_once(mut self) -> Self {
        self.spec.snd_settle_mode = SenderSettleMode::Unsettled;
        self.spec.rcv_settle_mode = ReceiverSettleMode::Second;
        self
    }

    /// Goes on with what an earlier process had and had not settled, on a link of the
    /// same name and container id. With [`ReceiverBuilder::exactly_once`] and a terminus
    /// that stays that is exactly once over the end of processes, too: the application
    /// keeps tag and outcome together with the effect of the message, and until
    /// [`Settlement`] says that the server has settled.
    ///
    /// What has an outcome is settled with that, which [`Receiver::resumed`] tells; its
    /// message does not come again. A message without outcome does, with its tag, as
    /// [`Delivery::is_resumed`], unless the server has forgotten it:
    /// [`Receiver::unsettled`] does not have it then, once the link is attached.
    /// [`Outcome::Settled`](crate::Outcome::Settled) counts as accepted.
    ///
    /// # Examples
    /// ```no_run
    /// # use core::time::Duration;
    /// # use dunlin_amqp_client::{
    /// #     Client, LinkError, Outcome, TerminusDurability, TerminusExpiryPolicy, Unsettled,
    /// # };
    /// # async fn run(client: Client, kept: Vec<Unsettled>) -> Result<(), LinkError> {
    /// let receiver = client
    ///     .receiver("/queues/orders")
    ///     .name("orders")
    ///     .exactly_once()
    ///     .durable(TerminusDurability::UnsettledState)
    ///     .expiry(TerminusExpiryPolicy::Never, Duration::ZERO)
    ///     .resume(kept);
    /// let mut receiver = receiver.attach().await?;
    /// for (tag, settled) in receiver.resumed() {
    ///     // From here on nothing has to be kept of it.
    ///     println!("{tag:?}: {:?}", settled.await);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn resume(mut self, unsettled: impl IntoIterator<Item = Unsettled>) -> Self {
        self.unsettled.extend(unsettled);
        self
    }

    /// Accepts each message when it is taken out of the [`Receiver`], instead of
    /// when the application says so.
    pub fn auto_accept(mut self) -> Self {
        self.accepts = true;
        self
    }

    /// How many messages may wait for the application or be on their way, 1 to
    /// 4,096; when half of them are taken, the server may send more. Default
    /// 256. There is no further credit while more than 16 MiB wait, or more
    /// than 4,096 that were taken are not settled.
    pub fn credit(mut self, messages: u32) -> Self {
        self.credit = messages.clamp(1, CREDIT_MAX);
        self
    }

    /// Largest message that is received; a larger one ends the link. Default
    /// 1 MiB.
    pub fn max_message_size(mut self, bytes: u64) -> Self {
        self.spec.message_bytes_max = Some(bytes);
        self
    }

    /// Messages stay in the node for others.
    pub fn browse(mut self) -> Self {
        self.spec.distribution = Some(DistributionMode::Copy);
        self
    }

    /// Only messages that this selector of JMS chooses.
    pub fn selector(self, selector: impl AsRef<str>) -> Self {
        let name = capability::SELECTOR_FILTER.as_str();
        self.filter(name, SELECTOR, &Value::String(selector.as_ref()))
    }

    /// No messages that this container id sent.
    pub fn no_local(self) -> Self {
        let name = capability::NO_LOCAL_FILTER.as_str();
        self.filter(name, NO_LOCAL, &Value::List(List::new(&[])))
    }

    /// Adds a filter: its name, the numeric descriptor of its type, its value.
    /// [`Attached::filters`] says which are in force.
    pub fn filter(mut self, name: impl AsRef<str>, descriptor: u64, value: &Value<'_>) -> Self {
        self.spec.filters.push(Filter {
            name: Text::from(name.as_ref()),
            descriptor,
            // One that cannot be encoded is refused when the link is attached.
            value: value.to_vec().map_or_else(|_| Bytes::new(), Bytes::from),
        });
        self
    }

    /// Attaches, and waits for the server's answer.
    ///
    /// # Errors
    /// The server refuses, or the client was closed.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the link.
    pub async fn attach(self) -> Result<Receiver, LinkError> {
        let (receiver, attaching) = self.start()?;
        attaching.await?;
        Ok(receiver)
    }

    /// Attaches and gives credit without waiting.
    ///
    /// # Errors
    /// [`LinkError::Unsettled`] where [`ReceiverBuilder::resume`] was given what cannot
    /// be; later what the future says.
    pub fn start(self) -> Result<(Receiver, Attaching), LinkError> {
        let (restored, resumed) = unsettled::prepare(self.unsettled)?;
        let shared = Arc::new(ReceiverShared::default());
        // What is in it is bounded by the credit.
        let (inbox, received) = mpsc::unbounded_channel();
        let (attached, attaching) = Attaching::new();
        let link = Handle::new(self.alive, &self.spec);
        let new = NewReceiver {
            spec: self.spec,
            credit: self.credit,
            shared: Arc::clone(&shared),
            inbox,
            restored,
            attached,
        };
        link.push(Command::Receiver(link.key, Box::new(new)));
        let receiver = Receiver {
            link,
            shared,
            received,
            notify_after: u64::from((self.credit / 2).max(1)),
            accepts: self.accepts,
            resumed,
        };
        Ok((receiver, attaching))
    }
}

impl fmt::Debug for ReceiverBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spec.fmt(f)
    }
}

/// A link on which this side receives. It is attached again by itself when the
/// connection comes back. Dropping it ends it, or leaves a durable subscription.
pub struct Receiver {
    link: Handle,
    shared: Arc<ReceiverShared>,
    received: mpsc::UnboundedReceiver<Received>,
    /// Messages taken after which the credit may be due.
    notify_after: u64,
    accepts: bool,
    /// What becomes of deliveries of an earlier process.
    resumed: Vec<(Bytes, Settlement)>,
}

impl Receiver {
    /// The next message.
    ///
    /// # Errors
    /// The link or the client has ended.
    ///
    /// # Cancel safety
    /// No message is lost when the future is dropped.
    ///
    /// # Examples
    /// ```no_run
    /// # use dunlin_amqp_client::{Client, LinkError};
    /// # async fn run(client: Client) -> Result<(), LinkError> {
    /// let mut receiver = client.receiver("plant/+/temperature").attach().await?;
    /// loop {
    ///     let delivery = receiver.recv().await?;
    ///     println!("{:?}", delivery.payload());
    ///     delivery.accept();
    /// }
    /// # }
    /// ```
    pub async fn recv(&mut self) -> Result<Delivery, LinkError> {
        if let Some(delivery) = self.try_recv() {
            return Ok(delivery);
        }
        if self.shared.is_drained.swap(false, Ordering::AcqRel) {
            self.link.push(Command::Taken);
        }
        match self.received.recv().await {
            Some(received) => Ok(self.take(received)),
            None => Err(self.link.why_ended(&self.shared.status)),
        }
    }

    /// A message that has come already.
    pub fn try_recv(&mut self) -> Option<Delivery> {
        let received = self.received.try_recv().ok()?;
        Some(self.take(received))
    }

    fn take(&self, received: Received) -> Delivery {
        let taken = self.shared.note_taken(received.bytes.len());
        if taken.is_multiple_of(self.notify_after) {
            self.link.push(Command::Taken);
        }
        let delivery = Delivery::new(received, self.link.key, Arc::clone(&self.link.alive.0));
        if self.accepts {
            delivery.accept_now();
        }
        delivery
    }

    /// Tags of what [`ReceiverBuilder::resume`] was given with an outcome, each with a
    /// future of its settlement; once.
    pub fn resumed(&mut self) -> Vec<(Bytes, Settlement)> {
        core::mem::take(&mut self.resumed)
    }

    /// What has come and is not settled, for another process that goes on with it:
    /// messages that the application has taken or not, and those that it has settled
    /// when the server does not know that yet.
    ///
    /// # Errors
    /// The link or the client has ended.
    pub async fn unsettled(&self) -> Result<Vec<Unsettled>, LinkError> {
        let (answer, unsettled) = oneshot::channel();
        self.link.push(Command::Unsettled(self.link.key, answer));
        let unsettled = unsettled.await;
        unsettled.map_err(|_| self.link.why_ended(&self.shared.status))
    }

    /// Has the server send what it has, up to the credit that is out, and waits
    /// until that is done: [`Receiver::try_recv`] has it then. The next
    /// [`Receiver::recv`] that finds nothing gives credit again.
    ///
    /// # Errors
    /// The link or the client has ended.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop it.
    pub async fn drain(&mut self) -> Result<(), LinkError> {
        let (done, drained) = oneshot::channel();
        self.link.push(Command::Drain(self.link.key, done));
        let drained = drained.await;
        drained.map_err(|_| self.link.why_ended(&self.shared.status))
    }

    /// The address of the node; of a dynamic one, the server's choice.
    #[must_use]
    pub fn address(&self) -> Option<String> {
        self.attached().address
    }

    /// What the server granted, the last time that the link was attached.
    #[must_use]
    pub fn attached(&self) -> Attached {
        self.shared.status.attached()
    }

    /// Closes the link, and ends a durable subscription. What has come and was
    /// not taken is lost to this link.
    pub async fn close(self) {
        self.link.close().await;
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("key", &self.link).finish()
    }
}
