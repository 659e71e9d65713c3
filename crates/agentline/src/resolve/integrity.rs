//! Detects changes to the files that enforce a policy while an agent runs: its rules, and the settings written for it.
//!
//! A tool of the agent runs as the same user, so file modes cannot keep it out. The files are checked before each
//! session of a warm process and at the end of each run.

use crate::{
    fs::{digest::digest, regular_file::read_regular},
    resolve::{
        materialize::{is_read_only, read_only_dirs},
        spec::ProcessSpec,
    },
};
use std::{
    fs::{self, Metadata},
    io,
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// The maximum size of a checked file in bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The initial state of the files that enforce the policy of one process.
#[derive(Debug, Default)]
pub(crate) struct Integrity {
    /// Directories and files that never change after their creation.
    fixed: Vec<Guarded>,
    /// Files that the agent may rewrite while it starts.
    settings: Vec<PathBuf>,
    /// The state of `settings` when the first session was opened, before any tool could run.
    settled: OnceLock<Vec<Guarded>>,
}

#[derive(Debug)]
struct Guarded {
    path: PathBuf,
    stamp: Stamp,
    /// The digest of a file's content; `None` for a directory.
    digest: Option<[u8; 32]>,
    /// Whether the agent may rewrite the file with the same content.
    may_be_rewritten: bool,
}

/// The metadata of a file or directory. A change of the content changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    is_file: bool,
    mode: u32,
    /// The device and inode numbers.
    id: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Integrity {
    /// Records the files that a launch has written.
    pub(crate) fn of(process: &ProcessSpec) -> io::Result<Self> {
        let dirs = read_only_dirs(process).map(|dir| Guarded::directory(dir));
        let files = process.files.iter().filter(|file| is_read_only(process, &file.path));
        let files = files.map(|file| Guarded::file(&file.path, &file.content, false));
        let settings = process.files.iter().filter(|file| file.guarded).map(|file| file.path.clone());
        Ok(Self {
            fixed: dirs.chain(files).collect::<io::Result<_>>()?,
            settings: settings.collect(),
            settled: OnceLock::new(),
        })
    }

    /// Records the settings once the first session is open. No tool has run yet, and from now on the settings must not
    /// change.
    pub(crate) fn freeze(&self) {
        self.settled.get_or_init(|| {
            let read = |path: &PathBuf| Guarded::file(path, &read_regular(path, MAX_FILE_BYTES)?, true);
            // A file that cannot be read was removed by the agent itself, so there is nothing to guard.
            self.settings.iter().filter_map(|path| read(path).ok()).collect()
        });
    }

    /// Returns which file or directory has changed, and how; `None` if all are intact.
    pub(crate) fn change(&self) -> Option<String> {
        self.fixed.iter().chain(self.settled.get().into_iter().flatten()).find_map(Guarded::change)
    }
}

impl Guarded {
    fn directory(path: &Path) -> io::Result<Self> {
        let stamp = Stamp::of(&fs::symlink_metadata(path)?);
        Ok(Self { path: path.to_owned(), stamp, digest: None, may_be_rewritten: false })
    }

    fn file(path: &Path, content: &[u8], may_be_rewritten: bool) -> io::Result<Self> {
        let stamp = Stamp::of(&fs::symlink_metadata(path)?);
        Ok(Self { path: path.to_owned(), stamp, digest: Some(digest(content)), may_be_rewritten })
    }

    fn change(&self) -> Option<String> {
        let change = match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => "was removed".to_owned(),
            Err(error) => format!("cannot be inspected: {error}"),
            Ok(found) => self.difference(&Stamp::of(&found), found.is_dir())?.to_owned(),
        };
        Some(format!("`{}` {change}", self.path.display()))
    }

    fn difference(&self, found: &Stamp, is_dir: bool) -> Option<&'static str> {
        if *found == self.stamp {
            return None;
        }
        let Some(digest_before) = self.digest else {
            let is_same = is_dir && found.id == self.stamp.id && found.mode == self.stamp.mode;
            return Some(if is_same { "was changed" } else { "was replaced" });
        };
        let is_same = found.id == self.stamp.id && found.mode == self.stamp.mode;
        if !found.is_file || !(is_same || self.may_be_rewritten) {
            return Some("was replaced");
        }
        // The path may be a pipe by now, so only regular files are read.
        let is_intact =
            read_regular(&self.path, MAX_FILE_BYTES).is_ok_and(|content| digest(&content) == digest_before);
        (!is_intact).then_some("has different content")
    }
}

