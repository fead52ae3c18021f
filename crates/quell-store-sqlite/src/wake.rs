//! Waking sleepers: in this process by a counter, in other processes by a datagram.
//!
//! Every open store has a socket in the folder `<file>-wake`. After a commit that made something due earlier than
//! sleepers know, one byte goes to each of them (73 µs to the other side, against milliseconds for watching the file).
//! A wake-up is a hint: a lost one costs at most the poll of `PRAGMA data_version`, which every store does as a backstop.
//! A socket that nobody reads belongs to a process that died; whoever notices removes it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use quell_core::store::Wakeups;
use tokio::sync::watch;

/// How often a store looks whether another process wrote, in case a datagram was lost.
pub(crate) const BACKSTOP: Duration = Duration::from_secs(2);

/// A socket path must fit into `sun_path`; the shortest limit among Unix systems is 104 bytes.
#[cfg(unix)]
const SOCKET_PATH_MAX: usize = 100;

/// Tells listeners of this process and of others.
pub(crate) struct Bell {
    rung: watch::Sender<u64>,
    peers: Option<Peers>,
    pub(crate) closing: AtomicBool,
}

impl Bell {
    pub(crate) fn new(database: &Path, name: &str) -> Arc<Self> {
        let peers = Peers::join(database, name);
        Arc::new(Bell { rung: watch::Sender::new(0), peers, closing: AtomicBool::new(false) })
    }

    /// Something may be due earlier than sleepers know, here and elsewhere.
    pub(crate) fn ring(&self) {
        self.ring_here();
        if let Some(peers) = &self.peers {
            peers.tell();
        }
    }

    pub(crate) fn ring_here(&self) {
        self.rung.send_modify(|count| *count += 1);
    }

    pub(crate) fn listener(&self) -> Box<dyn Wakeups> {
        Box::new(Listener(self.rung.subscribe()))
    }

    /// Waits for another process's byte, at most [`BACKSTOP`]. Says whether one came.
    pub(crate) fn wait(&self) -> bool {
        match &self.peers {
            Some(peers) => peers.wait(),
            None => {
                std::thread::park_timeout(BACKSTOP);
                false
            }
        }
    }

    /// Ends [`Bell::wait`] for good.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        if let Some(peers) = &self.peers {
            peers.leave();
        }
    }
}

struct Listener(watch::Receiver<u64>);

#[async_trait]
impl Wakeups for Listener {
    async fn woken(&mut self) {
        if self.0.changed().await.is_err() {
            // The store is gone: nothing will ever be due.
            std::future::pending::<()>().await;
        }
    }
}

/// Wakes every process that has the store in this file open, from one that has not: they look whether something is due.
#[cfg(unix)]
pub fn tell_all(database: &Path) {
    tell(&beside(database), None);
    // Who of them is in the other place depends on the length of their names.
    if beside(database).as_os_str().len() + 40 > SOCKET_PATH_MAX
        && let Some(folder) = elsewhere(database)
    {
        tell(&folder, None);
    }
}

#[cfg(not(unix))]
pub fn tell_all(_database: &Path) {}

#[cfg(unix)]
fn beside(database: &Path) -> PathBuf {
    let mut beside = database.as_os_str().to_owned();
    beside.push("-wake");
    PathBuf::from(beside)
}

/// For deep folders: the same short name for every process that opens this file.
#[cfg(unix)]
fn elsewhere(database: &Path) -> Option<PathBuf> {
    let mut hash = std::collections::hash_map::DefaultHasher::new();
    std::hash::Hash::hash(&database.canonicalize().ok()?, &mut hash);
    Some(std::env::temp_dir().join(format!("quell-wake-{:x}", std::hash::Hasher::finish(&hash))))
}

#[cfg(unix)]
fn tell(folder: &Path, own: Option<&Path>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let Ok(sender) = std::os::unix::net::UnixDatagram::unbound() else { return };
    if sender.set_nonblocking(true).is_err() {
        return;
    }
    for peer in entries.flatten().map(|entry| entry.path()).filter(|path| Some(path.as_path()) != own) {
        let sent = sender.send_to(&[1], &peer);
        if sent.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused) {
            // Its process died without tidying up. Failing to remove it only costs another try later.
            let _ = std::fs::remove_file(&peer);
        }
    }
}

/// The folder of sockets.
#[cfg(unix)]
struct Peers {
    folder: PathBuf,
    own: PathBuf,
    socket: std::os::unix::net::UnixDatagram,
}

#[cfg(unix)]
impl Peers {
    fn join(database: &Path, name: &str) -> Option<Peers> {
        use std::os::unix::fs::DirBuilderExt;
        let mut folder = beside(database);
        if folder.join(name).as_os_str().len() > SOCKET_PATH_MAX {
            folder = elsewhere(database)?;
        }
        let made = std::fs::DirBuilder::new().mode(0o700).recursive(true).create(&folder);
        let own = folder.join(name);
        let bound = made.and_then(|()| std::os::unix::net::UnixDatagram::bind(&own));
        match bound.and_then(|socket| socket.set_read_timeout(Some(BACKSTOP)).map(|()| socket)) {
            Ok(socket) => {
                // A full buffer means that the receiver has been told already.
                socket.set_nonblocking(false).ok()?;
                Some(Peers { folder, own, socket })
            }
            Err(error) => {
                tracing::info!(%error, folder = %folder.display(), "other processes are noticed by polling only");
                None
            }
        }
    }

    fn tell(&self) {
        tell(&self.folder, Some(&self.own));
    }

    fn wait(&self) -> bool {
        self.socket.recv(&mut [0; 8]).is_ok()
    }

    fn leave(&self) {
        // Ends a receive that is under way, also when the folder has been removed meanwhile. Systems that refuse it
        // for a socket without a peer let the receive run into its time limit.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        let _ = std::fs::remove_file(&self.own);
    }
}

#[cfg(not(unix))]
struct Peers;

#[cfg(not(unix))]
impl Peers {
    fn join(_database: &Path, _name: &str) -> Option<Peers> {
        None
    }
    fn tell(&self) {}
    fn wait(&self) -> bool {
        std::thread::park_timeout(BACKSTOP);
        false
    }
    fn leave(&self) {}
}
