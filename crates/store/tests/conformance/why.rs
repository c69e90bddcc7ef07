//! "Why is this waiting?"

use crate::shop::{failure_of, planned, progress_of, simple, spec, wide};
use crate::world::{LEASE, OFFLINE, World};
use rules::JobId;
use rules::failure::Kind;
use rules::job::State;
use rules::worker::Command;
use serde_json::json;
use store::Error;
use wire::Progress;

on_both_engines![
    it_says_that_no_worker_is_running,
    it_says_that_every_worker_was_told_to_take_nothing,
    it_says_what_none_of_the_workers_can_do,
    it_says_how_many_are_ahead,
    it_says_where_a_task_runs_and_how_far_it_is,
    it_says_that_a_lease_has_expired_and_nobody_looks,
    it_says_when_a_task_is_tried_again_and_why,
    it_says_what_a_stage_waits_for,
    it_says_that_a_commit_is_not_settled,
    it_says_why_a_job_has_failed,
    it_says_how_a_job_has_ended,
    it_knows_no_job_that_does_not_exist,
];

async fn reasons(world: &World, job: JobId) -> Vec<String> {
    world.store.why(job).await.unwrap().reasons
}

async fn it_says_that_no_worker_is_running(world: &World) {
    world.worker("noop").await;
    let job = world.submit(wide(3)).await;
    world.turn(OFFLINE);

    let expected = "3 tasks of stage work are READY for 300 s, and no worker is running: start one with `vodmill worker`.";
    assert_eq!(reasons(world, job).await, [expected]);
}

async fn it_says_that_every_worker_was_told_to_take_nothing(world: &World) {
    let (one, other) = (world.worker("noop").await, world.worker("noop").await);
    world.store.manage_worker(one, Command::Drain).await.unwrap();
    world.store.manage_worker(other, Command::Disable).await.unwrap();
    let job = world.submit(wide(3)).await;

    let said = reasons(world, job).await.join(" ");
    assert!(said.contains("every worker was told to take nothing new"), "{said}");
    assert!(said.contains("is draining") && said.contains("is disabled"), "{said}");
    world.turn(OFFLINE);
    let said = reasons(world, job).await.join(" ");
    assert!(said.contains("no worker is running"), "they are not there any more: {said}");
}

async fn it_says_what_none_of_the_workers_can_do(world: &World) {
    world.worker("noop").await;
    let stage = json!({ "name": "encode", "kind": "av1", "requires": ["gpu"] });
    let job = world.submit(spec(json!([stage]), json!({}))).await;
    world.turn(1500);

    let expected = "1 task of stage encode is READY for 1.5 s, and none of the workers can do it: it asks for `av1,gpu`.";
    assert_eq!(reasons(world, job).await, [expected]);
}

async fn it_says_how_many_are_ahead(world: &World) {
    world.worker("noop").await;
    world.submit(wide(4)).await;
    let urgent = spec(json!([{ "name": "work", "kind": "noop" }]), json!({ "priority": 9 }));
    world.turn(10);
    let job = world.submit(simple()).await;
    world.turn(10);
    let first = world.submit(urgent).await;
    world.turn(3_700_000);
    world.worker("noop").await;

    let waits = "is READY for 61 min, waiting for a free worker;";
    assert_eq!(reasons(world, job).await, [format!("1 task of stage work {waits} 5 tasks are ahead.")]);
    assert_eq!(reasons(world, first).await, [format!("1 task of stage work {waits} nothing is ahead.")]);
}

async fn it_says_where_a_task_runs_and_how_far_it_is(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(simple()).await;
    let task = world.claim(worker).await;
    world.turn(20_000);
    let said = Progress { permille: Some(375), ..progress_of(task.proof, 1) };
    world.store.progress(&[said]).await.unwrap();

    let expected = format!("Task {job}-0 (stage work) runs on worker worker-noop for 20 s, 37 % done.");
    assert_eq!(reasons(world, job).await, [expected]);
    assert_eq!(world.store.why(job).await.unwrap().state, State::Processing);
}

async fn it_says_that_a_lease_has_expired_and_nobody_looks(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(simple()).await;
    world.claim(worker).await;
    world.execute("DELETE FROM worker").await.unwrap();
    world.turn(LEASE + 2000);

    let reasons = reasons(world, job).await;

    let expected =
        format!("Task {job}-0 (stage work) was running on worker {worker}, whose lease expired 2.0 s ago;");
    assert!(reasons[0].starts_with(&expected), "{reasons:?}");
    assert!(reasons[0].ends_with("no orchestrator is running."));
}

async fn it_says_when_a_task_is_tried_again_and_why(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(simple()).await;
    let task = world.claim(worker).await;
    let failure = failure_of(task.proof, Kind::Transient, "no space left on device");
    world.store.fail(&[failure]).await.unwrap();
    let due_in = world.tasks(job).await[0].due_at.unwrap() - world.now().0;
    world.turn(due_in - 5200);

    let expected =
        format!("Task {job}-0 failed 1 of 3 times and is looked at again in 5.2 s: no space left on device.");
    assert_eq!(reasons(world, job).await, [expected]);
}

async fn it_says_what_a_stage_waits_for(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(planned()).await;
    let task = world.claim(worker).await;

    let waiting = reasons(world, job).await;
    assert_eq!(
        waiting[1..],
        [
            "Stage encode waits for plan (1 of 1 left), whose plan says what it has to do.",
            "Stage package waits for encode (not planned yet).",
        ]
    );

    world.commit_with(&task, json!({ "segments": [1, 2, 3] })).await;
    world.orchestrate().await;
    let one = world.claim(worker).await;
    world.commit(&one).await;
    world.orchestrate().await;
    assert_eq!(reasons(world, job).await.last().unwrap(), "Stage package waits for encode (2 of 3 left).");
}

async fn it_says_that_a_commit_is_not_settled(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(simple()).await;
    let task = world.claim(worker).await;
    world.commit(&task).await;
    world.turn(42_000);

    let expected = "1 task is committed, and not settled for 42 s: an orchestrator does that.";
    assert_eq!(reasons(world, job).await, [expected]);
}

async fn it_says_why_a_job_has_failed(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(simple()).await;
    let task = world.claim(worker).await;
    world.fail(&task, Kind::Permanent).await;
    world.orchestrate().await;

    let expected = format!(
        "It has failed: stage work, task {job}-0: the disk is full. \
         `vodmill job retry {job}` tries again and keeps what was done."
    );
    assert_eq!(reasons(world, job).await, [expected]);
}

async fn it_says_how_a_job_has_ended(world: &World) {
    let worker = world.worker("noop").await;
    let completed = world.submit(simple()).await;
    world.work_off(worker).await;
    let cancelled = world.submit(simple()).await;
    world.store.cancel(cancelled, None).await.unwrap();

    assert_eq!(reasons(world, completed).await, ["It is completed: nothing is left to do."]);
    assert_eq!(reasons(world, cancelled).await, ["It was cancelled."]);
}

async fn it_knows_no_job_that_does_not_exist(world: &World) {
    assert!(matches!(world.store.why(JobId(404)).await, Err(Error::NotFound("job"))));
}
