//! Faults in the working directory: deleted, full of files, or with files that harm a careless reader.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::agent::FakeAgent;
use crate::os;

pub(super) fn cwd_deleted(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    // Only the directory that the test names, and only if it is the working directory: this deletes everything in it.
    let named = agent.text("dir").map(PathBuf::from).unwrap_or_default();
    let cwd = env::current_dir()?;
    if fs::canonicalize(&named).ok() != Some(fs::canonicalize(&cwd)?) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "`dir` must be the working directory"));
    }
    fs::remove_dir_all(&cwd)?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn many_files(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    for number in 0..agent.number("count", 5_000) {
        let folder = format!("many/{}", number % 50);
        fs::create_dir_all(&folder)?;
        fs::write(format!("{folder}/{number}.txt"), format!("{number}\n"))?;
    }
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn big_file(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    fs::write("big.bin", vec![0; agent.size("bytes", 100_000_000)])?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn odd_names(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    for name in
        ["with space.txt", "new\nline.txt", "-rf", "quote\".txt", "né漢🦀.txt", "tab\t.txt", "$(touch x)"]
    {
        fs::write(name, "odd\n")?;
    }
    write_with_invalid_name()?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

#[cfg(unix)]
fn write_with_invalid_name() -> io::Result<()> {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    fs::write(OsStr::from_bytes(b"not-utf8-\xff.txt"), "odd\n")
}

#[cfg(not(unix))]
fn write_with_invalid_name() -> io::Result<()> {
    Ok(())
}

pub(super) fn fifo_in_workspace(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    os::make_fifo(Path::new("pipe"))?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn symlink_loop(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    link(Path::new("."), Path::new("loop"))?;
    link(Path::new("/nowhere/at/all"), Path::new("dangling"))?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

#[cfg(unix)]
fn link(target: &Path, name: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, name)
}

#[cfg(not(unix))]
fn link(_target: &Path, _name: &Path) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this fault requires Unix"))
}

pub(super) fn deletes_files(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    // Regular files of the working directory itself, if the test names one: nothing is deleted by accident.
    if let Some(name) = agent.text("file") {
        fs::remove_file(name)?;
    }
    agent.send_text("I changed nothing.")?;
    agent.succeed()
}

pub(super) fn unreadable_file(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    fs::write("locked.txt", "locked\n")?;
    lock_away(Path::new("locked.txt"))?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

#[cfg(unix)]
fn lock_away(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o000))
}

#[cfg(not(unix))]
fn lock_away(_path: &Path) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this fault requires Unix"))
}
