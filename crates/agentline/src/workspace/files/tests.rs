//! Tests with hostile paths, links that change concurrently, and failing writes.

use crate::workspace::files::*;
use std::fs;

const SECRET: &str = "outside secret";

/// A workspace `ws` with a file in `src`, an included directory `inc`, and a secret outside both.
struct Stage {
    dir: tempfile::TempDir,
    files: AgentFiles,
}

impl Stage {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["ws/src", "inc", "out"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("ws/src/a.txt"), "one\ntwo\nthree").unwrap();
        fs::write(dir.path().join("inc/i.txt"), "included").unwrap();
        fs::write(dir.path().join("out/secret"), SECRET).unwrap();
        let files = AgentFiles::new(&dir.path().join("ws"), [dir.path().join("inc")]).unwrap();
        Self { dir, files }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    fn read(&self, path: &str) -> Result<String, String> {
        self.files.read(path, None, None).map_err(word)
    }

    fn write(&self, path: &str) -> Result<(), String> {
        self.files.write(path, "new").map_err(word)
    }

    /// Returns every file below the test directory, to show that nothing was left behind.
    fn all(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut dirs = vec![self.dir.path().to_owned()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    dirs.push(entry.path());
                } else {
                    let path = entry.path();
                    found.push(path.strip_prefix(self.dir.path()).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        found.sort();
        found
    }
}

/// Returns the first word of an error.
fn word(error: FileError) -> String {
    error.to_string().split(':').next().unwrap_or_default().to_owned()
}

#[test]
fn files_inside_are_read_and_written() {
    let stage = Stage::new();
    let absolute = stage.path("ws/src/a.txt");
    let included = stage.path("inc/i.txt");
    for path in ["src/a.txt", "./src/../src/a.txt", "src//a.txt", absolute.to_str().unwrap()] {
        assert_eq!(stage.read(path).as_deref(), Ok("one\ntwo\nthree"), "{path}");
    }
    assert_eq!(stage.read(included.to_str().unwrap()).as_deref(), Ok("included"));
    for path in
        ["src/a.txt", "new.txt", "deep/er/new.txt", "~x", "~/x", "é ü/日本.txt", included.to_str().unwrap()]
    {
        assert_eq!(stage.write(path), Ok(()), "{path}");
        assert_eq!(stage.read(path).as_deref(), Ok("new"), "{path}");
    }
    assert!(!stage.all().iter().any(|name| name.contains("agentline")), "{:?}", stage.all());
}

#[test]
fn malicious_paths_are_rejected() {
    let stage = Stage::new();
    let before = stage.all();
    let secret = stage.path("out/secret").to_str().unwrap().to_owned();
    let up = format!("{}etc/passwd", "../".repeat(60));
    let long = "a/".repeat(2500) + "b";
    let name = "n".repeat(300);
    let sibling = format!("{}x/secret", stage.path("ws").display());
    for (path, read, write) in [
        ("../out/secret", "outside_workspace", "outside_workspace"),
        ("src/../../out/secret", "outside_workspace", "outside_workspace"),
        ("missing/../../out/secret", "outside_workspace", "outside_workspace"),
        (&secret, "outside_workspace", "outside_workspace"),
        ("/etc/passwd", "outside_workspace", "outside_workspace"),
        (&up, "outside_workspace", "outside_workspace"),
        (&sibling, "outside_workspace", "outside_workspace"),
        ("/proc/self/root/etc/passwd", "outside_workspace", "outside_workspace"),
        ("/proc/self/environ", "outside_workspace", "outside_workspace"),
        ("/dev/null", "outside_workspace", "outside_workspace"),
        ("", "invalid_path", "invalid_path"),
        ("src/a\0.txt", "invalid_path", "invalid_path"),
        (&long, "invalid_path", "invalid_path"),
        (&name, "io", "io"),
        (".", "not_a_file", "not_a_file"),
        ("src", "not_a_file", "not_a_file"),
        ("src/", "not_a_file", "not_a_file"),
        ("new/", "not_a_file", "not_a_file"),
        ("src/.", "not_a_file", "not_a_file"),
        ("src/a.txt/", "not_a_file", "not_a_file"),
        ("src/a.txt/b", "not_a_file", "not_a_file"),
        ("src/b", "not_found", ""),
    ] {
        assert_eq!(stage.read(path), Err(read.to_owned()), "read {path:.80}");
        if !write.is_empty() {
            assert_eq!(stage.write(path), Err(write.to_owned()), "write {path:.80}");
        }
    }
    assert_eq!(stage.text("out/secret"), SECRET);
    assert_eq!(stage.all(), before);
}

#[test]
fn case_variants_never_escape_the_workspace() {
    let stage = Stage::new();
    match stage.read("SRC/A.TXT") {
        Ok(text) => assert_eq!(text, "one\ntwo\nthree"),
        Err(word) => assert_eq!(word, "not_found"),
    }
    let shouted = stage.path("OUT/SECRET");
    assert_eq!(stage.read(shouted.to_str().unwrap()), Err("outside_workspace".to_owned()));
}

#[test]
fn line_numbers_start_at_one() {
    let stage = Stage::new();
    fs::write(stage.path("ws/crlf"), "a\r\nb\r\n").unwrap();
    let lines = |path: &str, line, limit| stage.files.read(path, line, limit).unwrap();
    for (line, limit, text) in [
        (None, Some(2), "one\ntwo\n"),
        (Some(2), None, "two\nthree"),
        (Some(2), Some(1), "two\n"),
        (Some(3), Some(9), "three"),
        (Some(4), None, ""),
        (Some(u64::MAX), Some(u64::MAX), ""),
        (Some(0), Some(1), "one\n"),
        (Some(1), Some(0), ""),
    ] {
        assert_eq!(lines("src/a.txt", line, limit), text, "{line:?} {limit:?}");
    }
    assert_eq!(lines("crlf", Some(1), Some(1)), "a\r\n");
}

#[test]
fn reads_are_limited_to_text_of_bounded_size() {
    let mut stage = Stage::new();
    stage.files = stage.files.max_read(10);
    fs::write(stage.path("ws/exact"), "0123456789").unwrap();
    fs::write(stage.path("ws/more"), "0123456789\n").unwrap();
    fs::write(stage.path("ws/lines"), "01234\n01234\n01234\n").unwrap();
    fs::write(stage.path("ws/bytes"), b"ok\n\xff\xfe\n").unwrap();
    fs::write(stage.path("ws/empty"), "").unwrap();
    assert_eq!(stage.read("exact").as_deref(), Ok("0123456789"));
    assert_eq!(stage.read("more"), Err("too_large".to_owned()));
    assert_eq!(stage.read("bytes"), Err("not_text".to_owned()));
    assert_eq!(stage.read("empty").as_deref(), Ok(""));
    let lines = |path: &str, line, limit| stage.files.read(path, Some(line), Some(limit)).map_err(word);
    assert_eq!(lines("lines", 3, 1).as_deref(), Ok("01234\n"));
    assert_eq!(lines("lines", 1, 3), Err("too_large".to_owned()));
    assert_eq!(lines("more", 1, 1), Err("too_large".to_owned()));
    assert_eq!(lines("bytes", 1, 1).as_deref(), Ok("ok\n"));
}

#[test]
fn failed_write_keeps_the_old_file_and_leaves_no_temporary_file() {
    let stage = Stage::new();
    let before = stage.all();
    let dir = DirHandle::open(&stage.path("ws/src").canonicalize().unwrap()).unwrap();
    // Simulates a disk that becomes full during the write.
    let half = |file: &mut File| {
        file.write_all(b"half")?;
        Err(io::ErrorKind::StorageFull.into())
    };
    for name in ["a.txt", "new.txt"] {
        let error = replace(&dir, OsStr::new(name), half).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
    assert_eq!(stage.text("ws/src/a.txt"), "one\ntwo\nthree");
    assert_eq!(stage.all(), before);
}

#[test]
fn path_targets_are_resolved() {
    let stage = Stage::new();
    let at = stage.files.resolve("src/../new/x");
    assert_eq!((at.from_workspace.as_deref(), at.inside), (Some("new/x"), true));
    assert!(stage.files.resolve(stage.path("inc/x").to_str().unwrap()).inside);
    for path in ["../out/secret", "/etc/passwd", "a\0b", ""] {
        assert!(!stage.files.resolve(path).inside, "{path}");
    }
}

#[cfg(unix)]
mod links {
    use super::*;
    use std::{
        os::unix::{
            fs::{MetadataExt, PermissionsExt, symlink},
            net::UnixListener,
        },
        sync::atomic::{AtomicBool, Ordering},
        time::{Duration, Instant},
    };

    #[test]
    fn links_are_checked_by_their_target() {
        let stage = Stage::new();
        let link = |target: &str, name: &str| symlink(target, stage.path("ws").join(name)).unwrap();
        link("../out/secret", "to_secret");
        link(stage.path("out").to_str().unwrap(), "to_out");
        link("/etc/passwd", "to_passwd");
        link("../out/not_there", "dangling_out");
        link("to_out", "twice");
        link("loop_b", "loop_a");
        link("loop_a", "loop_b");
        link("src/a.txt", "inside");
        link(stage.path("ws/src").to_str().unwrap(), "inside_folder");
        link("src/new.txt", "dangling_inside");
        link("/proc/self/cwd", "magic");
        for path in [
            "to_secret",
            "to_out/secret",
            "to_out/new",
            "to_passwd",
            "dangling_out",
            "twice/secret",
            "inside_folder/../../out/secret",
            "to_out/../out/secret",
            "magic/x",
        ] {
            assert_eq!(stage.read(path), Err("outside_workspace".to_owned()), "{path}");
            assert_eq!(stage.write(path), Err("outside_workspace".to_owned()), "{path}");
        }
        assert_eq!(stage.read("loop_a"), Err("io".to_owned()));
        assert_eq!(stage.write("loop_a"), Err("io".to_owned()));
        assert_eq!(stage.text("out/secret"), SECRET);
        assert_eq!(fs::read_dir(stage.path("out")).unwrap().count(), 1);

        // A link that stays inside is written through and remains a link.
        for (path, target) in
            [("inside", "a.txt"), ("inside_folder/b.txt", "b.txt"), ("dangling_inside", "new.txt")]
        {
            assert_eq!(stage.write(path), Ok(()), "{path}");
            assert_eq!(stage.text(&format!("ws/src/{target}")), "new", "{path}");
        }
        for name in ["inside", "dangling_inside"] {
            assert!(fs::symlink_metadata(stage.path("ws").join(name)).unwrap().is_symlink(), "{name}");
        }
    }

    #[test]
    fn workspace_may_be_a_link() {
        let stage = Stage::new();
        symlink(stage.path("ws"), stage.path("alias")).unwrap();
        let files = AgentFiles::new(&stage.path("alias"), []).unwrap();
        for path in [
            "src/a.txt",
            stage.path("alias/src/a.txt").to_str().unwrap(),
            stage.path("ws/src/a.txt").to_str().unwrap(),
        ] {
            assert!(files.read(path, None, None).is_ok(), "{path}");
        }
        // `..` after a link refers to the parent of its target.
        assert!(matches!(files.read("../out/secret", None, None), Err(FileError::Outside(_))));
    }

    #[test]
    fn only_regular_files_are_accessed() {
        let stage = Stage::new();
        let fifo = stage.path("ws/fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let _socket = UnixListener::bind(stage.path("ws/socket")).unwrap();
        for path in ["fifo", "socket", "src"] {
            assert_eq!(stage.read(path), Err("not_a_file".to_owned()), "{path}");
            assert_eq!(stage.write(path), Err("not_a_file".to_owned()), "{path}");
        }
    }

    #[test]
    fn writing_a_hard_link_keeps_the_content_of_its_other_name() {
        let stage = Stage::new();
        fs::hard_link(stage.path("out/secret"), stage.path("ws/hard")).unwrap();
        assert_eq!(stage.read("hard").as_deref(), Ok(SECRET));
        assert_eq!(stage.write("hard"), Ok(()));
        assert_eq!((stage.text("ws/hard").as_str(), stage.text("out/secret").as_str()), ("new", SECRET));
    }

    #[test]
    fn file_modes_are_kept_and_new_files_get_default_modes() {
        let stage = Stage::new();
        let mode = |path: &str| fs::metadata(stage.path(path)).unwrap().mode() & 0o7777;
        fs::set_permissions(stage.path("ws/src/a.txt"), fs::Permissions::from_mode(0o751)).unwrap();
        stage.write("src/a.txt").unwrap();
        assert_eq!(mode("ws/src/a.txt"), 0o751);
        stage.write("made/new.txt").unwrap();
        fs::write(stage.path("ws/by_hand"), "").unwrap();
        assert_eq!(mode("ws/made/new.txt"), mode("ws/by_hand"));
    }

    #[test]
    fn unwritable_file_is_kept_with_a_clear_error() {
        let stage = Stage::new();
        let lock = |path: &str, mode| {
            fs::set_permissions(stage.path(path), fs::Permissions::from_mode(mode)).unwrap();
        };
        lock("ws/src/a.txt", 0o444);
        lock("ws/src", 0o555);
        let (file, folder) = (stage.files.write("src/a.txt", "new"), stage.files.write("src/b.txt", "new"));
        lock("ws/src", 0o755);
        // The superuser ignores permissions.
        if fs::metadata(stage.path("ws")).unwrap().uid() == 0 {
            return;
        }
        for error in [file.unwrap_err(), folder.unwrap_err()] {
            assert!(error.to_string().to_lowercase().contains("permission denied"), "{error}");
        }
        assert_eq!(stage.text("ws/src/a.txt"), "one\ntwo\nthree");
        assert_eq!(fs::read_dir(stage.path("ws/src")).unwrap().count(), 1);
    }

    /// Simulates a link that appears after the path was resolved.
    #[test]
    fn files_are_not_opened_through_links() {
        let stage = Stage::new();
        symlink(stage.path("out"), stage.path("ws/folder")).unwrap();
        symlink(stage.path("out/secret"), stage.path("ws/file")).unwrap();
        symlink(stage.path("out/planted"), stage.path("ws/new")).unwrap();
        let ws = DirHandle::open(&stage.path("ws").canonicalize().unwrap()).unwrap();
        let [folder, file, new] = ["folder", "file", "new"].map(OsStr::new);
        assert!(os::is_link(&ws.enter(folder).unwrap_err()));
        assert!(os::is_link(&enter_or_make(&ws, folder).unwrap_err()));
        assert!(os::is_link(&ws.read(file).unwrap_err()));
        assert!(os::is_link(&ws.write(file).unwrap_err()));
        assert!(ws.create(new).is_err() && ws.make(new).is_err());
        for name in [file, new] {
            assert!(os::is_link(&replace(&ws, name, |f| f.write_all(b"new")).unwrap_err()));
        }
        assert_eq!((stage.text("out/secret").as_str(), stage.all().len()), (SECRET, 6));
    }

    /// A thread repeatedly replaces a directory and a file of the workspace with links to the outside while they are
    /// read and written.
    #[test]
    fn concurrently_changed_links_cannot_escape() {
        let stage = Stage::new();
        fs::create_dir(stage.path("ws/d")).unwrap();
        fs::create_dir(stage.path("ws/real_d")).unwrap();
        for path in ["ws/d/secret", "ws/real_d/secret", "ws/f"] {
            fs::write(stage.path(path), "inside").unwrap();
        }
        let (stop, ws) = (AtomicBool::new(false), stage.path("ws"));
        let (mut good, mut refused) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0_u64.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    // Move the directory away, put a link in its place, and restore it.
                    let _ = fs::rename(ws.join("d"), ws.join("d_away"));
                    let _ = symlink("../out", ws.join("d"));
                    let _ = symlink("../out/secret", ws.join("f_link"));
                    let _ = fs::rename(ws.join("f_link"), ws.join("f"));
                    if turn % 3 == 0 {
                        std::thread::yield_now();
                    }
                    let _ = fs::remove_file(ws.join("d"));
                    let _ = fs::rename(ws.join("d_away"), ws.join("d"));
                    let _ = fs::write(ws.join("f_file"), "inside");
                    let _ = fs::rename(ws.join("f_file"), ws.join("f"));
                }
            });
            let started_at = Instant::now();
            // On a loaded machine the other thread may not run for a while.
            let takes_place = |good, refused| good > 0 && refused > 0;
            while started_at.elapsed() < Duration::from_millis(1500)
                || (!takes_place(good, refused) && started_at.elapsed() < Duration::from_secs(60))
            {
                for path in ["d/secret", "f"] {
                    match stage.files.read(path, None, None) {
                        Ok(text) => {
                            assert!(text == "inside" || text == "new", "{path} leads outside: {text}");
                            good += 1;
                        }
                        Err(_) => refused += 1,
                    }
                    let _ = stage.files.write(path, "new");
                }
                // A new name: if the write followed the link, the file would remain outside.
                let _ = stage.files.write("d/planted", "new");
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(stage.text("out/secret"), SECRET);
        assert_eq!(fs::read_dir(stage.path("out")).unwrap().count(), 1, "a file was written outside");
        assert!(good > 0 && refused > 0, "the race did not take place: {good} {refused}");
    }
}

#[test]
#[cfg(unix)]
fn hard_links_are_found_and_proc_links_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    std::fs::create_dir(at("ws")).unwrap();
    std::fs::create_dir(at("ws/deep")).unwrap();
    for name in ["ws/one", "outside"] {
        std::fs::write(at(name), "x").unwrap();
    }
    std::fs::hard_link(at("ws/one"), at("ws/deep/two")).unwrap();
    std::fs::hard_link(at("outside"), at("ws/from-outside")).unwrap();
    let files = AgentFiles::new(&at("ws"), []).unwrap();
    let two = files.resolve_with_names("deep/two");
    assert_eq!(
        (two.hard_linked, two.other_names, two.has_unknown_names),
        (true, vec!["one".to_owned()], false)
    );
    let outside = files.resolve_with_names("from-outside");
    assert!(outside.hard_linked && outside.other_names.is_empty() && outside.has_unknown_names);
    assert!(files.resolve("/proc/self/cwd/one").unclear && files.resolve("/dev/fd/0").unclear);
    assert!(!files.resolve("one").unclear);
}
