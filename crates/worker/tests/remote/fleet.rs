//! A whole worker, with real programs under it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use media::limits::FileLimits;
use media::plan::Plan;
use media::settings::Settings;
use pipeline::StageKind;
use rules::spec::Spec;
use rules::{Fence, Priority, TaskId, VideoId};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wire::Assignment;
use worker::process::{self, Progress};
use worker::transcode::{Order, Tools};
use worker::{Error, Failed, Handlers, Options, Shutdown, Summary};

use crate::line::Harm;
use crate::scene::{KEY, Scene, TOKEN, assignment};

/// Four seconds of picture and sound.
fn film(folder: &Path) -> Vec<u8> {
    let file = folder.join("film.mp4");
    let made = Command::new("ffmpeg")
        .args(["-v", "error", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25:duration=4"])
        .args(["-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000:duration=4"])
        .args(["-c:v", "libx264", "-preset", "ultrafast", "-g", "50", "-c:a", "aac", "-shortest"])
        .arg(&file)
        .status()
        .unwrap();
    assert!(made.success());
    std::fs::read(file).unwrap()
}

/// What a server decides about the film.
async fn plan_of(film: &Path) -> Plan {
    let run = |_, argv, sink| async move {
        let command = process::Command { sink, ..process::Command::new(argv, ".") };
        let ended = process::run(&command, &Progress::default(), CancellationToken::new()).await;
        ended.map_err(|error| Failed::transient(error.to_string()))
    };
    media::plan::make(
        worker::transcode::look(film.to_str().unwrap(), &FileLimits::default(), run).await.unwrap(),
        Settings::default(),
    )
}

/// The stages of a job, as the server has them.
fn spec() -> Spec {
    let order = Order {
        fetch: None,
        carry: None,
        name: "talk.mp4".into(),
        user: "ann".into(),
        priority: Priority::default(),
        video: VideoId(1),
        source: "talk.mp4".into(),
        seen: None,
        settings: Settings::default(),
        is_early_playback: false,
        pool: None,
        output: "/nowhere".into(),
        generation: "g1".into(),
        stall: Duration::from_secs(60),
        timeout: None,
        max_attempts: 3,
        backoff_initial: Duration::from_secs(1),
    };
    worker::transcode::spec(&order).unwrap()
}

struct Fleet {
    scene: Scene,
    shutdown: Shutdown,
    next: i64,
}

impl Fleet {
    async fn new() -> Self {
        Fleet { scene: Scene::new().await, shutdown: Shutdown::new(), next: 1 }
    }

    fn start(&self) -> JoinHandle<Result<Summary, Error>> {
        let client = Scene::client_at(&self.scene.line);
        let desk = worker::remote::HttpDesk::new(client.clone(), self.scene.folder.path());
        let mut options = Options::new(self.scene.folder.path().join("work"));
        options.idle_max = Duration::from_secs(30);
        (options.error_wait, options.error_wait_max) = (Duration::from_millis(100), Duration::from_secs(1));
        let handlers = Handlers::built_in().with_transcoding(&Tools::new(client));
        tokio::spawn(worker::run(desk, handlers, options, self.shutdown.clone()))
    }

    /// Gives the worker a task, and waits for what it has to say in the end.
    async fn give(&mut self, task: Assignment) -> Value {
        self.next += 1;
        let mut task = task;
        task.proof.task = TaskId::new(task.job, self.next);
        task.proof.fence = Fence(1);
        let id = json!(task.proof.task);
        self.scene.server.with(|desk| desk.tasks.push_back(task));
        let is_last = |(word, body): &&(String, Value)| {
            matches!(word.as_str(), "complete" | "fail" | "release") && body["proof"]["task"] == id
        };
        let mut last = None;
        self.scene
            .server
            .until(|desk| {
                last = desk.said.iter().find(is_last).map(|(_, body)| body.clone());
                last.is_some()
            })
            .await;
        last.unwrap()
    }
}

fn stage(name: &str) -> Assignment {
    let payload = spec().stages.iter().find(|stage| stage.name == name).unwrap().with.clone().unwrap();
    assignment(name, payload)
}

/// The arguments of every process on this machine that runs under this one, until stopped.
fn watch_arguments(stop: CancellationToken) -> std::thread::JoinHandle<BTreeSet<String>> {
    std::thread::spawn(move || {
        let mut seen = BTreeSet::new();
        while !stop.is_cancelled() {
            for entry in std::fs::read_dir("/proc").unwrap().flatten() {
                let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
                let line = String::from_utf8_lossy(&arguments).replace('\0', " ");
                if line.contains("127.0.0.1:") && line.contains("/source.mp4") {
                    seen.insert(line + &String::from_utf8_lossy(&environment));
                }
            }
            // A look now and then will do.
            std::thread::sleep(Duration::from_millis(5));
        }
        seen
    })
}

pub async fn a_video_is_transcoded_far_from_its_server() {
    let mut fleet = Fleet::new().await;
    let film = film(fleet.scene.folder.path());
    fleet.scene.server.with(|desk| desk.source = film.clone());
    let watched = CancellationToken::new();
    let arguments = watch_arguments(watched.clone());
    let worker = fleet.start();

    fleet.scene.line.harm("source", Harm::Page(200)).harm("source", Harm::CutAnswer(300));
    let plan = plan_of(&fleet.scene.folder.path().join("film.mp4")).await;
    let inputs = [("encode", json!(plan.pieces()[0])), ("audio", json!(plan.audio[0]))];
    let mut made = Vec::new();
    for (name, input) in inputs {
        fleet.scene.line.harm("source", Harm::CutAnswer(5000)).harm("PUT", Harm::CutRequest(1000));
        let mut task = stage(name);
        task.input = Some(input);
        task.results.insert("plan".into(), vec![json!(plan)]);
        made.push(fleet.give(task).await);
    }
    fleet.shutdown.drain();
    let summary = worker.await.unwrap().unwrap();
    watched.cancel();

    assert_eq!(summary, Summary { done: 2, ..Summary::default() });
    for done in &made {
        let listed: BTreeSet<&str> = done["outputs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|output| output["path"].as_str().unwrap())
            .collect();
        assert!(!listed.is_empty(), "{done}");
        fleet.scene.server.with(|desk| assert!(listed.iter().all(|path| desk.outputs.contains_key(*path))));
    }
    let segments = &made[0]["result"]["tracks"][0]["segments"];
    assert!(!segments.as_array().unwrap().is_empty(), "{segments}");
    assert_nothing_is_told(&fleet, &arguments.join().unwrap());
}

/// Neither the key nor the token nor the worker's own URL is in what people can see.
fn assert_nothing_is_told(fleet: &Fleet, arguments: &BTreeSet<String>) {
    assert!(!arguments.is_empty(), "no ffmpeg was seen at work");
    for line in arguments {
        assert!(!line.contains(KEY) && !line.contains(TOKEN), "{line}");
    }
    fleet.scene.server.with(|desk| {
        for (word, body) in &desk.said {
            let text = body.to_string();
            assert!(!text.contains(KEY) && !text.contains("127.0.0.1"), "{word}: {text}");
        }
        let steps = desk.said.iter().filter_map(|(_, body)| body["steps"].as_array()).flatten();
        let commands: Vec<_> = steps.map(|step| step["command"].as_str().unwrap()).collect();
        assert!(commands.iter().any(|command| command.contains("-i talk.mp4")), "{commands:?}");
    });
}

pub async fn a_worker_far_away_does_not_offer_what_only_a_server_runs() {
    let fleet = Fleet::new().await;
    let worker = fleet.start();
    fleet.scene.server.until(|desk| desk.said.iter().any(|(_, body)| body["hello"].is_object())).await;
    fleet.shutdown.drain();
    worker.await.unwrap().unwrap();

    let beats = fleet.scene.server.said("heartbeat");
    let offered: Vec<&str> = beats[0]["hello"]["capabilities"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .filter(|name| name.parse::<StageKind>().is_ok())
        .collect();
    assert_eq!(offered, ["audio", "encode", "encode_optional"]);
}

pub async fn a_worker_whose_place_is_taken_gives_back_its_work_and_ends() {
    let fleet = Fleet::new().await;
    let server = fleet.scene.server.clone();
    let worker = fleet.start();
    server.with(|desk| desk.tasks.push_back(assignment("sleep", json!({ "ms": 600_000 }))));
    server.until(|desk| desk.said.iter().any(|(word, _)| word == "progress")).await;

    server.with(|desk| desk.supersedes = true);
    let ended = worker.await.unwrap();

    let Err(Error::Dismissed(why)) = ended else { panic!("{ended:?}") };
    assert!(why.contains("another process works with this key"), "{why}");
    assert_eq!(server.said("release").len(), 1);
}
