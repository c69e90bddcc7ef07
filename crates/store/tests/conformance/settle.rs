//! What a commit means for its job: the orchestrator expands plans, releases what is next, and ends the job.

use crate::shop::{commit_all, commit_of, orchestrate, planned, simple, spec, wide};
use crate::world::World;
use rules::failure::Kind;
use rules::job::State;
use rules::task::Refusal;
use rules::{JobId, WorkerId, spec::MAX_SEGMENTS};
use serde_json::{Value, json};
use wire::{Answer, Commit};

on_both_engines![
    a_plan_of_a_thousand_segments_fans_out_and_in,
    a_plan_may_feed_two_stages,
    an_empty_plan_passes_over_its_stage,
    a_plan_that_cannot_be_expanded_fails_its_task_for_good,
    a_plan_over_the_limit_is_refused,
    a_stage_waits_for_all_it_needs,
    a_workers_commit_alone_advances_nothing,
    a_job_goes_through_the_phases_of_its_stages,
    a_job_that_loses_its_only_execution_is_pending_again,
    settling_again_changes_nothing,
    a_crash_between_commit_and_settling_is_finished_by_another,
    many_orchestrators_settle_each_commit_once,
    settling_takes_a_limited_number,
    a_batch_is_settled_with_its_commit_but_for_what_moves_its_job_on,
    the_end_of_a_job_is_told_once,
];

// SQLite has one writer at a time: nobody is ever busy beside it.
on_postgres_alone![
    a_job_that_another_orchestrator_is_busy_with_is_passed_over,
    a_batch_of_a_job_that_another_is_busy_with_is_left_to_be_settled,
];

/// Finishes a planned job's first task with these segments.
async fn plan(world: &World, worker: WorkerId, segments: Value) -> Answer {
    let task = world.claim(worker).await;
    let answer = world.commit_with(&task, json!({ "segments": segments })).await;
    world.orchestrate().await;
    answer
}

async fn a_plan_of_a_thousand_segments_fans_out_and_in(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(planned()).await;

    let segments: Vec<Value> = (0..1000).map(|n| json!({ "from": n })).collect();
    plan(world, worker, json!(segments)).await;

    let stages = world.store.stages_of_job(job).await.unwrap();
    assert_eq!(stages.iter().map(|stage| stage.tasks).collect::<Vec<_>>(), [1, 1000, 1]);
    let claimed = world.store.claim(worker, 1000).await.unwrap();
    assert_eq!(claimed.len(), 1000);
    for (segment, task) in claimed.iter().enumerate() {
        assert_eq!((task.segment, &task.input), (segment as i64, &Some(json!({ "from": segment }))));
    }

    commit_all(&world.store, &claimed[1..]).await;
    world.orchestrate().await;
    assert!(world.finds_nothing(worker).await, "one segment is still missing");
    commit_all(&world.store, &claimed[..1]).await;
    world.orchestrate().await;
    let last = world.claim(worker).await;
    assert_eq!(last.stage, "package");
    commit_all(&world.store, &[last]).await;
    world.orchestrate().await;

    assert!(world.is(job, State::Completed).await);
    let seen = world.store.job(job).await.unwrap();
    assert_eq!((seen.tasks, seen.done, seen.ended_at), (1002, 1002, Some(world.now().0)));
}

async fn a_plan_may_feed_two_stages(world: &World) {
    let worker = world.worker("noop").await;
    let stages = json!([
        { "name": "video", "kind": "noop", "needs": ["plan"], "expand": "plan" },
        { "name": "plan", "kind": "noop" },
        { "name": "thumbnails", "kind": "noop", "needs": ["plan"], "expand": "plan" },
    ]);
    let job = world.submit(spec(stages, json!({}))).await;

    plan(world, worker, json!(["a", "b"])).await;

    let claimed = world.store.claim(worker, 10).await.unwrap();
    let work: Vec<_> =
        claimed.iter().map(|task| (task.stage.as_str(), task.input.clone().unwrap())).collect();
    let a_and_b = |stage| [(stage, json!("a")), (stage, json!("b"))];
    assert_eq!(work, [a_and_b("video"), a_and_b("thumbnails")].concat());
    commit_all(&world.store, &claimed).await;
    world.orchestrate().await;
    assert!(world.is(job, State::Completed).await);
}

