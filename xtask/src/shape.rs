//! The shape of a package: which files import each other in a circle, how many
//! fields its structs have and how many methods its types.
//!
//! It parses the source with `syn` and resolves names inside the package only.
//! What macros generate is not seen; paths in the arguments of macros are.

mod circles;
mod imports;
mod items;

use crate::packages::Package;

pub(crate) use circles::circles;

/// A struct and the size of its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Struct {
    /// Its name.
    pub(crate) name: String,
    /// File that defines it.
    pub(crate) path: String,
    /// Fields.
    pub(crate) fields: usize,
    /// Fields of them that are a `bool`, bare, atomic or in a cell.
    pub(crate) flags: usize,
}

/// A type and the number of functions in its own `impl` blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Methods {
    /// Name of the type.
    pub(crate) name: String,
    /// File that defines the type, or that of the first `impl` block.
    pub(crate) path: String,
    /// Functions in all blocks.
    pub(crate) count: usize,
}

/// What is measured in one package.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shape {
    /// Files of each import circle, the largest first.
    pub(crate) circles: Vec<Vec<String>>,
    /// Every struct.
    pub(crate) structs: Vec<Struct>,
    /// Every type with methods.
    pub(crate) methods: Vec<Methods>,
}

impl Shape {
    /// Measures a package. A file that cannot be parsed is left out: the
    /// compiler reports it.
    pub(crate) fn of(package: &Package<'_>) -> Self {
        let code = items::Code::read(package);
        let (structs, methods) = code.types();
        Self {
            circles: circles(&code.edges(), &code.files),
            structs,
            methods,
        }
    }

    /// Files of the largest circle.
    pub(crate) fn largest_circle(&self) -> usize {
        self.circles.first().map_or(0, Vec::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packages::packages;
    use crate::tree::Tree;

    /// The shape of one package with these files under `src/`.
    fn shape(files: &[(&str, &str)]) -> Shape {
        let manifest = ("a/Cargo.toml", "[package]\nname = \"a\"\n");
        let paths: Vec<String> = files.iter().map(|(p, _)| format!("a/src/{p}")).collect();
        let mut all = vec![manifest];
        all.extend(
            paths
                .iter()
                .zip(files)
                .map(|(p, (_, text))| (p.as_str(), *text)),
        );
        let tree = Tree::of(&all);
        Shape::of(&packages(&tree)[0])
    }

    fn check_circles(files: &[(&str, &str)], want: &[&[&str]]) {
        let got = shape(files).circles;
        let want: Vec<Vec<String>> = want
            .iter()
            .map(|circle| circle.iter().map(|p| format!("a/src/{p}")).collect())
            .collect();
        assert_eq!(got, want, "{files:?}");
    }

    const TOP: (&str, &str) = ("lib.rs", "mod x;\nmod y;\npub use x::X;\n");

    #[test]
    fn siblings_that_import_each_other_are_a_circle() {
        let both: &[&[&str]] = &[&["x.rs", "y.rs"]];
        let x = "use crate::y::Y;\npub struct X;\n";
        let cases: [(&str, &[&[&str]]); 9] = [
            ("pub struct Y;\n", &[]),
            ("use crate::x::X;\npub struct Y;\n", both),
            ("use super::x::{self, X};\npub struct Y;\n", both),
            ("fn f() { crate::x::g() }\npub struct Y;\n", both),
            (
                "fn f() { log!(\"{}\", crate::x::A) }\npub struct Y;\n",
                both,
            ),
            ("use crate::X;\npub struct Y;\n", both),
            ("fn f(x: super::X) {}\npub struct Y;\n", both),
            ("#[cfg(test)]\nuse crate::x::X;\npub struct Y;\n", &[]),
            (
                "#[cfg(test)]\nmod tests { use crate::x::X; }\npub struct Y;\n",
                &[],
            ),
        ];
        for (y, want) in cases {
            check_circles(&[TOP, ("x.rs", x), ("y.rs", y)], want);
        }
    }

    #[test]
    fn parent_and_child_are_no_circle_and_cousins_are() {
        let child = "use super::{X, Hidden};\nuse crate::y::Y;\nfn c() {}\n";
        let x = "mod child;\nuse child::c;\npub struct X;\nstruct Hidden;\n";
        let free = [
            TOP,
            ("x.rs", x),
            ("x/child.rs", child),
            ("y.rs", "pub struct Y;\n"),
        ];
        check_circles(&free, &[]);
        let folder = [
            TOP,
            ("x/mod.rs", x),
            ("x/child.rs", child),
            ("y.rs", "pub struct Y;\n"),
        ];
        check_circles(&folder, &[]);
        let y = "use crate::x::child::c;\npub struct Y;\n";
        let cousins = [TOP, ("x.rs", x), ("x/child.rs", child), ("y.rs", y)];
        check_circles(&cousins, &[&["x/child.rs", "y.rs"]]);
    }

    #[test]
    fn names_are_followed_to_where_they_are_defined() {
        let parent = "mod a;\nmod b;\npub use self::b::*;\nuse a as other;\n";
        let a = "use super::B;\npub struct A;\n";
        let b = "use super::other::A;\npub struct B;\n";
        let files = [
            ("main.rs", "mod p;\n"),
            ("p/mod.rs", parent),
            ("p/a.rs", a),
            ("p/b.rs", b),
        ];
        check_circles(&files, &[&["p/a.rs", "p/b.rs"]]);
    }

    #[test]
    fn fields_flags_and_methods_are_counted() {
        let lib = "mod part;\npub struct S { a: bool, b: Cell<bool>, c: AtomicBool, d: u8 }\n\
                   struct T(u8, bool);\nimpl S { fn new() {}\n#[cfg(test)]\nfn t() {} }\n\
                   impl Clone for S { fn clone(&self) {} }\n";
        let part = "use super::S;\nimpl S { const A: u8 = 0; fn one(&self) {} fn two(&self) {} }\n\
                    struct T;\nimpl<'a> T { fn mine() {} }\n";
        let got = shape(&[("lib.rs", lib), ("part.rs", part)]);
        let structs: Vec<_> = got
            .structs
            .iter()
            .map(|s| (s.name.as_str(), s.fields, s.flags))
            .collect();
        assert_eq!(structs, [("T", 0, 0), ("S", 4, 3), ("T", 2, 1)]);
        let methods: Vec<_> = got
            .methods
            .iter()
            .map(|m| (m.name.as_str(), m.path.as_str(), m.count))
            .collect();
        assert_eq!(
            methods,
            [("S", "a/src/lib.rs", 3), ("T", "a/src/part.rs", 1)]
        );
    }
}
