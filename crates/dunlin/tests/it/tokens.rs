//! Tokens let clients of AMQP in, until they expire.

use core::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dunlin_amqp_client::{Builder, Client, ConnectionEvent, Sasl, TlsOptions};
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
