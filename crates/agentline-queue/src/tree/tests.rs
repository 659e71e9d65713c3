//! Tests of sending trees: what arrives, what is refused, and what hostile content cannot do.

use super::format::{END, HEADER, TreeEntry, TreeEntryKind};
use super::pieces::PIECE;
use super::*;
use crate::DirectoryArtifacts;
use std::fs;
use std::path::PathBuf;

/// A store and a directory for what is sent and received.
struct Fixture {
    dir: tempfile::TempDir,
    artifacts: DirectoryArtifacts,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let artifacts = DirectoryArtifacts::new(&dir.path().join("store")).expect("a store");
        Self { dir, artifacts }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    async fn upload(&self, path: &str) -> Result<TreeRef, TreeError> {
        upload_tree(&self.artifacts, "e", &self.at(path), TreeLimits::default()).await
    }

    async fn download(&self, tree: &TreeRef, path: &str) -> Result<(), TreeError> {
        download_tree(&self.artifacts, "e", tree, &self.at(path), TreeLimits::default()).await
    }

    /// Stores bytes as if they were a packed tree.
    async fn store(&self, packed: &[u8]) -> TreeRef {
        let mut pieces = Vec::new();
        for part in packed.chunks(100_000) {
            let piece = [&[0], part].concat();
            pieces.push(self.artifacts.put("e", &piece).await.expect("a stored piece"));
        }
        TreeRef { name: artifact_name(packed), size: packed.len() as u64, pieces }
    }

    /// Downloads entries and returns the error. Nothing may be left, neither inside nor outside of the target.
    async fn refused(&self, entries: &[(TreeEntry, &[u8])]) -> String {
        let tree = self.store(&packed(entries)).await;
        self.refused_tree(&tree).await
    }

    async fn refused_tree(&self, tree: &TreeRef) -> String {
        let before = names(self.dir.path());
        let error = self.download(tree, "in/target").await.expect_err("a refusal");
        assert_eq!(names(&self.at("in")), [""; 0], "{error}");
        fs::remove_dir(self.at("in")).expect("an empty directory");
        assert_eq!(names(self.dir.path()), before, "{error}");
        error.to_string()
    }
}

