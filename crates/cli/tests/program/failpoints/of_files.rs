//! Changes of files, on a disk and in a bucket. The program dies before and after each and is started again: everything ends
//! as if nobody had died, and of what was begun in vain nothing is left once the janitor was round.

use crate::server::elsewhere::Elsewhere;
use crate::storage::bucket::{self, Bucket};
use crate::support::house::{Badge, House, good, usage};
use crate::support::seat::Seat;
use crate::support::{Engine, World, until};
use reqwest::blocking::Response;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

#[derive(Clone, Copy, PartialEq)]
enum Storage {
    Disk,
    Bucket,
}

/// The steps that are killed at one place, on a disk and in a bucket.
pub struct Steps(&'static [&'static str], &'static [&'static str]);

const UPLOAD: Steps = Steps(&["receive_source"], &["receive_object"]);
/// Of a file that is put there in parts.
const LARGE: Steps = Steps(&[], &["begin_parts", "complete_parts"]);
const RESUMED: Steps = Steps(&["grow_upload", "adopt_source"], &["put_piece", "join_pieces"]);
const GIVEN_UP: Steps = Steps(&["end_upload"], &["remove_pieces"]);
const WATCHED: Steps = Steps(&["take_watched"], &["adopt_object"]);
const IMPORT: Steps = Steps(&["arrive"], &["arrive_object", "seal"]);
const BROUGHT: Steps = Steps(&["take_output", "keep_outputs"], &["send_output", "keep_object"]);
const ARCHIVE: Steps = Steps(&["place_archive"], &["send_archive"]);
const FAILED: Steps = Steps(&["discard"], &["discard_objects"]);
const DIRECT: Steps = Steps(&[], &["send_direct"]);
const MADE: Steps =
    Steps(&["hand_over", "place_generation"], &["hand_over_object", "send_generation", "add_index"]);
const LEFT: Steps = Steps(
    &["clear_upload", "clear_execution", "clear_source", "clear_generation"],
    &["clear_execution_objects", "give_up", "clear_object", "clear_generation_objects"],
);
const PURGED: Steps = Steps(&["clear_video", "remove_source"], &["clear_video_objects"]);

const ALL: [&Steps; 13] = [
    &UPLOAD, &LARGE, &RESUMED, &GIVEN_UP, &WATCHED, &IMPORT, &BROUGHT, &ARCHIVE, &FAILED, &DIRECT, &MADE,
    &LEFT, &PURGED,
];

pub fn is_killed(step: &str) -> bool {
    ALL.iter().any(|Steps(on_disk, in_bucket)| on_disk.contains(&step) || in_bucket.contains(&step))
}

#[test]
fn on_a_disk() {
    ends_as_if_nobody_had_died(Scene::new(Storage::Disk));
}

#[test]
fn in_a_bucket() {
    ends_as_if_nobody_had_died(Scene::new(Storage::Bucket));
}

fn ends_as_if_nobody_had_died(mut scene: Scene) {
    let clip = std::fs::read(scene.house.sample("talk.mp4", 2)).unwrap();
    let elsewhere = Elsewhere::with(clip.clone());
    let (upload, badge) = (scene.begin(clip.len()), scene.house.worker("hand", &["sleep"]).badge);
    scene.house.kill();

    is_fetched(&mut scene, &elsewhere.url("/unversioned.mp4"));
    comes_in(&mut scene, &upload, &clip);
    is_brought(&mut scene, &badge);
    is_made(&mut scene);
    is_removed(&mut scene);

    scene.house.set("VODMILL_FAILPOINT", "never.before");
    scene.house.start();
    let left = || {
        let emptied = ["incoming", "parts", "uploads", "unfinished", "videos/1"];
        emptied.iter().flat_map(|folder| scene.names(folder)).collect::<Vec<_>>()
    };
    until("only what is needed is left", || left().is_empty() && scene.names("sources").len() == 2);
    for left in ["data/incoming", "inbox"].map(|name| scene.house.world.folder.path().join(name)) {
        assert_eq!(std::fs::read_dir(left).unwrap().count(), 0);
    }
    for video in [2, 3] {
        scene.is_published_once(video);
        let folder = scene.root().join(format!("videos/{video}"));
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1, "one generation");
    }
    scene.house.is_healthy();
}

