//! Links of the papers to files of the repository lead somewhere. Links to
//! the network are not followed: this tool works without one.

use crate::finding::Finding;
use crate::tree::{Tree, has_extension};

/// Holds the rule for every Markdown file.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let papers = tree
        .texts()
        .filter(|(path, _)| has_extension(path, &["md"]));
    for (path, text) in papers {
        let mut in_code = false;
        for (index, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                in_code = !in_code;
            }
            if in_code {
                continue;
            }
            for target in targets(line) {
                if leads_nowhere(tree, path, target) {
                    let advice = format!("no such file: `{target}`");
                    findings.push(Finding::new(path, index + 1, "link", advice));
                }
            }
        }
    }
    findings
}

/// Targets of the inline links and reference definitions in a line.
fn targets(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some((_, after)) = rest.split_once("](") {
        let end = after.find([')', ' ']).unwrap_or(after.len());
        found.push(&after[..end]);
        rest = &after[end..];
    }
    if line.starts_with('[')
        && let Some((_, target)) = line.split_once("]: ")
    {
        found.push(target.split(' ').next().unwrap_or_default());
    }
    found
}

fn leads_nowhere(tree: &Tree, from: &str, target: &str) -> bool {
    let target = target.trim_matches(['<', '>']);
    let file = target.split(['#', '?']).next().unwrap_or_default();
    let elsewhere = target.contains("://") || target.starts_with("mailto:");
    if elsewhere || file.is_empty() {
        return false;
    }
    match resolve(from, file) {
        Some(path) => !tree.exists(&path),
        None => true,
    }
}

/// A relative target as a path from the root; `None` when it leaves it.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    (!target.starts_with('/')).then(|| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_are_found() {
        let tree = Tree::of(&[
            ("LICENSE", ""),
            ("docs/book/src/a.md", ""),
            (
                "docs/book/src/index.md",
                "[a](a.md) [b](./a.md#part) [l](../../../LICENSE) [w](https://x.org/y)\n\
                 [self](#here) [folder](..)\n\
                 ```\n[in code](nowhere.md)\n```\n\
                 [gone](b.md) and [out](../../../../x)\n\
                 [ref]: nothing.md\n",
            ),
        ]);
        let got = check(&tree);
        let got: Vec<(usize, &str)> = got.iter().map(|f| (f.line, f.advice.as_str())).collect();
        let want = [
            (6, "no such file: `b.md`"),
            (6, "no such file: `../../../../x`"),
            (7, "no such file: `nothing.md`"),
        ];
        assert_eq!(got, want);
    }
}
