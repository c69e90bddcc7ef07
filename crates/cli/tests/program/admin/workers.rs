//! Workers are let in, told what to do, and shut out, by name.

use super::{here, there};
use crate::on_both_engines;
use crate::support::house::House;
use crate::support::{Engine, until};

on_both_engines![a_worker_is_let_in_works_and_is_shut_out, the_servers_own_worker_is_drained_and_comes_back];

fn a_worker_is_let_in_works_and_is_shut_out(engine: Engine) {
    let house = House::with(engine, &[("VODMILL_SERVER_SLOTS", "0")]);
    let registered = there(&house, &["workers", "register", "gpu-1", "--json"]).json();
    let key = registered["key"].as_str().unwrap().to_owned();
    let worker = || {
        let work = house.world.folder.path().join("work-gpu-1");
        let program = house.world.vodmill(&["worker", "--slots", "2"]).env("VODMILL_SERVER", &house.url(""));
        program.env("VODMILL_WORKER_KEY", &key).env("VODMILL_WORK_FOLDER", work.to_str().unwrap())
    };
    let mut process = worker().start();
    let status = || {
        // Not compared with what the database says: the server's own worker goes on counting.
        let workers = there(&house, &["workers", "list", "--json"]).json();
        let mine = workers.as_array().unwrap().iter().find(|it| it["id"] == registered["worker"]).cloned();
        mine.map(|it| it["status"].as_str().unwrap().to_owned()).unwrap_or_default()
    };

    let file = house.sample("talk.mp4", 3);
    there(&house, &["submit", file.to_str().unwrap(), "--watch"]).succeeds();
    let executions = there(&house, &["job", "executions", "1", "--json"]).json();
    let executions = executions.as_array().unwrap().clone();
    assert!(executions.iter().any(|execution| execution["worker"] == registered["worker"]));

    assert!(there(&house, &["workers", "disable", "gpu-1"]).succeeds().contains("is disabled"));
    until("it is disabled", || status() == "disabled");
    there(&house, &["workers", "enable", "gpu-1"]).succeeds();
    let drained = there(&house, &["workers", "drain", "gpu-1", "--json"]).json();
    assert_eq!((&drained["worker"], &drained["status"]), (&registered["worker"], &"draining".into()));
    assert!(there(&house, &["workers", "revoke", "gpu-1"]).succeeds().contains("is shut out"));
    process.ends();
    let said = worker().ends_with(1);
    assert!(said.contains("does not accept this worker's key"), "{said}");

    let again = there(&house, &["workers", "revoke", "gpu-1"]).ends_with(1);
    assert!(again.contains("no such worker with a key"), "{again}");
    let told = there(&house, &["workers", "register", "twin"]).succeeds();
    assert!(told.contains(&format!("vodmill worker --server {} --key-file", house.url(""))), "{told}");
    here(&house, &["workers", "register", "twin"]).succeeds();
    let which = there(&house, &["workers", "drain", "twin"]).ends_with(2);
    assert!(which.contains("2 workers are called `twin`"), "{which}");
    let unknown = there(&house, &["workers", "drain", "nobody"]).ends_with(1);
    assert!(unknown.contains("no worker is called `nobody`"), "{unknown}");
}

fn the_servers_own_worker_is_drained_and_comes_back(engine: Engine) {
    let house = House::encoding(engine);
    until("it is there", || here(&house, &["workers", "list", "--json"]).succeeds().contains("\"server\""));
    there(&house, &["workers", "drain", "server"]).succeeds();
    until("it has heard", || std::fs::read_to_string(house.log()).unwrap().contains("asked to drain"));
    house.upload(&house.sample("talk.mp4", 2), "slug=talk");
    let why = there(&house, &["job", "why", "1"]).succeeds();
    assert!(why.contains("server is draining") && why.contains("vodmill workers enable"), "{why}");

    there(&house, &["workers", "enable", "server"]).succeeds();

    house.video_is(1, "ready");
    house.is_healthy();
}