async fn an_empty_plan_passes_over_its_stage(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(planned()).await;

    plan(world, worker, json!([])).await;

    assert_eq!(world.claim(worker).await.stage, "package");
    assert_eq!(world.task_states(job).await, ["DONE", "RUNNING"]);
}

async fn a_plan_that_cannot_be_expanded_fails_its_task_for_good(world: &World) {
    let worker = world.worker("noop").await;
    for (result, reason) in [
        (None, "the plan is empty"),
        (Some(json!([])), "not of the form"),
        (Some(json!({ "segment": [] })), "missing field `segments`"),
        (Some(json!({ "segments": 3 })), "expected a list of segments"),
    ] {
        let job = world.submit(planned()).await;
        let task = world.claim(worker).await;

        let answer = world.say(Commit { result, ..commit_of(task.proof) }).await;
        world.orchestrate().await;

        assert_eq!(answer, Answer::Refused(Refusal::BadResult));
        assert!(world.is(job, State::Failed).await);
        let error = world.store.job(job).await.unwrap().error.unwrap();
        assert!(error.starts_with("stage plan, task ") && error.contains(reason), "{error}");
        assert_eq!(world.statuses(task.proof.task).await, ["ABORTED"]);
        assert_eq!(world.latest(task.proof.task).await.failure.as_deref(), Some("permanent"));
    }
}

async fn a_plan_over_the_limit_is_refused(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(planned()).await;

    let answer = plan(world, worker, json!(vec![0; MAX_SEGMENTS + 1])).await;

    assert_eq!(answer, Answer::Refused(Refusal::BadResult));
    let error = world.store.job(job).await.unwrap().error.unwrap();
    assert!(error.contains("the plan has 100001 segments; 100000 are allowed"), "{error}");
}

async fn a_stage_waits_for_all_it_needs(world: &World) {
    let worker = world.worker("noop").await;
    let stages = json!([
        { "name": "first", "kind": "noop" },
        { "name": "left", "kind": "noop", "needs": ["first"] },
        { "name": "right", "kind": "noop", "needs": ["first"], "segments": 2 },
        { "name": "last", "kind": "noop", "needs": ["left", "right"] },
    ]);
    let job = world.submit(spec(stages, json!({}))).await;
    let first = world.claim(worker).await;
    commit_all(&world.store, &[first]).await;
    world.orchestrate().await;

    let middle = world.store.claim(worker, 10).await.unwrap();
    commit_all(&world.store, &middle[..2]).await;
    world.orchestrate().await;

    assert_eq!(world.task_states(job).await, ["DONE", "DONE", "DONE", "RUNNING", "NEW"]);
    commit_all(&world.store, &middle[2..]).await;
    world.orchestrate().await;
    assert_eq!(world.claim(worker).await.stage, "last");
}

async fn a_workers_commit_alone_advances_nothing(world: &World) {
    let worker = world.worker("noop").await;
    let stages = json!([
        { "name": "first", "kind": "noop" },
        { "name": "second", "kind": "noop", "needs": ["first"] },
    ]);
    let job = world.submit(spec(stages, json!({}))).await;
    let first = world.claim(worker).await;

    world.commit(&first).await;

    assert_eq!(world.task_states(job).await, ["DONE", "NEW"]);
    assert_eq!(world.statuses(first.proof.task).await, ["COMMITTED"]);
    world.orchestrate().await;
    assert_eq!(world.task_states(job).await, ["DONE", "READY"]);
    assert_eq!(world.statuses(first.proof.task).await, ["DONE"]);
}

