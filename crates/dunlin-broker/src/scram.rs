//! Enhanced authentication (MQTT 5.0 section 4.12) with SCRAM-SHA-256, at
//! CONNECT and again later.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_base::{StreamId, Text};
use dunlin_mqtt::codec::{Auth, AuthProperties, Connect, Packet, ReasonCode};
use dunlin_mqtt::scram::{ClientFirst, METHOD, StoredKeys};

use crate::auth::{AuthAnswer, AuthRequest, ScramCredential};
use crate::conn::{ConnIdx, PendingConnect, Phase};
use crate::connect::Identity;
use crate::fault::Fault;
use crate::io::Output;
use crate::link::Flow;
use crate::session::SessionIdx;
use crate::shard::Shard;

/// A SCRAM exchange after the client's first message.
#[derive(Debug)]
pub(crate) struct ScramExchange {
    client_first: Bytes,
    server_first: Vec<u8>,
    keys: Option<StoredKeysOpaque>,
    user: Text,
}

/// Keys that stay out of logs.
pub(crate) struct StoredKeysOpaque(StoredKeys);

impl core::fmt::Debug for StoredKeysOpaque {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("StoredKeys")
    }
}

impl ScramExchange {
    /// Reads the client's first message; the keys are still to be asked for.
    fn begin(data: &[u8]) -> Result<Self, Fault> {
        let first = ClientFirst::parse(data).map_err(|_| NOT_AUTHORIZED)?;
        Ok(Self {
            client_first: Bytes::copy_from_slice(data),
            server_first: Vec::new(),
            keys: None,
            user: Text::from(first.user_name()),
        })
    }

    /// The server's first message.
    fn challenge(&mut self, nonce: &str, credential: &ScramCredential) -> Result<(), Fault> {
        let first = ClientFirst::parse(&self.client_first).map_err(|_| NOT_AUTHORIZED)?;
        first
            .respond(
                nonce,
                &credential.salt,
                credential.iterations,
                &mut self.server_first,
            )
            .map_err(|_| NOT_AUTHORIZED)?;
        self.keys = Some(StoredKeysOpaque(StoredKeys {
            stored_key: credential.stored_key,
            server_key: credential.server_key,
        }));
        Ok(())
    }

    /// Checks the client's proof; returns the server's last message.
    fn finish(&self, client_final: &[u8]) -> Result<Bytes, Fault> {
        let first = ClientFirst::parse(&self.client_first).map_err(|_| NOT_AUTHORIZED)?;
        let keys = self.keys.as_ref().ok_or(NOT_AUTHORIZED)?;
        let mut out = Vec::new();
        first
            .verify(&self.server_first, client_final, &keys.0, &mut out)
            .map_err(|_| NOT_AUTHORIZED)?;
        Ok(out.into())
    }
}

const NOT_AUTHORIZED: Fault = Fault::new(ReasonCode::NotAuthorized, "authentication failed");

impl Shard {
    /// CONNECT with an authentication method.
    pub(crate) fn begin_exchange(
        &mut self,
        c: ConnIdx,
        method: &str,
        connect: &Connect<'_>,
        pending: PendingConnect,
    ) {
        let known = self
            .conns
            .get(c)
            .is_some_and(|conn| self.policy(conn.peer.listener).passwords);
        if method != METHOD || !known {
            //= mqtt5#[MQTT-4.12.0-1]
            return self.refuse(c, ReasonCode::BadAuthenticationMethod);
        }
        let data = connect.properties.authentication_data.unwrap_or_default();
        match ScramExchange::begin(data) {
            Ok(exchange) => {
                let user = exchange.user.clone();
                let phase = Phase::Exchanging(Box::new(pending), Box::new(exchange));
                self.ask(c, phase, AuthRequest::Scram { user });
            }
            Err(fault) => self.refuse(c, fault.reason),
        }
    }

