//! Linux-specific code: subreaper, `/proc`, unnamed files and inotify.

#![expect(unsafe_code, reason = "system calls; each is a few lines with its own SAFETY comment")]

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};
use std::ffi::{CStr, CString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use tokio::io::unix::AsyncFd;

use super::kill::Listed;

#[path = "namespace.rs"]
pub(super) mod namespace;

/// Whether orphans become children of this process. With a subreaper, "no children left" means "no descendants left".
pub(super) const IS_SUBREAPER: bool = true;

/// Received descriptors are closed in child programs.
pub(super) const RECEIVE_FLAGS: libc::c_int = libc::MSG_CMSG_CLOEXEC;

/// The clock that also counts the time in which the system is suspended.
pub(super) const BOOT_CLOCK: libc::clockid_t = libc::CLOCK_BOOTTIME;

/// Returns the path of the running program, which works even if its file has been replaced.
pub(super) fn own_program() -> io::Result<PathBuf> {
    Ok("/proc/self/exe".into())
}

/// Makes orphaned descendants children of this process, in whatever session they are.
pub(super) fn adopt_orphans() {
    // SAFETY: prctl with this option takes plain numbers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// Sets the process name that `ps` shows, at most 15 bytes.
pub(super) fn name_process(name: &CStr) {
    // SAFETY: the name is NUL-terminated and outlives the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

/// Makes the kernel kill the command's process when this process dies. Only for a single-threaded process.
pub(super) fn kill_with_parent(command: &mut Command) {
    let parent = super::unix::own_pid();
    let before_exec = move || {
        namespace::die_with_parent();
        // SAFETY: getppid takes no arguments.
        if unsafe { libc::getppid() } == parent { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(before_exec) };
}

/// Makes the kernel resume this process when its parent dies, in case it was stopped.
pub(super) fn resume_at_parent_death() {
    // SAFETY: prctl with this option takes plain numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGCONT, 0, 0, 0) };
}

/// Opens a pidfd of the parent, which becomes readable when the parent dies and is closed in child programs.
pub(super) fn open_parent() -> Option<OwnedFd> {
    // SAFETY: both calls take plain numbers; the returned descriptor is new and has no other owner.
    unsafe {
        let opened = libc::syscall(libc::SYS_pidfd_open, libc::getppid(), 0_u32);
        RawFd::try_from(opened).ok().filter(|fd| *fd >= 0).map(|fd| OwnedFd::from_raw_fd(fd))
    }
}

/// Closes every descriptor above stderr. Only for a single-threaded process that uses none of them.
pub(super) fn close_other_files() {
    // SAFETY: nothing in this process refers to those descriptors.
    if unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) } == 0 {
        return;
    }
    let open: Vec<RawFd> = numbers_in("/proc/self/fd");
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        // SAFETY: as above; closing a descriptor that is already closed only fails.
        unsafe { libc::close(fd) };
    }
}

/// Restores errno.
pub(super) fn set_errno(errno: libc::c_int) {
    // SAFETY: the location is valid in every thread.
    unsafe { *libc::__errno_location() = errno };
}

/// Returns the ids of all processes.
pub(super) fn pids() -> Vec<i32> {
    numbers_in("/proc")
}

fn numbers_in(folder: &str) -> Vec<i32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns all processes with their parents.
pub(super) fn processes() -> Vec<Listed> {
    let mut stat = Vec::with_capacity(1024);
    pids().into_iter().filter_map(|pid| listed(pid, read_proc(pid, "stat", &mut stat)?)).collect()
}

/// Returns whether this process exists and is not a zombie.
pub(super) fn is_alive(pid: i32) -> bool {
    let mut stat = Vec::with_capacity(1024);
    pid > 0
        && read_proc(pid, "stat", &mut stat)
            .and_then(|stat| listed(pid, stat))
            .is_some_and(|process| !process.zombie)
}

/// The open lists of children of some processes, one per thread.
///
/// They stay open between two searches, because opening them is most of the cost of a search.
#[derive(Debug, Default)]
pub(super) struct ChildLists {
    opened: BTreeMap<(i32, i32), File>,
    since: Option<Instant>,
}

/// How long a list stays open. The list of an ended thread stays empty even if its id is reused, but reuse takes
/// longer.
const LISTS_LAST: Duration = Duration::from_secs(5);

impl ChildLists {
    /// Returns the children in the list of a thread, or `None` if there is no list.
    fn children(&mut self, pid: i32, thread: i32, keep: bool, bytes: &mut Vec<u8>) -> Option<Vec<i32>> {
        let list = match self.opened.entry((pid, thread)) {
            Entry::Occupied(opened) => opened.into_mut(),
            Entry::Vacant(slot) => {
                let list = File::open(format!("/proc/{pid}/task/{thread}/children")).ok()?;
                if !keep {
                    return numbers(read_all(&list, bytes)?);
                }
                slot.insert(list)
            }
        };
        numbers(read_all(list, bytes)?)
    }

    /// Closes lists that are too old, and those of threads of this process that have ended.
    fn refresh(&mut self, pid: i32, threads: &[i32]) {
        if self.since.is_none_or(|since| since.elapsed() > LISTS_LAST) {
            self.opened.clear();
            self.since = Some(Instant::now());
        }
        self.opened.retain(|(of, thread), _| *of != pid || threads.contains(thread));
    }
}

/// Reports whether any process was born, and which ones were born after a given time.
#[derive(Debug)]
pub(super) struct BirthDetector(File);

/// A point in time that births are compared with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BirthMark {
    /// The id that was last assigned to any process or thread on the system. The next one gets the next free id; after
    /// the maximum, ids wrap around.
    newest: i32,
    /// The time in clock ticks since boot. Several processes can be born in one tick.
    tick: u64,
}

