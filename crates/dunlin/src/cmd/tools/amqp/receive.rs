//! `dunlin receive`: messages from a node of any AMQP 1.0 server.

use core::future::{Future as _, poll_fn};
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use dunlin_amqp_client::{
    Client, Delivery, LinkError, Receiver, ReceiverBuilder, TerminusDurability,
    TerminusExpiryPolicy,
};
use tokio::signal::unix::{SignalKind, signal};

use super::print::Form;
use super::{Connect, briefly, early_data};
use crate::cmd::tools::timing::{ATTACHED, CONNECTED, FIRST, Timing};

/// Exit code after -W, as that of `dunlin sub`.
const TIMED_OUT: u8 = 27;

/// How long the end may take after -W.
const LEAVE_MAX: Duration = Duration::from_secs(1);

/// Receive messages with AMQP 1.0 and print them.
#[derive(Debug, Args)]
pub(crate) struct Receive {
    /// Address to receive from; of a topic it may have + and #. May be repeated.
    #[arg(short = 't', long, value_name = "ADDRESS", required = true)]
    address: Vec<String>,
    /// Exit after this many messages.
    #[arg(short = 'C', long, value_name = "COUNT")]
    count: Option<u64>,
    /// Exit after this many seconds, connecting included, with code 27.
    #[arg(short = 'W', long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Exit when the server has no further message.
    #[arg(long)]
    drain: bool,
    /// Print a line of JSON with the times to the server's open, to the last attach, to
    /// the first message and to the end, in microseconds.
    #[arg(long)]
    timing: bool,
    #[command(flatten)]
    settlement: Settlement,
    #[command(flatten)]
    node: Node,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// What arrives how often.
#[derive(Debug, Args)]
struct Settlement {
    /// Ask for settled messages: at most once.
    #[arg(long, group = "settlement")]
    settled: bool,
    /// Settle second: exactly once, where the server keeps the state of links.
    #[arg(long, group = "settlement")]
    exactly_once: bool,
    /// Do not accept messages: release each when it was printed.
    #[arg(long, conflicts_with = "settled")]
    release: bool,
}

/// What comes from the node.
#[derive(Debug, Args)]
struct Node {
    /// Leave messages in the queue for others.
    #[arg(long)]
    browse: bool,
    /// Messages that may be on their way.
    #[arg(long, value_name = "MESSAGES")]
    credit: Option<u32>,
    /// A durable subscription of this name, which needs a container id (-i).
    #[arg(long, value_name = "NAME", requires = "container")]
    subscription: Option<String>,
    /// End the durable subscription on exit.
    #[arg(long, requires = "subscription")]
    unsubscribe: bool,
    /// Only messages that this selector of JMS chooses.
    #[arg(long, value_name = "SQL")]
    selector: Option<String>,
    /// No messages that the same container id sent.
    #[arg(long)]
    no_local: bool,
    /// Capability of the node, such as queue or topic; may be repeated.
    #[arg(long, value_name = "NAME")]
    capability: Vec<String>,
    /// Largest message, in bytes.
    #[arg(long, value_name = "BYTES")]
    max_size: Option<u64>,
}

/// What is printed.
#[derive(Debug, Args)]
struct Output {
    /// Print addresses (`to`, else the one of -t) as well.
    #[arg(short = 'v', long, group = "output")]
    verbose: bool,
    /// Print messages in this format: %p payload, %x hexadecimal, %l length, %t
    /// address, %s subject, %c content type, %m message id, %n newline, %% percent.
    #[arg(
        short = 'F',
        long,
        value_name = "FORMAT",
        group = "output",
        allow_hyphen_values = true
    )]
    format: Option<String>,
    /// Print a line of JSON for each message.
    #[arg(long, group = "output")]
    json: bool,
}

/// Why there is nothing more to print.
enum End {
    Done,
    TimedOut,
}

