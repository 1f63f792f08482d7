//! The small client shows a server of quinn-proto who it is, in virtual time.

#![allow(clippy::unwrap_used)]

#[path = "../sim/mod.rs"]
mod sim;

use std::sync::Arc;

use dunlin_quic_mini::{Error, Identified, Identity, Pinned, Resume};
use rcgen::{CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use sim::run::{Outcome, World};
use sim::server::{self, Habits, Server, asking};
use sim::{Faults, Rng};

const CALM: Faults = Faults {
    loss: 0,
    duplicate: 0,
    corrupt: 0,
    delay: 5,
    jitter: 0,
};

/// An authority that gives certificates to clients.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

/// A client's certificate and its key.
struct Device {
    certificate: CertificateDer<'static>,
    key: [u8; 32],
}

fn pair() -> KeyPair {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap()
}

/// The private key, out of its form of PKCS #8.
fn private(pair: &KeyPair) -> [u8; 32] {
    let der = pair.serialize_der();
    let head = [2, 1, 1, 4, 32];
    let at = der.windows(5).position(|part| part == head).unwrap() + 5;
    der[at..at + 32].try_into().unwrap()
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = pair();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self {
            issuer: Issuer::new(params, key),
            certificate,
        }
    }

    fn device(&self, name: &str) -> Device {
        let key = pair();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        Device {
            certificate: signed.der().clone(),
            key: private(&key),
        }
    }

    /// What a server asks that believes this authority.
    fn clients(&self, required: bool) -> Arc<dyn ClientCertVerifier> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        match required {
            true => builder.build().unwrap(),
            false => builder.allow_unauthenticated().build().unwrap(),
        }
    }
}

/// What comes of a handshake, and what the server saw of the client.
struct Met {
    end: Result<(), Error>,
    code: u32,
    seen: Option<Vec<CertificateDer<'static>>>,
}

fn meet(
    clients: Arc<dyn ClientCertVerifier>,
    certificates: &[u8],
    key: &[u8; 32],
    (faults, seed): (Faults, u64),
) -> Met {
    let identity = server::Identity::own();
    let keys = [identity.point];
    let habits = Habits::default();
    let server = Server::new(asking(&identity, habits, clients), habits, seed);
    let shown = Identity { certificates, key };
    let verifier = Identified::new(Pinned::new(&keys), shown);
    let mut world = World::new(verifier, server, faults, seed);
    world.connect(None);
    let end = world.handshake();
    if end.is_ok() {
        assert_eq!(world.echo(100), Outcome::Delivered);
    }
    let connection = world.server.each().next();
    let seen = connection.and_then(|connection| connection.crypto_session().peer_identity());
    Met {
        end,
        code: world.client.peer_code(),
        seen: seen.map(|seen| *seen.downcast().unwrap()),
    }
}

#[test]
fn a_server_that_asks_learns_who_the_client_is() {
    let authority = Authority::new("ours");
    let device = authority.device("meter 7");
    let own: &[u8] = &device.certificate;
    let chain = [own, &authority.certificate].concat();
    for required in [true, false] {
        for (shown, count) in [(own, 1), (&chain, 2)] {
            let met = meet(authority.clients(required), shown, &device.key, (CALM, 1));
            assert_eq!(met.end, Ok(()), "{required}");
            let seen = met.seen.unwrap();
            assert_eq!(seen.first(), Some(&device.certificate));
            assert_eq!(seen.len(), count);
        }
    }
    // A server that does not ask.
    let unasked = WebPkiClientVerifier::no_client_auth();
    let met = meet(unasked, own, &device.key, (CALM, 1));
    assert_eq!((met.end, met.seen), (Ok(()), None));
}

/// Certificates that are shown, a key, and the code that the server closes with.
type Refused<'a> = (&'a [u8], &'a [u8; 32], u32);

#[test]
fn a_server_that_asks_refuses_all_others() {
    const UNKNOWN_CA: u32 = 0x130;
    const DECRYPT_ERROR: u32 = 0x133;
    const CERTIFICATE_REQUIRED: u32 = 0x174;
    let (authority, other) = (Authority::new("ours"), Authority::new("theirs"));
    let (device, stranger) = (authority.device("meter 7"), other.device("meter 7"));
    let cases: [Refused<'_>; 3] = [
        (&stranger.certificate, &stranger.key, UNKNOWN_CA),
        // The certificate of one with the key of another.
        (&device.certificate, &stranger.key, DECRYPT_ERROR),
        (&[], &device.key, CERTIFICATE_REQUIRED),
    ];
    for (shown, key, code) in cases {
        let met = meet(authority.clients(true), shown, key, (CALM, 1));
        assert_eq!((met.end, met.code), (Err(Error::ClosedByPeer), code));
    }
    // Who has nothing to show is served where that is allowed.
    let met = meet(authority.clients(false), &[], &device.key, (CALM, 1));
    assert_eq!((met.end, met.seen), (Ok(()), None));
    // A key that is none ends the handshake here.
    let end = |shown: &[u8], key| meet(authority.clients(true), shown, key, (CALM, 1)).end;
    assert_eq!(end(&device.certificate, &[0; 32]), Err(Error::ClientKey));
    // So do certificates that are cut off, or have something else between them.
    let cut = &device.certificate[..device.certificate.len() - 1];
    assert_eq!(end(cut, &device.key), Err(Error::ClientKey));
    let other = [&device.certificate[..], &[2, 1, 0]].concat();
    assert_eq!(end(&other, &device.key), Err(Error::ClientKey));
    // So does a certificate that the memory has no room for.
    let long = [&[0x30, 0x82, 3, 0xe8][..], &[7; 1000]].concat();
    assert_eq!(end(&long, &device.key), Err(Error::Memory));
}

#[test]
fn certificates_arrive_over_links_that_lose() {
    let authority = Authority::new("ours");
    let device = authority.device("meter 7");
    let mut met = 0;
    for seed in 0..40 {
        let faults = Faults::random(&mut Rng::new(seed));
        let clients = authority.clients(true);
        let end = meet(clients, &device.certificate, &device.key, (faults, seed)).end;
        met += usize::from(end.is_ok());
    }
    assert!(met > 25, "{met} of 40");
}

/// A ticket is kept behind the certificate, and resumes; it is of no use to who shows
/// another certificate.
#[test]
fn tickets_belong_to_who_was_shown() {
    let authority = Authority::new("ours");
    let devices = ["meter 7", "meter 8"].map(|name| authority.device(name));
    let identity = server::Identity::own();
    let keys = [identity.point];
    let habits = Habits::default();
    let config = asking(&identity, habits, authority.clients(true));
    let tickets = config.session_storage.clone();
    let mut ticket = Vec::new();
    for (round, device) in [&devices[0], &devices[0], &devices[1]]
        .into_iter()
        .enumerate()
    {
        let mut config = asking(&identity, habits, authority.clients(true));
        config.session_storage = tickets.clone();
        let server = Server::new(config, habits, 1);
        let shown = Identity {
            certificates: &device.certificate,
            key: &device.key,
        };
        let verifier = Identified::new(Pinned::new(&keys), shown);
        let mut world = World::new(verifier, server, CALM, round as u64);
        world.connect((round > 0).then_some(Resume {
            ticket: &ticket,
            age_ms: 100,
            early: false,
        }));
        assert_eq!(world.handshake(), Ok(()), "{:?}", world.server.lost);
        assert_eq!(world.client.is_resumed(), round == 1, "round {round}");
        assert_eq!(world.echo(100), Outcome::Delivered);
        ticket = world.client.ticket().unwrap().to_vec();
        world.close();
    }
}
