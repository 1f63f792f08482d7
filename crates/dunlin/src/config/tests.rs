//! The configuration against its example, its book page and its mistakes.

use core::fmt::Write as _;

use super::limits::QueueFull;
use super::sections::Durability;
use super::units::{Size, Span};
use super::*;

/// The example without the `#` before keys.
fn uncommented() -> String {
    let is_key = |line: &str| {
        line.strip_prefix('#')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()))
    };
    EXAMPLE
        .lines()
        .map(|line| if is_key(line) { &line[1..] } else { line })
        .collect::<Vec<_>>()
        .join("\n")
}

/// Dotted keys of a table; indices of arrays are dropped.
fn keys(prefix: &str, value: &toml::Value, found: &mut Vec<String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                let dot = if prefix.is_empty() { "" } else { "." };
                keys(&format!("{prefix}{dot}{key}"), value, found);
            }
        }
        toml::Value::Array(array) => array.iter().for_each(|value| keys(prefix, value, found)),
        _ => found.push(prefix.into()),
    }
}

#[test]
fn example_is_exactly_the_defaults() {
    let parsed = Config::parse(Path::new("example"), EXAMPLE).expect("valid");
    assert_eq!(parsed, Config::default());
    let empty = Config::parse(Path::new("empty"), "").expect("valid");
    assert_eq!(empty, Config::default());
}

#[test]
fn example_shows_every_key() {
    let text = uncommented();
    // Those of a Unix socket, which none of the listeners there is, and of a cluster, which
    // has no store of its own.
    let elsewhere = ["mode = ", "group = ", "secret_file = "];
    let is_elsewhere = |line: &&str| elsewhere.iter().any(|key| line.starts_with(key));
    let others: Vec<_> = text.lines().filter(|line| !is_elsewhere(line)).collect();
    let full = Config::parse(Path::new("example"), &others.join("\n"));
    let full = full.expect("valid when uncommented");
    let (mut shown, mut known) = (Vec::new(), Vec::new());
    keys(
        "",
        &text.parse::<toml::Table>().expect("toml").into(),
        &mut shown,
    );
    // Every key without default is set in `full`, or its listener check would
    // not see it: what serializes is all there is.
    let mut everything = full.clone();
    everything.cluster.secret_file = Some("cluster.key".into());
    let first = everything.listener.first_mut().expect("listener");
    first.mount = Some("/".into());
    first.path = Some("/".into());
    first.mode = Some(socket::SOCKET_MODE);
    first.group = Some("group".into());
    first.origins = Some(vec!["*".into()]);
    first.proxy_protocol = Some(listener::ProxyProtocol::Any);
    first.proxy_identity = Some(true);
    first.forwarded = Some(listener::Forwarded::Forwarded);
    first.trusted = Some(Vec::new());
    keys(
        "",
        &toml::Value::try_from(&everything).expect("toml"),
        &mut known,
    );
    for list in [&mut shown, &mut known] {
        list.sort();
        list.dedup();
    }
    assert_eq!(shown, known);
    assert!(full.store.path.is_some() && full.auth.password_file.is_some());
    assert!(full.auth.acl_file.is_some());
    let listener = &full.listener[0];
    assert!(listener.anonymous.is_some());
    assert!(
        listener
            .tls
            .as_ref()
            .is_some_and(|tls| tls.client_ca.is_some())
    );
}

/// In any order: what fits together only when all are said.
#[test]
#[cfg(feature = "cluster")]
fn overrides_are_checked_together() {
    let mut overrides = [
        "cluster.secret_file=key",
        "store.nats.system_urls=['nats://h']",
        "store.nats.urls=['nats://h']",
    ]
    .map(str::to_owned);
    for _ in 0..overrides.len() {
        let config = Config::load(None, &overrides).expect("valid together");
        assert!(config.cluster.is_used() && config.shard_count() <= cluster::SHARDS_MAX);
        overrides.rotate_left(1);
    }
    let error = Config::load(None, &overrides[..1]).expect_err("no store");
    let text = error.to_string();
    assert!(text.contains("secret_file"), "{text}");
    let large = "limits.max_packet_size=32MiB".to_owned();
    let error = Config::load(
        None,
        &[&overrides[..], &["shards=2".into(), large]].concat(),
    );
    let text = error.expect_err("too large").to_string();
    assert!(text.contains("max_packet_size"), "{text}");
}