impl BirthDetector {
    /// Opens the source of births, or returns `None` if it is not reliable.
    ///
    /// The file is not reliable if it belongs to another system or never changes. So a thread is started, and its id must
    /// count as assigned. A comparison with an older id would fail after ids have wrapped around.
    pub(super) fn open() -> Option<Self> {
        let file = File::open("/proc/loadavg").ok()?;
        let is_of_system = file.metadata().ok()?.dev() == fs::metadata("/proc/self").ok()?.dev();
        let births = is_of_system.then_some(Self(file))?;
        let before = births.newest()?;
        // SAFETY: gettid takes no arguments and cannot fail.
        let thread = std::thread::Builder::new().spawn(|| unsafe { libc::gettid() }).ok()?.join().ok()?;
        was_assigned_since(thread, before, births.newest()?).then_some(births)
    }

    /// Returns the current point in time.
    pub(super) fn now(&self) -> Option<BirthMark> {
        Some(BirthMark { newest: self.newest()?, tick: tick()? })
    }

    /// Returns whether no process was born anywhere since then.
    pub(super) fn none_since(&self, moment: &BirthMark) -> bool {
        self.newest() == Some(moment.newest)
    }

    /// Returns whether this process was born since then; `false` if it is gone.
    pub(super) fn is_since(&self, pid: i32, moment: &BirthMark) -> bool {
        let mut stat = Vec::with_capacity(1024);
        let Some(born) = read_proc(pid, "stat", &mut stat).and_then(born_at) else { return false };
        match born.cmp(&moment.tick) {
            Ordering::Less => false,
            Ordering::Greater => true,
            Ordering::Equal => {
                self.newest().is_none_or(|newest| was_assigned_since(pid, moment.newest, newest))
            }
        }
    }

    fn newest(&self) -> Option<i32> {
        let mut bytes = [0; 128];
        let read = self.0.read_at(&mut bytes, 0).ok()?;
        std::str::from_utf8(&bytes[..read]).ok()?.split_ascii_whitespace().last()?.parse().ok()
    }
}

