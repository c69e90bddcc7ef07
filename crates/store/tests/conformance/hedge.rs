//! Twins: a second task for a slow segment; the first commit of the two counts.

use crate::shop::{commit_of, heartbeat, progress_of, spec};
use crate::world::World;
use rules::job::State;
use rules::task::Refusal;
use rules::{JobId, TaskId, WorkerId, failure};
use serde_json::json;
use std::collections::BTreeSet;
use wire::{Answer, Assignment, Commit, Progress, Usage};

on_both_engines![
    a_straggler_gets_a_twin_when_a_worker_is_idle,
    the_twin_that_is_first_counts_and_the_straggler_is_told_to_stop,
    the_straggler_that_is_first_counts_and_the_twin_is_told_to_stop,
    of_two_commits_the_first_counts_and_the_segment_is_counted_once,
    of_two_commits_one_has_its_effect,
    a_twin_that_fails_changes_nothing,
    a_straggler_that_fails_for_good_leaves_its_segment_to_the_twin,
    a_segment_has_failed_once_when_both_have,
    a_segment_that_may_be_missing_is_missed_once_when_both_have_failed,
    a_job_tried_again_fails_again_though_its_twin_was_withdrawn,
    work_that_its_worker_never_begins_gets_a_twin_too,
    work_that_was_never_renewed_gets_no_twin,
    nothing_that_a_worker_says_prevents_a_twin_for_ever,
    the_slow_worker_is_not_given_the_twin,
    no_twin_without_an_idle_worker_or_while_others_wait,
    a_job_that_is_tried_again_does_not_repeat_what_a_twin_has_done,
];

/// Three segments of which two took a second each, and a third that has been running for a minute with a slow worker.
struct Scene {
    job: JobId,
    slow: WorkerId,
    idle: WorkerId,
    held: Assignment,
}

async fn scene(world: &World) -> Scene {
    scene_of(world, false).await
}

async fn scene_of(world: &World, is_optional: bool) -> Scene {
    let package = json!({ "name": "package", "kind": "noop", "needs": ["encode"], "reads": ["encode"] });
    scene_with(world, json!([stage(is_optional), package])).await
}

fn stage(is_optional: bool) -> serde_json::Value {
    json!({ "name": "encode", "kind": "noop", "segments": 3, "hedge": true, "optional": is_optional,
            "effect": { "append": "log" } })
}

async fn scene_with(world: &World, stages: serde_json::Value) -> Scene {
    let (slow, idle) = (world.worker("noop").await, world.worker("noop").await);
    let job = world.submit(spec(stages, json!({}))).await;
    let claimed = world.store.claim(slow, 3).await.unwrap();
    for (n, quick) in claimed[..2].iter().enumerate() {
        let usage = Usage { wall_ms: 1000, ..Usage::default() };
        world.say(Commit { usage, result: Some(json!(n)), ..commit_of(quick.proof) }).await;
    }
    world.progress(&claimed[2], 1).await;
    world.orchestrate().await;
    world.turn(50_000);
    world.progress(&claimed[2], 2).await;
    world.store.heartbeat(&heartbeat(idle)).await.unwrap();
    Scene { job, slow, idle, held: claimed[2].clone() }
}

async fn hedged(world: &World, scene: &Scene) -> Assignment {
    assert_eq!(world.store.hedge().await.unwrap().len(), 1);
    world.claim(scene.idle).await
}

/// What the next stage is given.
async fn handed_on(world: &World, scene: &Scene) -> Vec<serde_json::Value> {
    world.orchestrate().await;
    let package = world.claim(scene.idle).await;
    assert_eq!(world.commit(&package).await, Answer::Accepted);
    world.orchestrate().await;
    assert!(world.is(scene.job, State::Completed).await);
    package.results["encode"].clone()
}

async fn a_straggler_gets_a_twin_when_a_worker_is_idle(world: &World) {
    let scene = scene(world).await;

    let twin = hedged(world, &scene).await;

    assert_ne!(twin.proof.task, scene.held.proof.task);
    assert_eq!((twin.segment, &twin.stage), (scene.held.segment, &scene.held.stage));
    assert!(world.store.hedge().await.unwrap().is_empty(), "one is enough");
    let _ = scene.slow;
}

/// Its worker renews the lease and reports nothing.
async fn work_that_its_worker_never_begins_gets_a_twin_too(world: &World) {
    let (slow, idle) = (world.worker("noop").await, world.worker("noop").await);
    let job = world.submit(spec(json!([stage(false)]), json!({}))).await;
    let claimed = world.store.claim(slow, 3).await.unwrap();
    for quick in &claimed[..2] {
        let usage = Usage { wall_ms: 1000, ..Usage::default() };
        world.say(Commit { usage, ..commit_of(quick.proof) }).await;
    }
    world.orchestrate().await;
    world.turn(50_000);
    assert_eq!(world.renew(&claimed[2], 2).await, Answer::Accepted);
    world.store.heartbeat(&heartbeat(idle)).await.unwrap();
    assert_eq!(world.latest(claimed[2].proof.task).await.status, "LEASED");

    assert_eq!(world.store.hedge().await.unwrap().len(), 1);

    let twin = world.claim(idle).await;
    assert_eq!(world.commit(&twin).await, Answer::Accepted);
    world.orchestrate().await;
    assert!(world.is(job, State::Completed).await);
}