#[test]
fn book_page_is_in_step() {
    let page = book_page();
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/book/src/configuration.md"
    );
    if std::env::var_os("DUNLIN_BLESS").is_some() {
        std::fs::write(path, &page).expect("written");
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == page,
        "docs/book/src/configuration.md is not what dunlin.example.toml says; \
         DUNLIN_BLESS=1 cargo test -p dunlin book_page writes it"
    );
}

/// A table for each section, from the example's comments.
fn book_page() -> String {
    let mut page = String::from(
        "# Configuration\n\n\
         `dunlin broker` needs no configuration. `--config FILE` reads a file in TOML;\n\
         `--set KEY=VALUE` sets one key after it, and may be repeated; `--check` says\n\
         whether everything is right and ends. `dunlin broker --example` prints a file\n\
         with every key and its default, which is also `dunlin.example.toml` in the\n\
         repository. This page is made from it.\n\n\
         Durations are numbers with `ms`, `s`, `m`, `h`, `d` or `w`; sizes are numbers\n\
         with `B`, `KiB`, `MiB` or `GiB`; both in quotes. Relative paths begin at the\n\
         directory in which the broker was started. `SIGHUP` makes it read the file again, with\n\
         the password file, the access list, the tokens of the HTTP door and all certificates:\n\
         see [reload](control.md#reload).\n\n## At the top\n\n",
    );
    let head = "| key | default | meaning |\n|---|---|---|\n";
    page.push_str(head);
    let mut comment: Vec<&str> = Vec::new();
    let mut listeners = 0;
    for line in EXAMPLE.lines().skip_while(|line| !line.is_empty()) {
        let key = line.trim_start_matches('#').split_once(" = ");
        if line.starts_with('[') {
            listeners += usize::from(line == "[[listener]]");
            if listeners < 2 {
                let text = comment.join(" ");
                write!(page, "\n## `{line}`\n\n{text}\n\n{head}").expect("memory");
            }
            comment.clear();
        } else if let Some((key, value)) = key.filter(|_| !line.starts_with("# ")) {
            let value = match line.strip_prefix('#') {
                Some(_) => "–".into(),
                None if listeners > 0 => "–".into(),
                None => format!("`{value}`"),
            };
            let shown_before = listeners > 1 && comment.is_empty();
            if !shown_before {
                let text = comment.join(" ");
                writeln!(page, "| `{key}` | {value} | {text} |").expect("memory");
            }
            comment.clear();
        } else if let Some(text) = line.strip_prefix('#') {
            comment.push(text.trim());
        } else {
            comment.clear();
        }
    }
    page
}

