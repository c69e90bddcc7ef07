//! What workers say of their work: renew, progress, commit, fail.

use crate::shop::{commit_of, failure_of, progress_of, simple, spec, wide};
use crate::world::{DAWN, LEASE, World};
use rules::failure::Kind;
use rules::job::State;
use rules::task::Refusal;
use rules::{Fence, JobId, TaskId, Token, WorkerId};
use serde_json::json;
use store::batch::Batched;
use store::hold::Ownership;
use wire::{Answer, Assignment, Commit, Progress, Proof, Renewal, StepRecord, Usage};

on_both_engines![
    the_first_progress_starts_the_work_and_extends_its_lease,
    progress_is_seen_and_never_goes_back,
    a_renewal_extends_the_lease_and_starts_nothing,
    an_expired_lease_that_nobody_took_back_is_renewed,
    commit_and_fail_are_refused_after_expiry_until_the_lease_is_renewed,
    work_that_stands_still_is_not_renewed,
    nothing_outlives_its_deadline,
    a_plan_gives_large_tasks_more_time,
    a_commit_without_a_start_is_audited_as_two_moves,
    a_commit_said_twice_is_accepted_once,
    a_commit_said_twice_in_one_batch_is_accepted_once,
    a_commit_said_twice_at_once_is_accepted_once,
    late_words_of_a_lost_execution_change_nothing,
    a_worker_that_claims_again_cannot_use_its_old_token,
    a_token_cannot_be_guessed_from_the_fence,
    a_report_by_another_worker_is_refused_even_with_the_token,
    a_report_with_the_number_of_another_execution_is_refused,
    a_committed_execution_cannot_fail,
    a_batch_answers_each_word,
    words_about_one_execution_in_one_batch_all_count,
    a_word_about_a_task_that_does_not_exist_is_refused,
    result_usage_and_steps_of_a_commit_are_kept,
    reason_usage_and_steps_of_a_failure_are_kept,
    steps_of_a_refused_word_are_not_kept,
    no_words_are_answered_with_nothing,
    gathered_words_are_answered_each,
];

fn stage(more: serde_json::Value) -> rules::spec::Spec {
    let mut stage = json!({ "name": "work", "kind": "noop" });
    stage.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    spec(json!([stage]), json!({}))
}

fn a_step(command: &str) -> StepRecord {
    StepRecord {
        kind: "command".into(),
        command: command.into(),
        exit_code: Some(1),
        signal: None,
        stdout_tail: "out".into(),
        stderr_tail: "err".into(),
        duration_ms: 12,
        is_success: false,
        error: Some("exit code 1".into()),
    }
}

const USAGE: Usage = Usage { wall_ms: 1, cpu_ms: 2, peak_memory_bytes: 3, bytes_in: 4, bytes_out: 5 };

/// A running task and who runs it.
async fn running(world: &World) -> (WorkerId, Assignment) {
    let worker = world.worker("noop").await;
    world.submit(simple()).await;
    (worker, world.claim(worker).await)
}

async fn the_first_progress_starts_the_work_and_extends_its_lease(world: &World) {
    let (_, task) = running(world).await;
    world.turn(20_000);

    let said = Progress { step: Some("encoding".into()), permille: Some(125), ..progress_of(task.proof, 3) };
    let answers = world.store.progress(&[said]).await.unwrap();

    assert_eq!(answers, [Answer::Accepted]);
    let execution = world.latest(task.proof.task).await;
    assert_eq!((execution.status.as_str(), execution.started_at), ("IN_PROGRESS", Some(DAWN + 20_000)));
    assert_eq!(execution.lease_expires_at, DAWN + 20_000 + LEASE, "the renewal counts beside the start");
    assert_eq!(world.task(task.proof.task).await.permille, Some(125));
    let (step, progress): (String, i64) = world.rows("SELECT step, progress FROM execution").await.remove(0);
    assert_eq!((step.as_str(), progress), ("encoding", 3));
}

