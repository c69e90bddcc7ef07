//! An upgrade: servers and workers of the version before are replaced by this one, one after the other, while videos are made;
//! the servers all at once where their version does not fit the new schema. `make upgrade` builds the other version.

use super::platform::Front;
use super::site::{Server, Site, good};
use crate::support::{Engine, World, psql, until};
use std::path::Path;

#[test]
#[ignore = "needs a program of another version: make upgrade"]
fn every_process_is_replaced_while_videos_are_made() {
    let before = std::env::var("VODMILL_PREVIOUS")
        .expect("VODMILL_PREVIOUS, the program to upgrade from: make upgrade");
    let world = World::bare(Engine::Postgres);
    world.run_by(Path::new(&before));
    world.vodmill(&["migrate"]).succeeds();
    let site = Site::of(world);
    let mut servers: Vec<Server<'_>> = ["a", "b"].map(|name| site.server(name, &[])).into();
    let front = Front::before(&servers);
    let mut workers: Vec<_> =
        (0..3).map(|n| site.worker_called(&format!("w{n}"), &servers[n % 2], &front.url())).collect();
    let file = std::fs::read(site.sample("talk.mkv", 2)).unwrap();
    let mut videos = 0;
    let mut upload = |servers: &[Server<'_>]| {
        for server in servers {
            videos += 1;
            let path = format!("/api/videos?name=talk.mkv&slug=video-{videos}");
            good(server.admin("POST", &path).body(file.clone()).send().unwrap());
        }
        videos
    };
    upload(&servers);

    let version = psql(&site.world.url, "SELECT max(version) FROM schema_version");
    let fits = version.trim().parse::<i64>().unwrap() >= store::migrate::oldest_that_fits();
    if !fits {
        servers.iter_mut().for_each(Server::stop);
    }
    site.world.run_by(Path::new(env!("CARGO_BIN_EXE_vodmill")));
    site.world.vodmill(&["migrate"]).succeeds();
    if !fits {
        servers.iter_mut().for_each(Server::start);
    }
    upload(&servers);
    for at in 0..servers.len() {
        servers[at].stop();
        servers[at].start();
        upload(&servers);
    }
    for worker in &mut workers {
        worker.restart(&site, &front.url());
        upload(&servers[..1]);
    }
    let videos = upload(&servers);

    for video in 1..=videos {
        servers[0].video_is(video, "ready");
        site.is_published_once(video);
    }
    let at_work = || {
        let workers = servers[1].get("/api/workers");
        let is_there = |name: String| {
            workers.as_array().unwrap().iter().any(|it| it["name"] == *name && it["status"] != "offline")
        };
        (0..3).all(|n| is_there(format!("w{n}")))
    };
    until("the new workers are there", at_work);
    drop(workers);
    site.is_tidy();
    site.world.is_healthy();
}
