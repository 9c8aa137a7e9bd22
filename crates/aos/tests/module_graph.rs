//! Inside a crate dependencies point down too: the child modules of one module never form a cycle.
//!
//! An edge `a → b` between two children of one module means that something below `a` names something below `b`. The
//! parent's own file is not a node: it declares its children and may hold what they share. Test code is left out.
#![allow(clippy::disallowed_methods, reason = "this test reads the sources of its own repository")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::Visit;

/// Cycles that still exist, as `crate::module: the modules in the cycle`. The list may only shrink.
const KNOWN_CYCLES: &[&str] = &[];

type ModulePath = Vec<String>;

#[test]
fn the_modules_of_every_crate_form_no_cycle() {
    let mut found = Vec::new();
    for name in crates() {
        found.extend(Crate::read(&name).cycles());
    }
    let new: Vec<&String> = found.iter().filter(|cycle| !KNOWN_CYCLES.contains(&cycle.as_str())).collect();
    assert!(new.is_empty(), "these modules form a cycle:\n{}", join(&new));
    let gone: Vec<&&str> = KNOWN_CYCLES.iter().filter(|known| !found.iter().any(|f| f == *known)).collect();
    assert!(gone.is_empty(), "these cycles are gone; take them off the list:\n{}", join(&gone));
}

fn join(lines: &[impl std::fmt::Display]) -> String {
    lines.iter().map(|line| format!("    {line}\n")).collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn crates() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| folder().join(name).join("src/lib.rs").exists())
        .collect();
    names.sort();
    names
}

/// The modules of one crate and the paths that each names.
struct Crate {
    name: String,
    modules: BTreeMap<ModulePath, Module>,
}

#[derive(Default)]
struct Module {
    /// Paths that its code names, as they are written.
    named: Vec<ModulePath>,
    /// Names that its `use` declarations import, with the path behind each.
    imported: BTreeMap<String, ModulePath>,
}

impl Crate {
    fn read(name: &str) -> Crate {
        let mut modules = BTreeMap::new();
        let src = folder().join(name).join("src");
        read_module(&src.join("lib.rs"), &src, Vec::new(), &mut modules);
        Crate { name: name.to_owned(), modules }
    }

    /// One line for each cycle among the children of one module.
    fn cycles(&self) -> Vec<String> {
        let mut graphs: BTreeMap<ModulePath, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for (from, module) in &self.modules {
            for path in &module.named {
                let Some(to) = self.resolve(from, path, 0) else { continue };
                let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
                if shared < from.len() && shared < to.len() {
                    let graph = graphs.entry(from[..shared].to_vec()).or_default();
                    graph.entry(from[shared].clone()).or_default().insert(to[shared].clone());
                }
            }
        }
        let mut lines = Vec::new();
        for (parent, graph) in graphs {
            let mut place = vec![self.name.clone()];
            place.extend(parent);
            for cycle in strongly_connected(&graph) {
                lines.push(format!("{}: {}", place.join("::"), cycle.join(", ")));
            }
        }
        lines
    }

    /// The module that a path named in `from` leads to, through re-exports; `None` for other crates.
    fn resolve(&self, from: &ModulePath, path: &[String], depth: usize) -> Option<ModulePath> {
        let mut rest = path;
        let mut at = match rest.first()?.as_str() {
            "crate" => Vec::new(),
            "self" => from.clone(),
            "super" => from[..from.len().checked_sub(1)?].to_vec(),
            first => {
                let mut child = from.clone();
                child.push(first.to_owned());
                if !self.modules.contains_key(&child) {
                    return None;
                }
                return self.walk(child, &rest[1..], depth);
            }
        };
        rest = &rest[1..];
        while rest.first().is_some_and(|next| next == "super") {
            at.pop()?;
            rest = &rest[1..];
        }
        self.walk(at, rest, depth)
    }

    fn walk(&self, mut at: ModulePath, rest: &[String], depth: usize) -> Option<ModulePath> {
        for (index, name) in rest.iter().enumerate() {
            let mut child = at.clone();
            child.push(name.clone());
            if self.modules.contains_key(&child) {
                at = child;
                continue;
            }
            // A re-export is followed; the bound stops a glob of a glob from looping.
            let imported = self.modules.get(&at).and_then(|module| module.imported.get(name));
            if let Some(behind) = imported.filter(|_| depth < 8) {
                let path: Vec<String> = behind.iter().chain(&rest[index + 1..]).cloned().collect();
                return self.resolve(&at, &path, depth + 1).or(Some(at));
            }
            break;
        }
        Some(at)
    }
}

