//! A world for tests with real processes: a database of its own, and the program as users run it.

#![allow(clippy::expect_used)]

pub mod house;
pub mod seat;
pub mod silent_line;
pub mod small_disk;

use small_disk::SmallDisk;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything here may take before it counts as hung.
pub const DEADLINE: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Sqlite,
    Postgres,
}

pub struct World {
    pub engine: Engine,
    pub url: String,
    pub folder: TempDir,
    /// A server of this world's own, which it may restart or kill.
    pub server: Option<Server>,
    /// What is run as `vodmill`.
    program: Mutex<PathBuf>,
}

impl World {
    /// An empty database on the engine's shared server.
    pub fn new(engine: Engine) -> World {
        let world = World::bare(engine);
        world.vodmill(&["migrate"]).succeeds();
        world
    }

    /// As [`World::new`], without the schema.
    pub fn bare(engine: Engine) -> World {
        let folder = tempfile::tempdir().unwrap();
        let url = match engine {
            Engine::Sqlite => format!("sqlite:{}", folder.path().join("vodmill.db").display()),
            Engine::Postgres => create_database(&shared_server(), None),
        };
        World { engine, url, folder, server: None, program: this_program() }
    }

    /// On the shared PostgreSQL, as somebody who is nobody there; and who that is.
    pub fn of_stranger() -> (World, String) {
        let mut world = World::bare(Engine::Postgres);
        let (base, name) = world.url.rsplit_once('/').unwrap();
        let (scheme, host) = base.split_once("://").unwrap();
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        let role = format!("role_{:016x}", rand::random::<u64>());
        psql(&world.url, &format!("CREATE ROLE {role} LOGIN; ALTER DATABASE {name} OWNER TO {role}"));
        world.url = format!("{scheme}://{role}@{host}/{name}");
        world.vodmill(&["migrate"]).succeeds();
        (world, role)
    }

    /// A PostgreSQL server of its own.
    pub fn with_server() -> World {
        let server = Server::start();
        World::at(server.url(), server)
    }

    /// On this server, in the database with this URL.
    pub fn at(url: String, server: Server) -> World {
        let world = World {
            engine: Engine::Postgres,
            url,
            folder: tempfile::tempdir().unwrap(),
            server: Some(server),
            program: this_program(),
        };
        world.vodmill(&["migrate"]).succeeds();
        world
    }

    /// Another world with the same content. Nothing may be running in this one.
    pub fn copy(&self) -> World {
        let folder = tempfile::tempdir().unwrap();
        let url = match self.engine {
            Engine::Postgres => create_database(&shared_server(), Some(self.url.rsplit('/').next().unwrap())),
            Engine::Sqlite => {
                for name in ["vodmill.db", "vodmill.db-wal"] {
                    let from = self.folder.path().join(name);
                    if from.exists() {
                        std::fs::copy(&from, folder.path().join(name)).unwrap();
                    }
                }
                format!("sqlite:{}", folder.path().join("vodmill.db").display())
            }
        };
        let effects = self.folder.path().join("effects");
        if effects.exists() {
            std::fs::copy(&effects, folder.path().join("effects")).unwrap();
        }
        World { engine: self.engine, url, folder, server: None, program: this_program() }
    }

    /// From now on the program of another version is run.
    pub fn run_by(&self, program: &Path) {
        *self.program.lock().unwrap() = program.into();
    }

    pub fn vodmill(&self, args: &[&str]) -> Program {
        let mut command = Command::new(&*self.program.lock().unwrap());
        command
            .args(args)
            .current_dir(self.folder.path())
            .env("VODMILL_DATABASE_URL", &self.url)
            .env("VODMILL_WORK_FOLDER", self.folder.path().join("work"))
            .env("VODMILL_DATABASE_CONNECTIONS", "4")
            // Most need no other, and every one that is tried takes its time.
            .env("VODMILL_ENCODERS", "libx264")
            .env_remove("VODMILL_FAILPOINT")
            .stdin(Stdio::null());
        Program { command, shown: args.join(" ") }
    }

