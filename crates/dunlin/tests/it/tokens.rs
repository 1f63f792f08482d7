//! Tokens let clients in, until they expire, and so does a server that is asked.

use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dunlin_amqp_client::{
    Builder, Client, ConnectionEvent, Message, Sasl, StreamPolicy, TlsOptions, Token,
};
use dunlin_base::transport::Transport;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::control::{fail, rows};
use crate::support::{Broker, PATIENCE, run};
use crate::web::{Answer, Web};

const SECRET: &[u8] = b"a secret that is thirty-two bytes";

/// A token that expires after this time.
fn token(secret: &[u8], user: &str, lifetime: Duration) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let expires = (now.expect("after 1970") + lifetime).as_secs_f64();
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let claims = format!(r#"{{"sub":"{user}","exp":{expires}}}"#);
    let signed = format!("{}.{}", part(r#"{"alg":"HS256"}"#), part(&claims));
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("any length");
    mac.update(signed.as_bytes());
    let signature = URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes());
    format!("{signed}.{signature}")
}

fn client(broker: &Broker, token: String) -> Builder {
    let port = broker.addr(Transport::Tls).port();
    let builder = Client::builder(format!("amqps://localhost:{port}")).expect("a URL");
    let builder = builder.tls(TlsOptions::new().ca_file(broker.ca()));
    builder.sasl(Sasl::Bearer(token))
}

#[test]
fn a_token_lets_its_user_in_until_it_expires() {
    let dir = tempfile::tempdir().expect("a directory");
    let keys = dir.path().join("keys");
    std::fs::write(&keys, SECRET).expect("written");
    let acl = dir.path().join("acl");
    std::fs::write(&acl, "user alice\ntopic hers/#\n").expect("written");
    let jwt = format!(
        "auth.jwt={{key_file={:?},algorithms=[\"HS256\"],leeway=\"0s\"}}",
        keys.display().to_string()
    );
    let acl = format!("auth.acl_file={:?}", acl.display().to_string());
    let listener = r#"listener=[{transport="tls",address="127.0.0.1:0",anonymous="never"}]"#;
    let broker = Broker::start_with(2, &[listener, &jwt, &acl]);
    run(async {
        let brief = Duration::from_secs(3);
        let alice = token(SECRET, "alice", brief);
        let hers = client(&broker, alice).connect().await.expect("let in");
        let mut events = hers.events();
        hers.sender("hers/1").attach().await.expect("hers");
        let refused = hers.sender("others/1").attach().await;
        refused.expect_err("the access list knows her");
        for wrong in [
            token(b"another secret that is as long as it", "alice", brief),
            token(SECRET, "alice", Duration::ZERO),
            "nonsense".into(),
        ] {
            client(&broker, wrong).connect().await.expect_err("refused");
        }
        let ended = tokio::time::timeout(PATIENCE, async {
            while let Some(event) = events.next().await {
                if let ConnectionEvent::Disconnected { cause } = event {
                    return cause.to_string();
                }
            }
            String::new()
        });
        let cause = ended.await.expect("in time");
        assert!(cause.contains("expired"), "{cause}");
    });
}

#[test]
fn a_client_that_renews_its_token_stays() {
    let dir = tempfile::tempdir().expect("a directory");
    let keys = dir.path().join("keys");
    std::fs::write(&keys, SECRET).expect("written");
    let jwt = format!(
        "auth.jwt={{key_file={:?},algorithms=[\"HS256\"],leeway=\"0s\"}}",
        keys.display().to_string()
    );
    let listener = r#"listener=[{transport="tls",address="127.0.0.1:0",anonymous="always",protocols=["amqp"]},
        {transport="quic",address="127.0.0.1:0",anonymous="never",protocols=["amqp"]}]"#;
    let broker = Broker::start_with(2, &[listener, &jwt]);
    let lifetime = Duration::from_secs(3);
    for (scheme, transport) in [("amqps", Transport::Tls), ("amqp+quic", Transport::Quic)] {
        let port = broker.addr(transport).port();
        let builder = Client::builder(format!("{scheme}://localhost:{port}")).expect("a URL");
        let builder = builder.tls(TlsOptions::new().ca_file(broker.ca()));
        run(async {
            let asked = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&asked);
            let alice = builder.clone().tokens(move || {
                count.fetch_add(1, Ordering::Relaxed);
                Ok(Token::new(token(SECRET, "alice", lifetime), lifetime))
            });
            // Without streams that has no effect.
            let alice = alice.streams(StreamPolicy::PerLink);
            let alice = alice.connect().await.expect("let in");
            let mut events = alice.events();
            let sender = alice.sender("t").attach().await.expect("attached");
            let second = alice.sender("u").attach().await.expect("attached");
            let ended = async {
                while let Some(event) = events.next().await {
                    if let ConnectionEvent::Disconnected { cause } = event {
                        return cause.to_string();
                    }
                }
                String::new()
            };
            let ended = tokio::time::timeout(lifetime * 2, ended).await;
            assert!(ended.is_err(), "{ended:?}");
            assert!(asked.load(Ordering::Relaxed) >= 3);
            let outcome = sender.send(Message::new("x")).await.expect("an outcome");
            assert!(outcome.is_accepted());
            let outcome = second.send(Message::new("x")).await.expect("an outcome");
            assert!(outcome.is_accepted());
            // The user stays the same.
            let other = alice.set_token(&token(SECRET, "bob", PATIENCE)).await;
            let other = other.expect_err("hers").to_string();
            assert!(other.contains("another user"), "{other}");
            alice.close().await;
        });
    }
    // Who came without a name has one by its token.
    let port = broker.addr(Transport::Tls).port();
    let builder = Client::builder(format!("amqps://localhost:{port}")).expect("a URL");
    run(async {
        let builder = builder.tls(TlsOptions::new().ca_file(broker.ca()));
        let client = builder.clone().connect().await.expect("let in");
        let foreign = token(b"another secret that is as long as it", "bob", PATIENCE);
        let wrong = client.set_token(&foreign).await;
        wrong.expect_err("not signed by it");
        let bob = token(SECRET, "bob", PATIENCE);
        client.set_token(&bob).await.expect("taken");
        client
            .set_token(&token(SECRET, "alice", PATIENCE))
            .await
            .expect_err("his");
        client.close().await;
        // Who is banned gains nothing by coming without a name first.
        let client = builder.connect().await.expect("let in");
        let mut events = client.events();
        broker.order(r#"{"request":"ban","whom":{"user":"bob"}}"#);
        let ended = async {
            loop {
                let event = events.next().await.expect("an event");
                if let ConnectionEvent::Disconnected { cause } = event {
                    break cause.to_string();
                }
            }
        };
        // The client comes back and tries again.
        let set = async {
            let _ = client.set_token(&bob).await;
            core::future::pending::<()>().await;
        };
        tokio::select! {
            cause = ended => assert!(cause.contains("banned"), "{cause}"),
            () = set => {}
        }
    });
}

