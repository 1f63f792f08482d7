//! The paths that a piece of code names: `use` items and everything of the
//! form `a::b`, also in the arguments of macros.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::UseTree;

/// What a `use` item brings into scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Imports {
    /// Local name and path.
    pub(super) names: Vec<(String, Vec<String>)>,
    /// Paths that are imported whole.
    pub(super) globs: Vec<Vec<String>>,
}

impl Imports {
    /// Adds a `use` item.
    pub(super) fn add(&mut self, tree: &UseTree) {
        self.walk(tree, &mut Vec::new());
    }

    fn walk(&mut self, tree: &UseTree, prefix: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.walk(&path.tree, prefix);
                prefix.pop();
            }
            UseTree::Name(name) => self.name(&name.ident.to_string(), None, prefix),
            UseTree::Rename(name) => {
                self.name(
                    &name.ident.to_string(),
                    Some(name.rename.to_string()),
                    prefix,
                );
            }
            UseTree::Glob(_) => self.globs.push(prefix.clone()),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.walk(tree, prefix);
                }
            }
        }
    }

    fn name(&mut self, name: &str, rename: Option<String>, prefix: &[String]) {
        let mut path = prefix.to_vec();
        if name != "self" || prefix.is_empty() {
            path.push(name.to_owned());
        }
        if let Some(last) = path.last() {
            self.names
                .push((rename.unwrap_or_else(|| last.clone()), path.clone()));
        }
    }
}

/// The paths of two or more names in some tokens.
pub(super) fn paths(tokens: TokenStream) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    scan(tokens, &[], &mut found);
    found
}

fn scan(tokens: TokenStream, prefix: &[String], found: &mut Vec<Vec<String>>) {
    let mut path = prefix.to_vec();
    let mut colons = if prefix.is_empty() { 0 } else { 2 };
    for token in tokens {
        match token {
            TokenTree::Ident(name) => {
                if colons != 2 {
                    keep(&mut path, found);
                }
                path.push(name.to_string());
                colons = 0;
            }
            TokenTree::Punct(p) if p.as_char() == ':' => colons += 1,
            TokenTree::Group(group) => {
                // `use a::{b, c}` in a body.
                let braced = group.delimiter() == Delimiter::Brace;
                let inner = if braced && colons == 2 {
                    path.clone()
                } else {
                    Vec::new()
                };
                keep(&mut path, found);
                scan(group.stream(), &inner, found);
                colons = 0;
            }
            other => {
                keep(&mut path, found);
                let comma = matches!(&other, TokenTree::Punct(p) if p.as_char() == ',');
                colons = 0;
                if comma && !prefix.is_empty() {
                    path = prefix.to_vec();
                    colons = 2;
                }
            }
        }
    }
    keep(&mut path, found);
}

fn keep(path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    let path = core::mem::take(path);
    if path.len() > 1 {
        found.push(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(paths: &[Vec<String>]) -> Vec<String> {
        paths.iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn use_items_are_flattened() {
        let item: syn::ItemUse =
            syn::parse_str("use a::{b, c::{self, D as E}, f::*};").expect("valid");
        let mut imports = Imports::default();
        imports.add(&item.tree);
        let names: Vec<String> = imports
            .names
            .iter()
            .map(|(name, path)| format!("{name}={}", path.join("::")))
            .collect();
        assert_eq!(names, ["b=a::b", "c=a::c", "E=a::c::D"]);
        assert_eq!(joined(&imports.globs), ["a::f"]);
    }

    #[test]
    fn paths_are_found_in_bodies_types_and_macros() {
        let cases: [(&str, &[&str]); 5] = [
            ("let x: u8 = y;", &[]),
            (
                "fn f(x: a::B<c::D>) -> e::F { g::h::<i::J>() }",
                &["a::B", "c::D", "e::F", "g::h", "i::J"],
            ),
            ("m!(\"a::b\", c::d, e: f::g)", &["c::d", "f::g"]),
            ("use a::{b, c::d};", &["a::b", "a::c::d"]),
            ("a::B { c: d::E, f }", &["a::B", "d::E"]),
        ];
        for (text, want) in cases {
            let got = paths(text.parse().expect("tokens"));
            assert_eq!(joined(&got), want, "{text}");
        }
    }
}
