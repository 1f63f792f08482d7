//! Bridges to other brokers: those of the configuration, and those that operators add
//! while the broker runs. A bridge is a client of the
//! other broker and a client of this one, and carries messages between the two; what
//! waits for the other broker waits in its session here, on disk like any other.
//!
//! All bridges share one thread, beside that of their clients.

pub(crate) mod added;
mod ends;
mod known;
mod pump;
pub(crate) mod route;
mod run;
pub(crate) mod stats;
mod thread;

use core::time::Duration;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin_broker::BridgeSession;
use tokio::sync::watch;

pub(crate) use ends::check_files;
pub use route::VIA;

use crate::causes::sentence;
use crate::config::Config;
use crate::config::bridge::{BRIDGES_MAX, Bridge};
use crate::control::values::{Code, Failure, Leftover};
use crate::daemon::error::StartError;
use crate::daemon::mailbox::{Addresses, Mail};
use crate::daemon::reload::Reloader;
use crate::daemon::settings::bridge_sessions;
use added::Added;
use known::Known;
use run::Runner;
use stats::{Stats, View};
use thread::{Running, Thread};

/// How long the end of a bridge is waited for: somewhat more than it takes at most.
const STOP_MAX: Duration = Duration::from_secs(15);

/// The bridges of a running broker.
#[derive(Debug)]
pub(crate) struct Bridges {
    reloader: Arc<Reloader>,
    folder: PathBuf,
    state: Mutex<State>,
    /// Held while an order is carried out.
    changing: Mutex<()>,
}

/// What runs.
#[derive(Debug, Default)]
struct State {
    thread: Option<Thread>,
    bridges: Vec<(View, Option<Running>)>,
    /// No more begin.
    is_stopped: bool,
}

impl Bridges {
    /// Starts the bridges of the configuration, and those that were added. None waits for
    /// its other broker.
    ///
    /// # Errors
    /// A file of a bridge cannot be used, or there is no thread to be had.
    pub(crate) fn start(reloader: Arc<Reloader>) -> Result<Self, StartError> {
        let folder = reloader.config().data_dir.join("bridges");
        let bridges = Self {
            folder,
            reloader,
            state: Mutex::default(),
            changing: Mutex::default(),
        };
        let (config, added) = (bridges.config(), bridges.added());
        for bridge in &config.bridge {
            let ready = bridges.runner(bridge)?;
            bridges.run(ready, false)?;
        }
        for bridge in added.all() {
            let ready = bridges.runner(&bridge)?;
            bridges.run(ready, true)?;
        }
        Ok(bridges)
    }

    /// Ends them all.
    pub(crate) fn stop(&self) {
        let last = State {
            is_stopped: true,
            ..State::default()
        };
        let state = core::mem::replace(&mut *self.lock(), last);
        for (_, running) in &state.bridges {
            if let Some(running) = running {
                let _ = running.stop.send(true);
            }
        }
        // Its thread ends after them.
        drop(state.thread);
    }