async fn progress_is_seen_and_never_goes_back(world: &World) {
    let (_, task) = running(world).await;
    world.progress(&task, 50).await;
    world.turn(1000);

    let late = world.progress(&task, 20).await;

    assert_eq!(late, Answer::Accepted, "words may overtake each other");
    assert_eq!(world.count("SELECT progress FROM execution").await, 50);
    assert_eq!(world.audited(task.proof.task).await, ["advance", "claim", "start"], "renewals are no moves");
}

async fn a_renewal_extends_the_lease_and_starts_nothing(world: &World) {
    let (_, task) = running(world).await;
    world.turn(LEASE - 1);

    assert_eq!(world.renew(&task, 0).await, Answer::Accepted);

    let execution = world.latest(task.proof.task).await;
    assert_eq!(execution.lease_expires_at, DAWN + LEASE - 1 + LEASE);
    assert_eq!((execution.status.as_str(), execution.started_at), ("LEASED", None));
    world.turn(LEASE - 1);
    assert!(world.store.recover(10).await.unwrap().is_empty());
}

async fn an_expired_lease_that_nobody_took_back_is_renewed(world: &World) {
    let (_, task) = running(world).await;
    world.turn(10 * LEASE);

    assert_eq!(world.renew(&task, 1).await, Answer::Accepted);

    assert!(world.store.recover(10).await.unwrap().is_empty(), "a restart of the server costs no work");
    assert_eq!(world.commit(&task).await, Answer::Accepted);
}

async fn commit_and_fail_are_refused_after_expiry_until_the_lease_is_renewed(world: &World) {
    let (_, task) = running(world).await;
    world.turn(LEASE);

    assert_eq!(world.commit(&task).await, Answer::Refused(Refusal::LeaseExpired));
    assert_eq!(world.fail(&task, Kind::Transient).await, Answer::Refused(Refusal::LeaseExpired));
    assert_eq!(world.statuses(task.proof.task).await, ["LEASED"], "a refused commit starts nothing");

    world.renew(&task, 1).await;
    assert_eq!(world.commit(&task).await, Answer::Accepted);
}

async fn work_that_stands_still_is_not_renewed(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(stage(json!({ "stall_ms": 90_000 }))).await;
    let task = world.claim(worker).await;

    world.turn(50_000);
    assert_eq!(world.renew(&task, 7).await, Answer::Accepted);
    world.turn(50_000);
    assert_eq!(world.renew(&task, 7).await, Answer::Accepted);
    let until = world.latest(task.proof.task).await.lease_expires_at;
    assert_eq!(until, DAWN + 140_000, "only as long as the work may stand still");

    world.turn(40_000);
    assert_eq!(world.renew(&task, 7).await, Answer::Refused(Refusal::Stalled));
    assert_eq!(world.progress(&task, 7).await, Answer::Refused(Refusal::Stalled));
    assert_eq!(world.store.recover(10).await.unwrap().len(), 1, "however lively its worker");
}

async fn a_plan_gives_large_tasks_more_time(world: &World) {
    let worker = world.worker("noop").await;
    let stages = json!([
        { "name": "plan", "kind": "noop" },
        { "name": "work", "kind": "noop", "needs": ["plan"], "expand": "plan", "timeout_ms": 30_000 },
    ]);
    world.submit(spec(stages, json!({}))).await;
    let inputs = json!([{ "extra_ms": 600_000 }, { "extra_ms": -1 }, 7]);
    world.commit_with(&world.claim(worker).await, json!({ "segments": inputs })).await;
    world.orchestrate().await;

    let tasks = world.store.claim(worker, 3).await.unwrap();

    let timeouts: Vec<_> = tasks.iter().map(|task| task.timeout_ms.unwrap()).collect();
    assert_eq!(timeouts, [630_000, 30_000, 30_000]);
    for growing in 1..13 {
        world.turn(50_000);
        assert_eq!(world.renew(&tasks[0], growing).await, Answer::Accepted);
    }
    assert_ne!(world.renew(&tasks[1], 1).await, Answer::Accepted);
    world.turn(100_000);
    assert_eq!(world.renew(&tasks[0], 100).await, Answer::Refused(Refusal::Overdue));
}

