//! A client that sends what it is told, byte by byte, right or wrong.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::SOON;

pub(crate) struct Client(BufReader<TcpStream>);

/// An answer: status, head, body.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = timeout(SOON, TcpStream::connect(address)).await;
        Self(BufReader::new(stream.unwrap().unwrap()))
    }

    /// Sends as much of it as the other end takes.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        let sent = timeout(SOON, self.0.get_mut().write_all(bytes)).await;
        // A service that has seen enough may have hung up before the end.
        drop(sent.unwrap());
    }

    /// Sends nothing more, and still reads.
    pub(crate) async fn finish(&mut self) {
        self.0.get_mut().shutdown().await.unwrap();
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.send(head("GET", path, "").as_bytes()).await;
        self.answer().await.unwrap()
    }

    pub(crate) async fn post(&mut self, path: &str, body: &str) -> Answer {
        self.send(post(path, body).as_bytes()).await;
        self.answer().await.unwrap()
    }

    /// The next answer; none if the service has hung up.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        timeout(SOON, self.read()).await.unwrap()
    }

    async fn read(&mut self) -> Option<Answer> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.0.read_u8().await.ok()?);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head.split("content-length: ").nth(1);
        let length = length.map_or(0, |l| l.split('\r').next().unwrap().parse().unwrap());
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.ok()?;
        Some(Answer {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head,
            body: String::from_utf8(body).unwrap(),
        })
    }
}

/// A request's head; `more` are further lines.
pub(crate) fn head(method: &str, path: &str, more: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: drainwell\r\n{more}\r\n")
}

pub(crate) fn post(path: &str, body: &str) -> String {
    head("POST", path, &format!("content-length: {}\r\n", body.len())) + body
}
