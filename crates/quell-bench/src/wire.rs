//! A proxy before a server that counts bytes, in both directions: what a store sends over a network and no server tells.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::place::Kind;

/// Read at once.
const PIECE: usize = 64 * 1024;

pub(crate) struct Wire {
    /// To use in place of the server's.
    pub(crate) url: String,
    bytes: Arc<AtomicU64>,
    accepts: JoinHandle<()>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.accepts.abort();
    }
}

impl Wire {
    /// Before the server that this URL names, by TCP and without encryption that looks at names.
    pub(crate) async fn before(kind: Kind, url: &str) -> anyhow::Result<Self> {
        let address = authority(url).context("the URL names no server")?;
        let server = if address.contains(':') {
            address.to_owned()
        } else {
            format!("{address}:{}", if kind == Kind::Postgres { 5432 } else { 6379 })
        };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let ours = listener.local_addr()?.to_string();
        let (bytes, url) = (Arc::new(AtomicU64::new(0)), url.replacen(address, &ours, 1));
        let counted = bytes.clone();
        let accepts = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connection(client, server.clone(), counted.clone()));
            }
        });
        Ok(Wire { url, bytes, accepts })
    }

    pub(crate) fn bytes(&self) -> f64 {
        self.bytes.load(Ordering::SeqCst) as f64
    }
}

/// A server that is away is the client's to complain about: its connection ends.
async fn connection(client: TcpStream, server: String, bytes: Arc<AtomicU64>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    // Without this each question would wait for the answer to the one before; a system that refuses it is only slower.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = pass(from_client, to_server, &bytes) => {}
        () = pass(from_server, to_client, &bytes) => {}
    }
}

async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, bytes: &AtomicU64) {
    let mut piece = vec![0; PIECE];
    while let Ok(read @ 1..) = from.read(&mut piece).await {
        bytes.fetch_add(read as u64, Ordering::SeqCst);
        if to.write_all(&piece[..read]).await.is_err() {
            return;
        }
    }
}

/// Host and port of a URL, without a user and a password.
fn authority(url: &str) -> Option<&str> {
    let rest = url.split_once("://")?.1;
    let all = rest.split(['/', '?']).next()?;
    let address = all.rsplit('@').next()?;
    (!address.is_empty()).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_url_stands_after_the_password() {
        assert_eq!(authority("postgres://me:p:w@h:5433/db?schema=a"), Some("h:5433"));
        assert_eq!(authority("redis://h?prefix=b@c"), Some("h"));
        assert_eq!(authority("postgres:///db"), None);
    }

    #[tokio::test]
    async fn bytes_are_counted_in_both_directions() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}/0", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut server, _) = listener.accept().await.unwrap();
            let mut asked = [0; 4];
            server.read_exact(&mut asked).await.unwrap();
            server.write_all(b"longer answer").await.unwrap();
        });
        let wire = Wire::before(Kind::Redis, &url).await.unwrap();
        let mut client = TcpStream::connect(authority(&wire.url).unwrap()).await.unwrap();
        client.write_all(b"what").await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert_eq!((answer.as_slice(), wire.bytes()), (&b"longer answer"[..], 17.0));
    }
}