async fn nothing_outlives_its_deadline(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(stage(json!({ "timeout_ms": 30_000 }))).await;
    let task = world.claim(worker).await;

    world.turn(50_000);
    assert_eq!(world.progress(&task, 1).await, Answer::Accepted);
    assert_eq!(
        world.latest(task.proof.task).await.lease_expires_at,
        DAWN + 90_000,
        "one lease after its timeout"
    );

    world.turn(40_000);
    assert_eq!(world.progress(&task, 2).await, Answer::Refused(Refusal::Overdue));
    assert_eq!(world.commit(&task).await, Answer::Refused(Refusal::LeaseExpired));
    assert_eq!(world.store.recover(10).await.unwrap().len(), 1);
}

async fn a_commit_without_a_start_is_audited_as_two_moves(world: &World) {
    let (worker, task) = running(world).await;

    assert_eq!(world.commit(&task).await, Answer::Accepted);

    let audit = world.store.audit_of_job(task.job).await.unwrap();
    let moves = audit.iter().skip(2).map(|row| {
        let states = (row.from.as_deref().unwrap(), row.to.as_deref().unwrap());
        let executions = (row.from_execution.as_deref(), row.to_execution.as_deref());
        (row.command.as_str(), states, executions)
    });
    let expected = [
        ("claim", ("READY", "RUNNING"), (None, Some("LEASED"))),
        ("start", ("RUNNING", "RUNNING"), (Some("LEASED"), Some("IN_PROGRESS"))),
        ("commit", ("RUNNING", "DONE"), (Some("IN_PROGRESS"), Some("COMMITTED"))),
    ];
    assert_eq!(moves.collect::<Vec<_>>(), expected);
    let last = audit.last().unwrap();
    assert_eq!((last.role.as_str(), last.fence), ("worker", Some(1)));
    assert_eq!(last.worker.as_deref(), Some(worker.to_string().as_str()));
    let execution = world.latest(task.proof.task).await;
    assert_eq!((execution.started_at, execution.committed_at), (Some(DAWN), Some(DAWN)));
}

async fn a_commit_said_twice_is_accepted_once(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(stage(json!({ "effect": { "append": "effects.log" } }))).await;
    let task = world.claim(worker).await;
    world.commit_with(&task, json!("first")).await;

    let again = world.commit_with(&task, json!("second")).await;
    world.orchestrate().await;
    let after_settling = world.commit_with(&task, json!("third")).await;

    assert_eq!((again, after_settling), (Answer::AlreadyAccepted, Answer::AlreadyAccepted));
    assert_eq!(world.rows::<(String,)>("SELECT result FROM execution").await, [("\"first\"".to_owned(),)]);
    assert_eq!(world.count("SELECT count(*) FROM outbox WHERE topic = 'append'").await, 1);
    let commits = world.audited(task.proof.task).await.iter().filter(|said| *said == "commit").count();
    assert_eq!(commits, 1);
}

async fn a_commit_said_twice_in_one_batch_is_accepted_once(world: &World) {
    let (_, task) = running(world).await;

    let answers = world.store.commit(&[commit_of(task.proof), commit_of(task.proof)]).await.unwrap();

    assert_eq!(answers, [Answer::Accepted, Answer::AlreadyAccepted]);
}

async fn a_commit_said_twice_at_once_is_accepted_once(world: &World) {
    let worker = world.worker("noop").await;
    let another = world.elsewhere().await;
    for round in 1..=10 {
        world.submit(stage(json!({ "effect": { "append": "effects.log" } }))).await;
        let commit = [commit_of(world.claim(worker).await.proof)];

        // Its answer took too long, so the worker says it again, to another server.
        let (here, there) = tokio::join!(world.store.commit(&commit), another.commit(&commit));

        let mut answers = [here.unwrap()[0], there.unwrap()[0]];
        answers.sort_by_key(|answer| *answer != Answer::Accepted);
        assert_eq!(answers, [Answer::Accepted, Answer::AlreadyAccepted]);
        assert_eq!(world.count("SELECT count(*) FROM outbox WHERE topic = 'append'").await, round);
    }
    world.orchestrate().await;
}