async fn a_job_goes_through_the_phases_of_its_stages(world: &World) {
    let worker = world.worker("noop").await;
    let phases = ["validating", "planning", "downloading_inputs", "processing", "uploading_outputs"];
    let stages: Vec<Value> = (0..5)
        .map(|n| {
            let needs: Vec<&str> = phases[..n].last().copied().into_iter().collect();
            json!({ "name": phases[n], "kind": "noop", "phase": phases[n], "needs": needs })
        })
        .collect();
    let job = world.submit(spec(json!(stages), json!({}))).await;

    let mut seen = vec![world.state(job).await.as_str()];
    for _ in phases {
        let task = world.claim(worker).await;
        seen.push(world.state(job).await.as_str());
        world.commit(&task).await;
        world.orchestrate().await;
    }
    seen.push(world.state(job).await.as_str());

    assert_eq!(seen, [&["pending"][..], &phases[..], &["completed"]].concat());
}

async fn a_job_that_loses_its_only_execution_is_pending_again(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(simple()).await;
    let task = world.claim(worker).await;
    assert!(world.is(job, State::Processing).await);

    world.fail(&task, Kind::Drained).await;

    assert!(world.is(job, State::Pending).await);
}

async fn settling_again_changes_nothing(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(wide(3)).await;
    commit_all(&world.store, &world.store.claim(worker, 3).await.unwrap()).await;
    let first = world.store.settle(100).await.unwrap();
    let before = world.store.job(job).await.unwrap();
    world.turn(1000);

    let again = world.store.settle(100).await.unwrap();

    assert_eq!((first.found, first.settled), (3, 3));
    assert_eq!((again.found, again.settled), (0, 0));
    let after = world.store.job(job).await.unwrap();
    assert_eq!((after.version, after.ended_at), (before.version, before.ended_at));
}

async fn a_crash_between_commit_and_settling_is_finished_by_another(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(planned()).await;
    let task = world.claim(worker).await;
    world.commit_with(&task, json!({ "segments": [1, 2] })).await;

    // Whoever committed is gone, and long ago.
    world.turn(1_000_000);
    let another = world.elsewhere().await;
    assert!(another.recover(100).await.unwrap().is_empty(), "a commit needs no lease any more");
    another.settle(100).await.unwrap();

    assert_eq!(world.statuses(task.proof.task).await, ["DONE"]);
    assert_eq!(world.task_states(job).await, ["DONE", "NEW", "READY", "READY"]);
}

async fn a_job_that_another_orchestrator_is_busy_with_is_passed_over(world: &World) {
    let worker = world.worker("noop").await;
    let (busy, free) = (world.submit(simple()).await, world.submit(simple()).await);
    commit_all(&world.store, &world.store.claim(worker, 2).await.unwrap()).await;
    let mut another = world.store.db().write(store::Step::Settle).await.unwrap();
    let lock = "SELECT id FROM job WHERE id = $1 FOR UPDATE";
    another.query(lock).bind(busy).one::<(i64,)>().await.unwrap();

    let settled = world.store.settle(100).await.unwrap();

    assert_eq!((settled.found, settled.settled), (2, 1));
    assert!(world.is(free, State::Completed).await);
    another.commit().await.unwrap();
    world.orchestrate().await;
    assert!(world.is(busy, State::Completed).await);
}

