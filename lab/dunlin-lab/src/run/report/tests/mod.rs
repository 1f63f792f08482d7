//! Whole reports of a run that was made up: what has to be in them, and what
//! never may.

mod invented;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use super::*;
use crate::run::experiment::Experiment;
use crate::run::record::Scale;
use invented::{CAUSE, INVENTED, store, store_of};

const KNOWN: &[&dyn Experiment] = &[&INVENTED, &CAUSE];

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// Tags that are opened are closed, in order; attributes are quoted.
fn well_formed(name: &str, text: &str) {
    let mut open: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        let end = rest
            .find('>')
            .unwrap_or_else(|| panic!("{name}: no end of a tag"));
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        if tag.starts_with('!') {
            continue;
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{name}: <{tag}>");
        let word = tag
            .trim_start_matches('/')
            .split([' ', '/'])
            .next()
            .unwrap_or_default();
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(closed), "{name}");
        } else if !tag.ends_with('/') && !["meta", "link"].contains(&word) {
            open.push(word.to_owned());
        }
        if word == "style" && !tag.starts_with('/') {
            rest = &rest[rest.find("</style>").unwrap()..];
        }
    }
    assert!(open.is_empty(), "{name}: {open:?} not closed");
}

/// `DUNLIN_LAB_SITE=DIR` keeps what is written, to be looked at in a browser.
fn place(temporary: &tempfile::TempDir) -> PathBuf {
    std::env::var_os("DUNLIN_LAB_SITE").map_or_else(|| temporary.path().to_owned(), PathBuf::from)
}

#[test]
fn a_site_has_everything_and_loads_nothing() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = place(&temporary);
    let _ = store(&folder.join("invented-short"), Scale::Short, 0);
    let _ = store(&folder.join("invented-paper"), Scale::Paper, 150);
    let site = Site::read(&folder, KNOWN).unwrap();
    let out = folder.join(SITE);
    write_site(&site, &out).unwrap();
    for name in ["index.html", "invented-short.html", "invented-paper.html"] {
        let page = read(&out, name);
        well_formed(name, &page);
        // A name, which is not loaded.
        let page = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        for loaded in ["<script", "<link", "src=", "url(", "@import", "http"] {
            assert!(!page.contains(loaded), "{name} loads: {loaded}");
        }
        assert!(!page.contains("NaN") && !page.contains("inf\""), "{name}");
    }
    let page = read(&out, "invented-short.html");
    for said in [
        "Complete: 210 of 210 cells.",
        "14 cells are invalid",
        "queue overran, &quot;12&quot; packets",
        "paper: MQTT over QUIC 0-RTT",
        "Fig. &lt;0&gt;",
        "6.1 &lt;x&gt;",
        "nothing valid",
        "Nothing recorded.",
        "mqttv5, QUIC (invalid: no line)",
        "it was invented",
        "dunlin-quic",
    ] {
        assert!(page.contains(said), "{said}");
    }
    let unfinished = read(&out, "invented-paper.html");
    assert!(unfinished.contains("Unfinished: 60 of 210 cells"));
    assert!(read(&out, "index.html").contains("unfinished"));
}

#[test]
fn samples_are_all_there_but_those_of_invalid_cells() {
    let folder = tempfile::tempdir().unwrap();
    let run = store(&folder.path().join("invented-smoke"), Scale::Smoke, 0);
    let site = Site::read(folder.path(), KNOWN).unwrap();
    let out = folder.path().join("out");
    write_site(&site, &out).unwrap();
    let valid: Vec<_> = run
        .records
        .iter()
        .filter(|r| r.outcome.invalid.is_none())
        .collect();
    let measures = valid.iter().flat_map(|r| &r.outcome.measures);
    let samples: usize = measures.map(|m| m.values.len() + m.series.len()).sum();
    let csv = read(&out, "invented-smoke.csv");
    let bad = run.records.len() - valid.len();
    assert_eq!(csv.lines().count(), 1 + samples + bad);
    let head = "experiment,scale,system,repetition,seed,link,loss_percent,policy,role,testbed,\
                metric,unit,at_seconds,value,invalid";
    assert_eq!(csv.lines().next(), Some(head));
    assert!(csv.contains(",,,,,\"the emulator's queue overran, \"\"12\"\" packets\"\n"));
    let json: serde_json::Value = serde_json::from_str(&read(&out, "invented-smoke.json")).unwrap();
    let cells = json["cells"].as_array().unwrap();
    assert_eq!(cells.len(), run.records.len());
    for cell in cells {
        let empty = cell["outcome"]["measures"].as_array().unwrap().is_empty();
        assert_eq!(empty, cell["outcome"]["invalid"].is_string());
    }
    assert_eq!(json["claims"][2]["verdict"], "unmeasured");
}

#[test]
fn the_book_has_its_pictures_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let book = folder.path().join("src");
    std::fs::create_dir_all(book.join("results")).unwrap();
    std::fs::write(book.join("results/old.svg"), "").unwrap();
    let runs = folder.path().join("runs");
    let _ = store(&runs.join("invented-smoke"), Scale::Smoke, 0);
    let _ = store(&runs.join("invented-short"), Scale::Short, 0);
    let site = Site::read(&runs, KNOWN).unwrap();
    write_book(&site, &book).unwrap();
    let page = read(&book, "results.md");
    assert!(page.contains("A short run of 2026-11-21"), "not the smoke");
    assert!(page.contains("| two \\| cores |"));
    let mut pictures = 0;
    for line in page.lines().filter(|line| line.starts_with("![")) {
        let (_, file) = line.split_once("](").unwrap();
        let picture = read(&book, file.trim_end_matches(')'));
        well_formed(file, &picture);
        plot::tests::legible(file, &picture);
        assert!(picture.starts_with("<svg role="));
        pictures += 1;
    }
    assert_eq!(pictures, 9, "all but the one without data");
    assert_eq!(
        std::fs::read_dir(book.join("results")).unwrap().count(),
        pictures
    );
    write_book(&Site::default(), &book).unwrap();
    assert!(read(&book, "results.md").contains("No run is stored yet."));
}

