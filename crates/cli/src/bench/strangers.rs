//! What clients that never authenticate can do to a server: many bad connections from one address, and one honest client
//! from another.

use super::figure::{ms, quantile};
use crate::settings::{Settings, Usage};
use crate::{Done, limits, output};
use anyhow::Context;
use clap::ValueEnum;
use serde::Serialize;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// Measure how a server on this machine stands a flood of bad connections
///
/// Opens connections of every bad kind from 127.0.0.1, and asks GET /health from 127.0.0.2 meanwhile. Only for a server on
/// a loopback address.
#[derive(clap::Args)]
pub struct Args {
    /// The server's address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    address: SocketAddr,
    /// How many connections of each kind are kept open
    #[arg(long, value_name = "N", default_value_t = 2000)]
    connections: usize,
    /// How long each kind lasts, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,
    /// All kinds at once, instead of one after the other
    #[arg(long)]
    together: bool,
    /// The path of a large published file, for clients that read slowly
    #[arg(long, value_name = "PATH", default_value = "/assets/hls.js")]
    file: String,
    /// The path of a playlist, for clients that ask for it again and again
    #[arg(long, value_name = "PATH", default_value = "/videos/none/master.m3u8")]
    playlist: String,
    /// The server's process: its memory at most is told
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Only these kinds. Default: all
    #[arg(long, value_name = "KIND")]
    kind: Vec<Kind>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Longer than anybody needs to see what there is to see.
const LONGEST: u64 = 600;
const MOST: usize = 10_000;

/// A client that gets no answer for so long counts as one that waited so long.
const PATIENCE: Duration = Duration::from_secs(30);

const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1));
const HONEST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    HalfHeads,
    SlowHeads,
    HugeHeads,
    SlowBodies,
    HugeBodies,
    IdleKeepAlive,
    Listeners,
    SlowReaders,
    Pipelined,
    Tls,
    /// The playlist of a video, again and again.
    Master,
    /// The health of the server, again and again.
    Health,
    /// Connections that are closed before they are answered.
    Churn,
}

/// What attackers ask for.
struct Paths {
    file: String,
    playlist: String,
}

/// What came of one kind, or of all together.
#[derive(Serialize)]
struct Outcome {
    kinds: Vec<Kind>,
    opened: u64,
    /// Answered at once that there are too many.
    refused: u64,
    /// Of the honest client.
    answered: usize,
    failed: usize,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// Of the server, since its start.
    peak_memory_bytes: Option<u64>,
}

#[derive(Default)]
struct Counts {
    opened: AtomicU64,
    refused: AtomicU64,
}

impl Args {
    pub async fn run(self, _: &Settings) -> anyhow::Result<Done> {
        if !self.address.ip().is_loopback() {
            return Err(Usage("--address must be a loopback address of this machine".into()).into());
        }
        if self.connections > MOST || self.seconds > LONGEST {
            let most = format!("at most {MOST} connections of a kind, for {LONGEST} seconds");
            return Err(Usage(most).into());
        }
        limits::raise_open_files(0);
        let kinds = if self.kind.is_empty() {
            Kind::value_variants().to_vec()
        } else {
            self.kind.clone()
        };
        let rounds: Vec<Vec<Kind>> = if self.together {
            vec![kinds]
        } else {
            kinds.into_iter().map(|kind| vec![kind]).collect()
        };
        let mut outcomes = Vec::new();
        for kinds in rounds {
            let names: Vec<String> = kinds.iter().map(|kind| kind.name()).collect();
            eprintln!("{} for {} s", names.join(", "), self.seconds);
            outcomes.push(self.round(kinds).await?);
        }
        output::listing(
            self.json,
            &outcomes,
            ["kind", "opened", "refused", "honest", "failed", "p50 ms", "p99 ms", "max ms", "peak MB"],
            |outcome| {
                let names: Vec<String> = outcome.kinds.iter().map(|kind| kind.name()).collect();
                let memory = outcome.peak_memory_bytes.map(|bytes| format!("{:.0}", bytes as f64 / 1e6));
                [
                    if names.len() == 1 { names.concat() } else { "all".into() },
                    outcome.opened.to_string(),
                    outcome.refused.to_string(),
                    outcome.answered.to_string(),
                    outcome.failed.to_string(),
                    format!("{:.1}", outcome.p50_ms),
                    format!("{:.1}", outcome.p99_ms),
                    format!("{:.1}", outcome.max_ms),
                    output::or_dash(memory),
                ]
            },
        )?;
        Ok(Done::Yes)
    }

