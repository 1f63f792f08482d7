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

/// A list of certificates of the directory's authority that were revoked.
fn revoked(dir: &Path, names: &[&str]) -> String {
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).expect("read");
    let key = rcgen::KeyPair::from_pem(&read("ca.key")).expect("a key");
    let issuer = rcgen::Issuer::from_ca_cert_pem(&read("ca.pem"), key).expect("an authority");
    let serial = |name: &&str| {
        let (_, pem) = x509_parser::pem::parse_x509_pem(read(name).as_bytes()).expect("PEM");
        let cert = pem.parse_x509().expect("a certificate");
        cert.raw_serial().to_vec()
    };
    let revoked = names
        .iter()
        .map(serial)
        .map(|serial| rcgen::RevokedCertParams {
            serial_number: serial.into(),
            revocation_time: rcgen::date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
    let params = rcgen::CertificateRevocationListParams {
        this_update: rcgen::date_time_ymd(2024, 1, 1),
        next_update: rcgen::date_time_ymd(2124, 1, 1),
        crl_number: 1.into(),
        issuing_distribution_point: None,
        revoked_certs: revoked.collect(),
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    let list = params.signed_by(&issuer).expect("signed");
    list.pem().expect("PEM")
}

#[test]
fn a_certificate_that_was_revoked_lets_no_client_in() {
    let ours = authority("pump-7");
    let dir = ours.path();
    certs::issue(dir, "pump-8", Purpose::Device, &Options::default()).expect("device");
    let file = |name: &str| dir.join(name).display().to_string();
    std::fs::write(dir.join("list"), revoked(dir, &["pump-8.pem"])).expect("written");
    let mut overrides = vec!["auth.anonymous=never".to_owned()];
    for (index, _) in ENCRYPTED {
        overrides.push(format!(
            "listener.{index}.tls={{cert={:?},key={:?},client_ca={:?},crl_files=[{:?}]}}",
            file("server.pem"),
            file("server.key"),
            file("ca.pem"),
            file("list")
        ));
    }
    let overrides: Vec<&str> = overrides.iter().map(String::as_str).collect();
    let broker = Broker::start_with(2, &overrides);
    let device = |transport, name| identified(broker.client(transport), dir, dir, name);
    run(async {
        for (_, transport) in ENCRYPTED {
            let known = device(transport, "pump-7").connect().await;
            known.expect("let in").0.disconnect().await;
            let revoked = device(transport, "pump-8").connect().await;
            revoked.expect_err("revoked");
        }
        // A list that cannot be read changes nothing.
        std::fs::write(dir.join("list"), "nonsense").expect("written");
        let error = broker.reload().expect_err("refused").to_string();
        assert!(error.contains("list"), "{error}");
        // A ticket of before does not outlive the certificate.
        let resumed = ENCRYPTED.map(|(_, transport)| device(transport, "pump-7"));
        for known in &resumed {
            let (client, _) = known.clone().connect().await.expect("let in");
            client.disconnect().await;
        }
        std::fs::write(dir.join("list"), revoked(dir, &["pump-7.pem"])).expect("written");
        broker.reload().expect("reloaded");
        for (_, transport) in ENCRYPTED {
            // The shards learn of it in their own time.
            while device(transport, "pump-8").connect().await.is_err() {}
        }
        for known in resumed {
            known.connect().await.expect_err("revoked");
        }
    });
}
