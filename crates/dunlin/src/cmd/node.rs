//! `dunlin broker` as a node of a cluster: an edge, and the home when that is free.

use core::sync::atomic::Ordering;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::channel;

use anyhow::Context;

use super::announce;
use crate::config::Config;
use crate::control::audit::Who;
use crate::control::values::Request;
use crate::daemon::{Heard, Node};
use crate::service::Service;
use crate::signals::{self, Signal, Signals};

/// What happens to a node.
enum Event {
    Signal(Signal),
    Heard(Heard),
}

/// Joins the cluster, and serves until a signal ends that.
pub(super) fn run(config: Config, by_signal: &Who) -> anyhow::Result<ExitCode> {
    let signals = Signals::new().context("cannot handle signals")?;
    let (said, events) = channel();
    let to = said.clone();
    let forwarded = signals.forward(move |signal| to.send(Event::Signal(signal)).is_ok());
    forwarded.context("cannot handle signals")?;
    // While it joins or begins to serve, nothing is lost by an end at once.
    let starting = signals::exit_while_starting().context("cannot handle signals")?;
    let hears = move |heard| drop(said.send(Event::Heard(heard)));
    let mut node = Node::join(config.clone(), Arc::new(hears))?;
    let mut service = Service::standby().context("cannot start the watchdog")?;
    starting.store(false, Ordering::Relaxed);
    while let Ok(event) = events.recv() {
        let heard = match event {
            Event::Signal(Signal::Stop) => break,
            Event::Signal(Signal::Reload) => {
                match node.daemon() {
                    // The log has what came of it, and the audit log the order.
                    Some(daemon) => {
                        let reload = || daemon.plane().answer(by_signal, &Request::Reload {});
                        let _ = service.reloading(reload);
                    }
                    None => tracing::info!("files are read when this node begins to serve"),
                }
                continue;
            }
            Event::Heard(heard) => heard,
        };
        starting.store(true, Ordering::Relaxed);
        if node.hear(heard)? {
            service.end();
            service = begin(&config, &node)?;
        }
        starting.store(false, Ordering::Relaxed);
    }
    tracing::info!("stopping");
    // A second signal ends it at once.
    starting.store(true, Ordering::Relaxed);
    service.stopping();
    node.leave();
    Ok(ExitCode::SUCCESS)
}

/// What a node serves from now on, for people and the service manager.
fn begin(config: &Config, node: &Node) -> anyhow::Result<Service> {
    let Some(daemon) = node.daemon() else {
        return Service::standby().context("cannot start the watchdog");
    };
    // A broker whose output is not read is still a broker.
    let _ = announce::broker(config, daemon);
    daemon.plane().when_drained(|| {
        if let Err(error) = signals::stop() {
            tracing::error!(%error, "cannot stop");
        }
    });
    Service::ready(daemon).context("cannot start the watchdog")
}
