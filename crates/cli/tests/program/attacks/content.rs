//! Segments that are correct in every way and show something else, and attempts at files that others publish.

use super::results::{claim_of, finish};
use super::{forged, tree};
use crate::support::house::{Hand, House, good, problem, usage};
use crate::support::{Engine, until};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

fn house() -> House {
    House::with(Engine::Sqlite, &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "5")])
}

/// Moving pictures with the sound of a tone, unlike those of other sources.
fn film(house: &House, name: &str, picture: &str, seconds: u32) -> PathBuf {
    film_with_tone(house, name, picture, seconds, 440)
}

fn film_with_tone(house: &House, name: &str, picture: &str, seconds: u32, hertz: u32) -> PathBuf {
    let path = house.world.folder.path().join(name);
    let picture = format!("{picture}size=320x180:rate=25,trim=duration={seconds},scroll=horizontal=0.0031");
    let sound = format!("sine=frequency={hertz}:duration={seconds}");
    let made = std::process::Command::new("ffmpeg")
        .args(["-v", "error", "-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound])
        .args(["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "50", "-c:a", "aac"])
        .arg(&path)
        .status()
        .unwrap();
    assert!(made.success());
    path
}

/// Hands in a lie about the next task of this kind. The server refuses it, and nobody can watch it. Why, and the job.
fn is_refused(
    house: &House,
    liar: &Hand<'_>,
    kind: &str,
    lie: impl Fn(&Value) -> forged::Made,
) -> (String, i64) {
    let task = claim_of(liar, kind);
    let lie = lie(&task);
    let refusal = lie.hand_in(liar, &task);
    let early = house.anyone("GET", "/videos/talk/master.m3u8").send().unwrap();
    assert_eq!(early.status(), 404);
    let detail = refused(refusal);
    let part = house.data().join("parts").join(liar.execution(&task));
    assert!(!part.exists(), "the files are removed");
    problem(lie.complete_with(liar, &task, lie.result(&task)), 409, "refused");
    (detail, task["job"].as_i64().unwrap())
}

fn refused(answer: reqwest::blocking::Response) -> String {
    assert_eq!(answer.status(), 422);
    let problem: Value = answer.json().unwrap();
    assert_eq!(problem["code"], "bad_result");
    problem["detail"].as_str().unwrap().to_owned()
}

/// An honest worker makes what is left, and the video is published.
fn is_made_by_another(house: &House, file: &Path, job: i64) {
    let video = house.get(&format!("/api/jobs/{job}"))["video"].as_i64().unwrap();
    finish(house, &house.worker("honest", &["encode", "audio", "libx264"]), file, video);
    let executions = house.get(&format!("/api/jobs/{job}/executions")).to_string();
    assert!(executions.contains("rejected"), "{executions}");
    house.is_healthy();
}

fn upload_to_watch_early(house: &House, file: &PathBuf) {
    house.upload(file, "slug=talk&early_playback=true");
}

/// So many that the server's own worker, which could make the sound itself, has others to look at first.
fn upload_several(house: &House, file: &PathBuf) {
    upload_to_watch_early(house, file);
    for number in 2..=6 {
        house.upload(file, &format!("slug=talk-{number}"));
    }
}

#[test]
fn the_segments_of_another_video_are_not_taken() {
    let house = house();
    let liar = house.worker("liar", &["encode", "libx264"]);
    let (own, other) = (film(&house, "own.mp4", "testsrc2=", 4), film(&house, "other.mp4", "mandelbrot=", 4));
    upload_to_watch_early(&house, &own);

    let (told, job) = is_refused(&house, &liar, "encode", |task| forged::make(task, &other));

    assert!(told.contains("another picture than the source"), "{told}");
    is_made_by_another(&house, &own, job);
}

#[test]
fn black_pictures_are_not_taken() {
    let house = house();
    let liar = house.worker("liar", &["encode", "libx264"]);
    let (own, black) =
        (film(&house, "own.mp4", "testsrc2=", 4), film(&house, "black.mp4", "color=c=black:", 4));
    upload_to_watch_early(&house, &own);

    let (told, job) = is_refused(&house, &liar, "encode", |task| forged::make(task, &black));

    assert!(told.contains("another picture than the source"), "{told}");
    is_made_by_another(&house, &own, job);
}

#[test]
fn the_chunk_of_another_time_is_not_taken() {
    let house = house();
    let liar = house.worker("liar", &["encode", "libx264"]);
    // It moves on: each moment is unlike those before.
    let own = film(&house, "own.mp4", "testsrc2=", 60);
    upload_to_watch_early(&house, &own);
    let first = claim_of(&liar, "encode");
    assert!(forged::plan_of(&first).picture.unwrap().chunks.len() > 1);
    good(forged::make(&first, &own).hand_in(&liar, &first));

    let other = claim_of(&liar, "encode");
    let told = refused(forged::make_of_another_chunk(&other, &first, &own).hand_in(&liar, &other));

    assert!(told.contains("another picture than the source"), "{told}");
    is_made_by_another(&house, &own, other["job"].as_i64().unwrap());
}

#[test]
fn one_segment_of_another_video_is_found() {
    let house = House::with(
        Engine::Sqlite,
        &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "5"), ("VODMILL_PARALLEL", "1")],
    );
    let liar = house.worker("liar", &["encode", "libx264"]);
    let own = film(&house, "own.mp4", "testsrc2=", 20);
    let other = film(&house, "other.mp4", "mandelbrot=", 20);
    upload_to_watch_early(&house, &own);

    let (told, job) = is_refused(&house, &liar, "encode", |task| {
        let mut made = forged::make(task, &own);
        assert!(made.tracks[0].segments.len() > 2);
        made.take_segment_of(&forged::make(task, &other), 1);
        made
    });

    assert!(told.contains("another picture than the source"), "{told}");
    is_made_by_another(&house, &own, job);
}

#[test]
fn segments_that_are_none_are_not_taken() {
    let house = house();
    let own = film(&house, "own.mp4", "testsrc2=", 4);
    upload_several(&house, &own);

    for (kind, kinds) in [("audio", ["audio"].as_slice()), ("encode", &["encode", "libx264"])] {
        let liar = house.worker(&format!("liar about {kind}"), kinds);
        let (told, job) = is_refused(&house, &liar, kind, |task| {
            let mut made = forged::make(task, &own);
            made.fill_segments_with(0x5a);
            made
        });
        assert!(told.contains("seg-00001"), "{told}");
        if kind == "encode" {
            is_made_by_another(&house, &own, job);
        }
    }
}

#[test]
fn frames_that_are_shown_late_are_not_taken() {
    let house = house();
    let liar = house.worker("liar", &["encode", "libx264"]);
    let own = film(&house, "own.mp4", "testsrc2=", 4);
    upload_to_watch_early(&house, &own);

    let (told, job) = is_refused(&house, &liar, "encode", |task| forged::make_late(task, &own));

    assert!(told.contains("its frames are shown 0.080 s late"), "{told}");
    is_made_by_another(&house, &own, job);
}

#[test]
fn what_is_neither_picture_nor_sound_is_not_taken() {
    let house = house();
    let liar = house.worker("liar", &["encode", "libx264"]);
    let own = film(&house, "own.mp4", "testsrc2=", 4);
    upload_to_watch_early(&house, &own);

    let (told, job) = is_refused(&house, &liar, "encode", |task| {
        let mut made = forged::make(task, &own);
        made.hide_in_segments(1000);
        made
    });

    assert!(told.contains("it has a box `free` of 1000 bytes"), "{told}");
    is_made_by_another(&house, &own, job);
}

#[test]
fn pictures_that_ask_too_much_of_players_are_not_taken() {
    let house = house();
    let liar = house.worker("liar", &["encode", "libx264"]);
    let own = film(&house, "own.mp4", "testsrc2=", 4);
    upload_to_watch_early(&house, &own);
    let task = claim_of(&liar, "encode");
    let made = forged::make_demanding(&task, &own, &["-level:v", "6.2"]);
    assert_eq!(made.tracks[0].codec, "avc1.64003e");

    let told = refused(made.hand_in(&liar, &task));

    assert!(told.contains("the codec avc1.64003e is not of a common profile and at most of level"), "{told}");
    good(liar.release(&task).unwrap());
    finish(&house, &house.worker("honest", &["encode", "audio", "libx264"]), &own, 1);
    house.is_healthy();
}

/// Workers with other encoders: the playlist asks for what all chunks together need.
#[test]
fn chunks_of_other_levels_make_one_stream() {
    let house = house();
    let hand = house.worker("other", &["encode", "audio", "libx264"]);
    let own = film(&house, "own.mp4", "testsrc2=", 60);
    upload_to_watch_early(&house, &own);
    let task = claim_of(&hand, "encode");
    assert!(forged::plan_of(&task).picture.unwrap().chunks.len() > 1);
    let honest = forged::make(&task, &own).tracks[0].codec.clone();
    let made = forged::make_demanding(&task, &own, &["-level:v", "2.0"]);
    assert_ne!(made.tracks[0].codec, honest);

    good(made.hand_in(&hand, &task));

    finish(&house, &hand, &own, 1);
    let master = house.anyone("GET", "/videos/talk/master.m3u8").send().unwrap().text().unwrap();
    assert!(master.contains(made.tracks[0].codec.as_str()), "{master}");
    house.is_healthy();
}

#[test]
fn pictures_that_players_would_turn_are_not_taken() {
    let house = house();
    let liar = house.worker("liar", &["encode", "libx264"]);
    let own = film(&house, "own.mp4", "testsrc2=", 4);
    upload_to_watch_early(&house, &own);

    let (told, job) = is_refused(&house, &liar, "encode", |task| {
        let mut made = forged::make(task, &own);
        made.turn();
        made
    });

    assert!(told.contains("players are told to turn or to mirror the picture"), "{told}");
    is_made_by_another(&house, &own, job);
}

#[test]
fn another_track_beside_the_picture_is_not_taken() {
    let house = house();
    let liar = house.worker("liar", &["encode", "libx264"]);
    let own = film(&house, "own.mp4", "testsrc2=", 4);
    upload_to_watch_early(&house, &own);

    let (told, job) = is_refused(&house, &liar, "encode", |task| {
        let mut made = forged::make(task, &own);
        made.add_passenger();
        made
    });

    assert!(told.contains("has 2 tracks; one of picture was planned"), "{told}");
    is_made_by_another(&house, &own, job);
}

/// It is compared before its commit, as closely as it would be later: later a lie would fail the job.
#[test]
fn what_was_compared_before_its_commit_is_not_compared_again() {
    let house = house();
    let hand = house.worker("worker", &["encode", "audio", "libx264"]);
    let own = film(&house, "own.mp4", "testsrc2=", 4);
    house.upload(&own, "slug=talk");
    let task = claim_of(&hand, "encode");
    let made = forged::make(&task, &own);
    let mut result = made.result(&task);
    result["is_compared"] = json!(false);
    made.upload(&hand, &task);
    good(made.complete_with(&hand, &task, result));

    finish(&house, &hand, &own, 1);

    let job = house.get("/api/videos/1")["job"].clone();
    let steps = house.get(&format!("/api/jobs/{job}/steps")).to_string();
    assert!(!steps.contains("\"compare\""), "{steps}");
    house.is_healthy();
}

#[test]
fn what_the_server_cannot_compare_is_held_against_nobody() {
    let house = House::with(
        Engine::Sqlite,
        &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "5"), ("VODMILL_WORKER_SUSPEND_AFTER", "1")],
    );
    let honest = house.worker("honest", &["encode", "libx264"]);
    let own = film(&house, "own.mp4", "testsrc2=", 2);
    house.upload(&own, "slug=talk");
    let task = claim_of(&honest, "encode");
    let made = forged::make(&task, &own);
    for source in std::fs::read_dir(house.data().join("sources")).unwrap() {
        std::fs::write(source.unwrap().path(), "damaged").unwrap();
    }

    problem(made.hand_in(&honest, &task), 422, "not_compared");

    assert_eq!(house.get("/api/workers?all=true")[0]["suspended"], Value::Null);
}

