//! Private directories are private, locked and intact for as long as a process uses them.
