//! A storage that is away for longer than a task has attempts: every job has one here, and none is used up.

use super::harm::{Harm, Harmed};
use super::site::{Server, Site, good};
use crate::support::{Engine, until};
use serde_json::Value;

const SETTINGS: [(&str, &str); 2] =
    [("VODMILL_MAX_RETRY_ATTEMPTS", "1"), ("VODMILL_ENCODER_STALL_SECONDS", "4")];

#[test]
fn a_storage_that_falls_silent_costs_a_worker_inside_the_server_no_attempt() {
    let mut site = Site::new(Engine::Sqlite);
    let storage = Harmed::before(&site.endpoint);
    site.endpoint = storage.url();
    let mut settings = SETTINGS.to_vec();
    settings.push(("VODMILL_SERVER_SLOTS", "1"));
    let server = site.server("a", &settings);

    storage.set(Some(Harm::StuckReading));
    upload(&site, &server);
    is_given_back(&server);
    storage.set(None);

    is_made_without_a_failure(&site, &server);
}

#[test]
fn a_storage_that_is_gone_costs_a_worker_with_urls_of_its_own_no_attempt() {
    let site = Site::new(Engine::Sqlite);
    let server = site.server("a", &SETTINGS);

    upload(&site, &server);
    site.bucket.stop();
    let worker = site.worker(&server, &server.url(""));
    is_given_back(&server);
    let waits = |said: String| said.contains("the storage is away; taking nothing new");
    until("whoever had it waits", || waits(worker.said()) || waits(server.said()));
    site.bucket.start_again();

    is_made_without_a_failure(&site, &server);
}

fn upload(site: &Site, server: &Server<'_>) {
    let file = std::fs::read(site.sample("talk.mkv", 4)).unwrap();
    good(server.admin("POST", "/api/videos?name=talk.mkv").body(file).send().unwrap());
}

fn failures(server: &Server<'_>) -> Vec<Value> {
    let executions = server.get("/api/jobs/1/executions");
    let failures = executions.as_array().unwrap().iter().map(|it| it["failure"].clone());
    failures.filter(|failure| !failure.is_null()).collect()
}

fn is_given_back(server: &Server<'_>) {
    until("work is given back", || !failures(server).is_empty());
    let why = server.get("/api/jobs/1/why").to_string();
    assert!(why.contains("waits for the storage"), "{why}");
    let audit = server.get("/api/jobs/1/audit").to_string();
    assert!(audit.contains("storage_away"), "{audit}");
}

fn is_made_without_a_failure(site: &Site, server: &Server<'_>) {
    server.video_is(1, "ready");
    site.is_published_once(1);
    let failures = failures(server);
    assert!(failures.iter().all(|failure| failure == "storage_away"), "{failures:?}");
    // Whoever had failed for want of the storage has waited, and not tried again and again.
    assert!(failures.len() < 6, "{failures:?}");
    site.world.is_healthy();
}