#[test]
fn other_sound_is_not_taken() {
    let house = house();
    let liar = house.worker("liar", &["audio"]);
    let own = film(&house, "own.mp4", "testsrc2=", 6);
    let other = film_with_tone(&house, "other.mp4", "mandelbrot=", 6, 700);
    upload_several(&house, &own);

    let (told, job) = is_refused(&house, &liar, "audio", |task| forged::make(task, &other));

    assert!(told.contains("other sound than the source from 0 s on"), "{told}");
    is_made_by_another(&house, &own, job);
}

#[test]
fn committed_output_that_the_gate_refuses_is_named_and_made_again() {
    let house = house();
    let hand = house.worker("worker", &["encode", "audio", "libx264"]);
    let own = film(&house, "own.mp4", "testsrc2=", 4);
    house.upload(&own, "slug=talk");
    let task = claim_of(&hand, "encode");
    let made = forged::make(&task, &own);
    good(made.hand_in(&hand, &task));
    let folder = house.data().join("parts").join(hand.execution(&task));
    let segment = folder.join(&made.tracks[0].segments[0].file.path);
    let damaged = vec![0x5a; std::fs::read(&segment).unwrap().len()];
    std::fs::set_permissions(&segment, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&segment, damaged).unwrap();

    until("the video has failed", || {
        for task in hand.claim(1, 500) {
            good(forged::make(&task, &own).hand_in(&hand, &task));
        }
        house.get("/api/videos/1")["state"] == "failed"
    });

    let job = house.get("/api/videos/1")["job"].clone();
    let told = house.get(&format!("/api/jobs/{job}")).to_string();
    assert!(told.contains(&format!("it was made by execution {}", hand.execution(&task))), "{told}");
    until("its files are removed", || !folder.exists());
    house.post(&format!("/api/jobs/{job}/retry"), json!({}));
    let before = hand.claim(10, 0);
    assert!(before.is_empty() || before.iter().all(|task| task["job"] != job), "it is another job");
    for task in before {
        good(forged::make(&task, &own).hand_in(&hand, &task));
    }
    until("the video is ready", || {
        for task in hand.claim(1, 500) {
            good(forged::make(&task, &own).hand_in(&hand, &task));
        }
        house.get("/api/videos/1")["state"] == "ready"
    });
    house.is_healthy();
}

