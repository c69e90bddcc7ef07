//! Leases that ran out.

use crate::shop::{commit_of, heartbeat, simple, wide};
use crate::world::{HEARTBEAT, LEASE, OFFLINE, World};
use rules::Millis;
use rules::job::State;
use rules::task::Name;
use store::detail::LogView;
use store::{Clock, Options, Store};
use wire::Answer;

on_both_engines![
    a_lease_expires_by_the_databases_clock,
    only_the_lost_task_is_done_again,
    a_recovery_leaves_a_diagnostic,
    recovering_twice_at_once_recovers_once,
    recovery_never_overwrites_a_completion,
    a_silent_worker_loses_nothing_before_its_lease_expires,
    a_hung_task_is_taken_from_a_lively_worker,
    tasks_of_a_worker_whose_row_is_gone_are_recovered,
    tasks_of_a_kind_nobody_knows_are_recovered_and_kept,
    recovery_takes_a_limited_number,
];

on_postgres_alone![for_one_lease_after_the_servers_start_nothing_is_taken_back];

async fn a_lease_expires_by_the_databases_clock(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(simple()).await;
    world.claim(worker).await;

    world.turn(LEASE - 1);
    assert!(world.store.recover(10).await.unwrap().is_empty());
    assert_eq!(world.task_states(job).await, ["RUNNING"]);

    world.turn(1);
    let recovered = world.store.recover(10).await.unwrap();
    assert_eq!(recovered.iter().map(|one| one.now).collect::<Vec<_>>(), [Name::Ready]);
    assert_eq!(recovered[0].worker, worker.to_string());
    assert_eq!(world.task_states(job).await, ["READY"]);
}

async fn only_the_lost_task_is_done_again(world: &World) {
    let (dies, lives) = (world.worker("noop").await, world.worker("noop").await);
    let job = world.submit(wide(4)).await;
    let lost = world.claim(dies).await;
    let kept = world.store.claim(lives, 3).await.unwrap();
    world.turn(LEASE - 1);
    for task in &kept {
        world.renew(task, 1).await;
    }
    world.turn(1);

    world.orchestrate().await;

    assert_eq!(world.task_states(job).await, ["READY", "RUNNING", "RUNNING", "RUNNING"]);
    assert_eq!(world.statuses(lost.proof.task).await, ["ABORTED"]);
    let again = world.claim(lives).await;
    assert_eq!((again.proof.task, again.attempt), (lost.proof.task, 2));
}

async fn a_recovery_leaves_a_diagnostic(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(simple()).await;
    let task = world.claim(worker).await;
    world.turn(LEASE + 1500);

    world.orchestrate().await;

    let told = format!(
        "execution {} of worker {worker} was given up: its lease had expired 1500 ms ago",
        task.proof.execution()
    );
    let logs = world.store.logs_of_job(job, &Default::default()).await.unwrap();
    let line = |log: &LogView| (log.level.clone(), log.stage.clone().unwrap(), log.message.clone());
    let logs: Vec<_> = logs.iter().map(line).collect();
    assert_eq!(logs, [("warn".into(), "work".into(), told.clone())]);
    let execution = world.latest(task.proof.task).await;
    assert_eq!((execution.failure.as_deref(), execution.error), (Some("lease_expired"), Some(told)));
}

async fn recovering_twice_at_once_recovers_once(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(wide(50)).await;
    world.store.claim(worker, 50).await.unwrap();
    world.turn(LEASE);
    let another = world.elsewhere().await;

    let (here, there) = tokio::join!(world.store.recover(100), another.recover(100));

    world.orchestrate().await;
    assert!(here.unwrap().len() + there.unwrap().len() <= 50);
    assert_eq!(
        world.count("SELECT CAST(sum(tasks) AS BIGINT) FROM audit WHERE command = 'recover'").await,
        50
    );
}

