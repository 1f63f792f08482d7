//! A mosquitto.conf becomes a file that Dunlin takes, and what it loses has a name.

use std::fs;

use super::*;
use crate::config::Config;

fn import(files: &[(&str, &str)]) -> (Imported, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().display().to_string();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text.replace("DIR", &root)).expect("written");
    }
    let path = dir.path().join("mosquitto.conf");
    let imported = mosquitto(&path, "passwords").expect("read");
    Config::parse(&path, &imported.toml).expect(&imported.toml);
    (imported, dir)
}

/// The places of what is not carried over, without the folder.
fn places(imported: &Imported, dir: &tempfile::TempDir) -> Vec<String> {
    let texts = imported.remarks.iter().filter(|remark| remark.at.is_some());
    let folder = format!("{}/", dir.path().display());
    texts
        .map(|remark| remark.to_string().replace(&folder, ""))
        .collect()
}

#[test]
fn a_usual_file_is_carried_over() {
    let (imported, dir) = import(&[
        (
            "mosquitto.conf",
            "# comment\n\
             per_listener_settings false\n\
             max_qos 2\n\
             retain_available true\n\
             persistence true\n\
             max_inflight_messages 40\n\
             max_queued_messages 5000\n\
             message_size_limit 100000\n\
             max_keepalive 600\n\
             memory_limit 1000000000\n\
             persistent_client_expiration 2m\n\
             sys_interval 30\n\
             allow_anonymous false\n\
             password_file DIR/passwd\n\
             acl_file DIR/acl\n\
             listener 1883 127.0.0.1\n\
             listener 8883\n\
             certfile /etc/certs/server.pem\n\
             keyfile /etc/certs/server.key\n\
             cafile /etc/certs/ca.pem\n\
             crlfile /etc/certs/crl.pem\n\
             require_certificate true\n\
             use_identity_as_username true\n\
             include_dir DIR/conf.d\n",
        ),
        (
            "conf.d/web.conf",
            "listener 9001 ::1\nprotocol websockets\nmount_point web/\n",
        ),
        ("conf.d/notes.txt", "nonsense\n"),
        (
            "acl",
            "user alice\ntopic readwrite a/#\npattern read c/%c/%u\n",
        ),
        ("passwd", ALICE),
    ]);
    assert_eq!(places(&imported, &dir), [""; 0]);
    let config = Config::parse(&dir.path().join("x"), &imported.toml).expect("valid");
    let limits = format!("{:?}", config.limits);
    for part in [
        "max_inflight: 40",
        "receive_maximum: 40",
        "max_queued_messages: 5000",
    ] {
        assert!(limits.contains(part), "{part}: {limits}");
    }
    for line in [
        "max_packet_size = \"101024B\"",
        "max_keep_alive = \"600s\"",
        "max_session_expiry = \"60d\"",
        "memory = \"1000000000B\"",
        "interval = \"30s\"",
        "anonymous = \"never\"",
        "address = \"127.0.0.1:1883\"",
        "address = \"*:8883\"",
        "tls.client_ca = \"/etc/certs/ca.pem\"",
        "tls.require_client_cert = true",
        "tls.crl_files = [\"/etc/certs/crl.pem\"]",
        "filter_subscriptions = true",
        "tls.identity = \"cn\"",
        "address = \"[::1]:9001\"",
        "transport = \"ws\"",
        "mount = \"web/\"",
        "#transport = \"quic\"",
    ] {
        assert!(
            imported.toml.lines().any(|it| it == line),
            "{line}\n{}",
            imported.toml
        );
    }
    // It stays where it is.
    assert!(imported.passwords.is_none());
    assert!(
        imported
            .toml
            .contains(&format!("{}/passwd\"", dir.path().display()))
    );
}

/// What mosquitto_passwd writes.
const ALICE: &str = "alice:$7$101$YvImOIVlEq0mBahf$5hVtYkm2eWBl728ytVpbj1jztTwW9svZjY0pfAp0xziTZRrfDf6sRrl26F8PX2vKO/nztmCU4BGNUii4WrEPQw==\n";

