//! Links of the papers to files of the repository, and to headings in them, lead
//! somewhere; every page of the book is in its table of contents. Links to the
//! network are not followed: this tool works without one.

use crate::finding::Finding;
use crate::tree::{Tree, has_extension};

const BOOK: &str = "docs/book/src/";

/// Holds the rules for every Markdown file.
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
                let advice = if leads_nowhere(tree, path, target) {
                    format!("no such file: `{target}`")
                } else if misses_heading(tree, path, target) {
                    format!("no such heading: `{target}`")
                } else {
                    continue;
                };
                findings.push(Finding::new(path, index + 1, "link", advice));
            }
        }
    }
    findings.extend(unlisted_pages(tree));
    findings
}

/// Pages that the table of contents forgets, which mdBook leaves out silently.
fn unlisted_pages(tree: &Tree) -> Vec<Finding> {
    let summary = format!("{BOOK}SUMMARY.md");
    let Some(contents) = tree.text(&summary) else {
        return Vec::new();
    };
    let listed: Vec<&str> = contents.lines().flat_map(targets).collect();
    let pages = tree.texts().filter_map(|(path, _)| {
        let page = path.strip_prefix(BOOK)?;
        let is_page = has_extension(path, &["md"]) && page != "SUMMARY.md";
        (is_page && !listed.contains(&page)).then_some(page)
    });
    let finding = |page| Finding::new(&summary, 1, "link", format!("`{page}` is not listed"));
    pages.map(finding).collect()
}

/// Whether a link to a heading leads to none.
fn misses_heading(tree: &Tree, from: &str, target: &str) -> bool {
    let target = target.trim_matches(['<', '>']);
    let Some((file, anchor)) = target.split_once('#') else {
        return false;
    };
    if target.contains("://") {
        return false;
    }
    let path = match file {
        "" => Some(from.to_owned()),
        _ => resolve(from, file),
    };
    let Some(text) = path.and_then(|path| tree.text(&path)) else {
        return false;
    };
    let mut in_code = false;
    !text.lines().any(|line| {
        in_code ^= line.trim_start().starts_with("```");
        !in_code && line.starts_with('#') && anchor_of(line) == anchor
    })
}

/// The name that mdBook and GitHub give to a heading.
fn anchor_of(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim();
    let kept = text.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ => letter.is_alphanumeric().then_some(letter),
    });
    kept.flat_map(char::to_lowercase).collect()
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
pub(super) fn resolve(from: &str, target: &str) -> Option<String> {
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
            ("docs/book/src/a.md", "# The part\n```\n# code\n```\n"),
            ("docs/book/src/lost.md", ""),
            ("docs/book/src/SUMMARY.md", "[i](index.md) [a](a.md)\n"),
            (
                "docs/book/src/index.md",
                "[a](a.md) [b](./a.md#the-part) [l](../../../LICENSE) [w](https://x.org/y)\n\
                 [self](#here) [code](a.md#code) [folder](..)\n\
                 ```\n[in code](nowhere.md)\n```\n\
                 [gone](b.md) and [out](../../../../x)\n\
                 [ref]: nothing.md\n",
            ),
        ]);
        let got = check(&tree);
        let got: Vec<(usize, &str)> = got.iter().map(|f| (f.line, f.advice.as_str())).collect();
        let want = [
            (2, "no such heading: `#here`"),
            (2, "no such heading: `a.md#code`"),
            (6, "no such file: `b.md`"),
            (6, "no such file: `../../../../x`"),
            (7, "no such file: `nothing.md`"),
            (1, "`lost.md` is not listed"),
        ];
        assert_eq!(got, want);
    }
}
