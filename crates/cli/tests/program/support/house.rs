//! A server of a test's own, and how to speak to it.

use crate::support::seat::Seat;
use crate::support::{Engine, Process, Program, World, http, until};
use reqwest::blocking::{Client, RequestBuilder, Response};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub const SECRET: &str = "a secret of twenty or more";

pub struct House {
    pub world: World,
    pub client: Client,
    process: Option<Process>,
    port: u16,
    /// More settings, as variables.
    settings: Vec<(&'static str, String)>,
    /// Its data folder is a disk of so many megabytes, which it alone sees.
    disk: Option<u32>,
    _seat: Seat,
}

impl House {
    /// A server that leaves encoding to others.
    pub fn new(engine: Engine) -> Self {
        House::with(engine, &[])
    }

    /// A server that makes streams itself.
    pub fn encoding(engine: Engine) -> Self {
        House::with(engine, &[("VODMILL_SERVER_SLOTS", "2")])
    }

    /// A server with a lease of three seconds and these settings besides.
    pub fn with(engine: Engine, settings: &[(&'static str, &str)]) -> Self {
        let is_encoding = settings.iter().any(|(name, _)| *name == "VODMILL_SERVER_SLOTS");
        House::seated(Seat::take(if is_encoding { 2 } else { 1 }), engine, settings)
    }

    pub fn seated(seat: Seat, engine: Engine, settings: &[(&'static str, &str)]) -> Self {
        House::of(World::new(engine), seat, settings)
    }

    pub fn of(world: World, seat: Seat, settings: &[(&'static str, &str)]) -> Self {
        let client = http().timeout(Duration::from_secs(50)).build().unwrap();
        let settings = settings.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let mut house = House { world, client, process: None, port: 0, settings, disk: None, _seat: seat };
        house.start();
        house
    }

    /// A server whose data folder, database and all, is a disk of so many megabytes.
    pub fn on_own_disk(megabytes: u32, settings: &[(&'static str, &str)]) -> Self {
        let world = World::new(Engine::Sqlite);
        let client = http().timeout(Duration::from_secs(50)).build().unwrap();
        let settings = settings.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let (process, disk, seat) = (None, Some(megabytes), Seat::take(1));
        let mut house = House { world, client, process, port: 0, settings, disk, _seat: seat };
        let database = format!("sqlite:{}", house.data().join("vodmill.db").display());
        house.set("VODMILL_DATABASE_URL", &database);
        house.start();
        house
    }

    /// Starts the server, at the address it had before if it had one.
    pub fn start(&mut self) {
        let (process, address) = self.serve().start_serving(&self.log());
        self.process = Some(process);
        self.port = address.rsplit_once(':').unwrap().1.parse().unwrap();
    }

    /// For the next start.
    pub fn set(&mut self, name: &'static str, value: &str) {
        self.settings.push((name, value.into()));
    }

    fn serve(&self) -> Program {
        let mut program = self
            .world
            .vodmill(&["serve"])
            .env("VODMILL_LISTEN", &format!("127.0.0.1:{}", self.port))
            .env("VODMILL_ADMIN_SECRET", SECRET)
            .env("VODMILL_DATA_FOLDER", self.data().to_str().unwrap())
            .env("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "0.05")
            .env("VODMILL_WORKER_HEARTBEAT_INTERVAL", "0.5")
            .env("VODMILL_STALE_JOB_CHECK_INTERVAL", "0.5")
            .env("VODMILL_SERVER_SLOTS", "0")
            .env("VODMILL_JANITOR_INTERVAL", "1")
            .env("VODMILL_API_JOB_KINDS", "noop,sleep,command")
            .env("VODMILL_WORKER_SUSPEND_AFTER", "0")
            .env("VODMILL_WORKER_DRAIN_SECONDS", "0");
        for (name, value) in &self.settings {
            program = program.env(name, value);
        }
        match self.disk {
            Some(megabytes) => program.on_own_disk(&self.data(), megabytes),
            None => program,
        }
    }

    /// What it was given besides.
    pub fn settings(&self) -> &[(&'static str, String)] {
        &self.settings
    }

    pub fn log(&self) -> PathBuf {
        self.world.folder.path().join("serve.log")
    }

    pub fn data(&self) -> PathBuf {
        self.world.folder.path().join("data")
    }

    /// The server's process.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().unwrap().0.id()
    }

    pub fn signal(&self, signal: i32) {
        self.process.as_ref().unwrap().signal(signal);
    }

    pub fn kill(&mut self) {
        self.process.take().unwrap().kill();
    }

    /// Starts a server that dies by itself, perhaps before it listens.
    pub fn starts_and_dies(&mut self) {
        self.starts_and_dies_as(|program| program);
    }

    /// As [`House::starts_and_dies`], where the program is changed first.
    pub fn starts_and_dies_as(&mut self, change: impl FnOnce(Program) -> Program) {
        assert_eq!(change(self.serve()).start_logged(&self.log()).ends(), None, "killed");
    }

    /// Waits until the server has died by itself.
    #[allow(dead_code)]
    pub fn dies(&mut self) {
        self.process.take().unwrap().ends();
    }

    /// Asks the server to end; its exit code.
    pub fn stop(&mut self) -> Option<i32> {
        let mut process = self.process.take().unwrap();
        process.signal(libc::SIGTERM);
        process.ends()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub fn admin(&self, method: &str, path: &str) -> RequestBuilder {
        self.anyone(method, path).header("x-admin-secret", SECRET)
    }

    pub fn anyone(&self, method: &str, path: &str) -> RequestBuilder {
        self.client.request(method.parse().unwrap(), self.url(path))
    }

    pub fn get(&self, path: &str) -> Value {
        good(self.admin("GET", path).send().unwrap())
    }

    pub fn post(&self, path: &str, body: Value) -> Value {
        good(self.admin("POST", path).json(&body).send().unwrap())
    }

    /// The first event of this name.
    pub fn told(&self, name: &str, query: &str) -> Value {
        let stream = self.admin("GET", &format!("/api/events{query}")).send().unwrap();
        assert_eq!(stream.status(), 200);
        let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
        lines.find(|line| *line == format!("event: {name}")).unwrap();
        let data = lines.next().unwrap();
        serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap()
    }

    pub fn upload(&self, file: &PathBuf, query: &str) -> Value {
        let body = std::fs::read(file).unwrap();
        good(self.admin("POST", &format!("/api/videos?{query}")).body(body).send().unwrap())
    }

    /// Waits until the video is in this state; its detail.
    pub fn video_is(&self, id: i64, state: &str) -> Value {
        let look = || self.get(&format!("/api/videos/{id}"));
        until(&format!("video {id} is {state}"), || {
            let video = look();
            assert!(
                state == "failed" || video["state"] != "failed",
                "{}",
                self.get(&format!("/api/jobs/{}", video["job"]))
            );
            video["state"] == state
        });
        look()
    }

    /// Waits for a whole round of the janitor on a disk, by what nobody needs: it may have been halfway at the first.
    pub fn janitor_goes_round(&self) {
        let folder = self.data().join("parts/999-0.1");
        for _ in 0..2 {
            std::fs::create_dir_all(&folder).unwrap();
            until("the janitor has been round", || !folder.exists());
        }
    }

    /// Some seconds of moving picture and sound.
    pub fn sample(&self, name: &str, seconds: u32) -> PathBuf {
        self.sample_of(name, "320x180", seconds)
    }

    pub fn sample_of(&self, name: &str, size: &str, seconds: u32) -> PathBuf {
        let path = self.world.folder.path().join(name);
        super::sample(&path, size, seconds);
        path
    }

    pub fn is_healthy(&self) {
        self.world.is_healthy();
    }

    /// A worker process that knows only the server's address and its key.
    pub fn remote_worker(&self, name: &str, settings: &[(&str, &str)]) -> Remote {
        self.remote_worker_as(json!({ "name": name }), settings)
    }

    /// As [`House::remote_worker`], registered with these bounds.
    pub fn remote_worker_as(&self, registration: Value, settings: &[(&str, &str)]) -> Remote {
        self.remote_worker_with(registration, settings, |program, _| program)
    }

    /// As [`House::remote_worker_as`]; `change` is given the program and the folder it works in.
    pub fn remote_worker_with(
        &self,
        registration: Value,
        settings: &[(&str, &str)],
        change: impl FnOnce(Program, &Path) -> Program,
    ) -> Remote {
        let registered = self.post("/api/worker/register", registration.clone());
        let name = registration["name"].as_str().unwrap();
        let (log, work) = (format!("{name}.log"), format!("work-{name}"));
        let (log, work) = (self.world.folder.path().join(log), self.world.folder.path().join(work));
        let mut program = self
            .world
            .vodmill(&["worker", "--server", &self.url(""), "--slots", "1"])
            .env("VODMILL_WORKER_KEY", registered["api_key"].as_str().unwrap())
            .env("VODMILL_WORK_FOLDER", work.to_str().unwrap())
            .env("VODMILL_DATABASE_URL", "sqlite:/nowhere/at/all.db");
        for (name, value) in settings {
            program = program.env(name, value);
        }
        let id = registered["worker_id"].as_str().unwrap().to_owned();
        Remote { process: change(program, &work).start_logged(&log), log, id }
    }

    /// The same worker as before the server was away.
    pub fn again(&self, badge: &Badge) -> Hand<'_> {
        Hand { house: self, badge: badge.clone() }
    }

    /// A registered worker that this test plays itself.
    pub fn worker(&self, name: &str, capabilities: &[&str]) -> Hand<'_> {
        self.worker_as(json!({ "name": name }), capabilities)
    }

    /// As [`House::worker`], registered with these bounds.
    pub fn worker_as(&self, registration: Value, capabilities: &[&str]) -> Hand<'_> {
        let registered = self.post("/api/worker/register", registration);
        let badge = Badge {
            id: registered["worker_id"].as_str().unwrap().into(),
            key: registered["api_key"].as_str().unwrap().into(),
            incarnation: uuid::Uuid::now_v7().to_string(),
            capabilities: capabilities.iter().map(|it| (*it).to_owned()).collect(),
        };
        let hand = self.again(&badge);
        good(hand.hello());
        hand
    }
}

/// A worker process; killed when dropped.
pub struct Remote {
    pub process: Process,
    pub log: PathBuf,
    pub id: String,
}

/// The encoder that works below this folder.
pub fn encoder_in(folder: &Path) -> Option<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.find(|id| {
        let name = std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        let words = std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let place = std::fs::read_link(format!("/proc/{id}/cwd")).unwrap_or_default();
        name.trim() == "ffmpeg" && words.contains("libx264") && place.starts_with(folder)
    })
}

/// The answer, which must be a good one.
pub fn good(response: Response) -> Value {
    let (status, url) = (response.status(), response.url().clone());
    let text = response.text().unwrap();
    assert!(status.is_success(), "{url}: {status} {text}");
    if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap() }
}

/// The problem it answers with, which must have this status and code.
#[track_caller]
pub fn problem(response: Response, status: u16, code: &str) -> Value {
    let kind = response.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
    let (found, text) = (response.status().as_u16(), response.text().unwrap());
    assert_eq!(found, status, "{text}");
    assert_eq!(kind.as_deref(), Some("application/problem+json"), "{text}");
    let problem: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(problem["code"], code, "{text}");
    assert!(
        problem["request_id"].is_string() && problem["detail"].as_str().is_some_and(|it| !it.is_empty()),
        "{text}"
    );
    problem
}

/// A worker's hand: says over HTTP what a test wants it to say.
pub struct Hand<'a> {
    house: &'a House,
    pub badge: Badge,
}

/// Who a hand is, whatever becomes of the server.
#[derive(Clone)]
pub struct Badge {
    pub id: String,
    pub key: String,
    pub incarnation: String,
    capabilities: Vec<String>,
}

impl std::ops::Deref for Hand<'_> {
    type Target = Badge;

    fn deref(&self) -> &Badge {
        &self.badge
    }
}

impl Hand<'_> {
    pub fn request(&self, method: &str, path: &str) -> RequestBuilder {
        self.house.anyone(method, path).bearer_auth(&self.key)
    }

    pub fn say(&self, word: &str, body: Value) -> Response {
        self.request("POST", &format!("/api/worker/{word}")).json(&body).send().unwrap()
    }

    fn hello(&self) -> Response {
        self.declare(64)
    }

    pub fn declare(&self, slots: u32) -> Response {
        self.say(
            "heartbeat",
            json!({
                "incarnation": self.incarnation, "phase": "Polling", "running": 0,
                "hello": {
                    "hostname": "test", "version": env!("CARGO_PKG_VERSION"), "slots": slots,
                    "capabilities": self.capabilities, "metadata": {},
                },
            }),
        )
    }

    pub fn heartbeat(&self, running: u32) -> Response {
        let body = json!({ "incarnation": self.incarnation, "phase": "Polling", "running": running });
        self.say("heartbeat", body)
    }

    pub fn claim(&self, max: u32, wait_ms: u32) -> Vec<Value> {
        let body = json!({ "incarnation": self.incarnation, "max": max, "wait_ms": wait_ms });
        good(self.say("claim", body))["assignments"].as_array().unwrap().clone()
    }

    /// The one task there is to do, within ten seconds.
    pub fn claim_one(&self) -> Value {
        self.claim(1, 10_000).into_iter().next().expect("there is work")
    }

    pub fn progress(&self, assignment: &Value, progress: i64) -> Value {
        let report = json!({ "proof": assignment["proof"], "progress": progress, "step": "test" });
        good(self.say("progress", json!({ "reports": [report] })))["answers"][0].clone()
    }

    pub fn complete(&self, assignment: &Value, result: Value) -> Response {
        self.say("complete", json!({ "proof": assignment["proof"], "result": result, "usage": usage() }))
    }

    pub fn fail(&self, assignment: &Value, kind: &str, message: &str) -> Response {
        let body =
            json!({ "proof": assignment["proof"], "kind": kind, "message": message, "usage": usage() });
        self.say("fail", body)
    }

    pub fn release(&self, assignment: &Value) -> Result<Response, reqwest::Error> {
        let body = json!({ "proof": assignment["proof"], "message": "shutting down" });
        self.request("POST", "/api/worker/release").json(&body).send()
    }

    pub fn proof_header(&self, assignment: &Value) -> String {
        let proof = &assignment["proof"];
        format!("{}.{}.{}", proof["task"].as_str().unwrap(), proof["fence"], proof["token"])
    }

    /// Its execution as files and folders name it.
    pub fn execution(&self, assignment: &Value) -> String {
        let proof: wire::LeaseToken = serde_json::from_value(assignment["proof"].clone()).unwrap();
        proof.shown_by(self.id.parse().unwrap()).execution().to_string()
    }

    pub fn put(&self, assignment: &Value, path: &str, bytes: &[u8]) -> RequestBuilder {
        use sha2::{Digest, Sha256};
        self.request("PUT", &format!("/api/worker/outputs/{path}"))
            .header("x-vodmill-proof", self.proof_header(assignment))
            .header("x-vodmill-sha256", hex::encode(Sha256::digest(bytes)))
            .body(bytes.to_vec())
    }
}

pub fn usage() -> Value {
    json!({ "wall_ms": 1, "cpu_ms": 1, "peak_memory_bytes": 1, "bytes_in": 0, "bytes_out": 0 })
}
