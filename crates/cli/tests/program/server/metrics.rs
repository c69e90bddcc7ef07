//! The metrics: who may read them, and what a real Prometheus makes of them, of the alerts and of the dashboard.

use super::prometheus::{Prometheus, deploy, promtool};
use crate::on_both_engines;
use crate::support::house::{House, good, problem};
use crate::support::seat::Seat;
use crate::support::{Engine, World, until};
use serde_json::Value;

on_both_engines![metrics_are_for_those_who_may_read_them, metrics_tell_what_waits_and_who_works];

const TOKEN: &str = "a token of twenty or more";
const LISTEN: (&str, &str) = ("VODMILL_METRICS_LISTEN", "127.0.0.1:0");

fn metrics_are_for_those_who_may_read_them(engine: Engine) {
    let mut house = House::with(engine, &[LISTEN]);
    let apart = |house: &House| format!("http://127.0.0.1:{}/metrics", metrics_port(&house.log()));

    problem(house.anyone("GET", "/metrics").send().unwrap(), 401, "unauthorized");
    problem(house.anyone("GET", "/metrics").bearer_auth(TOKEN).send().unwrap(), 401, "unauthorized");
    assert!(house.admin("GET", "/metrics").send().unwrap().status().is_success());
    assert!(house.client.get(apart(&house)).send().unwrap().status().is_success(), "whoever can reach it");
    let elsewhere = apart(&house).replace("/metrics", "/api/jobs");
    assert_eq!(house.client.get(elsewhere).send().unwrap().status(), 404, "and nothing else is there");

    house.kill();
    house.set("VODMILL_METRICS_TOKEN", TOKEN);
    house.start();

    assert!(house.anyone("GET", "/metrics").bearer_auth(TOKEN).send().unwrap().status().is_success());
    problem(house.anyone("GET", "/metrics").bearer_auth("wrong").send().unwrap(), 401, "unauthorized");
    assert_eq!(house.client.get(apart(&house)).send().unwrap().status(), 401);
    let known = house.client.get(apart(&house)).bearer_auth(TOKEN).send().unwrap();
    assert!(known.status().is_success());
}

fn metrics_tell_what_waits_and_who_works(engine: Engine) {
    let house = House::with(engine, &[]);
    let spec = serde_json::json!({ "name": "x", "priority": 7, "stage": [{ "name": "only", "sleep_ms": 1, "segments": 3 }] });
    house.post("/api/jobs", spec);
    let worker = house.worker("w", &["sleep"]);
    good(worker.declare(1));
    let task = worker.claim_one();
    worker.heartbeat(1);

    // The census is of a few seconds ago, and shared by all who ask.
    until("the metrics tell of it", || {
        let text = house.admin("GET", "/metrics").send().unwrap().text().unwrap();
        [
            "vodmill_tasks{state=\"READY\",priority=\"7\"} 2\n",
            "vodmill_tasks{state=\"RUNNING\",priority=\"7\"} 1\n",
            "vodmill_tasks{state=\"READY\",priority=\"5\"} 0\n",
            "vodmill_jobs_in_progress 1\n",
            "vodmill_workers{status=\"busy\"} 1\n",
            &format!("vodmill_worker_load{{worker_id=\"{}\",name=\"w\"}} 1\n", worker.id),
            "vodmill_jobs_created_total 1\n",
            "vodmill_task_wait_seconds_count{priority=\"7\"} 1\n",
            "vodmill_executions_ended_total{outcome=\"transient\"} 0\n",
            "vodmill_database_up 1\n",
        ]
        .iter()
        .all(|line| text.contains(line))
    });

    worker.fail(&task, "transient", "for the sake of the figures");
    let text = house.admin("GET", "/metrics").send().unwrap().text().unwrap();
    assert!(text.contains("vodmill_executions_ended_total{outcome=\"transient\"} 1\n"), "{text}");
    assert!(text.contains("route=\"/api/worker/claim\",status=\"200\""), "{text}");
    promtool(&["check", "metrics"], &text);
}

#[test]
fn without_its_database_a_server_tells_that_and_nothing_stale() {
    let house = House::of(World::with_server(), Seat::take(1), &[LISTEN]);
    let address = format!("http://127.0.0.1:{}/metrics", metrics_port(&house.log()));
    let told = || house.client.get(&address).send().unwrap().text().unwrap();
    assert!(told().contains("\nvodmill_database_up 1\n"));
    let database = house.world.server.as_ref().unwrap();

    database.stop("immediate");

    until("it says that the database is away", || told().contains("\nvodmill_database_up 0\n"));
    let away = told();
    assert!(!away.contains("vodmill_tasks") && away.contains("vodmill_jobs_created_total"), "{away}");
    promtool(&["check", "metrics"], &away);
    let health = || house.anyone("GET", "/health").send().unwrap();
    assert_eq!(health().status(), 503);
    let unhealthy: serde_json::Value = health().json().unwrap();
    assert_eq!((&unhealthy["status"], &unhealthy["database"]), (&"unhealthy".into(), &"away".into()));
    database.start_again();
    until("it says that the database is back", || told().contains("\nvodmill_database_up 1\n"));
    until("it is healthy", || health().status() == 200);
}

