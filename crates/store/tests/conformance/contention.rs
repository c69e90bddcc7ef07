//! Many at once: nobody ever sees a lock, a deadlock or a busy database.

use crate::shop::{commit_of, failure_of, new_job, orchestrate, planned, progress_of, spec, wide};
use crate::world::{LEASE, World};
use rules::failure::Kind;
use rules::{JobId, WorkerId};
use serde_json::json;
use std::time::{Duration, Instant};
use store::{Error, Store};
use wire::{Answer, Commit, Renewal};

on_both_engines![
    two_processes_of_eight_workers_each_never_see_a_busy_database,
    everything_at_once_on_the_same_jobs_leaves_nothing_broken,
    words_in_any_order_of_tasks_never_deadlock,
    a_caller_that_goes_away_while_it_begins_leaves_its_connection_clean,
];

/// As a server's callers do that hang up, at any moment.
async fn a_caller_that_goes_away_while_it_begins_leaves_its_connection_clean(world: &World) {
    let options = store::Options { connections: 1, ..world.options() };
    let store = Store::open(&world.database.location, options).await.unwrap();
    let worker = world.worker("noop").await;

    for micros in 0..200 {
        let patience = Duration::from_micros(5 * micros);
        let _gone = tokio::time::timeout(patience, store.has_work(worker)).await;
        let _gone = tokio::time::timeout(patience, store.job(JobId(1))).await;

        store.submit(&new_job(wide(1))).await.unwrap();
    }

    assert_eq!(world.open_jobs().await, 200);
}

/// Claims and commits until nothing is left, one word at a time.
async fn work(store: Store, worker: WorkerId) -> usize {
    let mut done = 0;
    loop {
        let tasks = store.claim(worker, 2).await.unwrap();
        if tasks.is_empty() {
            return done;
        }
        for task in tasks {
            store.renew(&[Renewal { proof: task.proof, progress: 1 }]).await.unwrap();
            store.progress(&[progress_of(task.proof, 2)]).await.unwrap();
            let answers = store.commit(&[commit_of(task.proof)]).await.unwrap();
            done += usize::from(answers == [Answer::Accepted]);
        }
    }
}

async fn two_processes_of_eight_workers_each_never_see_a_busy_database(world: &World) {
    let processes = [world.store.clone(), world.elsewhere().await];
    let job = world.submit(wide(160)).await;
    let mut running = Vec::new();
    for store in &processes {
        for _ in 0..8 {
            running.push(tokio::spawn(work(store.clone(), world.worker("noop").await)));
        }
    }
    let watching = tokio::spawn({
        let store = processes[1].clone();
        async move {
            while store.job(job).await.unwrap().ended_at.is_none() {
                orchestrate(&store).await.unwrap();
                store.why(job).await.unwrap();
            }
        }
    });

    let mut done = 0;
    for worker in running {
        done += worker.await.unwrap();
    }
    watching.await.unwrap();

    assert_eq!(done, 160);
    assert_eq!(world.store.job(job).await.unwrap().done, 160);
}

/// A refusal is an answer; anything else would have been seen by a person.
fn only_refused<T>(result: Result<T, Error>) {
    match result {
        Ok(_) | Err(Error::Refused(_) | Error::VersionMismatch { .. } | Error::NotFound(_)) => {}
        Err(error) => panic!("{error:?}"),
    }
}

async fn claims_and_words(store: Store, worker: WorkerId, until: Instant) {
    while Instant::now() < until {
        let tasks = store.claim(worker, rand::random_range(1..6)).await.unwrap();
        let segments = Some(json!({ "segments": [1, 2, 3, 4] }));
        let (mut commits, mut failures) = (Vec::new(), Vec::new());
        for task in tasks {
            match rand::random_range(0..10) {
                0 => {}
                1 => failures.push(failure_of(task.proof, Kind::Transient, "bad luck")),
                2 => failures.push(failure_of(task.proof, Kind::Permanent, "bad input")),
                3 => failures.push(failure_of(task.proof, Kind::Drained, "shutting down")),
                _ => commits.push(Commit { result: segments.clone(), ..commit_of(task.proof) }),
            }
        }
        // Not in the order of their ids: that is for the store to see to.
        commits.reverse();
        store.commit(&commits).await.unwrap();
        store.fail(&failures).await.unwrap();
    }
}

