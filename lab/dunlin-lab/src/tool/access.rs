//! How a client of an experiment connects: the options of all tools that use the
//! client library.

use core::time::Duration;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use dunlin_client::{Builder, Client, StreamPolicy, TicketFile, TlsOptions};

/// Where and how to connect.
#[derive(Args, Clone, Debug)]
pub(super) struct Access {
    #[arg(long)]
    pub(super) url: String,
    #[arg(long)]
    pub(super) ca: PathBuf,
    #[arg(long, default_value = "single")]
    policy: Policy,
    /// Carry messages of QoS 0 in datagrams.
    #[arg(long)]
    datagrams: bool,
    /// Where session tickets are kept.
    #[arg(long)]
    tickets: Option<PathBuf>,
}

/// How messages are spread over streams.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Policy {
    Single,
    PerTopic,
    PerPublish,
    Unordered,
    Auto,
}

impl Access {
    /// A client of that name, to be connected.
    pub(super) fn builder(&self, id: &str) -> Result<Builder> {
        let policy = match self.policy {
            Policy::Single => StreamPolicy::Single,
            Policy::PerTopic => StreamPolicy::PerTopic,
            Policy::PerPublish => StreamPolicy::PerPublish,
            Policy::Unordered => StreamPolicy::PerPublishUnordered,
            Policy::Auto => StreamPolicy::Auto,
        };
        let isolate = self.policy != Policy::Single;
        let mut builder = Client::builder(&self.url)?
            .client_id(id.to_owned())
            .tls(TlsOptions::new().ca_file(&self.ca))
            .streams(policy)
            .isolate_streams(isolate)
            .delivery_streams(isolate)
            .datagrams(self.datagrams);
        if let Some(path) = &self.tickets {
            builder = builder.tickets(TicketFile::open(path)?);
        }
        Ok(builder)
    }

    /// The same with a session that ends with its connection: one that outlives
    /// it would have to get to the disk first.
    pub(super) fn transient(&self, id: &str) -> Result<Builder> {
        let builder = self.builder(id)?.session_expiry(Duration::ZERO);
        Ok(builder.keep_alive(Duration::from_secs(60)))
    }
}

/// The quality of service of that number.
pub(super) const fn quality(qos: u8) -> dunlin_client::QoS {
    match qos {
        0 => dunlin_client::QoS::AtMostOnce,
        1 => dunlin_client::QoS::AtLeastOnce,
        _ => dunlin_client::QoS::ExactlyOnce,
    }
}
