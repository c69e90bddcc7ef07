//! One video through two servers, a bucket and a worker.

use super::bucket::SECRET;
use super::line::Line;
use super::site::{Site, good};
use crate::support::{Engine, until};
use serde_json::Value;

#[test]
fn two_servers_without_a_disk_in_common_and_a_worker_make_a_stream_in_a_bucket() {
    let site = Site::new(Engine::Postgres);
    let a = site.server("a", &[("VODMILL_PLAYBACK_URL", "https://cdn.example.org/v/")]);
    let b = site.server("b", &[("VODMILL_RETENTION_DAYS", "0.00001")]);
    let line = Line::to(&a.url(""), 0);
    let worker = site.worker(&a, &line.url());
    let file = std::fs::read(site.sample("talk.mkv", 3)).unwrap();
    let health = a.get("/api/health")["storage"].clone();
    assert_eq!(
        (&health["kind"], &health["is_reachable"]),
        (&"s3://vodmill/some/prefix".into(), &true.into())
    );

    // Begun at one server, gone on with at the other, finished at the first.
    let upload = a.begin(file.len(), "filename dGFsay5ta3Y=,slug dGFsaw==,early_playback dHJ1ZQ==");
    good(b.append(&upload, &file, 100_000));
    assert_eq!(a.offset(&upload), 100_000);
    good(a.append(&upload, &file, file.len()));
    let video = b.video_is(1, "ready");

    let generation = site.is_published_once(1);
    plays(&b, &generation);
    let redirect = a.anyone("GET", &format!("/videos/talk/{generation}/master.m3u8")).send().unwrap();
    assert_eq!(redirect.status(), 307);
    let elsewhere = format!("https://cdn.example.org/v/videos/1/{generation}/master.m3u8");
    assert_eq!(redirect.headers()["location"], elsewhere.as_str());
    is_kept_secret(&b, &video, &worker.said());
    past_the_server(&b, &video, &line, file.len() as u64);
    site.is_tidy();

    // What a person deletes is removed for good after a while.
    assert_eq!(b.admin("DELETE", "/api/videos/talk").send().unwrap().status(), 204);
    // What says whose bucket it is stays.
    let marks = ["database-id", "timeline.json"];
    until("nothing else is left", || {
        site.bucket.objects("").iter().all(|name| marks.contains(&name.as_str()))
    });
    site.world.is_healthy();
}

/// From the bucket, with ranges and validators, as from a disk.
fn plays(server: &super::site::Server<'_>, generation: &str) {
    let master = server.text("/videos/talk/master.m3u8");
    let rung = master.lines().find(|line| line.starts_with(generation)).unwrap().to_owned();
    let playlist = server.text(&format!("/videos/talk/{rung}"));
    let segment = playlist.lines().find(|line| line.ends_with(".m4s")).unwrap();
    let address = format!("/videos/talk/{}", rung.replace("index.m3u8", segment));
    let whole = server.anyone("GET", &address).send().unwrap();
    let etag = whole.headers()["etag"].clone();
    assert!(whole.headers()["cache-control"].to_str().unwrap().contains("immutable"));
    let whole = whole.bytes().unwrap();

    let part = server.anyone("GET", &address).header("range", "bytes=10-19").send().unwrap();
    assert_eq!(part.status(), 206);
    assert_eq!(part.headers()["content-range"], format!("bytes 10-19/{}", whole.len()).as_str());
    assert_eq!(part.bytes().unwrap(), whole[10..20]);
    let last = server.anyone("GET", &address).header("range", "bytes=-5").send().unwrap();
    assert_eq!(last.bytes().unwrap(), whole[whole.len() - 5..]);
    let beyond = server.anyone("GET", &address).header("range", "bytes=99999999-").send().unwrap();
    assert_eq!(beyond.status(), 416);
    let known = server.anyone("GET", &address).header("if-none-match", etag).send().unwrap();
    assert_eq!(known.status(), 304);
    let head = server.anyone("HEAD", &address).send().unwrap();
    assert_eq!(head.headers()["content-length"], whole.len().to_string().as_str());
    let missing = server.anyone("GET", &format!("/videos/talk/{generation}/nothing.m4s")).send().unwrap();
    assert_eq!(missing.status(), 404);
}

/// Neither the bucket's secret nor a URL that opens it is in a command, a log or an answer to a person.
fn is_kept_secret(server: &super::site::Server<'_>, video: &Value, worker: &str) {
    let steps = server.get(&format!("/api/jobs/{}/steps", video["job"])).to_string();
    for told in [steps.as_str(), worker, &server.said()] {
        assert!(!told.contains("X-Amz-Signature") && !told.contains(SECRET), "{told}");
    }
}

/// The worker read the source several times, and made the stream: neither passed through the server.
fn past_the_server(server: &super::site::Server<'_>, video: &Value, line: &Line, source: u64) {
    let executions = server.get(&format!("/api/jobs/{}/executions", video["job"]));
    let executions = executions.as_array().unwrap();
    let sum = |what: &str| executions.iter().filter_map(|it| it[what].as_u64()).sum::<u64>();
    assert!(sum("bytes_in") > source, "{executions:?}");
    assert!(line.passed() < source / 4, "{} bytes of {source} passed through the server", line.passed());
}