async fn cancels_and_retries(store: Store, jobs: Vec<JobId>, until: Instant) {
    while Instant::now() < until {
        let job = jobs[rand::random_range(0..jobs.len())];
        match rand::random_range(0..6) {
            0 => only_refused(store.cancel(job, None).await),
            1 | 2 => only_refused(store.retry_job(job, None).await),
            3 => only_refused(store.why(job).await),
            _ => tokio::task::yield_now().await,
        }
        store.examine().await.unwrap();
    }
}

async fn orchestrates(store: Store, until: Instant) {
    while Instant::now() < until {
        orchestrate(&store).await.unwrap();
    }
}

async fn everything_at_once_on_the_same_jobs_leaves_nothing_broken(world: &World) {
    let stores = [world.store.clone(), world.elsewhere().await];
    let mut jobs = Vec::new();
    for n in 0..12 {
        let mut spec = if n % 2 == 0 { planned() } else { with_optional() };
        (spec.backoff_initial_ms, spec.backoff_max_ms, spec.max_attempts) = (0, 0, 2);
        jobs.push(world.submit(spec).await);
    }
    let until = Instant::now() + Duration::from_secs(4);
    let mut running = Vec::new();
    for n in 0..4 {
        let worker = world.worker("noop").await;
        running.push(tokio::spawn(claims_and_words(stores[n % 2].clone(), worker, until)));
    }
    for store in &stores {
        running.push(tokio::spawn(orchestrates(store.clone(), until)));
        running.push(tokio::spawn(cancels_and_retries(store.clone(), jobs.clone(), until)));
    }
    while Instant::now() < until {
        // Leases of forgotten tasks run out meanwhile.
        world.turn(LEASE / 20);
        let extra = spec(json!([{ "name": "work", "kind": "noop", "segments": 3 }]), json!({}));
        world.store.submit(&new_job(extra)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    for one in running {
        one.await.unwrap();
    }

    // In the end everything ends.
    let worker = world.worker("noop").await;
    for _ in 0..100 {
        if world.open_jobs().await == 0 {
            break;
        }
        world.turn(LEASE);
        orchestrate(&world.store).await.unwrap();
        let tasks = world.store.claim(worker, 1000).await.unwrap();
        let segments = Some(json!({ "segments": [] }));
        let commits: Vec<_> =
            tasks.iter().map(|task| Commit { result: segments.clone(), ..commit_of(task.proof) }).collect();
        world.store.commit(&commits).await.unwrap();
    }
    assert_eq!(world.open_jobs().await, 0);
}

fn with_optional() -> rules::spec::Spec {
    let stages = json!([
        { "name": "captions", "kind": "noop", "optional": true, "segments": 3 },
        { "name": "encode", "kind": "noop", "segments": 3 },
        { "name": "package", "kind": "noop", "needs": ["captions", "encode"] },
    ]);
    spec(stages, json!({}))
}

async fn words_in_any_order_of_tasks_never_deadlock(world: &World) {
    let worker = world.worker("noop").await;
    let stores = [world.store.clone(), world.elsewhere().await];
    let mut slow = 0;
    for _ in 0..10 {
        world.submit(wide(20)).await;
        let tasks = world.store.claim(worker, 20).await.unwrap();
        let forwards: Vec<_> = tasks.iter().map(|task| progress_of(task.proof, 1)).collect();
        let backwards: Vec<_> = tasks.iter().rev().map(|task| commit_of(task.proof)).collect();

        let begun = Instant::now();
        let (progress, commits) = tokio::join!(stores[0].progress(&forwards), stores[1].commit(&backwards));

        progress.unwrap();
        assert_eq!(commits.unwrap(), [Answer::Accepted; 20]);
        slow += usize::from(begun.elapsed() > Duration::from_secs(1));
    }
    // PostgreSQL looks for a deadlock only after a second; a slow machine is rarely that slow.
    assert!(slow <= 3, "{slow} of 10 took as long as a deadlock");
    world.orchestrate().await;
}