/// From its address, by a worker inside; the video is asked for once.
fn is_fetched(scene: &mut Scene, url: &str) {
    let asked = std::cell::Cell::new(false);
    scene.dies_around(&IMPORT, |scene| {
        if !asked.replace(true) {
            scene.house.post("/api/videos", json!({ "url": url }));
        }
    });
}

/// In one request, in several, and out of a watched folder.
fn comes_in(scene: &mut Scene, upload: &str, clip: &[u8]) {
    scene.dies_around(&UPLOAD, |scene| {
        let sent = scene.house.admin("POST", "/api/videos?name=talk.mp4").body(clip.to_vec()).send();
        assert!(sent.is_err(), "{sent:?}");
    });
    scene.dies_around(&LARGE, |scene| {
        let sent = scene.house.admin("POST", "/api/videos?name=large.mp4").body(vec![0; 17 << 20]).send();
        assert!(sent.is_err(), "{sent:?}");
    });
    scene.dies_around(&RESUMED, |scene| assert!(scene.append(upload, clip).is_err()));
    let given_up = scene.goes_on(|scene| {
        assert!(scene.append(upload, clip).unwrap().contains_key("x-vodmill-video"));
        scene.begin(5)
    });
    let give_up =
        |scene: &Scene| scene.house.admin("DELETE", &given_up).header("tus-resumable", "1.0.0").send();
    scene.dies_around(&GIVEN_UP, |scene| assert!(give_up(scene).is_err()));
    scene.goes_on(|scene| assert_eq!(give_up(scene).unwrap().status(), 204));
    scene.goes_on(|scene| assert_eq!(give_up(scene).unwrap().status(), 404));

    let watched = scene.house.world.folder.path().join("inbox/watched.mp4");
    std::fs::write(&watched, clip).unwrap();
    // Nobody is told of what is there at the start, so it must be old.
    let old = SystemTime::now() - Duration::from_secs(2 * 3600);
    std::fs::File::options().append(true).open(&watched).unwrap().set_modified(old).unwrap();
    scene.dies_by_itself_around(&WATCHED);
    scene.goes_on(|_| until("it is taken", || !watched.exists()));
    scene.goes_on(|scene| assert_eq!(scene.house.get("/api/videos")["items"].as_array().unwrap().len(), 3));
}

/// By a worker on another machine, through the server.
fn is_brought(scene: &mut Scene, badge: &Badge) {
    let claim = |scene: &Scene| scene.house.again(badge).claim_one();
    let job = scene.goes_on(sleeper);
    let held = scene.goes_on(claim);
    scene.dies_around(&BROUGHT, |scene| assert!(scene.brings(badge, &held).is_err()));
    scene.goes_on(|scene| {
        good(scene.brings(badge, &held).unwrap());
        scene.ends(job);
    });

    let job = scene.goes_on(sleeper);
    scene.dies_around(&FAILED, |scene| scene.fails(badge));
    let held = scene.goes_on(claim);
    scene.dies_around(&ARCHIVE, |scene| assert!(scene.brings_an_archive(badge, &held).is_err()));
    scene.goes_on(|scene| {
        let outputs = good(scene.brings_an_archive(badge, &held).unwrap());
        good(scene.completes(badge, &held, outputs).unwrap());
        scene.ends(job);
    });
}