/// FM_001: A leases and falls silent, B takes over and commits, A wakes up.
async fn late_words_of_a_lost_execution_change_nothing(world: &World) {
    let (_, lost) = running(world).await;
    let b = world.worker("noop").await;
    world.progress(&lost, 1).await;
    world.turn(LEASE);
    world.store.recover(10).await.unwrap();

    for while_ready in [world.commit(&lost).await, world.fail(&lost, Kind::Permanent).await] {
        assert_eq!(while_ready, Answer::Refused(Refusal::NotRunning));
    }
    let taken = world.claim(b).await;
    assert_eq!(taken.attempt, 2);
    for while_running in [
        world.commit_with(&lost, json!("A's")).await,
        world.fail(&lost, Kind::Permanent).await,
        world.renew(&lost, 9).await,
        world.progress(&lost, 9).await,
    ] {
        assert_eq!(while_running, Answer::Refused(Refusal::StaleToken));
    }
    assert_eq!(world.commit_with(&taken, json!("B's")).await, Answer::Accepted);
    world.orchestrate().await;
    for after_commit in [
        world.commit_with(&lost, json!("A's")).await,
        world.fail(&lost, Kind::Permanent).await,
        world.renew(&lost, 9).await,
        world.progress(&lost, 9).await,
    ] {
        assert_eq!(after_commit, Answer::Refused(Refusal::CommittedByOther));
    }

    world.orchestrate().await;
    assert!(world.is(lost.job, State::Completed).await);
    assert_eq!(world.statuses(lost.proof.task).await, ["ABORTED", "DONE"]);
    let results: Vec<(String,)> = world.rows("SELECT result FROM execution WHERE result IS NOT NULL").await;
    assert_eq!(results, [("\"B's\"".to_owned(),)]);
    let moves = world.audited(lost.proof.task).await;
    assert_eq!(moves, ["advance", "claim", "start", "recover", "claim", "start", "commit", "settle"]);
}

async fn a_worker_that_claims_again_cannot_use_its_old_token(world: &World) {
    let (worker, old) = running(world).await;
    world.turn(LEASE);
    world.store.recover(10).await.unwrap();
    let new = world.claim(worker).await;
    assert_eq!(new.proof.task, old.proof.task);

    assert_eq!(world.commit(&old).await, Answer::Refused(Refusal::StaleToken));
    assert_eq!(world.renew(&old, 1).await, Answer::Refused(Refusal::StaleToken));

    assert_eq!(world.commit(&new).await, Answer::Accepted);
    assert_eq!(world.commit(&old).await, Answer::Refused(Refusal::CommittedByOther));
}

async fn a_token_cannot_be_guessed_from_the_fence(world: &World) {
    let (_, task) = running(world).await;

    let forged = Proof { token: Token(task.proof.fence.0), ..task.proof };

    assert_eq!(world.say(commit_of(forged)).await, Answer::Refused(Refusal::StaleToken));
    assert_eq!(world.task_states(task.job).await, ["RUNNING"]);
}

/// What each kind of report comes to, if this proof is shown with it.
async fn reports(world: &World, proof: Proof) -> Vec<Answer> {
    let store = &world.store;
    let answers = [
        store.renew(&[Renewal { proof, progress: 1 }]).await.unwrap(),
        store.progress(&[progress_of(proof, 1)]).await.unwrap(),
        store.fail(&[failure_of(proof, Kind::Permanent, "it lies")]).await.unwrap(),
        store.fail(&[failure_of(proof, Kind::Drained, "it lies")]).await.unwrap(),
        store.commit(&[commit_of(proof)]).await.unwrap(),
    ];
    answers.concat()
}

async fn a_report_by_another_worker_is_refused_even_with_the_token(world: &World) {
    let (_, task) = running(world).await;
    let stolen = Proof { worker: world.worker("noop").await, ..task.proof };

    assert_eq!(reports(world, stolen).await, [Answer::Refused(Refusal::StaleToken); 5]);
    assert_eq!(world.store.ownership(stolen).await.unwrap(), Ownership::Foreign);
    assert_eq!(world.statuses(task.proof.task).await, ["LEASED"], "none of it changed anything");

    assert_eq!(world.commit(&task).await, Answer::Accepted);
    assert_eq!(reports(world, stolen).await, [Answer::Refused(Refusal::CommittedByOther); 5]);
    assert_eq!(world.store.ownership(stolen).await.unwrap(), Ownership::Foreign);
}

