//! Profiles of links: those that come with this program, and files. A profile
//! says what happens to packets in both directions, and where each number is
//! from.

use core::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use dunlin_link::{Action, Profile, Topology};
use toml::{Table, Value};

use crate::console;

/// What happens to packets from either end.
pub(crate) type Both = [Profile; 2];

macro_rules! shipped {
    ($name:literal) => {
        ($name, include_str!(concat!("../profiles/", $name, ".toml")))
    };
}
/// Name and text of each profile that comes with this program.
static SHIPPED: &[(&str, &str)] = &[
    shipped!("wired"),
    shipped!("wireless"),
    shipped!("long-distance"),
    shipped!("smart-home-wifi"),
    shipped!("smart-home-zigbee"),
    shipped!("smart-home-4g"),
    shipped!("smart-home-3g"),
    shipped!("smart-home-ethernet"),
    shipped!("printer-farm-wifi"),
    shipped!("printer-farm-zigbee"),
    shipped!("printer-farm-4g"),
    shipped!("printer-farm-3g"),
    shipped!("printer-farm-ethernet"),
    shipped!("synthetic-wifi"),
    shipped!("synthetic-zigbee"),
    shipped!("synthetic-4g"),
    shipped!("synthetic-3g"),
    shipped!("synthetic-ethernet"),
    shipped!("lte-m"),
    shipped!("nb-iot"),
    shipped!("leo-satellite"),
];

/// Keys of a profile that are no settings.
const ABOUT: &str = "about";
const SOURCE: &str = "source";

/// A link that does nothing to packets.
pub(crate) fn perfect() -> Both {
    [Profile::default(), Profile::default()]
}

/// The profile of this name, or in this file.
pub(crate) fn load(name: &str) -> Result<Both> {
    if let Some((_, text)) = SHIPPED.iter().find(|(known, _)| *known == name) {
        return read(text).with_context(|| format!("in the profile {name}"));
    }
    let path = Path::new(name);
    if !name.ends_with(".toml") && !path.is_file() {
        let known: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
        bail!(
            "there is no profile `{name}`; there are {}, or a TOML file",
            known.join(", ")
        );
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    read(&text).with_context(|| format!("in {name}"))
}

/// A perfect link with some settings changed, such as `loss=every 10`.
pub(crate) fn of(settings: &[&str]) -> Result<Both> {
    changed(perfect(), settings)
}

fn changed(both: Both, settings: &[&str]) -> Result<Both> {
    let mut topology = Topology::pair(both);
    for setting in settings {
        topology.apply(&Action::parse(setting)?)?;
    }
    Ok(only_link(&topology))
}

fn read(text: &str) -> Result<Both> {
    let mut table: Table = text.parse().map_err(|error| in_line(text, &error))?;
    table.remove(ABOUT);
    table.remove(SOURCE);
    apply(&table, perfect())
}

/// Where TOML is wrong, in one line.
pub(crate) fn in_line(text: &str, error: &toml::de::Error) -> anyhow::Error {
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.map_or(1, |before| before.matches('\n').count() + 1);
    anyhow!("line {line}: {}", error.message())
}

/// Changes what settings, and tables `up` and `down` of them, say.
pub(crate) fn apply(settings: &Table, both: Both) -> Result<Both> {
    let mut topology = Topology::pair(both);
    // What concerns both directions first, in any order of the file.
    for (name, value) in settings {
        if let Some(value) = word(value) {
            topology.apply(&Action::parse(&format!("{name}={value}"))?)?;
        }
    }
    for (name, value) in settings {
        match (name.as_str(), value.as_table()) {
            (direction @ ("up" | "down"), Some(settings)) => {
                for (setting, value) in settings {
                    let value = word(value)
                        .with_context(|| format!("{direction}.{setting} has no value"))?;
                    let action = Action::parse(&format!("{direction}.{setting}={value}"))?;
                    topology.apply(&action)?;
                }
            }
            _ if word(value).is_some() => {}
            _ => bail!("there is no `{name}`; there are settings, [up] and [down]"),
        }
    }
    Ok(only_link(&topology))
}

/// The profiles of the link of a pair.
fn only_link(pair: &Topology) -> Both {
    let link = pair.links().next().and_then(|link| pair.profiles(link));
    link.cloned().unwrap_or_else(perfect)
}

/// A value as it would be written in a script.
fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(on) => Some(if *on { "on" } else { "off" }.to_owned()),
        _ => None,
    }
}

/// List the profiles that come with this program.
#[derive(Debug, Args)]
pub(crate) struct Profiles {
    /// Show these with all their settings, and where each number is from.
    names: Vec<String>,
    /// Show all of them so.
    #[arg(long)]
    sources: bool,
}

impl Profiles {
    pub(crate) fn run(self) -> Result<()> {
        for name in &self.names {
            // For its sentence about what there is.
            load(name)?;
        }
        for (name, text) in SHIPPED {
            let named = self.names.iter().any(|wanted| wanted == name);
            if named || self.names.is_empty() {
                console::line(shown(name, text, named || self.sources)?);
            }
        }
        Ok(())
    }
}

fn shown(name: &str, text: &str, sources: bool) -> Result<String> {
    let table: Table = text.parse()?;
    let about = table.get(ABOUT).and_then(Value::as_str);
    let mut out = format!("{name:<22} {}", about.unwrap_or_default());
    if sources {
        for (setting, value) in settings(&table) {
            write!(out, "\n    {setting} = {value}")?;
        }
        for (setting, source) in table
            .get(SOURCE)
            .and_then(Value::as_table)
            .into_iter()
            .flatten()
        {
            write!(
                out,
                "\n    {setting}: {}",
                source.as_str().unwrap_or_default()
            )?;
        }
        out.push('\n');
    }
    Ok(out)
}

