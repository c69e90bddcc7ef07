//! What a task is given of the work before it.

use crate::shop::{commit_of, spec};
use crate::world::World;
use rules::failure::Kind;
use serde_json::{Value, json};
use wire::Commit;

on_both_engines![
    a_task_is_given_what_its_stage_reads_and_no_more,
    a_plan_is_read_without_its_segments,
    what_was_given_up_is_read_as_nothing,
    one_claim_reads_for_several_jobs,
    the_version_of_results_changes_with_each_commit_and_with_nothing_else,
];

async fn a_task_is_given_what_its_stage_reads_and_no_more(world: &World) {
    let worker = world.worker("noop").await;
    let stages = json!([
        { "name": "probe", "kind": "noop" },
        { "name": "encode", "kind": "noop", "segments": 12, "needs": ["probe"] },
        { "name": "package", "kind": "noop", "needs": ["encode"], "reads": ["encode", "probe"] },
    ]);
    world.submit(spec(stages, json!({}))).await;
    let probe = world.claim(worker).await;
    world.commit_with(&probe, json!({ "width": 1920 })).await;
    world.orchestrate().await;
    let encodes = world.store.claim(worker, 100).await.unwrap();
    assert!(encodes.iter().all(|task| task.results.is_empty()));

    // Backwards, for the order is that of the segments and not of the commits.
    for task in encodes.iter().rev() {
        world.commit_with(task, json!(task.segment)).await;
    }
    world.orchestrate().await;

    let package = world.claim(worker).await;
    let encoded: Vec<Value> = (0..12).map(|segment| json!(segment)).collect();
    assert_eq!(package.results["encode"], encoded);
    assert_eq!(package.results["probe"], [json!({ "width": 1920 })]);
    assert_eq!(package.results.len(), 2);
    world.commit(&package).await;
    world.orchestrate().await;
    let seen = async |stage: &str| world.store.results_of_stage(package.job, stage).await;
    assert_eq!(seen("encode").await.unwrap(), encoded);
    assert_eq!(seen("package").await.unwrap(), [Value::Null]);
    assert!(seen("nothing").await.is_err());
}

async fn a_plan_is_read_without_its_segments(world: &World) {
    let worker = world.worker("noop").await;
    let stages = json!([
        { "name": "plan", "kind": "noop" },
        { "name": "encode", "kind": "noop", "needs": ["plan"], "expand": "plan", "reads": ["plan"] },
    ]);
    world.submit(spec(stages, json!({}))).await;
    let plan = world.claim(worker).await;
    world.commit_with(&plan, json!({ "rate": 25, "segments": { "encode": ["a", "b"] } })).await;
    world.orchestrate().await;

    for (task, input) in world.store.claim(worker, 10).await.unwrap().iter().zip(["a", "b"]) {
        assert_eq!(task.input, Some(json!(input)));
        assert_eq!(task.results["plan"], [json!({ "rate": 25 })]);
    }
}

async fn what_was_given_up_is_read_as_nothing(world: &World) {
    let worker = world.worker("noop").await;
    let stages = json!([
        { "name": "thumbnails", "kind": "noop", "segments": 2, "optional": true },
        { "name": "package", "kind": "noop", "needs": ["thumbnails"], "reads": ["thumbnails"] },
    ]);
    world.submit(spec(stages, json!({}))).await;
    let tasks = world.store.claim(worker, 2).await.unwrap();
    world.fail(&tasks[0], Kind::Permanent).await;
    world.commit_with(&tasks[1], json!("sprite")).await;
    world.orchestrate().await;

    let package = world.claim(worker).await;

    assert_eq!(package.results["thumbnails"], [Value::Null, json!("sprite")]);
}

async fn one_claim_reads_for_several_jobs(world: &World) {
    let worker = world.worker("noop").await;
    let stages = json!([
        { "name": "first", "kind": "noop" },
        { "name": "second", "kind": "noop", "needs": ["first"], "reads": ["first"] },
    ]);
    let jobs =
        [world.submit(spec(stages.clone(), json!({}))).await, world.submit(spec(stages, json!({}))).await];
    let firsts = world.store.claim(worker, 2).await.unwrap();
    let commits = firsts.iter().map(|task| Commit { result: Some(json!(task.job)), ..commit_of(task.proof) });
    world.store.commit(&commits.collect::<Vec<_>>()).await.unwrap();
    world.orchestrate().await;

    let seconds = world.store.claim(worker, 2).await.unwrap();

    for (task, job) in seconds.iter().zip(jobs) {
        assert_eq!((task.job, &task.results["first"][..]), (job, &[json!(job)][..]));
    }
}

async fn the_version_of_results_changes_with_each_commit_and_with_nothing_else(world: &World) {
    let worker = world.worker("noop").await;
    let stages = json!([
        { "name": "plan", "kind": "noop" },
        { "name": "encode", "kind": "noop", "expand": "plan", "needs": ["plan"] },
        { "name": "other", "kind": "noop" },
    ]);
    let job = world.submit(spec(stages, json!({}))).await;
    let version = async || world.store.version_of_results(job, ["plan", "encode", "audio"]).await.unwrap();
    let (mut seen, mut tasks) = (vec![version().await], world.store.claim(worker, 10).await.unwrap());

    tasks.sort_by_key(|task| task.stage == "plan");
    world.commit(&tasks[0]).await;
    world.orchestrate().await;
    assert_eq!(version().await, seen[0], "another stage");
    world.commit_with(&tasks[1], json!({ "segments": { "encode": ["a", "b", "c"] } })).await;
    seen.push(version().await);
    world.orchestrate().await;
    seen.push(version().await);
    for task in world.store.claim(worker, 10).await.unwrap() {
        assert_eq!(&version().await, seen.last().unwrap(), "a claim");
        world.commit_with(&task, task.input.clone().unwrap()).await;
        seen.push(version().await);
        world.orchestrate().await;
        assert_eq!(&version().await, seen.last().unwrap(), "a commit that is settled");
    }

    assert!((0..seen.len()).all(|at| !seen[..at].contains(&seen[at])), "{seen:?}");
    let encoded: Vec<Option<String>> = world.store.read_results(job, "encode").await.unwrap();
    assert_eq!(encoded, ["a", "b", "c"].map(|it| Some(it.to_owned())));
}
