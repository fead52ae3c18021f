//! A loopback proxy between the processes and their server, with bad weather on demand.
//!
//! What a driver calls "connection lost" has three meanings: the question never arrived, it arrived and was done, or the
//! answer is only late. A proxy can make each of them happen, for all connections at once, while the server is well.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::roles::pause;

/// Read and written at once.
const PIECE: usize = 64 * 1024;

/// How connections fare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weather {
    Fair,
    /// Every piece waits.
    Slow(Duration),
    /// Nothing arrives until the weather changes; nothing is lost either.
    Silent,
    /// Questions arrive and are done; their answers are lost, with the connection.
    Deaf,
}

#[derive(Debug, Clone, Copy)]
struct State {
    weather: Weather,
    /// Raised to end all connections.
    cuts: u64,
}

/// The proxy; ends with its value.
pub(crate) struct Proxy {
    port: u16,
    state: watch::Sender<State>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a free port of the loopback address.
    pub(crate) async fn to(server: String) -> io::Result<Proxy> {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let port = listener.local_addr()?.port();
        let (state, seen) = watch::channel(State { weather: Weather::Fair, cuts: 0 });
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connection(client, server.clone(), seen.clone()));
            }
        });
        Ok(Proxy { port, state, accepting })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn becomes(&self, weather: Weather) {
        self.state.send_modify(|state| state.weather = weather);
    }

    /// Ends all connections of this moment.
    pub(crate) fn cut(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn connection(client: TcpStream, server: String, state: watch::Receiver<State>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    // Small questions wait for nobody.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut cut = state.clone();
    let begun = state.borrow().cuts;
    tokio::select! {
        _ = pump(from_client, to_server, state.clone(), false) => {}
        _ = pump(from_server, to_client, state, true) => {}
        _ = cut.wait_for(|state| state.cuts != begun) => {}
    }
}

/// Carries one direction until one side ends, or until an answer is to be lost.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut state: watch::Receiver<State>,
    answers: bool,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let read = from.read(&mut piece).await?;
        if read == 0 {
            return Ok(());
        }
        let weather = state.borrow().weather;
        match weather {
            Weather::Deaf if answers => return Ok(()),
            Weather::Fair | Weather::Deaf => {}
            Weather::Slow(time) => pause(time).await,
            Weather::Silent => {
                if state.wait_for(|state| state.weather != Weather::Silent).await.is_err() {
                    return Ok(());
                }
            }
        }
        to.write_all(&piece[..read]).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers every piece with the same piece.
    async fn echo() -> (String, watch::Receiver<u64>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (heard, hears) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let heard = heard.clone();
                tokio::spawn(async move {
                    let mut piece = [0; 64];
                    while let Ok(read @ 1..) = stream.read(&mut piece).await {
                        heard.send_modify(|n| *n += read as u64);
                        let _ = stream.write_all(&piece[..read]).await;
                    }
                });
            }
        });
        (address, hears)
    }

    async fn connect(proxy: &Proxy) -> TcpStream {
        TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap()
    }

    async fn ask(stream: &mut TcpStream) -> io::Result<usize> {
        stream.write_all(b"hello").await?;
        stream.read(&mut [0; 64]).await
    }

    #[tokio::test]
    async fn fair_weather_carries_both_ways_and_a_cut_ends_what_is_open() {
        let (server, _) = echo().await;
        let proxy = Proxy::to(server).await.unwrap();
        let mut stream = connect(&proxy).await;
        assert_eq!(ask(&mut stream).await.unwrap(), 5);
        proxy.cut();
        assert!(matches!(stream.read(&mut [0; 64]).await, Ok(0) | Err(_)));
        assert_eq!(ask(&mut connect(&proxy).await).await.unwrap(), 5, "the next connection is a new one");
    }

    #[tokio::test]
    async fn the_answer_to_a_question_that_arrived_is_lost_with_its_connection() {
        let (server, mut heard) = echo().await;
        let proxy = Proxy::to(server).await.unwrap();
        let mut stream = connect(&proxy).await;
        proxy.becomes(Weather::Deaf);
        assert!(matches!(ask(&mut stream).await, Ok(0) | Err(_)));
        heard.wait_for(|bytes| *bytes == 5).await.unwrap();
    }

    #[tokio::test]
    async fn silence_loses_nothing() {
        let (server, heard) = echo().await;
        let proxy = Proxy::to(server).await.unwrap();
        let mut stream = connect(&proxy).await;
        proxy.becomes(Weather::Silent);
        stream.write_all(b"hello").await.unwrap();
        pause(Duration::from_millis(100)).await;
        assert_eq!(*heard.borrow(), 0, "nothing arrives");
        proxy.becomes(Weather::Fair);
        let answer = tokio::time::timeout(Duration::from_secs(60), stream.read(&mut [0; 64])).await;
        assert_eq!(answer.unwrap().unwrap(), 5);
    }
}
