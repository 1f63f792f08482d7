//! `dunlin-lab link`: a link for as long as a command, a time or a terminal
//! wants it.

use core::time::Duration;
use std::io::{self, BufRead as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use dunlin_link::linux::{Emulator, Options, Testbed, TestbedOptions, TestbedReport};
use dunlin_link::{Action, Script, parse_duration};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::trouble;
use crate::{console, profile, selftest, topology};

/// Exit code of a run whose packets the kernel dropped behind the link's back.
const EXIT_INVALID: u8 = 3;

/// Join network namespaces by links.
#[derive(Debug, Args)]
pub(crate) struct LinkCommand {
    /// Measure how exact links are here, and end.
    #[arg(long)]
    self_test: bool,
    /// With --self-test: a few seconds instead of half a minute, judged by
    /// what a machine keeps that has other work too.
    #[arg(long, requires = "self_test")]
    short: bool,
    /// Name of the link; its namespaces are dunlin-NAME-a and dunlin-NAME-b, or
    /// dunlin-NAME-HOST.
    #[arg(long, default_value = "link")]
    name: String,
    /// Seed of all chance.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What hosts there are and what joins them: pair, star, star:CLIENTS,
    /// chain, chain:LINKS, dumbbell, or a TOML file.
    #[arg(long, value_name = "NAME|FILE", default_value = "pair")]
    topology: String,
    /// Profile of the links: one of `dunlin-lab profiles`, or a TOML file with
    /// settings for both directions at the top and tables [up] (from a, or
    /// towards the broker) and [down].
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
    /// A setting, as delay=25ms, up.loss=5% or LINK.up.loss=5%; after the
    /// profile.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Script of timed changes, one a line: `5s up.loss=5%`,
    /// `every 1s until 60s rebind a`.
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// A line of a script; may be given several times.
    #[arg(long = "step", value_name = "LINE")]
    steps: Vec<String>,
    /// Write a capture (pcapng) of what entered, left and was dropped.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Write the counters as JSON at the end.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Largest IP packet.
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u16).range(576..=9000))]
    mtu: u16,
    /// Do not ask for real-time priority.
    #[arg(long)]
    no_realtime: bool,
    /// End after this time.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    time: Option<Duration>,
    /// Take changes from standard input, one a line, until it ends; answer
    /// each with a line of JSON. `report` asks for the counters.
    #[arg(long)]
    control: bool,
    /// Command to run while the link is up. Its environment has the names and
    /// addresses; `ip netns exec $DUNLIN_NS_A ...` runs inside.
    #[arg(last = true)]
    command: Vec<String>,
}

/// What may end or change a run.
enum Event {
    Signal,
    Line(String),
    InputEnded,
    Exited(io::Result<std::process::ExitStatus>),
}

impl LinkCommand {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if self.self_test {
            return selftest::run(self.short);
        }
        let testbed = start_testbed(self.options()?)?;
        let (sender, events) = channel();
        on_signals(sender.clone())?;
        if self.control {
            on_lines(sender.clone());
        }
        self.announce(&testbed);
        let code = if self.command.is_empty() {
            self.serve(&testbed, &events);
            ExitCode::SUCCESS
        } else {
            self.accompany(&testbed, sender, &events)?
        };
        self.finish(&testbed.stop(), code)
    }

    fn options(&self) -> Result<TestbedOptions> {
        let profile = match &self.profile {
            Some(profile) => profile::load(profile)?,
            None => profile::perfect(),
        };
        let mut topology = topology::load(&self.topology, &profile)?;
        for setting in &self.settings {
            let wrong = || format!("--set {setting}");
            let action = Action::parse(setting).with_context(wrong)?;
            topology.apply(&action).with_context(wrong)?;
        }
        let mut script = match &self.script {
            Some(path) => std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?,
            None => String::new(),
        };
        for line in &self.steps {
            script.push('\n');
            script.push_str(line);
        }
        let mut options = TestbedOptions::new(&self.name, topology);
        options.seed = self.seed;
        options.script = Script::parse(&script).context("the script")?;
        options.capture = self.pcap.clone();
        options.mtu = self.mtu;
        options.realtime = !self.no_realtime;
        Ok(options)
    }

    fn announce(&self, testbed: &Testbed) {
        if self.control {
            let hosts: serde_json::Map<_, _> = testbed
                .hosts()
                .map(|(name, namespace, address)| {
                    let host = json!({"namespace": namespace.name(), "address": address});
                    (name.to_owned(), host)
                })
                .collect();
            console::line(serde_json::Value::from(hosts));
        } else if self.command.is_empty() {
            for (_, namespace, address) in testbed.hosts() {
                console::error(format_args!("{} is {address}", namespace.name()));
            }
            console::error(format_args!("seed {}; end with Ctrl-C", self.seed));
        }
    }

    /// Waits for the end, and does what lines say.
    fn serve(&self, testbed: &Testbed, events: &Receiver<Event>) {
        let end = self.time.map(|time| testbed.started() + time);
        loop {
            let event = match end {
                None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(end) => events.recv_timeout(end.saturating_duration_since(Instant::now())),
            };
            match event {
                Ok(Event::Line(line)) => console::line(obey(testbed, &line)),
                Ok(Event::Exited(_)) => {}
                Ok(Event::Signal | Event::InputEnded) | Err(_) => return,
            }
        }
    }

    /// Runs the command to its end.
    fn accompany(
        &self,
        testbed: &Testbed,
        sender: Sender<Event>,
        events: &Receiver<Event>,
    ) -> Result<ExitCode> {
        let Some((program, arguments)) = self.command.split_first() else {
            bail!("there is no command");
        };
        let mut command = Command::new(program);
        command.args(arguments);
        for (name, namespace, address) in testbed.hosts() {
            let name = name.to_ascii_uppercase();
            command.env(format!("DUNLIN_NS_{name}"), namespace.name());
            command.env(format!("DUNLIN_IP_{name}"), address.to_string());
        }
        let child = command
            .spawn()
            .with_context(|| format!("cannot run {program}"))?;
        let stop = child.id();
        thread::spawn(move || {
            let _ = sender.send(Event::Exited(wait(child)));
        });
        let end = self.time.map(|time| testbed.started() + time);
        loop {
            let left = end.map_or(Duration::MAX, |end| {
                end.saturating_duration_since(Instant::now())
            });
            // The longest wait that the channel takes without overflow.
            match events.recv_timeout(left.min(Duration::from_secs(1 << 30))) {
                Ok(Event::Exited(status)) => {
                    let code = status.context("cannot wait for the command")?.code();
                    let code = code.and_then(|code| u8::try_from(code).ok());
                    return Ok(ExitCode::from(code.unwrap_or(1)));
                }
                Ok(Event::Line(line)) => console::line(obey(testbed, &line)),
                Ok(Event::InputEnded) => {}
                Ok(Event::Signal) | Err(_) => {
                    // It is ours, and it is waited for above.
                    let _ = Command::new("kill").arg(stop.to_string()).status();
                    bail!("ended before the command did");
                }
            }
        }
    }

    fn finish(&self, report: &TestbedReport, code: ExitCode) -> Result<ExitCode> {
        if let Some(path) = &self.report {
            let text = serde_json::to_string_pretty(report)?;
            std::fs::write(path, text + "\n")
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        if self.control {
            console::line(serde_json::to_string(report)?);
        }
        Ok(if is_fit(&report.trouble()) {
            code
        } else {
            ExitCode::from(EXIT_INVALID)
        })
    }
}

