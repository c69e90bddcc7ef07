//! A hostile worker claims every task it can and answers with every lie it knows. One round is one claim and one answer.
//!
//! Meanwhile the server's own worker and an honest remote worker finish every job. Afterwards every published stream passes
//! the gate, no file outside the hostile worker's own folders has changed, no job has failed, and the doctor is content.
//! `make hostile ROUNDS=10000 SEED=7` runs longer.

use super::forged;
use crate::support::house::{Hand, House, SECRET, good, usage};
use crate::support::{Engine, until};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

const ROUNDS: usize = 200;
const FEW_ROUNDS: usize = 60;
const SEED: u64 = 20_261_118;

/// Tasks of one job of the plain kind.
const TASKS: usize = 40;
/// Two videos at a time, because the honest worker takes one. So many rounds lie between them, or more: videos take long.
const ROUNDS_PER_PAIR: usize = 30;
const MOST_PAIRS: usize = 100;

/// Old tasks that are remembered for replays.
const MEMORY: usize = 50;

#[test]
fn a_hostile_worker_changes_nothing_and_fails_no_job() {
    let rounds = setting("VODMILL_HOSTILE_ROUNDS", ROUNDS as u64) as usize;
    let house = house(Engine::Sqlite, &[]);
    let attack = Attack::goes_on(&house, rounds);
    assert_eq!(attack.suspensions, 0);
    attack.has_changed_nothing();
}

#[test]
fn a_hostile_worker_changes_nothing_on_postgres_either() {
    let house = house(Engine::Postgres, &[]);
    let attack = Attack::goes_on(&house, FEW_ROUNDS);
    attack.has_changed_nothing();
}

/// An admin who knows nothing of it lets it in again under another name whenever it is suspended.
#[test]
fn a_hostile_worker_that_comes_back_after_each_suspension_changes_nothing() {
    let suspends = [
        ("VODMILL_WORKER_SUSPEND_AFTER", "3"),
        ("VODMILL_ALERT_WEBHOOK_URL", "http://127.0.0.1:1/"),
        ("VODMILL_ALERT_ALLOW_PRIVATE", "true"),
        ("VODMILL_ALERT_RATE_LIMIT_SECONDS", "0"),
    ];
    let house = house(Engine::Sqlite, &suspends);
    let attack = Attack::goes_on(&house, FEW_ROUNDS);

    assert!(attack.suspensions > 1, "{}", attack.suspensions);
    let workers = house.get("/api/workers?all=true");
    let suspended: Vec<&Value> =
        workers.as_array().unwrap().iter().filter(|worker| !worker["suspended"].is_null()).collect();
    let names = suspended.iter().map(|worker| worker["name"].as_str().unwrap());
    assert!(names.clone().all(|name| name.starts_with("hostile-")), "{suspended:?}");
    let alerts = "SELECT count(*) FROM outbox WHERE topic = 'alert' AND payload LIKE '%worker_suspended%'";
    assert_eq!(house.world.count(alerts), names.count() as i64);
    attack.has_changed_nothing();
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().filter(|text| !text.is_empty()).map_or(default, |text| text.parse().unwrap())
}

/// A server that does all of a video but its pictures, which it leaves to remote workers, and suspends no worker unless it is told to.
fn house(engine: Engine, settings: &[(&'static str, &str)]) -> House {
    let usual = [
        ("VODMILL_SERVER_SLOTS", "2"),
        ("VODMILL_ENCODERS", "libx265"),
        // However busy the machine is, the honest workers count as there.
        ("VODMILL_WORKER_HEARTBEAT_INTERVAL", "20"),
        ("VODMILL_AUTH_FAILURES_PER_MINUTE", "1000000"),
    ];
    House::with(engine, &[&usual, settings].concat())
}

/// A small generator, so that a seed repeats the choice of lies.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % sides as u64) as usize
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.roll(of.len())]
    }
}

