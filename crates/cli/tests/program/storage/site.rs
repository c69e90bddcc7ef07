//! Servers on one database and one bucket, each with a disk of its own, and workers that know only a server.

use super::bucket::{Bucket, KEY, SECRET};
use crate::support::seat::Seat;
use crate::support::{Engine, Process, Program, World, http, until};
use reqwest::blocking::{Client, RequestBuilder, Response};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const ADMIN: &str = "a secret of twenty or more";

pub struct Site {
    pub world: World,
    pub bucket: Bucket,
    pub client: Client,
    /// How servers reach the bucket.
    pub endpoint: String,
    _seat: Seat,
}

/// One of the servers.
pub struct Server<'a> {
    site: &'a Site,
    name: String,
    settings: Vec<(&'static str, String)>,
    process: Option<Process>,
    port: u16,
}

impl Site {
    pub fn new(engine: Engine) -> Self {
        Site::of(World::new(engine))
    }

    /// For a test that waits more than it works.
    pub fn quiet(engine: Engine) -> Self {
        Site::seated(Seat::take(2), World::new(engine))
    }

    pub fn of(world: World) -> Self {
        Site::seated(Seat::take(4), world)
    }

    fn seated(seat: Seat, world: World) -> Self {
        let bucket = Bucket::start();
        let client = http()
            .timeout(Duration::from_secs(60))
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .unwrap();
        let endpoint = bucket.endpoint();
        Site { world, bucket, client, endpoint, _seat: seat }
    }

