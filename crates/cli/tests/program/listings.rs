//! What people and scripts are shown.

use crate::support::{Engine, World};

crate::on_both_engines![
    every_listing_speaks_json,
    why_explains_what_a_job_waits_for,
    watching_ends_with_the_job
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

fn every_listing_speaks_json(engine: Engine) {
    let world = World::new(engine);
    let id = world.submit(JOB).to_string();
    world.vodmill(&["worker", "--exit-when-idle"]).succeeds();

    for args in [
        vec!["jobs"],
        vec!["job", "show", &id],
        vec!["job", "why", &id],
        vec!["job", "tasks", &id],
        vec!["job", "executions", &id],
        vec!["job", "steps", &id],
        vec!["job", "logs", &id],
        vec!["job", "audit", &id],
        vec!["workers", "--all"],
        vec!["videos"],
        vec!["doctor"],
    ] {
        assert!(!world.vodmill(&args).succeeds().is_empty(), "{args:?}");
        let json = world.vodmill(&args).arg("--json").json();
        assert!(json.is_array() || json.is_object(), "{args:?}");
    }
    let steps = world.vodmill(&["job", "steps", &id, "--json"]).json();
    let steps = steps.as_array().unwrap();
    assert_eq!(steps.len(), 5, "a plan, and two segments that fail once each");
    assert!(
        steps.iter().any(|step| step["exit_code"] == 1 && step["stderr_tail"].as_str() == Some("working\n"))
    );
    let executions = world.vodmill(&["job", "executions", &id, "--json"]).json();
    assert!(executions.as_array().unwrap().iter().all(|execution| execution["wall_ms"].as_i64().is_some()));
}

fn why_explains_what_a_job_waits_for(engine: Engine) {
    let world = World::new(engine);
    let waiting = world.submit(JOB).to_string();
    let unable =
        world.submit("name = 'x'\n[[stage]]\nname = 'a'\nkind = 'noop'\nrequires = ['gpu']").to_string();

    let why = world.vodmill(&["job", "why", &waiting]).succeeds();
    assert!(why.contains("no worker is running: start one with `vodmill worker`"), "{why}");
    assert!(
        why.contains("Stage encode waits for plan (1 of 1 left), whose plan says what it has to do"),
        "{why}"
    );

    let mut worker = world.vodmill(&["worker"]).start();
    crate::support::until("the first is done", || world.job_state(waiting.parse().unwrap()) == "completed");
    let why = world.vodmill(&["job", "why", &unable]).succeeds();
    assert!(why.contains("none of the workers can do it: it asks for `gpu,noop`"), "{why}");
    worker.signal(libc::SIGTERM);
    assert_eq!(worker.ends(), Some(0));
}

fn watching_ends_with_the_job(engine: Engine) {
    let world = World::new(engine);
    let good = world.submit("name = 'good'\n[[stage]]\nname = 'a'\nkind = 'noop'").to_string();
    let bad = world
        .submit("name = 'bad'\n[[stage]]\nname = 'a'\nrun = ['sh', '-c', 'echo no such luck >&2; exit 65']");
    world.vodmill(&["worker", "--exit-when-idle"]).succeeds();

    assert!(world.vodmill(&["watch", &good]).ends_with(0).contains("completed"));
    let said = world.vodmill(&["watch", &bad.to_string()]).ends_with(1);

    assert!(said.contains("failed") && said.contains("no such luck"), "{said}");
}

#[test]
fn help_and_completions_are_there_for_every_command() {
    let world = World::bare(Engine::Sqlite);
    let help = world.vodmill(&["--help"]).succeeds();
    for command in [
        "migrate",
        "submit",
        "worker",
        "orchestrate",
        "watch",
        "jobs",
        "job",
        "videos",
        "video",
        "workers",
        "doctor",
        "bench",
    ] {
        assert!(help.contains(&format!("  {command}")), "{command} is missing from --help");
        assert!(world.vodmill(&[command, "--help"]).succeeds().contains("Usage:"));
    }
    assert!(!help.contains("guard"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(world.vodmill(&["completions", shell]).succeeds().contains("vodmill"));
    }
}
