//! Who gets which task, and when.

use crate::shop::{hello, new_job, simple, spec, wide};
use crate::world::{LEASE, World};
use pipeline::StageKind;
use rules::placement::Grant;
use rules::worker::{Command, Refusal};
use rules::{JobId, TaskId, WorkerId};
use serde_json::json;
use std::collections::{BTreeSet, HashSet};
use store::batch::Batched;
use store::{Error, Store, claim};
use uuid::Uuid;
use wire::{Assignment, Desk, Hello, Kind};

on_both_engines![
    the_most_urgent_is_claimed_first_and_then_the_oldest,
    the_oldest_is_the_one_that_became_ready_first,
    a_claim_takes_a_batch_and_no_more_than_there_is,
    a_claim_is_limited,
    an_assignment_says_all_that_is_needed,
    each_claim_has_a_token_and_a_fence_of_its_own,
    eight_claimers_never_get_the_same_task,
    eight_claimers_of_many_lanes_never_miss_what_is_there,
    a_worker_gets_only_what_it_can_do,
    lanes_are_merged_by_urgency_and_age,
    a_worker_elsewhere_is_never_given_what_only_a_server_runs,
    a_draining_or_disabled_worker_gets_nothing,
    a_worker_that_nobody_knows_gets_nothing,
    looking_for_work_finds_what_a_claim_would_get,
    gathered_claims_are_shared_out,
];

fn with_priority(priority: i64) -> rules::spec::Spec {
    spec(json!([{ "name": "work", "kind": "noop" }]), json!({ "priority": priority }))
}

fn jobs(claimed: &[Assignment]) -> Vec<JobId> {
    claimed.iter().map(|assignment| assignment.job).collect()
}

async fn the_most_urgent_is_claimed_first_and_then_the_oldest(world: &World) {
    let worker = world.worker("noop").await;
    let mut submitted = Vec::new();
    for priority in [5, 0, 10, 5, 10] {
        submitted.push(world.submit(with_priority(priority)).await);
        world.turn(1);
    }

    let claimed = world.store.claim(worker, 10).await.unwrap();

    assert_eq!(jobs(&claimed), [2, 4, 0, 3, 1].map(|at: usize| submitted[at]));
}

async fn the_oldest_is_the_one_that_became_ready_first(world: &World) {
    let worker = world.worker("noop").await;
    let lost = world.submit(simple()).await;
    let lease = world.claim(worker).await;
    let waiting = world.submit(simple()).await;
    world.turn(LEASE);
    world.store.recover(10).await.unwrap();

    let claimed = world.store.claim(worker, 10).await.unwrap();

    assert_eq!(lease.job, lost);
    assert_eq!(jobs(&claimed), [waiting, lost]);
}

async fn a_claim_takes_a_batch_and_no_more_than_there_is(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(wide(5)).await;

    let three = world.store.claim(worker, 3).await.unwrap();
    let rest = world.store.claim(worker, 3).await.unwrap();
    let none = world.store.claim(worker, 3).await.unwrap();

    let segments = |claimed: &[Assignment]| claimed.iter().map(|one| one.segment).collect::<Vec<_>>();
    assert_eq!((segments(&three), segments(&rest), none.len()), (vec![0, 1, 2], vec![3, 4], 0));
}

async fn a_claim_is_limited(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(wide(claim::MAX_BATCH + 1)).await;

    let none = world.store.claim(worker, 0).await.unwrap();
    let most = world.store.claim(worker, u32::MAX).await.unwrap();

    assert_eq!((none.len(), most.len()), (0, claim::MAX_BATCH as usize));
}

