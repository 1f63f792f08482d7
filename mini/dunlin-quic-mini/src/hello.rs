//! The ClientHello, and the session ticket that it may offer (RFC 8446
//! sections 4.1.2 and 4.2). Knows no packet.

use dunlin_mini_crypto::{Crypto, Digest, Group, HASH_LEN, Share, Suite};

use crate::error::Error;
use crate::keys::expand_label;
use crate::params::{Own, Params};
use crate::retry::{Places, key_share};
use crate::verify::Verifier;
#[cfg(feature = "client-certificate")]
use crate::verify::shown;
use crate::wire::{Reader, Writer};

/// SHA-256 of nothing.
const EMPTY_HASH: Digest = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
    0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

/// supported_versions (TLS 1.3), signature_algorithms (ecdsa_secp256r1_sha256)
/// and psk_key_exchange_modes (psk_dhe_ke).
const FIXED: [u8; 7 + 8 + 6] = [
    0, 43, 0, 3, 2, 3, 4, //
    0, 13, 0, 4, 0, 2, 4, 3, //
    0, 45, 0, 2, 1, 1,
];

/// Bytes at the end of a ClientHello that the binder does not cover.
const BINDERS: usize = 2 + 1 + HASH_LEN;

/// What a hello is made of.
pub(crate) struct Hello<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) alpn: &'a [u8],
    pub(crate) own: Own,
    pub(crate) resume: Option<(&'a Ticket<'a>, u32)>,
    pub(crate) early: bool,
    pub(crate) trust: Trust,
}

impl Hello<'_> {
    /// The suite that early data is protected with.
    pub(crate) fn suite(&self) -> Suite {
        self.resume
            .map_or(Suite::Aes128Gcm, |(ticket, _)| ticket.suite)
    }
}

/// What a connection and the ticket that it offers must have in common.
pub(crate) type Trust = [u8; 8];

/// Hashes the server's name, the protocol and who is believed. A server that
/// takes a ticket shows no certificate: without this, a key that is pinned no
/// more would be good for as long as its last ticket, and a ticket of one server
/// for another (RFC 8446 section 4.6.1).
#[inline(never)]
pub(crate) fn trust<C: Crypto, V: Verifier>(
    crypto: &mut C,
    verifier: &V,
    name: &[u8],
    alpn: &[u8],
) -> Trust {
    let mut hash = crypto.hash();
    for part in [name, alpn] {
        crypto.update(&mut hash, &part.len().to_le_bytes());
        crypto.update(&mut hash, part);
    }
    verifier.believed(crypto, &mut hash);
    // With a ticket the server takes the client for who it was, so that it is of no
    // use to another.
    #[cfg(feature = "client-certificate")]
    if let Some(identity) = shown(verifier) {
        crypto.update(&mut hash, &identity.certificates.len().to_le_bytes());
        crypto.update(&mut hash, identity.certificates);
    }
    let [a, b, c, d, e, f, g, h, ..] = crypto.finish(hash);
    [a, b, c, d, e, f, g, h]
}

/// A ticket as this client stores it.
pub(crate) struct Ticket<'a> {
    /// Whether the server takes early data with it.
    pub(crate) early: bool,
    /// The suite of its connection: that of early data with it.
    pub(crate) suite: Suite,
    lifetime: u32,
    age_add: u32,
    pub(crate) psk: &'a Digest,
    pub(crate) trust: &'a Trust,
    pub(crate) params: Params,
    identity: &'a [u8],
}

/// The form of stored tickets, the first byte; it tells the suite.
const fn form(suite: Suite) -> u8 {
    match suite {
        #[cfg(feature = "chacha20-poly1305")]
        Suite::ChaCha20Poly1305 => 3,
        _ => 2,
    }
}

/// Most seconds that a ticket is kept (RFC 8446 section
/// 4.6.1).
const WEEK: u32 = 7 * 86_400;

