//! The hidden command `trickle`: gives a publisher that reads lines, a process
//! of its own, one line at a time, sees them arrive at a subscriber, and looks
//! at the processor time and the memory of the publisher.

use core::time::Duration;
use std::fs;
use std::io::Write as _;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use dunlin_client::Messages;
use dunlin_link::parse_duration;
use serde::{Deserialize, Serialize};
use tokio::time::{sleep_until, timeout};

use super::access::{Access, quality};
use super::{Lateness, micros, printed};

/// Time that the processor's use is looked at for, as `htop` does.
const WINDOW: Duration = Duration::from_secs(1);

/// Longest wait for the publisher to connect and for its first message.
const START_MAX: Duration = Duration::from_secs(60);

/// Quiet time before the first line that counts.
const SETTLE: Duration = Duration::from_millis(500);

/// A publisher and what it is given.
#[derive(Args, Clone, Debug)]
pub(crate) struct Trickle {
    #[command(flatten)]
    access: Access,
    #[arg(long)]
    topic: String,
    /// Lines that count.
    #[arg(long, default_value_t = 100)]
    count: usize,
    /// Time between two.
    #[arg(long, value_parser = parse_duration, default_value = "1s")]
    every: Duration,
    /// Bytes of a line.
    #[arg(long, default_value_t = 64)]
    payload: usize,
    /// Longest wait for the last messages.
    #[arg(long, value_parser = parse_duration, default_value = "10s")]
    patience: Duration,
    /// The publisher.
    #[arg(last = true, required = true)]
    publisher: Vec<String>,
}

/// What came of it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Trickled {
    /// From the line to the arrival, in microseconds.
    pub(crate) delivered_us: Vec<u64>,
    pub(crate) lost: usize,
    /// Processor time of the publisher until its first message had arrived.
    pub(crate) start_cpu_us: u64,
    /// ... and for all lines that count.
    pub(crate) lines_cpu_us: u64,
    /// Use of one processor in each second, the start included, in percent.
    pub(crate) cpu_percent: Vec<f64>,
    /// Most memory at a time.
    pub(crate) resident_bytes: u64,
    /// Memory that no file is behind, at the end.
    pub(crate) private_bytes: u64,
    /// How far behind its schedule it was with all but one in fifty.
    pub(crate) late_us: u64,
}

impl Trickle {
    pub(crate) fn run(self) -> Result<ExitCode> {
        printed(self.all())
    }

    async fn all(&self) -> Result<Trickled> {
        let id = format!("trickle-{}", std::process::id());
        let builder = self.access.transient(&id)?;
        let (client, messages) = builder.connect().await.context("cannot connect")?;
        let filter = self.topic.clone();
        client.subscribe(filter, quality(1)).await?;
        let mut publisher = Publisher::start(&self.publisher)?;
        let done = self.feed(&mut publisher, messages).await?;
        let _ = timeout(self.patience, client.disconnect()).await;
        Ok(done)
    }

    async fn feed(&self, publisher: &mut Publisher, mut messages: Messages) -> Result<Trickled> {
        let mut done = Trickled::default();
        let mut usage = Usage::new();
        // The first line is the warm-up: it connects first.
        publisher.line(0, self.payload)?;
        let begun = Instant::now();
        while timeout(Duration::from_millis(20), messages.next())
            .await
            .is_err()
        {
            usage.look(publisher)?;
            if begun.elapsed() > START_MAX {
                bail!("nothing of the publisher arrived within {START_MAX:?}");
            }
        }
        tokio::time::sleep(SETTLE).await;
        done.start_cpu_us = publisher.cpu_us()?;
        let start = Instant::now();
        let mut sent = Vec::new();
        let mut arrived = vec![None; self.count];
        let mut late = Lateness::default();
        let end = start + self.every * u32::try_from(self.count)?;
        let mut missing = self.count;
        while missing > 0 && Instant::now() < end + self.patience {
            let due = start + self.every * u32::try_from(sent.len())?;
            if sent.len() < self.count && due <= Instant::now() {
                late.note(due);
                sent.push(Instant::now());
                publisher.line(sent.len(), self.payload)?;
            }
            usage.look(publisher)?;
            let wake = match sent.len() < self.count {
                true => start + self.every * u32::try_from(sent.len())?,
                false => Instant::now() + Duration::from_millis(20),
            };
            let message = tokio::time::timeout_at(wake.into(), messages.next()).await;
            let Ok(Some(message)) = message else {
                sleep_until(wake.into()).await;
                continue;
            };
            let Some(index) = number(&message.payload).and_then(|n| n.checked_sub(1)) else {
                continue;
            };
            if let (Some(sent), Some(slot @ None)) = (sent.get(index), arrived.get_mut(index)) {
                *slot = Some(micros(*sent));
                missing -= 1;
            }
        }
        done.lines_cpu_us = publisher.cpu_us()?.saturating_sub(done.start_cpu_us);
        (done.resident_bytes, done.private_bytes) = publisher.memory()?;
        done.delivered_us = arrived.into_iter().flatten().collect();
        done.lost = missing;
        usage.end(publisher)?;
        done.cpu_percent = usage.percent;
        done.late_us = late.p98_us();
        Ok(done)
    }
}