/// Its worker may have died of it.
async fn work_that_was_never_renewed_gets_no_twin(world: &World) {
    let (dead, idle) = (world.worker("noop").await, world.worker("noop").await);
    world.submit(spec(json!([stage(false)]), json!({}))).await;
    let claimed = world.store.claim(dead, 3).await.unwrap();
    for quick in &claimed[..2] {
        let usage = Usage { wall_ms: 1000, ..Usage::default() };
        world.say(Commit { usage, ..commit_of(quick.proof) }).await;
    }
    world.orchestrate().await;
    world.turn(50_000);
    world.store.heartbeat(&heartbeat(idle)).await.unwrap();

    assert_eq!(world.store.hedge().await.unwrap(), []);
}

async fn nothing_that_a_worker_says_prevents_a_twin_for_ever(world: &World) {
    let scene = scene(world).await;
    let almost = Progress { permille: Some(999), ..progress_of(scene.held.proof, 3) };

    world.store.progress(&[almost]).await.unwrap();

    assert_eq!(world.store.hedge().await.unwrap().len(), 1);
}

async fn the_twin_that_is_first_counts_and_the_straggler_is_told_to_stop(world: &World) {
    let scene = scene(world).await;
    let twin = hedged(world, &scene).await;

    assert_eq!(world.commit_with(&twin, json!("twin")).await, Answer::Accepted);
    world.orchestrate().await;

    assert_eq!(world.renew(&scene.held, 3).await, Answer::Refused(Refusal::NotRunning));
    assert_eq!(world.commit_with(&scene.held, json!("late")).await, Answer::Refused(Refusal::NotRunning));
    assert_eq!(handed_on(world, &scene).await, [json!(0), json!(1), json!("twin")]);
}

async fn the_straggler_that_is_first_counts_and_the_twin_is_told_to_stop(world: &World) {
    let scene = scene(world).await;
    let twin = hedged(world, &scene).await;

    assert_eq!(world.commit_with(&scene.held, json!("slow")).await, Answer::Accepted);
    world.orchestrate().await;

    assert_eq!(world.commit_with(&twin, json!("late")).await, Answer::Refused(Refusal::NotRunning));
    assert_eq!(handed_on(world, &scene).await, [json!(0), json!(1), json!("slow")]);
}

async fn of_two_commits_the_first_counts_and_the_segment_is_counted_once(world: &World) {
    let scene = scene(world).await;
    let twin = hedged(world, &scene).await;

    assert_eq!(world.commit_with(&twin, json!("twin")).await, Answer::Accepted);
    world.turn(5);
    assert_eq!(world.commit_with(&scene.held, json!("second")).await, Answer::Accepted);

    assert_eq!(handed_on(world, &scene).await, [json!(0), json!(1), json!("twin")]);
}

async fn of_two_commits_one_has_its_effect(world: &World) {
    let scene = scene(world).await;
    let twin = hedged(world, &scene).await;

    assert_eq!(world.commit(&twin).await, Answer::Accepted);
    assert_eq!(world.commit(&scene.held).await, Answer::Accepted);

    let told = world.store.take_messages(100).await.unwrap();
    let lines: BTreeSet<_> = told.iter().map(|message| message.payload["line"].to_string()).collect();
    assert_eq!((told.len(), lines.len()), (3, 3), "one for each segment: {told:?}");
    assert!(told.iter().any(|message| message.payload["line"] == json!(scene.held.proof.task)));
}

async fn a_twin_that_fails_changes_nothing(world: &World) {
    let scene = scene(world).await;
    let twin = hedged(world, &scene).await;

    assert_eq!(world.fail(&twin, failure::Kind::Permanent).await, Answer::Accepted);
    world.orchestrate().await;

    assert!(!world.state(scene.job).await.is_final());
    assert_eq!(world.commit_with(&scene.held, json!("slow")).await, Answer::Accepted);
    assert_eq!(handed_on(world, &scene).await, [json!(0), json!(1), json!("slow")]);
}

async fn a_straggler_that_fails_for_good_leaves_its_segment_to_the_twin(world: &World) {
    let scene = scene(world).await;
    let twin = hedged(world, &scene).await;

    assert_eq!(world.fail(&scene.held, failure::Kind::Permanent).await, Answer::Accepted);
    world.orchestrate().await;
    assert!(!world.state(scene.job).await.is_final(), "the twin may still commit");
    assert_eq!(world.commit_with(&twin, json!("twin")).await, Answer::Accepted);

    assert_eq!(handed_on(world, &scene).await, [json!(0), json!(1), json!("twin")]);
}

