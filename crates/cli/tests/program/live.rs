//! Live events and webhooks of a real server, over real sockets.

use crate::support::{DEADLINE, Engine, Process, World, http, kill, psql, until};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

crate::on_both_engines![
    a_listener_that_was_cut_off_is_told_exactly_what_it_missed,
    a_server_that_was_killed_goes_on_where_its_listener_was,
];

const SECRET: &str = "a secret of twenty letters and more";

/// A job of so many short tasks.
fn spec(segments: u32) -> String {
    format!("name = 'live'\n[[stage]]\nname = 'work'\nsleep_ms = 20\nsegments = {segments}\n")
}

/// The server's own worker does videos alone.
fn worker(world: &World) -> Process {
    world.vodmill(&["worker", "--slots", "1"]).start()
}

struct Server {
    process: Process,
    address: String,
}

impl Server {
    fn start(world: &World, settings: &[(&str, &str)]) -> Server {
        let log: PathBuf = world.folder.path().join(format!("log-{:x}", rand::random::<u64>()));
        let mut program = world.vodmill(&["serve", "--slots", "1", "--listen", "127.0.0.1:0"]);
        program = program.env("VODMILL_ADMIN_SECRET", SECRET);
        for (name, value) in settings {
            program = program.env(name, value);
        }
        let (process, address) = program.start_serving(&log);
        Server { process, address }
    }

    fn listen(&self, query: &str, last: Option<&str>) -> Listener {
        let (status, listener) = self.ask(query, last, SECRET);
        assert_eq!(status, 200);
        listener
    }

    /// HTTP/1.0, so that the body is not cut into chunks.
    fn ask(&self, query: &str, last: Option<&str>, secret: &str) -> (u16, Listener) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let last = last.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        let request = format!("GET /api/events{query} HTTP/1.0\r\nX-Admin-Secret: {secret}\r\n{last}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        (status, Listener(reader))
    }
}

struct Listener(BufReader<TcpStream>);

/// What stands between two empty lines.
#[derive(Debug, Default, Clone, PartialEq)]
struct Block {
    id: Option<String>,
    event: Option<String>,
    data: serde_json::Value,
    comment: Option<String>,
    retry: Option<String>,
}

impl Listener {
    /// None when the stream is over.
    fn next(&mut self) -> Option<Block> {
        let mut block = Block::default();
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            match line.trim_end().split_once(": ").or_else(|| line.trim_end().split_once(':')) {
                None => return Some(block),
                Some(("id", id)) => block.id = Some(id.into()),
                Some(("event", name)) => block.event = Some(name.into()),
                Some(("data", data)) => block.data = serde_json::from_str(data).unwrap(),
                Some(("retry", ms)) => block.retry = Some(ms.into()),
                Some((_, comment)) => block.comment = Some(comment.into()),
            }
        }
    }

    /// The next that happened to a job for good; workers come when they like.
    fn event(&mut self) -> Block {
        loop {
            let block = self.next().expect("the stream goes on");
            let is_of_worker = block.event.as_deref() == Some("worker");
            if block.event.is_some() && block.id.is_some() && !is_of_worker {
                return block;
            }
        }
    }

    fn until_ended(&mut self) -> Vec<Block> {
        let mut heard = Vec::new();
        loop {
            heard.push(self.event());
            if heard.last().unwrap().data["what"] == "ended" {
                return heard;
            }
        }
    }
}

fn ids(blocks: &[Block]) -> Vec<String> {
    blocks.iter().map(|block| block.id.clone().unwrap()).collect()
}

fn a_listener_that_was_cut_off_is_told_exactly_what_it_missed(engine: Engine) {
    let world = World::new(engine);
    let server = Server::start(&world, &[]);
    let _worker = worker(&world);
    let mut first = server.listen("", None);
    let greeting = first.next().unwrap();
    assert_eq!(greeting.retry.as_deref(), Some("3000"));
    let job = world.submit(&spec(12));
    let mut heard: Vec<Block> = std::iter::repeat_with(|| first.event()).take(5).collect();
    assert_eq!((heard[0].event.as_deref(), &heard[0].data["what"]), (Some("job"), &"submitted".into()));
    assert_eq!(heard[0].data["job"], job);

    drop(first);
    let mut second = server.listen("", heard.last().unwrap().id.as_deref());
    heard.extend(second.until_ended());

    let whole = server.listen(&format!("?after={}&job={job}", greeting.id.unwrap()), None).until_ended();
    assert_eq!(ids(&heard), ids(&whole), "each once, in the same order");
    let mut done = heard.iter().filter(|block| block.event.as_deref() == Some("segment"));
    assert_eq!(done.clone().count(), 12);
    let last = done.next_back().unwrap();
    assert_eq!((&last.data["done"], &last.data["total"]), (&12.into(), &12.into()));
}

