//! Leases of workers that are known to be dead.

use crate::bounds::remote;
use crate::shop::{commit_of, heartbeat, hello, progress_of, simple, spec, wide};
use crate::world::{LEASE, World};
use rules::failure::MOST_SPARED;
use rules::job::State;
use rules::placement::Grant;
use rules::spec::Spec;
use rules::task::{Death, Refusal};
use rules::{JobId, WorkerId};
use serde_json::json;
use store::alert;
use uuid::Uuid;
use wire::{Answer, Assignment, Hello, Kind, Progress};

on_both_engines![
    a_death_uses_up_an_attempt_and_is_followed_by_a_backoff,
    a_death_raises_an_alert_and_leaves_a_diagnostic,
    work_of_a_process_that_a_person_ended_is_free,
    a_lease_that_ran_out_unnoticed_is_released_too,
    a_new_server_process_counts_only_the_worker_of_the_one_before_as_dead,
    a_worker_that_was_taken_for_dead_is_refused,
    a_worker_that_is_lost_after_durable_progress_uses_up_no_attempt,
    durable_progress_that_is_no_more_than_before_spares_nothing,
    work_that_is_interrupted_for_ever_comes_to_an_end,
    with_nothing_leased_there_is_nothing_to_release,
    a_task_that_kills_its_workers_fails_its_job_and_no_other,
    a_worker_that_comes_back_again_and_again_ends_the_task_that_kills_it,
    a_remote_worker_that_comes_back_leaves_what_it_lost_to_another,
    a_remote_worker_alone_gets_what_it_lost_again,
    tasks_use_their_last_attempt_one_at_a_time,
    a_last_attempt_that_no_worker_makes_does_not_hold_up_the_others,
];

fn hasty(name: &str, segments: u32) -> Spec {
    let stages = json!([{ "name": name, "kind": "noop", "segments": segments }]);
    spec(stages, json!({ "max_attempts": 3, "backoff_initial_ms": 1000, "backoff_max_ms": 1000 }))
}

async fn die(world: &World, worker: WorkerId) -> usize {
    world.store.lose_worker(worker, Death::Unexplained).await.unwrap()
}

/// Longer than any backoff of [`hasty`].
async fn wait(world: &World) {
    world.turn(2000);
    world.orchestrate().await;
}

async fn a_death_uses_up_an_attempt_and_is_followed_by_a_backoff(world: &World) {
    let dead = world.worker("noop").await;
    let job = world.submit(wide(3)).await;
    let held = world.store.claim(dead, 2).await.unwrap();
    world.progress(&held[0], 1).await;

    assert_eq!(world.store.lose_all_workers(Death::Unexplained).await.unwrap(), 2);
    world.orchestrate().await;

    assert_eq!(world.task_states(job).await, ["ERROR", "ERROR", "READY"]);
    let attempts: Vec<_> = world.tasks(job).await.iter().map(|task| task.attempts).collect();
    assert_eq!(attempts, [1, 1, 0]);
    assert_eq!(world.audited(held[0].proof.task).await, ["advance", "claim", "start", "lose_worker"]);
    world.turn(20_000);
    world.orchestrate().await;
    assert_eq!(world.task_states(job).await, ["READY", "READY", "READY"]);
}

async fn a_death_raises_an_alert_and_leaves_a_diagnostic(world: &World) {
    let wanted = [(alert::Kind::StaleJobRecovered, rules::Millis(0))].into();
    world.store.ask_for_alerts(&wanted).await.unwrap();
    let dead = world.worker("noop").await;
    let job = world.submit(simple()).await;
    let task = world.claim(dead).await;

    die(world, dead).await;

    let said = format!("worker {dead} died while working on it");
    let execution = world.latest(task.proof.task).await;
    assert_eq!((execution.failure.as_deref(), execution.error), (Some("worker_lost"), Some(said.clone())));
    let logs = world.store.logs_of_job(job, &Default::default()).await.unwrap();
    assert_eq!(logs[0].message, format!("execution {}: {said}", task.proof.execution()));
    let alerts = world.store.take_alerts(10).await.unwrap();
    let told: Vec<_> =
        alerts.iter().map(|alert| (&alert.payload["type"], &alert.payload["data"]["state"])).collect();
    assert_eq!(told, [(&json!("stale_job_recovered"), &json!("ERROR"))]);
}

async fn work_of_a_process_that_a_person_ended_is_free(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(simple()).await;

    for _ in 0..120 {
        let task = world.claim(worker).await;
        world.progress(&task, 1).await;
        assert_eq!(world.store.lose_all_workers(Death::ByPerson).await.unwrap(), 1);
        world.orchestrate().await;
    }

    assert_eq!(world.task_states(job).await, ["READY"]);
    assert_eq!(world.tasks(job).await[0].attempts, 0);
}

