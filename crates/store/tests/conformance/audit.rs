//! The audit: tasks that moved alike are one row, and each of them is told of.

use crate::shop::{commit_all, commit_of, failure_of, progress_of, wide};
use crate::world::{LEASE, World};
use rules::failure::Kind;
use rules::{JobId, TaskId, VideoId};
use serde_json::json;
use store::detail::{AuditView, MAX_ROWS};
use wire::{Assignment, Commit, Failure, Publication};

on_both_engines![
    a_batch_that_moves_alike_is_one_row,
    a_run_tells_each_move_of_each_task,
    a_run_ends_at_a_gap,
    a_run_ends_with_its_job,
    a_run_ends_where_another_note_begins,
    a_run_ends_where_another_fence_begins,
    rows_of_a_task_stay_in_order_whatever_its_neighbours_do,
    a_long_run_is_told_as_far_as_a_listing_goes,
];

/// Rows about tasks that were written for this command: their first task's number, and how many they speak for.
async fn runs(world: &World, command: &str) -> Vec<(String, i64)> {
    let all: Vec<(String, i64, i64)> =
        world.rows("SELECT command, task_id, tasks FROM audit WHERE task_id IS NOT NULL ORDER BY id").await;
    let of_command = all.into_iter().filter(|(said, ..)| said == command);
    of_command.map(|(_, task, tasks)| (TaskId(task).to_string(), tasks)).collect()
}

fn run(first: &str, tasks: i64) -> (String, i64) {
    (first.into(), tasks)
}

async fn told(world: &World, job: JobId, command: &str) -> Vec<AuditView> {
    let all = world.store.audit_of_job(job).await.unwrap();
    all.into_iter().filter(|row| row.command == command).collect()
}

/// So many tasks of a new job, leased to one worker.
async fn claimed(world: &World, tasks: u32) -> Vec<Assignment> {
    let worker = world.worker("noop").await;
    world.submit(wide(tasks)).await;
    world.store.claim(worker, tasks).await.unwrap()
}

fn failures(tasks: &[Assignment], message: impl Fn(usize) -> String) -> Vec<Failure> {
    let failure = |(at, task): (usize, &Assignment)| failure_of(task.proof, Kind::Transient, &message(at));
    tasks.iter().enumerate().map(failure).collect()
}

async fn a_batch_that_moves_alike_is_one_row(world: &World) {
    let tasks = claimed(world, 1000).await;

    commit_all(&world.store, &tasks[..999]).await;

    assert_eq!(runs(world, "advance").await, [run("1-0", 1000)]);
    assert_eq!(runs(world, "claim").await, [run("1-0", 1000)]);
    assert_eq!(runs(world, "commit").await, [run("1-0", 999)]);
}

async fn a_run_tells_each_move_of_each_task(world: &World) {
    let tasks = claimed(world, 40).await;
    commit_all(&world.store, &tasks[..39]).await;

    for task in &tasks[..39] {
        let moves = ["advance", "claim", "start", "commit", "settle"];
        assert_eq!(world.audited(task.proof.task).await, moves);
    }
    let commits = told(world, tasks[0].job, "commit").await;
    let told: Vec<_> = commits.iter().map(|row| row.task.unwrap()).collect();
    assert_eq!(told, tasks[..39].iter().map(|task| task.proof.task).collect::<Vec<_>>());
    assert!(commits.iter().all(|row| row.worker == commits[0].worker && row.fence == Some(1)));
}

async fn a_run_ends_at_a_gap(world: &World) {
    let mut tasks = claimed(world, 6).await;
    tasks.remove(2);

    commit_all(&world.store, &tasks[..4]).await;

    assert_eq!(runs(world, "commit").await, [run("1-0", 2), run("1-3", 2)]);
}

async fn a_run_ends_with_its_job(world: &World) {
    let worker = world.worker("noop").await;
    for _ in 0..2 {
        world.submit(wide(3)).await;
    }

    world.store.claim(worker, 6).await.unwrap();

    assert_eq!(runs(world, "claim").await, [run("1-0", 3), run("2-0", 3)]);
}

async fn a_run_ends_where_another_note_begins(world: &World) {
    let tasks = claimed(world, 5).await;
    let said = failures(&tasks, |at| if at < 2 { "out of memory" } else { "out of disk" }.into());

    world.store.fail(&said).await.unwrap();

    assert_eq!(runs(world, "fail").await, [run("1-0", 2), run("1-2", 3)]);
    let notes: Vec<_> =
        told(world, tasks[0].job, "fail").await.into_iter().map(|row| row.note.unwrap()).collect();
    assert_eq!(notes, ["out of memory", "out of memory", "out of disk", "out of disk", "out of disk"]);
}

async fn a_run_ends_where_another_fence_begins(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(wide(4)).await;
    let tasks = world.store.claim(worker, 4).await.unwrap();
    world.fail(&tasks[1], Kind::Transient).await;
    world.turn(LEASE - 1);
    world.orchestrate().await;
    let again = world.claim(worker).await;

    let commits = [&tasks[0], &again, &tasks[2]].map(|task| commit_of(task.proof));
    world.store.commit(&commits).await.unwrap();

    assert_eq!(runs(world, "commit").await, [run("1-0", 1), run("1-1", 1), run("1-2", 1)]);
    let fences: Vec<_> = told(world, tasks[0].job, "commit").await.iter().map(|row| row.fence).collect();
    assert_eq!(fences, [Some(1), Some(2), Some(1)]);
}

/// Every so many of these have begun when all of them are refused, and of the others two moves are told. Many rows are sent
/// by kind: the start of each comes before its failure all the same, and the doctor looks.
async fn rows_of_a_task_stay_in_order_whatever_its_neighbours_do(world: &World) {
    let worker = world.worker("noop").await;
    for every in [50, 2] {
        world.submit(wide(80)).await;
        let tasks = world.store.claim(worker, 80).await.unwrap();
        let begun: Vec<_> = tasks.iter().step_by(every).map(|task| progress_of(task.proof, 1)).collect();
        world.store.progress(&begun).await.unwrap();

        let nowhere = Publication { video: VideoId(99), manifest: json!({}), renditions: Vec::new() };
        let refused =
            |task: &Assignment| Commit { publication: Some(nowhere.clone()), ..commit_of(task.proof) };
        world.store.commit(&tasks.iter().map(refused).collect::<Vec<_>>()).await.unwrap();

        for task in &tasks {
            assert_eq!(world.audited(task.proof.task).await, ["advance", "claim", "start", "fail"]);
        }
    }
    let of_first: Vec<_> = runs(world, "fail").await.into_iter().take(4).collect();
    assert_eq!(of_first, [run("1-0", 1), run("1-50", 1), run("1-1", 49), run("1-51", 29)]);
}

async fn a_long_run_is_told_as_far_as_a_listing_goes(world: &World) {
    let job = world.submit(wide(MAX_ROWS as u32 + 500)).await;

    let told = world.store.audit_of_job(job).await.unwrap();

    assert_eq!(runs(world, "advance").await, [run("1-0", MAX_ROWS + 500)]);
    assert_eq!(told.len() as i64, MAX_ROWS);
    assert_eq!(told.last().unwrap().task, Some(TaskId::new(job, MAX_ROWS - 2)), "one is the job's");
}