async fn recovery_never_overwrites_a_completion(world: &World) {
    let worker = world.worker("noop").await;
    let another = world.elsewhere().await;
    for _ in 0..20 {
        let job = world.submit(wide(4)).await;
        let tasks = world.store.claim(worker, 4).await.unwrap();
        world.turn(LEASE);
        // The worker was only slow: it renews and commits in the very moment it is given up.
        let worker = async {
            let mut answers = Vec::new();
            for task in &tasks {
                world.renew(task, 1).await;
                answers.push(world.say(commit_of(task.proof)).await);
            }
            answers
        };
        let (answers, recovered) = tokio::join!(worker, another.recover(100));

        let recovered = recovered.unwrap();
        for (task, answer) in tasks.iter().zip(answers) {
            let was_recovered = recovered.iter().any(|one| one.task == task.proof.task);
            assert_eq!(was_recovered, answer != Answer::Accepted, "{answer:?}");
        }
        // A job of which everything was committed in time is completed, and nothing is left to cancel.
        let is_cancelled = world.store.cancel(job, None).await.is_ok();
        assert_eq!(is_cancelled, !recovered.is_empty());
        world.orchestrate().await;
    }
}

async fn a_silent_worker_loses_nothing_before_its_lease_expires(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(simple()).await;
    let task = world.claim(worker).await;
    for n in 0..OFFLINE / (LEASE / 2) {
        world.turn(LEASE / 2);
        world.renew(&task, n).await;
    }

    let offline = world.store.mark_offline(10).await.unwrap();

    assert_eq!(offline, [worker]);
    world.orchestrate().await;
    assert_eq!(world.task_states(job).await, ["RUNNING"]);
    assert_eq!(world.commit(&task).await, Answer::Accepted);
}

async fn a_hung_task_is_taken_from_a_lively_worker(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(simple()).await;
    world.claim(worker).await;
    for _ in 0..LEASE / HEARTBEAT {
        world.turn(HEARTBEAT);
        world.store.heartbeat(&wire::Heartbeat { running: 1, ..heartbeat(worker) }).await.unwrap();
    }

    world.orchestrate().await;

    assert_eq!(world.task_states(job).await, ["READY"], "heartbeats renew nothing");
    assert!(world.store.mark_offline(10).await.unwrap().is_empty());
}

async fn tasks_of_a_worker_whose_row_is_gone_are_recovered(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(wide(2)).await;
    let tasks = world.store.claim(worker, 2).await.unwrap();
    world.execute("DELETE FROM worker").await.unwrap();

    assert_eq!(world.commit(&tasks[0]).await, Answer::Accepted, "its lease is its right, not its row");
    world.turn(LEASE);
    world.orchestrate().await;

    assert_eq!(world.task_states(job).await, ["DONE", "READY"]);
    let heir = world.worker("noop").await;
    world.work_off(heir).await;
    assert!(world.is(job, State::Completed).await);
}

async fn tasks_of_a_kind_nobody_knows_are_recovered_and_kept(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(simple()).await;
    world.claim(worker).await;
    world.execute("DELETE FROM worker").await.unwrap();
    world.worker("sleep").await;
    world.turn(LEASE);

    world.orchestrate().await;

    assert_eq!(world.task_states(job).await, ["READY"]);
}

async fn recovery_takes_a_limited_number(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(wide(5)).await;
    world.store.claim(worker, 5).await.unwrap();
    world.turn(LEASE);

    assert_eq!(world.store.recover(3).await.unwrap().len(), 3);
    assert_eq!(world.store.recover(3).await.unwrap().len(), 2);
}

async fn for_one_lease_after_the_servers_start_nothing_is_taken_back(world: &World) {
    let with_lease = async |lease| {
        let options = Options { lease: Millis(lease), clock: Clock::Database, ..world.options() };
        Store::open(&world.database.location, options).await.unwrap()
    };
    let (short, long) = (with_lease(0).await, with_lease(100 * 365 * 86_400_000).await);
    let worker = world.worker("noop").await;
    world.submit(simple()).await;
    assert_eq!(short.claim(worker, 1).await.unwrap().len(), 1);

    assert!(long.recover(10).await.unwrap().is_empty(), "nobody could renew while it was away");

    assert_eq!(short.recover(10).await.unwrap().len(), 1);
}
