//! A small file system of our own, which can be filled, and whose power can be cut.
//!
//! It is ext4 in an image file on a loop device. A power cut is the file system's own emergency stop without a flush of its
//! log (the call that the kernel's file system tests use): from that moment nothing more reaches the image, what was only in
//! memory is gone with the unmount, and mounting it again replays the journal as after a real cut. Unlike a copy of the image
//! it is of one instant.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::FallocateFlags;

/// Room for a round with its write-ahead log; the image is sparse.
const IMAGE_BYTES: u64 = 512 * 1024 * 1024;
/// Whoever was just killed gives its files back within a moment.
const UNMOUNT_TRIES: u32 = 200;
/// The number of EXT4_IOC_SHUTDOWN, and its flag "do not flush the log".
const SHUTDOWN: &str = "0x8004587d";
const NO_LOG_FLUSH: u32 = 2;
/// The least that is worth taking when a disk is filled.
const FILL_BYTES_MIN: u64 = 4096;

/// The file system, mounted.
pub(crate) struct Disk {
    image: PathBuf,
    point: PathBuf,
    filler: Option<PathBuf>,
}

/// Why this machine cannot do it.
pub(crate) fn unavailable() -> Option<String> {
    if !cfg!(target_os = "linux") {
        return Some("loop devices are Linux's".to_owned());
    }
    if !rustix::process::geteuid().is_root() {
        return Some("mounting a file system takes root".to_owned());
    }
    let missing = ["mkfs.ext4", "mount", "umount"].into_iter().find(|tool| !has(tool));
    missing.map(|tool| format!("the program {tool} is not installed"))
}

/// Why the power of such a file system cannot be cut.
pub(crate) fn uncuttable() -> Option<String> {
    match shutter() {
        Some(_) => None,
        None => {
            Some("neither perl nor python3 is installed, one of which has to call the file system".to_owned())
        }
    }
}

/// Whether a program can be found.
pub(crate) fn has(tool: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths)
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")])
        .any(|folder| folder.join(tool).is_file())
}

/// Whoever makes the one system call that safe Rust cannot.
fn shutter() -> Option<[String; 3]> {
    let perl = format!(
        "my $flag = pack('L', {NO_LOG_FLUSH}); open(my $f, '<', $ARGV[0]) or die \"open: $!\"; \
         print \"ready\\n\"; close(STDOUT); <STDIN>; ioctl($f, {SHUTDOWN}, $flag) or die \"ioctl: $!\""
    );
    let python = format!(
        "import fcntl, os, struct, sys; f = os.open(sys.argv[1], os.O_RDONLY); \
         print('ready', flush=True); sys.stdin.readline(); \
         fcntl.ioctl(f, {SHUTDOWN}, struct.pack('I', {NO_LOG_FLUSH}))"
    );
    [("perl", "-e", perl), ("python3", "-c", python)]
        .into_iter()
        .find(|(tool, ..)| has(tool))
        .map(|(tool, flag, script)| [tool.to_owned(), flag.to_owned(), script])
}

fn call(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name} cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

impl Disk {
    /// Makes and mounts one in this folder.
    pub(crate) fn make(folder: &Path) -> Result<Disk, String> {
        let disk = Disk { image: folder.join("disk.img"), point: folder.join("disk"), filler: None };
        let made = File::create(&disk.image).and_then(|file| file.set_len(IMAGE_BYTES));
        made.and_then(|()| std::fs::create_dir_all(&disk.point)).map_err(|error| error.to_string())?;
        call(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&disk.image))?;
        disk.mount()?;
        Ok(disk)
    }

    /// Where it is mounted.
    pub(crate) fn point(&self) -> &Path {
        &self.point
    }

    fn mount(&self) -> Result<(), String> {
        call(Command::new("mount").args(["-o", "loop"]).arg(&self.image).arg(&self.point))
    }

    /// Gets ready to stop the file system, which [`Shutter::fall`] does within microseconds.
    pub(crate) fn shutter(&self) -> Result<Shutter, String> {
        let [tool, flag, script] = shutter().ok_or_else(|| uncuttable().unwrap_or_default())?;
        let mut command = Command::new(tool);
        command.args([flag, script]).arg(&self.point);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let mut word = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut word).map_err(|error| error.to_string())?;
        }
        Ok(Shutter(child))
    }

    /// Mounts it again after a cut. Nobody may use it any more.
    pub(crate) async fn back(&mut self) -> Result<(), String> {
        for _ in 0..UNMOUNT_TRIES {
            let Err(problem) = call(Command::new("umount").arg(&self.point)) else { return self.mount() };
            if !problem.contains("busy") {
                return Err(problem);
            }
            crate::roles::pause(std::time::Duration::from_millis(10)).await;
        }
        Err(format!("{} stays busy after everybody was killed", self.point.display()))
    }

    /// Takes all the room there is.
    pub(crate) fn fill(&mut self) -> Result<(), String> {
        let path = self.point.join("filler");
        let file = File::create(&path).map_err(|error| error.to_string())?;
        self.filler = Some(path);
        let (mut length, mut piece) = (0, IMAGE_BYTES);
        while piece >= FILL_BYTES_MIN {
            match rustix::fs::fallocate(&file, FallocateFlags::empty(), length, piece) {
                Ok(()) => length += piece,
                Err(_) => piece /= 2,
            }
        }
        Ok(())
    }

    /// Gives the room back.
    pub(crate) fn free(&mut self) {
        if let Some(path) = self.filler.take() {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Whoever makes the call, with its file open, and waiting for a word.
pub(crate) struct Shutter(Child);

impl Shutter {
    /// Stops the file system at once: what was not flushed is lost.
    pub(crate) fn fall(mut self) -> Result<(), String> {
        if let Some(mut stdin) = self.0.stdin.take() {
            stdin.write_all(b"now\n").map_err(|error| error.to_string())?;
        }
        let output = self.0.wait_with_output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(()),
            false => {
                Err(format!("the power cannot be cut: {}", String::from_utf8_lossy(&output.stderr).trim()))
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily, so that also a file system that somebody still looks at goes when he does.
        let _ = Command::new("umount").arg("-l").arg(&self.point).output();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_its_name() {
        assert!(has("sh"));
        assert!(!has("no-program-has-this-name"));
    }
}