fn a_server_that_was_killed_goes_on_where_its_listener_was(engine: Engine) {
    let world = World::new(engine);
    let mut server = Server::start(&world, &[]);
    let _worker = worker(&world);
    let mut listener = server.listen("", None);
    let begun = listener.next().unwrap().id.unwrap();
    world.submit(&spec(30));
    let mut heard: Vec<Block> = std::iter::repeat_with(|| listener.event()).take(8).collect();

    server.process.kill();
    let server = Server::start(&world, &[]);
    heard.extend(server.listen("", heard.last().unwrap().id.as_deref()).until_ended());

    let whole = server.listen(&format!("?after={begun}"), None).until_ended();
    assert_eq!(ids(&heard), ids(&whole));
    let done = heard.iter().filter(|block| block.data["what"] == "done").count();
    assert_eq!(done, 30, "each task was committed, and told of, once");
}

#[test]
fn a_listener_that_reads_late_misses_nothing() {
    let world = World::new(Engine::Sqlite);
    let server = Server::start(&world, &[]);
    let _worker = worker(&world);
    let mut late = server.listen("", None);
    let job = world.submit(&spec(100));
    until("the job is over", || world.job_state(job) == "completed");

    let heard = late.until_ended();

    let whole = server.listen("?after=0-0", None).until_ended();
    let of_job = whole.into_iter().filter(|block| block.data["job"] == job).collect::<Vec<_>>();
    assert_eq!(ids(&heard), ids(&of_job));
}

#[test]
fn a_quiet_listener_hears_heartbeats_with_its_place_and_the_end_of_the_server() {
    let world = World::new(Engine::Sqlite);
    let mut server = Server::start(&world, &[("VODMILL_SSE_HEARTBEAT_INTERVAL", "0.2")]);
    let mut listener = server.listen("?job=999", None);

    let beat = std::iter::repeat_with(|| listener.next().unwrap()).find(|block| block.comment.is_some());

    let beat = beat.unwrap();
    assert_eq!((beat.comment.as_deref(), beat.event), (Some("heartbeat"), None));
    assert!(beat.id.is_some());
    server.process.signal(libc::SIGTERM);
    while listener.next().is_some() {}
    assert_eq!(server.process.ends(), Some(0));
}

#[test]
fn a_listener_hears_what_it_asked_for_and_who_may_not_listen_is_told() {
    let world = World::new(Engine::Sqlite);
    let server = Server::start(&world, &[("VODMILL_SSE_MAX_LISTENERS", "1")]);
    let _worker = worker(&world);
    let (one, other) = (world.submit(&spec(2)), world.submit(&spec(2)));
    until("both are over", || [one, other].iter().all(|job| world.job_state(*job) == "completed"));

    let heard = server.listen(&format!("?after=0-0&job={other}"), None).until_ended();
    assert!(heard.iter().all(|block| block.data["job"] == other), "{heard:?}");

    let mut seated = None;
    until("the place is free again", || {
        let (status, listener) = server.ask("", Some("99999999999-1"), SECRET);
        seated = Some(listener).filter(|_| status == 200);
        seated.is_some()
    });
    let (status, mut refused) = server.ask("", None, SECRET);
    let mut problem = String::new();
    refused.0.read_to_string(&mut problem).unwrap();
    assert_eq!(status, 503);
    assert!(problem.contains("too_many_listeners"), "{problem}");
    let mut seated = seated.unwrap();
    seated.next().unwrap();
    assert_eq!(seated.next().unwrap().event.as_deref(), Some("reset"), "its id is not of this history");
    assert_eq!(server.ask("", None, "wrong").0, 401);
    assert_eq!(server.ask("?after=x", None, SECRET).0, 400);
}

#[test]
fn what_happens_through_one_server_is_heard_at_another_by_redis() {
    let url = std::env::var("VODMILL_TEST_REDIS_URL").expect("a Redis to test with: scripts/with-services");
    let prefix = format!("test-{:016x}:", rand::random::<u64>());
    let redis = [
        ("VODMILL_REDIS_URL", url.as_str()),
        ("VODMILL_REDIS_PREFIX", prefix.as_str()),
        ("VODMILL_JOB_QUEUE_MODE", "redis"),
    ];
    heard_at_another(&redis);
}

#[test]
fn what_happens_through_one_server_is_heard_at_another_by_the_database() {
    heard_at_another(&[]);
}