    /// A server with these settings; without `VODMILL_SERVER_SLOTS` it leaves encoding to others.
    pub fn server(&self, name: &str, settings: &[(&'static str, &str)]) -> Server<'_> {
        let settings = settings.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let mut server = Server { site: self, name: name.into(), settings, process: None, port: 0 };
        server.start();
        server
    }

    /// A worker that knows nothing but an address and a key.
    pub fn worker(&self, server: &Server<'_>, url: &str) -> Worker {
        self.worker_called("one", server, url)
    }

    pub fn worker_called(&self, name: &str, server: &Server<'_>, url: &str) -> Worker {
        self.worker_with(name, server, url, &[])
    }

    pub fn worker_with(
        &self,
        name: &str,
        server: &Server<'_>,
        url: &str,
        settings: &[(&str, &str)],
    ) -> Worker {
        let registered = server.post("/api/worker/register", json!({ "name": name }));
        let key = registered["api_key"].as_str().unwrap().to_owned();
        let log = self.world.folder.path().join(format!("worker-{name}.log"));
        let process = self.start_worker(name, &key, url, &log, settings);
        Worker { process, name: name.into(), key, log }
    }

    fn start_worker(
        &self,
        name: &str,
        key: &str,
        url: &str,
        log: &Path,
        settings: &[(&str, &str)],
    ) -> Process {
        let folder = self.world.folder.path().join(format!("work-{name}"));
        let program = self
            .world
            .vodmill(&["worker", "--server", url, "--slots", "1"])
            .env("VODMILL_WORKER_KEY", key)
            .env("VODMILL_WORK_FOLDER", folder.to_str().unwrap())
            .env("VODMILL_DATABASE_URL", "sqlite:/nowhere/at/all.db")
            .env("VODMILL_LOG", "debug");
        settings.iter().fold(program, |program, (name, value)| program.env(name, value)).start_logged(log)
    }

    /// Small pictures that take much room in a file: what reads it is seen in every count.
    pub fn sample(&self, name: &str, seconds: u32) -> PathBuf {
        let path = self.world.folder.path().join(name);
        let picture = format!("testsrc2=size=160x90:rate=25:duration={seconds}");
        let sound = format!("sine=duration={seconds}");
        let made = Command::new("ffmpeg")
            .args([
                "-nostdin", "-v", "error", "-y", "-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound,
            ])
            .args(["-c:v", "rawvideo", "-pix_fmt", "yuv420p", "-c:a", "aac"])
            .arg(&path)
            .status();
        assert!(made.expect("ffmpeg is needed").success());
        path
    }

    /// The only generation of a video, as anybody may copy it out of the bucket, passes the gate; its name.
    pub fn is_published_once(&self, video: i64) -> String {
        let folder = self.bucket.path(&format!("videos/{video}"));
        let names: Vec<_> = std::fs::read_dir(&folder).unwrap().flatten().map(|it| it.file_name()).collect();
        let masters: Vec<_> =
            names.iter().filter(|name| folder.join(name).join("master.m3u8").is_file()).collect();
        assert_eq!(masters.len(), 1, "{names:?}");
        self.world.vodmill(&["check", folder.join(masters[0]).to_str().unwrap()]).succeeds();
        masters[0].to_str().unwrap().to_owned()
    }

    /// Nothing is left but what is published and what it was made of.
    pub fn is_tidy(&self) {
        let left = || {
            ["incoming", "parts", "uploads", "unfinished"]
                .iter()
                .flat_map(|it| self.bucket.objects(it))
                .collect::<Vec<_>>()
        };
        until("the janitor has been round", || left().is_empty());
        assert_eq!(self.bucket.elsewhere(), Vec::<PathBuf>::new());
    }
}

pub struct Worker {
    process: Process,
    name: String,
    key: String,
    log: PathBuf,
}

impl Worker {
    pub fn restart(&mut self, site: &Site, url: &str) {
        self.process.kill();
        self.process = site.start_worker(&self.name, &self.key, url, &self.log, &[]);
    }

    pub fn is_stopped(&self) -> bool {
        self.process.is_stopped()
    }

    pub fn pause(&self) {
        self.process.signal(libc::SIGSTOP);
    }

    pub fn resume(&self) {
        self.process.signal(libc::SIGCONT);
    }

    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Server<'_> {
    /// Starts it, at the address it had before if it had one.
    pub fn start(&mut self) {
        let log = self.log();
        let mut program = self
            .vodmill(&["serve"])
            .env("VODMILL_LISTEN", &format!("127.0.0.1:{}", self.port))
            .env("VODMILL_ADMIN_SECRET", ADMIN)
            .env("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "0.1")
            .env("VODMILL_WORKER_HEARTBEAT_INTERVAL", "0.5")
            .env("VODMILL_SERVER_SLOTS", "0")
            .env("VODMILL_JANITOR_INTERVAL", "0.5")
            .env("VODMILL_MAX_RETRY_ATTEMPTS", "10")
            .env("VODMILL_WORKER_DRAIN_SECONDS", "0");
        for (name, value) in &self.settings {
            program = program.env(name, value);
        }
        let (process, address) = program.start_serving(&log);
        self.process = Some(process);
        self.port = address.rsplit_once(':').unwrap().1.parse().unwrap();
    }

    /// The program with this server's folder and bucket.
    fn vodmill(&self, args: &[&str]) -> Program {
        let program = self.site.world.vodmill(args);
        program
            .env("VODMILL_DATA_FOLDER", self.data().to_str().unwrap())
            .env("VODMILL_STORAGE", &Bucket::url())
            .env("AWS_ENDPOINT", &self.site.endpoint)
            .env("AWS_ACCESS_KEY_ID", KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("AWS_REGION", "us-east-1")
    }

    /// The files that the database names are in the bucket, and no others.
    pub fn files_are_right(&self, flags: &[&str]) {
        self.vodmill(&[&["doctor", "--files"], flags].concat()).succeeds();
    }

    pub fn kill(&mut self) {
        self.process.take().unwrap().kill();
    }

    /// As an operator ends it.
    pub fn stop(&mut self) {
        let mut process = self.process.take().unwrap();
        process.signal(libc::SIGTERM);
        assert_eq!(process.ends(), Some(0), "{}", self.said());
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn data(&self) -> PathBuf {
        self.site.world.folder.path().join(format!("data-{}", self.name))
    }

    fn log(&self) -> PathBuf {
        self.site.world.folder.path().join(format!("{}.log", self.name))
    }

    pub fn said(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub fn anyone(&self, method: &str, path: &str) -> RequestBuilder {
        self.site.client.request(method.parse().unwrap(), self.url(path))
    }

    pub fn admin(&self, method: &str, path: &str) -> RequestBuilder {
        self.anyone(method, path).header("x-admin-secret", ADMIN)
    }

    pub fn get(&self, path: &str) -> Value {
        good(self.admin("GET", path).send().unwrap())
    }

    pub fn post(&self, path: &str, body: Value) -> Value {
        good(self.admin("POST", path).json(&body).send().unwrap())
    }

    pub fn text(&self, path: &str) -> String {
        let response = self.anyone("GET", path).send().unwrap();
        assert_eq!(response.status(), 200, "{path}");
        response.text().unwrap()
    }

    /// Uploads a file by tus, from where it is to `until`; how far it is then.
    pub fn append(&self, upload: &str, file: &[u8], until: usize) -> Response {
        let at = self.offset(upload);
        self.admin("PATCH", upload)
            .header("tus-resumable", "1.0.0")
            .header("upload-offset", at)
            .header("content-type", "application/offset+octet-stream")
            .body(file[at..until].to_vec())
            .send()
            .unwrap()
    }

    pub fn offset(&self, upload: &str) -> usize {
        let response = self.admin("HEAD", upload).header("tus-resumable", "1.0.0").send().unwrap();
        assert_eq!(response.status(), 200);
        response.headers()["upload-offset"].to_str().unwrap().parse().unwrap()
    }

    /// Begins a tus upload; where it goes.
    pub fn begin(&self, bytes: usize, metadata: &str) -> String {
        let response = self
            .admin("POST", "/api/uploads")
            .header("tus-resumable", "1.0.0")
            .header("upload-length", bytes)
            .header("upload-metadata", metadata)
            .send()
            .unwrap();
        assert_eq!(response.status(), 201);
        response.headers()["location"].to_str().unwrap().to_owned()
    }

    /// Waits until the video is in this state; its detail.
    pub fn video_is(&self, id: i64, state: &str) -> Value {
        let look = || self.get(&format!("/api/videos/{id}"));
        until(&format!("video {id} is {state}"), || {
            let video = look();
            let is_failed = state != "failed" && video["state"] == "failed";
            assert!(!is_failed, "{}\n{}", self.get(&format!("/api/jobs/{}", video["job"])), self.said());
            video["state"] == state
        });
        look()
    }
}

/// The answer, which must be a good one.
pub fn good(response: Response) -> Value {
    let (status, url) = (response.status(), response.url().clone());
    let text = response.text().unwrap();
    assert!(status.is_success(), "{url}: {status} {text}");
    if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap() }
}
