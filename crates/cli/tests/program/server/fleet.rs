//! Real workers on the other side of HTTP: they make streams, and are killed, paused and cut off meanwhile.

use super::clips::clip;
use crate::on_both_engines;
use crate::support::house::{House, encoder_in};
use crate::support::seat::Seat;
use crate::support::{Engine, Process, kill, until};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

on_both_engines![
    workers_with_nothing_but_an_address_and_a_key_make_a_stream,
    a_fleet_that_is_killed_paused_and_cut_off_publishes_every_video_once,
];

/// What is between workers and the server, whatever the engine behind it: each takes minutes of processors.
mod postgres_alone {
    use crate::support::Engine::Postgres;

    #[test]
    fn a_hung_encoder_under_a_heartbeating_worker_is_noticed() {
        super::a_hung_encoder_under_a_heartbeating_worker_is_noticed(Postgres);
    }

    #[test]
    fn a_worker_asleep_for_longer_than_its_lease_is_replaced_and_told_so() {
        super::a_worker_asleep_for_longer_than_its_lease_is_replaced_and_told_so(Postgres);
    }

    #[test]
    fn a_worker_asked_to_end_gives_its_work_back() {
        super::a_worker_asked_to_end_gives_its_work_back(Postgres);
    }

    #[test]
    fn a_proxy_that_cuts_connections_costs_time_and_nothing_else() {
        super::a_proxy_that_cuts_connections_costs_time_and_nothing_else(Postgres);
    }

    #[test]
    fn a_line_that_stands_still_costs_time_and_nothing_else() {
        super::a_line_that_stands_still_costs_time_and_nothing_else(Postgres);
    }
}

/// The server encodes nothing itself. Attempts are plenty: a test may strike the same task again and again.
fn house(engine: Engine) -> House {
    patient_house(engine, "10")
}

