//! The modules of a package with what each defines and names, and the files
//! that its names lead to.

use std::collections::{BTreeMap, BTreeSet};

use quote::ToTokens as _;
use syn::{Attribute, Field, ImplItem, Item, ItemImpl, Type};

use super::imports::{Imports, paths};
use super::{Methods, Struct};
use crate::packages::Package;

/// Imports of imports that are followed before a name counts as unknown.
const STEPS_MAX: usize = 16;

/// A module, in a file of its own or not.
#[derive(Debug, Default)]
struct Module {
    file: usize,
    parent: Option<usize>,
    root: usize,
    children: BTreeMap<String, usize>,
    defined: BTreeSet<String>,
    imports: Imports,
    mentions: Vec<Vec<String>>,
}

/// An `impl` block without a trait.
struct Block {
    module: usize,
    subject: Vec<String>,
    count: usize,
}

/// The modules of a package.
pub(super) struct Code {
    /// Paths of the files.
    pub(super) files: Vec<String>,
    /// The module that is each file.
    heads: Vec<usize>,
    modules: Vec<Module>,
    structs: Vec<(usize, Struct)>,
    blocks: Vec<Block>,
}

impl Code {
    /// Reads the modules from the roots of a package on.
    pub(super) fn read(package: &Package<'_>) -> Self {
        let mut code = Self {
            files: Vec::new(),
            heads: Vec::new(),
            modules: Vec::new(),
            structs: Vec::new(),
            blocks: Vec::new(),
        };
        let texts: BTreeMap<&str, &str> = package
            .code
            .iter()
            .map(|file| (file.path, file.text))
            .collect();
        for path in texts.keys() {
            let inside = path.strip_prefix(&package.folder).unwrap_or(path);
            let program = inside
                .strip_prefix("src/bin/")
                .is_some_and(|rest| !rest.contains('/') || rest.ends_with("/main.rs"));
            if program || matches!(inside, "src/lib.rs" | "src/main.rs") {
                code.file(path, None, &texts);
            }
        }
        code
    }

    /// Reads a file as a module; `None` when it cannot be parsed.
    fn file(
        &mut self,
        path: &str,
        parent: Option<usize>,
        texts: &BTreeMap<&str, &str>,
    ) -> Option<usize> {
        let parsed = syn::parse_file(texts.get(path)?).ok()?;
        let file = self.files.len();
        self.files.push(path.to_owned());
        let module = self.module(file, parent);
        self.heads.push(module);
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let own_folder = parent.is_none() || name == "mod.rs";
        let folder = match own_folder {
            true => folder.to_owned(),
            false => format!("{folder}/{}", name.trim_end_matches(".rs")),
        };
        self.items(module, &parsed.items, &folder, texts);
        Some(module)
    }

    fn module(&mut self, file: usize, parent: Option<usize>) -> usize {
        let index = self.modules.len();
        self.modules.push(Module {
            file,
            parent,
            root: parent.map_or(index, |parent| self.modules[parent].root),
            ..Module::default()
        });
        index
    }

    fn items(&mut self, module: usize, items: &[Item], folder: &str, texts: &BTreeMap<&str, &str>) {
        for item in items.iter().filter(|item| !is_test(attributes(item))) {
            match item {
                Item::Use(item) => self.modules[module].imports.add(&item.tree),
                Item::Mod(item) => {
                    let name = item.ident.to_string();
                    let inner = format!("{folder}/{name}");
                    let child = match &item.content {
                        Some((_, items)) => {
                            let child = self.module(self.modules[module].file, Some(module));
                            self.items(child, items, &inner, texts);
                            Some(child)
                        }
                        None => [format!("{inner}.rs"), format!("{inner}/mod.rs")]
                            .iter()
                            .find_map(|path| self.file(path, Some(module), texts)),
                    };
                    if let Some(child) = child {
                        self.modules[module].children.insert(name, child);
                    }
                }
                Item::Impl(item) => self.block(module, item),
                item => self.item(module, item),
            }
        }
    }

    fn item(&mut self, module: usize, item: &Item) {
        if let Item::Struct(item) = item {
            let path = self.files[self.modules[module].file].clone();
            let measured = Struct {
                name: item.ident.to_string(),
                path,
                fields: item.fields.len(),
                flags: item.fields.iter().filter(|field| is_flag(field)).count(),
            };
            self.structs.push((module, measured));
        }
        let module = &mut self.modules[module];
        module.defined.extend(name_of(item));
        module.mentions.extend(paths(item.to_token_stream()));
    }

    fn block(&mut self, module: usize, item: &ItemImpl) {
        let code: Vec<&ImplItem> = item
            .items
            .iter()
            .filter(|item| !is_test(impl_attributes(item)))
            .collect();
        let mentions = &mut self.modules[module].mentions;
        for item in &code {
            mentions.extend(paths(item.to_token_stream()));
        }
        mentions.extend(paths(item.self_ty.to_token_stream()));
        mentions.extend(paths(item.generics.to_token_stream()));
        if let Some((path, _)) = &item.trait_ {
            mentions.extend(paths(path.to_token_stream()));
        } else if let Type::Path(subject) = &*item.self_ty {
            let names = subject.path.segments.iter();
            self.blocks.push(Block {
                module,
                subject: names.map(|segment| segment.ident.to_string()).collect(),
                count: code.iter().filter(|i| matches!(i, ImplItem::Fn(_))).count(),
            });
        }
    }