/// A request that has begun an upload and holds its file open.
struct HalfSent(TcpStream);

impl HalfSent {
    fn begin(house: &House, hand: &Hand<'_>, task: &Value, path: &str, bytes: &[u8], sent: usize) -> Self {
        let mut stream = TcpStream::connect(house.url("").trim_start_matches("http://")).unwrap();
        let head = format!(
            "PUT /api/worker/outputs/{path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\nx-vodmill-proof: {}\r\n\
             x-vodmill-sha256: {}\r\ncontent-length: {}\r\n\r\n",
            hand.key,
            hand.proof_header(task),
            hex::encode(Sha256::digest(bytes)),
            bytes.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&bytes[..sent]).unwrap();
        HalfSent(stream)
    }

    fn send_on(mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes);
        let _ = self.0.shutdown(std::net::Shutdown::Write);
        let _ = self.0.read_to_end(&mut Vec::new());
    }
}

#[test]
fn a_request_that_was_left_open_cannot_change_what_was_committed() {
    let house = house();
    let hand = house.worker("patient", &["sleep"]);
    house.post(
        "/api/jobs",
        json!({ "name": "x", "stage": [{ "name": "only", "sleep_ms": 1, "segments": 2 }] }),
    );
    let task = hand.claim_one();
    let (content, evil) = (vec![b'a'; 100_000], vec![b'b'; 90_000]);
    let half = HalfSent::begin(&house, &hand, &task, "720p/seg.m4s", &content, 10_000);
    let partial = house.data().join("incoming").join(hand.execution(&task)).join(".partial");
    until("its first bytes are there", || {
        let sizes = std::fs::read_dir(&partial).into_iter().flatten().flatten();
        sizes.filter_map(|entry| entry.metadata().ok()).any(|found| found.len() == 10_000)
    });

    good(hand.put(&task, "720p/seg.m4s", &content).send().unwrap());
    let sha256 = hex::encode(Sha256::digest(&content));
    let output = json!({ "path": "720p/seg.m4s", "bytes": content.len(), "sha256": sha256 });
    let body = json!({ "proof": task["proof"], "result": null, "outputs": [output], "usage": usage() });
    good(hand.say("complete", body));
    half.send_on(&evil);

    let kept = house.data().join("parts").join(hand.execution(&task)).join("720p/seg.m4s");
    assert!(std::fs::read(&kept).unwrap() == content, "what was committed is what was checked");
    assert_eq!(std::fs::metadata(&kept).unwrap().permissions().mode() & 0o222, 0, "nobody may write to it");
}

