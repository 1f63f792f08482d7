//! `dunlin cid` as a program: what it says of ids, and of what is none.

use std::process::Command;

use dunlin_base::ShardId;
use dunlin_net::{CidCodec, LbConfig, NetKeys};

/// Output and exit code.
fn cid(args: &[&str]) -> (String, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
    let output = command.arg("cid").args(args).output().expect("started");
    let out = if output.stdout.is_empty() {
        output.stderr
    } else {
        output.stdout
    };
    let text = String::from_utf8(out).expect("text");
    (text.trim_end().to_owned(), output.status.code())
}

const KEY: &str = "8f95f09245765f80256934e50c66207f";

/// Ids of draft-ietf-quic-load-balancers, "Load Balancer Test Vectors".
#[test]
fn ids_of_any_server_are_read_by_the_options() {
    let plain = cid(&["--server-id-len", "3", "07c4605e4504cc4f"]);
    let says = "07c4605e4504cc4f: configuration 0, server c4605e, nonce 4504cc4f";
    assert_eq!(plain, (says.into(), Some(0)));
    let cases = [
        (
            "3",
            "0720b1d07b359d3c",
            "configuration 0, server ed793a, nonce ee080dbf",
        ),
        (
            "10",
            "2fcc381bc74cb4fbad2823a3d1f8fed2",
            "configuration 1, server ed793a51d49b8f5fab65, nonce ee080dbf48",
        ),
        (
            "8",
            "504dd2d05a7b0de9b2b9907afb5ecf8cc3",
            "configuration 2, server ed793a51d49b8f5f, nonce ee080dbf48c0d1e5",
        ),
    ];
    for (len, id, says) in cases {
        let said = cid(&["--key", KEY, "--server-id-len", len, id]);
        assert_eq!(said, (format!("{id}: {says}"), Some(0)));
    }
}

#[test]
fn what_is_no_id_says_why() {
    let cases: [(&[&str], &str); 8] = [
        (
            &["--server-id-len", "3", "07c4605e4504cc4"],
            "07c4605e4504cc4: 15 hexadecimal digits are half an octet too many",
        ),
        (
            &["--server-id-len", "3", "xx"],
            "xx: 'x' is not a hexadecimal digit",
        ),
        (
            &["--server-id-len", "3", "e7c4605e4504cc4f"],
            "e7c4605e4504cc4f: the id is not routable: its configuration bits are 0b111",
        ),
        (
            &["--server-id-len", "3", "06c4605e4504cc4f"],
            "06c4605e4504cc4f: the first octet says that 6 octets follow, and 7 do",
        ),
        (
            &[
                "--server-id-len",
                "3",
                "--nonce-len",
                "5",
                "07c4605e4504cc4f",
            ],
            "07c4605e4504cc4f: the id has 8 octets, and those of this configuration have 9",
        ),
        (
            &["--server-id-len", "3", "07c4605e45"],
            "07c4605e45: the nonce must have at least 4 octets, not 1",
        ),
        (
            &["--server-id-len", "3", "--key", "12", "07c4605e4504cc4f"],
            "07c4605e4504cc4f: --key: a key has 32 hexadecimal digits, not 2",
        ),
        (
            &["07c4605e4504cc4f"],
            "07c4605e4504cc4f: give the length of server ids (--server-id-len) or a configuration file",
        ),
    ];
    for (args, says) in cases {
        assert_eq!(cid(args), (says.into(), Some(1)));
    }
    let several = cid(&["--server-id-len", "3", "zz", "07c4605e4504cc4f"]);
    assert_eq!(several.0.lines().count(), 2, "one bad id hides no good one");
    assert_eq!(several.1, Some(1));
}

#[test]
fn ids_of_a_broker_show_their_shard() {
    let dir = tempfile::tempdir().expect("directory");
    let data = dir.path().join("data");
    std::fs::create_dir(&data).expect("made");
    let secret: [u8; 32] = core::array::from_fn(|i| i as u8);
    let digits: String = secret.iter().map(|b| format!("{b:02x}")).collect();
    let key = format!("dunlin quic key 1\n{digits}\n");
    let file = dir.path().join("dunlin.toml");
    let data = data.display();
    let lb = format!("[quic.lb]\nmode = \"encrypted\"\nserver_id = \"0a01\"\nkey = \"{KEY}\"\n");
    let config = format!("data_dir = \"{data}\"\nshards = 4\n{lb}");
    std::fs::write(&file, &config).expect("written");
    let file = file.to_str().expect("text");
    let layout = LbConfig::new(0, &[0x0a, 1], 14, Some(unhex(KEY))).expect("good");
    let codec = CidCodec::new(NetKeys::derived(&secret).cid, 4, Some(layout)).expect("good");
    let id: String = codec
        .id(ShardId(3), b"..unique nonce")
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    // Without the secret the server is known, and the shard is not.
    let (said, code) = cid(&["-c", file, &id]);
    assert_eq!(code, Some(0));
    assert!(
        said.contains("configuration 0, server 0a01, nonce "),
        "{said}"
    );
    assert!(!said.contains("shard"), "{said}");
    std::fs::write(format!("{data}/quic.key"), key).expect("written");
    let (said, code) = cid(&["-c", file, &id]);
    assert_eq!(code, Some(0));
    assert!(said.ends_with(", shard 3"), "{said}");
    // Without a load balancer, ids hold the shard alone.
    std::fs::write(file, config.replace("encrypted", "off")).expect("written");
    let codec = CidCodec::new(NetKeys::derived(&secret).cid, 4, None).expect("good");
    let id: String = codec
        .id(ShardId(2), b"..unique")
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    assert_eq!(cid(&["-c", file, &id]), (format!("{id}: shard 2"), Some(0)));
}

fn unhex(digits: &str) -> [u8; 16] {
    let byte = |i: usize| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).expect("hex");
    core::array::from_fn(byte)
}
