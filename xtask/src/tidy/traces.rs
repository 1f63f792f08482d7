//! Traces of one machine or one working day that must not be committed:
//! absolute paths, registry hosts, large files, tabs, merge markers.

use crate::finding::Finding;
use crate::tree::{Tree, has_extension};

/// The largest file that may be committed.
const FILE_BYTES_MAX: u64 = 512 * 1024;

/// Beginnings of paths that exist on one machine only, in halves so that this
/// file does not contain them.
const MACHINE_PATHS: [(&str, &str); 3] = [("/wo", "rk/"), ("/ho", "me/"), ("/ro", "ot/")];

/// Hosts that packages are downloaded from, in halves as well. Which registry is
/// used is a setting of the package manager; texts say "the Rust registry".
/// Pages about packages are fine.
const REGISTRY_HOSTS: [(&str, &str); 10] = [
    ("crates.", "io"),
    ("npmjs.", "org"),
    ("npmjs.", "com"),
    ("yarnpkg.", "com"),
    ("pythonhosted.", "org"),
    ("pypi.", "org"),
    ("deb.", "debian.org"),
    ("archive.", "ubuntu.com"),
    ("proxy.", "golang.org"),
    ("sparse+", "http"),
];

/// Files that package managers write, which name the registry that was used.
const LOCK_FILES: [&str; 3] = ["Cargo.lock", "go.sum", "package-lock.json"];

/// Holds all of them.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, file) in tree.files() {
        if file.bytes > FILE_BYTES_MAX {
            let advice = format!(
                "{} KB: generate it, or keep it elsewhere; at most {} KB",
                file.bytes / 1024,
                FILE_BYTES_MAX / 1024
            );
            findings.push(Finding::new(path, 0, "large-file", advice));
        }
    }
    for (path, text) in tree.texts() {
        for (index, line) in text.lines().enumerate() {
            check_line(path, index + 1, line, &mut findings);
        }
    }
    findings
}

fn check_line(path: &str, number: usize, line: &str, findings: &mut Vec<Finding>) {
    let mut report = |rule, advice: String| findings.push(Finding::new(path, number, rule, advice));
    for (head, tail) in MACHINE_PATHS {
        let wanted = [head, tail].concat();
        let starts_a_path = |at: usize| {
            let before = line[..at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || "._-})$*~".contains(c))
        };
        if line.match_indices(&wanted).any(|(at, _)| starts_a_path(at)) {
            report(
                "machine-path",
                format!("`{wanted}` is one machine's: use a path from the root of the repository"),
            );
        }
    }
    for (head, tail) in REGISTRY_HOSTS {
        let wanted = [head, tail].concat();
        if line.contains(&wanted) && !is_lock_file(path) {
            report(
                "registry-host",
                format!("`{wanted}`: leave the registry to the package manager's settings"),
            );
        }
    }
    if has_extension(path, &["rs"]) && line.contains('\t') {
        report("tab", "indent with spaces".to_owned());
    }
    let is_marker = |marker: &str| {
        line.strip_prefix(marker)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    if ["<<<<<<<", ">>>>>>>", "|||||||"].into_iter().any(is_marker) {
        report("merge-marker", "finish the merge".to_owned());
    }
}

fn is_lock_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    LOCK_FILES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trace_is_found_at_its_line() {
        let join = |parts: (&str, &str)| [parts.0, parts.1].concat();
        let machine = format!("x\nsee {}notes\n", join(MACHINE_PATHS[1]));
        let inner = format!("crates{}x and ${{top}}{0}\n", join(MACHINE_PATHS[0]));
        let host = format!("url = \"https://{}/x\"\n", join(REGISTRY_HOSTS[2]));
        let cases = [
            ("a.md", machine.as_str(), "a.md:2: machine-path"),
            ("a.md", inner.as_str(), ""),
            ("a.json", host.as_str(), "a.json:1: registry-host"),
            ("a/Cargo.lock", host.as_str(), ""),
            ("a.md", "https://docs.rs/redb", ""),
            ("a.rs", "fn a() {\n\tx\n}", "a.rs:2: tab"),
            ("Makefile", "a:\n\tx\n", ""),
            ("a.md", "title\n=======\n", ""),
            ("a.rs", "<<<<<<< HEAD\n", "a.rs:1: merge-marker"),
        ];
        for (path, text, want) in cases {
            let got = check(&Tree::of(&[(path, text)]));
            assert_eq!(got.len(), usize::from(!want.is_empty()), "{text}: {got:?}");
            assert!(
                got.iter().all(|g| g.to_string().starts_with(want)),
                "{got:?}"
            );
        }
        let large = "x".repeat(512 * 1024 + 1);
        let got = check(&Tree::of(&[("a.bin", &large)]));
        assert_eq!(got[0].rule, "large-file");
    }
}
