//! `cargo xtask mcu-report`: measures everything that the study shows and
//! writes the page and its plots into the book.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::budget::{Budget, Verdict};
use super::crypto;
use super::image::{Image, PARTS};
use super::profile;
use super::study::{Provider, Smoltcp, Study};
use super::svg::{Bar, Curve, bars, curve};
use super::tools::Tools;
use super::wake::{self, Plan, Series, Wake};
use super::{EARLY, PARTS as PARTS_OF_DEFAULT, firmware, page, verdicts};

/// The page and the folder of its plots.
const PAGE: &str = "docs/book/src/mcu-study.md";
const PLOTS: &str = "docs/book/src/mcu";

/// Images with less and less in them: what was left out, and the features.
pub(crate) const OPTIONS: [(&str, &str); 9] = [
    (
        "with smoltcp and DHCP, too",
        "early-data,key-update,migration,resumption,retry,qos2,chacha20-poly1305,smoltcp",
    ),
    (
        "with ChaCha20-Poly1305, too",
        "early-data,key-update,migration,resumption,retry,qos2,chacha20-poly1305",
    ),
    (
        "with MQTT's QoS 2",
        "early-data,key-update,migration,resumption,retry,qos2",
    ),
    (
        "the default",
        "early-data,key-update,migration,resumption,retry",
    ),
    ("w/o migration", "early-data,key-update,resumption,retry"),
    ("w/o key update", "early-data,resumption,retry"),
    ("w/o Retry, NEW_TOKEN", "early-data,resumption"),
    ("w/o 0-RTT", "resumption"),
    ("w/o resumption", ""),
];
/// A run whose stack is recorded over time.
const SERIES: Plan = Plan {
    wakes: 2,
    readings: 1,
    early: true,
    series: true,
};
/// The broker takes nothing early.
const LATE: Plan = Plan {
    early: false,
    ..EARLY
};

/// Measures, and writes the page and the plots.
///
/// # Errors
/// Something does not compile or run, or cannot be written.
pub(crate) fn write(tools: &Tools) -> Result<bool> {
    let root = tools.root().to_path_buf();
    let plots = root.join(PLOTS);
    fs::create_dir_all(&plots).context(PLOTS)?;
    let budget = Budget::read(tools)?;
    let mut study = Study {
        providers: Vec::new(),
        smoltcp: smoltcp(tools, &budget)?,
        options: Vec::new(),
        authority: flash(tools, "authority")?,
        authority_retry: flash(tools, "authority,hello-retry")?,
    };
    for name in crypto::PROVIDERS {
        println!("mcu-report: {name}");
        let (provider, series) = measure(tools, &budget, name)?;
        plot_stack(&plots, &provider, &series)?;
        study.providers.push(provider);
    }
    for (name, features) in OPTIONS {
        println!("mcu-report: {name}");
        let features = match features {
            "" => "tiny".to_owned(),
            _ => format!("tiny,{features}"),
        };
        study.options.push((name, firmware(tools, &features)?.1));
    }
    plot_flash(&plots, &study)?;
    plot_cycles(&plots, &study)?;
    fs::write(root.join(PAGE), page::text(&study)).context(PAGE)?;
    println!("mcu-report: wrote {PAGE} and {PLOTS}");
    Ok(study.verdicts().all(Verdict::passes))
}

fn smoltcp(tools: &Tools, budget: &Budget) -> Result<Smoltcp> {
    println!("mcu-report: smoltcp");
    let (elf, image) = firmware(tools, &format!("tiny,smoltcp,{PARTS_OF_DEFAULT}"))?;
    let wakes = wake::best(tools, &elf, &image, EARLY)?;
    let verdicts = verdicts(budget, "smoltcp", &image, &wakes);
    let [full, early, ..] = &wakes[..] else {
        bail!("one wake only");
    };
    Ok(Smoltcp {
        full: full.clone(),
        early: early.clone(),
        image,
        verdicts,
    })
}

