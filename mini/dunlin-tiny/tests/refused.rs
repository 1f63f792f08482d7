//! Servers and datagrams that the small client must refuse, each with its own
//! error.

#![allow(clippy::unwrap_used)]

#[path = "../sim/mod.rs"]
mod sim;

use dunlin_quic_mini::{Authority, Client, Error, Name, Pinned, Point, Resume, State, Verifier};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::PrivateKeyDer;
use sim::Faults;
use sim::run::{Outcome, World, config};
use sim::server::{Habits, Identity, NAME, Server, tls};

const CALM: Faults = Faults {
    loss: 0,
    duplicate: 0,
    corrupt: 0,
    delay: 5,
    jitter: 0,
};

/// What comes of a handshake with this server.
fn shake<V: Verifier + Clone>(verifier: V, identity: &Identity) -> Result<(), Error> {
    let server = Server::new(rustls_with(identity), Habits::default(), 1);
    let mut world = World::new(verifier, server, CALM, 1);
    world.connect(None);
    let end = world.handshake();
    if end.is_ok() {
        assert_eq!(world.echo(10), Outcome::Delivered);
        return end;
    }
    // The server learns it, and the same memory serves another attempt.
    world.until(|world| world.client.state() == State::Closed);
    assert!(!world.server.lost.is_empty(), "the server learns why");
    end
}

/// An authority and servers that it signs.
struct Authorities {
    point: Point,
    issuer: Issuer<'static, KeyPair>,
}

impl Authorities {
    fn new() -> Self {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "authority");
        Self {
            point: key.public_key_raw().try_into().unwrap(),
            issuer: Issuer::new(params, key),
        }
    }

    fn sign(&self, change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let mut identity = Identity::own();
        let name = String::from_utf8(NAME.to_vec()).unwrap();
        let mut params = CertificateParams::new(vec![name]).unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2027, 1, 1);
        change(&mut params);
        let signed = params.signed_by(&identity.key, &self.issuer).unwrap();
        identity.chain = vec![signed.der().clone()];
        identity
    }
}

/// 2026-07-01 and the years before and after.
const NOW: u32 = 1_782_864_000;
const YEAR: u32 = 31_536_000;

#[test]
fn pinned_keys() {
    let identity = Identity::own();
    let other = Identity::own();
    let keys = [other.point, identity.point];
    assert_eq!(shake(Pinned::new(&keys), &identity), Ok(()));
    let wrong = Pinned::new(&keys[..1]);
    assert_eq!(shake(wrong, &identity), Err(Error::WrongKey));
    assert_eq!(shake(Pinned::new(&[]), &identity), Err(Error::WrongKey));
}

#[test]
fn keys_of_another_kind() {
    let mut identity = Identity::own();
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let params = CertificateParams::new(vec!["x".to_owned()]).unwrap();
    // The certificate has one key, and the server signs with the other.
    identity.chain = vec![params.self_signed(&key).unwrap().der().clone()];
    let keys = [identity.point];
    let habits = Habits::default();
    let server = rustls_with(&identity);
    let mut world = World::new(Pinned::new(&keys), Server::new(server, habits, 1), CALM, 1);
    world.connect(None);
    assert_eq!(world.handshake(), Err(Error::CertificateKey));
}

#[test]
fn a_server_without_the_key_of_its_certificate() {
    let mut identity = Identity::own();
    let genuine = Identity::own();
    identity.chain = genuine.chain;
    let keys = [genuine.point];
    let habits = Habits::default();
    let server = rustls_with(&identity);
    let mut world = World::new(Pinned::new(&keys), Server::new(server, habits, 1), CALM, 1);
    world.connect(None);
    assert_eq!(world.handshake(), Err(Error::CertificateVerify));
}

/// A configuration that does not check that chain and key belong together.
fn rustls_with(identity: &Identity) -> rustls::ServerConfig {
    use std::sync::Arc;

    let key = PrivateKeyDer::try_from(identity.key.serialize_der()).unwrap();
    let key = rustls::crypto::aws_lc_rs::sign::any_ecdsa_type(&key).unwrap();
    let certified = rustls::sign::CertifiedKey::new(identity.chain.clone(), key);
    let resolver = Arc::new(rustls::sign::SingleCertAndKey::from(certified));
    let own = Identity::own();
    let mut config = tls(&own, Habits::default());
    config.cert_resolver = resolver;
    config
}