async fn a_lease_that_ran_out_unnoticed_is_released_too(world: &World) {
    let dead = world.worker("noop").await;
    let job = world.submit(simple()).await;
    world.claim(dead).await;
    world.turn(3_600_000);

    assert_eq!(die(world, dead).await, 1);

    assert_eq!(world.task_states(job).await, ["ERROR"]);
    assert_eq!(world.tasks(job).await[0].attempts, 1);
}

async fn a_new_server_process_counts_only_the_worker_of_the_one_before_as_dead(world: &World) {
    assert_eq!(world.store.lose_server_worker().await.unwrap(), 0, "there was no server");
    let begin = async |kind| {
        let hello = Hello { kind, ..hello("noop") };
        world.store.register_worker(&hello).await.unwrap();
        hello.worker
    };
    let (alone, first, second) =
        (begin(Kind::Local).await, begin(Kind::Server).await, begin(Kind::Server).await);
    let job = world.submit(wide(3)).await;
    for worker in [alone, first, second] {
        world.claim(worker).await;
    }

    assert_eq!(world.store.lose_server_worker().await.unwrap(), 1);

    assert_eq!(world.task_states(job).await, ["RUNNING", "RUNNING", "ERROR"]);
    assert_eq!(world.store.lose_server_worker().await.unwrap(), 0, "once for one death");
}

async fn a_worker_that_was_taken_for_dead_is_refused(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(simple()).await;
    let task = world.claim(worker).await;
    die(world, worker).await;

    assert_eq!(world.commit(&task).await, Answer::Refused(Refusal::NotRunning));
}

/// Says that the next execution can continue from so much.
async fn keep(world: &World, task: &Assignment, kept: i64) {
    let said = Progress { kept: Some(kept), ..progress_of(task.proof, kept) };
    assert_eq!(world.store.progress(&[said]).await.unwrap(), [Answer::Accepted]);
}

async fn a_worker_that_is_lost_after_durable_progress_uses_up_no_attempt(world: &World) {
    let job = world.submit(hasty("download", 1)).await;
    for round in 1..6 {
        let worker = world.worker("noop").await;
        let task = world.claim(worker).await;
        keep(world, &task, round).await;
        if round % 2 == 0 {
            assert_eq!(die(world, worker).await, 1);
        } else {
            world.turn(LEASE);
            assert_eq!(world.store.recover(10).await.unwrap().len(), 1);
        }
        let ended = world.latest(task.proof.task).await;
        assert_eq!(ended.failure.as_deref(), Some("interrupted"));
        assert_eq!(world.tasks(job).await[0].attempts, 0);
        wait(world).await;
    }
    let worker = world.worker("noop").await;
    let task = world.claim(worker).await;
    world.commit(&task).await;
    world.orchestrate().await;

    assert!(world.is(job, State::Completed).await);
}

async fn durable_progress_that_is_no_more_than_before_spares_nothing(world: &World) {
    let job = world.submit(hasty("download", 1)).await;
    for (kept, attempts) in [(5, 0), (5, 1), (4, 2), (0, 3)] {
        let worker = world.worker("noop").await;
        let task = world.claim(worker).await;
        keep(world, &task, kept).await;
        world.renew(&task, 100).await;
        die(world, worker).await;

        assert_eq!(world.tasks(job).await[0].attempts, attempts, "{kept}");
        wait(world).await;
    }

    assert!(world.is(job, State::Failed).await);
}

async fn work_that_is_interrupted_for_ever_comes_to_an_end(world: &World) {
    let job = world.submit(hasty("download", 1)).await;
    for round in 0..i64::from(MOST_SPARED) + 3 {
        let worker = world.worker("noop").await;
        let task = world.claim(worker).await;
        keep(world, &task, round + 1).await;
        die(world, worker).await;
        wait(world).await;
    }

    assert!(world.is(job, State::Failed).await);
}

async fn with_nothing_leased_there_is_nothing_to_release(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(simple()).await;
    let task = world.claim(worker).await;
    world.commit(&task).await;

    assert_eq!(world.store.lose_all_workers(Death::Unexplained).await.unwrap(), 0);
}

/// A worker of two slots dies whenever it has the first of the two tasks.
async fn a_task_that_kills_its_workers_fails_its_job_and_no_other(world: &World) {
    let poison = world.submit(hasty("poison", 1)).await;
    let innocent = world.submit(hasty("innocent", 2)).await;
    let mut dead = Vec::new();

    for _ in 0..100 {
        wait(world).await;
        let worker = world.worker("noop").await;
        let held = world.store.claim(worker, 2).await.unwrap();
        if held.is_empty() && world.open_jobs().await == 0 {
            break;
        }
        if held.iter().any(|task| task.job == poison) {
            assert_eq!(die(world, worker).await, held.len());
            dead.push(worker);
            continue;
        }
        for task in held {
            assert_eq!(world.say(commit_of(task.proof)).await, Answer::Accepted);
        }
    }

    assert!(world.is(innocent, State::Completed).await, "it only ran beside the other");
    let failed = world.store.job(poison).await.unwrap();
    assert_eq!((failed.state, dead.len()), (State::Failed, 3));
    let names: Vec<String> = dead.iter().map(|id| format!("worker-noop ({id})")).collect();
    let task = world.tasks(poison).await[0].id;
    let reason = format!(
        "stage poison, task {task}: poison: 3 workers died while working on it: {}",
        names.join(", ")
    );
    assert_eq!(failed.error.as_deref(), Some(reason.as_str()));
}

