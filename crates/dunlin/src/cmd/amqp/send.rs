//! `dunlin send`: messages to a node of any AMQP 1.0 server.

use core::time::Duration;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use clap::Args;
use dunlin_amqp_client::{Client, Connecting, Message, Sender, SenderBuilder, Sending};

use super::{Connect, parse_pair};
use crate::causes::sentence;
use crate::cmd::input::{Input, Lines};

/// Outcomes awaited at a time before the oldest is looked at.
const SENDINGS_MAX: usize = 4096;

/// Send messages with AMQP 1.0.
#[derive(Debug, Args)]
pub(crate) struct Send {
    /// Address to send to; without it each message says where it goes (--to).
    #[arg(
        short = 't',
        long,
        value_name = "ADDRESS",
        required_unless_present = "to"
    )]
    address: Option<String>,
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
        let mut template = Message::new("");
        if let Some(address) = &self.address {
            // For receivers from several nodes.
            template = template.to(address);
        }
        let template = self.fields.apply(template)?;
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

    fn sender(&self, client: &Client) -> SenderBuilder {
        let mut builder = match &self.address {
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
        let (client, connecting) = self.connect.builder()?.start()?;
        let sent = self.send_on(&client, connecting, template, payload).await;
        client.close().await;
        sent
    }

    async fn send_on(
        &self,
        client: &Client,
        connecting: Connecting,
        template: Message,
        payload: Option<Bytes>,
    ) -> Result<u64> {
        // Before there is an answer, so that it leaves in the first flight.
        let (sender, attaching) = self.sender(client).start()?;
        connecting.await?;
        self.connect
            .say(|| format!("connected to {}", self.connect.url));
        attaching.await?;
        let mut batch = Batch {
            send: self,
            sender: &sender,
            template,
            waiting: VecDeque::new(),
            refused: 0,
        };
        match payload {
            Some(payload) => {
                for _ in 0..self.count {
                    batch.send(payload.clone()).await?;
                }
            }
            None => batch.lines().await?,
        }
        batch.wait(0).await?;
        let refused = batch.refused;
        sender.close().await;
        Ok(refused)
    }
}

/// Messages under way.
struct Batch<'s> {
    send: &'s Send,
    sender: &'s Sender,
    template: Message,
    waiting: VecDeque<Sending>,
    refused: u64,
}

impl Batch<'_> {
    async fn lines(&mut self) -> Result<()> {
        let mut lines = Lines::start()?;
        while let Some(line) = lines.next().await? {
            self.send(line).await?;
        }
        Ok(())
    }

    async fn send(&mut self, payload: Bytes) -> Result<()> {
        let message = self.template.clone().with_payload(payload);
        self.waiting
            .push_back(self.sender.start_send(message).await?);
        if self.waiting.len() >= SENDINGS_MAX {
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
                Ok(outcome) if outcome.is_accepted() => connect.say(|| outcome.to_string()),
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
