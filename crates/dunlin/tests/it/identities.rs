//! Who a client is: by its certificate, and by SCRAM-SHA-256.

use std::path::Path;

use dunlin::auth::passwords::{Change, changed};
use dunlin::certs::{self, CA_DAYS, Options, Purpose};
use dunlin_base::transport::Transport;
use dunlin_client::{Builder, Publish, QoS, ReasonCode, TlsOptions};

use crate::support::{Broker, run};

/// The encrypted listeners of the test broker, by their number.
const ENCRYPTED: [(usize, Transport); 3] = [
    (0, Transport::Quic),
    (2, Transport::Tls),
    (4, Transport::Wss),
];

/// A directory with an authority, a server's and a device's certificate.
fn authority(device: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("directory");
    certs::init(dir.path(), CA_DAYS, &Options::default()).expect("authority");
    certs::issue(dir.path(), device, Purpose::Device, &Options::default()).expect("device");
    dir
}

fn identified(builder: Builder, ca: &Path, dir: &Path, name: &str) -> Builder {
    let (cert, key) = (
        dir.join(format!("{name}.pem")),
        dir.join(format!("{name}.key")),
    );
    let trust = TlsOptions::new().ca_file(ca.join("ca.pem"));
    builder.tls(trust.identity_files(cert, key))
}

#[test]
fn a_certificate_is_a_credential_and_its_name_the_user() {
    let (ours, theirs) = (authority("pump-7"), authority("pump-7"));
    let dir = ours.path();
    let acl = dir.join("acl");
    std::fs::write(&acl, "user pump-7\ntopic write plant/pump-7/#\n").expect("written");
    let file = |name: &str| dir.join(name).display().to_string();
    let mut overrides = vec![
        "auth.anonymous=never".to_owned(),
        format!("auth.acl_file={}", acl.display()),
    ];
    for (index, _) in ENCRYPTED {
        overrides.push(format!(
            "listener.{index}.tls={{cert={:?},key={:?},client_ca={:?},require_client_cert=true}}",
            file("server.pem"),
            file("server.key"),
            file("ca.pem")
        ));
    }
    let overrides: Vec<&str> = overrides.iter().map(String::as_str).collect();
    let broker = Broker::start_with(2, &overrides);
    run(async {
        for (_, transport) in ENCRYPTED {
            let known = identified(broker.client(transport), dir, dir, "pump-7");
            let (client, _) = known.connect().await.expect("let in");
            let publish = |topic| client.publish(Publish::new(topic, "x").qos(QoS::AtLeastOnce));
            let own = publish("plant/pump-7/rpm").await.expect("answered");
            assert!(!own.is_error(), "{own:?}");
            let other = publish("plant/pump-8/rpm").await;
            assert!(
                matches!(other, Ok(ReasonCode::NotAuthorized) | Err(_)),
                "{other:?}"
            );
            client.disconnect().await;

            let strange = identified(broker.client(transport), dir, theirs.path(), "pump-7");
            strange
                .connect()
                .await
                .expect_err("signed by somebody else");
            let trust = TlsOptions::new().ca_file(dir.join("ca.pem"));
            let without = broker.client(transport).tls(trust);
            without.connect().await.expect_err("without a certificate");
        }
        // Anonymous clients are refused on the other listeners, too.
        broker
            .client(Transport::Tcp)
            .connect()
            .await
            .expect_err("anonymous");
    });
}

#[test]
fn scram_lets_in_who_knows_the_password() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("passwords");
    let change = Change::Set {
        password: b"one",
        iterations: 4096,
    };
    let text = changed(&path, None, "alice", change).expect("changed");
    std::fs::write(&path, text).expect("written");
    let file = format!("auth.password_file={}", path.display());
    for shards in [1, 2] {
        let broker = Broker::start_with(shards, &["auth.anonymous=never", &file]);
        run(async {
            for transport in [Transport::Quic, Transport::Tcp, Transport::Wss] {
                let login = |user: &str, password: &str| {
                    let builder = broker.client(transport).scram(user, password);
                    builder.connect()
                };
                let (client, _) = login("alice", "one").await.expect("let in");
                client.disconnect().await;
                for (user, password) in [("alice", "two"), ("eve", "one")] {
                    let error = login(user, password).await.expect_err("refused");
                    let error = error.to_string().to_lowercase();
                    assert!(error.contains("not authorized"), "{user}: {error}");
                }
            }
        });
    }
}
