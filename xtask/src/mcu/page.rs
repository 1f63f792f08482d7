//! The text of the study. Knows the figures and nothing of how they are taken.

use core::fmt::Write as _;

use super::crypto::Steady;
use super::image::PARTS;
use super::profile::PURPOSES;
use super::study::{Provider, Study};
use super::wake::{Cost, Wake};

/// Cycles of a second.
const CLOCK: f64 = 64e6;
/// Joules of a cycle at 3.3 mA and 3 V.
const ENERGY: f64 = 3.3e-3 * 3.0 / CLOCK;
/// What others report for flash without operating system and IP stack.
pub(crate) const PAPER_FLASH: &[(&str, u64)] = &[
    ("Quant, baseline (2020)", 98 * 1024),
    ("Quant, Argon (2020)", 63 * 1024),
    ("Quant, ESP32 (2020)", 58 * 1024),
    ("Quant, rebuilt", 65_973),
];

/// The wakes of a provider by their names.
pub(crate) fn wakes(provider: &Provider) -> [(&'static str, &Wake); 3] {
    [
        ("full handshake", &provider.full),
        ("resumed", &provider.resumed),
        ("0-RTT", &provider.early),
    ]
}

/// The pieces of a wake until its first reading is acknowledged.
pub(crate) const PIECES: [&str; 3] = [
    "wake, ARP, own key, first flight",
    "handshake",
    "reading to PUBACK",
];

/// Cycles of [`PIECES`].
pub(crate) fn pieces(wake: &Wake) -> [f64; 3] {
    let mut pieces = [0.0; 3];
    for phase in &wake.phases {
        let piece = match (phase.from, phase.to) {
            (1, _) => 0,
            (2 | 4, 3) | (2, 4) => 1,
            _ => 2,
        };
        pieces[piece] += phase.cycles as f64;
        if phase.to == 5 {
            break;
        }
    }
    pieces
}

/// What a device does after a mark.
pub(crate) const fn after(mark: u64) -> &'static str {
    match mark {
        0 => "boot",
        1 => "own key",
        2 => "handshake",
        3 => "connected",
        4 => "reading",
        5 => "listen, close",
        _ => "sleep",
    }
}

/// The page.
pub(crate) fn text(study: &Study) -> String {
    let mut out = String::from(
        "# A microcontroller, measured\n\n\
         What the client of [Microcontrollers](microcontrollers.md) takes on a Cortex-M4: flash,\n\
         memory, stack, instructions, cycles and bytes on the wire, beside the figures of the first\n\
         paper that put QUIC on such devices (Eggert, \"Towards Securing the Internet of Things with\n\
         QUIC\", 2020; Quant on a Particle Argon and an ESP32). This page and its plots are written by\n\n\
         ```sh\nmake mcu-report     # cargo xtask mcu-report\n```\n\n",
    );
    goals(&mut out, study);
    flash(&mut out, study);
    network(&mut out, study);
    memory(&mut out, study);
    cycles(&mut out, study);
    cryptography(&mut out, study);
    wire(&mut out, study);
    paper(&mut out, study);
    method(&mut out);
    out
}

fn goals(out: &mut String, study: &Study) {
    out.push_str("## Goals\n\n| image | figure | measured | goal | |\n|---|---|--:|--:|---|\n");
    for verdict in study.verdicts() {
        let met = match verdict.is_met() {
            true => "met".to_owned(),
            false => format!(
                "**missed**: {}",
                verdict.known.as_ref().map_or("", |known| known.1.as_str())
            ),
        };
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {met} |",
            verdict.provider,
            described(&verdict.name),
            grouped(verdict.figure),
            grouped(verdict.goal)
        );
    }
    out.push_str(
        "\nThe goals are in `scripts/mcu/sizes.toml`; `cargo xtask mcu-gate`, a step of `make test`,\n\
         fails when one is missed that was not known to be, or when one that is grows.\n\n",
    );
}

fn described(name: &str) -> &str {
    match name {
        "flash" => "flash of the whole image, bytes",
        "static" => "RAM with a place, bytes",
        "panics" => "has a path to a panic",
        "stack" => "stack at its deepest, bytes",
        "ram" => "RAM together, bytes",
        "handshake_cycles" => "full handshake with a pinned server, cycles",
        "early_percent" => "0-RTT wake to PUBACK, % of the cycles of a full one",
        other => other,
    }
}

