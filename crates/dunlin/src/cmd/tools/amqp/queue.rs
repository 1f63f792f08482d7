//! `dunlin queue`: queues of a broker, by its management node.

use core::time::Duration;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use dunlin_amqp_client::{Client, Delivery, List, Map, Message, Receiver, Sender, Value};
use serde_json::Value as Json;

use super::Connect;
use super::print::simple;
use crate::causes::sentence;
use crate::cmd::queue::{Full, Options};
use crate::config::units::{Size, Span};

/// The address of the management node.
const NODE: &str = "$management";

/// Name of both links: answers to `$me` come on the receiver.
const LINKS: &str = "dunlin-queue";

/// Type of a queue.
const TYPE: &str = "dunlin.queue";

/// Queues asked for at a time.
const PAGE: u32 = 500;

/// How long the end may take.
const LEAVE_MAX: Duration = Duration::from_secs(1);

/// Create, show, change, empty and delete queues of a broker.
#[derive(Debug, Args)]
pub(crate) struct Queue {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a queue. It stays until it is deleted.
    Create {
        #[command(flatten)]
        named: Named,
        #[command(flatten)]
        options: Options,
        /// Keep neither the queue nor its messages over a restart of the broker.
        #[arg(long)]
        transient: bool,
    },
    /// Show a queue.
    Show {
        #[command(flatten)]
        named: Named,
    },
    /// Change options of a queue; those that are not given stay as they are.
    Update {
        #[command(flatten)]
        named: Named,
        #[command(flatten)]
        options: Options,
        /// Bind the queue to no topics.
        #[arg(long, conflicts_with = "topic")]
        no_topics: bool,
    },
    /// Delete a queue with all of its messages.
    Delete {
        #[command(flatten)]
        named: Named,
    },
    /// List the queues.
    List {
        #[command(flatten)]
        common: Common,
    },
    /// Remove the messages of a queue that wait.
    Purge {
        #[command(flatten)]
        named: Named,
    },
}

/// What all of them have.
#[derive(Debug, Args)]
struct Common {
    /// Give up after this many seconds.
    #[arg(short = 'W', long, value_name = "SECONDS", default_value_t = 30)]
    timeout: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// What is said of one queue.
#[derive(Debug, Args)]
struct Named {
    /// Name of the queue; its address is /queues/ and this.
    name: String,
    #[command(flatten)]
    common: Common,
}

type Entries<'a> = Vec<(Value<'a>, Value<'a>)>;

/// Topics as values.
fn topics(options: &Options) -> Vec<Value<'_>> {
    options.topic.iter().map(|it| Value::String(it)).collect()
}

/// The attributes that are given, of which `topics` are those of [`topics`].
fn attributes<'a>(options: &'a Options, topics: &'a [Value<'a>], without: bool) -> Entries<'a> {
    let full = options.full.map(|full| match full {
        Full::Reject => "reject",
        Full::DropNewest => "drop-newest",
        Full::DropOldest => "drop-oldest",
    });
    let millis = |Span(ttl): Span| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    let is_bound = !topics.is_empty() || without;
    let topics = is_bound.then(|| Value::List(List::new(topics)));
    let all = [
        ("topics", topics),
        ("max_messages", options.max_messages.map(Value::Ulong)),
        (
            "max_bytes",
            options.max_bytes.map(|size| Value::Ulong(size.0)),
        ),
        ("full", full.map(Value::String)),
        ("ttl", options.ttl.map(|ttl| Value::Ulong(millis(ttl)))),
        ("levels", options.levels.map(Value::Ubyte)),
        ("max_deliveries", options.max_deliveries.map(Value::Ushort)),
        (
            "dead_letter",
            options.dead_letter.as_deref().map(Value::String),
        ),
    ];
    let given = all.into_iter();
    given
        .filter_map(|(name, value)| Some((Value::String(name), value?)))
        .collect()
}

impl Action {
    const fn common(&self) -> &Common {
        match self {
            Self::List { common } => common,
            Self::Create { named, .. }
            | Self::Show { named }
            | Self::Update { named, .. }
            | Self::Delete { named }
            | Self::Purge { named } => &named.common,
        }
    }
}

