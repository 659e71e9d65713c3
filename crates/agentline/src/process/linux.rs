//! What only Linux can do: subreaper, /proc, unnamed files, inotify.

#![expect(unsafe_code, reason = "system calls; each is a few lines with its own argument")]

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

/// With a subreaper, "no children left" means "nothing that descends from us is left".
pub(super) const ORPHANS_COME_TO_US: bool = true;

/// Received descriptors are closed in programs that we start.
pub(super) const RECEIVE_FLAGS: libc::c_int = libc::MSG_CMSG_CLOEXEC;

/// The program that runs now, even if its file was replaced since.
pub(super) fn own_program() -> io::Result<PathBuf> {
    Ok("/proc/self/exe".into())
}

/// Makes orphans below us our children, whatever session they are in.
pub(super) fn adopt_orphans() {
    // SAFETY: prctl with this option takes plain numbers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// Gives this process a name that `ps` can show, of at most 15 bytes.
pub(super) fn name_process(name: &CStr) {
    // SAFETY: the name ends in NUL and outlives the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

/// Has the kernel kill what this command starts when we die. For a process with one thread.
pub(super) fn end_with_us(command: &mut Command) {
    let parent = super::unix::own_pid();
    let before_exec = move || {
        namespace::die_with_parent();
        // SAFETY: getppid takes no arguments.
        if unsafe { libc::getppid() } == parent { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(before_exec) };
}

/// Has the kernel resume this process when its parent dies, in case it was stopped.
pub(super) fn resume_at_parent_death() {
    // SAFETY: prctl with this option takes plain numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGCONT, 0, 0, 0) };
}

/// Opens our parent: a descriptor that becomes readable when it dies, which no program that we start inherits.
pub(super) fn open_parent() -> Option<OwnedFd> {
    // SAFETY: both take plain numbers; a descriptor that the kernel returns is new and ours.
    unsafe {
        let opened = libc::syscall(libc::SYS_pidfd_open, libc::getppid(), 0_u32);
        RawFd::try_from(opened).ok().filter(|fd| *fd >= 0).map(|fd| OwnedFd::from_raw_fd(fd))
    }
}

/// Closes every descriptor above stderr. For a process with one thread that uses none of them.
pub(super) fn close_other_files() {
    // SAFETY: nothing in this process refers to those descriptors.
    if unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) } == 0 {
        return;
    }
    let open: Vec<RawFd> = numbers_in("/proc/self/fd");
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        // SAFETY: as above; closing what is closed already only fails.
        unsafe { libc::close(fd) };
    }
}

/// Puts errno back.
pub(super) fn set_errno(errno: libc::c_int) {
    // SAFETY: the location is valid in every thread.
    unsafe { *libc::__errno_location() = errno };
}

/// The ids of all processes.
pub(super) fn pids() -> Vec<i32> {
    numbers_in("/proc")
}

fn numbers_in(folder: &str) -> Vec<i32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// All processes with their parents.
pub(super) fn processes() -> Vec<Listed> {
    let mut stat = Vec::with_capacity(1024);
    pids().into_iter().filter_map(|pid| listed(pid, read_proc(pid, "stat", &mut stat)?)).collect()
}

/// Whether this process is there and not dead.
pub(super) fn lives(pid: i32) -> bool {
    let mut stat = Vec::with_capacity(1024);
    pid > 0
        && read_proc(pid, "stat", &mut stat)
            .and_then(|stat| listed(pid, stat))
            .is_some_and(|process| !process.zombie)
}

/// The lists of the children of some processes, one a thread. They stay open between two looks, because to open them is
/// most of what a look costs.
#[derive(Debug, Default)]
pub(super) struct Lists {
    opened: BTreeMap<(i32, i32), File>,
    since: Option<Instant>,
}

/// A list that was opened for a thread that has ended stays empty when another gets its number, which takes longer.
const LISTS_LAST: Duration = Duration::from_secs(5);

impl Lists {
    /// Those who are told by the list of a thread; `None` where there is none.
    fn children(&mut self, pid: i32, thread: i32, keep: bool, bytes: &mut Vec<u8>) -> Option<Vec<i32>> {
        let list = match self.opened.entry((pid, thread)) {
            Entry::Occupied(opened) => opened.into_mut(),
            Entry::Vacant(place) => {
                let list = File::open(format!("/proc/{pid}/task/{thread}/children")).ok()?;
                if !keep {
                    return numbers(read_all(&list, bytes)?);
                }
                place.insert(list)
            }
        };
        numbers(read_all(list, bytes)?)
    }

    /// Forgets what is too old to be believed, and the threads of a process that have ended.
    fn refresh(&mut self, pid: i32, threads: &[i32]) {
        if self.since.is_none_or(|since| since.elapsed() > LISTS_LAST) {
            self.opened.clear();
            self.since = Some(Instant::now());
        }
        self.opened.retain(|(of, thread), _| *of != pid || threads.contains(thread));
    }
}

