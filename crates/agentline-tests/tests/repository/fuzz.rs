//! Checks that the fuzz targets, which are not built with the workspace, import names that exist.

use std::{collections::BTreeSet, fs, path::Path};

/// Each crate or module that the targets import from, and the file that declares or exports its names.
const SOURCES: &[(&str, &str)] = &[
    ("agentline_core", "crates/agentline-core/src/lib.rs"),
    ("play", "crates/agentline-core/tests/core/play.rs"),
];

#[test]
fn fuzz_targets_import_existing_names() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut imports = 0;
    for entry in fs::read_dir(root.join("fuzz/fuzz_targets")).unwrap() {
        let path = entry.unwrap().path();
        let target = fs::read_to_string(&path).unwrap();
        for (from, file) in SOURCES {
            let declared = words(&fs::read_to_string(root.join(file)).unwrap());
            let Some((_, rest)) = target.split_once(&format!("use {from}::")) else { continue };
            let names = words(rest.split_once(';').unwrap().0);
            let missing: Vec<_> = names.difference(&declared).collect();
            assert!(missing.is_empty(), "{} imports {missing:?}, which {file} does not have", path.display());
            imports += names.len();
        }
    }
    assert!(imports > 5, "only {imports} imports were found");
}

fn words(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.split(|c| !is_part(c)).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}
