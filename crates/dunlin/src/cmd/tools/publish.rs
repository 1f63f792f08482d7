//! `dunlin pub`: mosquitto_pub over every transport.

use core::ops::Range;
use core::time::Duration;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use clap::Args;
use dunlin_client::{Client, Delivery, Publish, PublishError, QoS};

use super::connect::{Connect, parse_qos};
use super::input::{Input, Lines, Source};
use super::properties::Properties;
use super::timing::{ACKNOWLEDGED, ALL_ACKNOWLEDGED, CONNECTED, Timing};
use super::unused::Mode;
use crate::causes::sentence;

/// Largest message for which no larger packets are searched: the search costs
/// two packets each way.
const SHORT_BYTES: usize = 8 << 10;

/// Outcomes awaited at a time before the oldest is looked at.
const DELIVERIES_MAX: usize = 4096;

/// Publish messages, with mosquitto_pub's flags.
#[derive(Debug, Args)]
pub(crate) struct Pub {
    /// Topic to publish to.
    #[arg(short = 't', long, allow_hyphen_values = true)]
    topic: Option<String>,
    #[command(flatten)]
    source: Source,
    /// Read standard input and publish each line as a message.
    #[arg(short = 'l', long, group = "source")]
    stdin_line: bool,
    /// Quality of service.
    #[arg(short = 'q', long, default_value = "0", value_parser = parse_qos)]
    qos: QoS,
    /// The server keeps the message for later subscribers.
    #[arg(short = 'r', long)]
    retain: bool,
    /// Messages in flight at most.
    #[arg(short = 'M', long, value_name = "MESSAGES")]
    max_inflight: Option<u16>,
    /// Publish the message this many times.
    #[arg(long, default_value_t = 1, value_name = "TIMES")]
    repeat: u64,
    /// Seconds between repetitions.
    #[arg(long, default_value_t = 0.0, value_name = "SECONDS")]
    repeat_delay: f64,
    /// Print a line of JSON with the times to CONNACK, to the first
    /// acknowledgement, to the last and to the end, in microseconds, when
    /// connecting started, over what, and later connections.
    #[arg(long)]
    timing: bool,
    #[command(flatten)]
    connect: Connect,
}

impl Pub {
    /// What decides about the options.
    pub(super) fn mode(&self) -> Option<Mode> {
        self.connect.mode()
    }

    /// Publishes.
    pub(super) fn run(self) -> Result<ExitCode> {
        let topic = match (&self.topic, self.connect.url_topic()?) {
            (Some(_), Some(_)) => bail!("the topic is given twice: by -t and by -L"),
            (Some(topic), None) => topic.clone(),
            (None, Some(topic)) => topic,
            (None, None) => {
                bail!("both topic (-t) and message (-m, -f, -l, -n or -s) must be supplied")
            }
        };
        let delay = Duration::try_from_secs_f64(self.repeat_delay)
            .context("--repeat-delay is a number of seconds")?;
        let properties = self.connect.properties()?;
        if properties.subscription_id.is_some() {
            bail!("-D subscribe has no effect here: nothing is subscribed");
        }
        let payload = self.input()?.read()?;
        let template = properties
            .publish
            .apply(Publish::new(topic, ""))
            .qos(self.qos)
            .retain(self.retain);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .context("cannot start")?;
        let done = runtime.block_on(self.publish(template, payload, &properties, delay));
        self.connect.finish();
        done
    }