struct Attack<'a> {
    house: &'a House,
    dice: Dice,
    /// Takes tasks of videos.
    media: Hand<'a>,
    /// Takes tasks of plain jobs.
    plain: Hand<'a>,
    _honest: crate::support::house::Remote,
    clips: [PathBuf; 2],
    /// Shows something else than the clips.
    film: PathBuf,
    videos: Vec<i64>,
    jobs: Vec<i64>,
    remembered: Vec<Value>,
    /// The executions that it was given.
    own: HashSet<String>,
    /// Files that were there, with their hashes.
    seen: BTreeMap<PathBuf, String>,
    /// How often each lie was told.
    told: BTreeMap<&'static str, usize>,
    media_rounds: usize,
    suspensions: usize,
    rounds_per_pair: usize,
    /// The round in which the next videos are uploaded.
    next_videos: usize,
    /// How long it waits for a task of the videos that were just uploaded.
    patience_ms: u32,
}

/// What the hostile worker answers.
type Lie = (&'static str, fn(&mut Attack<'_>, &Value));

const LIES: &[Lie] = &[
    ("names that lead elsewhere", |attack, task| attack.traversing_names(task)),
    ("a hash of another file", |attack, task| attack.wrong_hash(task)),
    ("a size of another file", |attack, task| attack.wrong_size(task)),
    ("files that were never sent", |attack, task| attack.missing_files(task)),
    ("files that are not declared", |attack, task| attack.undeclared_files(task)),
    ("half an upload", |attack, task| attack.half_an_upload(task)),
    ("no result", |attack, task| attack.no_result(task)),
    ("another stage's result", |attack, task| attack.result_of_another_stage(task)),
    ("another video's pictures or sound", |attack, task| attack.content_of_another_video(task)),
    ("files that are no media", |attack, task| attack.no_media(task)),
    ("pictures that ask too much, are turned, or are not alone", |attack, task| attack.unfit_media(task)),
    ("permanent failures again and again", |attack, task| attack.insists(task)),
    ("another execution's result", |attack, task| attack.foreign_result(task)),
    ("another execution's token", |attack, task| attack.foreign_token(task)),
    ("guessed tokens and numbers", |attack, task| attack.guessed_proofs(task)),
    ("replays", |attack, task| attack.replays(task)),
    ("a false permanent failure", |attack, task| attack.false_permanent(task)),
    ("a false transient failure", |attack, task| attack.false_transient(task)),
    ("a storage that is away", |attack, task| attack.false_outage(task)),
    ("work given back", |attack, task| attack.gives_back(task)),
    ("silence", |attack, task| attack.silence(task)),
    ("false progress", |attack, task| attack.false_progress(task)),
    ("races", |attack, task| attack.races(task)),
    ("oversized bodies", |attack, task| attack.oversized(task)),
    ("bad archives", |attack, task| attack.archives(task)),
    ("malformed requests", |attack, task| attack.malformed(task)),
];

/// What the hostile worker offers to do to videos, and what a worker is never given.
const OF_VIDEOS: [&str; 15] = [
    "probe",
    "encode",
    "encode_optional",
    "audio",
    "subtitles",
    "thumbnails",
    "libx264",
    "ingest",
    "plan",
    "package",
    "measure",
    "publish",
    "command",
    "gpu",
    "pool:eu",
];
const OF_PLAIN_JOBS: [&str; 2] = ["sleep", "noop"];

impl<'a> Attack<'a> {
    /// Claims so many tasks, and answers each with a lie.
    fn goes_on(house: &'a House, rounds: usize) -> Self {
        let (seed, begun) = (setting("VODMILL_HOSTILE_SEED", SEED), Instant::now());
        let mut attack = Attack::new(house, seed, rounds);
        let mut claimed = 0;
        while claimed < rounds {
            attack.feed(claimed);
            attack.comes_back();
            let Some(task) = attack.claim() else { continue };
            claimed += 1;
            attack.answer(&task);
            attack.remember(task);
            if claimed.is_multiple_of(25) {
                attack.look();
            }
            if claimed.is_multiple_of(500) {
                eprintln!("hostile worker: {claimed} rounds in {:.0?}", begun.elapsed());
            }
        }
        attack.comes_back();

        let Attack { told, media_rounds, suspensions, .. } = &attack;
        eprintln!(
            "hostile worker on {:?}, seed {seed}: {claimed} rounds in {:.0?}, {media_rounds} on videos, \
             {suspensions} suspensions, lies {told:?}",
            house.world.engine,
            begun.elapsed()
        );
        assert!(attack.media_rounds > 0, "the hostile worker was given tasks of videos");
        attack
    }