    /// A `PATH` whose ffmpeg does these lines of shell before it becomes the real one.
    pub fn with_ffmpeg(&self, first: &str) -> String {
        self.with_tool("ffmpeg", first)
    }

    /// As [`World::with_ffmpeg`], for another program.
    pub fn with_tool(&self, name: &str, first: &str) -> String {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::var("PATH").unwrap();
        let real = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|it| it.is_file());
        let real = real.unwrap_or_else(|| panic!("{name} is needed"));
        let folder = self.folder.path().join("bin");
        std::fs::create_dir_all(&folder).unwrap();
        let script = folder.join(name);
        std::fs::write(&script, format!("#!/bin/sh\n{first}\nexec {} \"$@\"\n", real.display())).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        format!("{}:{path}", folder.display())
    }

    /// Submits a spec given as TOML; the job's number.
    pub fn submit(&self, spec: &str) -> u64 {
        let path = self.write("spec.toml", spec);
        let submitted = self.vodmill(&["submit", path.to_str().unwrap(), "--json"]).json();
        submitted["id"].as_u64().unwrap()
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The columns of a table.
    pub fn columns(&self, table: &str) -> Vec<String> {
        let sql = match self.engine {
            Engine::Sqlite => format!("SELECT name FROM pragma_table_info('{table}')"),
            Engine::Postgres => format!(
                "SELECT column_name::TEXT FROM information_schema.columns \
                 WHERE table_schema = current_schema() AND table_name = '{table}'"
            ),
        };
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let store =
                store::Store::open(&self.url.parse().unwrap(), store::Options::default()).await.unwrap();
            let names: Vec<(String,)> =
                store.db().read().await.unwrap().query(sql.leak()).all().await.unwrap();
            names.into_iter().map(|(name,)| name).collect()
        })
    }

    /// Runs a statement by hand, as somebody with access to the database might.
    pub fn execute(&self, sql: &'static str) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let store =
                store::Store::open(&self.url.parse().unwrap(), store::Options::default()).await.unwrap();
            let mut tx = store.db().write(store::Step::Manage).await.unwrap();
            tx.query(sql).execute().await.unwrap();
            tx.commit().await.unwrap();
        });
    }

    /// What a `SELECT count(*)` finds.
    pub fn count(&self, sql: &'static str) -> i64 {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let store =
                store::Store::open(&self.url.parse().unwrap(), store::Options::default()).await.unwrap();
            let (count,): (i64,) = store.db().read().await.unwrap().query(sql).one().await.unwrap();
            count
        })
    }

    pub fn effects(&self) -> PathBuf {
        self.folder.path().join("effects")
    }

    /// The lines of the effects file, sorted, without the timelines that their keys begin with.
    pub fn effect_lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.effects()).unwrap_or_default();
        let lines = text.lines().map(|line| line.split_once('/').expect("a timeline and a key").1);
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    }

    pub fn job_state(&self, id: u64) -> String {
        let shown = self.vodmill(&["job", "show", &id.to_string(), "--json"]).json();
        shown["job"]["state"].as_str().unwrap().to_owned()
    }

    /// Nothing is off, as `vodmill doctor` sees it.
    pub fn is_healthy(&self) {
        self.vodmill(&["doctor"]).succeeds();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.engine == Engine::Postgres && self.server.is_none() {
            let name = self.url.rsplit('/').next().unwrap().to_owned();
            psql(&shared_server(), &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
        }
    }
}