fn names(dir: &Path) -> Vec<String> {
    let children = dir.read_dir().expect("a directory").flatten();
    let mut names: Vec<_> = children.map(|child| child.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn packed(entries: &[(TreeEntry, &[u8])]) -> Vec<u8> {
    let mut bytes = HEADER.to_vec();
    for (entry, content) in entries {
        bytes.extend(entry.encode());
        bytes.extend(*content);
    }
    bytes.push(END);
    bytes
}

fn directory(path: &str) -> (TreeEntry, &'static [u8]) {
    (TreeEntry { path: path.into(), mode: 0o755, kind: TreeEntryKind::Directory }, b"")
}

fn file(path: &str, content: &'static str) -> (TreeEntry, &'static [u8]) {
    let kind = TreeEntryKind::File(content.len() as u64);
    (TreeEntry { path: path.into(), mode: 0o644, kind }, content.as_bytes())
}

#[cfg(unix)]
fn link(path: &str, target: &str) -> (TreeEntry, &'static [u8]) {
    (TreeEntry { path: path.into(), mode: 0, kind: TreeEntryKind::Link(target.into()) }, b"")
}

#[tokio::test]
async fn a_single_file_is_sent() {
    let fixture = Fixture::new();
    fs::write(fixture.at("file"), "hello").expect("a file");
    let tree = fixture.upload("file").await.expect("a tree");
    fixture.download(&tree, "new/copy").await.expect("a copy");
    assert_eq!(fs::read_to_string(fixture.at("new/copy")).expect("a file"), "hello");
    assert_eq!(names(&fixture.at("new")), ["copy"]);
}

#[tokio::test]
async fn large_files_have_pieces_of_their_own_that_are_stored_once() {
    let fixture = Fixture::new();
    // Three pieces.
    let large: Vec<u8> =
        (0..(5 * PIECE / 2) as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for name in ["one", "other"] {
        fs::create_dir(fixture.at(name)).expect("a directory");
        fs::write(fixture.at(name).join("large"), &large).expect("a file");
        fs::write(fixture.at(name).join("first"), name).expect("a file");
        fs::write(fixture.at(name).join("small"), name).expect("a file");
    }
    let [one, other] =
        [fixture.upload("one").await, fixture.upload("other").await].map(|tree| tree.expect("a tree"));
    assert_ne!(one.name, other.name);
    assert_eq!(one.pieces.len(), 5);
    assert_eq!(one.pieces[1..4], other.pieces[1..4]);
    assert_eq!(fixture.artifacts.names("e").await.expect("a list").len(), 7);
    fixture.download(&one, "copy").await.expect("a copy");
    assert!(fs::read(fixture.at("copy/large")).expect("a file") == large);
    let text = serde_json::to_string(&one).expect("a reference");
    assert_eq!(serde_json::from_str::<TreeRef>(&text).expect("a reference"), one);
}

#[tokio::test]
async fn many_downloads_of_a_tree_to_one_path_are_safe() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.at("tree/sub")).expect("a directory");
    for i in 0..50 {
        fs::write(fixture.at("tree/sub").join(i.to_string()), "x".repeat(i)).expect("a file");
    }
    let tree = fixture.upload("tree").await.expect("a tree");
    let copy = || fixture.download(&tree, "cache/copy");
    let (a, b, c, d) = tokio::join!(copy(), copy(), copy(), copy());
    for result in [a, b, c, d] {
        result.expect("a copy");
    }
    assert_eq!(names(&fixture.at("cache")), ["copy"]);
    assert_eq!(names(&fixture.at("cache/copy/sub")).len(), 50);
    // An empty directory is replaced.
    fs::create_dir(fixture.at("empty")).expect("a directory");
    fixture.download(&tree, "empty").await.expect("a copy");
    assert_eq!(names(&fixture.at("empty")), ["sub"]);
}

#[tokio::test]
async fn limits_are_errors_that_name_the_directory_the_size_and_the_limit() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.at("tree")).expect("a directory");
    for name in ["a", "b", "c"] {
        fs::write(fixture.at("tree").join(name), "x".repeat(1000)).expect("a file");
    }
    let tree = fixture.upload("tree").await.expect("a tree");
    for (limits, expected) in [
        (TreeLimits { size: 2500, ..TreeLimits::default() }, "` has 3065 bytes; at most 2500 can be sent"),
        (TreeLimits { files: 3, ..TreeLimits::default() }, "` has more than 3 files"),
        (TreeLimits { file_size: 999, ..TreeLimits::default() }, "` has 1000 bytes; at most 999 can be sent"),
    ] {
        let root = fixture.at("tree");
        let sent = upload_tree(&fixture.artifacts, "limited", &root, limits).await.expect_err("a refusal");
        let target = fixture.at("copy");
        let received = download_tree(&fixture.artifacts, "e", &tree, &target, limits).await;
        for (error, path) in [(sent, "tree"), (received.expect_err("a refusal"), "")] {
            let text = error.to_string();
            assert!(text.contains(expected) && text.contains(path), "{text}");
        }
    }
    assert_eq!(fixture.artifacts.names("limited").await.expect("a list").len(), 0);
    assert_eq!(names(fixture.dir.path()), ["store", "tree"]);
    let exact = TreeLimits { size: 3065, files: 4, file_size: 1000, outer_links: true };
    assert_eq!(tree.size, 3065);
    download_tree(&fixture.artifacts, "e", &tree, &fixture.at("copy"), exact).await.expect("a copy");
}

