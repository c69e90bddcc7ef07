//! Events, read from a cursor on.

use crate::shop::{commit_all, commit_of, new_job, planned, progress_of, simple, wide};
use crate::world::{OFFLINE, World};
use rules::worker::Command;
use rules::{JobId, TaskId, VideoId, failure};
use serde_json::json;
use sqlx::postgres::PgConnection;
use std::time::{Duration, Instant};
use store::event::{Event, What};
use store::{Cursor, Store};
use wire::{Commit, Publication};

on_both_engines![
    a_job_is_told_from_its_submission_to_its_end,
    a_reader_that_remembers_its_cursor_sees_each_event_once,
    pages_of_any_size_tell_the_same,
    a_run_is_told_task_by_task,
    who_stopped_inside_a_run_is_told_the_rest_of_it,
    a_page_is_no_longer_than_asked_for_however_long_a_run_is,
    a_cursor_of_old_stands_behind_the_whole_row,
    a_claim_of_many_begins_its_job_once,
    a_place_that_a_run_does_not_have_is_behind_it,
    a_segment_says_where_it_stands,
    a_failed_and_a_recovered_attempt_are_told,
    what_happens_to_a_video_is_told,
    what_happens_to_a_worker_is_told,
    an_archived_job_is_told_of_with_what_is_left,
    who_reads_from_the_end_sees_only_what_comes,
    work_under_way_is_shown,
];

on_postgres_alone![
    rows_of_a_slow_transaction_are_not_missed,
    a_reader_stands_before_what_runs_and_passes_what_was_rolled_back,
];

on_sqlite_alone![numbers_of_dropped_history_are_not_given_again];

/// Everything from the beginning on, in pages of `max`.
async fn all(store: &Store, max: i64) -> Vec<Event> {
    read(store, "0-0".parse().unwrap(), max).await.0
}

async fn read(store: &Store, mut at: Cursor, max: i64) -> (Vec<Event>, Cursor) {
    let mut events = Vec::new();
    loop {
        let page = store.events(at, max).await.unwrap();
        assert!(page.is_last || page.next > at, "{at} leads nowhere");
        events.extend(page.events);
        at = page.next;
        if page.is_last {
            return (events, at);
        }
    }
}

/// Waits until what was done is told: transactions of other tests hold the end back for a moment.
async fn told(world: &World) -> Vec<Event> {
    passed(world).await;
    all(&world.store, 1000).await
}

/// Waits until the end of events is behind everything that was done.
async fn passed(world: &World) -> Cursor {
    let begun = Instant::now();
    loop {
        let end = world.store.events_end().await.unwrap();
        let hidden = if world.store.is_postgres() {
            let newest = world.count("SELECT coalesce(max(xact), 0) FROM audit").await;
            let end = end.to_string();
            let (xact, _) = end.split_once('.').unwrap().1.split_once('-').unwrap();
            xact.parse::<i64>().unwrap() <= newest
        } else {
            false
        };
        if !hidden {
            return end;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "the end of events stands still");
        tokio::task::yield_now().await;
    }
}

fn words(events: &[Event]) -> Vec<String> {
    let word = |event: &Event| match &event.what {
        What::Job(job) => format!("job {} {}", job.what, job.state),
        What::Segment(segment) => {
            let stage = segment.place.as_ref().map_or("?", |place| place.stage.as_str());
            format!("segment {} {stage}", segment.what)
        }
        What::Video(video) => format!("video {}", video.what),
        What::Worker(worker) => format!("worker {}", worker.status),
    };
    events.iter().map(word).collect()
}

async fn a_job_is_told_from_its_submission_to_its_end(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(planned()).await;
    let plan = world.claim(worker).await;
    world.commit_with(&plan, json!({ "segments": [{ "from": 0 }, { "from": 6 }] })).await;
    world.work_off(worker).await;

    let events = told(world).await;

    assert_eq!(
        words(&events),
        [
            "worker active",
            "job submitted pending",
            "job state planning",
            "segment done plan",
            "job state processing",
            "segment done encode",
            "segment done encode",
            "job state uploading_outputs",
            "segment done package",
            "job ended completed",
        ]
    );
    assert!(events[1..].iter().all(|event| event.job == Some(job)));
    assert!(events.is_sorted_by_key(|event| event.cursor));
}

