//! `dunlin ctl queue`: queues of AMQP, with the words of `dunlin queue`.

use std::io::{self, Write};

use anyhow::bail;
use clap::Subcommand;

use super::columns::{MESSAGES, QUEUES};
use super::{Session, counted};
use crate::cmd::queue::{self, Options};
use crate::config::units::Size;
use crate::control::values::{Full, QueueOptions, Reply, Request};

/// Create, show, change, look into, empty, move and delete queues.
#[derive(Debug, Subcommand)]
pub(super) enum Queue {
    /// List the queues.
    List {
        /// Print so many at most.
        #[arg(long, value_name = "NUMBER")]
        limit: Option<usize>,
    },
    /// Show a queue.
    Show {
        /// Name of the queue; its address is /queues/ and this.
        name: String,
    },
    /// Create a queue. It stays until it is deleted.
    Create {
        /// Name of the queue.
        name: String,
        #[command(flatten)]
        options: Box<Options>,
        /// Keep neither the queue nor its messages over a restart of the broker.
        #[arg(long)]
        transient: bool,
    },
    /// Change options of a queue; those that are not given stay as they are.
    Update {
        /// Name of the queue.
        name: String,
        #[command(flatten)]
        options: Box<Options>,
        /// Bind the queue to no topics.
        #[arg(long, conflicts_with = "topic")]
        no_topics: bool,
    },
    /// Delete a queue with all of its messages.
    Delete {
        /// Name of the queue.
        name: String,
    },
    /// Show the messages that leave first. They stay.
    Peek {
        /// Name of the queue.
        name: String,
        /// So many at most, up to 100.
        #[arg(long, default_value_t = 10, value_name = "NUMBER")]
        limit: usize,
    },
    /// Remove the messages of a queue that wait.
    Purge {
        /// Name of the queue.
        name: String,
        /// So many at most.
        #[arg(long, value_name = "NUMBER")]
        limit: Option<u64>,
    },
    /// Move the messages of a queue that wait to another, each once.
    Move {
        /// Name of the queue.
        name: String,
        /// Name of the other queue.
        to: String,
        /// So many at most.
        #[arg(long, value_name = "NUMBER")]
        limit: Option<u64>,
    },
}

impl From<Options> for QueueOptions {
    fn from(options: Options) -> Self {
        Self {
            topics: Some(options.topic).filter(|topics| !topics.is_empty()),
            max_messages: options.max_messages.map(as_usize),
            max_bytes: options.max_bytes.map(Size::as_usize),
            full: options.full.map(|full| match full {
                queue::Full::Reject => Full::Reject,
                queue::Full::DropNewest => Full::DropNewest,
                queue::Full::DropOldest => Full::DropOldest,
            }),
            ttl_seconds: options.ttl.map(|ttl| ttl.0.as_secs()),
            levels: options.levels,
            max_deliveries: options.max_deliveries,
            dead_letter: options.dead_letter,
            durable: None,
        }
    }
}

/// A number of the command line.
fn as_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl Queue {
    pub(super) fn run(self, session: &mut Session) -> anyhow::Result<()> {
        match self {
            Self::List { limit } => session.list(&QUEUES, limit, |page| Request::Queues { page }),
            Self::Show { name } => session.show(&Request::Queue { name }),
            Self::Create {
                name,
                options,
                transient,
            } => {
                let mut options = QueueOptions::from(*options);
                options.durable = transient.then_some(false);
                session.show(&Request::CreateQueue { name, options })
            }
            Self::Update {
                name,
                options,
                no_topics,
            } => {
                let mut options = QueueOptions::from(*options);
                if no_topics {
                    options.topics = Some(Vec::new());
                }
                if options == QueueOptions::default() {
                    bail!("there is nothing to change: give an option of the queue");
                }
                session.show(&Request::ChangeQueue { name, options })
            }
            Self::Delete { name } => {
                session.order(&Request::DeleteQueue { name }, "queues deleted")
            }
            Self::Peek { name, limit } => session.list(&MESSAGES, None, |_| Request::PeekQueue {
                name: name.clone(),
                limit,
            }),
            Self::Purge { name, limit } => in_steps(session, "messages removed", limit, |left| {
                let name = name.clone();
                Request::PurgeQueue { name, left }
            }),
            Self::Move { name, to, limit } => in_steps(session, "messages moved", limit, |left| {
                let (name, to) = (name.clone(), to.clone());
                Request::MoveMessages { name, to, left }
            }),
        }
    }
}

/// Gives an order until nothing is left to do, and says how far it is.
fn in_steps(
    session: &mut Session,
    what: &str,
    mut left: Option<u64>,
    order: impl Fn(Option<u64>) -> Request,
) -> anyhow::Result<()> {
    let mut count = 0;
    loop {
        let Reply::Done { count: more, next } = session.broker.ask(&order(left))? else {
            bail!("the broker's answer is not understood");
        };
        count += more;
        let Some(next) = next else {
            return session.done(count, what);
        };
        if !session.json {
            let moved = counted(count, what);
            writeln!(io::stderr(), "{moved}, {next} left")?;
        }
        left = Some(next.parse()?);
    }
}