#[tokio::test]
async fn paths_that_lead_out_of_the_tree_are_refused() {
    let fixture = Fixture::new();
    let long = "a/".repeat(2047) + "a";
    for path in ["..", "../x", "a/../../x", "/x", "//x", ".", "./x", "a//x", "a/", "a/.", "x\0y", "\0"] {
        let error = fixture.refused(&[directory(""), directory("a"), file(path, "hostile")]).await;
        assert!(error.contains("the entry"), "{path:?}: {error}");
    }
    for path in ["b/x", &long, &(long.clone() + "/a")] {
        fixture.refused(&[directory(""), directory("a"), file(path, "hostile")]).await;
    }
    // Every level is there, but the whole is deeper than the system allows.
    let parts: Vec<_> = (0..2000).map(|depth| directory(&("a/".repeat(depth) + "a"))).collect();
    let deep: Vec<_> = std::iter::once(directory("")).chain(parts).chain([file(&long, "")]).collect();
    fixture.refused(&deep).await;
}

#[cfg(unix)]
#[tokio::test]
async fn nothing_is_written_through_a_link() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.at("outside")).expect("a directory");
    let outside = fixture.at("outside").to_string_lossy().into_owned();
    for entries in [
        vec![directory(""), link("l", &outside), file("l/x", "hostile")],
        vec![directory(""), link("l", &outside), directory("l/x")],
        vec![directory(""), link("l", &outside), link("l/x", "y")],
        vec![directory(""), link("l", &outside), directory("l"), file("l/x", "hostile")],
        vec![directory(""), directory("l"), link("l", &outside), file("l/x", "hostile")],
        vec![directory(""), link("l", &(outside.clone() + "/x")), file("l", "hostile")],
        vec![directory(""), file("f", "x"), file("f/x", "hostile")],
        vec![directory(""), file("f", "x"), file("f", "y")],
        vec![directory(""), directory("d"), directory("d")],
        vec![directory(""), directory("b"), directory("a")],
        vec![link("", &outside), file("x", "hostile")],
        vec![link("", &outside)],
        vec![file("", "x"), file("x", "hostile")],
        vec![directory(""), directory("")],
        vec![directory("a")],
        vec![directory(""), link("l", "")],
        vec![directory(""), link("l", "a\0b")],
        vec![],
    ] {
        fixture.refused(&entries).await;
        assert_eq!(names(&fixture.at("outside")), [""; 0]);
    }
    // A link that has the name of a file as its beginning is another entry.
    let entries = [directory(""), link("l", &outside), file("l-x", "fine"), link("m", "../../etc/passwd")];
    let tree = fixture.store(&packed(&entries)).await;
    fixture.download(&tree, "copy").await.expect("a copy");
    assert_eq!(fs::read_link(fixture.at("copy/l")).expect("a link"), fixture.at("outside"));
    assert_eq!(fs::read_link(fixture.at("copy/m")).expect("a link"), Path::new("../../etc/passwd"));
    assert_eq!(names(&fixture.at("outside")), [""; 0]);
}