    fn new(house: &'a House, seed: u64, rounds: usize) -> Self {
        let honest = house.remote_worker("honest", &[("VODMILL_WORKER_ALLOW_COMMANDS", "true")]);
        std::fs::write(house.world.folder.path().join("victim"), "precious").unwrap();
        Attack {
            house,
            dice: Dice(seed),
            media: house.worker("hostile-media", &OF_VIDEOS),
            plain: house.worker("hostile-plain", &OF_PLAIN_JOBS),
            _honest: honest,
            film: film(house),
            clips: [house.sample("one.mp4", 2), house.sample_of("two.mp4", "160x90", 3)],
            videos: Vec::new(),
            jobs: Vec::new(),
            remembered: Vec::new(),
            own: HashSet::new(),
            seen: BTreeMap::new(),
            told: BTreeMap::new(),
            media_rounds: 0,
            suspensions: 0,
            rounds_per_pair: (rounds / MOST_PAIRS).max(ROUNDS_PER_PAIR),
            next_videos: 0,
            patience_ms: 0,
        }
    }

    /// There is always something to claim.
    fn feed(&mut self, claimed: usize) {
        if claimed >= self.next_videos {
            self.next_videos += self.rounds_per_pair;
            for clip in &self.clips {
                let query = format!("name=clip.mp4&slug=clip-{}", self.videos.len());
                let video = self.house.upload(clip, &query);
                self.videos.push(video["id"].as_i64().unwrap());
                self.jobs.push(video["job"].as_i64().unwrap());
            }
            self.patience_ms = 10_000;
        }
        let is_dry = || {
            self.house.get("/api/jobs?state=processing")["items"].as_array().unwrap().len()
                + self.house.get("/api/jobs?state=pending")["items"].as_array().unwrap().len()
                < 3
        };
        if claimed.is_multiple_of(10) && is_dry() {
            let stage = json!({ "name": "only", "sleep_ms": 1, "segments": TASKS });
            let job = self
                .house
                .post("/api/jobs", json!({ "name": "plain", "backoff_initial_ms": 1, "stage": [stage] }));
            self.jobs.push(job["id"].as_i64().unwrap());
        }
    }

    /// Under another name and with another key, where it is suspended.
    fn comes_back(&mut self) {
        let hands =
            [(&mut self.media, "media", &OF_VIDEOS[..]), (&mut self.plain, "plain", &OF_PLAIN_JOBS[..])];
        for (hand, kind, capabilities) in hands {
            if good(hand.heartbeat(1))["status"] == "disabled" {
                self.suspensions += 1;
                *hand = self.house.worker(&format!("hostile-{kind}-{}", self.suspensions), capabilities);
            }
        }
    }

    fn claim(&mut self) -> Option<Value> {
        let media = self.media.claim(1, std::mem::take(&mut self.patience_ms)).pop();
        self.media_rounds += usize::from(media.is_some());
        let task = media.or_else(|| self.plain.claim(1, 0).pop());
        if task.is_none() {
            // Both wait for leases and backoffs; a new job is offered at once.
            let stage = json!({ "name": "only", "sleep_ms": 1, "segments": 4 });
            let job = self
                .house
                .post("/api/jobs", json!({ "name": "plain", "backoff_initial_ms": 1, "stage": [stage] }));
            self.jobs.push(job["id"].as_i64().unwrap());
        }
        task
    }

    fn answer(&mut self, task: &Value) {
        let (name, lie) = *self.dice.pick(LIES);
        *self.told.entry(name).or_default() += 1;
        lie(self, task);
    }

    fn remember(&mut self, task: Value) {
        let proof = &task["proof"];
        let folder = format!("{}.{}", proof["task"].as_str().unwrap(), proof["fence"]);
        self.own.insert(folder);
        if self.remembered.len() == MEMORY {
            self.remembered.remove(0);
        }
        self.remembered.push(task);
    }

