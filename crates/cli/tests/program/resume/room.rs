//! A folder with a source file, the streams made of it, and a look at everything that goes on in it.

use crate::support::seat::Seat;
use crate::support::{Engine, Process, Program, World, kill, until};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Room {
    pub world: World,
    _seat: Seat,
}

/// Seconds of picture and sound; long ones make chunks of twelve seconds.
#[derive(Clone, Copy)]
pub struct Length(pub u32);

/// Two chunks.
pub const SHORT: Length = Length(18);

impl Room {
    pub fn new(length: Length) -> Room {
        let room = Room { _seat: Seat::take(2), world: World::bare(Engine::Sqlite) };
        make_source(&room.source(), length, 440);
        room
    }

    pub fn folder(&self) -> &Path {
        self.world.folder.path()
    }

    pub fn source(&self) -> PathBuf {
        self.folder().join("source.mp4")
    }

    pub fn out(&self) -> PathBuf {
        self.folder().join("out")
    }

    /// The command that is given again and again.
    pub fn transcode(&self) -> Program {
        self.transcode_to("out")
    }

    pub fn transcode_to(&self, out: &str) -> Program {
        let args = ["transcode", "source.mp4", "-o", out, "--preset", "veryfast", "--slots", "2", "--json"];
        // Some tests stop an encoder for longer than that; it must not count as stalled.
        self.world.vodmill(&args).env("VODMILL_STALL_SECONDS", "600")
    }

    pub fn with_tool(&self, name: &str, first: &str) -> String {
        self.world.with_tool(name, first)
    }

    /// `vodmill …` on the database of the output folder.
    pub fn ask(&self, args: &[&str]) -> Program {
        let url = format!("sqlite:{}", self.out().join(".vodmill/vodmill.db").display());
        self.world.vodmill(args).env("VODMILL_DATABASE_URL", &url)
    }

    pub fn executions(&self, job: u64) -> Executions {
        Executions(self.ask(&["job", "executions", &job.to_string(), "--json"]).json())
    }

    pub fn job_states(&self) -> BTreeMap<u64, String> {
        let jobs = self.ask(&["jobs", "--json"]).json();
        let jobs = jobs.as_array().unwrap();
        jobs.iter()
            .map(|job| (job["id"].as_u64().unwrap(), job["state"].as_str().unwrap().to_owned()))
            .collect()
    }

    /// Everything that was published, by its path: all that is in the folder but the program's own.
    pub fn published(&self, out: &str) -> BTreeMap<String, Vec<u8>> {
        let mut found = BTreeMap::new();
        let root = self.folder().join(out);
        collect(&root, &root, &mut found);
        found
    }

    /// As [`Room::published`], made by a run that nobody disturbs, elsewhere.
    pub fn undisturbed(&self) -> BTreeMap<String, Vec<u8>> {
        self.transcode_to("undisturbed").succeeds();
        self.published("undisturbed")
    }

    /// The stream is whole and good, and of the work on it nothing is left but the record.
    pub fn is_complete(&self) {
        self.is_playable();
        let state = self.out().join(".vodmill");
        let left = names(&state);
        let is_known = |name: &String| name == "lock" || name.starts_with("vodmill.db");
        assert!(left.iter().all(is_known), "left behind in {}: {left:?}", state.display());
        let hidden =
            names(&self.out()).into_iter().filter(|name| name.starts_with('.') && name != ".vodmill");
        assert_eq!(hidden.collect::<Vec<_>>(), Vec::<String>::new());
        assert_eq!(self.generations().len(), 1, "the current generation and no other");
        self.ask(&["doctor"]).succeeds();
        assert_eq!(self.processes(), []);
    }

    pub fn is_playable(&self) {
        self.world.vodmill(&["check", "out"]).succeeds();
    }

    pub fn generations(&self) -> Vec<String> {
        names(&self.out()).into_iter().filter(|name| name.starts_with("g-")).collect()
    }

    /// What executions have kept so far, committed or about to be.
    pub fn parts(&self) -> Vec<String> {
        names(&self.out().join(".vodmill/parts"))
    }

    /// A segment of picture that somebody committed.
    pub fn segment_of_a_part(&self) -> PathBuf {
        let mut found = BTreeMap::new();
        let parts = self.out().join(".vodmill/parts");
        collect(&parts, &parts, &mut found);
        let path = found.keys().find(|path| path.contains("180p/") && path.ends_with(".m4s"));
        parts.join(path.unwrap_or_else(|| panic!("no segment is among {:?}", found.keys())))
    }