impl<'a> Ticket<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let suite = match reader.u8()? {
            2 => Suite::Aes128Gcm,
            #[cfg(feature = "chacha20-poly1305")]
            3 => Suite::ChaCha20Poly1305,
            _ => return None,
        };
        let early = reader.u8()? != 0;
        let lifetime = reader.u32()?;
        let age_add = reader.u32()?;
        let psk = reader.array()?;
        let trust = reader.array()?;
        let params = Params {
            max_data: reader.u32()?,
            stream_data: reader.u32()?,
            streams: reader.u32()?,
            ..Params::NEW
        };
        Some(Self {
            early,
            suite,
            lifetime,
            age_add,
            psk,
            trust,
            params,
            identity: reader.vector(2)?.0,
        })
    }

    /// Whether the server still knows a ticket of this age in milliseconds.
    pub(crate) const fn is_fresh(&self, age: u32) -> bool {
        age / 1000 < self.lifetime
    }

    /// Reads a NewSessionTicket message and writes it in the stored form.
    pub(crate) fn store<C: Crypto>(
        crypto: &mut C,
        resumption: &Digest,
        (params, trust, suite): (&Params, &Trust, Suite),
        mut body: Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Error> {
        let mut read = || {
            let lifetime = body.u32()?;
            let age_add = body.u32()?;
            let nonce = body.vector(1)?.0;
            let identity = body.vector(2)?.0;
            let extensions = body.vector(2)?;
            // None could be offered without an identity.
            (body.is_empty() && !identity.is_empty())
                .then_some((lifetime, age_add, nonce, identity, extensions))
        };
        let (lifetime, age_add, nonce, identity, mut extensions) = read().ok_or(Error::Decode)?;
        let mut early = 0;
        while !extensions.is_empty() {
            let id = extensions.u16().ok_or(Error::Decode)?;
            let mut value = extensions.vector(2).ok_or(Error::Decode)?;
            if id == 42 {
                if early != 0 {
                    return Err(Error::IllegalExtension);
                }
                // RFC 9001 section 4.6.1: no other amount is allowed.
                if value.u32() != Some(u32::MAX) || !value.is_empty() {
                    return Err(Error::TicketEarlyData);
                }
                early = 1;
            }
        }
        let mut psk = [0; 32];
        expand_label(crypto, resumption, b"resumption", nonce, &mut psk);
        out.put(&[form(suite), early]);
        out.u32(lifetime.min(WEEK));
        out.u32(age_add);
        out.put(&psk);
        out.put(trust);
        for limit in [params.max_data, params.stream_data, params.streams] {
            out.u32(limit);
        }
        let mark = out.open();
        out.put(identity);
        out.close(mark, 0);
        Ok(())
    }
}

/// `Derive-Secret` with a finished hash.
pub(crate) fn derive<C: Crypto>(
    crypto: &mut C,
    secret: &Digest,
    label: &[u8],
    hash: &Digest,
) -> Digest {
    let mut out = [0; 32];
    expand_label(crypto, secret, label, hash, &mut out);
    out
}

/// The next secret of the key schedule.
#[inline(never)]
pub(crate) fn advance<C: Crypto>(crypto: &mut C, secret: &Digest, input: &Digest) -> Digest {
    let salt = derive(crypto, secret, b"derived", &EMPTY_HASH);
    crypto.extract(&salt, input)
}

/// The MAC of a Finished message or of a binder.
#[inline(never)]
pub(crate) fn finished<C: Crypto>(crypto: &mut C, secret: &Digest, hash: &Digest) -> Digest {
    let mut key = [0; 32];
    expand_label(crypto, secret, b"finished", &[], &mut key);
    crypto.hmac(&key, &[hash])
}

/// supported_groups.
fn groups<C: Crypto>(out: &mut Writer<'_>) {
    out.u16(10);
    let mark = out.open();
    let list = out.open();
    for group in C::GROUPS {
        out.u16(group.number());
    }
    out.close(list, 0);
    out.close(mark, 0);
}

