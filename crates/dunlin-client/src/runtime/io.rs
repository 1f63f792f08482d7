//! The event loop of the background thread: hands events, commands and timers
//! to the clients, and lets each one that was touched run once.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use dunlin_base::transport::NetEventKind;
use dunlin_base::{ConnId, Instant};
use dunlin_dial::{Context, Resolver};
use dunlin_net::{Clock, Net};

use super::task::ClientTask;
use crate::command::{Command, Key, Queue};

/// The loop's state.
pub(super) struct Io {
    net: Net,
    clock: Clock,
    queue: Arc<Queue>,
    resolver: Resolver,
    tasks: HashMap<Key, ClientTask>,
    conns: HashMap<ConnId, Key>,
    timers: BTreeSet<(Instant, Key)>,
    /// ClientTasks to run; each once.
    touched: Vec<Key>,
    ending: bool,
}

impl Io {
    pub(super) fn new(net: Net, clock: Clock, queue: Arc<Queue>) -> Self {
        Self {
            resolver: resolver(&queue),
            net,
            clock,
            queue,
            tasks: HashMap::new(),
            conns: HashMap::new(),
            timers: BTreeSet::new(),
            touched: Vec::new(),
            ending: false,
        }
    }

    pub(super) fn run(mut self) {
        let mut commands = Vec::new();
        while !(self.ending && self.tasks.is_empty()) {
            if let Err(error) = self.poll() {
                tracing::error!(%error, "the client's event loop failed");
                break;
            }
            self.queue.take(&mut commands);
            for command in commands.drain(..) {
                self.on_command(command);
            }
            self.on_time();
            self.run_touched();
            self.net.flush();
        }
    }

    fn poll(&mut self) -> std::io::Result<()> {
        let Self {
            net,
            clock,
            tasks,
            conns,
            touched,
            timers,
            ..
        } = self;
        let now = net.now();
        let timeout = timers
            .first()
            .map(|(at, _)| at.saturating_duration_since(now));
        // Read once, after the wait.
        let mut woken = None;
        net.poll(timeout, &mut |event| {
            let now = *woken.get_or_insert_with(|| clock.now());
            let Some(key) = conns.get(&event.conn).copied() else {
                return;
            };
            if matches!(event.kind, NetEventKind::Closed { .. }) {
                conns.remove(&event.conn);
            }
            if let Some(task) = tasks.get_mut(&key) {
                touch(touched, task);
                task.on_net(now, event);
            }
        })?;
        Ok(())
    }

    fn on_command(&mut self, command: Command) {
        let key = match command {
            Command::Add(new) => {
                let key = new.shared.key;
                let mut task = ClientTask::new(*new);
                touch(&mut self.touched, &mut task);
                self.tasks.insert(key, task);
                return;
            }
            Command::End => {
                self.ending = true;
                return;
            }
            Command::Publish(key, _)
            | Command::Request(key, _)
            | Command::Run(key)
            | Command::Migrate(key, _)
            | Command::Disconnect { key, .. }
            | Command::Release(key)
            | Command::Resolved(key, ..) => key,
        };
        // Commands for a client that has ended are dropped, which the tasks
        // that wait for them notice.
        if let Some(task) = self.tasks.get_mut(&key) {
            touch(&mut self.touched, task);
            task.on_command(self.net.now(), command);
        }
    }

    fn on_time(&mut self) {
        let now = self.net.now();
        while let Some(&(at, key)) = self.timers.first() {
            if at > now {
                break;
            }
            self.timers.pop_first();
            if let Some(task) = self.tasks.get_mut(&key) {
                task.armed = None;
                touch(&mut self.touched, task);
            }
        }
    }

    fn run_touched(&mut self) {
        let mut touched = core::mem::take(&mut self.touched);
        for key in touched.drain(..) {
            let Some(task) = self.tasks.get_mut(&key) else {
                continue;
            };
            task.touched = false;
            let mut context = Context {
                now: self.net.now(),
                net: &mut self.net,
                conns: &mut self.conns,
                resolver: &mut self.resolver,
            };
            task.run(&mut context);
            if task.has_ended() {
                if let Some(at) = task.armed {
                    self.timers.remove(&(at, key));
                }
                self.tasks.remove(&key);
                continue;
            }
            let next = task.next_deadline();
            if next != task.armed {
                if let Some(at) = task.armed {
                    self.timers.remove(&(at, key));
                }
                if let Some(at) = next {
                    self.timers.insert((at, key));
                }
                task.armed = next;
            }
        }
        self.touched = touched;
    }
}

/// Its answers become commands.
fn resolver(queue: &Arc<Queue>) -> Resolver {
    let queue = Arc::downgrade(queue);
    Resolver::new(move |key, attempt, resolved| {
        let queue = queue.upgrade();
        if let Some(queue) = &queue {
            queue.push(Command::Resolved(key, attempt, resolved));
        }
        queue.is_some()
    })
}

/// Also when the thread panics: tasks that wait for it must notice.
impl Drop for Io {
    fn drop(&mut self) {
        self.queue.end();
    }
}

fn touch(touched: &mut Vec<Key>, task: &mut ClientTask) {
    if !core::mem::replace(&mut task.touched, true) {
        touched.push(task.key());
    }
}