impl Queue {
    /// Does it.
    pub(crate) fn run(self) -> Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .context("cannot start")?;
        let text = runtime.block_on(self.ask())?;
        io::stdout()
            .write_all(text.as_bytes())
            .context("cannot write to standard output")?;
        Ok(ExitCode::SUCCESS)
    }

    /// What is printed.
    async fn ask(&self) -> Result<String> {
        let common = self.action.common();
        let (client, connecting) = common.connect.builder()?.start()?;
        // All of it leaves before there is an answer.
        let (receiver, receiving) = client.receiver(NODE).name(LINKS).settled().start()?;
        let (sender, sending) = client.sender(NODE).name(LINKS).start()?;
        let done = async {
            connecting.await?;
            receiving.await?;
            sending.await?;
            let node = Node {
                sender,
                receiver,
                last: 0,
            };
            self.carry_out(node).await
        };
        let limit = Duration::from_secs(common.timeout);
        let done = tokio::time::timeout(limit, done).await;
        leave(&client).await;
        match done {
            Ok(done) => done,
            Err(_) => bail!("no answer within {} s", common.timeout),
        }
    }

    async fn carry_out(&self, mut node: Node) -> Result<String> {
        let json = self.action.common().json;
        match &self.action {
            Action::Create {
                named,
                options,
                transient,
            } => {
                let topics = topics(options);
                let mut attributes = attributes(options, &topics, false);
                if *transient {
                    attributes.push((Value::String("durable"), Value::Bool(false)));
                }
                let answer = node.one("CREATE", &named.name, &attributes).await?;
                Ok(shown(&answer, json))
            }
            Action::Show { named } => {
                let answer = node.one("READ", &named.name, &[]).await?;
                Ok(shown(&answer, json))
            }
            Action::Update {
                named,
                options,
                no_topics,
            } => {
                let topics = topics(options);
                let attributes = attributes(options, &topics, *no_topics);
                if attributes.is_empty() {
                    bail!("there is nothing to change: give an option of the queue");
                }
                let answer = node.one("UPDATE", &named.name, &attributes).await?;
                Ok(shown(&answer, json))
            }
            Action::Delete { named } => {
                node.one("DELETE", &named.name, &[]).await?;
                Ok(String::new())
            }
            Action::Purge { named } => {
                let answer = node.one("PURGE", &named.name, &[]).await?;
                Ok(match json {
                    true => format!("{answer}\n"),
                    false => format!("{} messages removed\n", answer["messages"]),
                })
            }
            Action::List { .. } => {
                let rows = node.all().await?;
                Ok(match json {
                    true => rows.iter().map(|row| format!("{row}\n")).collect(),
                    false => table(&rows),
                })
            }
        }
    }
}

async fn leave(client: &Client) {
    let _ = tokio::time::timeout(LEAVE_MAX, client.close()).await;
}

/// The management node of a server.
struct Node {
    sender: Sender,
    receiver: Receiver,
    /// Number of the last request.
    last: u64,
}

impl Node {
    /// Does something with one queue; its attributes.
    async fn one(
        &mut self,
        operation: &str,
        name: &str,
        attributes: &[(Value<'_>, Value<'_>)],
    ) -> Result<Json> {
        let message = Message::value(&Value::Map(Map::new(attributes)))
            .property("operation", operation)
            .property("type", TYPE)
            .property("name", name);
        self.ask(message)
            .await
            .with_context(|| format!("queue {name}"))
    }

    /// All queues, by address.
    async fn all(&mut self) -> Result<Vec<Json>> {
        let mut rows: Vec<Json> = Vec::new();
        loop {
            let offset = u64::try_from(rows.len()).unwrap_or(u64::MAX);
            let message = Message::value(&Value::Map(Map::default()))
                .property("operation", "QUERY")
                .property("type", "org.amqp.management")
                .property("name", "self")
                .property("entityType", TYPE)
                .property("offset", offset)
                .property("count", PAGE);
            let answer = self.ask(message).await?;
            let (Some(names), Some(results)) = (
                answer["attributeNames"].as_array(),
                answer["results"].as_array(),
            ) else {
                bail!("the server answered a query with something else");
            };
            let row = |row: &Json| -> Json {
                let values = row.as_array().into_iter().flatten();
                let names = names.iter().filter_map(Json::as_str).map(str::to_owned);
                Json::Object(names.zip(values.cloned()).collect())
            };
            rows.extend(results.iter().map(row));
            if results.len() < PAGE as usize {
                return Ok(rows);
            }
        }
    }