/// A broker whose clients need a token over TLS.
fn guarded(auth: &str) -> Broker {
    let listener = r#"listener=[{transport="tls",address="127.0.0.1:0",anonymous="never"}]"#;
    Broker::start_with(2, &[listener, auth])
}

#[test]
fn a_token_as_password_lets_a_client_of_mqtt_in_until_it_expires() {
    let dir = tempfile::tempdir().expect("a directory");
    let keys = dir.path().join("keys");
    std::fs::write(&keys, SECRET).expect("written");
    let broker = guarded(&format!(
        "auth.jwt={{key_file={:?},algorithms=[\"HS256\"],leeway=\"0s\"}}",
        keys.display().to_string()
    ));
    run(async {
        let login = |token: String| broker.client(Transport::Tls).credentials("any", token);
        for wrong in [
            token(b"another secret that is as long as it", "alice", PATIENCE),
            token(SECRET, "alice", Duration::ZERO),
            "nonsense".into(),
            format!("eyJ{}.x.y", "x".repeat(50_000)),
        ] {
            let refused = login(wrong).connect().await;
            refused.expect_err("refused");
        }
        let brief = token(SECRET, "alice", Duration::from_secs(3));
        let (client, _messages) = login(brief).connect().await.expect("let in");
        let mut events = client.events();
        let ended = tokio::time::timeout(PATIENCE, async {
            loop {
                match events.next().await {
                    Some(dunlin_client::ConnectionEvent::Disconnected { cause, .. }) => {
                        return cause.to_string();
                    }
                    Some(_) => {}
                    None => return String::new(),
                }
            }
        });
        let cause = ended.await.expect("in time").to_lowercase();
        assert!(cause.contains("not authorized"), "{cause}");
    });
}

