//! A lock on a file that ends with its value.

use std::fs::{File, TryLockError};

/// An exclusive lock on a file. It ends with this value or with the process.
///
/// A process that is being started has copies of all open files for a moment, and with them the locks. Closing the file
/// alone would keep the lock for that moment.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Locks a file.
    ///
    /// # Errors
    /// Fails if another program has locked it, or if files cannot be locked here.
    pub fn try_new(file: File) -> Result<Self, TryLockError> {
        file.try_lock().map(|()| Self(file))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // If it fails, the lock ends when the file is closed.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_ends_with_its_value_although_the_file_is_still_open() {
        let dir = tempfile::tempdir().unwrap();
        let open = || File::create(dir.path().join("lock")).unwrap();
        let file = open();
        let copy = file.try_clone().unwrap();
        let lock = FileLock::try_new(file).unwrap();
        assert!(matches!(FileLock::try_new(open()), Err(TryLockError::WouldBlock)));
        drop(lock);
        FileLock::try_new(open()).unwrap();
        drop(copy);
    }
}