    /// Which file names something of which, without parents and children.
    pub(super) fn edges(&self) -> BTreeSet<(usize, usize)> {
        let mut edges = BTreeSet::new();
        for (index, module) in self.modules.iter().enumerate() {
            let imported = module.imports.names.iter().map(|(_, path)| path);
            let named = imported
                .chain(&module.imports.globs)
                .chain(&module.mentions);
            for path in named {
                let Some(target) = self.resolve(index, path, STEPS_MAX) else {
                    continue;
                };
                let (from, to) = (module.file, self.modules[target].file);
                if from != to && !self.is_parent(from, to) && !self.is_parent(to, from) {
                    edges.insert((from, to));
                }
            }
        }
        edges
    }

    /// Whether the first file declares the second.
    fn is_parent(&self, parent: usize, child: usize) -> bool {
        let above = self.modules[self.heads[child]].parent;
        above.is_some_and(|above| self.modules[above].file == parent)
    }

    /// The structs, and the methods of every type.
    pub(super) fn types(&self) -> (Vec<Struct>, Vec<Methods>) {
        let mut methods: BTreeMap<(usize, &str), usize> = BTreeMap::new();
        for block in &self.blocks {
            let Some(name) = block.subject.last() else {
                continue;
            };
            let at = self.resolve(block.module, &block.subject, STEPS_MAX);
            *methods
                .entry((at.unwrap_or(block.module), name))
                .or_default() += block.count;
        }
        let methods = methods.into_iter().map(|((module, name), count)| Methods {
            name: name.to_owned(),
            path: self.files[self.modules[module].file].clone(),
            count,
        });
        let structs = self.structs.iter().map(|(_, measured)| measured.clone());
        (structs.collect(), methods.collect())
    }

    /// The module that defines what a path in a module names; `None` when it
    /// is of another package or not known.
    fn resolve(&self, module: usize, path: &[String], steps: usize) -> Option<usize> {
        let steps = steps.checked_sub(1)?;
        let here = &self.modules[module];
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.descend(here.root, rest, steps),
            "self" => self.descend(module, rest, steps),
            "super" => {
                let parent = here.parent?;
                match rest.first() {
                    Some(next) if next == "super" => self.resolve(parent, rest, steps),
                    _ => self.descend(parent, rest, steps),
                }
            }
            name => self.find(module, name, rest, steps),
        }
    }

    /// Follows the rest of a path from a module that was reached.
    fn descend(&self, module: usize, rest: &[String], steps: usize) -> Option<usize> {
        match rest.split_first() {
            None => Some(module),
            Some((name, rest)) => self.find(module, name, rest, steps).or(Some(module)),
        }
    }

    /// Looks a name up in the scope of a module and follows the rest.
    fn find(&self, module: usize, name: &str, rest: &[String], steps: usize) -> Option<usize> {
        let here = &self.modules[module];
        if let Some(child) = here.children.get(name) {
            return self.descend(*child, rest, steps);
        }
        if here.defined.contains(name) {
            return Some(module);
        }
        for (local, path) in &here.imports.names {
            // An import of a name by itself is of another package.
            if local == name
                && path
                    .first()
                    .is_some_and(|first| first != name || path.len() > 1)
            {
                let whole: Vec<String> = path.iter().chain(rest).cloned().collect();
                return self.resolve(module, &whole, steps);
            }
        }
        for glob in &here.imports.globs {
            let steps = steps.checked_sub(1)?;
            if let Some(target) = self.resolve(module, glob, steps).filter(|t| *t != module)
                && let Some(found) = self.find(target, name, rest, steps)
            {
                return Some(found);
            }
        }
        None
    }
}

/// Whether an item is compiled only for tests.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let Ok(list) = attribute.meta.require_list() else {
            return false;
        };
        let tokens = list.tokens.to_string();
        let named = tokens.split(|c: char| c != '_' && !c.is_alphanumeric());
        attribute.path().is_ident("cfg")
            && named.clone().any(|word| word == "test")
            && !named.clone().any(|word| word == "not")
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn impl_attributes(item: &ImplItem) -> &[Attribute] {
    match item {
        ImplItem::Const(item) => &item.attrs,
        ImplItem::Fn(item) => &item.attrs,
        ImplItem::Type(item) => &item.attrs,
        ImplItem::Macro(item) => &item.attrs,
        _ => &[],
    }
}

/// The name that an item defines.
fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// Whether a field is a `bool`, bare, atomic or in a cell.
fn is_flag(field: &Field) -> bool {
    let tokens = field.ty.to_token_stream().to_string();
    let words: Vec<&str> = tokens
        .split(|c: char| c != '_' && !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    matches!(
        words.as_slice(),
        [.., "AtomicBool"] | ["bool"] | ["Cell", "bool"]
    )
}
