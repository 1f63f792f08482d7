//! `dunlin rr`: a request and its response, as mosquitto_rr, over every transport.

use core::time::Duration;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use clap::Args;
use dunlin_base::topic;
use dunlin_client::{
    Client, Message, Messages, Publish, PublishError, QoS, ReasonCode, RetainHandling, Subscribe,
    SubscribeError, Version,
};
use tokio::signal::unix::{SignalKind, signal};

use super::connect::{Begun, Connect, LEAVE_MAX, TIMED_OUT, parse_qos};
use super::input::Source;
use super::properties::Properties;
use super::subscribe::output::{Output, Printer, is_broken_pipe};
use super::timing::{ANSWERED, CONNECTED, SUBSCRIBED, Timing};
use super::unused::Mode;

/// Publish a request and print its response, with mosquitto_rr's flags.
#[derive(Debug, Args)]
pub(crate) struct Rr {
    /// Topic of the request.
    #[arg(short = 't', long, allow_hyphen_values = true)]
    topic: Option<String>,
    /// Topic of the response; in MQTT 5.0 one below rr/ that only this request
    /// has, if not given.
    #[arg(short = 'e', long, value_name = "TOPIC", allow_hyphen_values = true)]
    response_topic: Option<String>,
    #[command(flatten)]
    source: Source,
    /// Quality of service of the request, and highest one of the response.
    #[arg(short = 'q', long, default_value = "0", value_parser = parse_qos)]
    qos: QoS,
    /// Send no Correlation Data, and take the first message on the topic of the
    /// response.
    #[arg(long)]
    no_correlation: bool,
    /// Exit after this many seconds without a response, connecting included, with
    /// code 27.
    #[arg(short = 'W', long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Accepted for mosquitto's sake: a retained message is no response.
    #[arg(short = 'R', hide = true)]
    no_retain: bool,
    #[command(flatten)]
    output: Output,
    /// Print a last line of JSON with the times to CONNACK, to SUBACK, to the
    /// response and to the end, in microseconds, and when connecting started.
    #[arg(long)]
    timing: bool,
    #[command(flatten)]
    connect: Connect,
}

/// A request, and how its response is known.
struct Question {
    request: Publish,
    response_topic: String,
    /// No other request has this topic.
    own_topic: bool,
    correlation: Option<Bytes>,
}

/// Why there is nothing more to wait for.
enum End {
    Answered,
    TimedOut,
    Interrupted,
    /// The server or the network.
    Closed,
    /// The error is printed.
    Failed(ExitCode),
}

impl Rr {
    /// What decides about the options.
    pub(super) fn mode(&self) -> Option<Mode> {
        self.connect.mode()
    }

    /// Asks once.
    pub(super) fn run(self) -> Result<ExitCode> {
        let properties = self.connect.properties()?;
        let question = self.question(&properties)?;
        let printer = self.output.printer()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start")?;
        let done = runtime.block_on(self.exchange(&properties, question, printer));
        self.connect.finish();
        done
    }

    fn question(&self, properties: &Properties) -> Result<Question> {
        let topic = match (&self.topic, self.connect.url_topic()?) {
            (Some(_), Some(_)) => bail!("the topic is given twice: by -t and by -L"),
            (Some(topic), None) => topic.clone(),
            (None, Some(topic)) => topic,
            (None, None) => bail!("you must specify the topic of the request (-t)"),
        };
        let Some(payload) = self.source.input().map(|input| input.read()).transpose()? else {
            bail!("you must specify the request (-m, -f, -n or -s)");
        };
        let given = properties.publish.response_topic();
        if given.is_some() && self.response_topic.is_some() {
            bail!("the topic of the response is given twice: by -e and by -D");
        }
        let is_v5 = self.connect.version() == Version::V5;
        let given = self.response_topic.as_deref().or(given);
        let response_topic = match given {
            Some(topic) => topic.to_owned(),
            None if is_v5 => format!("rr/{:016x}", random()?),
            None => bail!("MQTT 3.1.1 does not carry the topic of the response: give it with -e"),
        };
        topic::validate_name(&response_topic).context("-e")?;
        let mut request = properties
            .publish
            .apply(Publish::new(topic, payload.unwrap_or_default()))
            .qos(self.qos);
        let mut correlation = None;
        if is_v5 {
            request = request.response_topic(&response_topic);
            correlation = match properties.publish.correlation_data() {
                Some(data) => Some(data.to_owned()),
                None if self.no_correlation => None,
                None => Some(format!("{:016x}", random()?)),
            };
            if let Some(data) = &correlation {
                request = request.correlation_data(data.as_str());
            }
        }
        Ok(Question {
            request,
            response_topic,
            own_topic: given.is_none(),
            correlation: correlation.map(Bytes::from),
        })
    }

