//! A TLS session that puts frames of the test's choice into 1-RTT packets
//! just before they are encrypted: what no honest library would send.

use core::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::BytesMut;
use quinn_proto::crypto::{
    ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey,
    Session,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError};

/// Payloads that replace those of 1-RTT packets, in order.
pub(crate) type Forged = Arc<Mutex<VecDeque<Vec<u8>>>>;

pub(crate) struct ForgingConfig {
    pub(crate) inner: Arc<dyn ClientConfig>,
    pub(crate) forged: Forged,
    /// A transport parameter that is not sent.
    pub(crate) without: Option<u64>,
}

impl ClientConfig for ForgingConfig {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let params = match self.without {
            Some(id) => &without(params, id),
            None => params,
        };
        let inner = Arc::clone(&self.inner).start_session(version, server_name, params)?;
        let forged = Arc::clone(&self.forged);
        Ok(Box::new(ForgingSession { inner, forged }))
    }
}

struct ForgingSession {
    inner: Box<dyn Session>,
    forged: Forged,
}

impl ForgingSession {
    fn wrap(&self, mut keys: KeyPair<Box<dyn PacketKey>>) -> KeyPair<Box<dyn PacketKey>> {
        keys.local = Box::new(ForgingKey {
            inner: keys.local,
            forged: Arc::clone(&self.forged),
        });
        keys
    }
}

impl Session for ForgingSession {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        self.inner.initial_keys(dst_cid, side)
    }
    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.inner.handshake_data()
    }
    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.inner.peer_identity()
    }
    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.inner.early_crypto()
    }
    fn early_data_accepted(&self) -> Option<bool> {
        self.inner.early_data_accepted()
    }
    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }
    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.inner.read_handshake(buf)
    }
    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.inner.transport_parameters()
    }
    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let keys = self.inner.write_handshake(buf)?;
        Some(Keys {
            header: keys.header,
            packet: self.wrap(keys.packet),
        })
    }
    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.inner.next_1rtt_keys()?;
        Some(self.wrap(keys))
    }
    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.inner.is_valid_retry(orig_dst_cid, header, payload)
    }
    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.inner.export_keying_material(output, label, context)
    }
}

struct ForgingKey {
    inner: Box<dyn PacketKey>,
    forged: Forged,
}

impl PacketKey for ForgingKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        let end = buf.len() - self.inner.tag_len();
        let is_short_header = buf[0] & 0x80 == 0;
        let payload = &mut buf[header_len..end];
        let mut forged = self.forged.lock().unwrap();
        let fits = |frames: &Vec<u8>| frames.len() <= payload.len();
        if is_short_header && forged.front().is_some_and(fits) {
            let frames = forged.pop_front().unwrap();
            // The rest becomes PADDING.
            payload.fill(0);
            payload[..frames.len()].copy_from_slice(&frames);
        }
        drop(forged);
        self.inner.encrypt(packet, buf, header_len);
    }
    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.inner.decrypt(packet, header, payload)
    }
    fn tag_len(&self) -> usize {
        self.inner.tag_len()
    }
    fn confidentiality_limit(&self) -> u64 {
        self.inner.confidentiality_limit()
    }
    fn integrity_limit(&self) -> u64 {
        self.inner.integrity_limit()
    }
}

/// Parameters (RFC 9000 section 18) without one of them.
fn without(params: &TransportParameters, unwanted: u64) -> TransportParameters {
    let mut all = Vec::new();
    params.write(&mut all);
    let (mut rest, mut kept) = (all.as_slice(), Vec::new());
    while !rest.is_empty() {
        let before = rest;
        let (id, len) = (read_varint(&mut rest), read_varint(&mut rest));
        rest = &rest[usize::try_from(len).unwrap()..];
        if id != unwanted {
            kept.extend_from_slice(&before[..before.len() - rest.len()]);
        }
    }
    assert!(kept.len() < all.len(), "it was there");
    // The reader is the other side.
    TransportParameters::read(Side::Server, &mut kept.as_slice()).unwrap()
}

fn read_varint(bytes: &mut &[u8]) -> u64 {
    let (number, rest) = bytes.split_at(1 << (bytes[0] >> 6));
    *bytes = rest;
    let value = number.iter().fold(0, |n, b| n << 8 | u64::from(*b));
    value & (u64::MAX >> (66 - 8 * number.len()))
}

/// A variable-length integer (RFC 9000 section 16) in eight bytes.
pub(crate) fn varint(value: u64) -> [u8; 8] {
    (value | 0xc0 << 56).to_be_bytes()
}

/// A frame: its type, then fields.
pub(crate) fn frame(kind: u8, fields: &[u64], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    for field in fields {
        bytes.extend(varint(*field));
    }
    bytes.extend(data);
    bytes
}
