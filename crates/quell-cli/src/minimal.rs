//! The smallest process that keeps something: opens the file that it is given, appends 200 bytes, syncs them and exits.
//! `quell bench hook` compares a hook with it.

use std::fs::OpenOptions;
use std::io::{Error, Write};

fn main() -> Result<(), Error> {
    let path = std::env::args_os().nth(1).ok_or_else(|| Error::other("name a file"))?;
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(&[b'x'; 200])?;
    file.sync_data()
}
