//! The exchange of RFC 7677 section 3, and what must not pass.

use alloc::vec::Vec;

use bytes::Bytes;

use super::*;

const CLIENT_NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
const CLIENT_FIRST: &[u8] = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
const SERVER_FIRST: &[u8] = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
    s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
const CLIENT_FINAL: &[u8] = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
    p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
const SERVER_FINAL: &[u8] = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

fn salt() -> Vec<u8> {
    let mut buf = [0; SALT_BYTES_MAX];
    decode_base64("W22ZaJ0SNY7soEsUEjb6gQ==", &mut buf)
        .expect("base64")
        .to_vec()
}

fn client(user: &'static str, password: &'static [u8]) -> Client<'static> {
    Client {
        user,
        password,
        nonce: CLIENT_NONCE,
        binding: Binding::Unsupported,
    }
}

#[test]
fn client_follows_rfc_7677() {
    let client = client("user", b"pencil");
    let mut out = Vec::new();
    client.first(&mut out).expect("first");
    assert_eq!(out, CLIENT_FIRST);
    out.clear();
    let expect = client.respond(SERVER_FIRST, &mut out).expect("final");
    assert_eq!(out, CLIENT_FINAL);
    assert_eq!(expect.verify(SERVER_FINAL), Ok(()));
    assert_eq!(expect.verify(b"e=other-error"), Err(ScramError::Refused));
    assert_eq!(
        expect.verify(b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="),
        Err(ScramError::Proof)
    );
    assert_eq!(expect.verify(b"x=1"), Err(ScramError::Malformed));
}

/// Our server after its first message of the example.
fn challenged(password: &[u8], client_first: &[u8]) -> Exchange {
    let keys = StoredKeys::derive(password, &salt(), 4096);
    let mut exchange = Exchange::begin(client_first, false, None).expect("first");
    let challenge = exchange.challenge(SERVER_NONCE, &salt(), 4096, keys);
    assert_eq!(challenge, Ok(SERVER_FIRST));
    exchange
}

#[test]
fn server_follows_rfc_7677() {
    let exchange = challenged(b"pencil", CLIENT_FIRST);
    assert_eq!(exchange.user(), "user");
    assert_eq!(exchange.finish(CLIENT_FINAL).as_deref(), Ok(SERVER_FINAL));
    let wrong = challenged(b"pencils", CLIENT_FIRST);
    assert_eq!(wrong.finish(CLIENT_FINAL), Err(ScramError::Proof));
    let early = Exchange::begin(CLIENT_FIRST, false, None).expect("first");
    assert_eq!(early.finish(CLIENT_FINAL), Err(ScramError::Proof));
}

#[test]
fn user_names_are_escaped() {
    for user in ["a=b,c", "=", ",,", "é", "plain"] {
        let client = client(user, b"x");
        let mut out = Vec::new();
        client.first(&mut out).expect("first");
        let first = ClientFirst::parse(&out).expect("parse");
        assert_eq!(first.user_name(), user);
    }
}

#[test]
fn bad_client_first_messages_are_refused() {
    let cases: &[(&[u8], ScramError)] = &[
        (b"", ScramError::Malformed),
        (b"n,a=admin,n=u,r=x", ScramError::Unsupported),
        (b"n,,n=u=2,r=x", ScramError::Malformed),
        (b"n,,n=,r=x", ScramError::Malformed),
        (b"n,,n=u", ScramError::Malformed),
        (b"n,,n=u,r=", ScramError::Nonce),
        (b"n,,m=1,n=u,r=x", ScramError::Malformed),
        (b"z,,n=u,r=x", ScramError::Malformed),
        (b"n,,n=\xff,r=x", ScramError::Malformed),
    ];
    for (message, want) in cases {
        assert_eq!(
            ClientFirst::parse(message).err(),
            Some(*want),
            "{message:?}"
        );
    }
}

#[test]
fn bad_server_first_messages_are_refused() {
    let cases: &[(&[u8], ScramError)] = &[
        (b"r=rOprNGfwEbeRWgbNEkqO,s=AAAA,i=4096", ScramError::Nonce),
        (b"r=otherNonce,s=AAAA,i=4096", ScramError::Nonce),
        (
            b"r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=4095",
            ScramError::Parameters,
        ),
        (
            b"r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=1000001",
            ScramError::Parameters,
        ),
        (
            b"r=rOprNGfwEbeRWgbNEkqOx,s=A*,i=4096",
            ScramError::Parameters,
        ),
        (
            b"r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=many",
            ScramError::Malformed,
        ),
        (
            b"m=ext,r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=4096",
            ScramError::Malformed,
        ),
    ];
    for (message, want) in cases {
        let result = client("user", b"pencil").respond(message, &mut Vec::new());
        assert_eq!(result.err(), Some(*want), "{message:?}");
    }
}

#[test]
fn client_final_must_repeat_the_header_and_nonce() {
    // `c=biws` answers `n,,`, not `y,,`: the header was changed on the way.
    let changed = challenged(b"pencil", b"y,,n=user,r=rOprNGfwEbeRWgbNEkqO");
    assert_eq!(
        changed.finish(CLIENT_FINAL),
        Err(ScramError::ChannelBinding)
    );
    let exchange = challenged(b"pencil", CLIENT_FIRST);
    let other = exchange.finish(b"c=biws,r=other,p=AAAA");
    assert_eq!(other, Err(ScramError::Nonce));
}

/// The messages of an independent implementation (`scramp` 1.5.0 of PyPI, both sides),
/// with the same nonces and salt.
#[test]
fn plus_is_what_others_compute() {
    let data: Vec<u8> = (0..32).collect();
    let channel = ChannelBinding {
        kind: BindingType::TlsServerEndPoint,
        data: &data,
    };
    let first = b"p=tls-server-end-point,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    let last = b"c=cD10bHMtc2VydmVyLWVuZC1wb2ludCwsAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=,\
        r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
        p=nY1Wus9a+gM2DrbQ1msXFgyhW6KM5ktOxWiU+/P/EGY=";
    let done = b"v=RwppMGddhz/J0lFYaRReBjXcQeNUFP5Qc76Lo5Exrig=";
    let client = Client {
        binding: Binding::Bound(channel),
        ..client("user", b"pencil")
    };
    let mut out = Vec::new();
    client.first(&mut out).expect("first");
    assert_eq!(out, first);
    out.clear();
    let expect = client.respond(SERVER_FIRST, &mut out).expect("final");
    assert_eq!(out, last);
    assert_eq!(expect.verify(done), Ok(()));
    let mut server = Exchange::begin(first, true, Some(channel.kind)).expect("first");
    assert!(server.wants_channel());
    server.bind(Bytes::copy_from_slice(&data));
    let keys = StoredKeys::derive(b"pencil", &salt(), 4096);
    let challenge = server.challenge(SERVER_NONCE, &salt(), 4096, keys);
    assert_eq!(challenge, Ok(SERVER_FIRST));
    assert_eq!(server.finish(last).as_deref(), Ok(&done[..]));
}

#[test]
fn a_list_of_mechanisms_that_was_changed_is_noticed() {
    let offered = Some(BindingType::TlsExporter);
    let first = b"y,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    let begun = Exchange::begin(first, false, offered);
    assert_eq!(begun.err(), Some(ScramError::ChannelBinding));
    let other = Exchange::begin(b"p=tls-unique,,n=u,r=x", true, offered);
    assert_eq!(other.err(), Some(ScramError::Unsupported));
}

#[test]
fn a_client_does_not_bind_to_what_it_does_not_know() {
    let binding = Binding::Bound(ChannelBinding {
        kind: BindingType::TlsExporter,
        data: &[],
    });
    let client = Client {
        binding,
        ..client("user", b"pencil")
    };
    let mut out = Vec::new();
    client.first(&mut out).expect("first");
    assert_eq!(out, b"p=tls-exporter,,n=user,r=rOprNGfwEbeRWgbNEkqO");
    let answer = client.respond(SERVER_FIRST, &mut out);
    assert_eq!(answer.err(), Some(ScramError::ChannelBinding));
}