#[tokio::test]
async fn damaged_trees_are_refused() {
    let fixture = Fixture::new();
    let good = packed(&[directory(""), directory("d"), file("d/f", "content")]);
    for length in 0..good.len() {
        let mut truncated = fixture.store(&good[..length]).await;
        fixture.refused_tree(&truncated).await;
        truncated.size = good.len() as u64;
        let error = fixture.refused_tree(&truncated).await;
        assert!(error.contains("it ends too early"), "{length}: {error}");
    }
    let tree = fixture.store(&good).await;
    let larger = fixture.store(&[&good[..], b"x"].concat()).await;
    let unknown = fixture.store(b"some other kind of content").await;
    let mut huge = good.clone();
    let size_at = good.len() - 1 - "content".len() - 8;
    huge[size_at] = 0x7f;
    let huge = fixture.store(&huge).await;
    let mut setuid = file("d/f", "x");
    setuid.0.mode = 0o4755;
    let setuid = fixture.store(&packed(&[directory(""), directory("d"), setuid])).await;
    let bomb = [&[1], &*miniz_oxide::deflate::compress_to_vec(&vec![0; 64 << 20], 6)].concat();
    let bomb = fixture.artifacts.put("e", &bomb).await.expect("a stored piece");
    let other = artifact_name(b"other");
    for (tree, expected) in [
        (larger, "another size"),
        (unknown, "known format"),
        (huge, "at most 1073741824"),
        (setuid, "invalid mode"),
        (TreeRef { name: other.clone(), ..tree.clone() }, "does not match its name"),
        (TreeRef { size: tree.size - 1, ..tree.clone() }, "larger than its reference"),
        (TreeRef { size: tree.size + 1, ..tree.clone() }, "another size"),
        (TreeRef { size: u64::MAX, ..tree.clone() }, "at most 1073741824"),
        (TreeRef { size: 100, pieces: vec![bomb.clone()], ..tree.clone() }, "decompressed"),
        (TreeRef { pieces: vec![other], ..tree.clone() }, "is missing"),
    ] {
        let before = tree.size <= TreeLimits::default().size;
        let error = if before {
            fixture.refused_tree(&tree).await
        } else {
            fixture.download(&tree, "copy").await.expect_err("a refusal").to_string()
        };
        assert!(error.contains(expected), "{expected}: {error}");
    }
    fixture.download(&tree, "copy").await.expect("a copy");
}

#[cfg(unix)]
mod unix {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::PermissionsExt as _;

    /// A file, a link or a directory with its content, and its mode.
    #[derive(Clone, Debug, PartialEq, Eq)]
    enum Node {
        File(Vec<u8>, u32),
        Link(PathBuf),
        Directory(u32, BTreeMap<Vec<u8>, Self>),
    }

    impl Node {
        fn write(&self, path: &Path) {
            let set_mode = |mode: &u32| {
                fs::set_permissions(path, fs::Permissions::from_mode(*mode)).expect("a mode");
            };
            match self {
                Self::File(content, mode) => {
                    fs::write(path, content).expect("a file");
                    set_mode(mode);
                }
                Self::Link(target) => std::os::unix::fs::symlink(target, path).expect("a link"),
                Self::Directory(mode, children) => {
                    fs::create_dir(path).expect("a directory");
                    for (name, child) in children {
                        child.write(&path.join(OsStr::from_bytes(name)));
                    }
                    set_mode(mode);
                }
            }
        }

        fn read(path: &Path) -> Self {
            let found = path.symlink_metadata().expect("a file");
            let mode = found.permissions().mode() & 0o7777;
            if found.is_symlink() {
                return Self::Link(path.read_link().expect("a link"));
            }
            if found.is_file() {
                return Self::File(fs::read(path).expect("a file"), mode);
            }
            let children = path.read_dir().expect("a directory").flatten();
            let children =
                children.map(|child| (child.file_name().as_bytes().to_vec(), Self::read(&child.path())));
            Self::Directory(mode, children.collect())
        }