#[test]
fn a_claim_is_explained_by_another_that_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    let _ = store(&runs.join("invented-short"), Scale::Short, 0);
    let said = || {
        let site = Site::read(&runs, KNOWN).unwrap();
        let (book, _) = book::book(&site);
        let out = folder.path().join("out");
        write_site(&site, &out).unwrap();
        let json: serde_json::Value =
            serde_json::from_str(&read(&out, "invented-short.json")).unwrap();
        (book, read(&out, "index.html"), json["claims"][1].clone())
    };
    let (book, index, json) = said();
    assert!(book.contains("**Claims:** do not hold: 2 "), "{book}");
    assert!(
        !book.contains("explained:") && !book.contains("explained by"),
        "{book}"
    );
    assert!(!index.contains("class=\"v explained\""));
    assert_eq!(
        (&json["verdict"], json["causes"].as_array().map(Vec::len)),
        (&"fails".into(), Some(0))
    );

    // What a smoke run measured decides nothing.
    let _ = store_of(&CAUSE, &runs.join("cause-smoke"), Scale::Smoke, 0);
    assert_eq!(said().2["verdict"], "fails");

    let _ = store_of(&CAUSE, &runs.join("cause-short"), Scale::Short, 0);
    let (book, index, json) = said();
    let summary = "explained (a claim that isolates the cause holds): 1 \u{b7} do not hold: 1 ";
    assert!(book.contains(summary) && index.contains(summary), "{book}");
    assert!(book.contains("| no, explained |"), "{book}");
    assert!(
        book.contains("explained by cause-invented, packets of a handshake, wireless, broker: dunlin-quic against TLS: "),
        "{book}"
    );
    assert!(index.contains("<td class=\"v explained\">no, explained</td>"));
    assert_eq!(json["verdict"], "explained");
    assert_eq!(json["causes"][0]["verdict"], "holds");
    assert!(json["causes"][0]["measured"]["low"].is_number());
}

#[test]
fn the_same_run_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let _ = store(&folder.path().join("invented-short"), Scale::Short, 100);
    let site = || book::book(&Site::read(folder.path(), KNOWN).unwrap());
    assert_eq!(site(), site());
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path();
    let _ = store(&runs.join("invented-smoke"), Scale::Smoke, 0);
    let _ = store(&runs.join("foreign"), Scale::Smoke, 208);
    let cells = runs.join("foreign").join("cells.jsonl");
    let text = std::fs::read_to_string(&cells).unwrap();
    let (first, _) = text.split_once('\n').unwrap();
    std::fs::write(&cells, format!("{first}\n{{\"x\": 1}}\n")).unwrap();
    std::fs::create_dir(runs.join("older")).unwrap();
    std::fs::write(runs.join("older/run.json"), "{\"experiment\": \"x\"}").unwrap();
    let site = Site::read(runs, KNOWN).unwrap();
    assert_eq!(site.shown.len(), 1);
    let said = site.unreadable.join("\n");
    assert!(
        said.contains("cells.jsonl, line 2: missing field `cell`"),
        "{said}"
    );
    assert!(said.contains("run.json: missing field `scale`"), "{said}");
    write_site(&site, &runs.join(SITE)).unwrap();
    assert!(read(&runs.join(SITE), "index.html").contains("A run cannot be read: "));
    assert!(finish(&site, runs).is_err());
}

#[test]
fn a_line_that_was_cut_short_is_left_out_and_said() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("invented-smoke");
    let _ = store(&run, Scale::Smoke, 200);
    let mut file = OpenOptions::new()
        .append(true)
        .open(run.join("cells.jsonl"))
        .unwrap();
    file.write_all(b"{\"cell\":{\"system\":\"dunl").unwrap();
    let site = Site::read(folder.path(), KNOWN).unwrap();
    let page = page::page(&site.shown[0]);
    assert!(page.contains("Line 11 of cells.jsonl was cut short"));
    assert!(page.contains("Unfinished: 10 of 210 cells"));
}

#[test]
fn an_experiment_of_another_version_is_shown_without_figures() {
    let folder = tempfile::tempdir().unwrap();
    let _ = store(&folder.path().join("invented-smoke"), Scale::Smoke, 0);
    let site = Site::read(folder.path(), &[]).unwrap();
    let page = page::page(&site.shown[0]);
    assert!(page.contains("This program has no experiment `invented`"));
}

#[test]
fn no_runs_and_no_place_are_sentences() {
    let folder = tempfile::tempdir().unwrap();
    let error = Site::read(&folder.path().join("none"), KNOWN)
        .err()
        .unwrap();
    assert!(
        format!("{error:#}").contains("`dunlin-lab run` makes runs"),
        "{error:#}"
    );
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = write_site(&Site::default(), &file).unwrap_err();
    assert!(
        format!("{error:#}").starts_with("cannot make "),
        "{error:#}"
    );
    // A disk without space: nothing half written is left.
    let full = folder.path().join("page.html");
    let error = write(&full, |_| Err(io::Error::from(io::ErrorKind::StorageFull))).unwrap_err();
    assert!(
        format!("{error:#}").starts_with("cannot write "),
        "{error:#}"
    );
    assert!(!full.exists() && !folder.path().join("page.next").exists());
    let error = write_book(&Site::default(), &folder.path().join("nowhere")).unwrap_err();
    assert!(
        format!("{error:#}").starts_with("there is no folder "),
        "{error:#}"
    );
}