/// Tells whether any process was born, and who was born after a moment.
#[derive(Debug)]
pub(super) struct Births(File);

/// A moment that births are told from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// The number that had been given last to a process or thread, of whomever. The next gets the next one that is free;
    /// after the greatest they begin again.
    newest: i32,
    /// In the system's ticks since its start. A tick is long enough for several births.
    tick: u64,
}

impl Births {
    /// `None` where the system does not tell it as it should: some put a file of their own in this place, or one that
    /// always says the same. It must have heard of this process.
    pub(super) fn after(process: i32) -> Option<Self> {
        let file = File::open("/proc/loadavg").ok()?;
        let is_of_system = file.metadata().ok()?.dev() == fs::metadata("/proc/self").ok()?.dev();
        let births = Self(file);
        births.newest().filter(|newest| is_of_system && *newest >= process)?;
        Some(births)
    }

    /// This moment.
    pub(super) fn now(&self) -> Option<Moment> {
        Some(Moment { newest: self.newest()?, tick: tick()? })
    }

    /// Whether nobody was born anywhere since then.
    pub(super) fn none_since(&self, moment: &Moment) -> bool {
        self.newest() == Some(moment.newest)
    }

    /// Whether this process was born since then. One that is gone was not.
    pub(super) fn is_since(&self, pid: i32, moment: &Moment) -> bool {
        let mut stat = Vec::with_capacity(1024);
        let Some(born) = read_proc(pid, "stat", &mut stat).and_then(born_at) else { return false };
        match born.cmp(&moment.tick) {
            Ordering::Less => false,
            Ordering::Greater => true,
            Ordering::Equal => self.newest().is_none_or(|newest| was_given_since(pid, moment.newest, newest)),
        }
    }

    fn newest(&self) -> Option<i32> {
        let mut bytes = [0; 128];
        let read = self.0.read_at(&mut bytes, 0).ok()?;
        std::str::from_utf8(&bytes[..read]).ok()?.split_ascii_whitespace().last()?.parse().ok()
    }
}

/// Whether a number was given after one and not after the other.
fn was_given_since(number: i32, after: i32, until: i32) -> bool {
    if after <= until {
        (after + 1..=until).contains(&number)
    } else {
        // They began again.
        number > after || number <= until
    }
}

