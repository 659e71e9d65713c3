//! Checks that the files of a crate do not import each other in a circle.
//!
//! A file imports another if it names something that the other declares, also through a re-export. The file of a module
//! and the files in its directory are one unit: imports between them do not count. Tests are not read.

use crate::{
    modules::{crates, paths, rust_files},
    source::before_tests,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// The path of a module from the root of its crate.
type ModulePath = Vec<String>;

/// The files of a crate by module, with the paths that each imports or names.
struct ModuleFiles(BTreeMap<ModulePath, Vec<Vec<String>>>);

impl ModuleFiles {
    /// Reads the files below the `src` directory of a crate.
    fn read(folder: &Path) -> Self {
        let text = |file: &Path| fs::read_to_string(file).expect("a source file");
        let module = |file: &Path| -> ModulePath {
            let relative = file.strip_prefix(folder).expect("a file of this crate").with_extension("");
            relative.iter().map(|part| part.to_string_lossy().into_owned()).collect()
        };
        Self::of(rust_files(folder).iter().map(|file| (module(file), text(file))))
    }

    fn of(files: impl Iterator<Item = (ModulePath, String)>) -> Self {
        let is_shipped = |(module, text): &(ModulePath, String)| {
            let is_test =
                module.iter().any(|part| part.ends_with("tests")) || text.contains("\n#![cfg(test)]");
            // A program beside a library is a crate of its own.
            !is_test && module != &["main"] && module.first().is_none_or(|first| first != "bin")
        };
        let named = |(mut module, text): (ModulePath, String)| {
            module.pop_if(|last| last == "mod");
            if module == ["lib"] {
                module.clear();
            }
            (module, paths(before_tests(&text)))
        };
        Self(files.filter(is_shipped).map(named).collect())
    }

    /// Returns the module that declares what a path in a module names, if it is in this crate.
    fn declaring(&self, from: &[String], path: &[String], depth: usize) -> Option<ModulePath> {
        let mut module = from.to_vec();
        let mut rest = path;
        let is_relative = match rest.first()?.as_str() {
            "crate" => {
                module.clear();
                rest = &rest[1..];
                true
            }
            "self" | "super" => true,
            _ => false,
        };
        while let Some(first) = rest.first().filter(|first| ["self", "super"].contains(&first.as_str())) {
            if first == "super" {
                module.pop();
            }
            rest = &rest[1..];
        }
        if !is_relative && !self.0.contains_key(&below(&module, rest.first()?)) {
            return None;
        }
        while let Some(first) = rest.first() {
            let child = below(&module, first);
            if self.0.contains_key(&child) {
                module = child;
                rest = &rest[1..];
                continue;
            }
            // The module may have the name from another one.
            let is_source = |import: &&Vec<String>| import.len() > 1 && import.last() == Some(first);
            let sources = self.0.get(&module)?.iter().filter(is_source);
            let mut declared = sources.filter(|_| depth < 8).filter_map(|import| {
                let whole: Vec<String> = import.iter().chain(&rest[1..]).cloned().collect();
                self.declaring(&module, &whole, depth + 1)
            });
            return declared.next().or(Some(module.clone()));
        }
        Some(module)
    }

    /// Returns the modules that each module imports, without those of its own unit.
    fn imports(&self) -> BTreeMap<ModulePath, BTreeSet<ModulePath>> {
        let of_module = |(module, paths): (&ModulePath, &Vec<Vec<String>>)| {
            let named = paths.iter().filter_map(|path| self.declaring(module, path, 0));
            let is_other = |other: &ModulePath| !other.starts_with(module) && !module.starts_with(other);
            (module.clone(), named.filter(is_other).collect())
        };
        self.0.iter().map(of_module).collect()
    }
}

fn below(module: &[String], name: &str) -> ModulePath {
    module.iter().map(String::as_str).chain([name]).map(ToOwned::to_owned).collect()
}

/// Returns the modules of a circle, beginning and ending with the same.
fn circle(imports: &BTreeMap<ModulePath, BTreeSet<ModulePath>>) -> Option<Vec<String>> {
    fn visit<'a>(
        module: &'a ModulePath,
        imports: &'a BTreeMap<ModulePath, BTreeSet<ModulePath>>,
        path: &mut Vec<&'a ModulePath>,
        done: &mut BTreeSet<&'a ModulePath>,
    ) -> Option<Vec<String>> {
        if let Some(start) = path.iter().position(|earlier| *earlier == module) {
            return Some(path[start..].iter().chain([&module]).map(|module| module.join("::")).collect());
        }
        if !done.contains(module) {
            path.push(module);
            for other in imports.get(module).into_iter().flatten() {
                if let Some(found) = visit(other, imports, path, done) {
                    return Some(found);
                }
            }
            path.pop();
            done.insert(module);
        }
        None
    }
    let mut done = BTreeSet::new();
    imports.keys().find_map(|module| visit(module, imports, &mut Vec::new(), &mut done))
}

#[test]
fn files_do_not_import_each_other_in_a_circle() {
    let (mut wrong, mut read, mut counted) = (Vec::new(), 0, 0);
    for entry in fs::read_dir(crates()).expect("the directory of all crates").flatten() {
        let files = ModuleFiles::read(&entry.path().join("src"));
        let imports = files.imports();
        read += files.0.len();
        counted += imports.values().map(BTreeSet::len).sum::<usize>();
        let name = entry.file_name();
        wrong.extend(circle(&imports).map(|found| format!("{}: {}", name.display(), found.join(" → "))));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(read > 400 && counted > 1_000, "only {counted} imports in {read} files were found");
}

#[test]
fn a_circle_is_found() {
    let found = |files: &[(&str, &str)]| {
        let files = files
            .iter()
            .map(|(module, text)| (module.split("::").map(ToOwned::to_owned).collect(), (*text).to_owned()));
        circle(&ModuleFiles::of(files).imports()).map(|found| found.join(" "))
    };
    let root = ("lib", "mod a;\nmod x;\npub use a::c::C;");
    let two = [("a", "mod b;\nmod c;"), ("a::b", "use super::c::C;"), ("a::c", "use crate::a::b::B;")];
    assert_eq!(found(&two).as_deref(), Some("a::b a::c a::b"));
    let exported = [root, ("a", "mod c;"), ("a::c", "fn f() { crate::x::g() }"), ("x", "use crate::{C, D};")];
    assert_eq!(found(&exported).as_deref(), Some("a::c x a::c"));
    let inline = [("a::b", "fn f() { super::c::g() }"), ("a::c", "use super::b;"), ("a", "")];
    assert_eq!(found(&inline).as_deref(), Some("a::b a::c a::b"));
    let unit = [("a", "mod b;\nuse b::B;"), ("a::b", "use super::A;")];
    assert_eq!(found(&unit), None);
    let tests = [
        ("a::b", "//! B.\n\n#[cfg(test)]\nmod tests {\n    use crate::a::c::C;\n}"),
        ("a::c", "use super::b::B;"),
    ];
    assert_eq!(found(&tests), None);
}
