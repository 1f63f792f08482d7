//! What the firmware takes and does on its processor: `cargo xtask mcu-crypto`
//! tests and weighs the cryptography under QEMU, `mcu-gate` holds images
//! against their budget, and `mcu-report` writes the study into the book.
//!
//! It builds and runs images as a user would, and links nothing of them.

mod budget;
mod crypto;
mod image;
mod page;
mod profile;
mod report;
mod study;
mod svg;
mod tools;
mod wake;

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use budget::{Budget, Verdict};
use image::Image;
use tools::Tools;
use wake::{Plan, Wake};

/// The parts of the client that the image of the gate has.
const PARTS: &str = "early-data,key-update,migration,resumption,retry";
/// Images of the gate: names in the budget, and their features besides [`PARTS`].
const IMAGES: [(&str, &str); 3] = [
    ("tiny", "tiny"),
    ("fast", "fast"),
    ("smoltcp", "tiny,smoltcp"),
];
/// How often wakes are measured before the gate says that they cost too much:
/// on a busy machine packets are repeated, and that costs the device cycles.
const ATTEMPTS: u32 = 4;
/// Wakes of a device whose tickets let it send early data.
const EARLY: Plan = Plan {
    wakes: 2,
    readings: 2,
    early: true,
    series: false,
};

/// The tools, or nothing and a line that says what is missing.
fn tools(task: &str) -> Result<Option<Tools>> {
    Ok(match Tools::find()? {
        Ok(tools) => Some(tools),
        Err(missing) => {
            println!("{task}: skipped: {missing}");
            None
        }
    })
}

/// Tests and weighs the providers of cryptography; whether all holds.
///
/// # Errors
/// Something does not compile, run or answer rightly.
pub(crate) fn crypto() -> Result<bool> {
    match tools("mcu-crypto")? {
        Some(tools) => crypto::print(&tools),
        None => Ok(true),
    }
}

/// Holds each image against its budget; whether all passes.
///
/// # Errors
/// Something does not compile or run.
pub(crate) fn gate() -> Result<bool> {
    let Some(tools) = tools("mcu-gate")? else {
        return Ok(true);
    };
    let budget = Budget::read(&tools)?;
    let mut passes = true;
    for (name, features) in IMAGES {
        let (elf, image) = firmware(&tools, &format!("{features},{PARTS}"))?;
        let mut wakes = wake::best(&tools, &elf, &image, EARLY)?;
        let mut judged = verdicts(&budget, name, &image, &wakes);
        for _ in 1..ATTEMPTS {
            if judged.iter().all(Verdict::passes) {
                break;
            }
            wake::cheapest(&mut wakes, wake::best(&tools, &elf, &image, EARLY)?);
            judged = verdicts(&budget, name, &image, &wakes);
        }
        for verdict in judged {
            println!("{}", verdict.line());
            passes &= verdict.passes();
        }
    }
    Ok(passes)
}

/// Writes the study into the book; whether the budget is kept.
///
/// # Errors
/// Something does not compile or run, or cannot be written.
pub(crate) fn report() -> Result<bool> {
    match tools("mcu-report")? {
        Some(tools) => report::write(&tools),
        None => Ok(true),
    }
}

/// Builds the firmware with these features.
fn firmware(tools: &Tools, features: &str) -> Result<(PathBuf, Image)> {
    let elf = tools.build("mini/firmware/image", "dunlin-firmware", features)?;
    let image = Image::read(&elf).with_context(|| format!("{}", elf.display()))?;
    Ok((elf, image))
}

/// What the budget says of an image and its first two wakes: one with a full
/// handshake, one with early data.
fn verdicts(budget: &Budget, provider: &str, image: &Image, wakes: &[Wake]) -> Vec<Verdict> {
    let mut figures = vec![("flash", image.flash), ("static", image.fixed)];
    figures.push(("panics", u64::from(image.can_panic)));
    let stack = wakes.iter().map(Wake::stack).max().unwrap_or(u64::MAX);
    figures.extend([("stack", stack), ("ram", image.fixed.saturating_add(stack))]);
    // A figure that cannot be found fails the gate.
    let [full, early, ..] = wakes else {
        figures.push(("handshake_cycles", u64::MAX));
        return judge(budget, provider, &figures);
    };
    let handshake = full.handshake().map_or(u64::MAX, |cost| cost.1);
    figures.push(("handshake_cycles", handshake));
    let percent = match (full.first_reading(), early.first_reading()) {
        (Some(full), Some(again)) if early.took_early => again.1 * 100 / full.1.max(1),
        _ => u64::MAX,
    };
    figures.push(("early_percent", percent));
    judge(budget, provider, &figures)
}

fn judge(budget: &Budget, provider: &str, figures: &[(&str, u64)]) -> Vec<Verdict> {
    let judged = figures
        .iter()
        .filter_map(|(name, figure)| budget.judge(provider, name, *figure));
    judged.collect()
}