#[test]
fn a_server_that_is_asked_says_what_clients_may() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = Web::start(move |line, content| {
        assert!(line.starts_with("POST /clients "), "{line}");
        count.fetch_add(1, Ordering::Relaxed);
        match content.contains(r#""client_id":"pump-7""#)
            && content.contains(r#""password":"s3cret""#)
        {
            true => Answer::Ok(
                r#"{"result":"allow","user":"pump","rules":{"pub":["plant/%u/%c"]}}"#.into(),
            ),
            false => Answer::Ok(r#"{"result":"deny"}"#.into()),
        }
    });
    let url = server.url("/clients");
    let broker = guarded(&format!("auth.http={{url={url:?}}}"));
    run(async {
        let login = |id: &str, password: &str| {
            let builder = broker.client(Transport::Tls).client_id(id);
            builder.credentials("x", password.to_owned()).connect()
        };
        login("pump-8", "s3cret").await.expect_err("denied");
        login("pump-7", "wrong").await.expect_err("denied");
        let (client, _messages) = login("pump-7", "s3cret").await.expect("let in");
        for (topic, is_his) in [("plant/pump/pump-7", true), ("plant/pump/pump-8", false)] {
            let publish = dunlin_client::Publish::new(topic, "x");
            let publish = publish.qos(dunlin_client::QoS::AtLeastOnce);
            let answered = client.publish(publish).await;
            let allowed = matches!(answered, Ok(reason) if !reason.is_error());
            assert_eq!(allowed, is_his, "{topic}: {answered:?}");
            // The order: subscribe, publish, receive.
            let rights = rows(&broker, &["acl", "explain", "--client", "pump-7", topic]);
            let why = match is_his {
                true => "a rule that the client brought allows it: write plant/%u/%c",
                false => "no line allows it, and no rule that the client brought",
            };
            assert_eq!(rights[1]["allowed"], is_his);
            assert_eq!(rights[1]["why"], why);
        }
        let gone = ["acl", "explain", "--client", "pump-8", "a"];
        assert_eq!(fail(&broker, &gone).0, 2);
        client.disconnect().await;
    });
    assert_eq!(asked.load(Ordering::Relaxed), 3);
}

#[test]
fn keys_are_fetched_from_a_server() {
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};

    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
    let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
    let set = format!(
        r#"{{"keys":[{{"kty":"EC","crv":"P-256","kid":"k","x":"{}","y":"{}"}}]}}"#,
        part(x),
        part(y)
    );
    let server = Web::start(move |_, _| Answer::Ok(set.clone()));
    let url = server.url("/keys");
    let broker = guarded(&format!(
        "auth.jwt={{jwks_url={url:?},algorithms=[\"ES256\"]}}"
    ));
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let expires = (now.expect("after 1970") + PATIENCE).as_secs();
    let token = |id: &str| {
        let header = part(format!(r#"{{"alg":"ES256","kid":"{id}"}}"#).as_bytes());
        let claims = part(format!(r#"{{"sub":"alice","exp":{expires}}}"#).as_bytes());
        let signed = format!("{header}.{claims}");
        let signature = pair.sign(&SystemRandom::new(), signed.as_bytes());
        format!("{signed}.{}", part(signature.expect("signed").as_ref()))
    };
    run(async {
        // The first waits until the keys have come.
        for (id, is_known) in [("k", true), ("other", false), ("k", true)] {
            let builder = broker.client(Transport::Tls).credentials("", token(id));
            assert_eq!(builder.connect().await.is_ok(), is_known, "{id}");
        }
    });
}
