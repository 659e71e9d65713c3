//! Mounts for workspaces: a mount namespace of this process, overlays in it, and the view that an agent has of them.
//!
//! The mount namespace belongs to this process ([`enter`]), so it and everything that it starts see the same files on the
//! same paths. An agent in an overlay gets a further mount namespace, which receives the mounts of workspaces from this
//! one and nothing else, and in which some paths are covered ([`Enclosure`]).

#![expect(unsafe_code, reason = "system calls; each is a few lines with its own SAFETY comment")]

use std::collections::{BTreeMap, btree_map::Entry};
use std::ffi::CString;
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
use super::{Enclosure, Isolation, ProcessExit, unix};
use crate::fs::remove::remove_tree;

/// How long an unmount waits for the files of a workspace to be closed.
const UNMOUNT_TIME: Duration = Duration::from_millis(200);

/// The pause between two attempts to unmount.
const UNMOUNT_INTERVAL: Duration = Duration::from_millis(5);

/// The flags of mounts on covered paths.
const COVER: libc::c_ulong = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;

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

/// Mounts a directory on another one.
pub(crate) fn bind(from: &Path, at: &Path, is_read_only: bool) -> io::Result<()> {
    let from = open_path(from)?;
    mount(Some(&name_of(&from)), at, None, libc::MS_BIND, None)?;
    if is_read_only {
        make_read_only(at)?;
    }
    Ok(())
}

/// Makes a mount read-only and keeps its other flags, which a user namespace may not change.
fn make_read_only(at: &Path) -> io::Result<()> {
    /// The argument of `mount_setattr`.
    #[repr(C)]
    struct MountAttributes {
        set: u64,
        cleared: u64,
        propagation: u64,
        user_namespace: u64,
    }
    const READ_ONLY: u64 = 1;
    let path = c_string(at)?;
    let attributes = MountAttributes { set: READ_ONLY, cleared: 0, propagation: 0, user_namespace: 0 };
    // SAFETY: the path is NUL-terminated, both outlive the call, and the size of the structure is passed.
    let changed = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            0,
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

/// The directories below mounted workspaces, by the path of the workspace.
static BASES: Mutex<BTreeMap<PathBuf, (Enclosure, OwnedFd)>> = Mutex::new(BTreeMap::new());

fn bases() -> MutexGuard<'static, BTreeMap<PathBuf, (Enclosure, OwnedFd)>> {
    BASES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers the place of a workspace before anything is mounted there, or replaces the view of agents that start there
/// later.
pub(crate) fn register(workspace: &Path, enclosure: Enclosure) -> io::Result<()> {
    match bases().entry(workspace.to_owned()) {
        // The directory itself may be below a mount by now.
        Entry::Occupied(mut known) => known.get_mut().0 = enclosure,
        Entry::Vacant(new) => _ = new.insert((enclosure, open_path(workspace)?.into())),
    }
    Ok(())
}

/// Forgets the place of a workspace.
pub(crate) fn forget(workspace: &Path) {
    bases().remove(workspace);
}

/// Returns what an agent sees that starts in this directory, if it is the place of a workspace.
pub(crate) fn enclosure(workspace: &Path) -> Option<Enclosure> {
    bases().get(workspace).map(|(enclosure, _)| enclosure.clone())
}

/// Lets the command's process start in the directory below the mounts on a workspace, so that it does not keep them
/// busy.
pub(super) fn start_below(command: &mut Command, workspace: &Path) -> io::Result<()> {
    let base = bases().get(workspace).map(|(_, base)| base.try_clone()).transpose()?;
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
pub(super) fn enclose(enclosure: &Enclosure) -> io::Result<()> {
    mount(None, Path::new("/"), None, libc::MS_REC | libc::MS_SLAVE, None)?;
    let visible = open_path(&enclosure.visible)?;
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
    if fs::metadata(&enclosure.visible).is_err() {
        fs::create_dir_all(&enclosure.visible)?;
        let from = name_of(&visible);
        mount(Some(&from), &enclosure.visible, None, libc::MS_BIND | libc::MS_REC, None)?;
    }
    for path in covers {
        make_read_only(path)?;
    }
    Ok(())
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
