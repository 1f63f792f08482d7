//! The client's side of the TLS 1.3 handshake (RFC 8446) as QUIC uses it:
//! messages in, secrets out. Knows no packet, no timer and no buffer.

use dunlin_mini_crypto::{
    Crypto, CryptoError, Digest, Group, POINT_LEN, Point, Share, Suite, equal,
};

use crate::error::Error;
use crate::extensions::{Extensions, bits};
use crate::held::Held;
use crate::hello::{self, Hello, Ticket, Trust, advance, derive, finished};
#[cfg(feature = "client-certificate")]
use crate::identity;
use crate::keys::expand_with;
use crate::params::Params;
use crate::retry::{Places, Request, offered};
use crate::verify::Verifier;
#[cfg(feature = "client-certificate")]
use crate::verify::shown;
use crate::wire::{Reader, Writer};
use crate::x509;

/// `SHA-256("HelloRetryRequest")`, begin; no honest random value has it.
const RETRY_RANDOM: [u8; 8] = [0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11];

/// What a server signs in front of the hash, after 64 spaces.
const SIGNED: &[u8] = b"TLS 1.3, server CertificateVerify\0";

/// Whether the server asked for a certificate of the client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    No,
    /// It gets an empty list.
    InVain,
    /// It takes signatures of a kind that the client can make.
    #[cfg(feature = "client-certificate")]
    Yes,
}

/// Bytes at the front of the hello's buffer that the last flight of the
/// client takes; a ticket is written behind them.
pub(crate) const FLIGHT: usize = 8 + 36;

/// The message that must come next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    ServerHello,
    EncryptedExtensions,
    Certificate,
    CertificateVerify,
    Finished,
    Ticket,
}

/// What became of the ticket in the hello.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resumption {
    /// There was none.
    No,
    Offered,
    /// The server goes on with its session.
    Taken,
}

/// What becomes of early data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Early {
    /// There is none.
    No,
    Offered,
    /// The server's choice excludes it: it is sent again with 1-RTT keys.
    Refused,
    Taken,
}

/// What a message led to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Nothing,
    /// The server wants another hello, which is there with this length.
    Hello(usize),
    /// The handshake secrets are there.
    Keys,
    /// The server's parameters are there.
    Parameters,
    /// The server is verified; the client's flight of this length and the
    /// secrets of the connection are there.
    Complete(usize),
    /// A ticket of this length is there.
    Ticket(usize),
}

/// A key pair for one handshake.
pub(crate) struct KeyPair<C: Crypto> {
    group: Group,
    secret: C::Secret,
    share: Share,
}

impl<C: Crypto> KeyPair<C> {
    /// A new one of the group that the provider likes best.
    pub(crate) fn new(crypto: &mut C) -> Result<Self, CryptoError> {
        let group = *C::GROUPS.first().ok_or(CryptoError::Group)?;
        let (secret, share) = crypto.generate(group)?;
        Ok(Self {
            group,
            secret,
            share,
        })
    }
}

/// The handshake.
pub(crate) struct Tls<C: Crypto> {
    expect: Expect,
    asked: Asked,
    /// Bytes of the client's last flight.
    #[cfg(feature = "client-certificate")]
    flight: usize,
    /// Whether the hello has a server_name.
    named: bool,
    pub(crate) resumption: Resumption,
    pub(crate) early: Early,
    /// The suite of the ticket, then the one that the server chose.
    pub(crate) suite: Suite,
    transcript: C::Hash,
    group: Group,
    exchange: C::Secret,
    /// The secret of the key schedule; first the one with the ticket's key in
    /// it, and in the end the one that tickets come from.
    schedule: Digest,
    /// Traffic secrets of client and server at the newest level.
    pub(crate) client: Digest,
    pub(crate) server: Digest,
    key: Point,
    /// Where things are in the hello. The server must answer with the bytes of
    /// its ALPN extension.
    places: Places,
    /// Whether the hello was the second one.
    pub(crate) again: bool,
    /// What goes into a ticket of this connection.
    trust: Trust,
}

impl<C: Crypto> Drop for Tls<C> {
    fn drop(&mut self) {
        for secret in [&mut self.schedule, &mut self.client, &mut self.server] {
            secret.fill(0);
            // The zeros are not read, but the optimiser must not see that.
            core::hint::black_box(secret);
        }
    }
}

