//! Segments that are correct in every way and show something else, and attempts at files that others publish.

use super::results::{claim_of, finish};
use super::{forged, tree};
use crate::support::house::{Hand, House, good, usage};
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
    let path = house.world.folder.path().join(name);
    let picture = format!("{picture}size=320x180:rate=25,trim=duration={seconds},scroll=horizontal=0.0031");
    let sound = format!("sine=frequency=440:duration={seconds}");
    let made = std::process::Command::new("ffmpeg")
        .args(["-v", "error", "-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound])
        .args(["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "50", "-c:a", "aac"])
        .arg(&path)
        .status()
        .unwrap();
    assert!(made.success());
    path
}

/// Whoever asks for work lies about pictures and is honest about sound, until the video has failed.
fn publishes_nothing(
    house: &House,
    hand: &Hand<'_>,
    file: &Path,
    lie: impl Fn(&Value) -> forged::Made,
) -> String {
    let mut liars = Vec::new();
    until("the video has failed", || {
        for task in hand.claim(1, 500) {
            if task["kind"] == "audio" {
                good(forged::make(&task, file).hand_in(hand, &task));
            } else {
                liars.push(hand.execution(&task));
                good(lie(&task).hand_in(hand, &task));
            }
        }
        house.get("/api/videos/1")["state"] == "failed"
    });
    let job = house.get("/api/videos/1")["job"].clone();
    let told = house.get(&format!("/api/jobs/{job}")).to_string();
    assert!(told.contains("another picture than the source"), "{told}");
    assert!(liars.iter().any(|execution| told.contains(execution.as_str())), "{told}");
    assert_eq!(house.anyone("GET", "/videos/talk/master.m3u8").send().unwrap().status(), 404);
    told
}

#[test]
fn the_segments_of_another_video_are_not_published() {
    let house = house();
    let hand = house.worker("liar", &["encode", "audio", "libx264"]);
    let (own, other) = (film(&house, "own.mp4", "testsrc2=", 4), film(&house, "other.mp4", "mandelbrot=", 4));
    house.upload(&own, "slug=talk");

    publishes_nothing(&house, &hand, &own, |task| forged::make(task, &other));

    // The next try is honest, and is published.
    house.post("/api/videos/1/retranscode", json!({}));
    finish(&house, &hand, &own, 1);
    house.is_healthy();
}

#[test]
fn black_pictures_are_not_published() {
    let house = house();
    let hand = house.worker("liar", &["encode", "audio", "libx264"]);
    let (own, black) =
        (film(&house, "own.mp4", "testsrc2=", 4), film(&house, "black.mp4", "color=c=black:", 4));
    house.upload(&own, "slug=talk");

    publishes_nothing(&house, &hand, &own, |task| forged::make(task, &black));
}

#[test]
fn the_chunk_of_another_time_is_not_published() {
    let house = house();
    let hand = house.worker("liar", &["encode", "audio", "libx264"]);
    // It moves on: each moment is unlike those before.
    let own = film(&house, "own.mp4", "testsrc2=", 60);
    house.upload(&own, "slug=talk");
    let first = claim_of(&hand, "encode");
    assert!(forged::plan_of(&first).picture.unwrap().chunks.len() > 1);
    good(forged::make(&first, &own).hand_in(&hand, &first));

    let told =
        publishes_nothing(&house, &hand, &own, |task| forged::make_of_another_chunk(task, &first, &own));
    assert!(!told.contains("in chunk 0 "), "{told}");
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