async fn a_segment_has_failed_once_when_both_have(world: &World) {
    // One after the other, in either order, or both before anybody looks.
    for (straggler_first, is_judged_between) in [(true, true), (false, true), (true, false)] {
        let scene = scene(world).await;
        let twin = hedged(world, &scene).await;
        let (first, last) = if straggler_first { (&scene.held, &twin) } else { (&twin, &scene.held) };

        world.fail(first, failure::Kind::Permanent).await;
        if is_judged_between {
            world.orchestrate().await;
            assert!(!world.state(scene.job).await.is_final());
        }
        world.fail(last, failure::Kind::Permanent).await;
        world.orchestrate().await;

        assert!(world.is(scene.job, State::Failed).await);
        let told = world.store.job(scene.job).await.unwrap().error.unwrap();
        assert!(told.contains(&format!("task {}:", scene.held.proof.task)), "{told}");
    }
}

async fn a_segment_that_may_be_missing_is_missed_once_when_both_have_failed(world: &World) {
    let scene = scene_of(world, true).await;
    let twin = hedged(world, &scene).await;

    world.fail(&scene.held, failure::Kind::Permanent).await;
    world.orchestrate().await;
    assert_eq!(world.store.claim(scene.idle, 1).await.unwrap().len(), 0, "the next stage waits for the twin");
    world.fail(&twin, failure::Kind::Permanent).await;

    assert_eq!(handed_on(world, &scene).await, [json!(0), json!(1), json!(null)]);
}

async fn a_job_tried_again_fails_again_though_its_twin_was_withdrawn(world: &World) {
    let scene = scene_with(world, json!([stage(false), { "name": "other", "kind": "noop" }])).await;
    let other = world.claim(scene.idle).await;
    assert_eq!(other.stage, "other");
    let _twin = hedged(world, &scene).await;
    world.fail(&other, failure::Kind::Permanent).await;
    world.orchestrate().await;
    assert!(world.is(scene.job, State::Failed).await);

    world.store.retry_job(scene.job, None).await.unwrap();
    let again = world.store.claim(scene.idle, 3).await.unwrap();
    let encode = again.iter().find(|it| it.stage == "encode").unwrap();
    assert_eq!(encode.proof.task, scene.held.proof.task, "no twin is begun again");
    world.fail(encode, failure::Kind::Permanent).await;
    world.orchestrate().await;

    assert!(world.is(scene.job, State::Failed).await, "nobody waits for a twin that is withdrawn");
}

async fn the_slow_worker_is_not_given_the_twin(world: &World) {
    let scene = scene(world).await;
    assert_eq!(world.store.hedge().await.unwrap().len(), 1);

    assert!(!world.store.has_work(scene.slow).await.unwrap());
    assert!(world.store.claim(scene.slow, 3).await.unwrap().is_empty());
    assert!(world.store.has_work(scene.idle).await.unwrap());
    let twin = world.claim(scene.idle).await;

    assert_eq!(twin.segment, scene.held.segment);
    assert_ne!(twin.proof.task, scene.held.proof.task);
}

async fn no_twin_without_an_idle_worker_or_while_others_wait(world: &World) {
    let scene = scene(world).await;
    let busy = wire::Heartbeat { running: 1, ..heartbeat(scene.idle) };
    world.store.heartbeat(&busy).await.unwrap();
    assert!(world.store.hedge().await.unwrap().is_empty(), "nobody is idle");
    world.store.heartbeat(&heartbeat(scene.idle)).await.unwrap();

    // Given back, it waits: whoever is idle can have it at once.
    world.fail(&scene.held, failure::Kind::Drained).await;
    world.orchestrate().await;

    assert!(world.store.hedge().await.unwrap().is_empty());
}

async fn a_job_that_is_tried_again_does_not_repeat_what_a_twin_has_done(world: &World) {
    let scene = scene(world).await;
    let twin = hedged(world, &scene).await;
    world.commit_with(&twin, json!("twin")).await;
    world.orchestrate().await;
    let package = world.claim(scene.idle).await;
    world.fail(&package, failure::Kind::Permanent).await;
    world.orchestrate().await;
    assert!(world.is(scene.job, State::Failed).await);

    world.store.retry_job(scene.job, None).await.unwrap();

    let states: Vec<(TaskId, String)> =
        world.tasks(scene.job).await.into_iter().map(|task| (task.id, task.state)).collect();
    assert!(states.contains(&(scene.held.proof.task, "NEW".into())), "{states:?}");
    assert_eq!(handed_on(world, &scene).await, [json!(0), json!(1), json!("twin")]);
}
