//! Changes the addresses of the hosts, on a thread of its own, because the
//! `ip` command takes longer than packets may wait.

use core::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use super::DEVICE;
use super::namespace::{Namespace, NamespaceError};
use crate::script::Action;
use crate::topology::PREFIX_LEN;

#[derive(Debug)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) namespace: Namespace,
    pub(super) address: Ipv4Addr,
}

/// The thread, and the way to it.
#[derive(Debug)]
pub(super) struct Addresses {
    sender: Sender<Action>,
    thread: JoinHandle<Vec<String>>,
}

impl Addresses {
    pub(super) fn start(hosts: Vec<Host>) -> Self {
        let (sender, receiver) = channel();
        let thread = thread::spawn(move || work(hosts, &receiver));
        Self { sender, thread }
    }

    /// The way to the thread.
    pub(super) fn sender(&self) -> Sender<Action> {
        self.sender.clone()
    }

    /// Waits for all changes, and gives those that failed.
    pub(super) fn finish(self) -> Vec<String> {
        drop(self.sender);
        self.thread.join().unwrap_or_default()
    }
}

fn work(mut hosts: Vec<Host>, actions: &Receiver<Action>) -> Vec<String> {
    let mut failures = Vec::new();
    for action in actions {
        let name = match &action {
            Action::Move { host, .. } | Action::Add { host, .. } | Action::Remove { host, .. } => {
                host
            }
            Action::Set { .. } | Action::Rebind { .. } | Action::Reroute => continue,
        };
        // The caller has checked whether there is such a host.
        let Some(host) = hosts.iter_mut().find(|host| host.name == *name) else {
            continue;
        };
        let result = match action {
            Action::Move { address, .. } => {
                let old = core::mem::replace(&mut host.address, address);
                change(host, "delete", old).and_then(|()| change(host, "add", address))
            }
            Action::Add { address, .. } => {
                host.address = address;
                change(host, "add", address)
            }
            Action::Remove { address, .. } => change(host, "delete", address),
            Action::Set { .. } | Action::Rebind { .. } | Action::Reroute => Ok(()),
        };
        if let Err(error) = result {
            failures.push(error.to_string());
        }
    }
    failures
}

fn change(host: &Host, what: &str, address: Ipv4Addr) -> Result<(), NamespaceError> {
    let address = format!("{address}/{PREFIX_LEN}");
    host.namespace
        .ip(&["address", what, &address, "dev", DEVICE])
}
