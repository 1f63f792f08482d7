//! `dunlin send`: messages to a node of any AMQP 1.0 server.

use core::time::Duration;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use clap::Args;
use dunlin_amqp_client::{Attaching, Client, Connecting, Message, Sender, SenderBuilder, Sending};

use super::{Connect, briefly, early_data, parse_pair};
use crate::causes::sentence;
use crate::cmd::tools::input::{Input, Lines};
use crate::cmd::tools::timing::{ACKNOWLEDGED, ATTACHED, CONNECTED, Timing};

/// So many bytes to send are not worth a search for larger packets.
const SHORT_BYTES: u64 = 8 << 10;

/// Outcomes awaited at a time before the oldest is looked at.
const SENDINGS_MAX: usize = 4096;

/// Send messages with AMQP 1.0.
#[derive(Debug, Args)]
pub(crate) struct Send {
    /// Address to send to; without it each message says where it goes (--to). May be
    /// repeated: each has a link, and messages go to them in turn.
    #[arg(
        short = 't',
        long,
        value_name = "ADDRESS",
        required_unless_present = "to"
    )]
    address: Vec<String>,
    /// Send the message this many times.
    #[arg(
        short = 'C',
        long,
        value_name = "TIMES",
        default_value_t = 1,
        conflicts_with = "lines"
    )]
    count: u64,
    /// Messages in flight at most.
    #[arg(short = 'M', long, value_name = "MESSAGES")]
    max_inflight: Option<u32>,
    /// Capability of the node, such as queue or topic; may be repeated.
    #[arg(long, value_name = "NAME")]
    capability: Vec<String>,
    /// Print a line of JSON with the times to the server's open, to the last attach, to
    /// the first outcome and to the end, in microseconds; with -M 1 also how long each
    /// message took to its outcome.
    #[arg(long)]
    timing: bool,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    settlement: Settlement,
    #[command(flatten)]
    fields: Fields,
    #[command(flatten)]
    connect: Connect,
}

/// What is sent.
#[derive(Debug, Args)]
struct Source {
    /// Message to send.
    #[arg(short = 'm', long, allow_hyphen_values = true, group = "source")]
    message: Option<String>,
    /// File to send as one message.
    #[arg(short = 'f', long, value_name = "FILE", group = "source")]
    file: Option<PathBuf>,
    /// Read standard input and send each line as a message.
    #[arg(short = 'l', long, group = "source")]
    lines: bool,
    /// Read standard input and send all of it as one message.
    #[arg(short = 's', long, group = "source")]
    stdin: bool,
}

/// What arrives how often.
#[derive(Debug, Args)]
struct Settlement {
    /// Send settled: at most once, and nothing comes back.
    #[arg(long, group = "settlement")]
    settled: bool,
    /// Send unsettled and wait for each outcome: at least once. This is the default.
    #[arg(long, group = "settlement")]
    unsettled: bool,
    /// The receiving end settles second: exactly once, where the server keeps the
    /// state of links.
    #[arg(long, group = "settlement")]
    exactly_once: bool,
}

/// What a message has beside its body.
#[derive(Debug, Args)]
struct Fields {
    /// The message must survive a restart of the server.
    #[arg(long)]
    durable: bool,
    /// Priority; higher goes first.
    #[arg(long, default_value_t = 4)]
    priority: u8,
    /// Seconds that the message is worth delivering.
    #[arg(long, value_name = "SECONDS")]
    ttl: Option<f64>,
    /// Where the message goes.
    #[arg(long, value_name = "ADDRESS")]
    to: Option<String>,
    /// What it is about.
    #[arg(long)]
    subject: Option<String>,
    /// Media type of the data.
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Identifies the message.
    #[arg(long, value_name = "ID")]
    message_id: Option<String>,
    /// Says what an answer belongs to.
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Where answers go.
    #[arg(long, value_name = "ADDRESS")]
    reply_to: Option<String>,
    /// Application property; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    property: Vec<(String, String)>,
}

impl Source {
    fn input(&self) -> Result<Input<'_>> {
        Ok(if let Some(message) = &self.message {
            Input::Argument(message)
        } else if let Some(path) = &self.file {
            Input::File(path)
        } else if self.stdin {
            Input::Stdin
        } else if self.lines {
            Input::Lines
        } else {
            bail!("a message (-m, -f, -l or -s) must be supplied")
        })
    }
}

impl Fields {
    fn apply(&self, mut message: Message) -> Result<Message> {
        message = message.durable(self.durable).priority(self.priority);
        if let Some(ttl) = self.ttl {
            let ttl = Duration::try_from_secs_f64(ttl).context("--ttl is a number of seconds")?;
            message = message.ttl(ttl);
        }
        if let Some(to) = &self.to {
            message = message.to(to);
        }
        if let Some(subject) = &self.subject {
            message = message.subject(subject);
        }
        if let Some(media_type) = &self.content_type {
            message = message.content_type(media_type);
        }
        if let Some(id) = &self.message_id {
            message = message.message_id(id.as_str());
        }
        if let Some(id) = &self.correlation_id {
            message = message.correlation_id(id.as_str());
        }
        if let Some(address) = &self.reply_to {
            message = message.reply_to(address);
        }
        for (name, value) in &self.property {
            message = message.property(name, value.as_str());
        }
        Ok(message)
    }
}