/// The tick that it is now.
fn tick() -> Option<u64> {
    // SAFETY: the first takes a plain number; the second fills in the time, which outlives the call.
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

/// The tick in which a process was born.
fn born_at(stat: &[u8]) -> Option<u64> {
    std::str::from_utf8(after_name(stat)?.nth(19)?).ok()?.parse().ok()
}

fn numbers(list: &[u8]) -> Option<Vec<i32>> {
    let words = std::str::from_utf8(list).ok()?.split_ascii_whitespace();
    Some(words.filter_map(|word| word.parse().ok()).collect())
}

/// All that descend from these, the dead that wait to be reaped left out. Where the system lists children, only those
/// are looked at; else all processes.
pub(super) fn descendants_of(roots: &BTreeSet<i32>, lists: &mut Lists) -> BTreeSet<i32> {
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
                // The thread ended meanwhile.
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

/// How much memory a process and all that descend from it have to themselves, in bytes.
pub(super) fn memory_of(root: i32) -> Option<u64> {
    let mut all = descendants_of(&BTreeSet::from([root]), &mut Lists::default());
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

/// The words of `pid (name) state parent …` behind the name, which may hold anything, brackets and spaces included.
fn after_name(stat: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    Some(stat[after_name..].split(|byte| *byte == b' ').filter(|word| !word.is_empty()))
}

fn listed(pid: i32, stat: &[u8]) -> Option<Listed> {
    let mut words = after_name(stat)?;
    let zombie = matches!(words.next()?, b"Z" | b"X");
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse().ok();
    let (parent, _group, session) = (number()?, number()?, number()?);
    Some(Listed { pid, parent, session, zombie })
}

/// Asks something about the environment that a process was started with; `false` if we may not see it.
pub(super) fn environment_of(pid: i32, ask: impl FnOnce(&[u8]) -> bool) -> bool {
    read_proc(pid, "environ", &mut Vec::with_capacity(8192)).is_some_and(ask)
}

fn read_proc<'a>(pid: i32, what: &str, bytes: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    read_all(&File::open(format!("/proc/{pid}/{what}")).ok()?, bytes)
}

/// What a page leaves out of a list is no longer than the last number in it.
const SHORTER_THAN_A_PAGE: usize = 4000;

/// Reads a file of the system from its beginning.
fn read_all<'a>(file: &File, bytes: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    bytes.clear();
    let mut length = 0;
    // Such a file does not know how long it is, so it is not asked. But it gives as much as there is room for, a page at
    // most; so one that gives less than both was read to its end.
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

/// A file without a name, for us to read and, as a second handle, for others to append to.
///
/// It is on disk where that works, else in memory, else on disk with a name that is gone when this returns.
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
    // SAFETY: the name ends in NUL; the descriptor is new and ours.
    unsafe {
        let fd = libc::memfd_create(c"agentline".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(File::from_raw_fd(fd)) }
    }
}

/// Gives the bytes of a file in this range back to the system; the size stays. Best effort.
pub(super) fn release(file: &File, from: u64, to: u64) {
    let (Ok(offset), Ok(length)) = (from.try_into(), to.saturating_sub(from).try_into()) else { return };
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: fallocate takes plain numbers.
    unsafe { libc::fallocate64(file.as_raw_fd(), punch, offset, length) };
}

/// Lets a pipe hold a megabyte, so that a writer seldom waits for us. Best effort.
pub(super) fn widen_pipe(pipe: RawFd) {
    // SAFETY: fcntl with this command takes plain numbers.
    unsafe { libc::fcntl(pipe, libc::F_SETPIPE_SZ, 1 << 20) };
}

/// Room for some notices of writes; only that there are any is of interest.
const NOTICES: usize = 4096;

/// Tells when one of some files was written to.
#[derive(Debug)]
pub(super) struct Watch {
    /// Always there until the drop.
    inotify: Option<AsyncFd<File>>,
}

impl Watch {
    /// A watch on these files, or `None` where the system has none to give.
    pub(super) fn new(files: &[&File]) -> Option<Self> {
        // SAFETY: the descriptor is new and ours.
        let inotify = unsafe {
            let fd = libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC);
            if fd < 0 {
                return None;
            }
            File::from_raw_fd(fd)
        };
        for file in files {
            let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
            // SAFETY: the path ends in NUL.
            if unsafe { libc::inotify_add_watch(inotify.as_raw_fd(), path.as_ptr(), libc::IN_MODIFY) } < 0 {
                return None;
            }
        }
        Some(Self { inotify: Some(super::unix::readable_by_runtime(inotify).ok()?) })
    }

    /// How many of the files are known to have been written to since they were last asked about. Some file systems take
    /// a watch and then tell nothing.
    pub(super) fn heard(&mut self) -> usize {
        let read = self.inotify.as_mut().map(|inotify| inotify.get_mut().read(&mut [0; NOTICES]));
        read.and_then(Result::ok).unwrap_or(0) / size_of::<libc::inotify_event>()
    }

    /// Waits for a write. What was written before the last call returned may be told again, never kept back.
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
        // The runtime is going down; nothing will be told any more.
        std::future::pending().await
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let inotify = self.inotify.take().map(AsyncFd::into_inner);
        // The system takes some 15 ms to close a watch, and nobody should have to wait for that. If there is no thread
        // to be had, the closure is dropped, and the watch with it, here.
        let _ = std::thread::Builder::new().name("agentline-close".into()).spawn(move || drop(inotify));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn numbers_of_processes_begin_again() {
        let given = |number| was_given_since(number, 10, 20);
        assert_eq!([10, 11, 20, 21].map(given), [false, true, true, false]);
        let given = |number| was_given_since(number, 30, 4);
        assert_eq!([30, 31, 1, 4, 5].map(given), [false, true, true, true, false]);
        assert!(!was_given_since(7, 7, 7));
    }

    #[test]
    fn a_name_cannot_disguise_a_process() {
        let process = listed(7, b"7 (a) Z 99 (b)) S 42 7 7").unwrap();
        assert_eq!((process.pid, process.parent, process.zombie), (7, 42, false));
        assert!(listed(7, b"7 (a) Z 42 7 7").unwrap().zombie);
        assert!(listed(7, b"").is_none());
    }

    #[tokio::test]
    async fn a_watch_tells_of_writes_of_others() {
        let (ours, mut theirs) = unnamed_file().unwrap();
        let mut watch = Watch::new(&[&ours]).unwrap();
        let soon = std::time::Duration::from_millis(50);
        assert!(tokio::time::timeout(soon, watch.written()).await.is_err());
        for _ in 0..2 {
            theirs.write_all(b"text").unwrap();
            tokio::time::timeout(100 * soon, watch.written()).await.unwrap();
        }
        assert_eq!(watch.heard(), 0);
        theirs.write_all(b"text").unwrap();
        assert_eq!(watch.heard(), 1);
    }

    #[test]
    fn who_was_started_is_found_in_lists_that_are_open() {
        let roots = BTreeSet::from([std::process::id().cast_signed()]);
        let mut lists = Lists::default();
        let before = descendants_of(&roots, &mut lists);
        for by_another_thread in [false, true] {
            let start = || std::process::Command::new("sleep").arg("600").spawn().unwrap();
            // The child of a thread that ended is that of another one.
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
    fn we_find_ourselves() {
        let own = std::process::id().cast_signed();
        assert!(
            processes().iter().any(|process| process.pid == own && process.parent > 0 && !process.zombie)
        );
        assert!(environment_of(own, |env| !env.is_empty()));
    }
}
