//! The exchange of RFC 7677 section 3, and what must not pass.

use alloc::vec::Vec;

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

#[test]
fn server_follows_rfc_7677() {
    let keys = StoredKeys::derive(b"pencil", &salt(), 4096);
    let first = ClientFirst::parse(CLIENT_FIRST).expect("first");
    assert_eq!(first.user_name(), "user");
    let mut out = Vec::new();
    first
        .respond(SERVER_NONCE, &salt(), 4096, &mut out)
        .expect("server first");
    assert_eq!(out, SERVER_FIRST);
    out.clear();
    first
        .verify(SERVER_FIRST, CLIENT_FINAL, &keys, &mut out)
        .expect("proof");
    assert_eq!(out, SERVER_FINAL);
    let wrong = StoredKeys::derive(b"pencils", &salt(), 4096);
    assert_eq!(
        first.verify(SERVER_FIRST, CLIENT_FINAL, &wrong, &mut out),
        Err(ScramError::Proof)
    );
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
        (b"p=tls-unique,,n=u,r=x", ScramError::Unsupported),
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
    let keys = StoredKeys::derive(b"pencil", &salt(), 4096);
    let first = ClientFirst::parse(b"y,,n=user,r=rOprNGfwEbeRWgbNEkqO").expect("first");
    let mut out = Vec::new();
    // `c=biws` answers `n,,`, not `y,,`: someone changed the header.
    assert_eq!(
        first.verify(SERVER_FIRST, CLIENT_FINAL, &keys, &mut out),
        Err(ScramError::Malformed)
    );
    let first = ClientFirst::parse(CLIENT_FIRST).expect("first");
    assert_eq!(
        first.verify(SERVER_FIRST, b"c=biws,r=other,p=AAAA", &keys, &mut out),
        Err(ScramError::Nonce)
    );
}