async fn a_reader_that_remembers_its_cursor_sees_each_event_once(world: &World) {
    let worker = world.worker("noop").await;
    let (mut seen, mut at) = (Vec::new(), "0-0".parse().unwrap());
    for _ in 0..5 {
        world.submit(wide(3)).await;
        world.work_off(worker).await;
        let (events, next) = read(&world.store, at, 4).await;
        seen.extend(events);
        at = next.to_string().parse().unwrap();
    }
    passed(world).await;
    seen.extend(read(&world.store, at, 4).await.0);

    let cursors = |events: &[Event]| events.iter().map(|event| event.cursor).collect::<Vec<_>>();
    assert_eq!(cursors(&seen), cursors(&told(world).await));
    assert_eq!(seen.len(), 1 + 5 * 6);
}

async fn pages_of_any_size_tell_the_same(world: &World) {
    let worker = world.worker("noop").await;
    for _ in 0..3 {
        world.submit(wide(2)).await;
    }
    world.work_off(worker).await;

    let whole = told(world).await;

    for max in [1, 2, 3, 7] {
        assert_eq!(all(&world.store, max).await, whole, "in pages of {max}");
    }
}

/// A job of so many tasks, all but the last one of which are committed in one batch.
async fn committed(world: &World, tasks: u32) -> JobId {
    let worker = world.worker("noop").await;
    let job = world.submit(wide(tasks)).await;
    let claimed = world.store.claim(worker, tasks).await.unwrap();
    commit_all(&world.store, &claimed[..claimed.len() - 1]).await;
    assert_eq!(world.count("SELECT count(*) FROM audit WHERE command = 'commit'").await, 1);
    world.submit(simple()).await;
    job
}

fn tasks(events: &[Event]) -> Vec<TaskId> {
    let task = |event: &Event| match &event.what {
        What::Segment(segment) => Some(segment.task),
        _ => None,
    };
    events.iter().filter_map(task).collect()
}

async fn a_run_is_told_task_by_task(world: &World) {
    let job = committed(world, 8).await;

    let events = told(world).await;

    assert_eq!(tasks(&events), (0..7).map(|number| TaskId::new(job, number)).collect::<Vec<_>>());
    let is_placed = |event: &Event| match &event.what {
        What::Segment(segment) => {
            segment.place.as_ref().map(|place| place.segment) == Some(segment.task.0 % TaskId::PER_JOB)
        }
        _ => true,
    };
    assert!(events.iter().all(is_placed), "{events:?}");
    assert!(events.is_sorted_by(|event, later| event.cursor < later.cursor), "each has a place of its own");
}

async fn who_stopped_inside_a_run_is_told_the_rest_of_it(world: &World) {
    committed(world, 8).await;

    let events = told(world).await;

    for (at, event) in events.iter().enumerate() {
        let last_event_id = event.cursor.to_string();
        for max in [1, 2, 3, 7, 100] {
            let (rest, _) = read(&world.store, last_event_id.parse().unwrap(), max).await;
            assert_eq!(rest, events[at + 1..], "after {last_event_id}, in pages of {max}");
        }
    }
}

async fn a_page_is_no_longer_than_asked_for_however_long_a_run_is(world: &World) {
    committed(world, 8).await;
    let whole = told(world).await;

    for max in 1..12 {
        let (mut at, mut events) = ("0-0".parse().unwrap(), Vec::new());
        loop {
            let page = world.store.events(at, max).await.unwrap();
            assert!(page.events.len() as i64 <= max && (page.is_last || page.next > at));
            events.extend(page.events);
            at = page.next;
            if page.is_last {
                break;
            }
        }
        assert_eq!(events, whole, "in pages of {max}");
    }
}

async fn a_cursor_of_old_stands_behind_the_whole_row(world: &World) {
    committed(world, 8).await;
    let events = told(world).await;
    let first = events.iter().position(|event| matches!(event.what, What::Segment(_))).unwrap();
    let inside = events[first].cursor.to_string();
    let (of_old, _) = inside.rsplit_once('-').unwrap();

    let (rest, _) = read(&world.store, of_old.parse().unwrap(), 3).await;

    assert_eq!(events[first + 6].cursor.to_string(), of_old, "it is the place of the run's last task");
    assert_eq!(rest, events[first + 7..]);
}