/// No session id, the cipher suites, and no compression. The suite of early
/// data is the first: a server that follows the client's order would refuse it
/// otherwise.
#[inline(always)]
fn suites<C: Crypto>(hello: &Hello<'_>, out: &mut Writer<'_>) {
    if !cfg!(feature = "chacha20-poly1305") {
        return out.put(&[0, 0, 2, 0x13, 0x01, 1, 0]);
    }
    out.u8(0);
    let list = out.open();
    let first = hello.resume.map(|(ticket, _)| ticket.suite);
    let others = C::SUITES.iter().filter(|suite| Some(**suite) != first);
    for suite in first.iter().chain(others) {
        out.u16(suite.number());
    }
    out.close(list, 0);
    out.put(&[1, 0]);
}

/// Writes the message. `share` is the public value of a group. Gives where
/// things are that are looked at later.
#[inline(never)]
pub(crate) fn write<C: Crypto>(
    crypto: &mut C,
    hello: &Hello<'_>,
    (group, share): (Group, &Share),
    out: &mut Writer<'_>,
) -> Result<Places, Error> {
    let mut random = [0; 32];
    crypto.random(&mut random).map_err(|_| Error::Entropy)?;
    // Type and the first of three bytes of length; the message is shorter.
    out.put(&[1, 0]);
    let message = out.open();
    out.put(&[3, 3]);
    out.put(&random);
    suites::<C>(hello, out);
    let extensions = out.open();
    out.put(&FIXED);
    groups::<C>(out);
    if !hello.name.is_empty() {
        out.u16(0);
        let mark = out.open();
        let list = out.open();
        out.u8(0);
        let name = out.open();
        out.put(hello.name);
        out.close(name, 0);
        out.close(list, 0);
        out.close(mark, 0);
    }
    out.u16(16);
    let mark = out.open();
    let list = out.open();
    out.u8(hello.alpn.len().to_le_bytes()[0]);
    out.put(hello.alpn);
    out.close(list, 0);
    out.close(mark, 0);
    let alpn = (mark, out.len());
    out.u16(57);
    let mark = out.open();
    hello.own.write(out);
    out.close(mark, 0);
    let early = out.len();
    if cfg!(feature = "early-data") && hello.early {
        out.put(&[0, 42, 0, 0]);
    }
    let at = out.len();
    key_share(group, share, out);
    let ticket = out.len();
    if let Some((ticket, age)) = hello.resume {
        offer(ticket, age, out);
    }
    out.close(extensions, 0);
    out.close(message, 0);
    if out.full() {
        return Err(Error::Memory);
    }
    Ok(Places {
        alpn,
        early,
        share: at,
        ticket,
        end: out.len(),
    })
}

/// pre_shared_key, the last extension, with a binder to be filled in.
fn offer(ticket: &Ticket<'_>, age: u32, out: &mut Writer<'_>) {
    out.u16(41);
    let mark = out.open();
    let list = out.open();
    let identity = out.open();
    out.put(ticket.identity);
    out.close(identity, 0);
    out.u32(age.wrapping_add(ticket.age_add));
    out.close(list, 0);
    out.put(&[0, 33, 32]);
    out.zeros(HASH_LEN);
    out.close(mark, 0);
}

/// Adds to the age of the ticket (RFC 8446 section 4.1.2).
pub(crate) fn grow_older(message: &mut [u8], ms: u32) -> Option<()> {
    let front = message.len().checked_sub(BINDERS)?;
    let age: &mut [u8; 4] = message.get_mut(..front)?.last_chunk_mut()?;
    *age = u32::from_be_bytes(*age).wrapping_add(ms).to_be_bytes();
    Some(())
}

/// Fills in the binder. `early` is the first secret of the schedule, and `hash`
/// is of all messages before.
pub(crate) fn bind<C: Crypto>(
    crypto: &mut C,
    early: &Digest,
    mut hash: C::Hash,
    message: &mut [u8],
) -> Option<()> {
    let (covered, binders) = message.split_at_mut_checked(message.len().checked_sub(BINDERS)?)?;
    crypto.update(&mut hash, covered);
    let hash = crypto.finish(hash);
    let key = derive(crypto, early, b"res binder", &EMPTY_HASH);
    *binders.last_chunk_mut()? = finished(crypto, &key, &hash);
    Some(())
}
