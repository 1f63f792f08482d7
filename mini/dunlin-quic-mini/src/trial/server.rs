//! A server that resumes the session of one ticket, so that it needs no
//! certificate, and whose messages a test can change.

use alloc::vec;
use alloc::vec::Vec;

use dunlin_mini_crypto::{Crypto, CryptoError, Digest, Suite};

use super::quick::{PUBLIC, Quick};

#[cfg(test)]
use crate::Error;
use crate::hello::{advance, bind, derive, finished, trust};
use crate::keys::{self, Keys};
use crate::wire::{Reader, Writer};
use crate::{Buffers, Client, Config, Pinned, Point, Resume, StreamId};

type Tested = Client<Quick, Pinned<'static>, Buffers<2, 512, 512, 1024, 1024>>;

const PSK: Digest = [5; 32];
/// Pinned in all tests; certificates must have it.
pub(crate) const KEYS: [Point; 1] = [[4; 65]];
/// The server's connection id.
pub(crate) const ID: [u8; 5] = [9, 8, 7, 6, 5];

/// `SHA-256("HelloRetryRequest")` (RFC 8446 section 4.1.3).
const RETRY_RANDOM: Digest = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// Bytes that differ from call to call.
fn source(out: &mut [u8]) -> Result<(), CryptoError> {
    use core::sync::atomic::{AtomicU8, Ordering};
    static NEXT: AtomicU8 = AtomicU8::new(1);
    for byte in out {
        *byte = NEXT.fetch_add(37, Ordering::Relaxed) | 1;
    }
    Ok(())
}

pub(crate) fn host() -> Quick {
    Quick::new(source)
}

/// A message with its head.
pub(crate) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).unwrap().to_be_bytes();
    let mut all = vec![kind, len[1], len[2], len[3]];
    all.extend_from_slice(body);
    all
}

/// An extension.
pub(crate) fn extension(id: u16, body: &[u8]) -> Vec<u8> {
    let mut all = id.to_be_bytes().to_vec();
    all.extend_from_slice(&u16::try_from(body.len()).unwrap().to_be_bytes());
    all.extend_from_slice(body);
    all
}

/// Keys of both directions at one level, and the server's next number.
struct Level {
    read: Keys<Quick>,
    write: Keys<Quick>,
    next: u32,
}

/// Both ends.
pub(crate) struct Pair {
    pub(crate) client: Tested,
    crypto: Quick,
    levels: Vec<Level>,
    pub(crate) transcript: Vec<u8>,
    /// The client's first id for the server.
    pub(crate) original: [u8; 8],
    share: Point,
    schedule: Digest,
    secrets: [Digest; 2],
    /// What packets behind the hellos are protected with.
    suite: Suite,
    /// Bytes of handshake messages sent at the level.
    sent: u32,
    /// Bytes of all hellos of the client.
    said: usize,
    /// When packets of the server arrive.
    pub(crate) now: u32,
    /// Bytes of a token in its Initial packets, where none may be.
    pub(crate) token: u8,
    /// The last of them.
    pub(crate) last: Vec<u8>,
}

/// What a server may say differently.
pub(crate) struct Answer {
    pub(crate) random: [u8; 32],
    pub(crate) session: &'static [u8],
    pub(crate) suite: [u8; 2],
    /// Extensions of the ServerHello; the key share comes behind them.
    pub(crate) hello: Vec<u8>,
    pub(crate) group: u8,
    pub(crate) bad_point: bool,
    /// Extensions in front of the parameters.
    pub(crate) extensions: Vec<u8>,
    pub(crate) parameters: Option<Vec<u8>>,
    pub(crate) bad_finished: bool,
}

impl Pair {
    /// A client that has sent its hello.
    pub(crate) fn new(resume: bool) -> Self {
        Self::resuming(resume.then_some((Suite::Aes128Gcm, false)))
    }

    /// The same, with a ticket of a connection with this suite, and whether the
    /// server takes early data with it.
    pub(crate) fn resuming(ticket: Option<(Suite, bool)>) -> Self {
        let client = Client::new(host(), Pinned::new(&KEYS), Buffers::new());
        Self::with(client, b"broker", ticket)
    }

    /// One that names no server.
    #[cfg(test)]
    pub(crate) fn nameless() -> Self {
        let client = Client::new(host(), Pinned::new(&KEYS), Buffers::new());
        Self::with(client, b"", Some((Suite::Aes128Gcm, false)))
    }

