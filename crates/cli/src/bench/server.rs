//! What a server can take: workers that do nothing but speak, and listeners that do nothing but listen.

use super::figure::{self, Figure, ms, quantile};
use crate::Done;
use crate::settings::{Settings, Usage};
use anyhow::{Context, bail};
use futures_util::StreamExt;
use reqwest::{Client, Response};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use uuid::Uuid;

/// Measure a server with simulated workers and listeners
///
/// Registers workers that heartbeat, claim and complete tasks that need no doing, as fast as the server lets them, beside
/// listeners of its events. For a server that does nothing else: it leaves workers and a job behind.
#[derive(clap::Args)]
pub struct Args {
    /// The server's address
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    address: String,
    #[arg(long, value_name = "N", default_value_t = 1000)]
    workers: usize,
    #[arg(long, value_name = "N", default_value_t = 1000)]
    listeners: usize,
    /// How many tasks are done
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    tasks: usize,
    /// The server's process, on this machine: its processor time and memory are told
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Requests on their way while workers are registered.
const AT_ONCE: usize = 32;

impl Args {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        let secret = settings.admin_secret.clone().ok_or_else(|| Usage("set VODMILL_ADMIN_SECRET".into()))?;
        let server =
            Server { client: Client::builder().no_proxy().build()?, address: self.address.clone(), secret };
        let hands = server.register(self.workers).await?;
        let heard = Arc::new(AtomicU64::new(0));
        let mut listening = server.listen(self.listeners, &heard).await?;
        server.submit(self.tasks).await?;

        let (before, began) = (self.spent(), Instant::now());
        let taken = work(&server, hands, self.tasks).await?;
        let (elapsed, after) = (began.elapsed(), self.spent());
        let heard = heard.load(Ordering::Relaxed);
        listening.shutdown().await;

        let figures = self.figures(taken, elapsed, heard, before.zip(after));
        if self.json {
            figure::print_json("server", &figures)?;
        } else {
            figure::print(&figures);
        }
        Ok(Done::Yes)
    }

    /// Seconds of processor time, and bytes of memory at most.
    fn spent(&self) -> Option<(f64, f64)> {
        let pid = self.pid?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kilobytes: f64 = peak.split_whitespace().next()?.parse().ok()?;
        Some((ticks / 100.0, kilobytes * 1024.0))
    }

    fn figures(
        &self,
        taken: Taken,
        elapsed: Duration,
        heard: u64,
        spent: Option<((f64, f64), (f64, f64))>,
    ) -> Vec<Figure> {
        let per_second = |count: f64| count / elapsed.as_secs_f64();
        let mut figures = vec![
            Figure::new("tasks", "tasks claimed and completed", per_second(taken.done as f64), "/s"),
            Figure::new("requests", "requests answered", per_second(taken.requests as f64), "/s"),
            Figure::new("claim_p50", "claim, p50", quantile(&taken.claims, 0.5), "ms"),
            Figure::new("claim_p99", "claim, p99", quantile(&taken.claims, 0.99), "ms"),
            Figure::new("complete_p50", "complete, p50", quantile(&taken.completes, 0.5), "ms"),
            Figure::new("complete_p99", "complete, p99", quantile(&taken.completes, 0.99), "ms"),
            Figure::new("events", "events told to listeners", per_second(heard as f64), "/s"),
        ];
        if let Some((before, after)) = spent {
            let processor = (after.0 - before.0) / taken.done.max(1) as f64 * 1000.0;
            figures.push(Figure::new("processor", "processor time for 1,000 tasks", processor, "s"));
            figures.push(Figure::new("memory", "memory at most", after.1 / 1e6, "MB"));
        }
        figures
    }
}

#[derive(Clone)]
struct Server {
    client: Client,
    address: String,
    secret: String,
}

/// One simulated worker.
#[derive(Clone)]
struct Hand {
    key: String,
    incarnation: Uuid,
}

#[derive(Default)]
struct Taken {
    done: usize,
    requests: usize,
    /// In milliseconds.
    claims: Vec<f64>,
    completes: Vec<f64>,
}

impl Server {
    async fn admin(&self, path: &str, body: Value) -> anyhow::Result<Value> {
        let request =
            self.client.post(format!("{}{path}", self.address)).header("x-admin-secret", &self.secret);
        good(request.json(&body).send().await.with_context(|| format!("no answer from {}", self.address))?)
            .await
    }

