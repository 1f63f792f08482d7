//! WebSocket (RFC 6455) as one binary stream in messages, whose boundaries mean
//! nothing. Bytes in and bytes out; no socket.

mod frame;
mod upgrade;

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use dunlin_base::Text;
use frame::{Decoder, Frame};
pub(crate) use frame::{HEADER_BYTES_MAX, Role, WsError, header, mask};
pub(crate) use upgrade::Place;
use upgrade::Upgrade;

use crate::NetLimits;
use crate::config::Protocols;

/// What came out of received bytes.
pub(crate) enum WsEvent<'a> {
    /// The upgrade is complete.
    Open {
        /// Where the client is, if a trusted proxy wrote it into the request.
        client: Option<SocketAddr>,
    },
    /// Application data.
    Data(&'a [u8]),
    /// The peer sends no more.
    Finished,
}

/// Why the connection must end. What the peer is to learn is already among
/// the answers.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WsFailure {
    #[error("WebSocket: {0}")]
    Frame(#[from] WsError),
    #[error("WebSocket: {0}")]
    Upgrade(String),
}

/// The WebSocket state of one connection.
#[derive(Debug)]
pub(crate) struct WsLayer {
    role: Role,
    /// `None` once the connection is upgraded.
    upgrade: Option<Box<Upgrade>>,
    decoder: Decoder,
    finished: bool,
    /// Our Close frame is written.
    closed: bool,
    /// The subprotocol that was agreed on.
    protocol: Text,
}

/// Answers beyond which a peer that only sends pings gets none.
const ANSWERS_BYTES_MAX: usize = 4096;

impl WsLayer {
    /// A server that speaks these subprotocols, by preference.
    pub(crate) fn server(at: Place, protocols: &Protocols, limits: &NetLimits) -> Self {
        let bytes_max = limits.ws_handshake_bytes_max;
        let upgrade = Upgrade::server(at, Arc::clone(protocols), bytes_max);
        Self::new(Role::Server, upgrade, limits)
    }

    /// A client, and its request.
    pub(crate) fn client(
        host: &str,
        path: &str,
        key: [u8; 16],
        protocols: &Protocols,
        limits: &NetLimits,
    ) -> (Self, String) {
        let bytes_max = limits.ws_handshake_bytes_max;
        let protocols = Arc::clone(protocols);
        let (upgrade, request) = Upgrade::client(host, path, key, protocols, bytes_max);
        (Self::new(Role::Client, upgrade, limits), request)
    }

    fn new(role: Role, upgrade: Upgrade, limits: &NetLimits) -> Self {
        Self {
            role,
            upgrade: Some(Box::new(upgrade)),
            decoder: Decoder::new(role, limits.ws_message_bytes_max),
            finished: false,
            closed: false,
            protocol: Text::new(),
        }
    }

    /// Whether the request may say where the client is.
    pub(crate) fn names_client(&self) -> bool {
        self.upgrade.as_ref().is_some_and(|it| it.names_client())
    }

    /// The subprotocol that was agreed on; empty before.
    pub(crate) const fn protocol(&self) -> &Text {
        &self.protocol
    }

    pub(crate) const fn role(&self) -> Role {
        self.role
    }

    /// Takes received bytes of `peer`, which it unmasks in place. Answers are given to
    /// `answer`; `waiting` is how many bytes wait to leave already.
    ///
    /// # Errors
    /// The peer broke the protocol.
    pub(crate) fn input(
        &mut self,
        data: &mut [u8],
        peer: IpAddr,
        waiting: usize,
        answer: &mut Vec<u8>,
        sink: &mut dyn FnMut(WsEvent<'_>),
    ) -> Result<(), WsFailure> {
        let Some(upgrade) = &mut self.upgrade else {
            return self.frames(data, waiting, answer, sink);
        };
        let Some(mut rest) = upgrade.input(data, peer, answer)? else {
            return Ok(());
        };
        self.protocol = upgrade.take_protocol();
        let client = upgrade.source();
        self.upgrade = None;
        sink(WsEvent::Open { client });
        self.frames(&mut rest, waiting, answer, sink)
    }

    fn frames(
        &mut self,
        mut data: &mut [u8],
        waiting: usize,
        answer: &mut Vec<u8>,
        sink: &mut dyn FnMut(WsEvent<'_>),
    ) -> Result<(), WsFailure> {
        while !self.finished {
            let frame = match self.decoder.next(&mut data) {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) => {
                    self.finished = true;
                    self.close(error.code(), answer);
                    return Err(error.into());
                }
            };
            match frame {
                Frame::Data(bytes) => sink(WsEvent::Data(bytes)),
                Frame::Ping => {
                    if waiting + answer.len() < ANSWERS_BYTES_MAX {
                        let key = self.control_key();
                        frame::put_control(frame::PONG, self.decoder.control(), key, answer);
                    }
                }
                Frame::Pong => {}
                Frame::Close => {
                    self.finished = true;
                    sink(WsEvent::Finished);
                }
            }
        }
        Ok(())
    }

    /// Writes our Close frame, once, if the connection was upgraded.
    pub(crate) fn close(&mut self, code: u16, out: &mut Vec<u8>) {
        if self.upgrade.is_none() && !core::mem::replace(&mut self.closed, true) {
            frame::put_control(frame::CLOSE, &code.to_be_bytes(), self.control_key(), out);
        }
    }

    fn control_key(&self) -> Option<[u8; 4]> {
        (self.role == Role::Client).then(|| {
            let mut key = [0; 4];
            // Without randomness the frame is unmasked in effect, and valid.
            let _ = getrandom::fill(&mut key);
            key
        })
    }
}

/// Keys for the frames that a client sends. They must not be predictable
/// (RFC 6455 section 5.3), so they come from the system, many at once.
#[derive(Debug)]
pub(crate) struct MaskKeys {
    pool: [u8; Self::POOL_BYTES],
    used: usize,
}

impl MaskKeys {
    const POOL_BYTES: usize = 256;

    pub(crate) const fn new() -> Self {
        Self {
            pool: [0; Self::POOL_BYTES],
            used: Self::POOL_BYTES,
        }
    }

    pub(crate) fn next(&mut self) -> [u8; 4] {
        if self.used >= Self::POOL_BYTES {
            self.used = 0;
            let _ = getrandom::fill(&mut self.pool);
        }
        let mut key = [0; 4];
        if let Some(bytes) = self.pool.get(self.used..self.used + 4) {
            key.copy_from_slice(bytes);
        }
        self.used += 4;
        key
    }
}

/// Close code of a normal end.
pub(crate) const CLOSE_NORMAL: u16 = 1000;