async fn many_orchestrators_settle_each_commit_once(world: &World) {
    let worker = world.worker("noop").await;
    let stores = [world.store.clone(), world.elsewhere().await, world.elsewhere().await];
    let mut jobs: Vec<JobId> = Vec::new();
    for _ in 0..6 {
        jobs.push(world.submit(planned()).await);
    }
    // Each round all orchestrators see the same commits: the plans', the segments', the packages'.
    loop {
        let claimed = world.store.claim(worker, 1000).await.unwrap();
        if claimed.is_empty() {
            break;
        }
        let segments = Some(json!({ "segments": [0, 1, 2, 3, 4, 5, 6, 7] }));
        let commits: Vec<Commit> =
            claimed.iter().map(|task| Commit { result: segments.clone(), ..commit_of(task.proof) }).collect();
        world.store.commit(&commits).await.unwrap();

        let settled: Vec<_> = (0..6)
            .map(|n| {
                let store = stores[n % 3].clone();
                tokio::spawn(async move { orchestrate(&store).await.unwrap() })
            })
            .collect();
        for settled in settled {
            settled.await.unwrap();
        }
        world.orchestrate().await;
    }

    for job in jobs {
        let seen = world.store.job(job).await.unwrap();
        assert_eq!((seen.state, seen.tasks), (State::Completed, 10));
        let told = world.store.audit_of_job(job).await.unwrap();
        let count = |command: &str| told.iter().filter(|row| row.command == command).count();
        assert_eq!((count("settle"), count("complete"), count("advance")), (10, 1, 10));
    }
}

async fn settling_takes_a_limited_number(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(wide(5)).await;
    commit_all(&world.store, &world.store.claim(worker, 5).await.unwrap()).await;

    let settled = world.store.settle(3).await.unwrap();

    assert_eq!((settled.found, settled.settled), (3, 3));
    assert!(world.is(job, State::Processing).await);
    assert_eq!(world.store.settle(3).await.unwrap().settled, 2);
    assert!(world.is(job, State::Completed).await);
}

async fn a_batch_is_settled_with_its_commit_but_for_what_moves_its_job_on(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(wide(40)).await;
    let claimed = world.store.claim(worker, 40).await.unwrap();

    commit_all(&world.store, &claimed[..20]).await;

    assert_eq!(world.statuses(claimed[0].proof.task).await, ["DONE"]);
    let audited = world.audited(claimed[0].proof.task).await;
    assert_eq!(audited[audited.len() - 3..], ["start", "commit", "settle"], "{audited:?}");
    let rows: Vec<(String, i64)> =
        world.rows("SELECT command, tasks FROM audit WHERE command IN ('start', 'commit', 'settle')").await;
    assert_eq!(rows, [("commit".to_owned(), 20)]);
    let told = world.store.audit_of_job(job).await.unwrap();
    let settled = told.iter().find(|row| row.command == "settle").unwrap();
    let executions = (settled.from_execution.as_deref(), settled.to_execution.as_deref());
    assert_eq!(executions, (Some("COMMITTED"), Some("DONE")));
    assert_eq!((settled.role.as_str(), settled.worker.as_deref()), ("orchestrator", None));
    assert_eq!(world.store.settle(100).await.unwrap().found, 0);
    assert_eq!(world.store.stages_of_job(job).await.unwrap()[0].open, 20);
    commit_all(&world.store, &claimed[20..]).await;
    assert!(world.is(job, State::Processing).await, "nothing but an orchestrator ends a job");
    let settled = world.store.settle(100).await.unwrap();
    assert_eq!((settled.found, settled.ended), (1, 1));
    assert!(world.is(job, State::Completed).await);
}

async fn a_batch_of_a_job_that_another_is_busy_with_is_left_to_be_settled(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(wide(40)).await;
    let claimed = world.store.claim(worker, 40).await.unwrap();
    let mut another = world.store.db().write(store::Step::Settle).await.unwrap();
    let lock = "SELECT id FROM job WHERE id = $1 FOR UPDATE";
    another.query(lock).bind(job).one::<(i64,)>().await.unwrap();

    commit_all(&world.store, &claimed).await;

    another.commit().await.unwrap();
    assert_eq!(world.store.settle(100).await.unwrap().settled, 40);
    assert!(world.is(job, State::Completed).await);
}

async fn the_end_of_a_job_is_told_once(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(wide(3)).await;

    world.work_off(worker).await;

    assert_eq!(world.endings(job).await, ["complete"]);
}