    /// The hand that holds this task.
    fn hand(&self, task: &Value) -> &Hand<'a> {
        if task["proof"]["worker"] == self.plain.id.as_str() || task["kind"] == "sleep" {
            &self.plain
        } else {
            &self.media
        }
    }

    fn complete(&self, task: &Value, result: Value, outputs: Value) {
        self.say(
            task,
            "complete",
            json!({ "proof": task["proof"], "result": result, "outputs": outputs, "usage": usage() }),
        );
    }

    /// What the server answers is not asked, except that it answers and is not broken.
    fn say(&self, task: &Value, operation: &str, body: Value) {
        let answer = self.hand(task).say(operation, body);
        assert_ne!(answer.status().as_u16(), 500, "{operation}: {}", answer.text().unwrap());
    }

    fn put(&self, task: &Value, path: &str, bytes: &[u8]) {
        if let Ok(answer) = self.hand(task).put(task, path, bytes).send() {
            assert_ne!(answer.status().as_u16(), 500, "{path}: {}", answer.text().unwrap());
        }
    }

    fn result_naming(&self, task: &Value, path: &str, bytes: &[u8]) -> (Value, Value) {
        let output = json!({ "path": path, "bytes": bytes.len(), "sha256": sha256(bytes) });
        let track = json!({ "name": path, "files": [output], "init": output, "segments": [output] });
        let result = json!({ "execution": self.execution(task), "tracks": [track], "files": [output] });
        (result, json!([output]))
    }

    /// As the server names it, as far as a worker can know.
    fn execution(&self, task: &Value) -> String {
        let proof = &task["proof"];
        let token = proof["token"].as_i64().unwrap_or_default();
        format!("{}.{}-{token:016x}", proof["task"].as_str().unwrap(), proof["fence"])
    }

    fn traversing_names(&mut self, task: &Value) {
        let victim = self.house.world.folder.path().join("victim");
        let names = [
            "../../victim",
            "..",
            "/etc/passwd",
            victim.to_str().unwrap(),
            "a/../../../victim",
            "%2e%2e/victim",
            "file:///etc/passwd",
            "http://127.0.0.1/x",
            ".partial/x",
            "a\0b",
            "-y",
            "720p|x",
            "init.mp4/../x",
        ];
        let name = *self.dice.pick(&names);
        self.put(task, name, b"evil");
        let (result, outputs) = self.result_naming(task, name, b"evil");
        self.complete(task, result, outputs);
    }

    fn wrong_hash(&mut self, task: &Value) {
        let wrong =
            self.hand(task).put(task, "a/b.m4s", b"one").header("x-vodmill-sha256", sha256(b"two")).send();
        assert!(wrong.is_ok_and(|answer| !answer.status().is_server_error()));
        self.put(task, "a/b.m4s", b"one");
        let (result, outputs) = self.result_naming(task, "a/b.m4s", b"two");
        self.complete(task, result, outputs);
    }

    fn wrong_size(&mut self, task: &Value) {
        self.put(task, "a/b.m4s", b"one");
        let output = json!({ "path": "a/b.m4s", "bytes": u64::MAX, "sha256": sha256(b"one") });
        self.complete(task, json!({ "execution": self.execution(task), "files": [output] }), json!([output]));
    }

    fn missing_files(&mut self, task: &Value) {
        let (result, outputs) = self.result_naming(task, "never/sent.m4s", b"nothing");
        self.complete(task, result, outputs);
    }

    fn undeclared_files(&mut self, task: &Value) {
        self.put(task, "more.m4s", b"more");
        let (result, outputs) = self.result_naming(task, "never/sent.m4s", b"nothing");
        self.complete(task, result, outputs);
    }

    fn half_an_upload(&mut self, task: &Value) {
        let range = *self.dice.pick(&[
            "bytes 0-9/10",
            "bytes 5-9/10",
            "bytes 9-5/10",
            "bytes 0-3/4",
            "octets 1",
            "bytes 0-18446744073709551615/18446744073709551615",
        ]);
        let half = self.hand(task).put(task, "half.m4s", b"half").header("content-range", range).send();
        assert!(half.is_ok_and(|answer| answer.status().as_u16() != 500));
        let (result, outputs) = self.result_naming(task, "half.m4s", b"half");
        self.complete(task, result, outputs);
    }

    /// Of a plain task nothing else is expected; of a video's, tracks are.
    fn no_result(&mut self, task: &Value) {
        self.complete(task, Value::Null, json!([]));
    }

    fn result_of_another_stage(&mut self, task: &Value) {
        let results = task["results"].as_object().and_then(|all| all.values().next());
        let result = results.and_then(|of_stage| of_stage.get(0)).cloned().unwrap_or(json!({ "tracks": [] }));
        self.complete(task, result, json!([]));
    }

    /// In every way as planned, except for what they show and sound like.
    fn content_of_another_video(&mut self, task: &Value) {
        if task["kind"] != "encode" && task["kind"] != "audio" {
            return self.result_of_another_stage(task);
        }
        let answer = forged::make(task, &self.film).hand_in(self.hand(task), task);
        assert!(answer.status().is_client_error(), "{}", answer.text().unwrap());
    }

    /// As planned, with the right hashes of files that hold something else.
    fn no_media(&mut self, task: &Value) {
        if task["kind"] != "encode" && task["kind"] != "audio" {
            return self.missing_files(task);
        }
        let mut made = forged::make(task, &self.film);
        made.fill_segments_with(0x5a);
        let answer = made.hand_in(self.hand(task), task);
        assert!(answer.status().is_client_error(), "{}", answer.text().unwrap());
    }

    /// The right pictures, with something beside them that players would stumble over or obey.
    fn unfit_media(&mut self, task: &Value) {
        if task["kind"] != "encode" {
            return self.no_media(task);
        }
        // Any film will do: it is refused before pictures are compared.
        let mut made = forged::make(task, &self.film);
        match self.dice.roll(3) {
            0 => made.tracks.iter_mut().for_each(|track| track.codec = "avc1.64003e".into()),
            1 => made.turn(),
            _ => made.add_passenger(),
        }
        let answer = made.hand_in(self.hand(task), task);
        assert!(answer.status().is_client_error(), "{}", answer.text().unwrap());
    }

    /// It cannot confirm itself: whenever it gets the same task again, it says the same.
    fn insists(&mut self, task: &Value) {
        self.fail(task, "permanent");
        let (same, number) = (self.hand(task).claim(1, 0).pop(), task["proof"]["task"].clone());
        if let Some(next) = same {
            match next["proof"]["task"] == number {
                true => self.fail(&next, "permanent"),
                false => self.gives_back(&next),
            }
            self.remember(next);
        }
    }

    fn foreign_result(&mut self, task: &Value) {
        let Some(other) = self.other() else { return self.missing_files(task) };
        let (result, outputs) = self.result_naming(&other, "a.m4s", b"mine");
        self.put(task, "a.m4s", b"mine");
        self.complete(task, result, outputs);
    }

    fn foreign_token(&mut self, task: &Value) {
        let thief = if self.hand(task).id == self.plain.id { &self.media } else { &self.plain };
        for (operation, body) in endings(&task["proof"]) {
            let answer = thief.say(operation, body);
            assert_eq!(answer.status(), 409, "{operation}");
        }
        self.gives_back(task);
    }

    fn guessed_proofs(&mut self, task: &Value) {
        let (number, token) = (self.dice.roll(1_000_000) as i64, task["proof"]["token"].as_i64().unwrap());
        let changes = [
            ("token", json!(number)),
            ("token", json!(token ^ 1)),
            ("fence", json!(0)),
            ("fence", json!(i64::MAX)),
            ("task", json!("1-0")),
            ("task", json!("999999-7")),
        ];
        for (field, value) in changes {
            let mut proof = task["proof"].clone();
            proof[field] = value;
            for (operation, body) in endings(&proof) {
                assert!(
                    self.hand(task).say(operation, body).status().is_client_error(),
                    "{operation} {proof}"
                );
            }
        }
    }

    fn replays(&mut self, task: &Value) {
        for _ in 0..3 {
            let Some(old) = self.other() else { return };
            for (operation, body) in endings(&old["proof"]) {
                self.say(&old, operation, body);
            }
            self.put(&old, "late.m4s", b"late");
        }
        self.gives_back(task);
    }

    fn fail(&self, task: &Value, kind: &str) {
        let message = "\u{1b}]0;owned\u{7}\u{1b}[2J it cannot be done\r\n".repeat(3);
        self.say(
            task,
            "fail",
            json!({ "proof": task["proof"], "kind": kind, "message": message, "usage": usage() }),
        );
    }

    fn false_permanent(&mut self, task: &Value) {
        self.fail(task, "permanent");
    }

    fn false_transient(&mut self, task: &Value) {
        self.fail(task, "transient");
    }

    fn false_outage(&mut self, task: &Value) {
        for kind in ["lease_expired", "withdrawn", "unconfirmed", "storage_away", "disk_full"] {
            self.fail(task, kind);
        }
    }

    fn gives_back(&mut self, task: &Value) {
        self.say(task, "release", json!({ "proof": task["proof"], "message": "tired" }));
        self.say(task, "release", json!({ "proof": task["proof"], "message": "tired" }));
    }

    fn silence(&mut self, _: &Value) {}

    fn false_progress(&mut self, task: &Value) {
        for (progress, permille) in [(i64::MAX, 65_535), (i64::MIN, 0), (-1, 1001), (5, 999)] {
            let report = json!({ "proof": task["proof"], "progress": progress, "step": "\u{1b}[31m".repeat(500), "permille": permille });
            self.say(task, "progress", json!({ "reports": [report, report] }));
        }
        self.gives_back(task);
    }

    fn races(&mut self, task: &Value) {
        let ends = endings(&task["proof"]);
        std::thread::scope(|scope| {
            for (operation, body) in
                ends.iter().chain(&ends).filter(|(it, body)| *it != "complete" || !body["outputs"].is_null())
            {
                let hand = self.hand(task);
                scope.spawn(move || {
                    assert_ne!(hand.say(operation, body.clone()).status().as_u16(), 500, "{operation}");
                });
            }
            scope.spawn(|| self.put(task, "race.m4s", b"race"));
        });
    }

    fn oversized(&mut self, task: &Value) {
        let huge = "x".repeat(5 << 20);
        for operation in ["complete", "fail", "progress", "heartbeat", "claim"] {
            let sent = self
                .hand(task)
                .request("POST", &format!("/api/worker/{operation}"))
                .body(huge.clone())
                .send();
            assert!(
                sent.is_err() || sent.is_ok_and(|answer| answer.status().is_client_error()),
                "{operation}"
            );
        }
        let range = "bytes 0-3/99999999999999";
        let sent = self.hand(task).put(task, "huge.m4s", b"huge").header("content-range", range).send();
        assert!(sent.is_err() || sent.is_ok_and(|answer| answer.status().is_client_error()));
        self.gives_back(task);
    }

    fn archives(&mut self, task: &Value) {
        let good = archive("a.m4s", tar::EntryType::Regular);
        let bad = [
            archive("../victim", tar::EntryType::Regular),
            archive("/etc/passwd", tar::EntryType::Regular),
            archive("link", tar::EntryType::Symlink),
            archive("hard", tar::EntryType::Link),
            archive("pipe", tar::EntryType::Fifo),
            good[..good.len() / 2].to_vec(),
            b"no archive".to_vec(),
        ];
        let header = self.hand(task).proof_header(task);
        let body = self.dice.pick(&bad).clone();
        let sent = self
            .hand(task)
            .request("POST", "/api/worker/outputs")
            .header("x-vodmill-proof", header)
            .body(body)
            .send();
        assert!(sent.is_ok_and(|answer| answer.status().is_client_error()));
        self.missing_files(task);
    }

    fn malformed(&mut self, task: &Value) {
        let bodies = [
            "",
            "{}",
            "[]",
            "null",
            "{\"proof\":",
            "{\"proof\":{}}",
            "\u{0}",
            "{\"proof\":{\"task\":\"../1\",\"fence\":1,\"token\":1}}",
        ];
        for operation in ["complete", "fail", "release", "progress", "direct"] {
            let body = *self.dice.pick(&bodies);
            let request = self.hand(task).request("POST", &format!("/api/worker/{operation}"));
            let answer = request.header("content-type", "application/json").body(body).send().unwrap();
            assert!(answer.status().is_client_error(), "{operation} {body}: {}", answer.status());
        }
        self.gives_back(task);
    }

    fn other(&mut self) -> Option<Value> {
        if self.remembered.is_empty() {
            None
        } else {
            Some(self.dice.pick(&self.remembered).clone())
        }
    }

    /// Notes the files that are there, and that those noted before are as they were.
    fn look(&mut self) {
        let now = self.files();
        for (path, hash) in &now {
            let before = self.seen.entry(path.clone()).or_insert_with(|| hash.clone());
            assert_eq!(before, hash, "{} has changed", path.display());
        }
        for path in self.seen.keys().filter(|path| !is_for_a_while(path)) {
            assert!(now.contains_key(path), "{} is gone", path.display());
        }
    }

    /// Hashes of all files that others made and that are complete: sources, streams, outputs of other executions, and files
    /// that are none of the server's.
    fn files(&self) -> BTreeMap<PathBuf, String> {
        let data = self.house.data();
        let mut found = BTreeMap::new();
        for folder in ["sources", "videos", "parts"] {
            hashes(&data.join(folder), &mut found);
        }
        hashes(&self.house.world.folder.path().join("victim"), &mut found);
        found.retain(|path, _| !self.is_own(path));
        found
    }

    /// Whether it lies in the folder of an execution that the hostile worker was given.
    fn is_own(&self, path: &Path) -> bool {
        let names = path.iter().filter_map(|part| part.to_str());
        let mut names = names.map(|name| name.rsplit_once('-').map_or(name, |(execution, _)| execution));
        names.any(|name| self.own.contains(name))
    }

    fn has_changed_nothing(mut self) {
        for job in self.jobs.clone() {
            until(&format!("job {job} ends"), || {
                let job_detail = self.house.get(&format!("/api/jobs/{job}"));
                let state = job_detail["state"].clone();
                assert!(state != "failed", "{job_detail}");
                state == "completed"
            });
        }
        self.look();
        for video in self.videos.clone() {
            let slug = self.house.video_is(video, "ready")["slug"].as_str().unwrap().to_owned();
            let master = self.house.anyone("GET", &format!("/videos/{slug}/master.m3u8")).send().unwrap();
            assert_eq!(master.status(), 200);
            let generation = std::fs::read_dir(self.house.data().join(format!("videos/{video}"))).unwrap();
            for folder in generation.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
                self.house.world.vodmill(&["check", folder.to_str().unwrap()]).succeeds();
            }
        }
        assert_eq!(
            std::fs::read_to_string(self.house.world.folder.path().join("victim")).unwrap(),
            "precious"
        );
        let workers = self.house.get("/api/workers").to_string();
        assert!(!workers.contains(SECRET));
        self.house.is_healthy();
    }
}