#[test]
fn what_is_lost_is_named_with_its_line() {
    let bob = "bob:$6$AAAA$BBBB\ncarol:secret\n\n# c\n";
    let passwords = format!("{ALICE}{bob}{ALICE}");
    let (imported, dir) = import(&[
        (
            "mosquitto.conf",
            "listener 1884\n\
             mount_point x\n\
             psk_file /p\n\
             max_qos 1\n\
             listener 0 /run/m.sock\n\
             log_dest file /var/log/m.log\n\
             queue_qos0_messages true\n\
             plugin /usr/lib/x.so\n\
             plugin_opt_a b\n\
             frobnicate 1\n\
             max_keepalive soon\n\
             password_file DIR/passwd\n\
             connection up\n\
             address up.example\n\
             topic # both 1\n\
             remote_password secret\n\
             bridge_cafile /c\n\
             allow_anonymous true\n",
        ),
        ("passwd", &passwords),
    ]);
    let places = places(&imported, &dir);
    let lines: Vec<&str> = places
        .iter()
        .filter_map(|it| it.split(": ").next())
        .collect();
    let conf = [2, 3, 4, 6, 7, 8, 9, 10, 11, 13];
    let mut want: Vec<String> = conf
        .iter()
        .map(|it| format!("mosquitto.conf:{it}"))
        .collect();
    want.extend([2, 3, 6].map(|line| format!("passwd:{line}")));
    assert_eq!(lines, want, "{places:#?}");
    // Neither passwords of bridges nor such that stand for hashes.
    assert!(!places.concat().contains("secret"), "{places:?}");
    assert_eq!(
        imported.passwords.as_deref(),
        Some(&*format!("{ALICE}\n# c\n"))
    );
    assert!(imported.toml.contains("password_file = \"passwords\""));
    assert!(imported.toml.contains("anonymous = \"always\""));
    assert_eq!(imported.toml.matches("[[listener]]").count(), 2);
    let socket = "transport = \"unix\"\nprotocols = [\"mqtt\"]\npath = \"/run/m.sock\"\n";
    assert!(imported.toml.contains(socket), "{}", imported.toml);
}

#[test]
fn the_data_directory_is_a_key_of_the_whole_file() {
    let (mut imported, dir) = import(&[("mosquitto.conf", "sys_interval 30\nlistener 1883\n")]);
    imported.set_data_dir(Path::new("/var/lib/\"dunlin\""));
    let config = Config::parse(&dir.path().join("dunlin.toml"), &imported.toml);
    let config = config.expect(&imported.toml);
    assert_eq!(config.data_dir, Path::new("/var/lib/\"dunlin\""));
    assert!(imported.toml.contains("[sys]\ninterval = \"30s\"\n"));
    assert!(imported.toml.starts_with("# Made by"), "{}", imported.toml);
}

#[test]
fn nothing_said_is_as_in_mosquitto() {
    let (imported, _dir) = import(&[("mosquitto.conf", "\n")]);
    assert!(imported.toml.contains("address = \"127.0.0.1:1883\""));
    assert!(!imported.toml.contains("anonymous"));
    let (imported, _dir) = import(&[("mosquitto.conf", "listener 1883\n")]);
    assert!(imported.toml.contains("anonymous = \"never\""));
    let (imported, _dir) = import(&[(
        "mosquitto.conf",
        "per_listener_settings true\nlistener 1883\nallow_anonymous true\nmax_connections 5\n\
         listener 1884\nallow_anonymous false\nmax_connections 6\n",
    )]);
    assert!(
        imported.toml.contains("max_connections = 11"),
        "{}",
        imported.toml
    );
    let at = |text: &str| imported.toml.find(text).expect(text);
    assert!(at("*:1883") < at("\"always\"") && at("\"always\"") < at("*:1884"));
}

#[test]
fn an_access_list_that_is_not_understood_is_named() {
    let (imported, _dir) = import(&[
        ("mosquitto.conf", "acl_file DIR/acl\n"),
        ("acl", "user a\ntopic read a\nrole b\n"),
    ]);
    let named = imported
        .remarks
        .iter()
        .any(|it| it.why.contains("does not start"));
    assert!(
        named && imported.toml.contains("acl_file"),
        "{:?}",
        imported.remarks
    );
}

#[test]
fn files_that_include_each_other_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("a.conf");
    let text = format!("include_dir {}\n", dir.path().display());
    fs::write(&path, text).expect("written");
    assert!(matches!(mosquitto(&path, "p"), Err(ReadError::TooMuch(_))));
    let missing = mosquitto(&dir.path().join("none"), "p");
    assert!(matches!(missing, Err(ReadError::File { .. })));
}

#[test]
fn no_listener_becomes_one_that_asks_for_less() {
    let (imported, _dir) = import(&[(
        "mosquitto.conf",
        "allow_anonymous true\n\
         psk_file /p\n\
         listener 8883\n\
         psk_hint h\n\
         listener 8884\n\
         certfile /c\n\
         keyfile /k\n\
         capath /ca\n\
         require_certificate true\n",
    )]);
    let addresses = imported.toml.lines();
    let addresses = addresses.filter(|line| line.starts_with("address"));
    // Clients of both had to prove who they are.
    let addresses: Vec<&str> = addresses.collect();
    assert_eq!(addresses, ["address = \"127.0.0.1:1883\""]);
    let remarks: Vec<String> = imported.remarks.iter().map(ToString::to_string).collect();
    for part in ["psk_hint h", "listener 8884: left out", "this machine only"] {
        assert!(
            remarks.iter().any(|it| it.contains(part)),
            "{part}: {remarks:?}"
        );
    }
}

