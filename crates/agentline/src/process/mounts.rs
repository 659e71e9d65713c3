//! Mounts for workspaces: a mount namespace of this process, overlays in it, and the view that an agent has of them.
//!
//! The mount namespace belongs to this process ([`enter`]), so it and everything that it starts see the same files on the
//! same paths. An agent in an overlay gets a further mount namespace, which receives the mounts of workspaces from this
//! one and nothing else, and in which some paths are covered ([`Enclosure`]).

#![expect(unsafe_code, reason = "system calls; each is a few lines with its own SAFETY comment")]

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::os::namespace;
use super::{Enclosure, Isolation, OverlayLayers, ProcessExit, unix};
use crate::fs::{disk_fs::canonicalize, remove::remove_tree};

/// How long an unmount waits for the files of a workspace to be closed. An agent that closes a session may first have to
/// end a process in the workspace, and replacing the agent would take longer.
const UNMOUNT_TIME: Duration = Duration::from_secs(3);

/// The pause between two attempts to unmount.
const UNMOUNT_INTERVAL: Duration = Duration::from_millis(5);

/// The flags of mounts on covered paths.
const COVER: libc::c_ulong = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;

/// The attribute of a read-only mount.
const READ_ONLY: u64 = 1;

/// Capabilities with which root could remove a cover or reach the files below it by another way.
const DROPPED: &[libc::c_ulong] = &[
    2,  // CAP_DAC_READ_SEARCH: opens files by handle
    16, // CAP_SYS_MODULE
    17, // CAP_SYS_RAWIO
    19, // CAP_SYS_PTRACE
    21, // CAP_SYS_ADMIN: mounts, unmounts and enters namespaces
    27, // CAP_MKNOD: creates devices
];

static IS_ENTERED: AtomicBool = AtomicBool::new(false);

/// Returns whether this process has its own mount namespace.
pub(crate) fn is_entered() -> bool {
    IS_ENTERED.load(Ordering::Relaxed)
}

/// Moves this process into a mount namespace of its own, after a child process has shown that overlays work there.
/// Root needs no user namespace for it.
///
/// # Errors
/// Fails with the system's reason, and then nothing has changed. A multi-threaded process cannot enter a namespace.
pub(crate) fn enter(storage: &Path) -> io::Result<()> {
    if is_entered() {
        return Ok(());
    }
    // A child has a copy of this thread only, so there must be no other.
    if fs::read_dir("/proc/self/task")?.count() > 1 {
        return Err(io::Error::other("the program has several threads"));
    }
    let probe = tempfile::Builder::new().prefix("agentline-probe-").tempdir_in(storage)?.keep();
    let tried = in_child(None, || unshare().and_then(|()| try_overlay(&probe)));
    remove_tree(&probe);
    tried.and_then(|()| unshare())?;
    IS_ENTERED.store(true, Ordering::Relaxed);
    Ok(())
}

/// Runs a function in a child process, in a namespace if one is given. Only for a single-threaded process.
fn in_child(
    namespace: Option<namespace::Namespace>,
    work: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let Some(child) = namespace::fork(namespace)? else {
        unix::exit_now(work().map_or_else(|error| error.raw_os_error().unwrap_or(libc::EIO), |()| 0));
    };
    match unix::wait_for(child)? {
        ProcessExit::Code(0) => Ok(()),
        ProcessExit::Code(errno) => Err(io::Error::from_raw_os_error(errno)),
        _ => Err(io::Error::other("the attempt to mount an overlay was killed")),
    }
}

