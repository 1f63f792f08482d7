//! How `pub` and `sub` connect, and what they say of it: from the first attempt to
//! later connections.

use core::pin::pin;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use dunlin_base::transport::CloseCause;
use dunlin_client::{
    Builder, Client, ConnectError, Connecting, ConnectionEvent, DisconnectCause, Events, Messages,
    Transport, Url, Version,
};

use super::Connect;
use crate::causes::sentence;
use crate::cmd::tools::losses::Losses;
use crate::cmd::tools::timing::Reconnection;

/// Later connections that are remembered for `--timing`.
const RECONNECTIONS_MAX: usize = 1000;

/// A connection that is being made, and what is heard of it.
pub(in crate::cmd) struct Begun {
    connecting: Connecting,
    events: Events,
}

/// A connection that the server has accepted.
pub(in crate::cmd) struct Opened {
    /// What the server said to early data, if there was any.
    pub(in crate::cmd) early: Option<bool>,
    /// What it is over.
    pub(in crate::cmd) transport: Option<Transport>,
    /// What comes after it.
    pub(in crate::cmd) events: Events,
}

impl Connect {
    /// For a connection that is too short to search for a larger packet size.
    pub(in crate::cmd) fn briefly(&self, builder: Builder) -> Builder {
        builder.network(self.network.options().mtu_discovery(false))
    }

    /// Begins to connect.
    pub(in crate::cmd) fn start(&self, builder: Builder) -> Result<(Client, Messages, Begun)> {
        self.say(|| "Client sending CONNECT".into());
        let (client, messages, mut connecting) = builder.start()?;
        let events = connecting.events();
        Ok((client, messages, Begun { connecting, events }))
    }

    /// Waits for the server's answer; `Err` is the exit code, after the error has
    /// been printed.
    pub(in crate::cmd) async fn connected(
        &self,
        client: &Client,
        begun: Begun,
    ) -> Result<Result<Opened, ExitCode>> {
        let Begun {
            connecting,
            mut events,
        } = begun;
        match connecting.await {
            Ok(()) => {
                let (mut early, mut over) = (None, None);
                while let Some(event) = events.next().await {
                    match event {
                        ConnectionEvent::EarlyData { accepted } => early = Some(accepted),
                        ConnectionEvent::Connected { transport, .. } => {
                            over = Some(transport);
                            break;
                        }
                        _ => {}
                    }
                }
                let id = client.client_id();
                match early {
                    Some(true) => self.say(|| format!("Client {id} early data accepted")),
                    Some(false) => self.say(|| format!("Client {id} early data sent again")),
                    None => {}
                }
                if let Some(transport) = over {
                    self.say_connected(client, transport);
                }
                self.say(|| format!("Client {id} received CONNACK (0)"));
                Ok(Ok(Opened {
                    early,
                    transport: over,
                    events,
                }))
            }
            Err(ConnectError::Failed(cause)) => {
                let hint = self.hint(&cause);
                self.complain(&format_args!("Error: {}{hint}", sentence(&cause)));
                Ok(Err(self.exit_code(&cause)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Says why the connection is gone for good.
    pub(in crate::cmd) async fn lost(&self, mut events: Events) -> ExitCode {
        let mut last = None;
        while let Some(event) = events.next().await {
            if let ConnectionEvent::Disconnected { cause } = event {
                last = Some(cause);
            }
        }
        let Some(cause) = last else {
            return ExitCode::FAILURE;
        };
        let error = sentence(&cause);
        self.complain(&format_args!("Error: {error}"));
        self.exit_code(&cause)
    }

    fn say_connected(&self, client: &Client, transport: Transport) {
        let scheme = dunlin_client::scheme(transport);
        self.say(|| format!("Client {} connected over {scheme}", client.client_id()));
    }

    /// Does the work, and says meanwhile what happens to the connection.
    pub(in crate::cmd) async fn watching<T>(
        &self,
        client: &Client,
        mut events: Events,
        work: impl Future<Output = T>,
    ) -> (T, Vec<Reconnection>) {
        let mut later = Vec::new();
        let mut losses = Losses::default();
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return (done, later),
                Some(event) = events.next() => match event {
                    ConnectionEvent::Disconnected { cause } => losses.lost(&cause),
                    ConnectionEvent::Reconnecting { .. } => {
                        if let Some(cause) = losses.news() {
                            self.complain(&format_args!("Warning: {cause}; trying again"));
                        }
                    }
                    ConnectionEvent::Connected { transport, .. } => {
                        if losses.over() {
                            self.complain(&"Connected again");
                        }
                        self.say_connected(client, transport);
                        if later.len() < RECONNECTIONS_MAX {
                            later.push((Instant::now(), transport));
                        }
                    }
                    ConnectionEvent::Migrated(moved) => self.say(|| {
                        let id = client.client_id();
                        format!("Client {id} moved from {} to {}", moved.from, moved.to)
                    }),
                    _ => {}
                },
            }
        }
    }

    /// What to look at when QUIC gets no answer: nothing refuses a datagram.
    fn hint(&self, cause: &DisconnectCause) -> &'static str {
        let is_silence = matches!(
            cause,
            DisconnectCause::Transport(CloseCause::HandshakeTimeout)
        );
        let is_quic = |url: &Url| url.transport() == Transport::Quic && !url.is_auto();
        match self.parse_url() {
            Ok(url) if is_silence && is_quic(&url) => {
                " (no answer by UDP: is the port right, does a firewall block UDP? \
                 auto:// takes TLS where QUIC does not get through)"
            }
            _ => "",
        }
    }

    /// mosquitto exits with the reason code of a refusal, and with 1 when there
    /// was no server to refuse.
    fn exit_code(&self, cause: &DisconnectCause) -> ExitCode {
        match cause {
            DisconnectCause::Refused { reason, .. } => match self.protocol_version {
                Version::V311 => ExitCode::from(reason.connack_v3_code()),
                Version::V5 => ExitCode::from(reason.to_u8()),
            },
            DisconnectCause::Server { reason, .. } if reason.is_error() => {
                ExitCode::from(reason.to_u8())
            }
            _ => ExitCode::FAILURE,
        }
    }
}
