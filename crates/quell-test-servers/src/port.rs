//! Ports that nobody listens on.
//!
//! They lie below the range from which systems take the local ports of outgoing connections. A client that keeps
//! connecting while its server is down could otherwise be given the server's own port and end up connected to
//! itself, and the server would find its port taken when it starts again.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

const PORTS: Range<u16> = 20_000..32_700;

/// A port that was free a moment ago. Another process may be faster, so the server's own start has the last word.
pub(crate) fn free() -> io::Result<u16> {
    let count = PORTS.end - PORTS.start;
    // A hasher of std is seeded from the system, which is chance enough to spread the test processes of a machine.
    let chance = RandomState::new().hash_one(std::process::id()) % u64::from(count);
    let first = u16::try_from(chance).expect("less than the count, which is a u16");
    (0..count)
        .map(|step| PORTS.start + (first + step) % count)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::AddrInUse, "no free port on the loopback address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_can_be_listened_on() {
        let port = free().unwrap();
        assert!(PORTS.contains(&port));
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
    }
}
