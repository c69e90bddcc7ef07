//! What stands between a worker and its server: it passes bytes on, and does harm where it was told to.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// The connection ends after so many bytes of the answer's body.
    CutAnswer(usize),
    /// The connection ends after so many bytes of the request's body.
    CutRequest(usize),
    /// A page for people, with this status, in place of the server's answer.
    Page(u16),
    /// The connection ends at once.
    Refuse,
    /// Nobody answers, and the connection stays open.
    Silence,
}

/// Each harm is done once, to the first request whose first line holds the words.
type Plan = Arc<Mutex<VecDeque<(String, Harm)>>>;

pub struct Line {
    address: SocketAddr,
    plan: Plan,
    listening: AbortHandle,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Line {
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, plan) = (listener.local_addr().unwrap(), Plan::default());
        let planned = plan.clone();
        let listening = tokio::spawn(async move {
            while let Ok((worker, _)) = listener.accept().await {
                let plan = planned.clone();
                // What becomes of a connection is for both ends to find out.
                tokio::spawn(async move { pass(worker, server, plan).await.ok() });
            }
        });
        Line { address, plan, listening: listening.abort_handle() }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next request whose first line holds `words` comes to harm; said again, the one after it too.
    pub fn harm(&self, words: &str, harm: Harm) -> &Self {
        self.plan.lock().unwrap().push_back((words.into(), harm));
        self
    }

    /// How much harm is still to be done.
    pub fn planned(&self) -> usize {
        self.plan.lock().unwrap().len()
    }
}

async fn pass(mut worker: TcpStream, server: SocketAddr, plan: Plan) -> std::io::Result<()> {
    let request = head(&mut worker).await?;
    let first_line = String::from_utf8_lossy(&request).lines().next().unwrap_or_default().to_owned();
    let harm = {
        let mut plan = plan.lock().unwrap();
        let found = plan.iter().position(|(words, _)| first_line.contains(words.as_str()));
        found.and_then(|at| plan.remove(at)).map(|(_, harm)| harm)
    };
    match harm {
        Some(Harm::Refuse) => return Ok(()),
        Some(Harm::Silence) => return drain(&mut worker).await,
        Some(Harm::Page(status)) => return page(&mut worker, status).await,
        _ => {}
    }
    let mut server = TcpStream::connect(server).await?;
    server.write_all(&request).await?;
    match harm {
        Some(Harm::CutRequest(bytes)) => copy_some(&mut worker, &mut server, bytes).await,
        Some(Harm::CutAnswer(bytes)) => {
            let answer = head(&mut server).await?;
            let body = answer.windows(4).position(|end| end == b"\r\n\r\n").map_or(answer.len(), |at| at + 4);
            let kept = answer.len().min(body + bytes);
            worker.write_all(&answer[..kept]).await?;
            copy_some(&mut server, &mut worker, body + bytes - kept).await
        }
        _ => copy_bidirectional(&mut worker, &mut server).await.map(drop),
    }
}

/// Everything up to the end of the headers, and what came with it.
async fn head(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}

async fn copy_some(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    bytes: usize,
) -> std::io::Result<()> {
    tokio::io::copy(&mut from.take(bytes as u64), to).await?;
    to.flush().await
}

/// Reads until the other end gives up.
async fn drain(worker: &mut TcpStream) -> std::io::Result<()> {
    tokio::io::copy(worker, &mut tokio::io::sink()).await.map(drop)
}

async fn page(worker: &mut TcpStream, status: u16) -> std::io::Result<()> {
    let text = "<!DOCTYPE html><html><body>We are making things better for you.</body></html>";
    let head =
        format!("HTTP/1.1 {status} Hm\r\nContent-Type: text/html\r\nContent-Length: {}\r\n", text.len());
    worker.write_all(format!("{head}Connection: close\r\n\r\n{text}").as_bytes()).await?;
    worker.shutdown().await?;
    drain(worker).await
}