/// After one real video everything that dashboard and alerts ask for is there.
#[test]
fn prometheus_answers_every_query_of_the_dashboard_and_of_the_alerts() {
    let redis = std::env::var("VODMILL_TEST_REDIS_URL").expect("run `make test`, or scripts/with-services");
    let prefix = format!("metrics-{}:", rand::random::<u32>());
    let settings = [
        ("VODMILL_SERVER_SLOTS", "1"),
        ("VODMILL_JOB_QUEUE_MODE", "hybrid"),
        ("VODMILL_REDIS_URL", redis.as_str()),
        ("VODMILL_REDIS_PREFIX", prefix.as_str()),
        LISTEN,
    ];
    let house = House::seated(Seat::take(3), Engine::Postgres, &settings);
    let worker = house.remote_worker("far", &[LISTEN]);
    let ports = [("vodmill", metrics_port(&house.log())), ("vodmill-worker", metrics_port(&worker.log))];
    let prometheus = Prometheus::scraping(&ports);
    until("it has read both", || prometheus.query("up == 1").len() == 2);

    let video = house.upload(&house.sample("a.mp4", 4), "title=a");
    house.video_is(video["id"].as_i64().unwrap(), "ready");
    // A rate needs two looks at what has just begun to be counted.
    for query in queries_of_the_dashboard() {
        until(&format!("the dashboard gets an answer to {query}"), || !prometheus.query(&query).is_empty());
    }
    let alerts = prometheus.alerts();
    assert!(alerts.len() > 10, "{alerts:?}");
    for alert in alerts {
        assert_eq!(alert["health"], "ok", "{alert}");
        let measured = compared(alert["query"].as_str().unwrap());
        until(&format!("{} could fire: {measured}", alert["name"]), || {
            !prometheus.query(&measured).is_empty()
        });
    }
    assert!(!prometheus.query(&query_of_the_autoscaler()).is_empty());
    for job in ports {
        let text = house.client.get(format!("http://127.0.0.1:{}/metrics", job.1)).send().unwrap();
        promtool(&["check", "metrics"], &text.text().unwrap());
    }
}

#[test]
fn alerts_fire_when_they_should_and_each_is_explained() {
    let (rules, tests) = (deploy("prometheus/alerts.yml"), deploy("prometheus/alerts_test.yml"));

    promtool(&["check", "rules", rules.to_str().unwrap()], "");
    promtool(&["test", "rules", tests.to_str().unwrap()], "");

    let page = std::fs::read_to_string(deploy("../docs/operations.md")).unwrap();
    let text = std::fs::read_to_string(rules).unwrap();
    for alert in text.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let address = format!("runbook_url: \"docs/operations.md#{}\"", alert.to_lowercase());
        assert!(text.contains(&address), "{alert} does not say where it is explained");
        assert!(page.contains(&format!("\n### {alert}\n")), "{alert} is not explained in docs/operations.md");
        let tested = std::fs::read_to_string(&tests).unwrap().contains(&format!("\"{alert}\""));
        assert!(tested, "{alert} has no test in {}", tests.display());
    }
}

/// What is compared, instead of whether it is too much: data, or there is nothing to compare.
fn compared(query: &str) -> String {
    [">", "<", "=="]
        .iter()
        .fold(query.to_owned(), |query, sign| query.replace(&format!(" {sign} "), &format!(" {sign} bool ")))
}

fn queries_of_the_dashboard() -> Vec<String> {
    let text = std::fs::read_to_string(deploy("grafana/vodmill.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries: Vec<String> =
        targets.map(|target| target["expr"].as_str().unwrap().replace("$__rate_interval", "10m")).collect();
    assert!(queries.len() > 30, "{}", queries.len());
    queries
}

fn query_of_the_autoscaler() -> String {
    let text = std::fs::read_to_string(deploy("kubernetes/keda.yaml")).unwrap();
    text.lines().find_map(|line| line.trim().strip_prefix("query: ")).unwrap().to_owned()
}

/// Where the metrics of the process with this log are.
fn metrics_port(log: &std::path::Path) -> u16 {
    let said = || std::fs::read_to_string(log).unwrap_or_default();
    let find = || {
        let said = said();
        let address = said.rsplit_once("metrics on http://127.0.0.1:")?.1;
        address.split_once("/metrics")?.0.parse().ok()
    };
    until("it says where its metrics are", || find().is_some());
    find().unwrap()
}
