//! A proxy before a server that counts what goes by: statements, and times that a client waited for an answer.
//!
//! A round trip begins when something is asked while nothing is on its way, so what is sent in one go counts once, however many
//! pieces it comes in. The bytes go on as they are.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Read at once.
const PIECE: usize = 64 * 1024;
/// The request for encryption that a client of PostgreSQL may begin with; its answer is a single byte.
const SSL_REQUEST: u32 = 80_877_103;

/// What is spoken.
#[derive(Clone, Copy)]
pub(crate) enum Language {
    Postgres,
    Redis,
}

/// Sums over all connections.
#[derive(Default)]
pub(crate) struct Wire {
    statements: AtomicU64,
    round_trips: AtomicU64,
}

impl Wire {
    pub(crate) fn statements(&self) -> u64 {
        self.statements.load(Ordering::SeqCst)
    }

    pub(crate) fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::SeqCst)
    }
}

/// Counts what goes to the server of this URL; the answer is a URL to use in its place.
pub(crate) async fn count(url: &str, port: u16, language: Language) -> (String, Arc<Wire>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ours = listener.local_addr().unwrap().port();
    let wire = Arc::new(Wire::default());
    let counted = wire.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(connection(client, port, Talk::new(language, counted.clone())));
        }
    });
    (url.replace(&format!(":{port}"), &format!(":{ours}")), wire)
}

async fn connection(client: TcpStream, port: u16, talk: Talk) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let talk = Mutex::new(talk);
    let questions = async {
        let mut piece = vec![0; PIECE];
        while let Ok(read @ 1..) = from_client.read(&mut piece).await {
            talk.lock().unwrap().asked(&piece[..read]);
            if to_server.write_all(&piece[..read]).await.is_err() {
                break;
            }
        }
    };
    let answers = async {
        let mut piece = vec![0; PIECE];
        while let Ok(read @ 1..) = from_server.read(&mut piece).await {
            talk.lock().unwrap().answered(&piece[..read]);
            if to_client.write_all(&piece[..read]).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = questions => {}
        () = answers => {}
    }
}

/// One connection: what has not been understood yet, and what has not been answered.
struct Talk {
    language: Language,
    wire: Arc<Wire>,
    asked: Vec<u8>,
    answered: Vec<u8>,
    /// Messages of PostgreSQL have no kind until the connection has introduced itself.
    introduced: bool,
    on_their_way: u64,
}

impl Talk {
    fn new(language: Language, wire: Arc<Wire>) -> Self {
        let (asked, answered) = (Vec::new(), Vec::new());
        Talk { language, wire, asked, answered, introduced: false, on_their_way: 0 }
    }

    fn asked(&mut self, piece: &[u8]) {
        self.asked.extend_from_slice(piece);
        let mut read = 0;
        loop {
            let rest = &self.asked[read..];
            let (length, statement, waits) = match self.language {
                Language::Redis => match resp(rest) {
                    Some(length) => (length, true, true),
                    None => break,
                },
                Language::Postgres if !self.introduced => match word(rest) {
                    Some(length) if rest.len() >= length as usize => {
                        self.introduced = word(&rest[4..]) != Some(SSL_REQUEST);
                        // Its first answer is `ready for query`, too, or the single byte.
                        (length as usize, false, true)
                    }
                    _ => break,
                },
                Language::Postgres => match message(rest) {
                    Some(length) => (length, matches!(rest[0], b'Q' | b'E'), matches!(rest[0], b'Q' | b'S')),
                    None => break,
                },
            };
            read += length;
            self.wire.statements.fetch_add(u64::from(statement), Ordering::SeqCst);
            if waits {
                if self.on_their_way == 0 {
                    self.wire.round_trips.fetch_add(1, Ordering::SeqCst);
                }
                self.on_their_way += 1;
            }
        }
        self.asked.drain(..read);
    }

    fn answered(&mut self, piece: &[u8]) {
        self.answered.extend_from_slice(piece);
        let mut read = 0;
        loop {
            let rest = &self.answered[read..];
            let (length, done) = match self.language {
                Language::Redis => match resp(rest) {
                    // What the server says unasked is no answer.
                    Some(length) => (length, rest[0] != b'>'),
                    None => break,
                },
                Language::Postgres if !self.introduced && !rest.is_empty() => (1, true),
                Language::Postgres => match message(rest) {
                    Some(length) => {
                        // The server asks for the rows of a COPY: one more turn of the same request.
                        let copies = u64::from(rest[0] == b'G');
                        self.wire.round_trips.fetch_add(copies, Ordering::SeqCst);
                        (length, rest[0] == b'Z')
                    }
                    None => break,
                },
            };
            read += length;
            self.on_their_way = self.on_their_way.saturating_sub(u64::from(done));
        }
        self.answered.drain(..read);
    }
}

fn word(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?))
}

/// The length of the message of PostgreSQL that begins here, if it is whole.
fn message(bytes: &[u8]) -> Option<usize> {
    let length = 1 + word(bytes.get(1..)?)? as usize;
    (bytes.len() >= length).then_some(length)
}

/// The length of the value of Redis that begins here, if it is whole.
fn resp(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let line = end + 2;
    let number = || std::str::from_utf8(&bytes[1..end]).ok()?.parse::<i64>().ok();
    let nested = match bytes[0] {
        b'$' | b'=' | b'!' => {
            let length = usize::try_from(number()?).map_or(line, |length| line + length + 2);
            return (bytes.len() >= length).then_some(length);
        }
        b'*' | b'~' | b'>' => number()?,
        b'%' => 2 * number()?,
        _ => return Some(line),
    };
    let mut read = line;
    for _ in 0..nested {
        read += resp(&bytes[read..])?;
    }
    Some(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn talk(language: Language) -> (Talk, Arc<Wire>) {
        let wire = Arc::new(Wire::default());
        (Talk::new(language, wire.clone()), wire)
    }

    #[test]
    fn what_is_asked_in_one_go_is_one_round_trip_in_whatever_pieces() {
        let (mut talk, wire) = talk(Language::Redis);
        let both = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n$4\r\nPING\r\n";
        talk.asked(&both[..7]);
        talk.asked(&both[7..]);
        talk.answered(b"*2\r\n:1\r\n");
        talk.answered(b"$-1\r\n>1\r\n+message\r\n+PONG\r\n");
        assert_eq!((wire.statements(), wire.round_trips(), talk.on_their_way), (2, 1, 0));
        talk.asked(b"*1\r\n$4\r\nPING\r\n");
        assert_eq!((wire.statements(), wire.round_trips()), (3, 2));
    }

    #[test]
    fn a_connection_of_postgres_introduces_itself_and_then_asks() {
        let (mut talk, wire) = talk(Language::Postgres);
        talk.asked(&[&8_u32.to_be_bytes()[..], &SSL_REQUEST.to_be_bytes()].concat());
        talk.answered(b"N");
        talk.asked(&[&8_u32.to_be_bytes()[..], &196_608_u32.to_be_bytes()].concat());
        talk.answered(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I");
        assert_eq!((wire.statements(), wire.round_trips(), talk.on_their_way), (0, 2, 0));
        // Bind, execute and sync twice, in one go.
        let ask = b"B\0\0\0\x04E\0\0\0\x04S\0\0\0\x04";
        talk.asked(&[&ask[..], ask].concat());
        talk.answered(b"C\0\0\0\x04Z\0\0\0\x05I");
        assert_eq!((wire.statements(), wire.round_trips(), talk.on_their_way), (2, 3, 1));
    }
}
