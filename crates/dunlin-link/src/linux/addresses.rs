//! Changes the addresses of the hosts, on a thread of its own, because the
//! `ip` command takes longer than packets may wait.

use core::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use super::DEVICE;
use super::namespace::{Namespace, NamespaceError};
use crate::link::Side;
use crate::script::Action;

/// Bits of an address that all hosts of a link share.
pub(super) const PREFIX_LEN: u8 = 16;

#[derive(Debug)]
pub(super) struct Host {
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
    pub(super) fn start(hosts: [Host; 2]) -> Self {
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

fn work(mut hosts: [Host; 2], actions: &Receiver<Action>) -> Vec<String> {
    let mut failures = Vec::new();
    for action in actions {
        let result = match action {
            Action::Move { side, address } => {
                let host = host(&mut hosts, side);
                let old = core::mem::replace(&mut host.address, address);
                change(host, "delete", old).and_then(|()| change(host, "add", address))
            }
            Action::Add { side, address } => {
                let host = host(&mut hosts, side);
                host.address = address;
                change(host, "add", address)
            }
            Action::Remove { side, address } => change(host(&mut hosts, side), "delete", address),
            Action::Set { .. } | Action::Rebind { .. } => Ok(()),
        };
        if let Err(error) = result {
            failures.push(error.to_string());
        }
    }
    failures
}

const fn host(hosts: &mut [Host; 2], side: Side) -> &mut Host {
    let [a, b] = hosts;
    match side {
        Side::A => a,
        Side::B => b,
    }
}

fn change(host: &Host, what: &str, address: Ipv4Addr) -> Result<(), NamespaceError> {
    let address = format!("{address}/{PREFIX_LEN}");
    host.namespace
        .ip(&["address", what, &address, "dev", DEVICE])
}