    /// What is known of each.
    pub(crate) fn views(&self) -> Vec<View> {
        let state = self.lock();
        state.bridges.iter().map(|(view, _)| view.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn config(&self) -> &Config {
        self.reloader.config()
    }

    fn added(&self) -> &Added {
        self.reloader.added()
    }

    fn alone(&self) -> Result<MutexGuard<'_, ()>, Failure> {
        let busy = |_| Failure::new(Code::Busy, "another bridge is being changed");
        self.changing.try_lock().map_err(busy)
    }

    /// Adds a bridge, which begins at once.
    ///
    /// # Errors
    /// There is one of this name, or it cannot be.
    pub(crate) fn add(&self, mut bridge: Bridge, password: Option<&str>) -> Result<View, Failure> {
        let _alone = self.alone()?;
        let others = self.all();
        if others.iter().any(|it| it.name == bridge.name) {
            let whose = match added::is_configured(self.config(), &bridge.name) {
                true => " in the configuration file",
                false => "",
            };
            let text = format!("there is a bridge {:?}{whose} already", bridge.name);
            return Err(Failure::new(Code::Conflict, text));
        }
        if others.len() >= BRIDGES_MAX {
            let text = format!("there are {BRIDGES_MAX} bridges, the most that there may be");
            return Err(Failure::new(Code::Busy, text));
        }
        added::confine(&mut bridge, &self.folder)?;
        added::check(&others, &bridge)?;
        let ready = self.prepared(&mut bridge, password)?;
        self.added().change(|all| all.push(bridge.clone()))?;
        self.begin(&bridge, ready)
    }

    /// Puts another bridge in the place of one that was added. What waits for the other
    /// broker is carried by it.
    ///
    /// # Errors
    /// There is none of this name, the configuration file has it, or it cannot be.
    pub(crate) fn change(
        &self,
        mut bridge: Bridge,
        password: Option<&str>,
    ) -> Result<View, Failure> {
        let _alone = self.alone()?;
        let before = self.find_added(&bridge.name)?;
        let mut others = self.all();
        others.retain(|it| it.name != bridge.name);
        added::confine(&mut bridge, &self.folder)?;
        added::check(&others, &bridge)?;
        let own = added::password_path(&self.folder, &bridge.name);
        if password.is_none() && bridge.user.is_some() && bridge.password_file.is_none() {
            // It keeps the password that it has.
            bridge.password_file = before.password_file.filter(|path| *path == own);
        }
        let ready = self.prepared(&mut bridge, password)?;
        let name = bridge.name.clone();
        self.end(&name, false)?;
        let written = self.added().change(|all| {
            all.retain(|it| it.name != name);
            all.push(bridge.clone());
        });
        self.forget(&name);
        match written {
            Ok(()) => self.begin(&bridge, ready),
            Err(failure) => {
                self.begin_again(&name);
                Err(failure)
            }
        }
    }

    /// Removes a bridge that was added; `waiting` counts what waits for its other broker.
    /// What it says then is what is lost.
    ///
    /// # Errors
    /// There is none of this name, the configuration file has it, or messages wait and
    /// nothing is to become of them.
    pub(crate) fn remove(
        &self,
        name: &str,
        leftover: Leftover,
        waiting: impl Fn(&View) -> Option<u64>,
    ) -> Result<u64, Failure> {
        let _alone = self.alone()?;
        self.find_added(name)?;
        let view = self.views().into_iter().find(|view| *view.name == *name);
        let count = || match &view {
            Some(view) if view.session.is_some() => waiting(view),
            _ => Some(0),
        };
        let refuses = |count: Option<u64>| match (leftover, count) {
            (Leftover::Refuse, Some(count @ 1..)) => Err(Failure::new(
                Code::Conflict,
                format!(
                    "{count} messages wait for the other broker of {name:?}: say whether they \
                     are kept for an hour or discarded"
                ),
            )),
            (Leftover::Refuse, None) => Err(Failure::new(
                Code::Unavailable,
                "how many messages wait is not known at the moment",
            )),
            (_, count) => Ok(count.unwrap_or(0)),
        };
        if leftover == Leftover::Keep && view.as_ref().is_some_and(View::is_paused) {
            let text = "what waits for a bridge that is paused is kept for good: resume it first";
            return Err(Failure::new(Code::Conflict, text));
        }
        refuses(count())?;
        self.end(name, leftover == Leftover::Discard)?;
        // Others may have come meanwhile.
        let gone = refuses(count()).and_then(|count| {
            self.added()
                .change(|all| all.retain(|it| it.name != name))?;
            Ok(count)
        });
        self.forget(name);
        match gone {
            Ok(count) => {
                self.clear(name, leftover);
                self.tell_shards();
                Ok(match leftover {
                    Leftover::Discard => count,
                    _ => 0,
                })
            }
            Err(failure) => {
                self.begin_again(name);
                Err(failure)
            }
        }
    }

    /// All that there are.
    fn all(&self) -> Vec<Bridge> {
        [self.config().bridge.as_slice(), &self.added().all()].concat()
    }

    fn find_added(&self, name: &str) -> Result<Bridge, Failure> {
        let mut added = self.added().all().into_iter();
        match added.find(|it| it.name == name) {
            Some(bridge) => Ok(bridge),
            None if added::is_configured(self.config(), name) => {
                let text = format!("bridge {name:?} is of the configuration file: change that");
                Err(Failure::new(Code::Conflict, text))
            }
            None => {
                let text = format!("there is no bridge {name:?}");
                Err(Failure::new(Code::NotFound, text))
            }
        }
    }

    /// A bridge that can begin, with its password on disk.
    fn prepared(
        &self,
        bridge: &mut Bridge,
        password: Option<&str>,
    ) -> Result<Arc<Runner>, Failure> {
        let failed = |error: &StartError| Failure::new(Code::BadRequest, sentence(error));
        self.ensure_thread().map_err(|error| failed(&error))?;
        added::keep_password(bridge, &self.folder, password)?;
        self.runner(bridge).map_err(|error| failed(&error))
    }

    /// Has a bridge run that was added.
    fn begin(&self, bridge: &Bridge, runner: Arc<Runner>) -> Result<View, Failure> {
        self.reloader.allow(bridge);
        self.tell_shards();
        let view = self.run(runner, true);
        view.map_err(|error| Failure::new(Code::Unavailable, error.to_string()))
    }

    /// Has a bridge run again whose order could not be carried out.
    fn begin_again(&self, name: &str) {
        let Ok(mut bridge) = self.find_added(name) else {
            return;
        };
        let begun = self.prepared(&mut bridge, None);
        if let Err(error) = begun.and_then(|runner| self.begin(&bridge, runner)) {
            tracing::error!(bridge = name, %error, "a bridge cannot begin again");
        }
    }

    /// Ends the connections of a bridge, with its sessions if what is in them is to be
    /// discarded.
    fn end(&self, name: &str, discards: bool) -> Result<(), Failure> {
        let running = {
            let mut state = self.lock();
            let mut bridges = state.bridges.iter_mut();
            let found = bridges.find(|(view, _)| *view.name == *name);
            found.and_then(|(view, running)| {
                if discards {
                    view.wanted.send_modify(|wanted| wanted.discards = true);
                }
                running.take()
            })
        };
        let Some(running) = running else {
            return Ok(());
        };
        let _ = running.stop.send(true);
        match running.ended.recv_timeout(STOP_MAX) {
            Err(RecvTimeoutError::Timeout) => {
                let mut state = self.lock();
                let mut bridges = state.bridges.iter_mut();
                if let Some((_, slot)) = bridges.find(|(view, _)| *view.name == *name) {
                    *slot = Some(running);
                }
                let text = format!("bridge {name:?} does not end in time");
                Err(Failure::new(Code::Unavailable, text))
            }
            _ => Ok(()),
        }
    }

    /// It is shown no more.
    fn forget(&self, name: &str) {
        self.lock().bridges.retain(|(view, _)| *view.name != *name);
    }

    /// Removes the files of a bridge. While its session is kept, so is what is known of
    /// its subscriptions.
    fn clear(&self, name: &str, leftover: Leftover) {
        let mut files = vec![added::password_path(&self.folder, name)];
        if leftover != Leftover::Keep {
            files.push(known::path(&self.folder, name));
            files.push(ends::tickets_path(&self.folder, name));
        }
        for file in files {
            if let Err(error) = std::fs::remove_file(&file)
                && error.kind() != ErrorKind::NotFound
            {
                let file = file.display();
                tracing::warn!(bridge = name, %file, %error, "a file of a bridge stays");
            }
        }
    }

    /// Their sessions here.
    pub(crate) fn sessions(&self) -> Vec<BridgeSession> {
        bridge_sessions(self.config(), &self.all())
    }

    /// Says to the shards which sessions are those of bridges.
    fn tell_shards(&self) {
        let sessions: Arc<[_]> = self.sessions().into();
        for shard in self.reloader.shards() {
            shard.send(Mail::Bridges(Arc::clone(&sessions)));
        }
    }

    fn ensure_thread(&self) -> Result<(), StartError> {
        let mut state = self.lock();
        if state.is_stopped {
            return Err(StartError::Loop("the broker stops".into()));
        }
        if state.thread.is_none() {
            state.thread = Some(Thread::start(&self.folder)?);
        }
        Ok(())
    }

    fn runner(&self, bridge: &Bridge) -> Result<Arc<Runner>, StartError> {
        self.ensure_thread()?;
        let state = self.lock();
        let none = || StartError::Loop("the bridges have ended".into());
        let thread = state.thread.as_ref().ok_or_else(none)?;
        runner(
            self.config(),
            bridge,
            self.reloader.shards(),
            thread,
            &self.folder,
        )
    }

    fn run(&self, runner: Arc<Runner>, is_added: bool) -> Result<View, StartError> {
        let view = View {
            name: Arc::clone(&runner.name),
            session: runner.config.has_out().then(|| runner.config.local_id()),
            stats: Arc::clone(&runner.stats),
            wanted: runner.wanted.clone(),
            config: Arc::new(runner.config.clone()),
            is_added,
        };
        let mut state = self.lock();
        let none = || StartError::Loop("the bridges have ended".into());
        let running = state.thread.as_ref().ok_or_else(none)?.run(runner)?;
        state.bridges.push((view.clone(), Some(running)));
        Ok(view)
    }
}

impl Drop for Bridges {
    fn drop(&mut self) {
        self.stop();
    }
}

fn runner(
    config: &Config,
    bridge: &Bridge,
    shards: &Addresses,
    thread: &Thread,
    folder: &Path,
) -> Result<Arc<Runner>, StartError> {
    let shard = shards.get(shards.home(&bridge.local_id()));
    let shard = shard.ok_or_else(|| StartError::Loop("there is no shard".into()))?;
    let id = ends::remote_id(bridge, &thread.broker);
    let clients = &thread.clients;
    let plan = ends::Plan::new(config, bridge, id.clone(), shard, clients, folder)?;
    Ok(Arc::new(Runner {
        name: bridge.name.as_str().into(),
        config: bridge.clone(),
        plan,
        via: id,
        stats: Arc::new(Stats::default()),
        known: Known::new(folder, &bridge.name),
        shard: shard.clone(),
        wanted: watch::Sender::default(),
    }))
}
