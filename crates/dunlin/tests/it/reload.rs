//! New certificates while clients are connected, and names in certificates of
//! clients, on every encrypted transport.

use std::path::Path;

use dunlin::certs::{self, CA_DAYS, Options, Purpose};
use dunlin_base::transport::Transport;
use dunlin_client::{Builder, Publish, QoS, TlsOptions};

use crate::support::{Broker, run};

/// The encrypted listeners of the test broker, by their number.
const ENCRYPTED: [(usize, Transport); 3] = [
    (0, Transport::Quic),
    (2, Transport::Tls),
    (4, Transport::Wss),
];

fn authority(dir: &Path, force: bool) {
    let options = Options {
        force,
        ..Options::default()
    };
    certs::init(dir, CA_DAYS, &options).expect("authority");
}

/// Overrides that give all encrypted listeners the certificates in `dir`.
fn with_certs(dir: &Path, more: &str) -> Vec<String> {
    let file = |name: &str| dir.join(name).display().to_string();
    let of = |(index, _)| {
        format!(
            "listener.{index}.tls={{cert={:?},key={:?}{more}}}",
            file("server.pem"),
            file("server.key"),
        )
    };
    ENCRYPTED.map(of).into()
}

fn start(shards: u16, overrides: &[String]) -> Broker {
    let overrides: Vec<&str> = overrides.iter().map(String::as_str).collect();
    Broker::start_with(shards, &overrides)
}

fn trusting(builder: Builder, ca: &Path) -> Builder {
    builder.tls(TlsOptions::new().ca_file(ca))
}

#[test]
fn certificates_are_replaced_under_connections_that_stay() {
    let dir = tempfile::tempdir().expect("directory");
    authority(dir.path(), false);
    let (ca, old) = (dir.path().join("ca.pem"), dir.path().join("old.pem"));
    std::fs::copy(&ca, &old).expect("copied");
    let broker = start(2, &with_certs(dir.path(), ""));
    run(async {
        let mut before = Vec::new();
        for (_, transport) in ENCRYPTED {
            let known = trusting(broker.client(transport), &old).connect().await;
            before.push(known.expect("let in"));
        }
        authority(dir.path(), true);
        broker.reload().expect("reloaded");
        for (_, transport) in ENCRYPTED {
            // The shards learn of it in their own time.
            let new = loop {
                let tried = trusting(broker.client(transport), &ca).connect().await;
                if let Ok(open) = tried {
                    break open;
                }
            };
            new.0.disconnect().await;
        }
        for (client, _messages) in &before {
            let publish = Publish::new("still/here", "x").qos(QoS::AtLeastOnce);
            let reason = client.publish(publish).await.expect("answered");
            assert!(!reason.is_error(), "{reason:?}");
        }
        // Bad files change nothing, and the error names them.
        std::fs::write(dir.path().join("server.pem"), "nonsense").expect("written");
        let error = broker.reload().expect_err("refused").to_string();
        assert!(error.contains("server.pem"), "{error}");
        for (_, transport) in ENCRYPTED {
            let open = trusting(broker.client(transport), &ca).connect().await;
            open.expect("as before").0.disconnect().await;
        }
        for (client, _messages) in &before {
            client.disconnect().await;
        }
    });
}

#[test]
fn the_chosen_name_of_a_certificate_is_the_user_of_patterns() {
    let dir = tempfile::tempdir().expect("directory");
    authority(dir.path(), false);
    let mut options = Options::default();
    options.sans.push("pump-7.example".into());
    certs::issue(dir.path(), "serial-4711", Purpose::Device, &options).expect("device");
    certs::issue(dir.path(), "nameless", Purpose::Device, &Options::default()).expect("device");
    let acl = dir.path().join("acl");
    std::fs::write(&acl, "pattern write plant/%u/#\n").expect("written");
    let ca = dir.path().join("ca.pem");
    let more = format!(
        ",client_ca={:?},identity=\"san-dns\"",
        ca.display().to_string()
    );
    let mut overrides = with_certs(dir.path(), &more);
    overrides.push("auth.anonymous=never".into());
    overrides.push(format!("auth.acl_file={}", acl.display()));
    let broker = start(2, &overrides);
    let device = |transport, name: &str| {
        let file = |kind: &str| dir.path().join(format!("{name}.{kind}"));
        let tls = TlsOptions::new().ca_file(&ca);
        broker
            .client(transport)
            .tls(tls.identity_files(file("pem"), file("key")))
    };
    run(async {
        for (_, transport) in ENCRYPTED {
            let open = device(transport, "serial-4711").connect().await;
            let (client, _messages) = open.expect("let in");
            let publish = |topic| client.publish(Publish::new(topic, "x").qos(QoS::AtLeastOnce));
            let own = publish("plant/pump-7.example/rpm").await.expect("answered");
            assert!(!own.is_error(), "{own:?}");
            let other = publish("plant/serial-4711/rpm").await;
            assert!(!matches!(other, Ok(r) if !r.is_error()), "{other:?}");
            client.disconnect().await;
            let nameless = device(transport, "nameless").connect().await;
            nameless.expect_err("has no such name");
        }
    });
}