/// Starts a link, with a watcher that cleans up should this process be killed,
/// and a loud warning where there is no real-time priority.
pub(crate) fn start(options: Options) -> Result<Emulator> {
    let (name, realtime) = (options.name.clone(), options.realtime);
    let emulator = Emulator::start(options)?;
    attend(&name, realtime, emulator.testbed())?;
    Ok(emulator)
}

/// The same for a network.
pub(crate) fn start_testbed(options: TestbedOptions) -> Result<Testbed> {
    let (name, realtime) = (options.name.clone(), options.realtime);
    let testbed = Testbed::start(options)?;
    attend(&name, realtime, &testbed)?;
    Ok(testbed)
}

fn attend(name: &str, realtime: bool, testbed: &Testbed) -> Result<()> {
    trouble::listen(testbed.alarm());
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut watcher = Command::new(program);
    watcher.args(["watch", name]);
    watcher
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // Away from the terminal's signals.
    std::os::unix::process::CommandExt::process_group(&mut watcher, 0);
    let watcher = watcher.spawn().context("cannot start the watcher")?;
    // It ends by itself once the link is gone.
    thread::spawn(move || wait(watcher));
    if let Some(why) = testbed.no_realtime() {
        console::error("WARNING ------------------------------------------------------------");
        console::error(format_args!("no real-time priority ({why}):"));
        console::error("delays will be those of the scheduler, off by milliseconds");
        console::error("--------------------------------------------------------------------");
    } else if !realtime {
        console::error("without real-time priority, as asked: delays are off by milliseconds");
    }
    Ok(())
}

/// Says what makes a run worthless; true if nothing does.
pub(crate) fn is_fit(trouble: &[String]) -> bool {
    for sentence in trouble {
        console::error(sentence);
    }
    trouble.is_empty()
}

fn wait(mut child: Child) -> io::Result<std::process::ExitStatus> {
    child.wait()
}

/// Does what a line says, and answers.
fn obey(testbed: &Testbed, line: &str) -> serde_json::Value {
    let line = line.trim();
    if line == "report" {
        return serde_json::to_value(testbed.report()).unwrap_or_default();
    }
    match Action::parse(line) {
        Ok(action) => match testbed.apply(action) {
            Ok(()) => json!({"ok": line}),
            Err(error) => json!({"error": error.to_string()}),
        },
        Err(error) => json!({"error": error.to_string()}),
    }
}

fn on_signals(sender: Sender<Event>) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot await signals")?;
    thread::spawn(move || {
        for _ in signals.forever() {
            if sender.send(Event::Signal).is_err() {
                return;
            }
        }
    });
    Ok(())
}

fn on_lines(sender: Sender<Event>) {
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(Event::Line(line)).is_err() {
                return;
            }
        }
        let _ = sender.send(Event::InputEnded);
    });
}
