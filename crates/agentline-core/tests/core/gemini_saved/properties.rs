//! What holds for every session, whole or damaged.