fn flash(out: &mut String, study: &Study) {
    out.push_str(
        "## Flash\n\n![Flash by what is left out](mcu/flash.svg)\n\n\
         The whole image: vectors, boot, driver of the Ethernet controller, ARP, IPv4, UDP, QUIC, TLS\n\
         with a pinned server, MQTT 5 and the application. From top to bottom each image\n\
         lacks one thing more, as in figure 1 of the paper; `tiny` unless it says otherwise.\n\n\
         | image | bytes | less | RAM with a place |\n|---|--:|--:|--:|\n",
    );
    let mut before: Option<u64> = None;
    for (name, image) in &study.options {
        let less = before.map_or(String::new(), |before| {
            grouped(before.saturating_sub(image.flash))
        });
        let (flash, fixed) = (grouped(image.flash), grouped(image.fixed));
        let _ = writeln!(out, "| {name} | {flash} | {less} | {fixed} |");
        before = Some(image.flash);
    }
    for provider in study.providers.iter().filter(|p| p.name != "tiny") {
        let (flash, fixed) = (grouped(provider.image.flash), grouped(provider.image.fixed));
        let _ = writeln!(
            out,
            "| `{}`, the default | {flash} | | {fixed} |",
            provider.name
        );
    }
    let _ = writeln!(
        out,
        "\nThe server of these images is pinned: the device knows its key. One that is known by the\n\
         certificate of an authority (name, one more signature; dates where the device has a clock)\n\
         makes {} bytes of `tiny`, and {} with HelloRetryRequest, which servers by others may send.\n\
         Of the paper's other options, there are no servers, no 64-bit divisions, no texts\n\
         for errors and no statistics to leave out; the default has one suite; stateless reset and data that arrives out of order\n\
         always work.\n",
        grouped(study.authority),
        grouped(study.authority_retry)
    );
    out.push_str("| part | ");
    for provider in &study.providers {
        let _ = write!(out, "{} | ", provider.name);
    }
    out.push_str("\n|---|");
    out.push_str(&"--:|".repeat(study.providers.len()));
    for (at, part) in PARTS.into_iter().enumerate() {
        let _ = write!(out, "\n| {part} | ");
        for provider in &study.providers {
            let _ = write!(out, "{} | ", grouped(provider.image.parts[at]));
        }
    }
    out.push_str(
        "\n\nCode belongs to the source file that its debug information names; the standard library's\n\
         code counts for the function that it was inlined into. The largest files with `tiny`:\n\n\
         | file | bytes |\n|---|--:|\n",
    );
    for (file, bytes) in study
        .providers
        .iter()
        .take(1)
        .flat_map(|p| p.image.files.iter().take(16))
    {
        let name = if file.is_empty() { "(runtime)" } else { file };
        let _ = writeln!(out, "| {name} | {} |", grouped(*bytes));
    }
    out.push('\n');
}

/// What the other network costs.
fn network(out: &mut String, study: &Study) {
    let (Some(own), smoltcp) = (study.providers.first(), &study.smoltcp) else {
        return;
    };
    out.push_str(
        "### smoltcp\n\n\
         [smoltcp](microcontrollers.md#smoltcp-and-dhcp) instead of the own ARP, IPv4 and UDP, with\n\
         `tiny`. It brings DHCP, and code that can panic.\n\n\
         | figure | own | smoltcp |\n|---|--:|--:|\n",
    );
    let stack = |full: &Wake, early: &Wake| full.stack().max(early.stack());
    let cycles = |wake: &Wake| wake.first_reading().map_or(0, |cost| cost.1);
    let rows = [
        ("flash, bytes", own.image.flash, smoltcp.image.flash),
        (
            "RAM with a place, bytes",
            own.image.fixed,
            smoltcp.image.fixed,
        ),
        (
            "stack at its deepest, bytes",
            stack(&own.full, &own.early),
            stack(&smoltcp.full, &smoltcp.early),
        ),
        (
            "full handshake, to PUBACK, cycles",
            cycles(&own.full),
            cycles(&smoltcp.full),
        ),
        (
            "0-RTT, to PUBACK, cycles",
            cycles(&own.early),
            cycles(&smoltcp.early),
        ),
    ];
    for (name, own, other) in rows {
        let _ = writeln!(out, "| {name} | {} | {} |", grouped(own), grouped(other));
    }
    out.push('\n');
}

