//! Which Rust files are compiled only for tests: by their folder, or because
//! the module that declares them says so.

use std::collections::BTreeSet;

use crate::source::Source;
use crate::tree::Tree;

/// Paths of the files that hold only tests.
pub(crate) fn test_files(tree: &Tree) -> BTreeSet<&str> {
    let modules: Vec<String> = tree
        .rust()
        .flat_map(|(path, text)| {
            let source = Source::new(text);
            let names = source.test_modules().iter();
            names
                .map(|name| format!("{}{name}", module_folder(path)))
                .collect::<Vec<_>>()
        })
        .collect();
    let is_module_of = |path: &str, module: &String| {
        path.strip_prefix(module.as_str())
            .is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    };
    tree.rust()
        .map(|(path, _)| path)
        .filter(|path| {
            path.split('/').any(|part| part == "tests")
                || modules.iter().any(|module| is_module_of(path, module))
        })
        .collect()
}

/// Where the modules that a file declares are.
fn module_folder(path: &str) -> String {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let folder = format!("{folder}/");
    match file {
        "lib.rs" | "main.rs" | "mod.rs" => folder,
        _ => format!("{folder}{}/", file.trim_end_matches(".rs")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_files_are_known_by_folder_and_by_declaration() {
        let tree = Tree::of(&[
            ("a/src/lib.rs", "#[cfg(test)]\nmod pair;\nmod code;\n"),
            ("a/src/code.rs", "#[cfg(test)]\nmod tests;\n"),
            ("a/src/code/tests.rs", ""),
            ("a/src/pair/mod.rs", ""),
            ("a/src/pairing.rs", ""),
            ("a/tests/it/main.rs", ""),
        ]);
        let got: Vec<&str> = test_files(&tree).into_iter().collect();
        assert_eq!(
            got,
            [
                "a/src/code/tests.rs",
                "a/src/pair/mod.rs",
                "a/tests/it/main.rs"
            ]
        );
    }
}
