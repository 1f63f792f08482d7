//! `dunlin sub`: mosquitto_sub over every transport.

mod context;
mod format;
mod json;
pub(super) mod output;
mod time;

use core::time::Duration;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use dunlin_base::topic;
use dunlin_client::{
    Client, Events, Message, Messages, Publish, QoS, ReasonCode, RetainHandling, Subscribe,
    SubscribeError, Subscription,
};
use tokio::signal::unix::{SignalKind, signal};

use super::connect::{Begun, Connect, LEAVE_MAX, TIMED_OUT, parse_qos};
use super::properties::{Properties, PublishProperties};
use super::timing::{CONNECTED, SUBSCRIBED, Timing};
use super::unused::Mode;
use output::{Output, Printer, is_broken_pipe};

/// Messages printed at a time before the clock is looked at.
const BATCH: u32 = 64;

/// Subscribe to topics and print messages, with mosquitto_sub's flags.
#[derive(Debug, Args)]
pub(crate) struct Sub {
    /// Topic filter to subscribe to; may be repeated.
    #[arg(short = 't', long, value_name = "FILTER")]
    topic: Vec<String>,
    /// Do not print messages of these topics; may be repeated.
    #[arg(short = 'T', long, value_name = "FILTER")]
    filter_out: Vec<String>,
    /// Unsubscribe from these filters first; may be repeated.
    #[arg(short = 'U', long, value_name = "FILTER")]
    unsubscribe: Vec<String>,
    /// Highest quality of service.
    #[arg(short = 'q', long, default_value = "0", value_parser = parse_qos)]
    qos: QoS,
    /// Exit after this many messages.
    #[arg(short = 'C', long, value_name = "COUNT")]
    count: Option<u64>,
    /// Exit after this many seconds, connecting included, with code 27.
    #[arg(short = 'W', long, value_name = "SECONDS")]
    timeout: Option<u64>,
    #[command(flatten)]
    output: Output,
    /// Do not print retained messages.
    #[arg(short = 'R', long)]
    no_retain: bool,
    /// Print retained messages only, and exit at the first other one.
    #[arg(long, conflicts_with = "no_retain")]
    retained_only: bool,
    /// Let the server forget the retained messages that arrive.
    #[arg(long)]
    remove_retained: bool,
    /// Keep the retain flag as it was published.
    #[arg(long)]
    retain_as_published: bool,
    /// When to send retained messages: always, new or never.
    #[arg(long, value_name = "WHEN", default_value = "always", value_parser = parse_handling)]
    retain_handling: RetainHandling,
    /// Do not receive what this client publishes.
    #[arg(long)]
    no_local: bool,
    /// Exit when the subscriptions are made.
    #[arg(short = 'E')]
    exit_after_subscribe: bool,
    /// Print only this percentage of the messages, chosen at random.
    #[arg(long, value_name = "PERCENT")]
    random_filter: Option<f64>,
    /// Print a last line of JSON with the times to CONNACK, to SUBACK and to the
    /// end, in microseconds, when connecting started, over what, and later
    /// connections.
    #[arg(long)]
    timing: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Why there is nothing more to print.
enum End {
    /// Everything has been printed.
    Done,
    /// -W.
    TimedOut,
    /// A signal.
    Interrupted,
    /// The server or the network.
    Closed,
    /// There was no connection, or no subscription; the error is printed.
    Failed(ExitCode),
}

impl Sub {
    /// What decides about the options.
    pub(super) fn mode(&self) -> Option<Mode> {
        self.connect.mode()
    }