/// For [`World::with_ffmpeg`]: has NVENC, whose arguments it takes, and lets the processor do it.
pub const NVENC: &str = r#"
case "$*" in *h264_nvenc*)
    skip=
    for word do
        shift
        if [ "$skip" ]; then skip=; continue; fi
        case "$word" in
            h264_nvenc) set -- "$@" libx264 -sc_threshold 0 ;;
            -preset) set -- "$@" -preset ultrafast; skip=1 ;;
            -rc|-no-scenecut|-forced-idr) skip=1 ;;
            -cq) set -- "$@" -crf ;;
            *) set -- "$@" "$word" ;;
        esac
    done ;;
esac"#;

pub struct Program {
    pub command: Command,
    shown: String,
}

impl Program {
    /// A `PATH` of our own leads to tools that are scripts, which no sandbox lets do what they do.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        if name == "PATH" {
            self.command.env("VODMILL_SANDBOX", "off");
        }
        self
    }

    pub fn arg(mut self, arg: &str) -> Self {
        self.command.arg(arg);
        self
    }

    /// In a mount namespace of its own, where this folder is a disk of so many megabytes.
    pub fn on_own_disk(mut self, folder: &Path, megabytes: u32) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let script = format!("mount -t tmpfs -o size={megabytes}m tmpfs \"$1\"; shift; exec \"$@\"");
        // unshare is of the Debian package util-linux.
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-euc", &script, "sh"]).arg(folder);
        command.arg(self.command.get_program()).args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(Stdio::null()).current_dir(self.command.get_current_dir().unwrap());
        self.command = command;
        self
    }

    /// Runs it to its end.
    pub fn output(mut self) -> Output {
        let child = self.command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let id = child.id();
        let (done, waited) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(child.wait_with_output()));
        match waited.recv_timeout(DEADLINE) {
            Ok(output) => output.unwrap(),
            Err(_) => {
                kill(id, libc::SIGKILL);
                panic!("`vodmill {}` hung", self.shown);
            }
        }
    }

    pub fn succeeds(self) -> String {
        let shown = self.shown.clone();
        let output = self.output();
        let said = said(&output);
        assert!(output.status.success(), "`vodmill {shown}` ended with {}:\n{said}", output.status);
        said
    }

    /// Ends with this exit code; what it said.
    pub fn ends_with(self, code: i32) -> String {
        let shown = self.shown.clone();
        let output = self.output();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(code), "`vodmill {shown}`:\n{said}");
        said
    }

    pub fn json(self) -> serde_json::Value {
        let shown = self.shown.clone();
        let output = self.output();
        assert!(
            output.status.success(),
            "`vodmill {shown}` ended with {}:\n{}",
            output.status,
            said(&output)
        );
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub fn start(mut self) -> Process {
        Process(self.command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Starts a server with its log in a file, and waits until it says where it listens: `127.0.0.1:8080`.
    pub fn start_serving(self, log: &Path) -> (Process, String) {
        let before = std::fs::read_to_string(log).unwrap_or_default().len();
        let mut process = self.start_logged(log);
        let mut address = None;
        until("the server listens", || {
            // Looked at first: a server that is to die of a failpoint may do so as soon as it has said where it listens.
            let has_ended = process.has_ended();
            let said = std::fs::read_to_string(log).unwrap_or_default();
            address = address_after(&said[before..], "listening on http://");
            assert!(address.is_some() || !has_ended, "{}", &said[before..]);
            address.is_some()
        });
        (process, address.unwrap())
    }

    /// Starts it with its log in a file, and what it answers in another: `serve.out` for `serve.log`.
    pub fn start_logged(mut self, log: &Path) -> Process {
        let open = |path: &Path| std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        let answers = open(&log.with_extension("out"));
        Process(self.command.stdout(answers).stderr(open(log)).spawn().unwrap())
    }
}

/// The address that was said after this, in a line that is whole; in JSON it goes on after that.
fn address_after(text: &str, words: &str) -> Option<String> {
    let line = text.split_once(words)?.1.split_once('\n')?.0;
    line.split('"').next().map(str::to_owned)
}

pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A running program; killed when dropped.
pub struct Process(pub Child);

impl Process {
    pub fn signal(&self, signal: i32) {
        kill(self.0.id(), signal);
    }

    pub fn kill(&mut self) {
        self.signal(libc::SIGKILL);
        self.0.wait().unwrap();
    }

    /// Kills it if it still lives; whether it did.
    pub fn kill_alive(&mut self) -> bool {
        use std::os::unix::process::ExitStatusExt;
        self.signal(libc::SIGKILL);
        self.0.wait().unwrap().signal() == Some(libc::SIGKILL)
    }

    /// Waits for its end; what it said to pipes it was started with.
    pub fn output(mut self) -> Output {
        let (stdout, stderr) = (self.0.stdout.take().unwrap(), self.0.stderr.take().unwrap());
        let read = |mut pipe: Box<dyn std::io::Read + Send>| {
            std::thread::spawn(move || {
                let mut text = Vec::new();
                pipe.read_to_end(&mut text).map(|_| text)
            })
        };
        let (stdout, stderr) = (read(Box::new(stdout)), read(Box::new(stderr)));
        self.ends();
        let status = self.0.wait().unwrap();
        Output { status, stdout: stdout.join().unwrap().unwrap(), stderr: stderr.join().unwrap().unwrap() }
    }

    /// Whether it stands still.
    pub fn is_stopped(&self) -> bool {
        std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap_or_default().contains(") T ")
    }

    pub fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// Waits for its end; its exit code, or none if a signal ended it.
    pub fn ends(&mut self) -> Option<i32> {
        until("the process ends", || self.has_ended());
        self.0.try_wait().unwrap().unwrap().code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.signal(libc::SIGCONT);
            self.kill();
        }
    }
}

/// Picture and sound, 25 frames a second. Each is made once, and copied for all who want the same.
pub fn sample(path: &Path, size: &str, seconds: u32) {
    static MADE: LazyLock<Mutex<HashMap<String, Vec<u8>>>> = LazyLock::new(Mutex::default);
    let kind = path.extension().unwrap().to_str().unwrap();
    let mut made = MADE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let bytes = made.entry(format!("{size} {seconds} {kind}")).or_insert_with(|| {
        make_sample(path, size, seconds);
        std::fs::read(path).unwrap()
    });
    std::fs::write(path, bytes).unwrap();
}

fn make_sample(path: &Path, size: &str, seconds: u32) {
    let picture = format!("testsrc2=size={size}:rate=25:duration={seconds}");
    let sound = format!("sine=duration={seconds}");
    let made = Command::new("ffmpeg")
        .args(["-nostdin", "-v", "error", "-y", "-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound])
        .args(["-c:v", "libx264", "-preset", "ultrafast", "-g", "50", "-c:a", "aac"])
        .arg(path)
        .output();
    let made = made.expect("ffmpeg is needed: `make test` installs it");
    assert!(made.status.success(), "{}", said(&made));
}

/// The test's own client.
pub fn http() -> reqwest::blocking::ClientBuilder {
    outbound::choose_tls();
    reqwest::blocking::Client::builder().no_proxy()
}

pub fn kill(pid: u32, signal: i32) {
    // SAFETY: sends a signal; touches no memory.
    unsafe { libc::kill(pid as i32, signal) };
}

/// The most resident memory a process has had, in bytes.
pub fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

/// Waits until `done`, and fails when it takes too long.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < DEADLINE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn this_program() -> Mutex<PathBuf> {
    Mutex::new(env!("CARGO_BIN_EXE_vodmill").into())
}

/// A private PostgreSQL, to be restarted and killed.
pub struct Server {
    folder: TempDir,
    /// It sees a small disk, in the folder beside its own.
    disk: Option<(SmallDisk, TempDir)>,
}

impl Server {
    pub fn start() -> Server {
        let server = Server { folder: pg_folder(), disk: None };
        server.run("start", &[]);
        server
    }

    /// A server that can use a disk of this size.
    pub fn with_small_disk(megabytes: u32) -> Server {
        let at = pg_folder();
        let disk = SmallDisk::on(at.path(), megabytes);
        let server = Server { folder: pg_folder(), disk: Some((disk, at)) };
        server.run("start", &["min_wal_size = 32MB", "max_wal_size = 32MB"]);
        server
    }

    pub fn disk(&self) -> &SmallDisk {
        &self.disk.as_ref().unwrap().0
    }

    /// A folder on its small disk that belongs to it.
    pub fn folder_on_disk(&self, name: &str) -> PathBuf {
        let (disk, at) = self.disk.as_ref().unwrap();
        let path = disk.reached().join(name);
        let mut install = Command::new("install");
        install.args(["-d", "-m", "700"]);
        if small_disk::is_root() {
            install.args(["-o", "postgres"]);
        }
        assert!(install.arg(&path).status().unwrap().success());
        at.path().join(name)
    }

    /// Where it keeps what it writes.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("postgres.log")).unwrap_or_default()
    }

    /// A copy of this server that follows it.
    pub fn standby(&self) -> Server {
        let standby = Server { folder: pg_folder(), disk: None };
        standby.run("standby", &[self.folder.path().to_str().unwrap()]);
        standby
    }

    /// Where clients look for it, from its next start on.
    pub fn move_to_port_of(&self, other: &Server) {
        std::fs::copy(other.folder.path().join("port"), self.folder.path().join("port")).unwrap();
    }

    pub fn promote(&self) {
        self.run("promote", &[]);
    }

    pub fn restart(&self, mode: &str) {
        self.run("restart", &[mode]);
    }

    pub fn stop(&self, mode: &str) {
        self.run("stop", &[mode]);
    }

    pub fn start_again(&self) {
        self.run("start", &[]);
    }

    pub fn url(&self) -> String {
        self.run("url", &[])
    }

    fn run(&self, what: &str, more: &[&str]) -> String {
        let output = self.script().arg(what).arg(self.folder.path()).args(more).output().unwrap();
        assert!(output.status.success(), "scripts/postgres {what}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn script(&self) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/postgres");
        match &self.disk {
            Some((disk, _)) => disk.command(&script),
            None => Command::new(script),
        }
    }
}

fn pg_folder() -> TempDir {
    tempfile::Builder::new().prefix("vodmill-pg").tempdir().unwrap()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.script().arg("stop").arg(self.folder.path()).arg("immediate").output();
    }
}