/// Settings with their values, such as `up.rate` and `375kbit`.
fn settings(table: &Table) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    for (name, value) in table {
        if let Some(value) = word(value).filter(|_| name != ABOUT) {
            settings.push((name.clone(), value));
        }
        let Some(inner) = value.as_table().filter(|_| name != SOURCE) else {
            continue;
        };
        for (setting, value) in inner {
            settings.push((format!("{name}.{setting}"), word(value).unwrap_or_default()));
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_link::Loss;

    #[test]
    fn each_shipped_profile_is_one_and_has_a_source_for_each_number() {
        for (name, text) in SHIPPED {
            let both = load(name).unwrap();
            assert!(
                both.iter().all(|profile| !profile.delay.is_zero()),
                "{name}"
            );
            let table: Table = text.parse().unwrap();
            assert!(table[ABOUT].as_str().is_some_and(|about| !about.is_empty()));
            let sources = table[SOURCE].as_table().unwrap();
            for (setting, _) in settings(&table) {
                let setting = setting.rsplit('.').next().unwrap();
                let source = sources.get(setting).and_then(Value::as_str);
                assert!(
                    source.is_some_and(|source| !source.is_empty()),
                    "{name}: {setting}"
                );
            }
        }
        let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/profiles"));
        assert_eq!(files.unwrap().count(), SHIPPED.len());
    }

    /// Tables 5.1, 5.2 and 5.3: Mbit/s, ms, then loss in percent by scenario.
    #[test]
    fn the_tables_of_the_dissertation_are_copied_well() {
        let links = [
            ("wifi", 30.0, 10, [2.0, 5.0, 15.0]),
            ("zigbee", 0.25, 5, [1.0, 3.0, 15.0]),
            ("4g", 4.0, 20, [1.5, 2.5, 20.0]),
            ("3g", 1.0, 40, [1.5, 2.5, 20.0]),
            ("ethernet", 100.0, 1, [0.2, 0.5, 4.0]),
        ];
        for (link, mbit, ms, losses) in links {
            for (scenario, loss) in ["smart-home", "printer-farm", "synthetic"]
                .iter()
                .zip(losses)
            {
                let [up, down] = load(&format!("{scenario}-{link}")).unwrap();
                assert_eq!(up, down);
                assert_eq!(up.rate, Some((mbit * 1e6) as u64));
                assert_eq!(up.delay.as_millis(), ms);
                let Loss::Random(seen) = up.loss else {
                    panic!("{:?}", up.loss);
                };
                assert!((seen * 100.0 - loss).abs() < 1e-9, "{link} {scenario}");
            }
        }
    }

    #[test]
    fn settings_change_a_profile() {
        let [up, down] = changed(
            load("lte-m").unwrap(),
            &["loss=every 10", "down.delay=60ms"],
        )
        .unwrap();
        assert_eq!((up.loss, down.loss), (Loss::Every(10), Loss::Every(10)));
        assert_eq!((up.rate, down.rate), (Some(375_000), Some(300_000)));
        assert_eq!(
            [up.delay, down.delay].map(|delay| delay.as_millis()),
            [50, 60]
        );
        assert_eq!(of(&[]).unwrap(), perfect());
    }

    #[test]
    fn what_is_no_profile_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = 0;
        let mut file = |text: &str| {
            files += 1;
            let path = folder.path().join(format!("{files}.toml"));
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let cases = [
            (
                "lte".to_owned(),
                "there is no profile `lte`; there are wired, wireless,",
            ),
            (
                "nowhere.toml".to_owned(),
                "cannot read nowhere.toml: No such file",
            ),
            (file("delay = \"soon\""), "delay: `soon` is no duration"),
            (file("colour = \"red\""), "there is no setting `colour`"),
            (
                file("[sideways]\ndelay = \"1ms\""),
                "there is no `sideways`; there are settings,",
            ),
            (file("up.loss = []"), "up.loss has no value"),
            (
                file("delay ="),
                ".toml: line 1: string values must be quoted",
            ),
        ];
        for (name, want) in cases {
            let error = format!("{:#}", load(&name).unwrap_err());
            assert!(error.contains(want), "{error}");
        }
    }

    /// Settings of a profile as the book shows them: up and down if they differ.
    fn cell(table: &Table, setting: &str) -> String {
        let in_table = |table: &Table| table.get(setting).and_then(word);
        let of = |direction: &str| table.get(direction)?.as_table().and_then(in_table);
        match (of("up"), of("down")) {
            (Some(up), Some(down)) => format!("{up} up, {down} down"),
            _ => in_table(table).unwrap_or_else(|| "-".to_owned()),
        }
    }

    #[test]
    fn the_book_has_each_profile() {
        let page = include_str!("../../../docs/book/src/link.md");
        let mut missing = String::new();
        for (name, text) in SHIPPED {
            let table: Table = text.parse().unwrap();
            let cells = ["rate", "delay", "jitter", "loss"].map(|setting| cell(&table, setting));
            let row = format!("| `{name}` | {} |\n", cells.join(" | "));
            if !page.contains(&row) {
                missing.push_str(&row);
            }
        }
        assert!(missing.is_empty(), "link.md lacks:\n{missing}");
    }
}