async fn a_worker_that_comes_back_again_and_again_ends_the_task_that_kills_it(world: &World) {
    let hello = hello("noop");
    world.store.register_worker(&hello).await.unwrap();
    let job = world.submit(hasty("poison", 1)).await;

    for _ in 0..3 {
        world.store.introduce_worker(&hello, Uuid::new_v4()).await.unwrap();
        wait(world).await;
        world.claim(hello.worker).await;
    }
    world.store.introduce_worker(&hello, Uuid::new_v4()).await.unwrap();
    wait(world).await;

    let failed = world.store.job(job).await.unwrap();
    assert_eq!(failed.state, State::Failed);
    let said = format!("its worker died 3 times while working on it: worker-noop ({})", hello.worker);
    assert!(failed.error.as_ref().is_some_and(|error| error.ends_with(&said)), "{:?}", failed.error);
}

/// A new process of the same worker; what it may claim then.
async fn comes_back(world: &World, worker: WorkerId) -> usize {
    let hello = Hello { worker, kind: wire::Kind::Remote, ..hello("noop") };
    world.store.introduce_worker(&hello, Uuid::new_v4()).await.unwrap();
    wait(world).await;
    world.store.claim(worker, 4).await.unwrap().len()
}

async fn a_remote_worker_that_comes_back_leaves_what_it_lost_to_another(world: &World) {
    let (restless, honest) =
        (remote(world, "noop", Grant::default()).await, remote(world, "noop", Grant::default()).await);
    let job = world.submit(hasty("wide", 3)).await;
    assert_eq!(comes_back(world, restless).await, 3);

    for _ in 0..5 {
        world.store.heartbeat(&heartbeat(honest)).await.unwrap();
        assert_eq!(comes_back(world, restless).await, 0);
    }

    let attempts: Vec<_> = world.tasks(job).await.iter().map(|task| task.attempts).collect();
    assert_eq!(attempts, [1, 1, 1]);
    world.work_off(honest).await;
    assert!(world.is(job, State::Completed).await);
}

async fn a_remote_worker_alone_gets_what_it_lost_again(world: &World) {
    let alone = remote(world, "noop", Grant::default()).await;
    let job = world.submit(hasty("poison", 1)).await;

    let claimed =
        [comes_back(world, alone).await, comes_back(world, alone).await, comes_back(world, alone).await];
    comes_back(world, alone).await;
    wait(world).await;

    assert_eq!(claimed, [1, 1, 1]);
    let failed = world.store.job(job).await.unwrap();
    assert_eq!(failed.state, State::Failed);
    assert!(failed.error.is_some_and(|error| error.contains("its worker died 3 times while working on it")));
}

/// Both tasks have lost two workers.
async fn two_suspects(world: &World, lanes: [&str; 2]) -> JobId {
    let stages = json!(lanes.map(|kind| json!({ "name": kind, "kind": kind })));
    let settings = json!({ "max_attempts": 3, "backoff_initial_ms": 1000, "backoff_max_ms": 1000 });
    let job = world.submit(spec(stages, settings)).await;
    for _ in 0..2 {
        let mut dead = vec![];
        for lane in lanes {
            let worker = world.worker(lane).await;
            world.claim(worker).await;
            dead.push(worker);
        }
        for worker in dead {
            die(world, worker).await;
        }
        world.turn(2000);
        if world.tasks(job).await.iter().all(|task| task.attempts < 2) {
            world.orchestrate().await;
        }
    }
    job
}

async fn tasks_use_their_last_attempt_one_at_a_time(world: &World) {
    let job = two_suspects(world, ["noop", "sleep"]).await;

    world.orchestrate().await;
    let mut states = world.task_states(job).await;
    let kind = if states[0] == "READY" { "noop" } else { "sleep" };
    states.sort();
    assert_eq!(states, ["ERROR", "READY"]);
    let worker = world.worker(kind).await;
    let first = world.claim(worker).await;
    world.orchestrate().await;
    assert!(world.task_states(job).await.contains(&"ERROR".to_owned()), "the other waits");
    let why = world.store.why(job).await.unwrap().reasons.join("\n");
    assert!(why.contains("until task"), "{why}");
    world.commit(&first).await;
    world.orchestrate().await;

    let mut states = world.task_states(job).await;
    states.sort();
    assert_eq!(states, ["DONE", "READY"]);
}

async fn a_last_attempt_that_no_worker_makes_does_not_hold_up_the_others(world: &World) {
    let job = two_suspects(world, ["noop", "sleep"]).await;
    world.orchestrate().await;

    world.turn(61_000);
    world.orchestrate().await;

    assert_eq!(world.task_states(job).await, ["READY", "READY"]);
}