        /// Makes all directories writable, so that they can be removed.
        fn unlock(path: &Path) {
            if path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
                fs::set_permissions(path, fs::Permissions::from_mode(0o700)).expect("a mode");
                path.read_dir().expect("a directory").flatten().for_each(|child| Self::unlock(&child.path()));
            }
        }
    }

    /// Names and targets: any bytes but NUL and `/`.
    fn name() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![4 => Just(b'a'), 2 => Just(b'.'), 2 => Just(b'-'), 4 => 1..=255_u8];
        prop::collection::vec(byte.prop_filter("no separator", |byte| *byte != b'/'), 1..6)
            .prop_filter("a name", |name| name != b"." && name != b"..")
    }

    fn node() -> impl Strategy<Value = Node> {
        let content = prop::collection::vec(any::<u8>(), 0..300);
        let leaf = prop_oneof![
            (content, 0o400..0o777_u32).prop_map(|(content, mode)| Node::File(content, mode | 0o400)),
            name().prop_map(|target| Node::Link(OsStr::from_bytes(&target).into())),
        ];
        leaf.prop_recursive(4, 40, 8, |node| {
            (0..0o777_u32, prop::collection::btree_map(name(), node, 0..8))
                .prop_map(|(mode, children)| Node::Directory(mode | 0o500, children))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn a_tree_arrives_as_it_was_sent(root in node().prop_filter("no link", |node| !matches!(node, Node::Link(_)))) {
            let fixture = Fixture::new();
            root.write(&fixture.at("tree"));
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            let tree = runtime.block_on(fixture.upload("tree")).expect("a tree");
            runtime.block_on(fixture.download(&tree, "copy")).expect("a copy");
            prop_assert_eq!(Node::read(&fixture.at("copy")), root);
            prop_assert_eq!(runtime.block_on(fixture.upload("copy")).expect("a tree"), tree);
            ["tree", "copy"].iter().for_each(|path| Node::unlock(&fixture.at(path)));
        }
    }

    #[tokio::test]
    async fn special_files_are_refused_by_name() {
        let fixture = Fixture::new();
        fs::create_dir_all(fixture.at("tree/sub")).expect("a directory");
        let pipe = fixture.at("tree/sub/pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("`mkfifo`");
        assert!(made.success());
        for path in ["tree", "tree/sub/pipe"] {
            let error = fixture.upload(path).await.expect_err("a refusal").to_string();
            assert!(
                error.ends_with("tree/sub/pipe` is a pipe: only files, directories and links can be sent"),
                "{error}"
            );
        }
        fs::remove_file(&pipe).expect("a removed pipe");
        let socket = std::os::unix::net::UnixListener::bind(&pipe).expect("a socket");
        let error = fixture.upload("tree").await.expect_err("a refusal").to_string();
        assert!(error.contains("tree/sub/pipe` is a socket"), "{error}");
        drop(socket);
        let device =
            upload_tree(&fixture.artifacts, "e", Path::new("/dev/null"), TreeLimits::default()).await;
        assert!(matches!(device, Err(TreeError::SpecialFile { kind: "a device", .. })));
    }

    #[tokio::test]
    async fn a_lost_race_leaves_no_directory_behind() {
        let fixture = Fixture::new();
        let children = BTreeMap::from([(b"f".to_vec(), Node::File(b"x".to_vec(), 0o400))]);
        let inner = Node::Directory(0o500, children);
        Node::Directory(0o500, BTreeMap::from([(b"d".to_vec(), inner)])).write(&fixture.at("tree"));
        let tree = fixture.upload("tree").await.expect("a tree");
        let copy = || fixture.download(&tree, "cache/copy");
        let (a, b, c) = tokio::join!(copy(), copy(), copy());
        for result in [a, b, c] {
            result.expect("a copy");
        }
        assert_eq!(names(&fixture.at("cache")), ["copy"]);
        ["tree", "cache"].iter().for_each(|path| Node::unlock(&fixture.at(path)));
    }
}

#[cfg(unix)]
#[tokio::test]
async fn links_out_of_a_tree_are_refused_where_they_may_not_be() {
    let fixture = Fixture::new();
    let limits = TreeLimits { outer_links: false, ..TreeLimits::default() };
    for (target, is_inside) in [
        ("/etc/passwd", false),
        ("../../x", false),
        ("..", true),
        ("../..", false),
        ("../f", true),
        ("x/../../f", false),
        ("./y/z", true),
    ] {
        let tree = fixture.store(&packed(&[directory(""), directory("d"), link("d/l", target)])).await;
        let dir = fixture.at("in");
        let downloaded = download_tree(&fixture.artifacts, "e", &tree, &dir, limits).await;
        assert_eq!(downloaded.is_ok(), is_inside, "{target}: {downloaded:?}");
        let _ = fs::remove_dir_all(dir);
        fixture.download(&tree, "any").await.expect("links of a workspace may lead anywhere");
        fs::remove_dir_all(fixture.at("any")).expect("a tree");
    }
}