    /// The same client with the same memory, that has sent another hello.
    pub(crate) fn again(self) -> Self {
        let mut client = self.client;
        client.clear();
        Self::with(client, b"broker", Some((Suite::Aes128Gcm, false)))
    }

    fn with(mut client: Tested, name: &[u8], resume: Option<(Suite, bool)>) -> Self {
        let form = if resume.is_some_and(|(suite, _)| suite != Suite::Aes128Gcm) {
            3
        } else {
            2
        };
        let mut ticket = vec![form, 1, 0, 0, 255, 255, 0, 0, 0, 1];
        ticket.extend_from_slice(&PSK);
        let verifier = Pinned::new(&KEYS);
        ticket.extend_from_slice(&trust(&mut host(), &verifier, name, b"mqtt"));
        ticket.extend_from_slice(&[0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 0, 2, 0, 2, 7, 7]);
        let config = Config {
            name,
            alpn: b"mqtt",
            idle_ms: 10_000,
            max_datagram: 1472,
            token: &[],
            resume: resume.map(|(_, early)| Resume {
                ticket: &ticket,
                age_ms: 0,
                early,
            }),
        };
        client.connect(0, &config).unwrap();
        let mut pair = Self {
            client,
            crypto: host(),
            levels: Vec::new(),
            transcript: Vec::new(),
            original: [0; 8],
            share: [0; 65],
            schedule: [0; 32],
            secrets: [[0; 32]; 2],
            suite: Suite::Aes128Gcm,
            sent: 0,
            said: 0,
            now: 1,
            token: 0,
            last: Vec::new(),
        };
        let mut out = [0; 1200];
        assert_eq!(pair.client.transmit(0, &mut out), 1200);
        pair.original.copy_from_slice(&out[6..14]);
        let [read, write] = keys::initial(&mut pair.crypto, &pair.original)
            .map(|secret| Keys::new(&mut pair.crypto, Suite::Aes128Gcm, &secret));
        pair.levels.push(Level {
            read,
            write,
            next: 0,
        });
        let payload = pair.open(0, &mut out, 18);
        let mut frame = Reader(&payload);
        assert_eq!((frame.u8(), frame.varint()), (Some(6), Some(0)));
        pair.transcript = frame.varvec().unwrap().to_vec();
        pair.said = pair.transcript.len();
        let head = [0, 0x17, 0, 65];
        let at = pair
            .transcript
            .windows(4)
            .position(|part| part == head)
            .unwrap();
        pair.share
            .copy_from_slice(&pair.transcript[at + 4..at + 69]);
        pair
    }

    /// Opens a packet of the client.
    pub(crate) fn open(&mut self, level: usize, packet: &mut [u8], at: usize) -> Vec<u8> {
        let mut end = packet.len();
        if level < 2 {
            // Behind a long one are zeros.
            end = at + usize::from(u16::from_be_bytes([packet[at - 2], packet[at - 1]]) & 0x3fff);
            assert!(packet[end..].iter().all(|byte| *byte == 0));
        }
        let packet = &mut packet[..end];
        let keys = &self.levels[level].read;
        let (pn, header) = keys.unmask(&mut self.crypto, packet, at).unwrap();
        let payload = keys.packet().open(&mut self.crypto, pn, packet, header);
        payload.unwrap().to_vec()
    }

    /// Gives the client a packet with these frames.
    pub(crate) fn send(&mut self, level: usize, frames: &[u8]) {
        self.numbered(level, self.levels[level].next, frames);
    }

    /// The same with a number of choice.
    pub(crate) fn numbered(&mut self, level: usize, pn: u32, frames: &[u8]) {
        let mut packet = Vec::new();
        if level < 2 {
            packet.extend_from_slice(&[if level == 0 { 0xc3 } else { 0xe3 }, 0, 0, 0, 1, 0, 5]);
            packet.extend_from_slice(&ID);
            if level == 0 {
                packet.push(self.token);
                packet.resize(packet.len() + usize::from(self.token), 7);
            }
            let len = u16::try_from(4 + frames.len() + 16).unwrap() | 0x4000;
            packet.extend_from_slice(&len.to_be_bytes());
        } else {
            packet.push(0x43);
        }
        let at = packet.len();
        packet.extend_from_slice(&pn.to_be_bytes());
        packet.extend_from_slice(frames);
        packet.extend_from_slice(&[0; 16]);
        let keys = &self.levels[level].write;
        keys.seal(&mut self.crypto, pn, &mut packet, at).unwrap();
        self.levels[level].next = pn.wrapping_add(1);
        self.last.clone_from(&packet);
        self.client.receive(self.now, &mut packet);
    }

