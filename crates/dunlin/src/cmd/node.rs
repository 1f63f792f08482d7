//! `dunlin broker` as a node of a cluster: an edge, and the home when that is free.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::channel;

use anyhow::Context;

use super::broker::announce;
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
    let hears = move |heard| drop(said.send(Event::Heard(heard)));
    let mut node = Node::join(config.clone(), Arc::new(hears))?;
    let mut service: Option<Service> = None;
    while let Ok(event) = events.recv() {
        let serves_another = match event {
            Event::Signal(Signal::Stop) => break,
            Event::Signal(Signal::Reload) => {
                if let (Some(daemon), Some(service)) = (node.daemon(), &service) {
                    // The log has what came of it, and the audit log the order.
                    let reload = || daemon.plane().answer(by_signal, &Request::Reload {});
                    let _ = service.reloading(reload);
                }
                false
            }
            Event::Heard(Heard::Changed) => node.adapt()?,
            Event::Heard(Heard::Free(of, free)) => node.take_over(of, free)?,
            Event::Heard(Heard::GivenUp(cause)) => {
                node.give_up(&cause)?;
                true
            }
        };
        if serves_another {
            if let Some(before) = service.take() {
                before.end();
            }
            if let Some(daemon) = node.daemon() {
                // A broker whose output is not read is still a broker.
                let _ = announce(&config, daemon);
                daemon.plane().when_drained(|| {
                    if let Err(error) = signals::stop() {
                        tracing::error!(%error, "cannot stop");
                    }
                });
                service = Some(Service::ready(daemon).context("cannot start the watchdog")?);
            }
        }
    }
    tracing::info!("stopping");
    if let Some(service) = service {
        service.stopping();
    }
    node.leave();
    Ok(ExitCode::SUCCESS)
}
