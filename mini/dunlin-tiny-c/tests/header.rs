//! The committed header is what cbindgen makes of the sources, so that
//! no user of the library needs cbindgen. `DUNLIN_BLESS=1` writes it again.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use cbindgen::{Builder, Config, DocumentationStyle, EnumConfig, Language, RenameRule, Style};

const TOP: &str = "/* dunlin_tiny.h: MQTT 5 over QUIC for devices.
 *
 * Made from mini/dunlin-tiny-c by cbindgen; not to be edited. For C99, C++11
 * and later.
 *
 * Memory comes from the caller, and there is no allocator:
 *
 *     static uint64_t state[DUNLIN_STATE_SIZE / 8];
 *     dunlin_room memory = {(uint8_t *)state, sizeof state};
 *
 *     dunlin_new(memory, &port, &buffers, &client);
 *     dunlin_connect(client, &options);
 *     while (dunlin_status(client) != DUNLIN_PHASE_CLOSED) {
 *         dunlin_publish(client, &message, &id);  once it is ready
 *         if (dunlin_run(client, &sleep) != DUNLIN_CODE_OK)
 *             break;
 *         wait for a datagram, `sleep` milliseconds at most
 *     }
 *
 * All calls for one client come from one thread at a time, and from no interrupt
 * that could break into another one. */";

/// Names in Rust and in C.
const NAMES: [(&str, &str); 10] = [
    ("Bytes", "dunlin_bytes"),
    ("Code", "dunlin_code"),
    ("Connect", "dunlin_options"),
    ("Handle", "dunlin_client"),
    ("Happened", "dunlin_event"),
    ("Kind", "dunlin_kind"),
    ("Phase", "dunlin_phase"),
    ("Port", "dunlin_port"),
    ("Publish", "dunlin_message"),
    ("Room", "dunlin_room"),
];

fn header() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config = Config {
        language: Language::C,
        cpp_compat: true,
        style: Style::Both,
        include_guard: Some("DUNLIN_TINY_H".to_owned()),
        header: Some(TOP.to_owned()),
        documentation_style: DocumentationStyle::C99,
        line_length: 80,
        no_includes: true,
        usize_is_size_t: true,
        enumeration: EnumConfig {
            rename_variants: RenameRule::QualifiedScreamingSnakeCase,
            ..EnumConfig::default()
        },
        ..Config::default()
    };
    for name in ["stdbool.h", "stddef.h", "stdint.h"] {
        config.sys_includes.push(name.to_owned());
    }
    for (rust, c) in NAMES {
        config.export.rename.insert(rust.to_owned(), c.to_owned());
    }
    let buffers = ("Rooms".to_owned(), "dunlin_buffers".to_owned());
    config.export.rename.extend([buffers]);
    let mut out = Vec::new();
    let builder = ["codes", "types", "api"]
        .iter()
        .fold(Builder::new().with_config(config), |builder, file| {
            builder.with_src(root.join(format!("src/{file}.rs")))
        });
    builder.generate().unwrap().write(&mut out);
    // A heading for Rust.
    let header = String::from_utf8(out).unwrap();
    header.replace("// # Safety\n//\n", "// What the caller promises:\n")
}

#[test]
fn the_header_is_the_one_of_the_sources() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/dunlin_tiny.h");
    let made = header();
    if std::env::var_os("DUNLIN_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == made,
        "DUNLIN_BLESS=1 cargo test -p dunlin-tiny-c --test header"
    );
}