    /// The authenticator gave the keys of a user: the challenge leaves.
    pub(crate) fn challenge(&mut self, c: ConnIdx, answer: &AuthAnswer) {
        let nonce = format!("{:016x}{:016x}", self.random.next(), self.random.next());
        let Some(conn) = self.conns.get_mut(c) else {
            return;
        };
        let again = conn.reauth.is_some();
        let ((Phase::Exchanging(_, exchange), _) | (_, Some(exchange))) =
            (&mut conn.phase, &mut conn.reauth)
        else {
            return;
        };
        let outcome = match answer {
            AuthAnswer::Scram(credential) => exchange.challenge(&nonce, credential),
            AuthAnswer::Busy => Err(Fault::new(ReasonCode::ServerBusy, "authenticator busy")),
            _ => Err(NOT_AUTHORIZED),
        };
        let data = exchange.server_first.clone();
        match outcome {
            Ok(()) => self.send_auth(c, ReasonCode::ContinueAuthentication, &data),
            Err(fault) if again => self.fail(c, StreamId::CONTROL, fault),
            Err(fault) => self.refuse(c, fault.reason),
        }
    }

    fn send_auth(&mut self, c: ConnIdx, reason: ReasonCode, data: &[u8]) {
        let packet = Packet::Auth(Auth {
            reason,
            properties: AuthProperties {
                authentication_method: Some(METHOD),
                authentication_data: Some(data),
                ..AuthProperties::default()
            },
        });
        self.send(c, StreamId::CONTROL, &packet);
    }

    /// AUTH between CONNECT and CONNACK.
    pub(crate) fn handle_auth_exchange(
        &mut self,
        c: ConnIdx,
        auth: &Auth<'_>,
    ) -> Result<Flow, Fault> {
        let Some(conn) = self.conns.get_mut(c) else {
            return Ok(Flow::Continue);
        };
        let Phase::Exchanging(_, exchange) = &conn.phase else {
            return Ok(Flow::Continue);
        };
        //= mqtt5#[MQTT-4.12.0-5]
        if auth.properties.authentication_method != Some(METHOD)
            || auth.reason != ReasonCode::ContinueAuthentication
        {
            return Err(Fault::protocol("AUTH does not continue the exchange"));
        }
        let data = auth.properties.authentication_data.unwrap_or_default();
        match exchange.finish(data) {
            Ok(last) => {
                let identity = Identity {
                    user: Some(exchange.user.clone()),
                    data: Some(last),
                };
                if let Phase::Exchanging(pending, _) =
                    core::mem::replace(&mut conn.phase, Phase::ExpectConnect)
                {
                    self.accept_pending(c, *pending, identity);
                }
            }
            //= mqtt5#[MQTT-4.12.0-4]
            Err(fault) => self.refuse(c, fault.reason),
        }
        Ok(Flow::Continue)
    }

    /// AUTH of a connected client: re-authentication (section 4.12.1).
    pub(crate) fn handle_reauth(
        &mut self,
        c: ConnIdx,
        s: SessionIdx,
        auth: &Auth<'_>,
    ) -> Result<(), Fault> {
        let Some(conn) = self.conns.get_mut(c) else {
            return Ok(());
        };
        //= mqtt5#[MQTT-4.12.1-1]
        if conn.auth_method.as_deref() != auth.properties.authentication_method
            || conn.auth_method.is_none()
        {
            return Err(Fault::protocol("not the method of CONNECT"));
        }
        let data = auth.properties.authentication_data.unwrap_or_default();
        match (auth.reason, conn.reauth.take()) {
            (ReasonCode::ReAuthenticate, None) => {
                let exchange = ScramExchange::begin(data)?;
                let user = exchange.user.clone();
                conn.reauth = Some(Box::new(exchange));
                let conn = conn.id;
                let request = AuthRequest::Scram { user };
                self.output(Output::Auth { conn, request });
                Ok(())
            }
            (ReasonCode::ContinueAuthentication, Some(exchange)) => {
                //= mqtt5#[MQTT-4.12.1-2]
                let last = exchange.finish(data)?;
                let user = exchange.user.clone();
                if self.sessions.get(s).is_some_and(|session| {
                    session.user.as_ref().is_some_and(|known| *known != user)
                }) {
                    return Err(NOT_AUTHORIZED);
                }
                self.send_auth(c, ReasonCode::Success, &last);
                Ok(())
            }
            _ => Err(Fault::protocol("AUTH does not continue an exchange")),
        }
    }
}