#[test]
fn mistakes_in_a_file_are_one_sentence() {
    let cases = [
        (
            "[limits]\nreceive_maximun = 5",
            "f:2: limits.receive_maximun: unknown key `receive_maximun`, did you mean `receive_maximum`?",
        ),
        (
            "\n[limit]\n",
            "f:2: limit: unknown key `limit`, did you mean `limits`?",
        ),
        (
            "[limits]\n\nreceive_maximum = \"many\"",
            "f:3: limits.receive_maximum: wrong type: string \"many\", expected a whole number from 0 to 65535",
        ),
        (
            "[limits]\nreceive_maximum = 70000",
            "f:2: limits.receive_maximum: invalid value: integer `70000`, expected a whole number from 0 to 65535",
        ),
        (
            "[limits]\nreceive_maximum = 0",
            "f:2: limits.receive_maximum: must be at least 1",
        ),
        (
            "[limits]\nconnect_timeout = \"soon\"",
            "f:2: limits.connect_timeout: `soon` is not a duration such as \"10s\" or \"1h\" (ms, s, m, h, d, w)",
        ),
        (
            "[limits]\nconnect_timeout = 10",
            "f:2: limits.connect_timeout: wrong type: integer `10`, expected a duration in quotes such as \"10s\"",
        ),
        (
            "[limits]\nmax_packet_size = \"1MB\"",
            "f:2: limits.max_packet_size: `1MB` is not a size such as \"64KiB\" or \"1MiB\" (B, KiB, MiB, GiB)",
        ),
        (
            "[limits]\nmax_packet_size = \"1GiB\"",
            "f:2: limits.max_packet_size: 1GiB is not between 256B and 268435460B, which MQTT can express",
        ),
        (
            "[quic]\ngather = \"1001us\"",
            "f:2: quic.gather: 1001us is longer than 1ms",
        ),
        (
            "[limits]\nmax_keep_alive = \"1d\"",
            "f:2: limits.max_keep_alive: 1d is not a number of whole seconds up to 65535s",
        ),
        (
            "[limits]\nmax_queued_bytes = \"1KiB\"",
            "f:2: limits.max_queued_bytes: 1KiB is less than max_packet_size, 1MiB",
        ),
        (
            "[store]\ndurability = \"maybe\"",
            "f:2: store.durability: unknown value `maybe`, expected one of `fsync`, `os`, `memory`",
        ),
        (
            "[store]\ncommit_window = \"2s\"",
            "f:2: store.commit_window: 2s is longer than 5ms",
        ),
        (
            "[quic]\nmtu_discovery = 1",
            "f:2: quic.mtu_discovery: wrong type: integer `1`, expected true or false",
        ),
        (
            "[quic]\nack_delay = \"1m\"",
            "f:2: quic.ack_delay: the delay of acknowledgements must be 1 ms to 16383 ms",
        ),
        (
            "[quic]\nsend_window = \"1B\"",
            "f:2: quic.send_window: 1B is not between 4KiB and 1GiB",
        ),
        (
            "[quic.lb]\nmode = \"both\"",
            "f:2: quic.lb.mode: unknown value `both`, expected one of `off`, `plaintext`, `encrypted`",
        ),
        (
            "[quic.lb]\nmode = \"plaintext\"",
            "f:1: quic.lb.server_id: connection ids need the id of this server",
        ),
        (
            "[quic.lb]\nmode = \"encrypted\"\nserver_id = \"01\"",
            "f:1: quic.lb.key: mode \"encrypted\" needs a key",
        ),
        (
            "[quic.lb]\nmode = \"encrypted\"\nserver_id = \"01\"\nkey = \"abcd\"",
            "f:4: quic.lb.key: a key has 32 hexadecimal digits, not 4",
        ),
        (
            "[quic.lb]\nmode = \"plaintext\"\nserver_id = \"01\"\nkey = \"abcd\"",
            "f:4: quic.lb.key: a key is used by mode \"encrypted\" only",
        ),
        (
            "[quic.lb]\nmode = \"plaintext\"\nserver_id = \"0g\"",
            "f:3: quic.lb.server_id: 'g' is not a hexadecimal digit",
        ),
        (
            "[quic.lb]\nmode = \"plaintext\"\nserver_id = \"012\"",
            "f:3: quic.lb.server_id: 3 hexadecimal digits are half an octet too many",
        ),
        (
            "[quic.lb]\nmode = \"plaintext\"\nserver_id = \"\"",
            "f:3: quic.lb.server_id: the server id must have 1 to 15 octets, not 0",
        ),
        (
            "[quic.lb]\nmode = \"plaintext\"\nserver_id = \"01\"\nrotation = 7",
            "f:4: quic.lb.rotation: the configuration rotation must be 0 to 6, not 7",
        ),
        (
            "[quic.lb]\nmode = \"plaintext\"\nserver_id = \"01\"\nnonce = 7",
            "f:4: quic.lb.nonce: the nonce must have at least 8 octets, not 7",
        ),
        (
            "[quic.lb]\nmode = \"plaintext\"\nserver_id = \"01\"\nnonce = 19",
            "f:4: quic.lb.nonce: server id and nonce must have at most 19 octets together, not 20",
        ),
        ("shards = 5000", "f:1: shards: 5000 is more than 1024"),
        (
            "listener = []",
            "f:1: listener: there must be 1 to 256 listeners",
        ),
        (
            "[[listener]]\naddress = \"*:1\"",
            "f:1: listener: missing key `transport`",
        ),
        (
            "[[listener]]\ntransport = \"udp\"",
            "f:2: listener.transport: unknown value `udp`, expected one of `quic`, `tcp`, `tls`, `ws`, `wss`, `unix`",
        ),
        (
            "[[listener]]\ntransport = \"tcp\"\naddress = \"here\"",
            "f:3: listener.address: `here` is not an address such as \"*:1883\", \"127.0.0.1:1883\", \"[::1]:1883\" or \"localhost:1883\"",
        ),
        (
            "[[listener]]\ntransport = \"tcp\"\ntls.cert = \"a\"\ntls.key = \"b\"",
            "f:3: listener.0.tls: a tcp listener does not use certificates; use tls, wss or quic",
        ),
        (
            "[[listener]]\ntransport = \"tls\"\n[listener.tls]\ncert = \"a\"",
            "f:3: listener.tls: missing key `key`",
        ),
        (
            "[[listener]]\ntransport = \"tcp\"\n[[listener]]\ntransport = \"tcp\"",
            "f:3: listener.1.address: *:1883 is taken by listener 0",
        ),
        (
            "[[listener]]\ntransport = \"tcp\"\npath = \"/x\"",
            "f:3: listener.0.path: a tcp listener has no path; only ws, wss and unix do",
        ),
        (
            "[[listener]]\ntransport = \"ws\"\npath = \"x\"",
            "f:3: listener.0.path: `x` does not begin with `/`",
        ),
        (
            "[[listener]]\ntransport = \"tcp\"\nproxy_protocol = \"any\"",
            "f:3: listener.0.proxy_protocol: requires `trusted`: the addresses of the proxies",
        ),
        (
            "[[listener]]\ntransport = \"quic\"\nproxy_protocol = \"v2\"\ntrusted = [\"::1\"]",
            "f:3: listener.0.proxy_protocol: QUIC has no PROXY header; a load balancer forwards its datagrams by [quic.lb]",
        ),
        (
            "[[listener]]\ntransport = \"tls\"\nforwarded = \"forwarded\"\ntrusted = [\"::1\"]",
            "f:3: listener.0.forwarded: a tls listener gets no headers of HTTP; only ws and wss do",
        ),
        (
            "[[listener]]\ntransport = \"tls\"\ntrusted = [\"::1\"]",
            "f:3: listener.0.trusted: requires `proxy_protocol` or `forwarded`: what the proxies are believed",
        ),
        (
            "[[listener]]\ntransport = \"tls\"\nproxy_protocol = \"v1\"\nproxy_identity = true\ntrusted = [\"::1\"]",
            "f:4: listener.0.proxy_identity: requires `proxy_protocol` \"v2\" or \"any\": version 1 has no names",
        ),
        (
            "[[listener]]\ntransport = \"tls\"\n[listener.tls]\ncert = \"a\"\nkey = \"b\"\nrequire_client_cert = true",
            "f:6: listener.0.tls.require_client_cert: requires `tls.client_ca`, to verify client certificates with",
        ),
    ];
    for (text, sentence) in cases {
        let error = Config::parse(Path::new("f"), text).expect_err(text);
        assert_eq!(error.to_string(), sentence, "{text}");
    }
}