/// The server all tests share. Without one they fail: nothing is skipped.
pub fn shared_server() -> String {
    std::env::var("VODMILL_TEST_POSTGRES_URL")
        .expect("no PostgreSQL to test with: run `make test`, or `scripts/with-services cargo test`")
}

fn create_database(server: &str, template: Option<&str>) -> String {
    let name = format!("test_{:016x}", rand::random::<u64>());
    let template = template.map(|template| format!(" TEMPLATE {template}")).unwrap_or_default();
    psql(server, &format!("CREATE DATABASE {name}{template}"));
    let base = server.rsplit_once('/').unwrap().0;
    format!("{base}/{name}")
}

/// Runs a statement by hand; its answer, a line for each row.
pub fn psql(url: &str, sql: &str) -> String {
    let output = Command::new("psql").args([url, "-XAtqc", sql]).output().unwrap();
    assert!(output.status.success(), "psql: {}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Writes each behaviour once and lives through it on both engines.
#[macro_export]
macro_rules! on_both_engines {
    ($($behaviour:ident),+ $(,)?) => {
        mod sqlite {
            $(#[test] fn $behaviour() { super::$behaviour($crate::support::Engine::Sqlite) })+
        }
        mod postgres {
            $(#[test] fn $behaviour() { super::$behaviour($crate::support::Engine::Postgres) })+
        }
    };
}
