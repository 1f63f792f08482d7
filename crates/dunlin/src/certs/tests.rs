//! Certificates as files: what is made, what is kept, what is refused.

use super::*;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("directory")
}

#[test]
fn authority_and_server_are_made_once() {
    let dir = directory();
    let dir = dir.path().join("deep/certs");
    let first = ensure_development(&dir).expect("created");
    assert_eq!(first.state, DevState::Created);
    let key = fs::read(&first.key).expect("key");
    let second = ensure_development(&dir).expect("reused");
    assert_eq!(second.state, DevState::Reused);
    assert_eq!(fs::read(&first.key).expect("key"), key);

    let ca = &inspect(&first.ca).expect("valid")[0];
    let server = &inspect(&first.cert).expect("valid")[0];
    assert!(ca.is_ca && !server.is_ca);
    assert_eq!(server.issuer, ca.subject);
    for name in ["localhost", "127.0.0.1", "::1"] {
        assert!(server.names.iter().any(|n| n == name), "{server}");
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(&first.key)
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn expired_certificates_are_renewed_and_the_authority_kept() {
    let dir = directory();
    let dir = dir.path();
    let short = Options {
        days: 1,
        ..Options::default()
    };
    init(dir, CA_DAYS, &short).expect("created");
    let ca = fs::read(dir.join("ca.pem")).expect("ca");
    let renewed = ensure_development(dir).expect("renewed");
    assert_eq!(renewed.state, DevState::Renewed);
    assert_eq!(fs::read(dir.join("ca.pem")).expect("ca"), ca);
    assert_eq!(
        ensure_development(dir).expect("reused").state,
        DevState::Reused
    );

    fs::remove_file(&renewed.key).expect("removed");
    assert_eq!(
        ensure_development(dir).expect("renewed").state,
        DevState::Renewed
    );

    let force = Options {
        force: true,
        ..Options::default()
    };
    init(dir, 1, &force).expect("made again");
    assert_eq!(
        ensure_development(dir).expect("replaced").state,
        DevState::Replaced
    );
}

#[test]
fn nothing_is_overwritten_without_force() {
    let dir = directory();
    let dir = dir.path();
    init(dir, CA_DAYS, &Options::default()).expect("created");
    let error = init(dir, CA_DAYS, &Options::default()).expect_err("exists");
    assert!(
        error
            .to_string()
            .ends_with("ca.pem exists already; --force replaces it"),
        "{error}"
    );
    issue(dir, "pump-7", Purpose::Device, &Options::default()).expect("issued");
    issue(dir, "pump-7", Purpose::Device, &Options::default()).expect_err("exists");

    // The key of the authority is gone: nothing is made in its place.
    fs::remove_file(dir.join("ca.key")).expect("removed");
    let error = ensure_development(dir).expect_err("half of an authority");
    assert!(
        error.to_string().contains("ca.pem exists already"),
        "{error}"
    );
}

#[test]
fn devices_and_servers_carry_their_names() {
    let dir = directory();
    let dir = dir.path();
    init(dir, CA_DAYS, &Options::default()).expect("created");
    let device = issue(dir, "pump_7", Purpose::Device, &Options::default()).expect("issued");
    let device = &inspect(&device.cert).expect("valid")[0];
    assert_eq!(
        (device.subject.as_str(), device.names.len()),
        ("CN=pump_7", 0)
    );
    let options = Options {
        sans: vec![
            "*.example.org".into(),
            "192.0.2.7".into(),
            "localhost".into(),
        ],
        ..Options::default()
    };
    let server = issue(dir, "broker.example.org", Purpose::Server, &options).expect("issued");
    let server = &inspect(&server.cert).expect("valid")[0];
    for name in ["broker.example.org", "*.example.org", "192.0.2.7", "::1"] {
        assert!(server.names.iter().any(|n| n == name), "{server}");
    }
    let names = server.names.iter().filter(|n| *n == "localhost").count();
    assert_eq!(names, 1);
    let shown = server.to_string();
    assert!(
        shown.contains("subject      CN=broker.example.org\n"),
        "{shown}"
    );
    assert!(!shown.contains("EXPIRED"), "{shown}");
}

#[test]
fn mistakes_are_one_sentence() {
    let dir = directory();
    let dir = dir.path();
    let options = Options::default();
    let sentence = |result: Result<Files, CertError>| result.expect_err("wrong").to_string();
    let without = sentence(issue(dir, "x", Purpose::Device, &options));
    assert!(
        without.starts_with("there is no authority in "),
        "{without}"
    );
    init(dir, CA_DAYS, &options).expect("created");
    for name in ["", "../x", ".x", "a b", &"x".repeat(65)] {
        let error = sentence(issue(dir, name, Purpose::Device, &options));
        assert!(error.contains("is not usable as a name"), "{error}");
    }
    let days = Options {
        days: 0,
        ..options.clone()
    };
    let error = sentence(issue(dir, "x", Purpose::Device, &days));
    assert_eq!(
        error,
        "a certificate can be valid for 1 to 36500 days, not 0"
    );
    fs::write(dir.join("ca.key"), "no key").expect("written");
    let error = sentence(issue(dir, "x", Purpose::Device, &options));
    assert!(
        error.ends_with("ca.key does not contain a private key"),
        "{error}"
    );
    fs::write(dir.join("ca.pem"), "no certificate").expect("written");
    let error = ensure_development(dir).expect_err("wrong").to_string();
    assert!(
        error.ends_with("ca.pem does not contain a certificate"),
        "{error}"
    );
    let error = inspect(&dir.join("nothing.pem"))
        .expect_err("missing")
        .to_string();
    assert!(error.starts_with("cannot read "), "{error}");
}