impl Receive {
    /// Prints messages.
    pub(crate) fn run(self) -> Result<ExitCode> {
        let output = &self.output;
        let form = match (&output.format, output.json, output.verbose) {
            (Some(format), ..) => Form::parse(format).context("-F")?,
            (None, true, _) => Form::Json,
            (None, false, verbose) => Form::plain(verbose),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start")?;
        runtime.block_on(self.receive(&form))
    }

    fn receiver(&self, client: &Client, address: &str) -> ReceiverBuilder {
        let mut builder = client.receiver(address);
        let node = &self.node;
        for name in &node.capability {
            builder = builder.capability(name);
        }
        if let Some(credit) = node.credit {
            builder = builder.credit(credit);
        }
        if let Some(bytes) = node.max_size {
            builder = builder.max_message_size(bytes);
        }
        if let Some(name) = &node.subscription {
            builder = builder
                .name(name)
                .durable(TerminusDurability::UnsettledState)
                .expiry(TerminusExpiryPolicy::Never, Duration::ZERO);
        }
        if let Some(selector) = &node.selector {
            builder = builder.selector(selector);
        }
        if node.no_local {
            builder = builder.no_local();
        }
        if node.browse {
            builder = builder.browse();
        }
        match (self.settlement.settled, self.settlement.exactly_once) {
            (true, _) => builder.settled(),
            (_, true) => builder.exactly_once(),
            _ => builder,
        }
    }

    async fn receive(&self, form: &Form) -> Result<ExitCode> {
        let timeout = async {
            match self.timeout.map(Duration::from_secs) {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => core::future::pending().await,
            }
        };
        if self.node.subscription.is_some() && self.address.len() > 1 {
            bail!("--subscription is of one address (-t)");
        }
        let mut timing = Timing::start(&[CONNECTED, ATTACHED, FIRST]);
        // What it sends is short.
        let (client, mut connecting) = briefly(self.connect.builder()?).start()?;
        let events = connecting.events();
        let watched = self.connect.watch(client.events());
        let (mut links, mut attaching) = (Vec::new(), Vec::new());
        for address in &self.address {
            let (receiver, attached) = self.receiver(&client, address).start()?;
            links.push(receiver);
            attaching.push(attached);
        }
        let all = async {
            connecting.await?;
            timing.reached(CONNECTED);
            for (attached, address) in attaching.into_iter().zip(&self.address) {
                let attached = attached.await?;
                self.connect.say(|| {
                    let address = attached.address.as_deref().unwrap_or(address);
                    format!("receiving from {address}")
                });
            }
            timing.reached(ATTACHED);
            self.print_all(&mut links, form, &mut timing).await
        };
        let end = tokio::select! {
            end = all => end,
            () = timeout => Ok(End::TimedOut),
            never = watched => match never {},
        };
        let leave = async {
            for receiver in links {
                match self.node.unsubscribe {
                    true => receiver.close().await,
                    false => drop(receiver),
                }
            }
            client.close().await;
        };
        let _ = tokio::time::timeout(LEAVE_MAX, leave).await;
        let end = end?;
        if self.timing {
            let said = tokio::time::timeout(LEAVE_MAX, early_data(events)).await;
            timing.early_data(said.unwrap_or_default());
            timing.print();
        }
        Ok(match end {
            End::Done => ExitCode::SUCCESS,
            End::TimedOut => {
                self.connect.complain(&"Timed out");
                ExitCode::from(TIMED_OUT)
            }
        })
    }

    async fn print_all(
        &self,
        links: &mut [Receiver],
        form: &Form,
        timing: &mut Timing,
    ) -> Result<End> {
        let cannot = "cannot wait for signals";
        let mut interrupt = signal(SignalKind::interrupt()).context(cannot)?;
        let mut terminate = signal(SignalKind::terminate()).context(cannot)?;
        let mut out = BufWriter::new(io::stdout());
        let mut printed = 0;
        while self.count.is_none_or(|count| printed < count) {
            let (at, delivery) = match try_any(links) {
                Some(found) => found,
                None => {
                    out.flush().context("cannot write to standard output")?;
                    if self.drain {
                        for receiver in &mut *links {
                            receiver.drain().await?;
                        }
                        match try_any(links) {
                            Some(found) => found,
                            None => return Ok(End::Done),
                        }
                    } else {
                        tokio::select! {
                            found = any(links) => found?,
                            _ = interrupt.recv() => return Ok(End::Done),
                            _ = terminate.recv() => return Ok(End::Done),
                        }
                    }
                }
            };
            timing.reached(FIRST);
            let address = self.address.get(at).map_or("", String::as_str);
            let written = form.write(&delivery, address, &mut out);
            match written {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(End::Done),
                written => written.context("cannot write to standard output")?,
            }
            printed += 1;
            self.settle(&delivery).await;
        }
        out.flush().context("cannot write to standard output")?;
        Ok(End::Done)
    }

    /// Says what became of a message that was printed.
    async fn settle(&self, delivery: &Delivery) {
        let settlement = match self.settlement.release {
            true => delivery.release(),
            false => delivery.accept(),
        };
        // Of the last ones, too, the server hears before the end.
        if self.settlement.exactly_once {
            let _ = settlement.await;
        }
    }
}

/// A message that has come already, and of which link.
fn try_any(links: &mut [Receiver]) -> Option<(usize, Delivery)> {
    let mut links = links.iter_mut().enumerate();
    links.find_map(|(at, link)| Some((at, link.try_recv()?)))
}

/// The next message, and of which link.
async fn any(links: &mut [Receiver]) -> Result<(usize, Delivery), LinkError> {
    poll_fn(|context| {
        for (at, link) in links.iter_mut().enumerate() {
            // Dropping the future loses no message, and its channel still wakes
            // this task.
            if let Poll::Ready(found) = pin!(link.recv()).poll(context) {
                return Poll::Ready(found.map(|delivery| (at, delivery)));
            }
        }
        Poll::Pending
    })
    .await
}
