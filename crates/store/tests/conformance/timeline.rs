//! What a database gives twice after it went back in time is told apart by the name of its timeline.

use crate::shop::{commit_of, simple, spec};
use crate::world::World;
use serde_json::json;
use store::Cursor;
use store::timeline::{Mark, Standing};

on_both_engines![
    a_mark_that_the_database_lost_says_that_it_went_back,
    of_several_that_notice_at_once_one_begins_a_timeline,
    an_effect_of_another_timeline_has_another_key,
    a_place_of_another_timeline_is_of_another_history,
    files_belong_to_one_place,
    files_do_not_move_while_a_job_is_open,
];

on_postgres_alone![
    a_dump_of_another_server_is_noticed_and_its_events_are_not_told_again,
    another_history_of_postgres_begins_one_timeline_before_anything_else,
];

async fn a_mark_that_the_database_lost_says_that_it_went_back(world: &World) {
    let store = &world.store;
    let first = store.mark().await.unwrap();
    assert_eq!(store.mark().await.unwrap(), first, "nothing has happened since");
    world.submit(simple()).await;
    let second = store.mark().await.unwrap();
    assert!(second.number > first.number);
    for mark in [&first, &second] {
        assert_eq!(store.standing(mark).await.unwrap(), Standing::Kept);
    }

    // As after a restore: the second is gone, and what happens then makes another with its number.
    world.execute("DELETE FROM mark WHERE number = (SELECT max(number) FROM mark)").await.unwrap();
    assert_eq!(store.standing(&second).await.unwrap(), Standing::Lost);
    world.submit(simple()).await;
    assert_eq!(store.mark().await.unwrap().number, second.number);
    assert_eq!(store.standing(&second).await.unwrap(), Standing::Lost);

    store.begin_timeline(None, "a test").await.unwrap();
    assert_eq!(store.standing(&second).await.unwrap(), Standing::Earlier);
    let unknown = Mark { timeline: "ffffffff".into(), ..second };
    assert_eq!(store.standing(&unknown).await.unwrap(), Standing::Lost);
}

async fn of_several_that_notice_at_once_one_begins_a_timeline(world: &World) {
    let (here, there) = (&world.store, world.elsewhere().await);
    let before = here.timeline().await.unwrap();

    let (one, other) =
        tokio::join!(here.begin_timeline(Some(before), "a"), there.begin_timeline(Some(before), "b"));

    assert_eq!(one.unwrap(), other.unwrap());
    assert_eq!(here.timelines().await.unwrap().len(), 2);
    let report = here.examine().await.unwrap();
    assert_eq!((report.findings.len(), report.notes.len()), (0, 1), "{report:?}");
}

async fn an_effect_of_another_timeline_has_another_key(world: &World) {
    let worker = world.worker("noop").await;
    let stage = json!({ "name": "w", "kind": "noop", "segments": 2, "effect": { "append": "log" } });
    world.submit(spec(json!([stage]), json!({}))).await;
    let tasks = world.store.claim(worker, 2).await.unwrap();
    let before = world.store.timeline().await.unwrap();
    world.say(commit_of(tasks[0].proof)).await;
    let after = world.store.begin_timeline(None, "a test").await.unwrap();
    world.say(commit_of(tasks[1].proof)).await;

    let keys: Vec<String> =
        world.store.take_messages(10).await.unwrap().into_iter().map(|message| message.key).collect();

    assert_eq!(keys, [format!("{before}/append/1-0"), format!("{after}/append/1-1")]);
    world.orchestrate().await;
    assert_eq!(world.store.examine().await.unwrap().findings, []);
}