    async fn say(&self, hand: &Hand, word: &str, body: &Value) -> anyhow::Result<Value> {
        let request = self.client.post(format!("{}/api/worker/{word}", self.address)).bearer_auth(&hand.key);
        good(request.json(body).send().await?).await
    }

    async fn register(&self, workers: usize) -> anyhow::Result<Vec<Hand>> {
        let one = |n: usize| async move {
            let answer = self.admin("/api/worker/register", json!({ "name": format!("bench-{n}") })).await?;
            let key = answer["api_key"].as_str().unwrap_or_default().to_owned();
            let hand = Hand { key, incarnation: Uuid::now_v7() };
            let hello = json!({ "hostname": "bench", "version": env!("CARGO_PKG_VERSION"), "slots": 1,
                "capabilities": ["bench"], "metadata": {} });
            let beat =
                json!({ "incarnation": hand.incarnation, "phase": "Polling", "running": 0, "hello": hello });
            self.say(&hand, "heartbeat", &beat).await?;
            anyhow::Ok(hand)
        };
        let hands: Vec<_> =
            futures_util::stream::iter((0..workers).map(one)).buffer_unordered(AT_ONCE).collect().await;
        hands.into_iter().collect()
    }

    async fn submit(&self, tasks: usize) -> anyhow::Result<()> {
        let stage = json!({ "name": "nothing", "kind": "bench", "segments": tasks });
        self.admin("/api/jobs", json!({ "name": "bench", "stage": [stage] })).await?;
        Ok(())
    }

    async fn listen(&self, listeners: usize, heard: &Arc<AtomicU64>) -> anyhow::Result<JoinSet<()>> {
        let mut listening = JoinSet::new();
        for _ in 0..listeners {
            let request = self.client.get(format!("{}/api/events", self.address));
            let answer = request.header("x-admin-secret", &self.secret).send().await?.error_for_status()?;
            let heard = heard.clone();
            listening.spawn(async move {
                let mut stream = answer.bytes_stream();
                while let Some(Ok(block)) = stream.next().await {
                    let events = block.windows(6).filter(|window| window == b"\ndata:").count();
                    heard.fetch_add(events as u64, Ordering::Relaxed);
                }
            });
        }
        Ok(listening)
    }
}

async fn good(answer: Response) -> anyhow::Result<Value> {
    let status = answer.status();
    let text = answer.text().await?;
    if !status.is_success() {
        bail!("the server answers {status}: {text}");
    }
    serde_json::from_str(&text).context("the server's answer is no JSON")
}

/// All hands work until everything is done.
async fn work(server: &Server, hands: Vec<Hand>, tasks: usize) -> anyhow::Result<Taken> {
    let done = Arc::new(AtomicU64::new(0));
    let mut working = JoinSet::new();
    for hand in hands {
        working.spawn(one_hand(server.clone(), hand, done.clone(), tasks as u64));
    }
    let mut all = Taken::default();
    while let Some(taken) = working.join_next().await {
        let taken = taken??;
        all.done += taken.done;
        all.requests += taken.requests;
        all.claims.extend(taken.claims);
        all.completes.extend(taken.completes);
    }
    Ok(all)
}

async fn one_hand(server: Server, hand: Hand, done: Arc<AtomicU64>, tasks: u64) -> anyhow::Result<Taken> {
    let mut taken = Taken::default();
    let ask = json!({ "incarnation": hand.incarnation, "max": 1, "wait_ms": 1000 });
    let beat = json!({ "incarnation": hand.incarnation, "phase": "Processing", "running": 1 });
    let usage = json!({ "wall_ms": 0, "cpu_ms": 0, "peak_memory_bytes": 0, "bytes_in": 0, "bytes_out": 0 });
    let mut heard = Instant::now();
    while done.load(Ordering::Relaxed) < tasks {
        if heard.elapsed() > Duration::from_secs(5) {
            server.say(&hand, "heartbeat", &beat).await?;
            heard = Instant::now();
            taken.requests += 1;
        }
        let began = Instant::now();
        let claimed = server.say(&hand, "claim", &ask).await?;
        taken.requests += 1;
        let Some(task) = claimed["assignments"].get(0) else { continue };
        taken.claims.push(ms(began.elapsed()));
        let began = Instant::now();
        server.say(&hand, "complete", &json!({ "proof": task["proof"], "usage": usage })).await?;
        taken.completes.push(ms(began.elapsed()));
        taken.requests += 1;
        taken.done += 1;
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(taken)
}
