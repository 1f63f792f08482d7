//! Experiments in seconds: each runs, and says what it measured or why it could not.
//! They need the program `dunlin` beside `dunlin-lab`; where there is none, or there
//! can be no links, that is said.

use std::path::Path;

use crate::{lab, said, skipped};

#[test]
fn experiments_of_future_work_run() {
    let dunlin = Path::new(env!("CARGO_BIN_EXE_dunlin-lab")).with_file_name("dunlin");
    if skipped() {
        return;
    }
    if !dunlin.is_file() {
        eprintln!("skipped: there is no {}", dunlin.display());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let names = ["reading", "nikitin-mesh", "cipher"];
    let output = lab(&["run", "--smoke", "--fresh", "--out"])
        .arg(folder.path())
        .args(names)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    for (name, metric) in names
        .iter()
        .zip(["acknowledged", "silence", "cpu-per-message"])
    {
        let from = printed.find(&format!("== {name}:")).unwrap_or_default();
        let part = printed.get(from..).unwrap_or_default();
        let part = part.get(2..).and_then(|part| part.split("\n== ").next());
        let part = part.unwrap_or_default();
        let measured = part.contains(metric);
        // A machine with other work to do.
        let busy = part.contains("saturated");
        assert!(measured || busy, "{name}: {printed}{}", said(&output));
        assert!(!part.contains("failed:"), "{name}: {printed}");
    }
}