impl<C: Crypto> Tls<C> {
    /// Writes the ClientHello into `out` and gives its length; in `place` is the
    /// state that waits for the answer. With early data, `client` is its secret.
    #[inline(never)]
    pub(crate) fn start(
        place: &mut Held<Self>,
        crypto: &mut C,
        pair: KeyPair<C>,
        hello: &Hello<'_>,
        out: &mut [u8],
    ) -> Result<usize, Error> {
        let mut writer = Writer::new(out);
        let share = (pair.group, &pair.share);
        let places = hello::write(crypto, hello, share, &mut writer)?;
        let len = writer.len();
        let message = out.get_mut(..len).ok_or(Error::Memory)?;
        let psk = hello.resume.map_or(&[0; 32], |(ticket, _)| ticket.psk);
        let early = crypto.extract(&[0; 32], psk);
        if cfg!(feature = "resumption") && hello.resume.is_some() {
            let hash = crypto.hash();
            hello::bind(crypto, &early, hash, message).ok_or(Error::Memory)?;
        }
        let transcript = crypto.hash();
        *place = Held::Value(Self {
            expect: Expect::ServerHello,
            asked: Asked::No,
            #[cfg(feature = "client-certificate")]
            flight: FLIGHT,
            named: !hello.name.is_empty(),
            resumption: if hello.resume.is_some() {
                Resumption::Offered
            } else {
                Resumption::No
            },
            early: if hello.early {
                Early::Offered
            } else {
                Early::No
            },
            suite: hello.suite(),
            transcript,
            group: pair.group,
            exchange: pair.secret,
            schedule: early,
            client: [0; 32],
            server: [0; 32],
            key: [0; POINT_LEN],
            places,
            again: false,
            trust: hello.trust,
        });
        let tls = place.as_mut().ok_or(Error::State)?;
        crypto.update(&mut tls.transcript, message);
        if cfg!(feature = "early-data") && hello.early {
            let hash = tls.hash(crypto);
            tls.client = derive(crypto, &tls.schedule, b"c e traffic", &hash);
        }
        Ok(len)
    }

    /// Early data that was offered comes to nothing.
    fn refuse_early_data(&mut self) {
        if self.early == Early::Offered {
            self.early = Early::Refused;
        }
    }

    /// The hash of all messages so far.
    fn hash(&self, crypto: &mut C) -> Digest {
        crypto.finish(self.transcript.clone())
    }

    /// Derives the traffic secrets of both sides.
    #[inline(never)]
    fn traffic(&mut self, crypto: &mut C, client: &[u8], server: &[u8]) {
        let hash = self.hash(crypto);
        let secret = crypto.hmac_key(&self.schedule);
        expand_with(crypto, &secret, client, &hash, &mut self.client);
        expand_with(crypto, &secret, server, &hash, &mut self.server);
    }

    /// Takes one whole message with its head of four bytes. `hello` is the
    /// buffer that the ClientHello was written to, `age` milliseconds ago.
    ///
    /// What is not inlined here and below leaves the stack to the curve: its
    /// calculations are what needs most.
    #[inline(never)]
    pub(crate) fn message<V: Verifier>(
        &mut self,
        crypto: &mut C,
        verifier: &V,
        params: &mut Params,
        hello: &mut [u8],
        message: &[u8],
        age: u32,
    ) -> Result<Step, Error> {
        let (kind, body) = match message {
            [kind, _, _, _, body @ ..] => (*kind, Reader(body)),
            _ => return Err(Error::Decode),
        };
        if self.expect == Expect::CertificateVerify && kind == 15 {
            self.certificate_verify(crypto, body)?;
            self.expect = Expect::Finished;
            crypto.update(&mut self.transcript, message);
            return Ok(Step::Nothing);
        }
        self.other(crypto, verifier, params, hello, (kind, body, message), age)
    }

