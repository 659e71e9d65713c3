//! The executable inside Codex's npm package. The program of the package is a script of Node.js that only starts it.

use crate::{FileSystem, Program};
use std::path::{Path, PathBuf};

/// The end of the path of the script.
const SCRIPT: &[&str] = &["@openai", "codex", "bin", "codex.js"];

/// Returns the executable that the script of the npm package would start, if it is found.
pub(super) fn native(program: &Program, fs: &dyn FileSystem) -> Option<PathBuf> {
    let script = program.args.last().map(Path::new)?;
    if !script.ends_with(SCRIPT.iter().collect::<PathBuf>()) {
        return None;
    }
    let package = script.parent()?.parent()?;
    // npm puts the package of the platform next to the main one, or below it.
    let places = [package.parent()?.to_owned(), package.join("node_modules").join(SCRIPT[0])];
    places.iter().find_map(|place| {
        let platforms = fs.list(place)?.into_iter().filter(|name| name.starts_with("codex-"));
        platforms.map(|name| place.join(name).join("vendor")).find_map(|vendor| {
            let mut targets = fs.list(&vendor)?.into_iter();
            let file = if cfg!(windows) { "codex.exe" } else { "codex" };
            targets.find_map(|target| {
                Some(vendor.join(target).join("bin").join(file)).filter(|path| fs.runnable(path))
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_fs::MemoryFs;

    #[test]
    #[cfg(not(windows))]
    fn script_of_the_package_is_replaced_by_its_executable() {
        let modules = "/n/node_modules/@openai";
        let native_path = format!("{modules}/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex");
        let program =
            |script: &str| Program { path: "/bin/node".into(), args: vec![script.into()], version: None };
        let script = format!("{modules}/codex/bin/codex.js");
        let fs = MemoryFs::default().file(&native_path, "").plain(&script, "");
        assert_eq!(native(&program(&script), &fs), Some(PathBuf::from(native_path)));
        assert_eq!(native(&program(&script), &MemoryFs::default().plain(&script, "")), None);
        assert_eq!(native(&program("/n/other.js"), &fs), None);
        let own = Program { path: "/usr/bin/codex".into(), args: vec![], version: None };
        assert_eq!(native(&own, &fs), None);
    }
}