/// What is removed once nobody needs it.
fn is_for_a_while(path: &Path) -> bool {
    path.iter().any(|part| part == "parts")
        || path.iter().any(|part| part.to_string_lossy().ends_with(".partial"))
}

/// Reports that end an execution, with this proof.
fn endings(proof: &Value) -> [(&'static str, Value); 4] {
    let output = json!({ "path": "x.m4s", "bytes": 1, "sha256": sha256(b"x") });
    [
        (
            "complete",
            json!({ "proof": proof, "result": { "execution": "1-0.1" }, "outputs": [output], "usage": usage() }),
        ),
        ("release", json!({ "proof": proof, "message": "no" })),
        ("fail", json!({ "proof": proof, "kind": "permanent", "message": "no", "usage": usage() })),
        ("fail", json!({ "proof": proof, "kind": "transient", "message": "no", "usage": usage() })),
    ]
}

/// Moving pictures unlike those of the clips.
fn film(house: &House) -> PathBuf {
    let path = house.world.folder.path().join("film.mp4");
    let made = std::process::Command::new("ffmpeg")
        .args(["-v", "error", "-f", "lavfi", "-i", "mandelbrot=size=320x180:rate=30"])
        .args(["-f", "lavfi", "-i", "sine=frequency=1234", "-t", "6"])
        .args(["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-c:a", "aac"])
        .arg(&path)
        .status()
        .unwrap();
    assert!(made.success());
    path
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

fn hashes(path: &Path, into: &mut BTreeMap<PathBuf, String>) {
    // It may be removed meanwhile.
    let Ok(found) = path.symlink_metadata() else { return };
    if found.is_dir() {
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            hashes(&entry.path(), into);
        }
    } else if let Ok(bytes) = std::fs::read(path) {
        into.insert(path.to_owned(), sha256(&bytes));
    }
}

fn archive(name: &str, kind: tar::EntryType) -> Vec<u8> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let content: &[u8] = if kind == tar::EntryType::Regular { b"evil" } else { b"" };
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    if !content.is_empty() {
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    } else {
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_link_name("/etc/passwd").unwrap();
    }
    header.set_cksum();
    builder.append(&header, content).unwrap();
    builder.into_inner().unwrap().finish().unwrap()
}
