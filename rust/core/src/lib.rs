//! The index of prefixroute: which replica holds how much of a prompt's prefix.