    /// Prints messages.
    pub(super) fn run(mut self) -> Result<ExitCode> {
        self.topic.extend(self.connect.url_topic()?);
        if self.topic.is_empty() && self.unsubscribe.is_empty() {
            bail!("you must specify a topic to subscribe to (-t)");
        }
        let printer = self.output.printer()?;
        let properties = self.connect.properties()?;
        if properties.publish != PublishProperties::default() {
            bail!("-D publish has no effect here: nothing is published");
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start")?;
        let done = runtime.block_on(self.subscribe(&properties, printer));
        self.connect.finish();
        done
    }

    async fn subscribe(
        &self,
        properties: &Properties,
        mut printer: Printer<'_>,
    ) -> Result<ExitCode> {
        let timeout = async {
            match self.timeout.map(Duration::from_secs) {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => core::future::pending().await,
            }
        };
        let mut timing = Timing::start(&[CONNECTED, SUBSCRIBED]);
        let mut builder = self.connect.builder(properties)?.pipelined(true);
        if !self.connect.keeps_session(properties) {
            builder = builder.session_expiry(Duration::ZERO);
        }
        let (client, mut messages, begun) = self.connect.start(builder)?;
        let events = client.events();
        let receive = async {
            match self.open(&client, begun, properties, &mut timing).await? {
                Ok(events) => {
                    let work = self.receive(&client, &mut messages, &mut printer);
                    let (end, later) = self.connect.watching(&client, events, work).await;
                    timing.reconnected(later);
                    end
                }
                Err(code) => Ok(End::Failed(code)),
            }
        };
        let end = tokio::select! {
            end = receive => end?,
            () = timeout => End::TimedOut,
        };
        let leave = async {
            match properties.disconnect_expiry {
                Some(expiry) => client.disconnect_and_keep_session(expiry).await,
                None => client.disconnect().await,
            }
        };
        match end {
            End::Failed(code) => {
                client.disconnect().await;
                Ok(code)
            }
            End::Closed => Ok(self.connect.lost(events).await),
            End::TimedOut => {
                let _ = tokio::time::timeout(LEAVE_MAX, leave).await;
                self.connect.complain(&"Timed out");
                Ok(ExitCode::from(TIMED_OUT))
            }
            End::Done | End::Interrupted => {
                leave.await;
                if self.timing {
                    timing.print();
                }
                Ok(ExitCode::SUCCESS)
            }
        }
    }

    /// Connects and subscribes: what happens later; the exit code if that fails.
    async fn open(
        &self,
        client: &Client,
        begun: Begun,
        properties: &Properties,
        timing: &mut Timing,
    ) -> Result<Result<Events, ExitCode>> {
        let connected = async {
            let connected = self.connect.connected(client, begun).await;
            timing.reached(CONNECTED);
            connected
        };
        // It may go out with the first datagram.
        let (connected, answers) = tokio::join!(connected, self.request(client, properties));
        // If there is no connection, that is the error to tell.
        let opened = match connected? {
            Ok(opened) => opened,
            Err(code) => return Ok(Err(code)),
        };
        timing.reached(SUBSCRIBED);
        timing.early_data(opened.early);
        timing.transport(opened.transport);
        Ok(match self.judge(answers?) {
            None => Ok(opened.events),
            Some(code) => Err(code),
        })
    }

    /// Prints what comes.
    async fn receive(
        &self,
        client: &Client,
        messages: &mut Messages,
        printer: &mut Printer<'_>,
    ) -> Result<End> {
        if self.exit_after_subscribe || self.topic.is_empty() {
            return Ok(End::Done);
        }
        match self.print_all(client, messages, printer).await {
            Err(error) if is_broken_pipe(&error) => Ok(End::Done),
            end => end,
        }
    }

    /// Unsubscribes and subscribes.
    async fn request(
        &self,
        client: &Client,
        properties: &Properties,
    ) -> Result<Vec<Result<Subscription, SubscribeError>>> {
        for filter in &self.unsubscribe {
            client
                .unsubscribe(filter)
                .await
                .with_context(|| format!("-U {filter}"))?;
        }
        let mut how = Subscribe::new(self.qos)
            .no_local(self.no_local)
            .retain_as_published(self.retain_as_published || self.remove_retained)
            .retain_handling(self.retain_handling);
        if let Some(id) = properties.subscription_id {
            how = how.id(id);
        }
        let filters = self.topic.iter().map(|filter| (filter, how));
        client.subscribe_many(filters).await.context("-t")
    }

    /// Says what the server answered; the exit code if it refused everything.
    fn judge(&self, answers: Vec<Result<Subscription, SubscribeError>>) -> Option<ExitCode> {
        let mut granted = 0;
        let mut refused = ReasonCode::UnspecifiedError;
        for (filter, answer) in self.topic.iter().zip(answers) {
            match answer {
                Ok(subscription) => {
                    granted += 1;
                    self.connect
                        .say(|| format!("Subscribed '{filter}': {}", subscription.granted as u8));
                }
                Err(error) => {
                    if let SubscribeError::Refused { reason } = error {
                        refused = reason;
                    }
                    self.connect
                        .complain(&format_args!("Warning: {filter}: {error}"));
                }
            }
        }
        if granted == 0 && !self.topic.is_empty() {
            self.connect
                .complain(&"All subscription requests were denied.");
            return Some(ExitCode::from(refused.to_u8()));
        }
        None
    }

    async fn print_all(
        &self,
        client: &Client,
        messages: &mut Messages,
        printer: &mut Printer<'_>,
    ) -> Result<End> {
        let cannot = "cannot wait for signals";
        let mut interrupt = signal(SignalKind::interrupt()).context(cannot)?;
        let mut terminate = signal(SignalKind::terminate()).context(cannot)?;
        let mut turns = 0_u32;
        loop {
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(BATCH) {
                tokio::task::yield_now().await;
            }
            let message = match messages.try_next() {
                Some(message) => message,
                None => {
                    printer.flush()?;
                    tokio::select! {
                        message = messages.next() => match message {
                            Some(message) => message,
                            None => return Ok(End::Closed),
                        },
                        _ = interrupt.recv() => return Ok(End::Interrupted),
                        _ = terminate.recv() => return Ok(End::Interrupted),
                    }
                }
            };
            if self.on_message(client, &message, printer).await? {
                printer.flush()?;
                return Ok(End::Done);
            }
        }
    }

    /// Tells whether it was the last.
    async fn on_message(
        &self,
        client: &Client,
        message: &Message,
        printer: &mut Printer<'_>,
    ) -> Result<bool> {
        self.connect.say(|| {
            format!(
                "Client {} received PUBLISH (d{}, q{}, r{}, m{}, '{}', ... ({} bytes))",
                client.client_id(),
                u8::from(message.dup),
                message.qos as u8,
                u8::from(message.retain),
                message.packet_id.map_or(0, |id| id.get()),
                message.topic,
                message.payload.len()
            )
        });
        if self.remove_retained && message.retain && !message.payload.is_empty() {
            let forget = Publish::new(message.topic.clone(), "")
                .qos(QoS::AtLeastOnce)
                .retain(true);
            client.publish(forget).await?;
        }
        if self.retained_only && !message.retain {
            return Ok(true);
        }
        let unwanted = |filter: &String| topic::matches(filter, &message.topic);
        if (self.no_retain && message.retain)
            || self.filter_out.iter().any(unwanted)
            || !self.is_chosen()
        {
            return Ok(false);
        }
        printer.print(&self.connect, message)?;
        Ok(self.count.is_some_and(|count| printer.printed() >= count))
    }

    fn is_chosen(&self) -> bool {
        let Some(percent) = self.random_filter else {
            return true;
        };
        let random = getrandom::u32().unwrap_or_default();
        f64::from(random) / f64::from(u32::MAX) * 100.0 < percent
    }
}

fn parse_handling(text: &str) -> Result<RetainHandling, String> {
    match text {
        "always" | "0" => Ok(RetainHandling::SendAtSubscribe),
        "new" | "1" => Ok(RetainHandling::SendIfNew),
        "never" | "2" => Ok(RetainHandling::DoNotSend),
        _ => Err("it is always, new or never".into()),
    }
}