async fn an_assignment_says_all_that_is_needed(world: &World) {
    let worker = world.worker("encode").await;
    let stage = json!({
        "name": "work", "kind": "encode", "with": { "codec": "av1" }, "timeout_ms": 9000, "stall_ms": 400,
    });
    let job = world.submit(spec(json!([stage]), json!({ "max_attempts": 7 }))).await;

    let claimed = world.claim(worker).await;

    assert_eq!(claimed.proof.task, TaskId::new(job, 0));
    assert_eq!((claimed.job, claimed.stage.as_str(), claimed.kind.as_str()), (job, "work", "encode"));
    assert_eq!(claimed.payload, json!({ "codec": "av1" }));
    assert_eq!((claimed.segment, claimed.input), (0, None));
    assert_eq!((claimed.attempt, claimed.max_attempts), (1, 7));
    assert_eq!((claimed.lease_ms, claimed.timeout_ms, claimed.stall_ms), (LEASE, Some(9000), Some(400)));
}

async fn each_claim_has_a_token_and_a_fence_of_its_own(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(simple()).await;
    let first = world.claim(worker).await.proof;
    world.turn(LEASE);
    world.store.recover(10).await.unwrap();

    let second = world.claim(worker).await.proof;

    assert_eq!((first.task, first.fence.0 + 1), (second.task, second.fence.0));
    assert_ne!(first.token, second.token);
}

/// Claims in small batches until it has found nothing three times; what it got.
async fn claim_all(store: Store, worker: WorkerId) -> Vec<TaskId> {
    let mut got = Vec::new();
    let mut misses = 0;
    while misses < 3 {
        let claimed = store.claim(worker, 7).await.unwrap();
        misses = if claimed.is_empty() { misses + 1 } else { 0 };
        got.extend(claimed.into_iter().map(|assignment| assignment.proof.task));
    }
    got
}

async fn everyone_claims(world: &World, capabilities: &str) -> Vec<TaskId> {
    let elsewhere = world.elsewhere().await;
    let mut claimers = Vec::new();
    for n in 0..8 {
        let worker = world.worker(capabilities).await;
        let store = if n % 2 == 0 { world.store.clone() } else { elsewhere.clone() };
        claimers.push(tokio::spawn(claim_all(store, worker)));
    }
    let mut got = Vec::new();
    for claimer in claimers {
        got.extend(claimer.await.unwrap());
    }
    got
}

async fn eight_claimers_never_get_the_same_task(world: &World) {
    world.submit(wide(400)).await;

    let got = everyone_claims(world, "noop").await;

    assert_eq!(got.len(), 400);
    assert_eq!(got.iter().collect::<HashSet<_>>().len(), 400);
}

async fn eight_claimers_of_many_lanes_never_miss_what_is_there(world: &World) {
    let stages = ["a", "b", "c"].map(|kind| json!({ "name": kind, "kind": kind, "segments": 100 }));
    world.submit(spec(json!(stages), json!({}))).await;

    let got = everyone_claims(world, "a,b,c").await;

    assert_eq!(got.len(), 300);
    assert_eq!(got.iter().collect::<HashSet<_>>().len(), 300);
}

async fn a_worker_gets_only_what_it_can_do(world: &World) {
    let plain = world.worker("encode").await;
    let able = world.worker("encode,codec:av1").await;
    let stage = json!({ "name": "work", "kind": "encode", "requires": ["codec:av1"] });
    world.submit(spec(json!([stage]), json!({}))).await;

    assert!(world.finds_nothing(plain).await);
    assert!(world.finds_nothing(world.worker("codec:av1").await).await, "it does not know the kind");
    assert_eq!(world.claim(able).await.kind, "encode");
}

async fn lanes_are_merged_by_urgency_and_age(world: &World) {
    let worker = world.worker("a,b,c").await;
    let mut submitted = Vec::new();
    for (kind, priority) in [("a", 5), ("b", 5), ("c", 9), ("a", 5), ("b", 10), ("c", 0)] {
        let job = spec(json!([{ "name": "work", "kind": kind }]), json!({ "priority": priority }));
        submitted.push(world.submit(job).await);
        world.turn(1);
    }

    let first = world.store.claim(worker, 4).await.unwrap();
    let rest = world.store.claim(worker, 4).await.unwrap();

    assert_eq!(jobs(&first), [4, 2, 0, 1].map(|at: usize| submitted[at]));
    assert_eq!(jobs(&rest), [3, 5].map(|at: usize| submitted[at]));
}