/// Gives this process its own mount namespace. Mounts of the system still arrive in it, and none leaves it.
fn unshare() -> io::Result<()> {
    // SAFETY: neither function takes an argument or can fail.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let user = if uid == 0 { 0 } else { libc::CLONE_NEWUSER };
    // SAFETY: unshare takes plain numbers.
    if unsafe { libc::unshare(user | libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if uid != 0 {
        namespace::map_ids(uid, gid)?;
    }
    mount(None, Path::new("/"), None, libc::MS_REC | libc::MS_SLAVE, None)
}

/// Does in a child process what runs in overlays will do: changes a file, removes one, and replaces a directory. Then
/// creates the namespaces of an agent.
fn try_overlay(dir: &Path) -> io::Result<()> {
    let [lower, upper, work, at] = ["lower", "upper", "work", "at"].map(|name| dir.join(name));
    for dir in [&lower, &upper, &work, &at, &lower.join("dir")] {
        fs::create_dir(dir)?;
    }
    for file in ["changed", "removed", "dir/inner"] {
        fs::write(lower.join(file), "lower")?;
    }
    overlay(&[&lower], &upper, &work, &at)?;
    fs::write(at.join("changed"), "upper")?;
    fs::remove_file(at.join("removed"))?;
    fs::remove_dir_all(at.join("dir"))?;
    fs::create_dir(at.join("dir"))?;
    let is_right = fs::read(lower.join("changed"))? == b"lower"
        && fs::read(at.join("changed"))? == b"upper"
        && !at.join("removed").exists()
        && fs::read_dir(at.join("dir"))?.next().is_none();
    unmount(&at)?;
    if !is_right {
        return Err(io::Error::from_raw_os_error(libc::ENOTSUP));
    }
    for namespace in namespace::candidates(Isolation::Namespace) {
        in_child(Some(namespace), || namespace::enter(namespace))?;
    }
    Ok(())
}

/// Mounts an overlay. The first of the lower directories hides the others.
pub(crate) fn overlay(lower: &[&Path], upper: &Path, work: &Path, at: &Path) -> io::Result<()> {
    // A path may contain the separators of the options, but the name of a descriptor never does.
    let open = |path: &Path| open_path(path).map(|file| (name_of(&file), file));
    let lower: Vec<(String, File)> = lower.iter().map(|path| open(path)).collect::<io::Result<_>>()?;
    let ((upper, _upper), (work, _work)) = (open(upper)?, open(work)?);
    let lower: Vec<&str> = lower.iter().map(|(name, _)| name.as_str()).collect();
    // `volatile`: these files need not survive a crash of the system, so nothing is flushed to the disk.
    let options = format!("lowerdir={},upperdir={upper},workdir={work},userxattr,volatile", lower.join(":"));
    mount(Some("overlay"), at, Some("overlay"), libc::MS_NODEV | libc::MS_NOSUID, Some(&options))
}

/// Mounts a file or directory on another one, with everything that is mounted below it.
pub(crate) fn bind(from: &Path, at: &Path, is_read_only: bool) -> io::Result<()> {
    attach(&open_path(from)?, at)?;
    if is_read_only {
        make_read_only(at, libc::AT_RECURSIVE)?;
    }
    Ok(())
}

/// Makes a mount read-only, with those below it if the flags say so. Its other flags, which a user namespace may not
/// change, stay.
fn make_read_only(at: &Path, flags: libc::c_int) -> io::Result<()> {
    set_attributes(at, flags, READ_ONLY, 0)
}

/// Makes a mount writable that this namespace made read-only.
fn make_writable(at: &Path, flags: libc::c_int) -> io::Result<()> {
    set_attributes(at, flags, 0, READ_ONLY)
}

fn set_attributes(at: &Path, flags: libc::c_int, set: u64, cleared: u64) -> io::Result<()> {
    /// The argument of `mount_setattr`.
    #[repr(C)]
    struct MountAttributes {
        set: u64,
        cleared: u64,
        propagation: u64,
        user_namespace: u64,
    }
    let path = c_string(at)?;
    let attributes = MountAttributes { set, cleared, propagation: 0, user_namespace: 0 };
    // SAFETY: the path is NUL-terminated, both outlive the call, and the size of the structure is passed.
    let changed = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    if changed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets agents that start later see what is mounted below this mount from now on.
pub(crate) fn share(at: &Path) -> io::Result<()> {
    mount(None, at, None, libc::MS_SHARED, None)
}

/// Unmounts, and returns whether all files there were closed. Otherwise the mount is only detached.
pub(crate) fn unmount(at: &Path) -> io::Result<bool> {
    let path = c_string(at)?;
    let unmount = |flags| {
        // SAFETY: the path is NUL-terminated and outlives the call.
        let done = unsafe { libc::umount2(path.as_ptr(), flags | libc::UMOUNT_NOFOLLOW) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    let until = Instant::now() + UNMOUNT_TIME;
    loop {
        match unmount(0) {
            Ok(()) => return Ok(true),
            Err(error) if error.raw_os_error() != Some(libc::EBUSY) => return Err(error),
            Err(_) if Instant::now() < until => std::thread::sleep(UNMOUNT_INTERVAL),
            Err(_) => return unmount(libc::MNT_DETACH).map(|()| false),
        }
    }
}

/// Detaches a mount with everything below it.
pub(crate) fn detach(at: &Path) {
    if let Ok(path) = c_string(at) {
        // SAFETY: the path is NUL-terminated and outlives the call.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW) };
    }
}

/// Returns whether a file can be changed in an overlay. In a user namespace, files of other users and groups cannot.
pub(crate) fn owns(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    // SAFETY: neither function takes an argument or can fail.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    uid == 0 || (metadata.uid(), metadata.gid()) == (uid, gid)
}

/// The place of workspaces.
struct MountPlace {
    enclosure: Enclosure,
    /// The directory below all mounts.
    base: OwnedFd,
    /// The inits of the agents that started here, each with the name of its mount namespace.
    inits: Vec<(u32, PathBuf)>,
    /// The layers of the overlay that is mounted here.
    layers: Option<OverlayLayers>,
}

/// The places of workspaces, by the path of the workspace.
static PLACES: Mutex<BTreeMap<PathBuf, MountPlace>> = Mutex::new(BTreeMap::new());

fn places() -> MutexGuard<'static, BTreeMap<PathBuf, MountPlace>> {
    PLACES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers the place of a workspace before anything is mounted there, or replaces the view of agents that start there
/// later.
pub(crate) fn register(workspace: &Path, enclosure: Enclosure) -> io::Result<()> {
    match places().entry(workspace.to_owned()) {
        // The directory itself may be below a mount by now.
        Entry::Occupied(mut known) => known.get_mut().enclosure = enclosure,
        Entry::Vacant(new) => {
            let base = open_path(workspace)?.into();
            new.insert(MountPlace { enclosure, base, inits: Vec::new(), layers: None });
        }
    }
    Ok(())
}

/// Forgets the place of a workspace.
pub(crate) fn forget(workspace: &Path) {
    places().remove(workspace);
}

/// Returns what an agent sees that starts in this directory, if it is the place of a workspace.
pub(crate) fn enclosure(workspace: &Path) -> Option<Enclosure> {
    places().get(workspace).map(|place| place.enclosure.clone())
}

/// Notes which layers are mounted in the place of a workspace.
pub(crate) fn set_layers(workspace: &Path, layers: Option<OverlayLayers>) {
    if let Some(place) = places().get_mut(workspace) {
        place.layers = layers;
    }
}

/// Returns the layers of a workspace, if it is an overlay.
pub(crate) fn layers(workspace: &Path) -> Option<OverlayLayers> {
    places().get(workspace)?.layers.clone()
}

/// Returns whether a directory in an upper layer hides the directory below it instead of adding to it.
pub(crate) fn is_opaque(dir: &Path) -> bool {
    let Ok(path) = c_string(dir) else { return false };
    let mut value = [0_u8; 1];
    // SAFETY: both strings are NUL-terminated, and the length of the buffer is passed.
    let length = unsafe {
        libc::lgetxattr(
            path.as_ptr(),
            c"user.overlay.opaque".as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    length == 1 && value == *b"y"
}

/// Notes the init of an agent that started in the place of a workspace.
pub(super) fn note_init(workspace: &Path, init: u32) {
    if let Some(place) = places().get_mut(workspace)
        && let Some(namespace) = mount_namespace(init)
    {
        place.inits.push((init, namespace));
    }
}

/// Returns the name of the mount namespace of a process.
fn mount_namespace(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/mnt")).ok()
}

/// Returns whether the agents that live in the place of a workspace find nothing at the covered paths: neither there nor,
/// for paths below `template`, in the workspace. `None` if no agent lives there.
pub(crate) fn are_covered(workspace: &Path, template: &Path) -> Option<bool> {
    let (inits, covered) = {
        let mut places = places();
        let place = places.get_mut(workspace)?;
        // A process id that is used again has another namespace.
        place.inits.retain(|(init, namespace)| mount_namespace(*init).as_ref() == Some(namespace));
        (place.inits.clone(), place.enclosure.covered.clone())
    };
    // What an agent may see of the directory that contains the workspaces is the workspace.
    let hidden = covered.iter().filter(|path| !workspace.starts_with(path));
    let inside = |path: &PathBuf| Some(workspace.join(path.strip_prefix(template).ok()?));
    let hidden: Vec<PathBuf> = hidden.flat_map(|path| [Some(path.clone()), inside(path)]).flatten().collect();
    let sees_none = |init: u32| hidden.iter().all(|path| is_empty_for(init, path));
    (!inits.is_empty()).then(|| inits.iter().all(|(init, _)| sees_none(*init)))
}

/// Returns whether a process finds nothing at a path: no file, an empty one, or an empty directory. The process must not
/// have changed its root, which an agent's init never does.
fn is_empty_for(pid: u32, path: &Path) -> bool {
    let Ok(inside) = path.strip_prefix("/") else { return false };
    let seen = Path::new("/proc").join(pid.to_string()).join("root").join(inside);
    match fs::metadata(&seen) {
        Ok(found) if found.is_dir() => fs::read_dir(&seen).is_ok_and(|mut entries| entries.next().is_none()),
        // The cover of a file is a device without content.
        Ok(found) => found.len() == 0,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Lets the command's process start in the directory below the mounts on a workspace, so that it does not keep them
/// busy.
pub(super) fn start_below(command: &mut Command, workspace: &Path) -> io::Result<()> {
    let base = places().get(workspace).map(|place| place.base.try_clone()).transpose()?;
    let base = base.ok_or(io::ErrorKind::NotFound)?;
    let enter = move || {
        // SAFETY: fchdir takes a descriptor, which the closure owns.
        if unsafe { libc::fchdir(base.as_raw_fd()) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(enter) };
    Ok(())
}

/// Covers paths in the mount namespace of an agent. Called by its init, in a namespace of its own.
pub(super) fn enclose(enclosure: &Enclosure, env: &BTreeMap<OsString, OsString>) -> io::Result<()> {
    mount(None, Path::new("/"), None, libc::MS_REC | libc::MS_SLAVE, None)?;
    let visible = open_path(&enclosure.visible)?;
    let scratch = enclosure.scratch.as_deref().map(open_path).transpose()?;
    // First, because covered paths may be inside.
    for path in &enclosure.read_only {
        bind(path, path, true)?;
    }
    let mut covers = Vec::new();
    for path in &enclosure.covered {
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => {
                mount(Some("agentline"), path, Some("tmpfs"), COVER, Some("size=64k,mode=0755"))?;
                covers.push(path);
            }
            Ok(_) => bind(Path::new("/dev/null"), path, true)?,
            // It is below a path that is already covered.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let temporary = match &scratch {
        Some(scratch) => replace_temporary(scratch, env)?,
        None => Vec::new(),
    };
    let is_hidden = |dir: &PathBuf| enclosure.visible.starts_with(dir);
    if enclosure.covered.iter().chain(&temporary).any(is_hidden) {
        fs::create_dir_all(&enclosure.visible)?;
        attach(&visible, &enclosure.visible)?;
    }
    if let Some(path) = &enclosure.also_at {
        fs::create_dir_all(path)?;
        attach(&visible, path)?;
    }
    if scratch.is_none() {
        covers.into_iter().try_for_each(|path| make_read_only(path, 0))?;
    } else {
        make_read_only(Path::new("/"), libc::AT_RECURSIVE)?;
        for path in std::iter::once(&enclosure.visible).chain(&enclosure.also_at) {
            make_writable(path, libc::AT_RECURSIVE)?;
        }
        // Programs with namespaces of their own, such as browsers, write there.
        make_writable(Path::new("/proc"), 0)?;
        temporary.iter().try_for_each(|dir| make_writable(dir, 0))?;
    }
    Ok(())
}

/// Mounts a directory in the place of those for temporary files, and returns them. Directories that the environment
/// names, such as the home directory or those of programs, stay where they are.
fn replace_temporary(scratch: &File, env: &BTreeMap<OsString, OsString>) -> io::Result<Vec<PathBuf>> {
    let named = env.get(OsStr::new("TMPDIR")).map(PathBuf::from).filter(|dir| dir.is_dir());
    let all = ["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from).into_iter().chain(named.clone());
    let all: BTreeSet<PathBuf> = all.filter_map(|dir| canonicalize(&dir).ok()).collect();
    let is_below = |path: &Path| all.iter().any(|dir| path != dir && path.starts_with(dir));
    let (inner, outer): (Vec<PathBuf>, Vec<PathBuf>) = all.iter().cloned().partition(|dir| is_below(dir));
    let kept = env.values().flat_map(std::env::split_paths);
    let kept = kept.filter_map(|path| canonicalize(&path).ok());
    let kept: BTreeSet<PathBuf> =
        kept.filter(|path| is_below(path) && path.is_dir() && !all.contains(path)).collect();
    let kept: Vec<(File, &PathBuf)> =
        kept.iter().map(|path| Ok((open_path(path)?, path))).collect::<io::Result<_>>()?;
    for dir in &outer {
        attach(scratch, dir)?;
    }
    for dir in inner.iter().chain(&named) {
        fs::create_dir_all(dir)?;
    }
    let mut attached: Vec<&PathBuf> = Vec::new();
    for (open, path) in kept {
        if !attached.iter().any(|outer| path.starts_with(outer)) {
            fs::create_dir_all(path)?;
            attach(&open, path)?;
            attached.push(path);
        }
    }
    Ok(outer)
}

/// Mounts an open directory on another one, with everything that is mounted below it.
fn attach(from: &File, at: &Path) -> io::Result<()> {
    mount(Some(&name_of(from)), at, None, libc::MS_BIND | libc::MS_REC, None)
}

/// Lets the command's process run without the capabilities that could undo [`enclose`].
pub(super) fn drop_capabilities(command: &mut Command) {
    let drop = || {
        for capability in DROPPED {
            // SAFETY: prctl with this option takes plain numbers. It fails for capabilities that the process lacks.
            unsafe { libc::prctl(libc::PR_CAPBSET_DROP, *capability, 0, 0, 0) };
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls and allocates nothing.
    unsafe { command.pre_exec(drop) };
}

fn open_path(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(path)
}

/// Returns a path of an open file that works in system calls of this process.
fn name_of(file: &File) -> String {
    let number: RawFd = file.as_raw_fd();
    format!("/proc/self/fd/{number}")
}

fn c_string(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

fn mount(
    from: Option<&str>,
    at: &Path,
    kind: Option<&str>,
    flags: libc::c_ulong,
    options: Option<&str>,
) -> io::Result<()> {
    let text = |text: Option<&str>| text.map(CString::new).transpose();
    let (from, kind, options, at) = (text(from)?, text(kind)?, text(options)?, c_string(at)?);
    let pointer = |text: &Option<CString>| text.as_ref().map_or(null(), |text| text.as_ptr());
    // SAFETY: all strings are NUL-terminated and outlive the call; a null pointer means "none".
    let mounted =
        unsafe { libc::mount(pointer(&from), at.as_ptr(), pointer(&kind), flags, pointer(&options).cast()) };
    if mounted == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_finds_is_not_covered() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("full")).expect("a directory");
        fs::create_dir(at("empty")).expect("a directory");
        fs::write(at("full/answer.txt"), "42").expect("a file");
        let own = std::process::id();
        for (path, is_empty) in [
            (at("full"), false),
            (at("full/answer.txt"), false),
            (at("empty"), true),
            (at("missing"), true),
            ("/dev/null".into(), true),
            ("relative".into(), false),
        ] {
            assert_eq!(is_empty_for(own, &path), is_empty, "{}", path.display());
        }
        assert_eq!(are_covered(&at("full"), &at("full")), None, "no agent lives there");
    }
}