fn memory(out: &mut String, study: &Study) {
    out.push_str("## Memory\n\nThere is no allocator. What has a place:\n\n| static | ");
    for provider in &study.providers {
        let _ = write!(out, "{} | ", provider.name);
    }
    out.push_str("\n|---|");
    out.push_str(&"--:|".repeat(study.providers.len()));
    let first = study.providers.iter().take(1);
    for (_, name) in first.flat_map(|p| p.image.statics.iter().filter(|s| s.0 >= 16)) {
        let short = name.rsplit("::").next().unwrap_or(name);
        let _ = write!(out, "\n| `{short}` | ");
        for provider in &study.providers {
            let found = provider.image.statics.iter().find(|s| s.1 == *name);
            let _ = write!(out, "{} | ", grouped(found.map_or(0, |s| s.0)));
        }
    }
    out.push_str("\n| together | ");
    for provider in &study.providers {
        let _ = write!(out, "{} | ", grouped(provider.image.fixed));
    }
    out.push_str(
        "\n\nThe stack, by the lowest address that each phase wrote to (figures 2 and 3 of the paper, whose\n\
         curve leaves out the cryptography and almost reaches 3 KB). With early data, the handshake goes on\n\
         after the reading was written:\n\n",
    );
    for provider in &study.providers {
        let name = provider.name;
        let _ = writeln!(
            out,
            "![Stack over time with {name}](mcu/stack-{name}.svg)\n"
        );
    }
    out.push_str("| provider | wake | phase | stack, bytes |\n|---|---|---|--:|\n");
    for provider in &study.providers {
        for (name, wake) in wakes(provider) {
            for (phase, deepest) in by_phase(wake) {
                let _ = writeln!(
                    out,
                    "| {} | {name} | {phase} | {} |",
                    provider.name,
                    grouped(deepest)
                );
            }
        }
    }
    out.push('\n');
}

