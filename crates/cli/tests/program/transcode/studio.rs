//! A folder to make sources in, and the program to run on them.

use super::stream::Stream;
use crate::support::seat::Seat;
use crate::support::{Engine, Program, World, said};
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Studio {
    world: World,
    _seat: Seat,
}

impl Studio {
    pub fn new() -> Self {
        Studio { _seat: Seat::take(2), world: World::bare(Engine::Sqlite) }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.world.folder.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    /// Makes `name` with ffmpeg: inputs and codecs are given, what is before and after them is not.
    pub fn make(&self, name: &str, args: &[&str]) {
        let mut command = ffmpeg();
        command.args(args).args(["-y", name]).current_dir(self.world.folder.path());
        let made = command.output().expect("ffmpeg is missing: `make test` installs it");
        assert!(made.status.success(), "making {name}: {}", said(&made));
    }

    /// Changes the bytes behind each place where `mark` is found. Fails when there is none.
    pub fn patch(&self, name: &str, mark: &[u8], change: impl Fn(&mut [u8])) {
        let mut bytes = std::fs::read(self.path(name)).unwrap();
        let places: Vec<usize> =
            (0..bytes.len() - mark.len()).filter(|at| bytes[*at..].starts_with(mark)).collect();
        assert!(!places.is_empty(), "{name} has no {mark:?}");
        for at in places {
            change(&mut bytes[at + mark.len()..]);
        }
        std::fs::write(self.path(name), bytes).unwrap();
    }

    pub fn with_ffmpeg(&self, first: &str) -> String {
        self.world.with_ffmpeg(first)
    }

    pub fn vodmill(&self, args: &[&str]) -> Program {
        self.world.vodmill(args)
    }

    /// The stream that becomes of `name`, quickly: no preview pictures, the fastest preset. It has passed
    /// `vodmill check`, and nothing was left behind.
    pub fn transcode(&self, name: &str, flags: &[&str]) -> Stream {
        let quickly = ["--no-thumbnails", "--preset", "ultrafast"];
        self.transcode_as_told(name, &[&quickly, flags].concat())
    }

    pub fn transcode_as_told(&self, name: &str, flags: &[&str]) -> Stream {
        let output = format!("{name}.out");
        let told = self.vodmill(&[&["transcode", name, "-o", &output], flags].concat()).succeeds();
        let verdict = self.vodmill(&["check", &output]).succeeds();
        let conclusion = verdict.lines().last().unwrap();
        assert!(conclusion == "ok" || conclusion.starts_with("ok, "), "{verdict}");
        self.nothing_is_left_in(&output);
        Stream::open(self.path(&output), told)
    }

    /// What is said about `name`, which cannot become a stream.
    pub fn refuses(&self, name: &str, code: i32) -> String {
        let output = format!("{name}.out");
        let told = self.vodmill(&["transcode", name, "-o", &output]).ends_with(code);
        assert!(!told.contains("panicked"), "{told}");
        if self.path(&output).exists() {
            self.nothing_is_left_in(&output);
            let shown = names(&self.path(&output));
            assert!(shown.iter().all(|name| name == ".vodmill"), "{shown:?}");
        }
        told
    }

    /// The plan for `name`, as `vodmill plan --json` prints it.
    pub fn plan(&self, name: &str, flags: &[&str]) -> serde_json::Value {
        self.vodmill(&[&["plan", name, "--json"], flags].concat()).json()
    }

    /// No process that works here is alive, and no part of a stream remains beside it.
    fn nothing_is_left_in(&self, output: &str) {
        let here = self.world.folder.path();
        let processes = names(Path::new("/proc")).into_iter().filter(|name| name.parse::<u32>().is_ok());
        let at_work = processes.filter(|id| {
            let process = Path::new("/proc").join(id);
            let is_here = std::fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(here));
            let command = std::fs::read(process.join("cmdline")).unwrap_or_default();
            is_here || String::from_utf8_lossy(&command).contains(here.to_str().unwrap())
        });
        assert_eq!(at_work.collect::<Vec<_>>(), [""; 0], "processes go on");

        let state = self.path(output).join(".vodmill");
        let mut parts = ["parts", "work"].into_iter().flat_map(|folder| files_in(&state.join(folder)));
        assert_eq!(parts.find(|part| !part.ends_with("lock")), None);
        assert!(names(&self.path(output)).iter().all(|name| !name.ends_with(".tmp")));
    }
}

/// A picture that shows its number: sixteen stripes, white where it has a one, the lowest bit on the left. Read it with
/// [`super::stream::Shown::numbers`].
pub fn numbers(rate: &str, seconds: f64) -> String {
    format!(
        "color=size=16x16:rate={rate}:duration={seconds},format=gray,\
         geq=lum='if(mod(floor(N/pow(2,X)),2),235,16)',\
         scale=320:180:flags=neighbor,setsar=1,format=yuv420p"
    )
}

pub fn sine(seconds: f64) -> String {
    format!("sine=frequency=440:sample_rate=48000:duration={seconds}")
}

pub fn ffmpeg() -> Command {
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-nostdin", "-hide_banner"]);
    command
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.flat_map(|path| if path.is_dir() { files_in(&path) } else { vec![path] }).collect()
}