    async fn round(&self, kinds: Vec<Kind>) -> anyhow::Result<Outcome> {
        let (counts, mut attackers) = (Arc::new(Counts::default()), JoinSet::new());
        let paths = Arc::new(Paths { file: self.file.clone(), playlist: self.playlist.clone() });
        for kind in &kinds {
            for _ in 0..self.connections {
                attackers.spawn(attack(*kind, self.address, paths.clone(), counts.clone()));
            }
        }
        let (server, seconds) = (self.address, self.seconds);
        // Not beside thousands of attackers on the same threads: it would wait for them, and not for the server.
        let asking = tokio::task::spawn_blocking(move || ask_again_and_again(server, seconds));
        let (waits, failed) = asking.await??;
        let peak_memory_bytes = self.pid.map(peak_memory).transpose()?;
        attackers.shutdown().await;
        Ok(Outcome {
            kinds,
            opened: counts.opened.load(Ordering::Relaxed),
            refused: counts.refused.load(Ordering::Relaxed),
            answered: waits.len() - failed,
            failed,
            p50_ms: quantile(&waits, 0.5),
            p99_ms: quantile(&waits, 0.99),
            max_ms: quantile(&waits, 1.0),
            peak_memory_bytes,
        })
    }
}

impl Kind {
    /// Between a connection that ended and the next in its place.
    fn pause(self) -> Duration {
        Duration::from_millis(if self == Kind::Churn { 400 } else { 1000 })
    }

    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

fn peak_memory(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("the server's process {pid} has ended"))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    let kilobytes: u64 = peak.split_whitespace().next().unwrap_or_default().parse()?;
    Ok(kilobytes * 1024)
}

async fn connect(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(from, 0))?;
    socket.connect(to).await
}

/// How long each answer took, in milliseconds, and how many questions had none.
fn ask_again_and_again(server: SocketAddr, seconds: u64) -> io::Result<(Vec<f64>, usize)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut waits, mut failed) = (Vec::new(), 0);
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        let begun = Instant::now();
        let asked = runtime.block_on(async { tokio::time::timeout(PATIENCE, ask(server)).await });
        failed += usize::from(!matches!(asked, Ok(Ok(()))));
        waits.push(ms(begun.elapsed()));
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok((waits, failed))
}

/// The honest client: one question on a connection of its own.
async fn ask(server: SocketAddr) -> io::Result<()> {
    let mut stream = connect(HONEST, server).await?;
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    if answer.starts_with(b"HTTP/1.1 200") {
        Ok(())
    } else {
        Err(io::Error::other("another answer"))
    }
}

/// Keeps one bad connection open, and opens another when it ends.
async fn attack(kind: Kind, server: SocketAddr, paths: Arc<Paths>, counts: Arc<Counts>) {
    loop {
        if let Ok(mut stream) = connect(ATTACKER, server).await {
            counts.opened.fetch_add(1, Ordering::Relaxed);
            let _ = misbehave(kind, &mut stream, &paths, &counts).await;
        }
        tokio::time::sleep(kind.pause()).await;
    }
}

