//! Servers that stop, die and forget.