async fn a_worker_elsewhere_is_never_given_what_only_a_server_runs(world: &World) {
    let all: Vec<&str> = StageKind::ALL.into_iter().map(StageKind::as_str).collect();
    let stages: Vec<_> = all.iter().map(|kind| json!({ "name": kind, "kind": kind })).collect();
    world.submit(spec(json!(stages), json!({}))).await;
    let far = Hello { kind: Kind::Remote, ..hello(&all.join(",")) };
    world.store.enroll_worker(&far, &Grant::default()).await.unwrap();
    let incarnation = Uuid::new_v4();
    world.store.introduce_worker(&far, incarnation).await.unwrap();
    // As a row that an older version wrote.
    const OFFERS_ALL: &str = "UPDATE worker SET capabilities = \
        'audio,encode,encode_optional,ingest,measure,package,plan,probe,publish,subtitles,thumbnails'";
    world.execute(OFFERS_ALL).await.unwrap();

    let claimed = world.store.claim(far.worker, 100).await.unwrap();

    let kinds: BTreeSet<&str> = claimed.iter().map(|task| task.kind.as_str()).collect();
    assert_eq!(kinds, BTreeSet::from(["audio", "encode", "encode_optional"]));
    assert!(!world.store.has_work(far.worker).await.unwrap());
    let near = world.worker(&all.join(",")).await;
    assert_eq!(world.store.claim(near, 100).await.unwrap().len(), all.len() - 3);
}

async fn a_draining_or_disabled_worker_gets_nothing(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(simple()).await;

    for (command, refusal) in [(Command::Drain, Refusal::Draining), (Command::Disable, Refusal::Disabled)] {
        world.store.manage_worker(worker, command).await.unwrap();
        let refused = world.store.claim(worker, 1).await;
        assert!(matches!(refused, Err(Error::Refused(store::Refusal::Worker(why))) if why == refusal));
        let over_the_desk = world.store.desk().claim(worker, 1).await.unwrap();
        assert!(over_the_desk.is_empty(), "a worker learns of it by its heartbeat");
    }

    world.store.manage_worker(worker, Command::Enable).await.unwrap();
    world.claim(worker).await;
}

async fn a_worker_that_nobody_knows_gets_nothing(world: &World) {
    world.submit(simple()).await;

    let refused = world.store.claim(WorkerId(Uuid::new_v4()), 1).await;

    assert!(matches!(refused, Err(Error::NotFound("worker"))));
}

async fn looking_for_work_finds_what_a_claim_would_get(world: &World) {
    let able = world.worker("noop").await;
    let unable = hello("sleep");
    world.store.register_worker(&unable).await.unwrap();
    assert!(!world.store.has_work(able).await.unwrap());

    world.store.submit(&new_job(simple())).await.unwrap();
    assert!(world.store.has_work(able).await.unwrap());
    assert!(!world.store.has_work(unable.worker).await.unwrap());

    world.claim(able).await;
    assert!(!world.store.has_work(able).await.unwrap());
}

async fn gathered_claims_are_shared_out(world: &World) {
    let (a, b) = (world.worker("noop").await, world.worker("noop").await);
    let draining = world.worker("noop").await;
    world.store.manage_worker(draining, Command::Drain).await.unwrap();
    let job = world.submit(wide(30)).await;
    let desk = Batched::new(&world.store);

    let nobody = WorkerId(Uuid::new_v4());
    let asked = [a, b, draining, nobody].into_iter().cycle().take(80).map(|worker| {
        let desk = desk.clone();
        tokio::spawn(async move { (worker, desk.claim(worker).await.unwrap()) })
    });
    let mut got = Vec::new();
    for asked in asked.collect::<Vec<_>>() {
        let (worker, claimed) = asked.await.unwrap();
        assert!(claimed.is_none() || worker == a || worker == b);
        got.extend(claimed.map(|assignment| assignment.proof.task));
    }

    assert_eq!(got.iter().collect::<HashSet<_>>().len(), 30, "one bad claim spoils no other");
    assert_eq!(world.task_states(job).await, ["RUNNING"; 30]);
}