/// The deepest stack after each mark, in the order of time.
fn by_phase(wake: &Wake) -> Vec<(&'static str, u64)> {
    let mut phases: Vec<(&'static str, u64)> = Vec::new();
    for phase in &wake.phases {
        let name = after(phase.from);
        match phases.iter_mut().find(|known| known.0 == name) {
            Some(known) => known.1 = known.1.max(phase.stack),
            None => phases.push((name, phase.stack)),
        }
    }
    phases
}

fn cycles(out: &mut String, study: &Study) {
    out.push_str("## Instructions, cycles, energy\n\n");
    for provider in &study.providers {
        let name = provider.name;
        let _ = writeln!(out, "![Cycles with {name}](mcu/cycles-{name}.svg)\n");
    }
    out.push_str(
        "| provider | what | instructions | cycles | ms at 64 MHz | mJ |\n|---|---|--:|--:|--:|--:|\n",
    );
    for provider in &study.providers {
        let full = &provider.full;
        let rows = [
            ("full handshake, server pinned", full.handshake()),
            ("full handshake, to PUBACK", full.first_reading()),
            ("resumed, to PUBACK", provider.resumed.first_reading()),
            ("0-RTT, to PUBACK", provider.early.first_reading()),
            ("one reading more, PUBACK to PUBACK", full.next_reading()),
            (
                "the whole wake, full handshake, two readings",
                Some(full.whole()),
            ),
            (
                "the whole wake, 0-RTT, two readings",
                Some(provider.early.whole()),
            ),
        ];
        for (name, cost) in rows {
            let Some((instructions, cycles)) = cost else {
                continue;
            };
            let _ = writeln!(
                out,
                "| {} | {name} | {} | {} | {:.1} | {:.2} |",
                provider.name,
                grouped(instructions),
                grouped(cycles),
                cycles as f64 / CLOCK * 1e3,
                cycles as f64 * ENERGY * 1e3
            );
        }
    }
    out.push_str(
        "\nInstructions are those that ran; the device sleeps (WFI) while it waits. Cycles are a model:\n\
         costs of the Cortex-M4's manual, no waiting for memory; it is 6 to 9 % below what the authors\n\
         of P256-Cortex-M4 measured of their code on an nRF52840. Energy is that of the processor alone,\n\
         at 3.3 mA, 3 V and 64 MHz. To convert for another chip or with a radio:\n\n\
         | running from flash at 64 MHz, 3 V, DC/DC | mA | mJ for a million cycles | source |\n\
         |---|--:|--:|---|\n",
    );
    for (chip, current, source) in CURRENTS {
        let energy = current * 1e-3 * 3.0 / CLOCK * 1e6 * 1e3;
        let _ = writeln!(out, "| {chip} | {current} | {energy:.2} | {source} |");
    }
    early(out, study);
}

/// What early data saves, and where its cycles go.
fn early(out: &mut String, study: &Study) {
    out.push_str(
        "\nEarly data saves a round trip, and the verification of the server, which the ticket stands for. It\n\
         does not save the key exchange: the broker's TLS (rustls) resumes with new keys only\n\
         (`psk_dhe_ke`). The device draws its own key pair before it sleeps, so that waking does not wait\n\
         for it; the whole wake has it. Of a full handshake to PUBACK, a wake with early data takes, in\n\
         percent of the cycles:\n\n| what for |",
    );
    for provider in &study.providers {
        let _ = write!(out, " {}, cycles | % |", provider.name);
    }
    out.push_str("\n|---|");
    out.push_str(&"--:|--:|".repeat(study.providers.len()));
    for (purpose, name) in PURPOSES.iter().enumerate() {
        let _ = write!(out, "\n| {name} |");
        for provider in &study.providers {
            share(out, provider, provider.profile[purpose]);
        }
    }
    out.push_str("\n| together |");
    for provider in &study.providers {
        share(out, provider, provider.profile.iter().sum());
    }
    out.push_str("\n\n");
    for provider in &study.providers {
        bound(out, provider);
    }
}

/// Cycles, and what they are of a full handshake.
fn share(out: &mut String, provider: &Provider, cycles: u64) {
    let full = provider.full.first_reading().map_or(0, |cost| cost.1);
    let percent = cycles as f64 * 100.0 / full.max(1) as f64;
    let _ = write!(out, " {} | {percent:.1} |", grouped(cycles));
}

/// What the curves alone would make of the goal.
fn bound(out: &mut String, provider: &Provider) {
    let cost = |name: &str| {
        let found = provider.crypto.costs.iter().find(|cost| cost.0 == name);
        found.map(|cost| cost.2.cycles)
    };
    let preferred = |name: &str| cost(&format!("x25519-{name}")).or_else(|| cost(name));
    let (Some(generate), Some(agree), Some(verify)) =
        (preferred("generate"), preferred("agree"), cost("verify"))
    else {
        return;
    };
    let least = agree as f64 * 100.0 / (generate + agree + verify) as f64;
    let _ = writeln!(
        out,
        "With `{}`, a key pair, an agreement and a verification take {}, {} and {} cycles: were all the\n\
         rest for nothing, early data would take {least:.0} % of a full handshake.\n",
        provider.name,
        grouped(generate),
        grouped(agree),
        grouped(verify)
    );
}

/// Chip, milliamperes, and where the figure is from.
const CURRENTS: [(&str, f64, &str); 4] = [
    (
        "nRF52840, processor alone",
        3.3,
        "its Product Specification, \"CPU running\"; quoted from memory, to be checked",
    ),
    (
        "nRF5340, processor alone",
        2.7,
        "[its Product Specification, I<sub>CPU0_FLASH</sub>](https://docs.nordicsemi.com/r/8x61OyWhjf9N2ZuIjPOCUA/4oPAcukyR8VQdWHH1~8hPg); a Cortex-M33",
    ),
    (
        "nRF52840, radio sending at 0 dBm",
        8.1,
        "[its Product Specification, I<sub>S0</sub>](https://docs.nordicsemi.com/r/bundle/ps_nrf52840/page/_tmp/nrf52840/autodita/current/parameters.i_compounded.html)",
    ),
    ("nRF52840, radio receiving", 8.6, "the same, I<sub>S1</sub>"),
];

/// Cycles of a full handshake with this provider.
fn handshake(study: &Study, name: &str) -> Option<u64> {
    let provider = study.providers.iter().find(|p| p.name == name)?;
    Some(provider.full.handshake()?.1)
}

/// Which vectors pass, and why the provider `fast` is there.
fn providers_and_vectors(study: &Study) -> String {
    let vectors =
        "of AES-GCM, ChaCha20-Poly1305, HMAC, HKDF, ECDH, ECDSA and, with `tiny`, X25519).";
    let [Some(portable), Some(assembly)] = ["tiny", "fast"].map(|name| handshake(study, name))
    else {
        return vectors.to_owned();
    };
    format!(
        "{vectors} The assembly has\n\
         not been developed since 2021; it stays because a full handshake takes {} cycles with it, and {}\n\
         with `tiny`: {:.1} times as many.",
        grouped(assembly),
        grouped(portable),
        portable as f64 / assembly.max(1) as f64,
    )
}

fn cryptography(out: &mut String, study: &Study) {
    out.push_str(
        "## Cryptography\n\n\
         `tiny` is portable Rust; `fast` is the assembly of P256-Cortex-M4 for the curve, and the same Rust\n\
         with kept round keys and an unrolled hash for the rest. Both pass, on this processor, every vector\n\
         of Project Wycheproof that the trait can express (",
    );
    for provider in &study.providers {
        let _ = write!(out, "`{}`: {}; ", provider.name, provider.crypto.vectors);
    }
    out.push_str(&providers_and_vectors(study));
    out.push_str(
        " Key pairs and agreements without\n\
         the name of a group are those of P-256, to which `tiny` turns for a server without X25519. Packets\n\
         and masks without the name of a suite are those of AES-128; ChaCha20-Poly1305 is an option, not in\n\
         the default image. The images of this table have both.\n\n\
         | operation | provider | instructions | cycles | ms at 64 MHz | stack, bytes |\n|---|---|--:|--:|--:|--:|\n",
    );
    let names = study
        .providers
        .iter()
        .take(1)
        .flat_map(|p| p.crypto.costs.iter());
    for (name, ..) in names {
        for provider in &study.providers {
            for (_, stack, counts) in provider.crypto.costs.iter().filter(|cost| cost.0 == *name) {
                let _ = writeln!(
                    out,
                    "| {name} | {} | {} | {} | {:.2} | {} |",
                    provider.name,
                    grouped(counts.instructions),
                    grouped(counts.cycles),
                    counts.cycles as f64 / CLOCK * 1e3,
                    grouped(*stack)
                );
            }
        }
    }
    out.push_str(
        "\n### Do secrets show?\n\n\
         Each operation runs with many secrets: the lowest and the highest ones, and random ones. The plugin\n\
         counts instructions, models cycles, and takes a fingerprint of every address that is executed,\n\
         read or written. One count of each is what must be seen; one fingerprint says that no branch and\n\
         no address depends on the secret.\n\n\
         | operation | provider | secrets | counts of instructions | counts of cycles | fingerprints | divisions |\n\
         |---|---|--:|--:|--:|--:|--:|\n",
    );
    for provider in &study.providers {
        for (name, steady) in &provider.crypto.steady {
            let Steady {
                runs,
                instructions,
                cycles,
                paths,
                divisions,
            } = steady;
            let (instructions, cycles, paths) = (instructions.len(), cycles.len(), paths.len());
            let _ = writeln!(
                out,
                "| {name} | {} | {runs} | {instructions} | {cycles} | {paths} | {divisions} |",
                provider.name
            );
        }
    }
    out.push_str(
        "\n`fast` takes the same time for all secrets here, but its curve reads a table at addresses made\n\
         from them: fit for processors without a data cache, such as this one, and for no others.\n\n",
    );
}

fn wire(out: &mut String, study: &Study) {
    out.push_str(
        "## On the wire\n\n\
         Datagrams and bytes of QUIC in them, for a whole wake: handshake, CONNECT, SUBSCRIBE, two readings\n\
         of a few bytes with QoS 1, their acknowledgements, a new ticket, DISCONNECT.\n\n\
         | wake | datagrams up | bytes up | datagrams down | bytes down | sizes in order (down is negative) |\n\
         |---|--:|--:|--:|--:|---|\n",
    );
    for provider in study.providers.iter().take(1) {
        for (name, wake) in wakes(provider) {
            let wire = &wake.wire;
            let sizes: Vec<_> = wire.sizes.iter().map(ToString::to_string).collect();
            let _ = writeln!(
                out,
                "| {name} | {} | {} | {} | {} | {} |",
                wire.up,
                grouped(wire.up_bytes),
                wire.down,
                grouped(wire.down_bytes),
                sizes.join(" ")
            );
        }
    }
    out.push_str(
        "\nThe first datagram of each side has 1200 bytes at least, as RFC 9000 section 14.1 asks. The\n\
         device fills its own with zeros behind the packets, as the same section allows, because those need\n\
         no encryption; the broker's are full of it, and cost the device their decryption. The device\n\
         tells the server to send no larger ones; otherwise the broker searches for what the path carries\n\
         with datagrams of 1452 bytes, which cost as much to open as the handshake's first.\n\n",
    );
}

fn paper(out: &mut String, study: &Study) {
    let Some(tiny) = study.providers.first() else {
        return;
    };
    let ms = |cost: Option<Cost>| cost.map_or(0.0, |cost| cost.1 as f64 / CLOCK * 1e3);
    let mj = |wake: &Wake| wake.whole().1 as f64 * ENERGY * 1e3;
    let stack = wakes(tiny)
        .map(|(_, wake)| wake.stack())
        .into_iter()
        .max()
        .unwrap_or(0);
    let _ = writeln!(
        out,
        "## Beside the paper\n\n\
         | | Quant (paper, 2020) | here, `tiny` |\n|---|---|---|\n\
         | flash | 58 to 63 KB without operating system and IP stack; 65,973 bytes when rebuilt with gcc 12 | {} bytes |\n\
         | server authenticated | no | yes, its key is pinned |\n\
         | application protocol | none | MQTT 5 |\n\
         | memory | < 16 KB of heap, and 23 KB of packet buffers | {} bytes, no heap |\n\
         | stack | < 4 KB; cryptography not counted | {} bytes, cryptography counted |\n\
         | processor, 1-RTT | 5.1 s for 5 KB over Wi-Fi, waiting counted | {:.0} ms at 64 MHz to PUBACK, waiting not counted |\n\
         | processor, 0-RTT | 4.7 s likewise | {:.0} ms |\n\
         | energy of a wake, 1-RTT | 0.90 J with Wi-Fi | {:.1} mJ, processor alone |\n\
         | energy of a wake, 0-RTT | 0.83 J with Wi-Fi | {:.1} mJ, processor alone |\n\n\
         Times and energies are not of the same kind: the paper measured boards with Wi-Fi and a real\n\
         clock, this is a processor in an emulator. What they say together: with Wi-Fi the radio decides,\n\
         and the processor's share is below one percent; the cryptography matters where the radio is small.\n\
         The rebuilt Quant is its last version (2023) with the paper's smallest options for a Cortex-M4F,\n\
         `-Os`, compiled for comparison and not part of this repository.\n",
        grouped(tiny.image.flash),
        grouped(tiny.image.fixed + stack),
        grouped(stack),
        ms(tiny.full.first_reading()),
        ms(tiny.early.first_reading()),
        mj(&tiny.full),
        mj(&tiny.early)
    );
}

fn method(out: &mut String) {
    out.push_str(
        "## How it is measured\n\n\
         QEMU's `mps2-an386`, a Cortex-M4F, with `scripts/mcu/plugin.c`, runs the image that\n\
         `make firmware` builds against a broker on the same machine (`scripts/mcu/measure.py`). The image\n\
         tells its phases with the hint `dbg #n`, which does nothing on the processor. Each wake is run\n\
         four times and the cheapest counts, because a packet that a busy machine repeats costs extra. The\n\
         cryptography runs in an image of its own (`mini/firmware/bench`, `cargo xtask mcu-crypto`).\n\n\
         Not measured: a real chip, waiting for flash (a chip at 64 MHz waits unless it has a cache), a\n\
         radio, the driver of one, DMA, and entropy, which this board has none of.\n",
    );
}

/// A number with a comma for every three digits.
fn grouped(number: u64) -> String {
    if number == u64::MAX {
        return "not found".to_owned();
    }
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas() {
        let numbers = [0, 999, 1000, 40_960, 1_234_567].map(grouped);
        assert_eq!(numbers, ["0", "999", "1,000", "40,960", "1,234,567"]);
    }
}