fn heard_at_another(settings: &[(&str, &str)]) {
    let world = World::new(Engine::Postgres);
    let (here, there) = (Server::start(&world, settings), Server::start(&world, settings));
    let mut worker = world.vodmill(&["worker", "--slots", "1"]);
    for (name, value) in settings {
        worker = worker.env(name, value);
    }
    let _worker = worker.start();
    let mut listener = there.listen("", None);
    listener.next().unwrap();

    let stage = serde_json::json!({ "name": "work", "sleep_ms": 1500, "segments": 2 });
    let answer = http()
        .build()
        .unwrap()
        .post(format!("http://{}/api/jobs", here.address))
        .header("X-Admin-Secret", SECRET)
        .json(&serde_json::json!({ "name": "live", "stage": [stage] }))
        .send()
        .unwrap();
    assert!(answer.status().is_success(), "{answer:?}");

    let mut heard = Vec::new();
    while heard.last().is_none_or(|(_, what)| what != "ended") {
        let block = listener.next().expect("the stream goes on");
        if let Some(event) = block.event.filter(|event| event != "worker") {
            heard.push((event, block.data["what"].as_str().unwrap_or_default().to_owned()));
        }
    }
    let times = |event: &str, what: &str| heard.iter().filter(|it| it.0 == event && it.1 == what).count();
    assert_eq!(
        (times("job", "submitted"), times("segment", "done"), times("job", "ended")),
        (1, 2, 1),
        "{heard:?}"
    );
    assert!(times("progress", "") > 0, "{heard:?}");
}

/// Hears requests and answers 204; their texts.
fn receiver() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (sender, heard) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut text = [0; 8192];
            let length = stream.read(&mut text).unwrap_or(0);
            let _ = sender.send(String::from_utf8_lossy(&text[..length]).into_owned());
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
        }
    });
    (url, heard)
}

#[test]
fn a_server_posts_alerts_where_it_was_told_and_not_too_many() {
    let world = World::new(Engine::Sqlite);
    let (url, heard) = receiver();
    let settings = [
        ("VODMILL_ALERT_WEBHOOK_URL", url.as_str()),
        ("VODMILL_ALERT_WEBHOOK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        ("VODMILL_ALERT_EVENTS", "worker_startup"),
        ("VODMILL_ALERT_ALLOW_PRIVATE", "true"),
    ];
    let mut server = Server::start(&world, &settings);

    let first = heard.recv_timeout(DEADLINE).unwrap();

    assert!(first.contains("webhook-signature: v1,") && first.contains("worker_startup"), "{first}");
    server.process.kill();
    let again = Server::start(&world, &settings);
    let workers = || world.vodmill(&["workers", "--json"]).json().as_array().map_or(0, Vec::len);
    until("the next worker is there", || workers() == 2);
    drop(again);
    assert!(heard.recv_timeout(Duration::ZERO).is_err(), "one is enough for five minutes");
}

/// A claim does not wait for the disk. PostgreSQL crashes with it not written yet, and would give its number to another.
#[test]
fn what_was_told_is_there_after_a_crash_of_the_database() {
    let world = World::with_server();
    let sql = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'";
    let wal_writer: u32 = psql(&world.url, sql).trim().parse().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let told = runtime.block_on(async {
        let store = open(&world).await;
        let before = store.events_end().await.unwrap();
        store.submit(&noop()).await.unwrap();
        store.register_worker(&hello()).await.unwrap();
        kill(wal_writer, libc::SIGSTOP);

        assert_eq!(store.claim(hello().worker, 1).await.unwrap().len(), 1);
        store.events(before, 100).await.unwrap().events
    });
    // Its end is a crash to the others: shared memory is given up, and what is on disk is all there is.
    kill(wal_writer, libc::SIGKILL);

    until("PostgreSQL has recovered", || is_well(&world.url));
    let kept = runtime.block_on(async {
        let store = open(&world).await;
        store.events("0-0".parse().unwrap(), 100).await.unwrap().events
    });
    assert!(told.len() >= 3, "a job, a worker, and the job's begin: {told:?}");
    assert_eq!(kept, told);
}

async fn open(world: &World) -> store::Store {
    store::Store::open(&world.url.parse().unwrap(), store::Options::default()).await.unwrap()
}

fn noop() -> store::submit::NewJob {
    let stages = serde_json::json!([{ "name": "work", "kind": "noop" }]);
    let spec = serde_json::from_value(serde_json::json!({ "name": "live", "stage": stages })).unwrap();
    store::submit::NewJob { spec, video: None, idempotency_key: None }
}

fn hello() -> wire::Hello {
    wire::Hello {
        worker: rules::WorkerId(uuid::Uuid::nil()),
        name: "one".into(),
        kind: wire::Kind::Local,
        hostname: "here".into(),
        version: "1".into(),
        slots: 1,
        capabilities: "noop".parse().unwrap(),
        metadata: serde_json::json!(null),
    }
}

fn is_well(url: &str) -> bool {
    let asked = std::process::Command::new("psql").args([url, "-XAtqc", "SELECT 1"]).output().unwrap();
    asked.status.success()
}