fn measure(tools: &Tools, budget: &Budget, name: &'static str) -> Result<(Provider, Series)> {
    let (elf, image) = firmware(tools, &format!("{name},{}", PARTS_OF_DEFAULT))?;
    let wakes = wake::best(tools, &elf, &image, EARLY)?;
    let late = wake::best(tools, &elf, &image, LATE)?;
    let (_, series) = wake::run(tools, &elf, &image, SERIES)?;
    let verdicts = verdicts(budget, name, &image, &wakes);
    let second = |wakes: &[Wake]| wakes.get(1).cloned().context("one wake only");
    let provider = Provider {
        name,
        crypto: crypto::measure(tools, name)?,
        full: wakes.first().cloned().context("no wake")?,
        resumed: second(&late)?,
        early: second(&wakes)?,
        profile: profile::early(tools, &elf, &image)?,
        image,
        verdicts,
    };
    Ok((provider, series))
}

/// Flash of the smallest image with more features than the default.
fn flash(tools: &Tools, features: &str) -> Result<u64> {
    let (_, image) = firmware(tools, &format!("tiny,{features},{PARTS_OF_DEFAULT}"))?;
    Ok(image.flash)
}

fn save(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("{}", path.display()))
}

/// Kilobytes for a label.
fn kilobytes(bytes: u64) -> String {
    format!("{:.1} KB", bytes as f64 / 1024.0)
}

fn plot_flash(folder: &Path, study: &Study) -> Result<()> {
    let bar = |name: String, image: &Image| Bar {
        name,
        pieces: image.parts.iter().map(|bytes| *bytes as f64).collect(),
        label: kilobytes(image.flash),
    };
    let mut all: Vec<_> = study
        .options
        .iter()
        .map(|(name, image)| bar(format!("tiny, {name}"), image))
        .collect();
    let fast = study.providers.iter().filter(|p| p.name != "tiny");
    all.extend(fast.map(|p| bar(format!("{}, the default", p.name), &p.image)));
    // The paper's bars are read from its text; they have no parts here.
    for (name, bytes) in page::PAPER_FLASH {
        let mut pieces = vec![0.0; PARTS.len()];
        pieces.push(*bytes as f64);
        all.push(Bar {
            name: (*name).to_owned(),
            pieces,
            label: kilobytes(*bytes),
        });
    }
    let legend: Vec<_> = PARTS.into_iter().chain(["others"]).collect();
    let title = "Flash of the image by what is left out";
    save(
        folder,
        "flash.svg",
        &bars(title, &legend, &all, Some((40_960.0, "40 KB")))?,
    )
}

fn plot_cycles(folder: &Path, study: &Study) -> Result<()> {
    for provider in &study.providers {
        let wakes = page::wakes(provider);
        let all: Vec<_> = wakes
            .iter()
            .map(|(name, wake)| {
                let pieces = page::pieces(wake);
                let cycles = wake.first_reading().map_or(0, |cost| cost.1);
                Bar {
                    name: (*name).to_owned(),
                    pieces: pieces.to_vec(),
                    label: format!("{:.1} M", cycles as f64 / 1e6),
                }
            })
            .collect();
        let title = format!("Cycles from waking to PUBACK, provider {}", provider.name);
        let name = format!("cycles-{}.svg", provider.name);
        save(folder, &name, &bars(&title, &page::PIECES, &all, None)?)?;
    }
    Ok(())
}

fn plot_stack(folder: &Path, provider: &Provider, series: &Series) -> Result<()> {
    let top = provider.image.stack.1;
    let mut points = Vec::new();
    let mut phases: Vec<(f64, &str)> = Vec::new();
    let mut last = None;
    for (instructions, mark, lowest) in series {
        let x = *instructions as f64 / 1e6;
        if last != Some(mark) {
            phases.push((x, page::after(*mark)));
            last = Some(mark);
        }
        points.push((x, top.saturating_sub(*lowest) as f64));
    }
    let title = format!(
        "Stack over time, provider {}: a full handshake, then early data",
        provider.name
    );
    let drawn = curve(&Curve {
        title: &title,
        x: "instructions executed, millions (sleep takes none)",
        y: "bytes",
        points: &thinned(&points),
        phases: &phases,
        goal: Some((3072.0, "3 KB")),
    })?;
    save(folder, &format!("stack-{}.svg", provider.name), &drawn)
}

/// The deepest of neighbouring points, so that a plot stays small.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    const POINTS: usize = 700;
    let each = points.len().div_ceil(POINTS).max(1);
    let deepest = |chunk: &[(f64, f64)]| {
        let first = chunk.first().map_or(0.0, |point| point.0);
        (first, chunk.iter().map(|point| point.1).fold(0.0, f64::max))
    };
    points.chunks(each).map(deepest).collect()
}