    /// The frames of the client's next 1-RTT packet, without padding.
    #[cfg(test)]
    pub(crate) fn said(&mut self) -> Vec<u8> {
        let mut out = [0; 1200];
        // What waits for company goes with the timer.
        let len = self.client.transmit(100, &mut out);
        let payload = self.open(2, &mut out[..len], 1 + ID.len());
        let end = payload.iter().rposition(|&byte| byte != 0);
        payload[..end.map_or(0, |end| end + 1)].to_vec()
    }

    /// Sends handshake messages.
    pub(crate) fn crypto(&mut self, level: usize, messages: &[u8]) {
        let mut frame = vec![0; messages.len() + 20];
        let mut writer = Writer::new(&mut frame);
        writer.u8(6);
        writer.varint(self.sent);
        writer.varint(u32::try_from(messages.len()).unwrap());
        writer.put(messages);
        let len = writer.len();
        self.sent += u32::try_from(messages.len()).unwrap();
        self.send(level, &frame[..len]);
    }

    /// The tag that makes a Retry genuine.
    #[cfg(test)]
    pub(crate) fn retry_tag(&mut self, packet: &[u8]) -> [u8; 16] {
        let mut pseudo = vec![8];
        pseudo.extend_from_slice(&self.original);
        pseudo.extend_from_slice(packet);
        keys::retry_tag(&mut self.crypto, &pseudo)
    }

    fn hash(&mut self) -> Digest {
        let mut hash = self.crypto.hash();
        self.crypto.update(&mut hash, &self.transcript);
        self.crypto.finish(hash)
    }

    fn traffic(&mut self, client: &[u8], server: &[u8]) {
        let hash = self.hash();
        let crypto = &mut self.crypto;
        self.secrets = [client, server].map(|label| derive(crypto, &self.schedule, label, &hash));
        let suite = self.suite;
        let keys = self.secrets.map(|secret| Keys::new(crypto, suite, &secret));
        let [read, write] = keys;
        self.levels.push(Level {
            read,
            write,
            next: 0,
        });
        self.sent = 0;
    }

    /// What an honest server answers.
    pub(crate) fn honest(&self) -> Answer {
        let mut parameters = vec![0x00, 8];
        parameters.extend_from_slice(&self.original);
        parameters.extend_from_slice(&[0x0f, 5]);
        parameters.extend_from_slice(&ID);
        // max_data, stream data, streams.
        parameters.extend_from_slice(&[4, 2, 0x44, 0, 6, 2, 0x42, 0, 8, 1, 2]);
        let mut hello = extension(43, &[3, 4]);
        hello.extend(extension(41, &[0, 0]));
        Answer {
            random: [3; 32],
            session: &[],
            suite: [0x13, 1],
            hello,
            group: 0x17,
            bad_point: false,
            extensions: extension(16, b"\0\x05\x04mqtt"),
            parameters: Some(parameters),
            bad_finished: false,
        }
    }

    /// Sends a HelloRetryRequest with these extensions, and takes the second
    /// hello, which it gives, if there is one.
    pub(crate) fn ask(&mut self, extensions: &[u8]) -> Option<Vec<u8>> {
        self.ask_with(1, extensions)
    }

    /// The same with the second byte of a suite's number.
    pub(crate) fn ask_with(&mut self, suite: u8, extensions: &[u8]) -> Option<Vec<u8>> {
        let mut body = vec![3, 3];
        body.extend_from_slice(&RETRY_RANDOM);
        body.extend_from_slice(&[0, 0x13, suite, 0]);
        body.extend_from_slice(&u16::try_from(extensions.len()).unwrap().to_be_bytes());
        body.extend_from_slice(extensions);
        let request = message(2, &body);
        let first = self.hash();
        let offset = self.said;
        self.transcript = message(254, &first);
        self.transcript.extend_from_slice(&request);
        self.crypto(0, &request);
        let mut out = [0; 1200];
        let len = self.client.transmit(self.now, &mut out);
        if len == 0 || self.client.error().is_some() {
            return None;
        }
        let payload = self.open(0, &mut out[..len], 10 + ID.len());
        let mut frames = Reader(&payload);
        if payload.first() == Some(&2) {
            // An acknowledgement: type, largest, delay, no more ranges, range.
            for _ in 0..5 {
                frames.varint();
            }
        }
        let head = (frames.u8(), frames.varint());
        assert_eq!(head, (Some(6), u32::try_from(offset).ok()));
        let hello = frames.varvec().unwrap().to_vec();
        self.said += hello.len();
        let before = self.transcript.clone();
        self.transcript.extend_from_slice(&hello);
        if hello.windows(3).any(|part| part == [0, 33, 32]) {
            // The binder covers all messages before.
            let mut hash = self.crypto.hash();
            self.crypto.update(&mut hash, &before);
            let early = self.crypto.extract(&[0; 32], &PSK);
            let mut bound = hello.clone();
            bind(&mut self.crypto, &early, hash, &mut bound).unwrap();
            assert_eq!(bound, hello, "the binder");
        }
        Some(hello)
    }