#[test]
fn links_among_our_files_lead_nowhere_and_nothing_published_can_be_written() {
    let house = house();
    let hand = house.worker("worker", &["encode", "audio", "libx264"]);
    let file = house.sample("a.mp4", 4);
    house.upload(&file, "slug=victim");
    finish(&house, &hand, &file, 1);
    let videos = house.data().join("videos");
    let before = tree(&videos);
    for path in before.keys() {
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o222, 0, "{}", path.display());
    }
    let page = house.anyone("GET", "/videos/victim/master.m3u8").send().unwrap().text().unwrap();
    let generation = page
        .lines()
        .filter(|line| !line.starts_with('#'))
        .find_map(|line| line.split_once('/'))
        .unwrap()
        .0
        .to_owned();
    let secret = house.world.folder.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();

    // In the place of a published file, and of a folder.
    let published = videos.join("1").join(&generation);
    symlink(&secret, published.join("link.m4s")).unwrap();
    symlink(house.world.folder.path(), published.join("folder")).unwrap();
    for path in ["link.m4s", "folder/secret"] {
        let answer = house.anyone("GET", &format!("/videos/victim/{generation}/{path}")).send().unwrap();
        assert_eq!(answer.status(), 404, "{path}");
    }
    for name in ["link.m4s", "folder"] {
        std::fs::remove_file(published.join(name)).unwrap();
    }

    // In the place of a part: packaging does not follow it, so the other video never changes.
    house.upload(&file, "slug=other");
    let task = claim_of(&hand, "encode");
    let made = forged::make(&task, &file);
    good(made.hand_in(&hand, &task));
    let path = &made.files().next().unwrap().path;
    let part = house.data().join("parts").join(hand.execution(&task)).join(path);
    let target = published.join(path);
    std::fs::remove_file(&part).unwrap();
    symlink(&target, &part).unwrap();
    until("the other video has failed", || {
        for task in hand.claim(1, 500) {
            good(forged::make(&task, &file).hand_in(&hand, &task));
        }
        house.get("/api/videos/2")["state"] == "failed"
    });

    assert!(tree(&videos) == before, "no byte of the published video changed");
}
