//! The benchmark itself: that every measure runs and says its name. No figure is judged here.

use serde_json::Value;
use std::process::Command;

const KEYS: &[&str] = &[
    "submit_1",
    "submit_jobs_100",
    "submit_tasks_1000",
    "claim_1",
    "commit_1",
    "claim_100",
    "commit_100",
    "claim_1000",
    "commit_1000",
    "drain",
    "drain_jobs",
    "drain_singly",
    "wake_p50",
    "wake_p99",
    "fan_in_p50",
    "fan_in_p99",
    "recovery_total",
    "recovery_each",
    "claim_behind_300",
    "claim_after_history",
];

#[test]
fn every_measure_of_the_queue_runs_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let user_data = folder.path().join("vodmill.db");
    std::fs::write(&user_data, "not to be opened").unwrap();

    let output = Command::new(env!("CARGO_BIN_EXE_vodmill"))
        .args(["bench", "queue", "--tiny", "--json", "--database-url"])
        .arg(format!("sqlite:{}", user_data.display()))
        .current_dir(&folder)
        .output()
        .unwrap();

    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["engine"], "sqlite");
    let figures = answer["figures"].as_object().unwrap();
    let missing: Vec<_> = KEYS.iter().filter(|key| !figures.contains_key(**key)).collect();
    assert!(missing.is_empty() && figures.len() == KEYS.len(), "missing: {missing:?}; said: {figures:?}");
    assert!(figures.values().all(|figure| figure["value"].as_f64().is_some_and(|value| value > 0.0)));
    assert_eq!(std::fs::read_to_string(&user_data).unwrap(), "not to be opened");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn every_way_to_tell_of_work_is_measured() {
    let service = |name: &str| std::env::var(name).expect("servers to test with: scripts/with-services");
    let spare = crate::redis::room::Redis::start();
    let output = Command::new(env!("CARGO_BIN_EXE_vodmill"))
        .args(["bench", "wake", "--samples", "3", "--workers", "4", "--processes", "2", "--jobs", "20"])
        .args(["--singles", "3", "--json", "--spare-redis-url", &spare.run("url", &[])])
        .env("VODMILL_DATABASE_URL", service("VODMILL_TEST_POSTGRES_URL"))
        .env("VODMILL_REDIS_URL", service("VODMILL_TEST_REDIS_URL"))
        .output()
        .unwrap();

    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let figures = answer["figures"].as_object().unwrap();
    for key in [
        "wake_poll_p50",
        "wake_notify_p99",
        "wake_redis_p50",
        "struck_redis_stopped_p50",
        "struck_redis_cut_off_p99",
        "struck_hybrid_slow_p99",
        "struck_redis_full_p50",
        "struck_hybrid_full_p99",
        "backlog_redis",
        "fleet_notify_p50",
        "looks_redis",
    ] {
        assert!(figures[key]["value"].as_f64().is_some_and(|value| value > 0.0), "{key}: {figures:?}");
    }
    assert_eq!(spare.ask(&["CONFIG", "GET", "maxmemory"]), "maxmemory\n0", "left as it was found");
}