async fn a_report_with_the_number_of_another_execution_is_refused(world: &World) {
    let (_, task) = running(world).await;
    let other = Proof { fence: Fence(task.proof.fence.0 + 1), ..task.proof };

    assert_eq!(reports(world, other).await, [Answer::Refused(Refusal::StaleToken); 5]);
    assert_eq!(world.store.ownership(other).await.unwrap(), Ownership::Unknown);
    assert_eq!(world.store.ownership(task.proof).await.unwrap(), Ownership::Current);
}

async fn a_committed_execution_cannot_fail(world: &World) {
    let (_, task) = running(world).await;
    assert_eq!(world.commit(&task).await, Answer::Accepted);

    for kind in [Kind::Transient, Kind::Permanent, Kind::Drained] {
        assert_eq!(world.fail(&task, kind).await, Answer::Refused(Refusal::CommittedByYou));
    }
    assert_eq!(world.commit(&task).await, Answer::AlreadyAccepted);
    assert_eq!(world.store.ownership(task.proof).await.unwrap(), Ownership::Committed);
}

async fn a_batch_answers_each_word(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(wide(5)).await;
    let tasks = world.store.claim(worker, 5).await.unwrap();
    world.commit(&tasks[1]).await;
    world.fail(&tasks[2], Kind::Transient).await;
    let forged = Proof { token: Token(1), ..tasks[3].proof };
    let unknown = Proof { task: TaskId::new(JobId(99), 0), fence: Fence(1), token: Token(1), worker };

    let proofs = [tasks[4].proof, forged, tasks[1].proof, unknown, tasks[2].proof, tasks[0].proof];
    let answers = world.store.commit(&proofs.map(commit_of)).await.unwrap();

    let expected = [
        Answer::Accepted,
        Answer::Refused(Refusal::StaleToken),
        Answer::AlreadyAccepted,
        Answer::Refused(Refusal::NotRunning),
        Answer::Refused(Refusal::NotRunning),
        Answer::Accepted,
    ];
    assert_eq!(answers, expected);
    assert_eq!(world.task_states(tasks[0].job).await, ["DONE", "DONE", "ERROR", "RUNNING", "DONE"]);
}

async fn words_about_one_execution_in_one_batch_all_count(world: &World) {
    let (_, task) = running(world).await;
    let step =
        |step: &str, progress| Progress { step: Some(step.into()), ..progress_of(task.proof, progress) };
    world.turn(10_000);

    let answers =
        world.store.progress(&[step("one", 1), step("two", 2), progress_of(task.proof, 3)]).await.unwrap();
    world.turn(10_000);
    let renewal = |progress| Renewal { proof: task.proof, progress };
    world.store.renew(&[renewal(4), renewal(5)]).await.unwrap();

    assert_eq!(answers, [Answer::Accepted; 3]);
    let (step, progress): (String, i64) = world.rows("SELECT step, progress FROM execution").await.remove(0);
    assert_eq!((step.as_str(), progress), ("two", 5));
    assert_eq!(world.latest(task.proof.task).await.lease_expires_at, DAWN + 20_000 + LEASE);
}

async fn a_word_about_a_task_that_does_not_exist_is_refused(world: &World) {
    let worker = world.worker("noop").await;
    let proof = Proof { task: TaskId::new(JobId(7), 3), fence: Fence(1), token: Token(1), worker };

    let answers = [
        world.store.commit(&[commit_of(proof)]).await.unwrap(),
        world.store.fail(&[failure_of(proof, Kind::Transient, "")]).await.unwrap(),
        world.store.renew(&[Renewal { proof, progress: 1 }]).await.unwrap(),
        world.store.progress(&[progress_of(proof, 1)]).await.unwrap(),
    ];

    assert!(answers.iter().all(|answer| *answer == [Answer::Refused(Refusal::NotRunning)]));
}