fn number(payload: &[u8]) -> Option<usize> {
    let text = core::str::from_utf8(payload).ok()?;
    text.split('.').next()?.parse().ok()
}

/// The process that publishes; it ends with its input.
struct Publisher {
    child: Child,
    input: Option<ChildStdin>,
}

impl Publisher {
    fn start(command: &[String]) -> Result<Self> {
        let (program, arguments) = command.split_first().context("there is no publisher")?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot run {program}"))?;
        let input = child.stdin.take();
        Ok(Self { child, input })
    }

    /// Gives it a line of that many bytes with a number in front.
    fn line(&mut self, number: usize, len: usize) -> Result<()> {
        let mut line = format!("{number}.");
        line.extend(core::iter::repeat_n('.', len.saturating_sub(line.len())));
        line.push('\n');
        let input = self.input.as_mut().context("the publisher reads nothing")?;
        input
            .write_all(line.as_bytes())
            .and_then(|()| input.flush())
            .context("the publisher is gone")
    }

    /// Processor time of its threads.
    fn cpu_us(&self) -> Result<u64> {
        let folder = format!("/proc/{}/task", self.child.id());
        let mut total = 0;
        for task in fs::read_dir(folder).context("the publisher is gone")? {
            // A thread may end while one looks.
            let stat = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
            let ns = stat
                .split_whitespace()
                .next()
                .and_then(|ns| ns.parse().ok());
            total += ns.unwrap_or(0_u64);
        }
        Ok(total / 1000)
    }

    /// Most resident memory, and that without a file behind it.
    fn memory(&self) -> Result<(u64, u64)> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .context("the publisher is gone")?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
            kib.map(|kib| kib * 1024).context("no memory in status")
        };
        Ok((field("VmHWM:")?, field("RssAnon:")?))
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        const END_MAX: Duration = Duration::from_secs(5);
        drop(self.input.take());
        let begun = Instant::now();
        while begun.elapsed() < END_MAX {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Use of the processor second by second.
struct Usage {
    since: Instant,
    cpu_us: u64,
    percent: Vec<f64>,
}

impl Usage {
    /// From the start of the process.
    fn new() -> Self {
        Self {
            since: Instant::now(),
            cpu_us: 0,
            percent: Vec::new(),
        }
    }

    fn look(&mut self, publisher: &Publisher) -> Result<()> {
        if self.since.elapsed() < WINDOW {
            return Ok(());
        }
        self.close(publisher)
    }

    /// What is left makes a window of its own only where there is no other.
    fn end(&mut self, publisher: &Publisher) -> Result<()> {
        match self.percent.is_empty() {
            true => self.close(publisher),
            false => Ok(()),
        }
    }

    fn close(&mut self, publisher: &Publisher) -> Result<()> {
        let elapsed = self.since.elapsed();
        let now = publisher.cpu_us()?;
        let used = Duration::from_micros(now.saturating_sub(self.cpu_us));
        let share = used.as_secs_f64() / elapsed.as_secs_f64();
        self.percent.push(share * 100.0);
        self.since = Instant::now();
        self.cpu_us = now;
        Ok(())
    }
}