    /// Sends the ServerHello and derives the secrets.
    pub(crate) fn hello(&mut self, answer: &Answer) {
        let mut public = PUBLIC;
        let shared = self.crypto.agree(&(), &self.share).unwrap();
        if answer.bad_point {
            public[64] ^= 1;
        }
        let mut body = vec![3, 3];
        body.extend_from_slice(&answer.random);
        body.push(u8::try_from(answer.session.len()).unwrap());
        body.extend_from_slice(answer.session);
        body.extend_from_slice(&answer.suite);
        body.push(0);
        let len = if answer.group == 0x1d { 32 } else { 65 };
        let mut share = vec![0, answer.group, 0, len];
        share.extend_from_slice(&public[..usize::from(len)]);
        let mut extensions = answer.hello.clone();
        extensions.extend(extension(51, &share));
        body.extend_from_slice(&u16::try_from(extensions.len()).unwrap().to_be_bytes());
        body.extend_from_slice(&extensions);
        let hello = message(2, &body);
        self.transcript.extend_from_slice(&hello);
        self.crypto(0, &hello);
        let number = u16::from_be_bytes(answer.suite);
        let known = Quick::SUITES.iter().find(|suite| suite.number() == number);
        self.suite = known.copied().unwrap_or(Suite::Aes128Gcm);
        let resumed = answer.hello.windows(2).any(|id| id == [0, 41]);
        let psk = if resumed { PSK } else { [0; 32] };
        let early = self.crypto.extract(&[0; 32], &psk);
        self.schedule = advance(&mut self.crypto, &early, &shared);
        self.traffic(b"c hs traffic", b"s hs traffic");
    }

    /// EncryptedExtensions.
    pub(crate) fn encrypted_extensions(&mut self, answer: &Answer) -> Vec<u8> {
        let mut list = answer.extensions.clone();
        if let Some(parameters) = &answer.parameters {
            list.extend(extension(57, parameters));
        }
        let mut body = u16::try_from(list.len()).unwrap().to_be_bytes().to_vec();
        body.extend_from_slice(&list);
        let message = message(8, &body);
        self.transcript.extend_from_slice(&message);
        message
    }

    /// The rest of the handshake, as one frame.
    pub(crate) fn finish(&mut self, answer: &Answer) {
        let mut flight = self.encrypted_extensions(answer);
        let hash = self.hash();
        let mut mac = finished(&mut self.crypto, &self.secrets[1], &hash);
        mac[3] ^= u8::from(answer.bad_finished);
        let last = message(20, &mac);
        flight.extend_from_slice(&last);
        self.transcript.extend_from_slice(&last);
        self.crypto(1, &flight);
        self.schedule = advance(&mut self.crypto, &self.schedule, &[0; 32]);
        self.traffic(b"c ap traffic", b"s ap traffic");
    }

    /// The error after a whole handshake with changes.
    #[cfg(test)]
    pub(crate) fn refused(change: impl FnOnce(&mut Answer)) -> Option<Error> {
        let mut pair = Self::new(true);
        let mut answer = pair.honest();
        change(&mut answer);
        pair.hello(&answer);
        if pair.client.error().is_none() {
            pair.finish(&answer);
        }
        pair.client.error()
    }

    /// What an honest server does.
    pub(crate) fn shake(&mut self) {
        let answer = self.honest();
        self.hello(&answer);
        self.finish(&answer);
        assert_eq!(self.client.error(), None);
    }

    /// A connection with one open stream that has sent four bytes.
    pub(crate) fn connected() -> (Self, StreamId) {
        let mut pair = Self::new(true);
        pair.shake();
        let id = pair.client.open().unwrap();
        pair.client.write(id, b"ping").unwrap();
        let mut out = [0; 1200];
        while pair.client.transmit(1, &mut out) > 0 {}
        (pair, id)
    }
}