    /// All messages but the server's signature.
    #[inline(never)]
    fn other<V: Verifier>(
        &mut self,
        crypto: &mut C,
        verifier: &V,
        params: &mut Params,
        hello: &mut [u8],
        (kind, body, message): (u8, Reader<'_>, &[u8]),
        age: u32,
    ) -> Result<Step, Error> {
        let mut step = Step::Nothing;
        match (self.expect, kind) {
            (Expect::ServerHello, 2) if cfg!(feature = "hello-retry") && is_retry(message) => {
                return self.retry(crypto, hello, (body, message), age);
            }
            (Expect::ServerHello, 2) => {
                let shared = self.server_hello(crypto, body)?;
                crypto.update(&mut self.transcript, message);
                self.schedule = advance(crypto, &self.schedule, &shared);
                self.traffic(crypto, b"c hs traffic", b"s hs traffic");
                self.expect = Expect::EncryptedExtensions;
                return Ok(Step::Keys);
            }
            (Expect::EncryptedExtensions, 8) => {
                *params = self.extensions(hello, body)?;
                step = Step::Parameters;
                self.expect = if self.resumption == Resumption::Taken {
                    Expect::Finished
                } else {
                    Expect::Certificate
                };
            }
            (Expect::Certificate, 13) if self.asked == Asked::No => {
                self.asked = asked(body)?;
            }
            (Expect::Certificate, 11) => {
                self.key = verifier.verify(crypto, leaf(body)?)?;
                self.expect = Expect::CertificateVerify;
            }
            (Expect::Finished, 20) => {
                self.finished(crypto, body.0)?;
                crypto.update(&mut self.transcript, message);
                self.expect = Expect::Ticket;
                return Ok(Step::Complete(self.flight(crypto, verifier, hello)?));
            }
            (Expect::Ticket, 4) => return self.ticket(crypto, params, hello, body),
            _ => return Err(Error::UnexpectedMessage),
        }
        crypto.update(&mut self.transcript, message);
        Ok(step)
    }

    /// Writes the second hello in the place of the first one.
    #[inline(never)]
    fn retry(
        &mut self,
        crypto: &mut C,
        hello: &mut [u8],
        (body, message): (Reader<'_>, &[u8]),
        age: u32,
    ) -> Result<Step, Error> {
        if self.again {
            return Err(Error::UnexpectedMessage);
        }
        let request = Request::read(body, C::SUITES)?;
        self.suite = request.suite;
        let mut share = None;
        if let Some(number) = request.group {
            let known = C::GROUPS.iter().find(|group| group.number() == number);
            // A share of the same group was there already.
            let group = known.filter(|group| **group != self.group);
            let group = *group.ok_or(Error::KeyShare)?;
            let (secret, public) = crypto.generate(group).map_err(|_| Error::Entropy)?;
            (self.group, self.exchange) = (group, secret);
            share = Some(public);
        }
        let share = share.as_ref().map(|share| (self.group, share));
        let places = &mut self.places;
        let changed = places.change(hello, C::SUITES.len(), share, request.cookie);
        let hello = hello.get_mut(..places.end).filter(|_| changed.is_some());
        let hello = hello.ok_or(Error::Cookie)?;
        // RFC 8446 section 4.4.1: a hash stands for the first hello.
        let hash = self.hash(crypto);
        self.transcript = crypto.hash();
        for part in [&[254, 0, 0, 32], &hash[..], message] {
            crypto.update(&mut self.transcript, part);
        }
        if cfg!(feature = "resumption") && self.resumption != Resumption::No {
            let before = self.transcript.clone();
            hello::grow_older(hello, age).ok_or(Error::Cookie)?;
            hello::bind(crypto, &self.schedule, before, hello).ok_or(Error::Cookie)?;
        }
        crypto.update(&mut self.transcript, hello);
        self.refuse_early_data();
        self.again = true;
        Ok(Step::Hello(hello.len()))
    }

    /// Gives the shared secret of the key exchange.
    #[inline(never)]
    fn server_hello(&mut self, crypto: &mut C, mut body: Reader<'_>) -> Result<Digest, Error> {
        let mut read = || {
            let version = body.u16()?;
            let random = body.array::<32>()?;
            let session = body.vector(1)?;
            let suite = body.u16()?;
            let compression = body.u8()?;
            // TLS 1.2 allows to leave them out.
            let list = body.vector(2).unwrap_or(Reader(&[]));
            Some((version, random, session, suite, compression, list))
        };
        let (version, random, session, suite, compression, list) = read().ok_or(Error::Decode)?;
        if version != 0x0303 || compression != 0 || !body.is_empty() {
            return Err(Error::Decode);
        }
        if random.starts_with(&RETRY_RANDOM) {
            return Err(Error::HelloRetry);
        }
        if !session.is_empty() {
            return Err(Error::SessionId);
        }
        let mut tls13 = false;
        let mut share = None;
        let mut extensions = Extensions::new(list, bits(&[41, 43, 51]));
        while let Some((number, mut value)) = extensions.next()? {
            match number {
                43 if value.0 == [3, 4] => tls13 = true,
                43 => return Err(Error::Downgrade),
                51 => {
                    if value.u16() != Some(self.group.number()) {
                        return Err(Error::KeyShare);
                    }
                    share = value.vector(2).filter(|_| value.is_empty());
                }
                41 if cfg!(feature = "resumption") && self.resumption != Resumption::No => {
                    if value.0 != [0, 0] {
                        return Err(Error::PskIdentity);
                    }
                    self.resumption = Resumption::Taken;
                }
                _ => return Err(Error::UnsupportedExtension),
            }
        }
        if !tls13 {
            return Err(Error::Downgrade);
        }
        let suite = offered(C::SUITES, suite)?;
        if suite != self.suite {
            // RFC 8446 section 4.1.4: it stays what the request said.
            if self.again {
                return Err(Error::CipherSuite);
            }
            // Section 4.2.10: early data goes with the suite of its ticket.
            self.refuse_early_data();
            self.suite = suite;
        }
        let share = share.ok_or(Error::KeyShare)?;
        if self.resumption != Resumption::Taken {
            // The schedule starts again, without the key of the ticket.
            self.schedule = crypto.extract(&[0; 32], &[0; 32]);
        }
        let shared = crypto.agree(&self.exchange, share.0);
        shared.map_err(|_| Error::BadPoint)
    }

    #[inline(never)]
    fn extensions(&mut self, hello: &[u8], mut body: Reader<'_>) -> Result<Params, Error> {
        let list = body.vector(2).filter(|_| body.is_empty());
        let list = list.ok_or(Error::Decode)?;
        let mut params = None;
        let mut alpn = false;
        let mut extensions = Extensions::new(list, bits(&[0, 10, 16, 42, 57]));
        while let Some((number, value)) = extensions.next()? {
            match number {
                16 => {
                    let offered = hello.get(self.places.alpn.0..self.places.alpn.1);
                    alpn = offered == Some(value.0);
                }
                57 => params = Some(Params::read(value)?),
                42 if self.early == Early::Offered
                    && self.resumption == Resumption::Taken
                    && value.is_empty() =>
                {
                    self.early = Early::Taken;
                }
                42 => return Err(Error::EarlyData),
                // server_name and supported_groups tell nothing of use.
                0 if self.named => {}
                10 => {}
                _ => return Err(Error::UnsupportedExtension),
            }
        }
        if !alpn {
            return Err(Error::Alpn);
        }
        params.ok_or(Error::MissingParameters)
    }

    #[inline(never)]
    fn certificate_verify(&self, crypto: &mut C, mut body: Reader<'_>) -> Result<(), Error> {
        if body.u16() != Some(0x0403) {
            return Err(Error::SignatureScheme);
        }
        let signature = body.vector(2).filter(|_| body.is_empty());
        let signature = signature.ok_or(Error::Decode)?;
        let signature = x509::signature(signature.0).ok_or(Error::CertificateVerify)?;
        let digest = self.signed(crypto, SIGNED);
        crypto
            .verify(&self.key, &digest, &signature)
            .map_err(|_| Error::CertificateVerify)
    }

    /// What one of the sides has signed, hashed.
    #[inline(never)]
    fn signed(&self, crypto: &mut C, context: &[u8]) -> Digest {
        let transcript = self.hash(crypto);
        let mut hash = crypto.hash();
        crypto.update(&mut hash, &[b' '; 64]);
        crypto.update(&mut hash, context);
        crypto.update(&mut hash, &transcript);
        crypto.finish(hash)
    }

    #[inline(never)]
    fn finished(&self, crypto: &mut C, mac: &[u8]) -> Result<(), Error> {
        let hash = self.hash(crypto);
        let right = equal(mac, &finished(crypto, &self.server, &hash));
        right.then_some(()).ok_or(Error::Finished)
    }

    /// Writes the client's last flight and derives the secrets of the
    /// connection, and the one for tickets.
    #[inline(never)]
    fn flight<V: Verifier>(
        &mut self,
        crypto: &mut C,
        verifier: &V,
        out: &mut [u8],
    ) -> Result<usize, Error> {
        let client = self.client;
        self.schedule = advance(crypto, &self.schedule, &[0; 32]);
        self.traffic(crypto, b"c ap traffic", b"s ap traffic");
        let shown = self.show(crypto, verifier, out)?;
        let mut writer = Writer::at(out, shown);
        if shown == 0 && self.asked != Asked::No {
            let none = [11, 0, 0, 4, 0, 0, 0, 0];
            writer.put(&none);
            crypto.update(&mut self.transcript, &none);
        }
        let hash = self.hash(crypto);
        let mac = finished(crypto, &client, &hash);
        let from = writer.len();
        writer.put(&[20, 0, 0, 32]);
        writer.put(&mac);
        let len = writer.len();
        if writer.full() {
            return Err(Error::Memory);
        }
        #[cfg(feature = "client-certificate")]
        {
            self.flight = len;
        }
        if cfg!(feature = "resumption") {
            let message = out.get(from..len).unwrap_or_default();
            crypto.update(&mut self.transcript, message);
            let hash = self.hash(crypto);
            self.schedule = derive(crypto, &self.schedule, b"res master", &hash);
        }
        Ok(len)
    }

    /// Shows the server who the client is, if it has asked and there is something to
    /// show; the length of the messages.
    #[cfg(feature = "client-certificate")]
    #[inline(never)]
    fn show<V: Verifier>(
        &mut self,
        crypto: &mut C,
        verifier: &V,
        out: &mut [u8],
    ) -> Result<usize, Error> {
        let Some(identity) = shown(verifier).filter(|_| self.asked == Asked::Yes) else {
            return Ok(0);
        };
        let mut len = 0;
        for signs in [false, true] {
            let mut writer = Writer::at(out, len);
            if signs {
                let digest = self.signed(crypto, identity::SIGNED);
                identity::put_verify(crypto, &identity, &digest, &mut writer)?;
            } else {
                identity::put_certificates(&identity, &mut writer)?;
            }
            let end = writer.len();
            if writer.full() {
                return Err(Error::Memory);
            }
            let message = out.get(len..end).unwrap_or_default();
            crypto.update(&mut self.transcript, message);
            len = end;
        }
        Ok(len)
    }

    /// It has nothing to show.
    #[cfg(not(feature = "client-certificate"))]
    #[inline(always)]
    #[allow(clippy::unnecessary_wraps, reason = "with the feature it may fail")]
    fn show<V: Verifier>(&self, _: &mut C, _: &V, _: &mut [u8]) -> Result<usize, Error> {
        Ok(0)
    }

    /// Where a ticket is in the buffer of the hello: behind what may have to be sent
    /// again.
    pub(crate) fn ticket_at(&self) -> usize {
        #[cfg(feature = "client-certificate")]
        return self.flight.max(FLIGHT);
        #[cfg(not(feature = "client-certificate"))]
        FLIGHT
    }

    fn ticket(
        &self,
        crypto: &mut C,
        params: &Params,
        hello: &mut [u8],
        body: Reader<'_>,
    ) -> Result<Step, Error> {
        if !cfg!(feature = "resumption") {
            return Ok(Step::Nothing);
        }
        let mut writer = Writer::new(hello.get_mut(self.ticket_at()..).unwrap_or_default());
        let common = (params, &self.trust, self.suite);
        Ticket::store(crypto, &self.schedule, common, body, &mut writer)?;
        // A ticket that does not fit leaves the device without one.
        Ok(Step::Ticket(if writer.full() { 0 } else { writer.len() }))
    }
}

/// What a CertificateRequest makes of this client.
#[cfg(feature = "client-certificate")]
fn asked(body: Reader<'_>) -> Result<Asked, Error> {
    Ok(match identity::takes_ours(body)? {
        true => Asked::Yes,
        false => Asked::InVain,
    })
}

/// What a CertificateRequest makes of this client.
#[cfg(not(feature = "client-certificate"))]
#[inline(always)]
#[allow(clippy::unnecessary_wraps, reason = "with the feature it may fail")]
const fn asked(_: Reader<'_>) -> Result<Asked, Error> {
    Ok(Asked::InVain)
}

/// Whether a ServerHello is a HelloRetryRequest.
fn is_retry(message: &[u8]) -> bool {
    message
        .get(6..)
        .is_some_and(|random| random.starts_with(&RETRY_RANDOM))
}

/// The server's own certificate, the first of the list. None may have an
/// extension: they would be answers to what this client does not ask for.
fn leaf(mut body: Reader<'_>) -> Result<&[u8], Error> {
    if !body.vector(1).is_some_and(|context| context.is_empty()) {
        return Err(Error::Decode);
    }
    let list = body.vector(3).filter(|_| body.is_empty());
    let mut list = list.ok_or(Error::Decode)?;
    let mut first = None;
    while !list.is_empty() {
        let certificate = list.vector(3).ok_or(Error::Decode)?;
        let extensions = list.vector(2).ok_or(Error::Decode)?;
        if !extensions.is_empty() {
            return Err(Error::UnsupportedExtension);
        }
        first = first.or(Some(certificate.0));
    }
    first.ok_or(Error::NoCertificate)
}