async fn misbehave(kind: Kind, stream: &mut TcpStream, paths: &Paths, counts: &Counts) -> io::Result<()> {
    const POST: &str = "POST /api/session HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
    match kind {
        Kind::HalfHeads => {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: ").await?;
            drain(stream, counts).await
        }
        Kind::SlowHeads => {
            stream.write_all(b"GET / HTTP/1.1\r\nX-Slow: ").await?;
            trickle(stream, counts).await
        }
        Kind::HugeHeads => {
            stream.write_all(b"GET / HTTP/1.1\r\n").await?;
            let line = format!("X-Huge: {}\r\n", "a".repeat(8000));
            flood(stream, line.as_bytes(), counts).await
        }
        Kind::SlowBodies => {
            stream.write_all(format!("{POST}Content-Length: 4096\r\n\r\n").as_bytes()).await?;
            trickle(stream, counts).await
        }
        Kind::HugeBodies => {
            stream.write_all(format!("{POST}Transfer-Encoding: chunked\r\n\r\n").as_bytes()).await?;
            let chunk = format!("4000\r\n{}\r\n", " ".repeat(0x4000));
            flood(stream, chunk.as_bytes(), counts).await
        }
        Kind::IdleKeepAlive => {
            stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").await?;
            drain(stream, counts).await
        }
        Kind::Listeners => {
            let junk = format!("Authorization: Bearer {:064x}", rand::random::<u128>());
            let listen = "GET /api/events HTTP/1.1\r\nHost: x\r\nCookie: vodmill=x\r\n\r\n";
            let claim = format!(
                "POST /api/worker/claim HTTP/1.1\r\nHost: x\r\n{junk}\r\nContent-Type: application/json\r\n\
                 Content-Length: 2\r\n\r\n{{}}"
            );
            stream.write_all(format!("{listen}{claim}").as_bytes()).await?;
            drain(stream, counts).await
        }
        Kind::SlowReaders => {
            stream.write_all(format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", paths.file).as_bytes()).await?;
            let mut byte = [0];
            let mut said = Vec::new();
            while stream.read(&mut byte).await? > 0 {
                if said.len() < 12 {
                    said.push(byte[0]);
                    note(&said, counts);
                } else {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
            Ok(())
        }
        Kind::Pipelined => {
            flood(stream, "GET /api/docs HTTP/1.1\r\nHost: x\r\n\r\n".repeat(200).as_bytes(), counts).await
        }
        Kind::Tls => {
            stream.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await?;
            drain(stream, counts).await
        }
        Kind::Master => ask_without_end(stream, &paths.playlist, counts).await,
        Kind::Health => ask_without_end(stream, "/health", counts).await,
        Kind::Churn => stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").await,
    }
}

/// Asks again as soon as anything of the answer is there, until the server closes.
async fn ask_without_end(stream: &mut TcpStream, path: &str, counts: &Counts) -> io::Result<()> {
    let (request, mut block) = (format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"), vec![0; 64 << 10]);
    loop {
        stream.write_all(request.as_bytes()).await?;
        let read = stream.read(&mut block).await?;
        note(block.get(..read.min(12)).unwrap_or_default(), counts);
        if read == 0 {
            return Ok(());
        }
    }
}

fn note(answer: &[u8], counts: &Counts) {
    if matches!(answer, b"HTTP/1.1 429" | b"HTTP/1.1 503") {
        counts.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads until the server closes.
async fn drain(stream: &mut TcpStream, counts: &Counts) -> io::Result<()> {
    let (mut block, mut said) = ([0; 4096], Vec::new());
    loop {
        match stream.read(&mut block).await? {
            0 => return Ok(()),
            read if said.len() < 12 => {
                said.extend_from_slice(&block[..read]);
                note(said.get(..12).unwrap_or_default(), counts);
            }
            _ => {}
        }
    }
}

/// Sends a byte a second until the server closes.
async fn trickle(stream: &mut TcpStream, counts: &Counts) -> io::Result<()> {
    let (mut reading, mut writing) = stream.split();
    let sending = async {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            writing.write_all(b" ").await?;
        }
    };
    let receiving = async {
        let (mut block, mut said) = ([0; 512], Vec::new());
        loop {
            let read = reading.read(&mut block).await?;
            if read == 0 {
                return Ok(());
            }
            if said.len() < 12 {
                said.extend_from_slice(&block[..read]);
                note(said.get(..12).unwrap_or_default(), counts);
            }
        }
    };
    tokio::select! {
        sent = sending => sent,
        received = receiving => received,
    }
}

/// Sends megabytes a second while they are taken, and reads nothing until the server closes.
async fn flood(stream: &mut TcpStream, block: &[u8], counts: &Counts) -> io::Result<()> {
    let mut said = [0; 12];
    // A refusal is there before the first byte is sent; anything else is left unread.
    loop {
        if let Err(error) = stream.write_all(block).await {
            if stream.try_read(&mut said).is_ok() {
                note(&said, counts);
            }
            return Err(error);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