async fn result_usage_and_steps_of_a_commit_are_kept(world: &World) {
    let (_, task) = running(world).await;
    world.turn(5);

    let steps = vec![a_step("ffprobe"), a_step("ffmpeg")];
    let result = Some(json!({ "frames": 250 }));
    let said = world.say(Commit { result, usage: USAGE, steps, ..commit_of(task.proof) }).await;

    assert_eq!(said, Answer::Accepted);
    let kept = world.latest(task.proof.task).await;
    let usage = [kept.wall_ms, kept.cpu_ms, kept.peak_memory_bytes, kept.bytes_in, kept.bytes_out];
    assert_eq!(usage, [1, 2, 3, 4, 5].map(Some));
    let result: Vec<(String,)> = world.rows("SELECT result FROM execution").await;
    assert_eq!(result, [("{\"frames\":250}".to_owned(),)]);
    let steps = world.store.steps_of_job(task.job).await.unwrap();
    assert_eq!(steps.iter().map(|step| step.command.as_str()).collect::<Vec<_>>(), ["ffprobe", "ffmpeg"]);
    assert_eq!(steps[0].execution, task.proof.execution().into());
    assert_eq!((steps[0].at, steps[0].exit_code, steps[0].is_success), (DAWN + 5, Some(1), false));
    assert_eq!((steps[1].stdout_tail.as_str(), steps[1].stderr_tail.as_str()), ("out", "err"));
}

async fn reason_usage_and_steps_of_a_failure_are_kept(world: &World) {
    let (_, task) = running(world).await;

    let mut failure = failure_of(task.proof, Kind::Transient, "no space left on device");
    (failure.usage, failure.steps) = (USAGE, vec![a_step("ffmpeg")]);
    let answers = world.store.fail(&[failure]).await.unwrap();

    assert_eq!(answers, [Answer::Accepted]);
    let kept = world.latest(task.proof.task).await;
    assert_eq!(kept.error.as_deref(), Some("no space left on device"));
    assert_eq!((kept.status.as_str(), kept.failure.as_deref()), ("ABORTED", Some("transient")));
    assert_eq!((kept.wall_ms, kept.bytes_out), (Some(1), Some(5)));
    assert_eq!(world.store.steps_of_job(task.job).await.unwrap().len(), 1);
}

async fn steps_of_a_refused_word_are_not_kept(world: &World) {
    let (_, task) = running(world).await;
    world.turn(LEASE);

    world.say(Commit { steps: vec![a_step("ffmpeg")], ..commit_of(task.proof) }).await;

    assert!(world.store.steps_of_job(task.job).await.unwrap().is_empty());
}

async fn no_words_are_answered_with_nothing(world: &World) {
    let answers = [
        world.store.commit(&[]).await.unwrap(),
        world.store.fail(&[]).await.unwrap(),
        world.store.renew(&[]).await.unwrap(),
        world.store.progress(&[]).await.unwrap(),
    ];

    assert!(answers.iter().all(Vec::is_empty));
}

async fn gathered_words_are_answered_each(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(wide(60)).await;
    let tasks = world.store.claim(worker, 60).await.unwrap();
    let desk = Batched::new(&world.store);

    let said = tasks.into_iter().map(|task| {
        let desk = desk.clone();
        tokio::spawn(async move {
            desk.progress(progress_of(task.proof, 1)).await.unwrap();
            match task.segment % 3 {
                0 => desk.fail(failure_of(task.proof, Kind::Transient, "")).await.unwrap(),
                1 => desk.commit(commit_of(task.proof)).await.unwrap(),
                _ => desk.commit(commit_of(Proof { token: Token(1), ..task.proof })).await.unwrap(),
            }
        })
    });
    let mut refused = 0;
    for said in said.collect::<Vec<_>>() {
        refused += usize::from(said.await.unwrap() == Answer::Refused(Refusal::StaleToken));
    }

    assert_eq!(refused, 20);
    let states = world.task_states(job).await;
    let count = |state| states.iter().filter(|one| *one == state).count();
    assert_eq!((count("ERROR"), count("DONE"), count("RUNNING")), (20, 20, 20));
}