async fn a_claim_of_many_begins_its_job_once(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(wide(5)).await;
    world.store.claim(worker, 3).await.unwrap();
    world.store.claim(worker, 2).await.unwrap();

    let events = told(world).await;

    assert_eq!(words(&events), ["worker active", "job submitted pending", "job state processing"]);
    let begun = events.last().unwrap().cursor.to_string();
    assert_eq!(begun.split('-').count(), 2, "nothing is left of the row: {begun}");
}

async fn a_place_that_a_run_does_not_have_is_behind_it(world: &World) {
    committed(world, 3).await;
    let events = told(world).await;

    for event in &events {
        let place = event.cursor.to_string();
        let row = place.split('-').take(2).collect::<Vec<_>>().join("-");
        for max in [1, 10] {
            let (beyond, _) = read(&world.store, format!("{row}-99").parse().unwrap(), max).await;
            let (behind, _) = read(&world.store, row.parse().unwrap(), max).await;
            assert_eq!(beyond, behind, "after {row}-99, in pages of {max}");
        }
    }
}

async fn a_segment_says_where_it_stands(world: &World) {
    let worker = world.worker("noop").await;
    let video = world.video("talk").await;
    let job = world.submit_for(video, planned()).await;
    let plan = world.claim(worker).await;
    world.commit_with(&plan, json!({ "segments": [{ "from": 0 }, { "from": 6 }] })).await;
    world.orchestrate().await;
    let first = world.claim(worker).await;
    world.commit(&first).await;

    let events = told(world).await;

    let event = events.last().unwrap();
    let What::Segment(segment) = &event.what else { panic!("{event:?}") };
    let place = segment.place.as_ref().unwrap();
    assert_eq!((event.job, event.video), (Some(job), Some(video)));
    assert_eq!((place.stage.as_str(), place.segment, place.done, place.total), ("encode", 0, 1, 2));
    assert_eq!(place.input, Some(json!({ "from": 0 })));
    assert_eq!((segment.attempt, segment.worker.clone()), (1, Some(worker.to_string())));
}

async fn a_failed_and_a_recovered_attempt_are_told(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(simple()).await;
    let first = world.claim(worker).await;
    world.fail(&first, failure::Kind::Transient).await;
    world.turn(1_000_000);
    world.orchestrate().await;
    world.claim(worker).await;
    world.turn(1_000_000);
    world.orchestrate().await;

    let events = told(world).await;

    let failed = events.iter().filter_map(|event| match &event.what {
        What::Segment(segment) => Some((segment.what, segment.attempt, segment.failure.clone())),
        _ => None,
    });
    let expected =
        [("failed", 1, Some("transient".to_owned())), ("failed", 2, Some("lease_expired".to_owned()))];
    assert_eq!(failed.collect::<Vec<_>>(), expected);
}

/// Lets a job publish the video.
async fn publish(world: &World, video: VideoId) {
    let worker = world.worker("noop").await;
    world.submit_for(video, simple()).await;
    let task = world.claim(worker).await;
    let publication = Publication { video, manifest: json!({}), renditions: Vec::new() };
    world.say(Commit { publication: Some(publication), ..commit_of(task.proof) }).await;
    world.orchestrate().await;
}

async fn what_happens_to_a_video_is_told(world: &World) {
    let video = world.video("talk").await;
    publish(world, video).await;
    world.store.delete_video(video).await.unwrap();
    world.store.restore_video(video).await.unwrap();
    world.store.delete_video(video).await.unwrap();
    world.store.purge_video(video).await.unwrap();

    let events = told(world).await;

    let of_video: Vec<_> = events.into_iter().filter(|event| matches!(event.what, What::Video(_))).collect();
    let expected = ["published", "deleted", "restored", "deleted", "purged"];
    assert_eq!(words(&of_video), expected.map(|what| format!("video {what}")));
    assert!(of_video.iter().all(|event| event.video == Some(video)));
}

async fn what_happens_to_a_worker_is_told(world: &World) {
    let worker = world.worker("noop").await;
    world.store.manage_worker(worker, Command::Drain).await.unwrap();
    world.store.manage_worker(worker, Command::Enable).await.unwrap();
    world.turn(OFFLINE);
    world.store.mark_offline(10).await.unwrap();

    let events = told(world).await;

    let expected = ["worker active", "worker draining", "worker active", "worker offline"];
    assert_eq!(words(&events), expected);
}

