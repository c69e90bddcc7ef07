//! A storage that answers late, halfway, with 503, or not at all.

use super::harm::{Harm, Harmed};
use super::line::{Line, Mood};
use super::site::{Site, good};
use crate::support::{Engine, until};
use std::time::Duration;

#[test]
fn a_storage_that_fails_costs_time_and_nothing_else() {
    let seed = 7;
    let mut site = Site::new(Engine::Sqlite);
    let storage = Line::to(&site.endpoint, seed);
    site.endpoint = storage.url();
    let mut server = site.server("a", &[("VODMILL_SERVER_SLOTS", "1")]);
    let _worker = site.worker(&server, &server.url(""));
    let file = std::fs::read(site.sample("talk.mkv", 2)).unwrap();

    // Every connection is slow, refused or cut, for the server and for the worker; the server is killed once.
    storage.set(Mood::Moody);
    for slug in ["one", "two"] {
        upload(&server, &file, slug);
    }
    until("something is made", || !site.bucket.objects("parts").is_empty());
    server.kill();
    server.start();
    server.video_is(1, "ready");

    // The storage itself is gone for a while.
    storage.set(Mood::Down);
    site.bucket.stop();
    let health = server.get("/api/health");
    assert_eq!((&health["status"], &health["storage"]["is_reachable"]), (&"ok".into(), &false.into()));
    let master = server.text("/videos/one/master.m3u8");
    let rung = master.lines().find(|line| line.starts_with("g-")).unwrap().to_owned();
    let away = server.anyone("GET", &format!("/videos/one/{rung}")).send().unwrap();
    assert_eq!(away.status(), 503);
    site.bucket.start_again();
    storage.set(Mood::Moody);
    server.video_is(2, "ready");

    storage.set(Mood::Good);
    for video in [1, 2] {
        site.is_published_once(video);
    }
    site.is_tidy();
    assert_eq!(site.bucket.objects("sources").len(), 2);
    assert!(storage.struck() > 10, "seed {seed}: {} connections were struck", storage.struck());
    site.world.is_healthy();
}

/// Each kind of harm comes to every second request for each object, reading and writing, of the server and of a worker that has
/// URLs of its own; the job has one attempt.
fn costs_nothing(harm: Harm) {
    let mut site = Site::new(Engine::Sqlite);
    let storage = Harmed::before(&site.endpoint);
    site.endpoint = storage.url();
    let server = site.server("a", &[("VODMILL_MAX_RETRY_ATTEMPTS", "1")]);
    let _worker = site.worker(&server, &server.url(""));
    let file = std::fs::read(site.sample("talk.mkv", 1)).unwrap();

    storage.set(Some(harm));
    upload(&server, &file, "talk");
    let video = server.video_is(1, "ready");
    storage.set(None);

    let sources = site.bucket.objects("sources");
    assert_eq!(sources.len(), 1, "{sources:?}");
    assert!(std::fs::read(site.bucket.path(&sources[0])).unwrap() == file, "other bytes");
    site.is_published_once(1);
    assert_eq!(video["generations"].as_array().unwrap().len(), 1);
    assert!(storage.struck().iter().all(|(_, struck)| *struck > 0), "{:?}", storage.struck());
    site.world.is_healthy();
}

/// During one video: a storage that answers 500 to everything until work is given back, then takes seconds for each answer,
/// then answers 500 to all that is written, then breaks off in the middle of what is read and written. Two workers encode; the job has one attempt.
#[test]
fn a_storage_that_fails_crawls_and_breaks_off_costs_a_video_time_and_nothing_else() {
    let mut site = Site::quiet(Engine::Sqlite);
    let storage = Harmed::before(&site.endpoint);
    site.endpoint = storage.url();
    let server =
        site.server("a", &[("VODMILL_MAX_RETRY_ATTEMPTS", "1"), ("VODMILL_ENCODER_STALL_SECONDS", "6")]);
    let _workers = ["one", "two"].map(|name| site.worker_called(name, &server, &server.url("")));
    let file = std::fs::read(site.sample("talk.mkv", 4)).unwrap();
    let struck = |method: usize| storage.struck()[method].1;
    let (read, write) = (0, 1);
    let failures = || -> Vec<String> {
        let executions = server.get("/api/jobs/1/executions");
        let all = executions.as_array().unwrap().iter();
        all.filter_map(|it| it["failure"].as_str().map(str::to_owned)).collect()
    };

    upload(&server, &file, "talk");
    storage.set(Some(Harm::Failing));
    until("work is given back", || !failures().is_empty());
    let before = struck(read);
    storage.set(Some(Harm::Crawling));
    until("some answers came late", || struck(read) > before + 8);
    storage.set(Some(Harm::FailingWriting));
    until("nobody could write for a while", || struck(write) > 8);
    storage.set(Some(Harm::Truncated));
    let video = server.video_is(1, "ready");
    storage.set(None);

    let failures = failures();
    assert!(failures.iter().all(|failure| failure == "storage_away"), "{failures:?}");
    site.is_published_once(1);
    assert_eq!(video["generations"].as_array().unwrap().len(), 1);
    site.is_tidy();
    for depth in [&[][..], &["--deep"]] {
        server.files_are_right(depth);
    }
    site.world.is_healthy();
}

macro_rules! each_harm_costs_nothing {
    ($($name:ident: $harm:ident,)*) => { $(
        #[test]
        fn $name() {
            costs_nothing(Harm::$harm);
        }
    )* };
}

each_harm_costs_nothing! {
    errors_of_the_storage_cost_nothing: Error,
    a_storage_that_asks_to_slow_down_costs_nothing: SlowDown,
    slow_answers_cost_nothing: Slow,
    truncated_answers_and_requests_cost_nothing: Truncated,
    connections_that_are_cut_cost_nothing: Cut,
    answers_that_get_lost_cost_nothing: Unanswered,
}

/// It holds URLs that are good for a while yet.
#[test]
fn a_worker_frozen_while_it_writes_to_the_bucket_publishes_nothing_late() {
    let site = Site::quiet(Engine::Sqlite);
    let server = site.server("a", &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "0.05")]);
    let file = std::fs::read(site.sample("talk.mkv", 1)).unwrap();

    for (video, moment) in [(1, "send_direct.before:2"), (2, "send_direct.after")] {
        let name = format!("frozen-{video}");
        let stop = [("VODMILL_FAILPOINT", moment), ("VODMILL_FAILPOINT_ACTION", "stop")];
        let frozen = site.worker_with(&name, &server, &server.url(""), &stop);
        upload(&server, &file, &format!("talk-{video}"));
        until("the worker stands still", || frozen.is_stopped());
        let _other = site.worker_called(&format!("other-{video}"), &server, &server.url(""));
        server.video_is(video, "ready");

        frozen.resume();

        until("it drops what it was at", || frozen.said().contains("dropped"));
        site.is_published_once(video);
    }

    site.is_tidy();
    server.files_are_right(&["--deep"]);
    site.world.is_healthy();
}

/// As a person would: again, if the server says that it cannot now.
fn upload(server: &super::site::Server<'_>, file: &[u8], slug: &str) {
    let path = format!("/api/videos?name=talk.mkv&slug={slug}");
    for _ in 0..20 {
        let response = server.admin("POST", &path).body(file.to_vec()).send().unwrap();
        if response.status() != 503 {
            good(response);
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{slug} was not taken");
}