impl Stamp {
    #[cfg(unix)]
    fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Self {
            is_file: metadata.is_file(),
            mode: metadata.mode(),
            id: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Returns the metadata without inode numbers, where only size and modification time reveal a change.
    #[cfg(not(unix))]
    fn of(metadata: &Metadata) -> Self {
        let since = |at: io::Result<std::time::SystemTime>| {
            let since =
                at.ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok()).unwrap_or_default();
            (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), i64::from(since.subsec_nanos()))
        };
        Self {
            is_file: metadata.is_file(),
            mode: 0,
            id: (0, 0),
            size: metadata.len(),
            modified: since(metadata.modified()),
            changed: (0, 0),
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::{fs::private_dir::set_mode, resolve::materialize::create_files};
    use agentline_core::NewFile;

    struct Stage {
        dir: tempfile::TempDir,
        integrity: Integrity,
    }

    impl Stage {
        fn new() -> Self {
            let dir = tempfile::tempdir().expect("the setup succeeds");
            let at = |path: &str| dir.path().join(path);
            let process = ProcessSpec {
                dirs: vec![at("given"), at("given/commands"), at("home")],
                read_only: vec![at("given")],
                files: vec![
                    NewFile::new(at("given/rules.toml"), "rules"),
                    NewFile::new(at("home/settings.json"), "settings").guarded(),
                    NewFile::copy(at("home/projects.json"), "projects"),
                ],
                ..ProcessSpec::default()
            };
            create_files(&process).expect("the setup succeeds");
            let integrity = Integrity::of(&process).expect("the setup succeeds");
            // File-system timestamps have a resolution of a few milliseconds; an agent takes longer to start.
            std::thread::sleep(std::time::Duration::from_millis(50));
            Self { dir, integrity }
        }

        fn at(&self, path: &str) -> PathBuf {
            self.dir.path().join(path)
        }

        /// Makes the read-only directory writable, which is itself a change.
        fn open(&self) {
            set_mode(&self.at("given"), 0o700).expect("the setup succeeds");
            set_mode(&self.at("given/rules.toml"), 0o600).expect("the setup succeeds");
        }

        /// Makes the directory read-only again.
        fn close(&self) {
            set_mode(&self.at("given/rules.toml"), 0o400).expect("the setup succeeds");
            set_mode(&self.at("given"), 0o500).expect("the setup succeeds");
        }
    }

    impl Drop for Stage {
        fn drop(&mut self) {
            let _ = crate::fs::private_dir::remove_tree(self.dir.path());
        }
    }

    #[test]
    fn every_change_of_the_rules_is_detected() {
        type Change = fn(&Stage);
        let cases: &[(&str, Change, Option<&str>)] = &[
            ("nothing", |_| {}, None),
            ("read", |s| drop(fs::read(s.at("given/rules.toml")).unwrap()), None),
            (
                "a file that the agent may write",
                |s| fs::write(s.at("home/projects.json"), "other").unwrap(),
                None,
            ),
            (
                "removed",
                |s| crate::fs::private_dir::remove_tree(&s.at("given")).unwrap(),
                Some("was removed"),
            ),
            (
                "written",
                |s| {
                    s.open();
                    fs::write(s.at("given/rules.toml"), "RULES").unwrap();
                    s.close();
                },
                Some("was changed"),
            ),
            (
                "an added file",
                |s| {
                    s.open();
                    fs::write(s.at("given/more.toml"), "").unwrap();
                    s.close();
                },
                Some("was changed"),
            ),
            (
                "renamed and renamed back",
                |s| {
                    fs::rename(s.at("given"), s.at("elsewhere")).unwrap();
                    fs::rename(s.at("elsewhere"), s.at("given")).unwrap();
                },
                Some("was changed"),
            ),
            (
                "replaced by another directory",
                |s| {
                    fs::rename(s.at("given"), s.at("elsewhere")).unwrap();
                    fs::create_dir(s.at("given")).unwrap();
                    fs::copy(s.at("elsewhere/rules.toml"), s.at("given/rules.toml")).unwrap();
                    s.close();
                },
                Some("was replaced"),
            ),
        ];
        for (name, change, expected) in cases {
            let stage = Stage::new();
            stage.integrity.freeze();
            change(&stage);
            let found = stage.integrity.change();
            assert_eq!(found.is_some(), expected.is_some(), "{name}: {found:?}");
            if let (Some(found), Some(expected)) = (&found, expected) {
                assert!(found.ends_with(expected), "{name}: {found}");
            }
        }
    }

    #[test]
    fn content_is_compared_if_file_times_are_equal() {
        let stage = Stage::new();
        let rules = stage.at("given/rules.toml");
        let guarded = Guarded::file(&rules, b"rules", false).unwrap();
        assert_eq!(guarded.change(), None);
        set_mode(&rules, 0o600).unwrap();
        assert!(guarded.change().is_some_and(|change| change.ends_with("was replaced")));
        set_mode(&rules, 0o400).unwrap();
        assert_eq!(guarded.change(), None, "only the status change time differs");
        let other = Guarded { digest: Some(digest(b"other")), ..guarded };
        assert!(other.change().is_some_and(|change| change.ends_with("has different content")));
    }

    #[test]
    fn settings_may_be_rewritten_until_the_first_session_opens() {
        let stage = Stage::new();
        let settings = stage.at("home/settings.json");
        fs::write(&settings, "migrated").unwrap();
        assert_eq!(stage.integrity.change(), None);
        stage.integrity.freeze();
        fs::remove_file(&settings).unwrap();
        fs::write(&settings, "migrated").unwrap();
        assert_eq!(stage.integrity.change(), None, "the agent may rewrite the same content");
        fs::write(&settings, "{\"tools\":{\"allowed\":[\"*\"]}}").unwrap();
        stage.integrity.freeze();
        assert!(stage.integrity.change().is_some_and(|change| change.ends_with("has different content")));
        fs::remove_file(&settings).unwrap();
        assert!(stage.integrity.change().is_some_and(|change| change.ends_with("was removed")));
    }
}