async fn an_archived_job_is_told_of_with_what_is_left(world: &World) {
    let worker = world.worker("noop").await;
    let video = world.video("talk").await;
    world.submit_for(video, simple()).await;
    world.work_off(worker).await;
    world.turn(1);
    world.store.archive(world.now(), 10).await.unwrap();

    let events = told(world).await;

    assert_eq!(events.last().map(|event| event.video), Some(Some(video)));
    assert!(words(&events).contains(&"segment done ?".into()), "{events:?}");
}

async fn who_reads_from_the_end_sees_only_what_comes(world: &World) {
    world.submit(simple()).await;
    let end = passed(world).await;

    assert!(read(&world.store, end, 10).await.0.is_empty());
    let job = world.submit(simple()).await;
    passed(world).await;

    let (events, _) = read(&world.store, end, 10).await;
    assert_eq!(events.iter().map(|event| event.job).collect::<Vec<_>>(), [Some(job)]);
}

async fn work_under_way_is_shown(world: &World) {
    let worker = world.worker("noop").await;
    let video = world.video("talk").await;
    let job = world.submit_for(video, simple()).await;
    let task = world.claim(worker).await;
    assert!(world.store.running(10).await.unwrap().is_empty(), "it has not begun");
    let progress =
        wire::Progress { step: Some("cut".into()), permille: Some(250), ..progress_of(task.proof, 1) };
    world.store.progress(&[progress]).await.unwrap();

    let running = world.store.running(10).await.unwrap();

    let [one] = running.as_slice() else { panic!("{running:?}") };
    assert_eq!((one.job, one.video, one.stage.as_str()), (job, Some(video), "work"));
    assert_eq!((one.permille, one.step.as_deref()), (Some(250), Some("cut")));
    assert_eq!(world.store.loads(10).await.unwrap()[0].status, "idle");
}

const SLOW: &str = "
INSERT INTO audit (at, job_id, role, command, note) VALUES (1763200000000, 7777, 'user', 'submit', 'slow')";

/// Two transactions: the first to begin, and the first to take a number, commits last.
async fn rows_of_a_slow_transaction_are_not_missed(world: &World) {
    let before = passed(world).await;
    let mut slow: PgConnection = world.database.connect().await;
    sqlx::raw_sql("BEGIN").execute(&mut slow).await.unwrap();
    sqlx::raw_sql(SLOW).execute(&mut slow).await.unwrap();
    let quick = world.store.submit(&new_job(simple())).await.unwrap().id();

    let (early, at) = read(&world.store, before, 10).await;
    sqlx::raw_sql("COMMIT").execute(&mut slow).await.unwrap();
    passed(world).await;
    let (late, at) = read(&world.store, at, 10).await;

    assert!(early.is_empty(), "nothing is told while something older may still come: {early:?}");
    let jobs: Vec<_> = late.iter().map(|event| event.job.unwrap().0).collect();
    assert_eq!(jobs, [7777, quick.0], "both, once, in the order of their beginning");
    assert!(read(&world.store, at, 10).await.0.is_empty());
}

async fn a_reader_stands_before_what_runs_and_passes_what_was_rolled_back(world: &World) {
    let mut slow: PgConnection = world.database.connect().await;
    sqlx::raw_sql("BEGIN").execute(&mut slow).await.unwrap();
    sqlx::raw_sql(SLOW).execute(&mut slow).await.unwrap();
    let (_, at) = read(&world.store, "0-0".parse().unwrap(), 10).await;
    let job = world.submit(simple()).await;

    sqlx::raw_sql("ROLLBACK").execute(&mut slow).await.unwrap();
    passed(world).await;

    let (events, _) = read(&world.store, at, 10).await;
    assert_eq!(events.iter().map(|event| event.job).collect::<Vec<_>>(), [Some(job)]);
}

async fn numbers_of_dropped_history_are_not_given_again(world: &World) {
    world.submit(simple()).await;
    let end = world.store.events_end().await.unwrap();
    world.turn(1000);
    world.store.drop_history(world.now()).await.unwrap();

    let job = world.submit(simple()).await;

    let (events, _) = read(&world.store, end, 10).await;
    assert_eq!(events.iter().map(|event| event.job).collect::<Vec<_>>(), [Some(job)]);
}