async fn a_place_of_another_timeline_is_of_another_history(world: &World) {
    let store = &world.store;
    world.submit(simple()).await;
    let old = store.events_end().await.unwrap();
    let unnamed: Cursor = "0-1".parse().unwrap();
    assert_eq!(store.place_in_this_history(old).await.unwrap(), Some(old));
    let beginning: Cursor = "0-0".parse().unwrap();
    for known in [unnamed, beginning] {
        assert!(store.place_in_this_history(known).await.unwrap().is_some(), "an older program's: {known}");
    }

    store.begin_timeline(None, "a test").await.unwrap();
    world.submit(simple()).await;

    for lost in [old, unnamed] {
        assert_eq!(store.place_in_this_history(lost).await.unwrap(), None, "{lost}");
    }
    assert!(store.place_in_this_history(beginning).await.unwrap().is_some());
    let page = store.events(old, 100).await.unwrap();
    assert!(page.is_lost && page.events.is_empty());
    assert!(!store.events(page.next, 100).await.unwrap().is_lost);
}

/// Rows of a transaction that this server has yet to begin, before and after one that it began.
async fn a_dump_of_another_server_is_noticed_and_its_events_are_not_told_again(world: &World) {
    let store = &world.store;
    let submitted = "INSERT INTO audit (at, job_id, role, command, to_state, xact)
                     SELECT 1, 7777, 'user', 'submit', 'pending', pg_current_xact_id()::TEXT::BIGINT + 50";
    assert!(!store.was_moved_here().await.unwrap());
    world.execute(submitted).await.unwrap();
    assert!(store.was_moved_here().await.unwrap());

    store.begin_timeline(None, "a test").await.unwrap();
    assert!(!store.was_moved_here().await.unwrap());
    let mut at = store.events_end().await.unwrap();
    let mut told = 0;
    for _ in 0..100 {
        world.submit(simple()).await;
        let page = store.events(at, 100).await.unwrap();
        assert!(page.events.iter().all(|event| event.job != Some(rules::JobId(7777))), "{page:?}");
        (at, told) = (page.next, told + page.events.len());
    }
    assert!(told > 0);
}

async fn files_belong_to_one_place(world: &World) {
    let (here, there) = (&world.store, world.elsewhere().await);
    assert_eq!(here.storage().await.unwrap(), None);

    let (one, other) = tokio::join!(here.take_storage("/a"), there.take_storage("/b"));

    let taken = one.unwrap();
    assert_eq!(taken, other.unwrap());
    assert_eq!(here.take_storage("/c").await.unwrap(), taken);
    assert_eq!(here.instance().await.unwrap(), there.instance().await.unwrap());
    here.move_storage("/c", "").await.unwrap();
    assert_eq!(there.storage().await.unwrap().as_deref(), Some("/c"));
}

async fn files_do_not_move_while_a_job_is_open(world: &World) {
    let store = &world.store;
    store.take_storage("/a").await.unwrap();
    let job = world.submit(simple()).await;

    let refused = store.move_storage("/b", "").await.unwrap_err().to_string();

    assert!(refused.contains("1 jobs are open"), "{refused}");
    assert_eq!(store.storage().await.unwrap().as_deref(), Some("/a"));
    store.cancel(job, None).await.unwrap();
    store.move_storage("/b", "").await.unwrap();
}

/// As after a promotion: what PostgreSQL counts is not what was known last.
async fn another_history_of_postgres_begins_one_timeline_before_anything_else(world: &World) {
    let before = world.store.timeline().await.unwrap();
    world.store.follow_history().await.unwrap();
    assert_eq!(world.store.timelines().await.unwrap().len(), 1, "it is the same");

    world.execute("UPDATE setting SET value = '000000FF' WHERE name = 'postgres_history'").await.unwrap();
    let (one, other) = tokio::join!(world.elsewhere(), world.elsewhere());

    let after = one.timeline().await.unwrap();
    assert_ne!(after, before);
    assert_eq!(other.timeline().await.unwrap(), after);
    world.store.follow_history().await.unwrap();
    assert_eq!(world.store.timelines().await.unwrap().len(), 2);
    assert!(world.store.last_restore().await.unwrap().is_some());

    // Somebody else notices it by other signs, and begins one first.
    world.execute("UPDATE setting SET value = '000000FE' WHERE name = 'postgres_history'").await.unwrap();
    world.store.begin_timeline(Some(after), "a test").await.unwrap();
    world.elsewhere().await;
    assert_eq!(world.store.timelines().await.unwrap().len(), 3, "one is enough");
}
