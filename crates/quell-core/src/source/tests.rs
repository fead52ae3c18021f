//! The source by itself.
