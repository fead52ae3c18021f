//! `quell top` at a real terminal: a lane is seen, opened and flushed, and the terminal is given back as it was.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::sync::mpsc::{Receiver, channel};

use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;

use crate::operating::terminal;
use crate::support::{Folder, PATIENCE, items};

const CONFIG: &str = "[queues.chat]\nwindow = { quiet = \"1h\", max_wait = \"2h\" }\nhandler = \"pull\"\n";

/// What a terminal got to show, as it comes.
struct Shown {
    pieces: Receiver<String>,
    text: String,
}

impl Shown {
    fn of(mut terminal: File) -> Shown {
        let (tell, pieces) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The end of a terminal whose other side has closed is an error.
            while let Ok(n @ 1..) = terminal.read(&mut bytes) {
                let _ = tell.send(String::from_utf8_lossy(&bytes[..n]).into_owned());
            }
        });
        Shown { pieces, text: String::new() }
    }

    /// Waits until this was written after what was waited for before.
    fn until(&mut self, text: &str) {
        while !self.text.contains(text) {
            match self.pieces.recv_timeout(PATIENCE) {
                Ok(piece) => self.text.push_str(&piece),
                Err(_) => panic!("no {text:?} in {:?}", self.text),
            }
        }
        self.text.clear();
    }
}

#[test]
fn at_a_terminal_a_lane_is_opened_and_flushed_and_the_terminal_is_given_back() {
    let folder = Folder::with_config(CONFIG);
    folder.send("chat", "ada", "1");
    let (mut ours, theirs) = terminal();
    tcsetwinsize(&theirs, Winsize { ws_row: 30, ws_col: 130, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let before = tcgetattr(&theirs).unwrap();
    let (theirs_in, theirs_out) = (theirs.try_clone().unwrap(), theirs.try_clone().unwrap());
    let mut command = folder.command(&["top", "--interval", "200ms", "--actor", "ada"]);
    command.env("TERM", "xterm-256color").env("NO_COLOR", "1");
    let mut child =
        command.stdin(theirs_in).stdout(theirs_out).stderr(std::process::Stdio::null()).spawn().unwrap();
    drop(command);
    let mut shown = Shown::of(ours.try_clone().unwrap());
    shown.until("ada");
    ours.write_all(b"\r").unwrap();
    shown.until("RECENT");
    ours.write_all(b"f").unwrap();
    folder.until("the flush", &["lane", "chat", "ada"], |lane| lane["waiting"]["due_by"] == "flush");
    ours.write_all(b"\x1b").unwrap();
    // Cancelling asks why, and the answer is part of the trail.
    ours.write_all(b"c").unwrap();
    shown.until("why?");
    ours.write_all(b"sent twice\r").unwrap();
    folder.until("the cancellation", &["lane", "chat", "ada"], |lane| lane["buffered"] == 0);
    ours.write_all(b"q").unwrap();
    // It leaves the other screen, and shows the cursor again.
    shown.until("\u{1b}[?1049l");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let after = tcgetattr(&theirs).unwrap();
    assert_eq!(
        (after.local_modes, after.input_modes, after.output_modes),
        (before.local_modes, before.input_modes, before.output_modes)
    );
    let trail = folder.json(&["audit"]);
    let of = |change: &str| items(&trail).iter().find(|record| record["change"] == change).cloned().unwrap();
    assert_eq!(of("flushed")["actor"], "ada");
    assert!(of("cancelled").to_string().contains("sent twice"), "{}", of("cancelled"));
}

#[test]
fn without_a_terminal_one_look_is_printed() {
    let folder = Folder::with_config(CONFIG);
    folder.send("chat", "ada\u{1b}[2J", "1");
    let answer = folder.quell(&["top"]).ok().says("ACCEPTED").says("holds").says("window").says("due in");
    assert!(answer.out.contains("ada") && !answer.out.contains('\u{1b}'), "{:?}", answer.out);
    folder.quell(&["top", "--once", "--queue", "chat", "--tenant", "acme"]).ok();
    folder.quell(&["top", "--once", "--queue", "chta"]).exits(3).complains("unknown queue");
    folder.quell(&["top", "--interval", "1ms"]).exits(2).complains("between 200ms and 60s");
    let file = rusqlite::Connection::open(folder.path("quell.db")).unwrap();
    file.execute("UPDATE queue SET accepted = accepted + 1", []).unwrap();
    drop(file);
    folder.quell(&["top", "--once"]).ok().says("alarm").says("DOES NOT HOLD");
    assert_eq!(folder.quell(&["doctor", "--json"]).exits(1).json()["ok"], Value::Bool(false));
}
