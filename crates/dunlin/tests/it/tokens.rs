//! Tokens let clients of AMQP in, until they expire.

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

use crate::support::{Broker, PATIENCE, run};

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