#[test]
fn revocation_lists_are_carried_over_where_certificates_are_asked_for() {
    for (asked, carried, part) in [
        (true, 1, "every authority"),
        (false, 0, "no certificate is asked for"),
    ] {
        let conf = format!(
            "listener 8883\ncertfile /s.pem\nkeyfile /s.key\ncafile /ca.pem\n\
             require_certificate {asked}\ncrlfile /crl.pem\n"
        );
        let (imported, dir) = import(&[("mosquitto.conf", &conf)]);
        assert_eq!(places(&imported, &dir), [""; 0]);
        let lines = imported.toml.lines();
        let count = lines.filter(|line| line.starts_with("tls.crl_files"));
        assert_eq!(count.count(), carried, "{}", imported.toml);
        let remarks: Vec<String> = imported.remarks.iter().map(ToString::to_string).collect();
        assert!(remarks.iter().any(|it| it.contains(part)), "{remarks:?}");
    }
}

#[test]
fn bridges_are_carried_over_and_what_they_lose_is_named() {
    let (imported, dir) = import(&[(
        "mosquitto.conf",
        "listener 1883\n\
         connection cloud\n\
         address cloud.example:8883 other.example\n\
         topic sensors/# out 1 plant/ site7/\n\
         topic # in 2 \"\" from/\n\
         topic state both\n\
         topic x sideways\n\
         remote_username ann\n\
         remote_password secret\n\
         remote_clientid site7\n\
         cleansession false\n\
         keepalive_interval 30\n\
         restart_timeout 2 40\n\
         start_type lazy\n\
         threshold 5\n\
         notification_topic bridges/site7\n\
         try_private false\n\
         bridge_protocol_version mqttv50\n\
         bridge_cafile /etc/certs/ca.pem\n\
         bridge_insecure false\n\
         connection near\n\
         address 192.0.2.1\n\
         topic a\n\
         connection keyed\n\
         address 192.0.2.2\n\
         topic a\n\
         bridge_psk 00ff\n\
         connection empty\n\
         address 192.0.2.3\n\
         connection wrong\n\
         address 192.0.2.3\n\
         topic a out 3\n",
    )]);
    let config = Config::parse(&dir.path().join("x"), &imported.toml).expect("valid");
    let names: Vec<&str> = config.bridge.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["cloud", "near"], "{}", imported.toml);
    let cloud = &config.bridge[0];
    assert_eq!(cloud.url, "mqtts://cloud.example:8883");
    assert_eq!(cloud.topic[0].local_filter(), "plant/sensors/#");
    assert_eq!(cloud.topic[0].remote_filter(), "site7/sensors/#");
    assert_eq!(cloud.topic[1].remote_filter(), "from/#");
    assert_eq!((cloud.topic[1].qos, cloud.topic[2].qos), (2, 0));
    assert!(cloud.topic[1].is_in() && !cloud.topic[1].is_out());
    for line in [
        "user = \"ann\"",
        "password_file = \"bridge-cloud.password\"",
        "client_id = \"site7\"",
        "clean_start = false",
        "connection.keep_alive = \"30s\"",
        "connection.reconnect_max = \"40s\"",
        "connection.bridge_flag = false",
        "status_topic = \"bridges/site7\"",
        "version = \"5.0\"",
        "tls.ca = \"/etc/certs/ca.pem\"",
        "url = \"mqtt://192.0.2.1:1883\"",
        "version = \"3.1.1\"",
    ] {
        assert!(
            imported.toml.lines().any(|it| it == line),
            "{line}\n{}",
            imported.toml
        );
    }
    let places = places(&imported, &dir);
    let lines: Vec<&str> = places
        .iter()
        .filter_map(|it| it.split(": ").next())
        .collect();
    let want = [3, 7, 14, 15, 24, 28, 30].map(|line| format!("mosquitto.conf:{line}"));
    assert_eq!(lines, want, "{places:#?}");
    let remarks: String = imported
        .remarks
        .iter()
        .map(|it| format!("{it}\n"))
        .collect();
    assert!(remarks.contains("bridge-cloud.password"), "{remarks}");
    assert!(!remarks.contains("secret") && !imported.toml.contains("secret"));
}