/// Returns whether an id was assigned after `after` and up to `until`.
fn was_assigned_since(number: i32, after: i32, until: i32) -> bool {
    if after <= until {
        (after + 1..=until).contains(&number)
    } else {
        // The ids wrapped around.
        number > after || number <= until
    }
}

/// Returns the current clock tick.
fn tick() -> Option<u64> {
    // SAFETY: sysconf takes a plain number; clock_gettime fills in the time, which outlives the call.
    let (rate, now) = unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        let rate = libc::sysconf(libc::_SC_CLK_TCK);
        (libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) == 0).then_some((rate, now))?
    };
    let (rate, seconds, nanos) =
        (u64::try_from(rate).ok()?, u64::try_from(now.tv_sec).ok()?, u64::try_from(now.tv_nsec).ok()?);
    let length = 1_000_000_000_u64.checked_div(rate)?;
    Some(seconds * rate + nanos / length)
}

/// Returns the clock tick in which a process was born.
fn born_at(stat: &[u8]) -> Option<u64> {
    std::str::from_utf8(after_name(stat)?.nth(19)?).ok()?.parse().ok()
}

fn numbers(list: &[u8]) -> Option<Vec<i32>> {
    let fields = std::str::from_utf8(list).ok()?.split_ascii_whitespace();
    Some(fields.filter_map(|field| field.parse().ok()).collect())
}

/// Returns all descendants of these processes, except zombies.
///
/// Where the system lists children, only those lists are read; otherwise all processes are.
pub(super) fn descendants_of(roots: &BTreeSet<i32>, lists: &mut ChildLists) -> BTreeSet<i32> {
    let (mut found, mut open) = (BTreeSet::new(), roots.iter().copied().collect::<Vec<_>>());
    let mut is_new = |child: &i32| !roots.contains(child) && found.insert(*child);
    let mut bytes = Vec::with_capacity(256);
    while let Some(pid) = open.pop() {
        let threads = numbers_in(&format!("/proc/{pid}/task"));
        let is_root = roots.contains(&pid);
        if is_root {
            lists.refresh(pid, &threads);
        }
        for thread in threads {
            let Some(children) = lists.children(pid, thread, is_root, &mut bytes) else {
                if !children_are_listed() {
                    return super::kill::descendants(&processes(), roots);
                }
                // The thread has ended meanwhile.
                continue;
            };
            open.extend(children.into_iter().filter(&mut is_new));
        }
    }
    found.retain(|pid| {
        read_proc(*pid, "stat", &mut bytes).and_then(|stat| listed(*pid, stat)).is_some_and(|p| !p.zombie)
    });
    found
}

fn children_are_listed() -> bool {
    let own = super::unix::own_pid();
    std::path::Path::new(&format!("/proc/{own}/task/{own}/children")).exists()
}

/// Returns the total resident memory of a process and its descendants, in bytes.
pub(super) fn memory_of(root: i32) -> Option<u64> {
    let mut all = descendants_of(&BTreeSet::from([root]), &mut ChildLists::default());
    all.insert(root);
    let mut bytes = Vec::with_capacity(2048);
    let mut resident = |pid: i32| -> Option<u64> {
        let status = std::str::from_utf8(read_proc(pid, "status", &mut bytes)?).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
    };
    resident(root)?;
    Some(all.into_iter().filter_map(resident).sum())
}

/// Returns the words of `pid (name) state parent …` after the name, which may itself contain brackets and spaces.
fn after_name(stat: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    Some(stat[after_name..].split(|byte| *byte == b' ').filter(|word| !word.is_empty()))
}

fn listed(pid: i32, stat: &[u8]) -> Option<Listed> {
    let mut fields = after_name(stat)?;
    let zombie = matches!(fields.next()?, b"Z" | b"X");
    let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
    let (parent, _group, session) = (number()?, number()?, number()?);
    Some(Listed { pid, parent, session, zombie })
}