#[test]
fn certificates_of_an_authority() {
    let authority = Authorities::new();
    let other = Authorities::new();
    let host = Name::Host(NAME);
    let plain = authority.sign(|_| {});
    let verifier = Authority::new(&authority.point, host, Some(NOW));
    assert_eq!(shake(verifier, &plain), Ok(()));
    let without_clock = Authority::new(&authority.point, host, None);
    assert_eq!(shake(without_clock, &plain), Ok(()));

    let late = Authority::new(&authority.point, host, Some(NOW + YEAR));
    assert_eq!(shake(late, &plain), Err(Error::Expired));
    let soon = Authority::new(&authority.point, host, Some(NOW - YEAR));
    assert_eq!(shake(soon, &plain), Err(Error::NotYetValid));
    let wrong = Authority::new(
        &authority.point,
        Name::Host(b"other.example.net"),
        Some(NOW),
    );
    assert_eq!(shake(wrong, &plain), Err(Error::WrongName));
    let address = Authority::new(&authority.point, Name::Address(&[192, 0, 2, 1]), Some(NOW));
    assert_eq!(shake(address, &plain), Err(Error::WrongName));
    assert_eq!(
        shake(verifier, &other.sign(|_| {})),
        Err(Error::UnknownAuthority)
    );
    assert_eq!(
        shake(verifier, &Identity::own()),
        Err(Error::UnknownAuthority)
    );
}

/// The same client with the same memory is refused a server, then another and
/// another, and connects to the right one after each, with what was its ticket.
fn lives_on<V: Verifier + Clone>(verifier: V, good: &Identity, bad: &[(Identity, Error)]) {
    let habits = Habits::default();
    let server = Server::new(rustls_with(good), habits, 1);
    let mut world = World::new(verifier, server, CALM, 1);
    let mut ticket = Vec::new();
    for (seed, (bad, want)) in (2..).zip(bad) {
        world.server = Server::new(rustls_with(bad), habits, seed);
        world.connect((!ticket.is_empty()).then_some(Resume {
            ticket: &ticket,
            age_ms: 10,
            early: true,
        }));
        assert_eq!(world.handshake(), Err(*want));
        world.until(|world| world.client.state() == State::Closed);
        assert!(!world.server.lost.is_empty(), "the server learns why");
        world.server = Server::new(rustls_with(good), habits, seed);
        world.client.clear();
        world.connect(None);
        assert_eq!(world.handshake(), Ok(()), "after {want:?}");
        assert_eq!(world.echo(10), Outcome::Delivered);
        ticket = world.client.ticket().unwrap().to_vec();
        world.close();
        world.client.clear();
    }
}

#[test]
fn a_refused_server_leaves_a_client_that_connects() {
    let authority = Authorities::new();
    let verifier = Authority::new(&authority.point, Name::Host(NAME), Some(NOW));
    let good = authority.sign(|_| {});
    let old = authority.sign(|params| params.not_after = rcgen::date_time_ymd(2026, 2, 1));
    let soon = authority.sign(|params| params.not_before = rcgen::date_time_ymd(2026, 12, 1));
    let named = authority.sign(|params| {
        params.subject_alt_names = vec![rcgen::SanType::DnsName(
            "other.example.net".try_into().unwrap(),
        )];
    });
    let client = authority.sign(|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    let mut without_key = authority.sign(|_| {});
    without_key.key = Identity::own().key;
    let bad = [
        (Identity::own(), Error::UnknownAuthority),
        (named, Error::WrongName),
        (old, Error::Expired),
        (soon, Error::NotYetValid),
        (client, Error::WrongUsage),
        (without_key, Error::CertificateVerify),
    ];
    lives_on(verifier, &good, &bad);

    let good = Identity::own();
    let keys = [good.point];
    let mut without_key = Identity::own();
    without_key.chain = good.chain.clone();
    let bad = [
        (Identity::own(), Error::WrongKey),
        (without_key, Error::CertificateVerify),
    ];
    lives_on(Pinned::new(&keys), &good, &bad);
}

#[test]
fn what_certificates_are_for() {
    let authority = Authorities::new();
    let verifier = Authority::new(&authority.point, Name::Host(NAME), Some(NOW));
    let server = authority.sign(|params| {
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::ServerAuth,
        ];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    });
    assert_eq!(shake(verifier, &server), Ok(()));
    let client = authority.sign(|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    assert_eq!(shake(verifier, &client), Err(Error::WrongUsage));
    let signer = authority.sign(|params| params.key_usages = vec![KeyUsagePurpose::KeyCertSign]);
    assert_eq!(shake(verifier, &signer), Err(Error::WrongUsage));
    let strange = authority.sign(|params| {
        let mut extension =
            rcgen::CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 9, 9], vec![5, 0]);
        extension.set_criticality(true);
        params.custom_extensions.push(extension);
    });
    assert_eq!(shake(verifier, &strange), Err(Error::CriticalExtension));
    let by_address = authority.sign(|params| {
        let name = rcgen::SanType::IpAddress("192.0.2.1".parse().unwrap());
        params.subject_alt_names.push(name);
    });
    let address = Authority::new(&authority.point, Name::Address(&[192, 0, 2, 1]), Some(NOW));
    assert_eq!(shake(address, &by_address), Ok(()));
}