    fn input(&self) -> Result<Input<'_>> {
        if self.stdin_line {
            return Ok(Input::Lines);
        }
        let missing = "both topic (-t) and message (-m, -f, -l, -n or -s) must be supplied";
        self.source.input().context(missing)
    }

    async fn publish(
        &self,
        template: Publish,
        payload: Option<Bytes>,
        properties: &Properties,
        delay: Duration,
    ) -> Result<ExitCode> {
        let timing = Timing::start(&[CONNECTED, ACKNOWLEDGED, ALL_ACKNOWLEDGED]);
        let mut builder = self.connect.builder(properties)?.pipelined(true);
        if self.repeat == 1 && payload.as_ref().is_some_and(|p| p.len() <= SHORT_BYTES) {
            builder = self.connect.briefly(builder);
        }
        if let Some(max) = self.max_inflight {
            builder = builder.max_in_flight(max);
        }
        let (client, messages, begun) = self.connect.start(builder)?;
        drop(messages);
        let mut sender = Sender {
            connect: &self.connect,
            client: &client,
            template,
            pending: Vec::new(),
            refused: None,
            timing,
        };
        // It may go out with the first datagram. An error is one of connecting.
        let first = match &payload {
            Some(payload) if self.repeat > 0 => sender.send(payload.clone()).await.is_ok(),
            _ => false,
        };
        let opened = match self.connect.connected(&client, begun).await? {
            Ok(opened) => opened,
            Err(code) => return Ok(code),
        };
        sender.timing.reached(CONNECTED);
        sender.timing.early_data(opened.early);
        sender.timing.transport(opened.transport);
        let work = async {
            match payload {
                Some(payload) => {
                    let sent = u64::from(first);
                    sender.repeat(&payload, sent..self.repeat, delay).await?;
                }
                None => sender.lines().await?,
            }
            sender.wait(0).await?;
            sender.timing.reached(ALL_ACKNOWLEDGED);
            anyhow::Ok(())
        };
        let (outcome, later) = self.connect.watching(&client, opened.events, work).await;
        let (refused, mut timing) = (sender.refused, sender.timing);
        timing.reconnected(later);
        match properties.disconnect_expiry {
            Some(expiry) => client.disconnect_and_keep_session(expiry).await,
            None => client.disconnect().await,
        }
        if self.timing {
            timing.print();
        }
        match (outcome, refused) {
            (Ok(()), None) => Ok(ExitCode::SUCCESS),
            (Ok(()), Some(code)) => Ok(ExitCode::from(code)),
            (Err(error), _) => {
                let error = sentence(error.as_ref());
                self.connect.complain(&format_args!("Error: {error}"));
                Ok(ExitCode::FAILURE)
            }
        }
    }
}

/// Publishes with many messages in flight.
struct Sender<'a> {
    connect: &'a Connect,
    client: &'a Client,
    template: Publish,
    pending: Vec<Delivery>,
    /// Reason code of the first message that the server refused.
    refused: Option<u8>,
    timing: Timing,
}

impl Sender<'_> {
    async fn repeat(&mut self, payload: &Bytes, times: Range<u64>, delay: Duration) -> Result<()> {
        for n in times {
            if n > 0 && !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            self.send(payload.clone()).await?;
        }
        Ok(())
    }

    async fn lines(&mut self) -> Result<()> {
        let mut lines = Lines::start()?;
        while let Some(line) = lines.next().await? {
            self.send(line).await?;
        }
        Ok(())
    }

    async fn send(&mut self, payload: Bytes) -> Result<()> {
        self.connect.say(|| {
            format!(
                "Client {} sending PUBLISH ('{}', ... ({} bytes))",
                self.client.client_id(),
                self.template.topic(),
                payload.len()
            )
        });
        let message = self.template.clone().with_payload(payload);
        self.pending.push(self.client.start_publish(message).await?);
        if self.pending.len() >= DELIVERIES_MAX {
            self.wait(DELIVERIES_MAX / 2).await?;
        }
        Ok(())
    }

    /// Waits until at most `left` outcomes are missing.
    async fn wait(&mut self, left: usize) -> Result<()> {
        let known = self.pending.len().saturating_sub(left);
        for delivery in self.pending.drain(..known) {
            match delivery.await {
                Ok(_) => self.timing.reached(ACKNOWLEDGED),
                Err(error @ PublishError::Refused { reason }) => {
                    // As mosquitto: the others still go.
                    self.connect.complain(&format_args!("Warning: {error}"));
                    self.refused.get_or_insert_with(|| reason.to_u8());
                }
                // Wanted, by --max-age.
                Err(error @ PublishError::Obsolete) => {
                    self.connect.say(|| format!("Note: {error}"));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