fn is_made(scene: &mut Scene) {
    scene.house.set("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "0.03");
    scene.worker_dies_around(&DIRECT);
    scene.house.set("VODMILL_SERVER_SLOTS", "2");
    scene.dies_by_itself_around(&MADE);
    scene.goes_on(|scene| (1..=3).for_each(|video| drop(scene.house.video_is(video, "ready"))));
    scene.house.set("VODMILL_SERVER_SLOTS", "0");
    (1..=3).for_each(|video| scene.is_published_once(video));
}

/// What nobody needs: left by those who died, and of a video that was deleted.
fn is_removed(scene: &mut Scene) {
    assert!(scene.names("sources").len() > 3, "an upload in one request was left");
    scene.goes_on(|scene| scene.begin(5));
    scene.house.world.execute("UPDATE upload SET expires_at = 0");
    scene.plant("parts/999-0.1/left.m4s");
    scene.plant("videos/1/g-left/master.m3u8");
    scene.house.set("VODMILL_SAFE_AGE_SECONDS", "0");
    scene.dies_by_itself_around(&LEFT);

    scene.goes_on(|scene| scene.house.admin("DELETE", "/api/videos/1").send().unwrap());
    scene.house.set("VODMILL_RETENTION_DAYS", "0.0000001");
    scene.dies_by_itself_around(&PURGED);
}

fn sleeper(scene: &Scene) -> i64 {
    let stage = json!({ "name": "only", "sleep_ms": 1 });
    let job = json!({ "name": "x", "backoff_initial_ms": 10, "max_attempts": 10, "stage": [stage] });
    scene.house.post("/api/jobs", job)["id"].as_i64().unwrap()
}

struct Scene {
    house: House,
    bucket: Option<Bucket>,
    storage: Storage,
}

impl Scene {
    fn new(storage: Storage) -> Self {
        let (seat, world) = (Seat::take(2), World::new(Engine::Sqlite));
        let bucket = (storage == Storage::Bucket).then(Bucket::start);
        let (url, endpoint) = (Bucket::url(), bucket.as_ref().map(Bucket::endpoint).unwrap_or_default());
        let inbox = world.folder.path().join("inbox");
        let mut settings = vec![
            ("VODMILL_WATCH_FOLDER", inbox.to_str().unwrap()),
            ("VODMILL_IMPORT_ALLOW_PRIVATE", "true"),
            ("VODMILL_MAX_RETRY_ATTEMPTS", "50"),
            ("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "5"),
        ];
        if bucket.is_some() {
            settings.extend([
                ("VODMILL_STORAGE", url.as_str()),
                ("AWS_ENDPOINT", &endpoint),
                ("AWS_ACCESS_KEY_ID", bucket::KEY),
                ("AWS_SECRET_ACCESS_KEY", bucket::SECRET),
                ("AWS_REGION", "us-east-1"),
            ]);
        }
        Scene { house: House::of(world, seat, &settings), bucket, storage }
    }

    /// Starts the server, which dies before the step, and then after it, at what it is asked for.
    fn dies_around(&mut self, steps: &Steps, ask: impl Fn(&Scene)) {
        for moment in self.moments(steps) {
            println!("{moment}");
            self.house.set("VODMILL_FAILPOINT", &moment);
            self.house.start();
            ask(self);
            self.house.dies();
        }
    }

    /// As [`Scene::dies_around`] for what nobody asks for: it may die before it listens.
    fn dies_by_itself_around(&mut self, steps: &Steps) {
        for moment in self.moments(steps) {
            println!("{moment}");
            self.house.set("VODMILL_FAILPOINT", &moment);
            self.house.starts_and_dies();
        }
    }

    /// As [`Scene::dies_around`] for a worker on another machine.
    fn worker_dies_around(&mut self, steps: &Steps) {
        let moments = self.moments(steps);
        self.goes_on(|scene| {
            for moment in moments {
                println!("{moment}");
                let mut worker =
                    scene.house.remote_worker(&moment.replace('.', "-"), &[("VODMILL_FAILPOINT", &moment)]);
                assert_eq!(worker.process.ends(), None, "killed");
            }
        });
    }

    fn moments(&self, Steps(on_disk, in_bucket): &Steps) -> Vec<String> {
        let steps = if self.storage == Storage::Disk { on_disk } else { in_bucket };
        steps.iter().flat_map(|step| [format!("{step}.before"), format!("{step}.after")]).collect()
    }

    /// Something that nobody disturbs.
    fn goes_on<T>(&mut self, act: impl FnOnce(&Scene) -> T) -> T {
        self.house.set("VODMILL_FAILPOINT", "never.before");
        self.house.start();
        let done = act(self);
        self.house.kill();
        done
    }

    /// Where everything is kept.
    fn root(&self) -> PathBuf {
        self.bucket.as_ref().map_or_else(|| self.house.data(), |bucket| bucket.path(""))
    }

    /// Of all files below a folder.
    fn names(&self, folder: &str) -> Vec<PathBuf> {
        let (mut found, mut folders) = (Vec::new(), vec![self.root().join(folder)]);
        while let Some(folder) = folders.pop() {
            for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
                if path.is_dir() { &mut folders } else { &mut found }.push(path);
            }
        }
        found
    }

    fn plant(&self, name: &str) {
        let path = self.root().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "left").unwrap();
    }

    fn is_published_once(&self, video: i64) {
        let folder = self.root().join(format!("videos/{video}"));
        let generations = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
        let shown: Vec<_> = generations.filter(|path| path.join("master.m3u8").is_file()).collect();
        assert_eq!(shown.len(), 1, "{shown:?}");
        self.house.world.vodmill(&["check", shown[0].to_str().unwrap()]).succeeds();
    }

    fn ends(&self, job: i64) {
        until("the job ends", || self.house.get(&format!("/api/jobs/{job}"))["state"] == "completed");
    }

    /// Begins an upload that can be resumed; where it goes.
    fn begin(&self, bytes: usize) -> String {
        let begun = self.house.admin("POST", "/api/uploads").header("tus-resumable", "1.0.0");
        let begun = begun.header("upload-length", bytes).send().unwrap();
        begun.headers()["location"].to_str().unwrap().to_owned()
    }

    /// Goes on with it as far as it gets, as a tus client does.
    fn append(&self, upload: &str, file: &[u8]) -> reqwest::Result<HeaderMap> {
        let tus = |method: &str| self.house.admin(method, upload).header("tus-resumable", "1.0.0");
        let offset = tus("HEAD").send()?.headers()["upload-offset"].to_str().unwrap().to_owned();
        let rest = file[offset.parse().unwrap()..].to_vec();
        let piece = tus("PATCH").header("content-type", "application/offset+octet-stream");
        Ok(piece.header("upload-offset", offset).body(rest).send()?.headers().clone())
    }

    /// Brings a file and says that all is done.
    fn brings(&self, badge: &Badge, held: &Value) -> reqwest::Result<Response> {
        let hand = self.house.again(badge);
        hand.put(held, "a.m4s", b"picture").send()?;
        let sha256 = hex::encode(Sha256::digest(b"picture"));
        self.completes(badge, held, json!([{ "path": "a.m4s", "bytes": 7, "sha256": sha256 }]))
    }

    fn brings_an_archive(&self, badge: &Badge, held: &Value) -> reqwest::Result<Response> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("b.m4s"), "picture").unwrap();
        let packed = Command::new("tar").args(["-cz", "b.m4s"]).current_dir(folder.path()).output();
        let hand = self.house.again(badge);
        let request = hand.request("POST", "/api/worker/outputs").header("content-type", "application/gzip");
        request.header("x-vodmill-proof", hand.proof_header(held)).body(packed.unwrap().stdout).send()
    }

    fn completes(&self, badge: &Badge, held: &Value, outputs: Value) -> reqwest::Result<Response> {
        let done = json!({ "proof": held["proof"], "result": null, "outputs": outputs, "usage": usage() });
        self.house.again(badge).request("POST", "/api/worker/complete").json(&done).send()
    }

    /// Claims, brings a file, and gives up; the server may die with its answer.
    fn fails(&self, badge: &Badge) {
        let hand = self.house.again(badge);
        let held = hand.claim_one();
        good(hand.put(&held, "a.m4s", b"picture").send().unwrap());
        let _ = hand.release(&held);
    }
}