#[test]
fn other_application_protocols() {
    let identity = Identity::own();
    let keys = [identity.point];
    let habits = Habits::default();
    let mut server = tls(&identity, habits);
    server.alpn_protocols = vec![b"h3".to_vec()];
    let mut world = World::new(Pinned::new(&keys), Server::new(server, habits, 1), CALM, 1);
    world.connect(None);
    assert_eq!(world.handshake(), Err(Error::ClosedByPeer));
    // no_application_protocol
    assert_eq!(world.client.peer_code(), 0x178);
}

/// A client that has sent its first datagram, and that datagram.
fn begun(keys: &[Point]) -> (sim::run::Tiny<Pinned<'_>>, [u8; 1200]) {
    let mut client = Client::new(sim::crypto(5), Pinned::new(keys), Default::default());
    client.connect(0, &config()).unwrap();
    let mut out = [0; 1200];
    assert_eq!(client.transmit(0, &mut out), 1200);
    (client, out)
}

#[test]
fn version_negotiation_and_forged_retry() {
    let keys = [[4; 65]];
    let negotiation = |hello: &[u8; 1200], version: u32| {
        let mut datagram = vec![0x80, 0, 0, 0, 0, 0, 8];
        datagram.extend_from_slice(&hello[6..14]);
        datagram.extend_from_slice(&0x0a0a_0a0a_u32.to_be_bytes());
        datagram.extend_from_slice(&version.to_be_bytes());
        datagram
    };
    let (mut client, hello) = begun(&keys);
    client.receive(10, &mut negotiation(&hello, 1));
    assert_eq!(client.error(), None, "a lie: version 1 is there");
    let mut other = hello;
    other[8] ^= 1;
    client.receive(10, &mut negotiation(&other, 2));
    assert_eq!(client.error(), None, "not an answer to this client");
    client.receive(10, &mut negotiation(&hello, 2));
    assert_eq!(client.error(), Some(Error::VersionNegotiation));

    let (mut client, _) = begun(&keys);
    let mut retry = vec![0xf0, 0, 0, 0, 1, 0, 4, 1, 2, 3, 4];
    retry.extend_from_slice(b"a token");
    retry.extend_from_slice(&[0; 16]);
    client.receive(10, &mut retry);
    assert_eq!(client.error(), None);
    let mut out = [0; 1200];
    assert_eq!(client.transmit(10, &mut out), 0, "nothing is sent again");
}

#[test]
fn garbage_does_nothing() {
    let keys = [[4; 65]];
    let (mut client, hello) = begun(&keys);
    let mut rng = sim::Rng::new(9);
    for round in 0..20_000_usize {
        let len = usize::try_from(rng.below(1300)).unwrap();
        let mut datagram: Vec<u8> = (0..len).map(|_| rng.next().to_le_bytes()[0]).collect();
        // Some begin like packets for this client.
        let heads: [&[u8]; 4] = [
            &[
                0xc0, 0, 0, 0, 1, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0x44, 0xb0,
            ],
            &[0xf0, 0, 0, 0, 1, 0, 4, 1, 2, 3, 4],
            &[0x43],
            &hello[..20],
        ];
        if let Some(head) = heads.get(round % 6) {
            for (to, from) in datagram.iter_mut().zip(*head) {
                *to = *from;
            }
        }
        client.receive(10, &mut datagram);
        assert_eq!(client.error(), None);
    }
}
