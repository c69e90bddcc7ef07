//! Jobs of one's own, submitted to a server and looked at there.

use super::{both, here, there};
use crate::on_both_engines;
use crate::support::house::House;
use crate::support::{Engine, until};
use std::process::Stdio;

on_both_engines![
    what_a_server_says_of_a_job_is_what_its_database_says,
    a_job_is_cancelled_retried_and_followed_over_http,
    all_jobs_are_watched_until_somebody_has_seen_enough,
];

const JOB: &str = "
name = 'shown'
backoff_initial_ms = 10
[[stage]]
name = 'plan'
phase = 'planning'
run = ['echo', '{\"segments\": [1, 2]}']
[[stage]]
name = 'encode'
needs = ['plan']
expand = 'plan'
run = ['sh', '-c', 'echo working >&2; test $VODMILL_ATTEMPT -gt 1']
";

const BAD: &str = "
name = 'bad'
[[stage]]
name = 'a'
run = ['sh', '-c', 'echo no such luck >&2; exit 65']
";

fn submit(house: &House, spec: &str) -> String {
    let path = house.world.write("spec.toml", spec);
    let submitted = there(house, &["submit", path.to_str().unwrap(), "--json"]).json();
    assert_eq!(submitted["is_new"], true);
    submitted["id"].to_string()
}

/// Commands that jobs bring along are done at the database; the server itself only makes videos.
fn work(house: &House) {
    here(house, &["worker", "--exit-when-idle"]).succeeds();
}

fn what_a_server_says_of_a_job_is_what_its_database_says(engine: Engine) {
    let house = House::new(engine);
    let id = submit(&house, JOB);
    work(&house);

    assert_eq!(both(&house, &["jobs"])[0]["state"], "completed");
    assert_eq!(both(&house, &["jobs", "--state", "failed"]), serde_json::json!([]));
    assert_eq!(both(&house, &["job", "show", &id])["stages"][1]["name"], "encode");
    for listing in ["tasks", "executions", "steps", "logs", "audit"] {
        let listed = both(&house, &["job", listing, &id]);
        assert!(listing == "logs" || !listed.as_array().unwrap().is_empty(), "{listing}");
    }
    assert_eq!(both(&house, &["job", "why", &id])["state"], "completed");
    both(&house, &["workers", "--all"]);
}

fn a_job_is_cancelled_retried_and_followed_over_http(engine: Engine) {
    let house = House::new(engine);
    let (waiting, bad) = (submit(&house, JOB), submit(&house, BAD));

    let said = there(&house, &["job", "cancel", &waiting]).succeeds();
    assert!(said.contains(&format!("job {waiting} is cancelled")), "{said}");
    work(&house);
    let followed = there(&house, &["watch", &bad]).ends_with(1);
    assert!(followed.contains("failed") && followed.contains("no such luck"), "{followed}");
    there(&house, &["job", "logs", &bad, "--follow"]).succeeds();
    let retried = there(&house, &["job", "retry", &bad, "--json"]).json();
    assert_eq!(retried["id"].to_string(), bad);

    let late = there(&house, &["job", "cancel", &waiting]).ends_with(1);
    assert!(late.contains("the job is cancelled, which is final"), "{late}");
}

fn all_jobs_are_watched_until_somebody_has_seen_enough(engine: Engine) {
    let house = House::new(engine);
    let id = submit(&house, JOB);
    let said = house.world.folder.path().join("watched");
    let mut watching = there(&house, &["watch", "--json"]);
    watching.command.stdout(std::fs::File::create(&said).unwrap()).stderr(Stdio::null());
    let mut watching = crate::support::Process(watching.command.spawn().unwrap());

    let has = |word: &str| std::fs::read_to_string(&said).unwrap().contains(word);
    until("the open job is shown", || has("\"pending\"") || has("\"planning\""));
    there(&house, &["job", "cancel", &id]).succeeds();
    until("its end is shown", || has("\"cancelled\""));

    watching.signal(libc::SIGINT);
    assert_eq!(watching.ends(), Some(130));
}