    async fn exchange(
        &self,
        properties: &Properties,
        question: Question,
        mut printer: Printer<'_>,
    ) -> Result<ExitCode> {
        let cannot = "cannot wait for signals";
        let mut interrupt = signal(SignalKind::interrupt()).context(cannot)?;
        let mut terminate = signal(SignalKind::terminate()).context(cannot)?;
        let mut timing = Timing::start(&[CONNECTED, SUBSCRIBED, ANSWERED]);
        let mut builder = self.connect.builder(properties)?.pipelined(true);
        if !self.connect.keeps_session(properties) {
            builder = builder.session_expiry(Duration::ZERO);
        }
        let (client, mut messages, begun) = self.connect.start(builder)?;
        let events = client.events();
        let ask = async {
            if let Some(code) = self.open(&client, begun, &question, &mut timing).await? {
                return Ok(End::Failed(code));
            }
            let end = self.ask(&client, &mut messages, &question, &mut printer);
            let end = end.await;
            timing.reached(ANSWERED);
            match end {
                Err(error) if is_broken_pipe(&error) => Ok(End::Answered),
                end => end,
            }
        };
        let end = tokio::select! {
            end = ask => end?,
            () = after(self.timeout) => End::TimedOut,
            _ = interrupt.recv() => End::Interrupted,
            _ = terminate.recv() => End::Interrupted,
        };
        if let End::Closed = end {
            return Ok(self.connect.lost(events).await);
        }
        let leave = async {
            match properties.disconnect_expiry {
                Some(expiry) => client.disconnect_and_keep_session(expiry).await,
                None => client.disconnect().await,
            }
        };
        let _ = tokio::time::timeout(LEAVE_MAX, leave).await;
        match end {
            End::Failed(code) => return Ok(code),
            End::TimedOut => {
                self.connect.complain(&"Timed out");
                return Ok(ExitCode::from(TIMED_OUT));
            }
            _ => {}
        }
        if self.timing {
            timing.print();
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Connects and subscribes to the response; the exit code if that fails.
    async fn open(
        &self,
        client: &Client,
        begun: Begun,
        question: &Question,
        timing: &mut Timing,
    ) -> Result<Option<ExitCode>> {
        let how = Subscribe::new(self.qos).retain_handling(RetainHandling::DoNotSend);
        let subscribe = client.subscribe(question.response_topic.as_str(), how);
        let connected = async {
            let connected = self.connect.connected(client, begun).await;
            timing.reached(CONNECTED);
            connected
        };
        let (connected, answer) = tokio::join!(connected, subscribe);
        match connected? {
            Ok(opened) => {
                timing.early_data(opened.early);
                timing.transport(opened.transport);
            }
            Err(code) => return Ok(Some(code)),
        }
        timing.reached(SUBSCRIBED);
        let topic = &question.response_topic;
        match answer {
            Ok(_) => Ok(None),
            Err(SubscribeError::Refused { reason }) => {
                let error = SubscribeError::Refused { reason };
                self.connect
                    .complain(&format_args!("Error: {topic}: {error}"));
                Ok(Some(ExitCode::from(reason.to_u8())))
            }
            Err(error) => Err(error).with_context(|| topic.clone()),
        }
    }

    /// Publishes the request and waits for its response.
    async fn ask(
        &self,
        client: &Client,
        messages: &mut Messages,
        question: &Question,
        printer: &mut Printer<'_>,
    ) -> Result<End> {
        self.connect.say(|| {
            let (id, request) = (client.client_id(), &question.request);
            let (topic, len) = (request.topic(), request.payload().len());
            format!("Client {id} sending PUBLISH ('{topic}', ... ({len} bytes))")
        });
        let publish = client.publish(question.request.clone());
        let mut publish = core::pin::pin!(publish);
        let mut published = false;
        loop {
            tokio::select! {
                outcome = &mut publish, if !published => {
                    published = true;
                    if let Some(end) = self.judge(outcome, question)? {
                        return Ok(end);
                    }
                }
                message = messages.next() => {
                    let Some(message) = message else {
                        return Ok(End::Closed);
                    };
                    if question.is_answered_by(&message) {
                        printer.print(&self.connect, &message)?;
                        printer.flush()?;
                        return Ok(End::Answered);
                    }
                    self.connect.say(|| {
                        format!("Message on '{}' is not the response", message.topic)
                    });
                }
            }
        }
    }

    /// What the server said to the request.
    fn judge(
        &self,
        outcome: Result<ReasonCode, PublishError>,
        question: &Question,
    ) -> Result<Option<End>> {
        match outcome {
            Ok(ReasonCode::NoMatchingSubscribers) => {
                let topic = question.request.topic();
                self.connect
                    .complain(&format_args!("Warning: {topic} has no subscriber"));
                Ok(None)
            }
            Ok(_) => Ok(None),
            Err(PublishError::Closed(_)) => Ok(Some(End::Closed)),
            Err(PublishError::Refused { reason }) => {
                let error = PublishError::Refused { reason };
                self.connect.complain(&format_args!("Error: {error}"));
                Ok(Some(End::Failed(ExitCode::from(reason.to_u8()))))
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Question {
    /// Whether a message is the response. Where the topic is shared with other
    /// requests, only Correlation Data tells.
    fn is_answered_by(&self, message: &Message) -> bool {
        let properties = message.properties.as_deref();
        let got = properties.and_then(|properties| properties.correlation_data.as_ref());
        let matches = match (&self.correlation, got) {
            (Some(want), Some(got)) => want == got,
            (Some(_), None) => self.own_topic,
            (None, _) => true,
        };
        matches && !message.retain && message.topic.as_str() == self.response_topic
    }
}

fn random() -> Result<u64> {
    getrandom::u64().context("no random numbers")
}

async fn after(seconds: Option<u64>) {
    match seconds {
        Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
        None => core::future::pending().await,
    }
}
