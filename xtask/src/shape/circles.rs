//! Circles in a graph of imports: strongly connected components of more than
//! one file.

use std::collections::BTreeSet;

/// The circles, the largest first; files by name.
pub(crate) fn circles(edges: &BTreeSet<(usize, usize)>, names: &[String]) -> Vec<Vec<String>> {
    let reach: Vec<BTreeSet<usize>> = (0..names.len()).map(|file| reach(edges, file)).collect();
    let mut seen = BTreeSet::new();
    let mut found: Vec<Vec<String>> = Vec::new();
    for (file, reached) in reach.iter().enumerate() {
        // In a circle with itself means: it is reached from where it leads.
        let circle: Vec<usize> = reached
            .iter()
            .copied()
            .filter(|other| reach[*other].contains(&file))
            .collect();
        if circle.len() > 1 && !seen.contains(&file) {
            seen.extend(circle.iter().copied());
            let mut circle: Vec<String> = circle.iter().map(|f| names[*f].clone()).collect();
            circle.sort();
            found.push(circle);
        }
    }
    found.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    found
}

/// What a file leads to in one step or more.
fn reach(edges: &BTreeSet<(usize, usize)>, from: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for (_, next) in edges.range((file, 0)..(file + 1, 0)) {
            if reached.insert(*next) {
                open.push(*next);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Edges and the circles they make.
    type Case = (
        &'static [(usize, usize)],
        &'static [&'static [&'static str]],
    );

    #[test]
    fn circles_are_found_and_lines_are_not() {
        let names: Vec<String> = ["a", "b", "c", "d", "e", "f"].map(str::to_owned).into();
        let cases: [Case; 4] = [
            (&[], &[]),
            (&[(0, 1), (1, 2), (0, 2)], &[]),
            (
                &[(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 3)],
                &[&["a", "b", "c"], &["d", "e"]],
            ),
            (
                &[(0, 1), (1, 0), (1, 2), (2, 1), (5, 0)],
                &[&["a", "b", "c"]],
            ),
        ];
        for (edges, want) in cases {
            let got = circles(&edges.iter().copied().collect(), &names);
            assert_eq!(got, want, "{edges:?}");
        }
    }
}
