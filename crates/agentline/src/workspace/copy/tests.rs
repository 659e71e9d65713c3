//! Tests of copies: what is copied, what has changed, and the way back.

use super::*;
use std::os::unix::fs::{PermissionsExt as _, symlink};

struct Stage {
    dir: tempfile::TempDir,
}

impl Stage {
    fn new(files: &[(&str, &[u8])]) -> Self {
        let stage = Self { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(stage.original()).unwrap();
        for (path, content) in files {
            write(&stage.original().join(path), content);
        }
        stage
    }

    fn original(&self) -> PathBuf {
        self.dir.path().join("original")
    }

    fn copy(&self) -> WorkspaceCopy {
        let root = self.dir.path().join("copies/1/original");
        WorkspaceCopy::make(&self.original(), &root, &self.dir.path().join("copies"), &|| false).unwrap()
    }

    fn apply(&self, copy: &WorkspaceCopy) -> Result<Vec<String>, ApplyError> {
        let mut paths: Vec<String> =
            copy.apply(self.dir.path())?.iter().map(|path| path.display().to_string()).collect();
        paths.sort();
        Ok(paths)
    }
}

fn write(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn run_bit(path: &Path) -> bool {
    path.metadata().unwrap().permissions().mode() & 0o100 != 0
}

#[test]
fn changes_of_every_kind_are_applied() {
    let stage = Stage::new(&[
        ("text", b"old\n"),
        ("binary", &[0, 1, 255]),
        ("gone/deep/file", b"x"),
        ("becomes-dir", b"x"),
        ("dir/becomes-file", b"x"),
        ("script", b"#!/bin/sh\n"),
        (".gitignore", b"built/\n"),
        ("built/old", b"1"),
        (".git/config", b"[core]\n"),
    ]);
    symlink("text", stage.original().join("link")).unwrap();
    let copy = stage.copy();
    let root = copy.root().to_owned();
    assert_eq!(fs::read(root.join("built/old")).unwrap(), b"1", "ignored files are copied");
    assert!(stage.apply(&copy).unwrap().is_empty(), "nothing has changed yet");
    write(&root.join("text"), b"new\n");
    write(&root.join("binary"), &[0, 2, 255]);
    fs::remove_dir_all(root.join("gone")).unwrap();
    fs::remove_file(root.join("becomes-dir")).unwrap();
    write(&root.join("becomes-dir/inside"), b"y");
    fs::remove_dir_all(root.join("dir")).unwrap();
    write(&root.join("dir"), b"z");
    fs::set_permissions(root.join("script"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(root.join("link")).unwrap();
    symlink("binary", root.join("link")).unwrap();
    symlink(root.join("text"), root.join("absolute")).unwrap();
    write(&root.join("built/new"), b"2");
    write(&root.join(".git/hooks/post-commit"), b"evil");
    let applied = stage.apply(&copy).unwrap();
    let expected = [
        "absolute",
        "becomes-dir",
        "becomes-dir/inside",
        "binary",
        "dir",
        "dir/becomes-file",
        "gone/deep/file",
        "link",
        "script",
        "text",
    ];
    assert_eq!(applied, expected);
    let at = |path: &str| stage.original().join(path);
    assert_eq!(fs::read(at("text")).unwrap(), b"new\n");
    assert_eq!(fs::read(at("binary")).unwrap(), [0, 2, 255]);
    assert!(!at("gone").exists(), "the empty directory is removed");
    assert_eq!(fs::read(at("becomes-dir/inside")).unwrap(), b"y");
    assert_eq!(fs::read(at("dir")).unwrap(), b"z");
    assert!(run_bit(&at("script")) && !run_bit(&at("text")));
    assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("binary"));
    assert_eq!(fs::read_link(at("absolute")).unwrap(), at("text"), "the link leads into the original");
    assert!(!at("built/new").exists() && !at(".git/hooks").exists());
    assert!(stage.apply(&copy).unwrap_err().to_string().contains("has changed"), "it is applied once");
}

#[test]
fn a_changed_original_is_refused_and_a_touched_one_is_not() {
    let stage = Stage::new(&[("a", b"1"), ("b", b"1")]);
    let copy = stage.copy();
    write(&copy.root().join("a"), b"agent");
    write(&stage.original().join("b"), b"1");
    assert_eq!(stage.apply(&copy).unwrap(), ["a"], "the same content was written again");
    for change in ["a", "b", "new"] {
        let stage = Stage::new(&[("a", b"1"), ("b", b"1")]);
        let copy = stage.copy();
        write(&copy.root().join("a"), b"agent");
        write(&stage.original().join(change), b"user");
        let error = stage.apply(&copy).unwrap_err();
        assert!(error.to_string().ends_with(&format!("copied: {change}")), "{error}");
        let now = fs::read(stage.original().join("a")).unwrap();
        assert_eq!(now, if change == "a" { b"user".to_vec() } else { b"1".to_vec() });
    }
}

#[test]
fn links_of_the_copy_lead_to_the_copy_or_outside() {
    let stage = Stage::new(&[("dir/file", b"1")]);
    let original = stage.original();
    write(&stage.dir.path().join("outside/file"), b"2");
    symlink(original.join("dir"), original.join("absolute")).unwrap();
    symlink("../outside/file", original.join("relative")).unwrap();
    symlink("../dir/file", original.join("dir/inside")).unwrap();
    symlink("loop", original.join("loop")).unwrap();
    let copy = stage.copy();
    let target = |path: &str| fs::read_link(copy.root().join(path)).unwrap();
    assert_eq!(target("absolute"), copy.root().join("dir"));
    assert_eq!(fs::read(copy.root().join("relative")).unwrap(), b"2");
    assert_eq!(target("dir/inside"), Path::new("../dir/file"));
    assert_eq!(target("loop"), Path::new("loop"));
    assert!(stage.apply(&copy).unwrap().is_empty(), "copied links are not changes");
}

#[test]
fn special_files_and_foreign_repositories_are_left_out() {
    let stage = Stage::new(&[
        (".git", b"gitdir: /somewhere/.git/worktrees/x\n"),
        ("module/.git", b"gitdir: ../modules/m\n"),
        ("read-only/file", b"1"),
    ]);
    let fifo = stage.original().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let read_only = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o555)).unwrap();
    read_only(&stage.original().join("read-only"));
    let copy = stage.copy();
    assert!(!copy.root().join("fifo").exists() && !copy.root().join(".git").exists());
    assert!(copy.root().join("module/.git").exists());
    assert!(copy.left_out.len() == 1 && copy.left_out[0].starts_with(".git: "), "{:?}", copy.left_out);
    assert_eq!(copy.root().join("read-only").metadata().unwrap().permissions().mode() & 0o777, 0o555);
    for dir in [stage.original(), copy.root().to_owned()] {
        fs::set_permissions(dir.join("read-only"), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn a_cancelled_copy_stops() {
    let stage = Stage::new(&[("a", b"1")]);
    let root = stage.dir.path().join("copy");
    let error = WorkspaceCopy::make(&stage.original(), &root, Path::new(""), &|| true).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Interrupted);
}

/// Returns the kinds, permissions and content of everything below a directory.
fn everything(root: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    let mut found = Vec::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(root.join(&dir)).unwrap().flatten() {
            let (path, metadata) = (dir.join(entry.file_name()), entry.metadata().unwrap());
            let content = if metadata.is_dir() {
                waiting.push(path.clone());
                Vec::new()
            } else if metadata.is_symlink() {
                fs::read_link(entry.path()).unwrap().into_os_string().into_encoded_bytes()
            } else {
                fs::read(entry.path()).unwrap()
            };
            found.push((path, metadata.permissions().mode(), content));
        }
    }
    found.sort();
    found
}

#[test]
fn everything_is_stored_and_restored() {
    let stage = Stage::new(&[
        (".gitignore", b"built/\n*.log\n"),
        ("built/kept", b"1"),
        ("built/edited", b"1"),
        ("built/gone", b"1"),
        ("old.log", b"1"),
        ("dir/sub/gone", b"1"),
        ("script", b"#!/bin/sh\n"),
        ("becomes-dir", b"x"),
        ("becomes-file/inside", b"x"),
        ("becomes-link/inside", b"x"),
        (".git/config", b"[core]\n"),
    ]);
    fs::create_dir(stage.original().join("empty")).unwrap();
    symlink("script", stage.original().join("link")).unwrap();
    symlink("dir", stage.original().join("link-becomes-dir")).unwrap();
    let copy = stage.copy().with_ignored().unwrap();
    assert_eq!(copy.stored_changes(0, 0).unwrap(), StoredChanges::default(), "nothing has changed yet");
    let root = copy.root().to_owned();
    let at = |name: &str| root.join(name);
    write(&at("built/edited"), &[0, 255]);
    fs::remove_file(at("built/gone")).unwrap();
    write(&at("built/deep/new"), b"2");
    write(&at("new.log"), b"2");
    fs::remove_dir_all(at("dir")).unwrap();
    fs::remove_dir(at("empty")).unwrap();
    fs::create_dir_all(at("new-empty/inside")).unwrap();
    fs::create_dir(at("closed")).unwrap();
    write(&at("closed/file"), b"3");
    fs::set_permissions(at("closed"), fs::Permissions::from_mode(0o750)).unwrap();
    fs::set_permissions(at("script"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(at("old.log"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(at("becomes-dir")).unwrap();
    write(&at("becomes-dir/inside"), b"y");
    for name in ["becomes-file", "becomes-link"] {
        fs::remove_dir_all(at(name)).unwrap();
    }
    write(&at("becomes-file"), b"z");
    symlink("/nowhere", at("becomes-link")).unwrap();
    for name in ["link", "link-becomes-dir"] {
        fs::remove_file(at(name)).unwrap();
    }
    symlink("built", at("link")).unwrap();
    write(&at("link-becomes-dir/inside"), b"4");
    write(&at(".git/config"), b"[user]\n");
    write(&at("new-empty/.git/HEAD"), b"x");
    let pipe = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
    assert!(pipe.success());
    let stored = copy.stored_changes(1 << 20, 1 << 20).unwrap();
    assert_eq!(stored.ignored_left_out, None);
    let restored = stage.dir.path().join("restored");
    let make = || WorkspaceCopy::make(&stage.original(), &restored, Path::new(""), &|| false).unwrap();
    make();
    crate::isolate::restore(&stored.changes, &restored).unwrap();
    fs::remove_file(at("pipe")).unwrap();
    assert_eq!(everything(&restored), everything(&root));
    let ignored = copy.ignored_changes(10).unwrap();
    assert_eq!(ignored, ["built/edited", "built/gone", "built/deep/new", "new.log"]);
    // Links into the copy are restored as links into the restored workspace.
    symlink(at("script"), at("absolute")).unwrap();
    symlink(&root, at("new-empty/top")).unwrap();
    let stored = copy.stored_changes(1 << 20, 1 << 20).unwrap();
    let target = |name: &str| {
        stored.changes.iter().find_map(|change| match change {
            ChangeInCopy::Link { path, target } if path == Path::new(name) => Some(target.clone()),
            _ => None,
        })
    };
    assert_eq!(target("absolute"), Some("script".into()));
    assert_eq!(target("new-empty/top"), Some("..".into()));
    // What is ignored and too large is left out, and everything else is stored.
    let stored = copy.stored_changes(1 << 20, 2).unwrap();
    assert!(stored.ignored_left_out.unwrap().contains("more than 2 bytes"));
    fs::remove_dir_all(&restored).unwrap();
    make();
    crate::isolate::restore(&stored.changes, &restored).unwrap();
    assert_eq!(fs::read(restored.join("built/edited")).unwrap(), b"1");
    assert_eq!(fs::read(restored.join("becomes-file")).unwrap(), b"z");
    let error = copy.stored_changes(2, 1 << 20).unwrap_err();
    assert!(error.to_string().contains("more than 2 bytes"), "{error}");
}

#[test]
fn what_prepared_the_copy_is_no_ignored_change() {
    let stage = Stage::new(&[(".gitignore", b"*.log\n"), ("a.log", b"1"), ("b.log", b"1")]);
    let mut copy = stage.copy().with_ignored().unwrap();
    let root = copy.root().to_owned();
    write(&root.join("a.log"), b"setup");
    write(&root.join("setup.log"), b"setup");
    copy.note_prepared();
    assert!(copy.ignored_changes(9).unwrap().is_empty());
    write(&root.join("b.log"), b"agent");
    write(&root.join("setup.log"), b"agent");
    assert_eq!(copy.ignored_changes(9).unwrap(), ["b.log", "setup.log"]);
    assert_eq!(copy.ignored_changes(1).unwrap(), ["b.log"]);
    assert_eq!(copy.stored_changes(1 << 20, 1 << 20).unwrap().changes.len(), 3, "the state has all of it");
}