    /// Processes that were started in this room, by command: the program, its guards, its encoders.
    pub fn processes(&self) -> Vec<(u32, String)> {
        let folder = self.folder().canonicalize().unwrap();
        let id = |entry: &fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
        let ids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| id(&entry));
        ids.filter(|id| is_in(*id, &folder)).map(|id| (id, command(id))).collect()
    }

    /// Within bounded time nothing of what ran here runs any more.
    pub fn is_quiet(&self) {
        until("no process is left", || self.processes().is_empty());
    }

    pub fn encoders(&self) -> Vec<u32> {
        let is_encoder = |(_, command): &(u32, String)| command == "ffmpeg";
        self.processes().into_iter().filter(is_encoder).map(|(id, _)| id).collect()
    }

    /// Stops the first encoder that is seen, so that what happens next happens in the middle; its id.
    pub fn hold_an_encoder(&self, process: &mut Process) -> u32 {
        let mut held = None;
        until("an encoder is held", || {
            assert!(!process.has_ended(), "it ended before an encoder was seen");
            held = self.encoders().into_iter().next();
            held.inspect(|id| kill(*id, libc::SIGSTOP));
            held.is_some_and(is_stopped)
        });
        held.unwrap()
    }
}

/// What `vodmill job executions` tells of a job.
pub struct Executions(Value);

impl Executions {
    /// From a file in the room that holds what was told.
    pub fn read(room: &Room, name: &str) -> Self {
        Executions(serde_json::from_slice(&fs::read(room.folder().join(name)).unwrap()).unwrap())
    }

    fn all(&self) -> &Vec<Value> {
        self.0.as_array().unwrap()
    }

    pub fn len(&self) -> usize {
        self.all().len()
    }

    /// Those that committed, as task and fence.
    pub fn committed(&self) -> Vec<String> {
        let committed = self.all().iter().filter(|execution| !execution["committed_at"].is_null());
        committed.map(|execution| execution["id"].as_str().unwrap().to_owned()).collect()
    }

    /// Of the others, how they ended.
    pub fn failures(&self) -> Vec<String> {
        let others = self.all().iter().filter(|execution| execution["committed_at"].is_null());
        others.map(|execution| format!("{}: {}", execution["status"], execution["error"])).collect()
    }

    /// No task was committed by two executions.
    pub fn none_committed_twice(&self) {
        let mut tasks: Vec<String> = self.committed().iter().map(|id| task(id)).collect();
        let all = tasks.len();
        tasks.sort();
        tasks.dedup();
        assert_eq!(tasks.len(), all, "{tasks:?}");
    }

    /// Every task was committed, and by one execution alone.
    pub fn each_task_committed_once(&self) {
        let all = self.all().iter().map(|execution| task(execution["id"].as_str().unwrap()));
        let mut tasks: Vec<String> = all.collect();
        tasks.sort();
        tasks.dedup();
        let mut committed: Vec<String> = self.committed().iter().map(|id| task(id)).collect();
        committed.sort();
        assert_eq!(committed, tasks);
    }
}

/// The task of an execution.
fn task(id: &str) -> String {
    id.rsplit_once('.').unwrap().0.to_owned()
}

pub fn make_source(path: &Path, Length(seconds): Length, tone: u32) {
    let picture = format!("testsrc2=size=320x180:rate=25:duration={seconds}");
    let sound = format!("sine=frequency={tone}:duration={seconds}");
    let output = Command::new("ffmpeg")
        .args(["-v", "error", "-y", "-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound])
        .args(["-c:v", "libx264", "-preset", "ultrafast", "-g", "50", "-c:a", "aac"])
        .arg(path)
        .output()
        .expect("ffmpeg is needed");
    assert!(output.status.success(), "{}", crate::support::said(&output));
}

fn collect(root: &Path, folder: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap().flatten().filter(|entry| entry.file_name() != ".vodmill") {
        let path = entry.path();
        if path.is_dir() {
            collect(root, &path, found);
        } else {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            found.insert(name, fs::read(&path).unwrap());
        }
    }
}

/// The same files with the same content. Says which differ: their bytes would fill the screen.
pub fn assert_same(found: &BTreeMap<String, Vec<u8>>, expected: &BTreeMap<String, Vec<u8>>) {
    let paths = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(paths(found), paths(expected));
    let differ: Vec<&String> =
        found.iter().filter(|(path, bytes)| expected[*path] != **bytes).map(|(path, _)| path).collect();
    assert!(differ.is_empty(), "these differ: {differ:?}");
    assert!(found.len() > 5, "that is no stream: {:?}", paths(found));
}

/// In a folder, sorted; none if there is no such folder.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A folder that is removed under a process is still its folder.
fn is_in(id: u32, folder: &Path) -> bool {
    let is_alive = !stat(id).is_empty() && !stat(id).contains(") Z ");
    is_alive && fs::read_link(format!("/proc/{id}/cwd")).is_ok_and(|cwd| cwd.starts_with(folder))
}

pub fn is_stopped(id: u32) -> bool {
    stat(id).contains(") T ")
}

fn stat(id: u32) -> String {
    fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default()
}

fn command(id: u32) -> String {
    fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default().trim().to_owned()
}