/// Applies `ask` to the initial environment of a process; returns `false` if it cannot be read.
pub(super) fn environment_matches(pid: i32, ask: impl FnOnce(&[u8]) -> bool) -> bool {
    read_proc(pid, "environ", &mut Vec::with_capacity(8192)).is_some_and(ask)
}

fn read_proc<'a>(pid: i32, name: &str, bytes: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    read_all(&File::open(format!("/proc/{pid}/{name}")).ok()?, bytes)
}

/// A read shorter than this is not a full page: a read stops at most one number before the end of a page.
const SHORTER_THAN_A_PAGE: usize = 4000;

/// Reads a file of `/proc` from its beginning.
fn read_all<'a>(file: &File, bytes: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    bytes.clear();
    let mut length = 0;
    // Files of `/proc` do not report their length. A read returns as much as fits, but at most a page, so a read that
    // returns less than both has reached the end.
    loop {
        bytes.resize(bytes.capacity().max(256).max(2 * length), 0);
        let room = bytes.len() - length;
        match file.read_at(&mut bytes[length..], length as u64) {
            Ok(0) => break,
            Ok(read) => {
                length += read;
                if read < room.min(SHORTER_THAN_A_PAGE) {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    bytes.truncate(length);
    Some(bytes)
}

/// Creates an unnamed file, and returns a handle to read from it and one to append to it.
///
/// The file is on disk if possible, otherwise in memory, otherwise on disk with a name that is removed before this
/// returns.
pub(super) fn unnamed_file() -> io::Result<(File, File)> {
    let on_disk = OpenOptions::new()
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_TMPFILE | libc::O_EXCL)
        .open(std::env::temp_dir());
    let ours = on_disk.or_else(|_| in_memory())?;
    match OpenOptions::new().append(true).open(format!("/proc/self/fd/{}", ours.as_raw_fd())) {
        Ok(theirs) => Ok((ours, theirs)),
        Err(_) => super::tail::file_with_passing_name(),
    }
}

fn in_memory() -> io::Result<File> {
    // SAFETY: the name is NUL-terminated; the descriptor is new and has no other owner.
    unsafe {
        let fd = libc::memfd_create(c"agentline".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(File::from_raw_fd(fd)) }
    }
}

/// Returns the disk space of this range of a file to the system and keeps the size. Best effort.
pub(super) fn release(file: &File, from: u64, to: u64) {
    let (Ok(offset), Ok(length)) = (from.try_into(), to.saturating_sub(from).try_into()) else { return };
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: fallocate takes plain numbers.
    unsafe { libc::fallocate64(file.as_raw_fd(), punch, offset, length) };
}

/// Enlarges a pipe to one megabyte, so that the writer rarely blocks. Best effort.
pub(super) fn widen_pipe(pipe: RawFd) {
    // SAFETY: fcntl with this command takes plain numbers.
    unsafe { libc::fcntl(pipe, libc::F_SETPIPE_SZ, 1 << 20) };
}

/// The buffer size for notifications; only their presence and number matter.
const NOTICES: usize = 4096;

/// Reports writes to a set of files.
#[derive(Debug)]
pub(super) struct FileWatch {
    /// `Some` until the drop.
    inotify: Option<AsyncFd<File>>,
}

impl FileWatch {
    /// Watches these files; returns `None` where the system offers no watch.
    pub(super) fn new(files: &[&File]) -> Option<Self> {
        // SAFETY: the descriptor is new and has no other owner.
        let inotify = unsafe {
            let fd = libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC);
            if fd < 0 {
                return None;
            }
            File::from_raw_fd(fd)
        };
        for file in files {
            let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
            // SAFETY: the path is NUL-terminated.
            if unsafe { libc::inotify_add_watch(inotify.as_raw_fd(), path.as_ptr(), libc::IN_MODIFY) } < 0 {
                return None;
            }
        }
        Some(Self { inotify: Some(super::unix::readable_by_runtime(inotify).ok()?) })
    }

    /// Returns the number of pending write notifications and clears them. Some file systems accept a watch and then
    /// report nothing.
    pub(super) fn take_notifications(&mut self) -> usize {
        let read = self.inotify.as_mut().map(|inotify| inotify.get_mut().read(&mut [0; NOTICES]));
        read.and_then(Result::ok).unwrap_or(0) / size_of::<libc::inotify_event>()
    }

    /// Waits for a write. It may report a write that was already read, but never misses one.
    pub(super) async fn written(&mut self) {
        let mut notices = [0; NOTICES];
        while let Some(inotify) = &mut self.inotify
            && let Ok(mut ready) = inotify.readable_mut().await
        {
            let mut seen = false;
            while ready.try_io(|inotify| inotify.get_mut().read(&mut notices)).is_ok_and(|read| read.is_ok())
            {
                seen = true;
            }
            if seen {
                return;
            }
        }
        // The runtime is shutting down, so no further writes will be reported.
        std::future::pending().await
    }
}

impl Drop for FileWatch {
    fn drop(&mut self) {
        let inotify = self.inotify.take().map(AsyncFd::into_inner);
        // The system takes about 15 ms to close a watch, so a separate thread does it. If no thread can be started, the
        // closure is dropped here, and the watch with it.
        let _ = std::thread::Builder::new().name("agentline-close".into()).spawn(move || drop(inotify));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn process_ids_wrap_around() {
        let is_assigned = |number| was_assigned_since(number, 10, 20);
        assert_eq!([10, 11, 20, 21].map(is_assigned), [false, true, true, false]);
        let is_assigned = |number| was_assigned_since(number, 30, 4);
        assert_eq!([30, 31, 1, 4, 5].map(is_assigned), [false, true, true, true, false]);
        assert!(!was_assigned_since(7, 7, 7));
    }

    #[test]
    fn process_name_cannot_forge_stat_fields() {
        let process = listed(7, b"7 (a) Z 99 (b)) S 42 7 7").unwrap();
        assert_eq!((process.pid, process.parent, process.zombie), (7, 42, false));
        assert!(listed(7, b"7 (a) Z 42 7 7").unwrap().zombie);
        assert!(listed(7, b"").is_none());
    }

    #[tokio::test]
    async fn watch_reports_writes_of_other_processes() {
        let (ours, mut theirs) = unnamed_file().unwrap();
        let mut watch = FileWatch::new(&[&ours]).unwrap();
        let soon = std::time::Duration::from_millis(50);
        assert!(tokio::time::timeout(soon, watch.written()).await.is_err());
        for _ in 0..2 {
            theirs.write_all(b"text").unwrap();
            tokio::time::timeout(100 * soon, watch.written()).await.unwrap();
        }
        assert_eq!(watch.take_notifications(), 0);
        theirs.write_all(b"text").unwrap();
        assert_eq!(watch.take_notifications(), 1);
    }

    #[test]
    fn new_children_are_found_in_open_child_lists() {
        let roots = BTreeSet::from([std::process::id().cast_signed()]);
        let mut lists = ChildLists::default();
        let before = descendants_of(&roots, &mut lists);
        for by_another_thread in [false, true] {
            let start = || std::process::Command::new("sleep").arg("600").spawn().unwrap();
            // A child of an ended thread moves to another thread of the process.
            let mut child =
                if by_another_thread { std::thread::spawn(start).join().unwrap() } else { start() };
            let pid = child.id().cast_signed();
            assert!(!before.contains(&pid) && descendants_of(&roots, &mut lists).contains(&pid));
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(!descendants_of(&roots, &mut lists).contains(&pid));
        }
    }

    #[test]
    fn own_process_is_listed() {
        let own = std::process::id().cast_signed();
        assert!(
            processes().iter().any(|process| process.pid == own && process.parent > 0 && !process.zombie)
        );
        assert!(environment_matches(own, |env| !env.is_empty()));
    }
}