/// Reads the module in `file`; its children are in `folder`, as `child.rs` or `child/mod.rs`.
fn read_module(file: &Path, folder: &Path, at: ModulePath, modules: &mut BTreeMap<ModulePath, Module>) {
    let text = std::fs::read_to_string(file).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
    let parsed = syn::parse_file(&text).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
    let mut reader = Reader::default();
    reader.visit_file(&parsed);
    for child in &reader.children {
        let below = folder.join(child);
        let plain = folder.join(format!("{child}.rs"));
        let file = if plain.exists() { plain } else { below.join("mod.rs") };
        let path = at.iter().chain([child]).cloned().collect();
        read_module(&file, &below, path, modules);
    }
    modules.insert(at, reader.module);
}

/// Collects what one file declares and names.
#[derive(Default)]
struct Reader {
    module: Module,
    children: Vec<String>,
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_test(&item.attrs) {
            return;
        }
        match &item.content {
            None => self.children.push(item.ident.to_string()),
            // An inline module belongs to its file.
            Some(_) => syn::visit::visit_item_mod(self, item),
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.use_tree(&mut Vec::new(), &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: ModulePath = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if segments.len() > 1 {
            self.module.named.push(segments);
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            syn::visit::visit_item_fn(self, item);
        }
    }
}

impl Reader {
    fn use_tree(&mut self, before: &mut ModulePath, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.use_tree(before, &path.tree);
                before.pop();
            }
            syn::UseTree::Name(name) => self.import(before, &name.ident, &name.ident),
            syn::UseTree::Rename(rename) => self.import(before, &rename.ident, &rename.rename),
            syn::UseTree::Glob(_) => self.module.named.push(before.clone()),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.use_tree(before, tree);
                }
            }
        }
    }

    fn import(&mut self, before: &[String], name: &syn::Ident, shown: &syn::Ident) {
        let mut path = before.to_vec();
        if name != "self" {
            path.push(name.to_string());
        }
        let shown = if shown == "self" { path.last().cloned() } else { Some(shown.to_string()) };
        self.module.named.push(path.clone());
        self.module.imported.extend(shown.map(|shown| (shown, path)));
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

/// The strongly connected components of more than one node, by Tarjan's algorithm.
fn strongly_connected(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let mut search = Search { graph, seen: BTreeMap::new(), stack: Vec::new(), found: Vec::new() };
    for node in graph.keys() {
        if !search.seen.contains_key(node) {
            search.visit(node);
        }
    }
    search.found.sort();
    search.found
}

struct Search<'g> {
    graph: &'g BTreeMap<String, BTreeSet<String>>,
    /// When a node was first visited, and the oldest node that it reaches.
    seen: BTreeMap<String, (usize, usize)>,
    stack: Vec<String>,
    found: Vec<Vec<String>>,
}

impl Search<'_> {
    fn visit(&mut self, node: &str) -> usize {
        let order = self.seen.len();
        self.seen.insert(node.to_owned(), (order, order));
        self.stack.push(node.to_owned());
        let mut oldest = order;
        for next in self.graph.get(node).into_iter().flatten() {
            let reached = match self.seen.get(next) {
                None => self.visit(next),
                Some((order, _)) if self.stack.contains(next) => *order,
                Some(_) => continue,
            };
            oldest = oldest.min(reached);
        }
        self.seen.insert(node.to_owned(), (order, oldest));
        if oldest == order {
            let start = self.stack.iter().position(|other| other == node).expect("BUG: pushed above");
            let mut component = self.stack.split_off(start);
            component.sort();
            if component.len() > 1 {
                self.found.push(component);
            }
        }
        oldest
    }
}

#[test]
fn a_cycle_is_seen_through_a_re_export() {
    let module = |named: &[&str], imported: &[(&str, &str)]| {
        let path = |text: &str| text.split("::").map(str::to_owned).collect::<ModulePath>();
        Module {
            named: named.iter().map(|text| path(text)).collect(),
            imported: imported.iter().map(|(name, text)| ((*name).to_owned(), path(text))).collect(),
        }
    };
    let modules = BTreeMap::from([
        (vec![], module(&[], &[("B", "b::B")])),
        (vec!["a".to_owned()], module(&["crate::B"], &[])),
        (vec!["b".to_owned()], module(&["super::a::f"], &[])),
        (vec!["c".to_owned()], module(&["crate::a::f", "std::fs::read"], &[])),
    ]);
    let cycles = Crate { name: "k".to_owned(), modules }.cycles();
    assert_eq!(cycles, ["k: a, b"]);
}