    /// Sends a request and waits for its answer.
    async fn ask(&mut self, message: Message) -> Result<Json> {
        self.last += 1;
        let message = message.reply_to("$me").message_id(self.last);
        let outcome = self.sender.send(message).await;
        let outcome = outcome.map_err(|error| anyhow::anyhow!("{}", sentence(&error)))?;
        if !outcome.is_accepted() {
            bail!("the request was {outcome}");
        }
        let answer = self.receiver.recv().await;
        let answer = answer.map_err(|error| anyhow::anyhow!("{}", sentence(&error)))?;
        let status = answer.property("statusCode").and_then(|it| it.as_i64());
        match status {
            Some(200..=299) => Ok(body(&answer)),
            status => {
                let text = answer.property("statusDescription");
                let text = text.and_then(|it| it.as_str()).unwrap_or("no reason given");
                bail!("{text} ({})", status.unwrap_or(0))
            }
        }
    }
}

/// The value that is the body of an answer.
fn body(answer: &Delivery) -> Json {
    let sections = answer.sections().ok();
    let value = sections.and_then(|it| it.body().values().next());
    value.and_then(Result::ok).map_or(Json::Null, simple)
}

/// How a value of JSON is printed to people.
fn plain(value: &Json) -> String {
    match value {
        Json::Null => "-".into(),
        Json::String(text) => text.clone(),
        Json::Array(all) if all.is_empty() => "-".into(),
        Json::Array(all) => all.iter().map(plain).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

/// A queue, a line for each attribute.
fn shown(queue: &Json, json: bool) -> String {
    if json {
        return format!("{queue}\n");
    }
    let attributes = queue.as_object().into_iter().flatten();
    attributes
        .map(|(name, value)| {
            let value = match (name.as_str(), value.as_u64()) {
                ("ttl", Some(millis)) => Span::millis(millis).to_string(),
                ("max_bytes", Some(bytes)) => Size(bytes).to_string(),
                _ => plain(value),
            };
            format!("{name:<15} {value}\n")
        })
        .collect()
}

/// Columns of the list.
const COLUMNS: [&str; 6] = [
    "name",
    "messages",
    "unsettled",
    "bytes",
    "consumers",
    "durable",
];

/// Queues, a line for each.
fn table(rows: &[Json]) -> String {
    let head: Vec<String> = COLUMNS.iter().map(|it| it.to_uppercase()).collect();
    let rows = rows.iter();
    let rows = rows.map(|row| COLUMNS.iter().map(|name| plain(&row[*name])).collect());
    let lines: Vec<Vec<String>> = core::iter::once(head).chain(rows).collect();
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..COLUMNS.len()).map(width).collect();
    let line = |cells: &Vec<String>| {
        let cells = cells.iter().zip(&widths);
        let text: String = cells
            .map(|(cell, width)| format!("{cell:<width$}  "))
            .collect();
        format!("{}\n", text.trim_end())
    };
    lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_columns() {
        let row = serde_json::json!({
            "name": "a-long-name", "messages": 3, "unsettled": 0, "bytes": 99,
            "consumers": 1, "durable": true, "topics": ["x"],
        });
        let text = table(&[row]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "NAME         MESSAGES  UNSETTLED  BYTES  CONSUMERS  DURABLE",
                "a-long-name  3         0          99     1          true",
            ]
        );
    }

    #[test]
    fn attributes_are_those_that_were_given() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            options: Options,
        }
        let parse =
            |line: &str| <Line as clap::Parser>::parse_from(line.split_whitespace()).options;
        assert!(attributes(&parse("x"), &[], false).is_empty());
        let options = &parse("x --topic a/# --ttl 2s --max-bytes 1KiB --full drop-oldest");
        let topics = topics(options);
        let all = attributes(options, &topics, false);
        let map = Map::new(&all);
        assert_eq!(map.len(), 4);
        assert_eq!(map.get("ttl"), Some(Value::Ulong(2000)));
        assert_eq!(map.get("max_bytes"), Some(Value::Ulong(1024)));
        assert_eq!(map.get("full"), Some(Value::String("drop-oldest")));
        assert_eq!(map.get("topics"), Some(Value::List(List::new(&topics))));
    }
}