#[test]
fn broken_toml_names_its_line() {
    for text in ["a =", "[limits", "x = \"", "\n\n= 1"] {
        let error = Config::parse(Path::new("f"), text)
            .expect_err(text)
            .to_string();
        let line = text.lines().count().max(1);
        assert!(error.starts_with(&format!("f:{line}: ")), "{text}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn missing_file_is_named() {
    let path = Path::new("no/such/dunlin.toml");
    let error = Config::load(Some(path), &[]).expect_err("missing");
    let want = "cannot read the configuration no/such/dunlin.toml: No such file";
    assert!(error.to_string().starts_with(want), "{error}");
}

#[test]
fn overrides_set_one_key_each() {
    let overrides = [
        "limits.receive_maximum=100",
        "limits.max_packet_size=2MiB",
        "limits.max_session_expiry=never",
        "limits.queue_full = drop-newest",
        "store.durability=\"os\"",
        "store.path=a b/c.redb",
        "store.commit_window=0s",
        "listener.1.address=127.0.0.1:0",
        "listener.1.anonymous=never",
        "shards=2",
        "data_dir=elsewhere",
    ];
    let config = Config::load(None, &overrides.map(String::from)).expect("valid");
    assert_eq!(config.limits.packets.receive_maximum, 100);
    assert_eq!(config.limits.packets.max_packet_size, Size::mib(2));
    assert_eq!(config.limits.queue.queue_full, QueueFull::DropNewest);
    assert_eq!(config.store.durability, Durability::Os);
    assert_eq!(config.store.commit_window, Span::secs(0));
    assert_eq!(config.store_path(), Path::new("a b/c.redb"));
    assert_eq!(config.listener[1].address().to_string(), "127.0.0.1:0");
    assert_eq!(config.certs_dir(), Path::new("elsewhere/certs"));
    assert_eq!((config.shard_count(), config.listener.len()), (2, 8));

    let one = "listener=[{transport=\"tcp\",address=\"127.0.0.1:0\"}]";
    let config = Config::default().overridden(one).expect("valid");
    assert_eq!(config.listener.len(), 1);
    assert!(!config.needs_development_certs());
    assert!(Config::default().needs_development_certs());
}

#[test]
fn mistakes_in_overrides_name_the_override() {
    let cases = [
        (
            "shards",
            "--set shards: expected KEY=VALUE, as in limits.max_inflight=100",
        ),
        (
            "limits.=1",
            "--set limits.=1: expected KEY=VALUE, as in limits.max_inflight=100",
        ),
        (
            "limits.inflight=1",
            "--set limits.inflight=1: unknown key `inflight`",
        ),
        (
            "shards.x=1",
            "--set shards.x=1: there is no key `x` in a value",
        ),
        (
            "listener.9.address=*:1",
            "--set listener.9.address=*:1: there is no `9` among 8, counted from 0",
        ),
        (
            "listener.1.protocols=[]",
            "--set listener.1.protocols=[]: listener.1.protocols: there must be at least one",
        ),
        (
            "listener.1.protocols=[\"amqp\",\"amqp\"]",
            "--set listener.1.protocols=[\"amqp\",\"amqp\"]: listener.1.protocols: \"amqp\" is there twice",
        ),
        (
            "limits.max_inflight=0",
            "--set limits.max_inflight=0: limits.max_inflight: must be at least 1",
        ),
        (
            "limits.idle_timeout=never",
            "--set limits.idle_timeout=never: `never` is not a duration",
        ),
        (
            "x=1",
            "--set x=1: unknown key `x`, expected one of `data_dir`",
        ),
    ];
    for (argument, sentence) in cases {
        let error = Config::default().overridden(argument).expect_err(argument);
        assert!(error.to_string().starts_with(sentence), "{error}");
    }
}

#[test]
fn policy_follows_listener_then_section() {
    let text = "[auth]\nanonymous = \"always\"\npassword_file = \"p\"\n\
        filter_subscriptions = true\n\
        [[listener]]\ntransport = \"tcp\"\nanonymous = \"never\"\n\
        filter_subscriptions = false\n\
        [[listener]]\ntransport = \"tls\"\n\
        tls = { cert = \"c\", key = \"k\", client_ca = \"a\" }\n";
    let config = Config::parse(Path::new("f"), text).expect("valid");
    let policies: Vec<_> = config
        .listener
        .iter()
        .map(|l| config.auth_policy(l))
        .collect();
    use dunlin_broker::auth::{Anonymous, Partial};
    assert_eq!(policies[0].partial, Partial::Refused);
    assert_eq!(policies[1].partial, Partial::Filtered);
    assert_eq!(policies[0].anonymous, Anonymous::Never);
    assert!(policies[0].passwords && !policies[0].certificates);
    assert_eq!(policies[1].anonymous, Anonymous::Always);
    assert!(policies[1].certificates);
    assert!(!policies[1].tokens);
}

#[test]
fn algorithms_of_tokens_are_named_and_known() {
    let parse = |algorithms: &str| {
        let text = format!("[auth]\njwt = {{ key_file = \"k\", algorithms = {algorithms} }}\n");
        Config::parse(Path::new("f"), &text)
    };
    let config = parse("[\"RS256\", \"EdDSA\"]").expect("valid");
    assert!(config.auth_policy(&config.listener[0]).tokens);
    let jwt = config.auth.jwt.expect("given");
    assert_eq!((&*jwt.user_claim, jwt.issuer), ("sub", None));
    for (algorithms, why) in [
        ("[]", "there must be one at least"),
        ("[\"none\"]", "`none` is not known"),
        ("[\"RS256\", \"NONE\"]", "`NONE` is not known"),
    ] {
        let error = parse(algorithms).expect_err(algorithms).to_string();
        assert!(
            error.contains("auth.jwt.algorithms") && error.contains(why),
            "{error}"
        );
    }
    for (key, value, why) in [
        ("leeway", "11m", "at most 10m"),
        ("max_lifetime", "0s", "1s to 4w"),
        ("max_lifetime", "5w", "1s to 4w"),
    ] {
        let text = format!("[\"RS256\"], {key} = \"{value}\"");
        let error = parse(&text).expect_err(key).to_string();
        let names = error.contains(&format!("auth.jwt.{key}"));
        assert!(names && error.contains(why), "{error}");
    }
}

#[cfg(feature = "cluster")]
#[test]
fn a_url_of_the_wrong_type_is_not_shown() {
    for text in [
        "[store.nats]\nurls = 'nats://u:secret@h'",
        "[store.nats]\nreplicas = 'nats://u:se?cret@h'",
        "[store.nats]\ntake = 'nats://u:secret@h'",
        "shards = 'nats://u:secret@h'",
    ] {
        let error = Config::parse(Path::new("f"), text).expect_err("refused");
        assert!(!error.to_string().contains("cret"), "{error}");
    }
    for argument in [
        "store.nats.urls=nats://u:secret@h",
        "store.nats.urls=nats://u:se?cret@h",
        "store.nats.replicas=nats://u:secret@h",
        "store.nats.take=nats://u:secret@h",
    ] {
        let error = Config::default().overridden(argument).expect_err(argument);
        assert!(!error.to_string().contains("cret"), "{error}");
    }
}

#[test]
fn a_log_in_nats_takes_the_place_of_the_file() {
    let parse = |more: &str, nats: &str| {
        let text = format!("[store]\n{more}\n[store.nats]\nurls = ['nats://u:pw@h']\n{nats}");
        Config::parse(Path::new("f"), &text)
    };
    let synced = "system_urls = ['nats://s:pw@h']";
    let config = parse("", synced).expect("valid");
    assert_eq!(config.store_path(), Path::new("dunlin-data/log.redb"));
    assert!(config.tickets().is_some());
    // Without the sync, a power cut could take back that a ticket was used.
    let config = parse("", "accept_unsynced = true").expect("valid");
    assert!(config.tickets().is_none());
    for (more, nats, key) in [
        ("durability = 'os'", synced, "store.durability"),
        ("durability = 'memory'", synced, "store.durability"),
        ("path = 'x'", synced, "store.path"),
        ("", "", "store.nats.system_urls"),
    ] {
        let error = parse(more, nats).expect_err(key).to_string();
        assert!(error.contains(key) && !error.contains("pw"), "{error}");
    }
    let argument = "store.nats.urls=['nats://u:pw@h']";
    let error = Config::default().overridden(argument).expect_err("unknown");
    assert!(!error.to_string().contains("pw"), "{error}");
}

#[test]
fn listeners_send_packets_twice_unless_forbidden_and_no_sign_of_life() {
    use dunlin_base::Repeat;
    for (text, repeat) in [
        ("", Repeat::Lone),
        ("[quic]\nrepeat_packets = false", Repeat::Never),
    ] {
        let config = Config::parse(Path::new("f"), text).expect("valid");
        let listener = config.listener.first().expect("a listener");
        let tuning = config.quic_tuning(listener);
        assert_eq!(tuning.repeat, repeat);
        // What keeps a connection alive is the PINGREQ of its client.
        assert_eq!(tuning.keep_alive, None);
    }
}