/// What stands still for `stall` seconds is given up.
fn patient_house(engine: Engine, stall: &str) -> House {
    House::seated(
        Seat::take(4),
        engine,
        &[
            ("VODMILL_ENCODER_STALL_SECONDS", stall),
            ("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "0.1"),
            ("VODMILL_MAX_RETRY_ATTEMPTS", "10"),
        ],
    )
}

struct Worker {
    process: Process,
    folder: PathBuf,
    log: PathBuf,
    name: String,
    key: String,
}

impl Worker {
    fn new(house: &House, name: &str, url: &str) -> Self {
        let key = house.post("/api/worker/register", json!({ "name": name }))["api_key"]
            .as_str()
            .unwrap()
            .to_owned();
        let log = house.world.folder.path().join(format!("{name}.log"));
        let process = start(house, name, &key, url, &log);
        let folder = house.world.folder.path().join(format!("work-{name}"));
        Worker { process, folder, log, name: name.into(), key }
    }

    fn restart(&mut self, house: &House, url: &str) {
        self.process.kill();
        self.process = start(house, &self.name, &self.key, url, &self.log);
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

fn start(house: &House, name: &str, key: &str, url: &str, log: &Path) -> Process {
    house
        .world
        .vodmill(&["worker", "--server", url, "--slots", "1"])
        .env("VODMILL_WORKER_KEY", key)
        .env("VODMILL_WORK_FOLDER", house.world.folder.path().join(format!("work-{name}")).to_str().unwrap())
        .env("VODMILL_DATABASE_URL", "sqlite:/nowhere/at/all.db")
        .start_logged(log)
}

fn executions(house: &House, job: &Value) -> Vec<Value> {
    house.get(&format!("/api/jobs/{job}/executions")).as_array().unwrap().clone()
}

/// Enough to be met at work.
fn long(house: &House) -> PathBuf {
    house.sample_of("long.mp4", "640x360", 16)
}

/// The generation passes the gate, as anybody may run it on the folder; which that is.
fn passes_the_gate(house: &House, video: i64) -> PathBuf {
    let folder = house.data().join("videos").join(video.to_string());
    let generations: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().collect();
    assert_eq!(generations.len(), 1, "published once");
    house.world.vodmill(&["check", generations[0].path().to_str().unwrap()]).succeeds();
    generations[0].path()
}

/// Nothing is left of executions that lost, nor of jobs that are over.
fn is_tidy(house: &House) {
    until("the janitor has been round", || {
        ["incoming", "parts"].iter().all(|name| {
            std::fs::read_dir(house.data().join(name)).map_or(true, |entries| entries.count() == 0)
        })
    });
}

fn workers_with_nothing_but_an_address_and_a_key_make_a_stream(engine: Engine) {
    let house = house(engine);
    let workers: Vec<_> = ["one", "two"].map(|name| Worker::new(&house, name, &house.url(""))).into();
    let file = house.sample("a.mp4", 20);

    house.upload(&file, "slug=talk");
    let video = house.video_is(1, "ready");

    passes_the_gate(&house, 1);
    let used: std::collections::BTreeSet<String> = executions(&house, &video["job"])
        .iter()
        .map(|it| it["worker"].as_str().unwrap().to_owned())
        .collect();
    assert!(used.len() >= 2, "the server packs, others encode: {used:?}");
    let steps = house.get(&format!("/api/jobs/{}/steps", video["job"])).to_string();
    for worker in &workers {
        assert!(
            !steps.contains(&worker.key) && !worker.said().contains(&worker.key),
            "no secret in a command or a log"
        );
    }
    is_tidy(&house);
    house.is_healthy();
}

fn a_hung_encoder_under_a_heartbeating_worker_is_noticed(engine: Engine) {
    let house = house(engine);
    let worker = Worker::new(&house, "one", &house.url(""));
    house.upload(&long(&house), "slug=talk");
    let mut encoder = None;
    until("it encodes", || {
        encoder = encoder_in(&worker.folder);
        encoder.is_some()
    });

    kill(encoder.unwrap(), libc::SIGSTOP);

    let video = house.video_is(1, "ready");
    let failed: Vec<Value> =
        executions(&house, &video["job"]).into_iter().filter(|it| !it["failure"].is_null()).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    house.is_healthy();
}

fn a_worker_asleep_for_longer_than_its_lease_is_replaced_and_told_so(engine: Engine) {
    let house = house(engine);
    let asleep = Worker::new(&house, "asleep", &house.url(""));
    house.upload(&long(&house), "slug=talk");
    let mut encoder = None;
    until("it encodes", || {
        encoder = encoder_in(&asleep.folder);
        encoder.is_some()
    });
    let _awake = Worker::new(&house, "awake", &house.url(""));

    asleep.process.signal(libc::SIGSTOP);
    house.video_is(1, "ready");
    asleep.process.signal(libc::SIGCONT);

    until("it drops the work it had", || asleep.said().contains("dropped"));
    passes_the_gate(&house, 1);
    is_tidy(&house);
    house.is_healthy();
}

fn a_worker_asked_to_end_gives_its_work_back(engine: Engine) {
    let house = house(engine);
    let mut leaving = Worker::new(&house, "leaving", &house.url(""));
    house.upload(&long(&house), "slug=talk");
    until("it encodes", || encoder_in(&leaving.folder).is_some());

    // Asked twice, it does not finish what it has.
    leaving.process.signal(libc::SIGTERM);
    leaving.process.signal(libc::SIGTERM);
    leaving.process.ends();
    let _other = Worker::new(&house, "other", &house.url(""));

    let video = house.video_is(1, "ready");
    let kinds: Vec<Value> = executions(&house, &video["job"])
        .into_iter()
        .map(|it| it["failure"].clone())
        .filter(|it| !it.is_null())
        .collect();
    assert!(kinds.iter().all(|kind| kind == "drained"), "{kinds:?}");
    let workers = house.get("/api/workers?all=true");
    let gone = workers.as_array().unwrap().iter().find(|it| it["name"] == "leaving").unwrap();
    assert_eq!(gone["status"], "offline", "it has said goodbye");
    house.is_healthy();
}

/// A proxy that cuts each connection after a while, the first few uploads halfway, and all while it is closed.
struct Proxy {
    port: u16,
    is_closed: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    uploads_to_cut: Arc<AtomicI64>,
    line: Arc<Line>,
}

/// Connections are numbered. Those up to the number pass nothing on, and nobody is told that they are dead.
#[derive(Default)]
struct Line {
    newest: AtomicU64,
    dead: AtomicU64,
}

impl Line {
    fn is_dead(&self, connection: u64) -> bool {
        connection <= self.dead.load(Ordering::SeqCst)
    }
}

const UPLOADS_TO_CUT: i64 = 3;

impl Proxy {
    fn before(house: &House, seed: u64, cut_after: std::ops::Range<usize>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy {
            port: listener.local_addr().unwrap().port(),
            is_closed: Arc::default(),
            open: Arc::default(),
            uploads_to_cut: Arc::new(AtomicI64::new(UPLOADS_TO_CUT)),
            line: Arc::default(),
        };
        let line = proxy.line.clone();
        let (to, is_closed, open) =
            (house.url("").replace("http://", ""), proxy.is_closed.clone(), proxy.open.clone());
        let uploads = proxy.uploads_to_cut.clone();
        let mut dice = StdRng::seed_from_u64(seed);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&to) else { continue };
                if is_closed.load(Ordering::SeqCst) {
                    continue;
                }
                open.lock().unwrap().extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
                let (up, down) = (dice.random_range(cut_after.clone()), dice.random_range(cut_after.clone()));
                let (client2, server2) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let number = line.newest.fetch_add(1, Ordering::SeqCst) + 1;
                let (there, back) = ((line.clone(), number), (line.clone(), number));
                let uploads = uploads.clone();
                std::thread::spawn(move || forward(client, server, up, &there, Some(&uploads)));
                std::thread::spawn(move || forward(server2, client2, down, &back, None));
            }
        });
        proxy
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn open(&self) {
        self.is_closed.store(false, Ordering::SeqCst);
    }

    /// Nothing passes, on old connections and on new ones.
    fn stand_still(&self) {
        self.line.dead.store(u64::MAX, Ordering::SeqCst);
    }

    /// New connections pass again; those of before stay as they are.
    fn go_on(&self) {
        self.line.dead.store(self.line.newest.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    fn has_cut_uploads(&self) -> bool {
        self.uploads_to_cut.load(Ordering::SeqCst) <= 0
    }
}

fn forward(
    mut from: TcpStream,
    mut to: TcpStream,
    mut left: usize,
    (line, number): &(Arc<Line>, u64),
    uploads: Option<&AtomicI64>,
) {
    let mut block = [0; 16 << 10];
    while let Ok(read) = from.read(&mut block) {
        while line.is_dead(*number) {
            std::thread::sleep(Duration::from_millis(50));
        }
        if let Some(half) = uploads.and_then(|uploads| half_of_an_upload(&block[..read], uploads)) {
            left = half;
        }
        let pass = read.min(left);
        if pass == 0 || to.write_all(&block[..pass]).is_err() {
            break;
        }
        left -= pass;
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// How far to let the upload come that begins with this block, if it is one of those to be cut.
fn half_of_an_upload(block: &[u8], left: &AtomicI64) -> Option<usize> {
    let text = String::from_utf8_lossy(block);
    let head = text.strip_prefix("PUT /api/worker/outputs/")?.split("\r\n\r\n").next()?;
    let length = |line: &str| line.to_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok();
    let body = head.lines().find_map(length).filter(|length| *length > 1)?;
    let begins = block.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    (left.fetch_sub(1, Ordering::SeqCst) > 0).then_some(begins + body / 2)
}

fn a_proxy_that_cuts_connections_costs_time_and_nothing_else(engine: Engine) {
    // On a busy machine, a line that cuts and the breaker make pauses of many seconds.
    let house = patient_house(engine, "100");
    let proxy = Proxy::before(&house, 7, 50_000..400_000);
    let _worker = Worker::new(&house, "one", &proxy.url());

    house.upload(&house.sample("a.mp4", 20), "slug=talk");
    let video = house.video_is(1, "ready");

    passes_the_gate(&house, 1);
    let executions = executions(&house, &video["job"]);
    let failed: Vec<&Value> = executions.iter().filter(|it| !it["failure"].is_null()).collect();
    // A lease whose answer was cut off runs out; nothing else is given up.
    assert!(failed.iter().all(|it| it["failure"] == "lease_expired"), "{failed:?}");
    house.is_healthy();
}

/// For half a minute nothing passes; then new connections do, and the old ones stay half open.
fn a_line_that_stands_still_costs_time_and_nothing_else(engine: Engine) {
    let house = patient_house(engine, "100");
    let proxy = Proxy::before(&house, 7, usize::MAX - 1..usize::MAX);
    proxy.uploads_to_cut.store(0, Ordering::SeqCst);
    let worker = Worker::new(&house, "one", &proxy.url());
    house.upload(&house.sample("a.mp4", 20), "slug=talk");
    until("it encodes", || encoder_in(&worker.folder).is_some());

    proxy.stand_still();
    std::thread::sleep(Duration::from_secs(30));
    proxy.go_on();

    let video = house.video_is(1, "ready");
    passes_the_gate(&house, 1);
    let executions = executions(&house, &video["job"]);
    let failed: Vec<&Value> = executions.iter().filter(|it| !it["failure"].is_null()).collect();
    assert!(failed.iter().all(|it| it["failure"] == "lease_expired"), "{failed:?}");
    house.is_healthy();
}

/// How many videos; `make chaos` takes more.
fn videos() -> i64 {
    std::env::var("VODMILL_FLEET_VIDEOS").ok().and_then(|text| text.parse().ok()).unwrap_or(2)
}

fn a_fleet_that_is_killed_paused_and_cut_off_publishes_every_video_once(engine: Engine) {
    let seed = std::env::var("VODMILL_FLEET_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(rand::random);
    println!("VODMILL_FLEET_SEED={seed}");
    let mut dice = StdRng::seed_from_u64(seed);
    let mut house = house(engine);
    let proxy = Proxy::before(&house, seed, 300_000..3_000_000);
    let mut workers: Vec<Worker> =
        (0..4).map(|n| Worker::new(&house, &format!("w{n}"), &proxy.url())).collect();
    for n in 0..videos() {
        let (clip, gray) = clip(n as usize);
        house.upload(&clip.make(&house, gray), &format!("slug=video-{n}"));
    }
    let ready = |house: &House| {
        let all = house.get("/api/videos")["items"].as_array().unwrap().clone();
        let failed: Vec<_> = all.iter().filter(|it| it["state"] == "failed").collect();
        assert!(failed.is_empty(), "{failed:?}");
        all.iter().filter(|it| it["state"] == "ready").count() as i64
    };

    // One blow after the other, until each kind has fallen a few times; then they are left in peace.
    for blow in 0..12 {
        if ready(&house) == videos() {
            break;
        }
        let victim = dice.random_range(0..workers.len());
        match blow % 4 {
            0 => workers[victim].restart(&house, &proxy.url()),
            1 => {
                workers[victim].process.signal(libc::SIGSTOP);
                rest(&mut dice, 9000);
                workers[victim].process.signal(libc::SIGCONT);
            }
            2 => {
                proxy.close();
                rest(&mut dice, 1500);
                proxy.open();
            }
            _ => {
                house.kill();
                rest(&mut dice, 500);
                house.start();
            }
        }
        rest(&mut dice, 800);
    }

    until("all videos are ready", || ready(&house) == videos());
    for id in 1..=videos() {
        let video = house.get(&format!("/api/videos/{id}"));
        assert_eq!(video["generations"].as_array().unwrap().len(), 1, "published once");
        let (clip, gray) = clip(id as usize - 1);
        clip.is_in(gray, &passes_the_gate(&house, id));
    }
    assert!(proxy.has_cut_uploads(), "workers were cut off while uploading too");
    drop(workers);
    is_tidy(&house);
    house.is_healthy();
}

/// The chaos itself, and not something that is waited for.
fn rest(dice: &mut StdRng, most_ms: u64) {
    std::thread::sleep(Duration::from_millis(dice.random_range(most_ms / 2..=most_ms)));
}
