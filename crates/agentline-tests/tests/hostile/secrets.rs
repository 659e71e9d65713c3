//! A secret stays redacted however it is spelled or split.