impl Send {
    /// Sends.
    pub(crate) fn run(self) -> Result<ExitCode> {
        let payload = self.source.input()?.read()?;
        let template = self.fields.apply(Message::new(""))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .context("cannot start")?;
        let refused = runtime.block_on(self.send(template, payload))?;
        Ok(match refused {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        })
    }

    fn sender(&self, client: &Client, address: Option<&str>) -> SenderBuilder {
        let mut builder = match address {
            Some(address) => client.sender(address),
            None => client.anonymous_sender(),
        };
        for name in &self.capability {
            builder = builder.capability(name);
        }
        if let Some(max) = self.max_inflight {
            builder = builder.max_in_flight(max);
        }
        match (self.settlement.settled, self.settlement.exactly_once) {
            (true, _) => builder.settled(),
            (_, true) => builder.exactly_once(),
            _ => builder.unsettled(),
        }
    }

    /// Sends; how many messages were not taken.
    async fn send(&self, template: Message, payload: Option<Bytes>) -> Result<u64> {
        let timing = Timing::start(&[CONNECTED, ATTACHED, ACKNOWLEDGED]);
        let mut builder = self.connect.builder()?;
        let bytes = payload.as_ref().map_or(usize::MAX, Bytes::len) as u64;
        if bytes.saturating_mul(self.count) <= SHORT_BYTES {
            builder = briefly(builder);
        }
        let (client, mut connecting) = builder.start()?;
        let events = connecting.events();
        let mut batch = Batch {
            send: self,
            links: Vec::new(),
            next: 0,
            waiting: VecDeque::new(),
            refused: 0,
            timing,
        };
        let watched = self.connect.watch(client.events());
        let sent = tokio::select! {
            sent = batch.run(&client, connecting, template, payload) => sent,
            never = watched => match never {},
        };
        // After an error they are still attached.
        batch.links.clear();
        client.close().await;
        sent?;
        if self.timing {
            batch.timing.early_data(early_data(events).await);
            batch.timing.print();
        }
        Ok(batch.refused)
    }
}

/// A sender, and what its messages are made from.
struct Link {
    sender: Sender,
    template: Message,
}

/// Messages under way.
struct Batch<'s> {
    send: &'s Send,
    links: Vec<Link>,
    /// The link of the next message.
    next: usize,
    waiting: VecDeque<Sending>,
    refused: u64,
    timing: Timing,
}

impl Batch<'_> {
    async fn run(
        &mut self,
        client: &Client,
        connecting: Connecting,
        template: Message,
        payload: Option<Bytes>,
    ) -> Result<()> {
        // Before there is an answer, so that they leave in the first flight.
        let attaching = self.attach(client, &template)?;
        connecting.await?;
        self.timing.reached(CONNECTED);
        let connect = &self.send.connect;
        connect.say(|| format!("connected to {}", connect.url));
        for link in attaching {
            link.await?;
        }
        self.timing.reached(ATTACHED);
        match payload {
            Some(payload) => {
                for _ in 0..self.send.count {
                    self.send(payload.clone()).await?;
                }
            }
            None => self.lines().await?,
        }
        self.wait(0).await?;
        for link in self.links.drain(..) {
            link.sender.close().await;
        }
        Ok(())
    }

    /// A link for each address, or one for all.
    fn attach(&mut self, client: &Client, template: &Message) -> Result<Vec<Attaching>> {
        let mut attaching = Vec::new();
        if self.send.address.is_empty() {
            let (sender, attached) = self.send.sender(client, None).start()?;
            let template = template.clone();
            self.links.push(Link { sender, template });
            attaching.push(attached);
        }
        for address in &self.send.address {
            let (sender, attached) = self.send.sender(client, Some(address)).start()?;
            // For receivers from several nodes, unless --to says it.
            let template = match self.send.fields.to {
                Some(_) => template.clone(),
                None => template.clone().to(address),
            };
            self.links.push(Link { sender, template });
            attaching.push(attached);
        }
        Ok(attaching)
    }

    async fn lines(&mut self) -> Result<()> {
        let mut lines = Lines::start()?;
        while let Some(line) = lines.next().await? {
            self.send(line).await?;
        }
        Ok(())
    }

    async fn send(&mut self, payload: Bytes) -> Result<()> {
        let count = self.links.len();
        let Some(link) = self.links.get(self.next) else {
            bail!("there is no link");
        };
        self.next = (self.next + 1) % count;
        let message = link.template.clone().with_payload(payload);
        let begun = Instant::now();
        self.waiting
            .push_back(link.sender.start_send(message).await?);
        if self.send.max_inflight == Some(1) && count == 1 {
            self.wait(0).await?;
            self.timing.round_trip(begun.elapsed());
        } else if self.waiting.len() >= SENDINGS_MAX {
            self.wait(SENDINGS_MAX / 2).await?;
        }
        Ok(())
    }

    /// Waits until at most `left` outcomes are missing.
    async fn wait(&mut self, left: usize) -> Result<()> {
        while self.waiting.len() > left
            && let Some(sending) = self.waiting.pop_front()
        {
            let connect = &self.send.connect;
            match sending.await {
                Ok(outcome) if outcome.is_accepted() => {
                    self.timing.reached(ACKNOWLEDGED);
                    connect.say(|| outcome.to_string());
                }
                Ok(outcome) => {
                    // The others still go.
                    self.refused += 1;
                    connect.complain(&format_args!("Warning: the message was {outcome}"));
                }
                Err(error) => bail!("{}", sentence(&error)),
            }
        }
        Ok(())
    }
}
