//! The tables that grow for ever: append-only, and forgotten by age.

use crate::shop::{planned, simple};
use crate::world::{DAWN, World};
use rules::Millis;
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgConnection;
use store::Cursor;
use store::log::{Filter, Level, NewLog};

on_both_engines![
    the_database_refuses_to_change_the_audit,
    old_history_is_dropped_and_the_rest_stays,
    dropping_history_again_drops_nothing,
    a_reader_that_misses_what_was_dropped_is_told_so,
    logs_are_read_on_from_where_the_reader_was,
    logs_are_chosen_by_gravity_and_stage,
];

on_postgres_alone![
    lines_of_a_slow_transaction_are_not_missed_by_a_follower,
    partitions_are_made_ahead_of_time,
    partitions_may_be_made_by_many_at_once,
    a_month_that_has_begun_without_a_partition_stays_where_it_is,
    what_lies_outside_all_partitions_is_dropped_too,
    a_partition_cannot_be_emptied_by_hand,
];

/// November 2025 has begun; this is when it ends.
const DECEMBER: i64 = 1_764_547_200_000;
const JANUARY: i64 = DECEMBER + 31 * 86_400_000;

async fn the_database_refuses_to_change_the_audit(world: &World) {
    world.submit(simple()).await;
    let before = world.count("SELECT count(*) FROM audit").await;

    for change in [
        "UPDATE audit SET note = 'it was not me'",
        "UPDATE audit SET at = 0 WHERE command = 'submit'",
        "DELETE FROM audit",
    ] {
        let refused = world.execute(change).await.unwrap_err();
        let store::Error::Database(source) = refused else { panic!("{refused}") };
        assert!(source.to_string().contains("the audit log is append-only"), "{source}");
    }

    assert_eq!(world.count("SELECT count(*) FROM audit").await, before);
}

/// One job in November, one in December, and a line in the log of each.
async fn two_months(world: &World) {
    world.store.prepare_history().await.unwrap();
    for _ in 0..2 {
        let job = world.submit(simple()).await;
        world.store.cancel(job, None).await.unwrap();
        let log =
            NewLog { job, task: None, level: Level::Info, stage: None, message: "x".into(), metadata: None };
        world.store.log(&[log]).await.unwrap();
        world.turn(DECEMBER - DAWN);
    }
}

async fn old_history_is_dropped_and_the_rest_stays(world: &World) {
    two_months(world).await;
    let young = world.rows::<(i64, String)>("SELECT at, command FROM audit WHERE at >= 1764547200000").await;

    let dropped = world.store.drop_history(Millis(DECEMBER)).await.unwrap();

    assert!(dropped > 0);
    assert_eq!(world.rows::<(i64, String)>("SELECT at, command FROM audit").await, young);
    assert_eq!(world.count("SELECT count(*) FROM job_log WHERE at < 1764547200000").await, 0);
    assert!(world.count("SELECT count(*) FROM job_log").await > 0);
    assert!(world.execute("DELETE FROM audit").await.is_err(), "what is young stays append-only");
}

async fn dropping_history_again_drops_nothing(world: &World) {
    two_months(world).await;
    world.store.drop_history(Millis(DECEMBER)).await.unwrap();

    assert_eq!(world.store.drop_history(Millis(DECEMBER)).await.unwrap(), 0);
    assert_eq!(world.store.drop_history(Millis(0)).await.unwrap(), 0);
}

async fn a_reader_that_misses_what_was_dropped_is_told_so(world: &World) {
    let store = &world.store;
    world.submit(simple()).await;
    let early = store.events_end().await.unwrap();
    two_months(world).await;
    let last = world.count("SELECT max(xact) FROM audit").await;
    let last: Cursor = format!("{last}-0").parse().unwrap();
    let mut end = store.events_end().await.unwrap();
    // Transactions of other tests hold it back.
    while end <= last {
        tokio::task::yield_now().await;
        end = store.events_end().await.unwrap();
    }
    assert!(!store.events(early, 100).await.unwrap().is_lost);

    store.drop_history(Millis(DECEMBER)).await.unwrap();

    let page = store.events(early, 100).await.unwrap();
    assert!(page.is_lost && page.events.is_empty() && page.next >= end, "{page:?}");
    assert_eq!(store.place_in_this_history(early).await.unwrap(), None);
    assert_eq!(store.place_in_this_history(end).await.unwrap(), Some(end));
    let beginning: Cursor = "0-0".parse().unwrap();
    assert!(store.place_in_this_history(beginning).await.unwrap().is_some());
    let page = store.events(beginning, 100).await.unwrap();
    assert!(!page.is_lost && !page.events.is_empty(), "the beginning is that of what is kept: {page:?}");
}

async fn logs_are_read_on_from_where_the_reader_was(world: &World) {
    let job = world.submit(simple()).await;
    let log = |message: &str| NewLog {
        job,
        task: None,
        level: Level::Info,
        stage: Some("work".into()),
        message: message.into(),
        metadata: Some(serde_json::json!({ "frame": 7 })),
    };
    world.store.log(&[log("one"), log("two")]).await.unwrap();
    let seen = world.store.logs_of_job(job, &Filter::default()).await.unwrap();

    world.store.log(&[log("three")]).await.unwrap();
    let after = Filter { after: seen.last().unwrap().id, ..Filter::default() };
    let more = world.store.logs_of_job(job, &after).await.unwrap();

    let lines =
        |logs: &[store::detail::LogView]| logs.iter().map(|log| log.message.clone()).collect::<Vec<_>>();
    assert_eq!((lines(&seen), lines(&more)), (vec!["one".into(), "two".into()], vec!["three".into()]));
}

/// Two transactions: the first to take a number commits last.
async fn lines_of_a_slow_transaction_are_not_missed_by_a_follower(world: &World) {
    let job = world.submit(simple()).await;
    let line = |message: &str| {
        format!(
            "INSERT INTO job_log (at, job_id, level, message) VALUES (1763200000000, {job}, 'info', '{message}')"
        )
    };
    let say = async |to: &mut PgConnection, sql: String| {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(to).await.unwrap();
    };
    let mut slow: PgConnection = world.database.connect().await;
    let mut quick: PgConnection = world.database.connect().await;
    say(&mut slow, "BEGIN".into()).await;
    say(&mut slow, line("slow")).await;
    say(&mut quick, line("quick")).await;
    let mut filter = Filter { is_settled: true, ..Filter::default() };
    let mut followed = Vec::new();
    let mut follow = async || {
        for line in world.store.logs_of_job(job, &filter).await.unwrap() {
            filter.after = line.id;
            followed.push(line.message);
        }
        followed.clone()
    };

    assert_eq!(follow().await, [""; 0], "something older may still come");
    let now = world.store.logs_of_job(job, &Filter::default()).await.unwrap();
    assert_eq!(now.iter().map(|line| line.message.as_str()).collect::<Vec<_>>(), ["quick"], "who only looks");
    say(&mut slow, "COMMIT".into()).await;

    // Transactions of other tests hold the end back for a moment.
    while follow().await.len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(follow().await, ["slow", "quick"], "both, once, in the order of their beginning");
}

async fn logs_are_chosen_by_gravity_and_stage(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(planned()).await;
    let lost = world.claim(worker).await;
    world.fail(&lost, rules::failure::Kind::Transient).await;
    let log = |level, stage: Option<&str>, message: &str| NewLog {
        job,
        task: None,
        level,
        stage: stage.map(Into::into),
        message: message.into(),
        metadata: None,
    };
    let about = Some("encode");
    let lines = [log(Level::Debug, about, "d"), log(Level::Info, None, "i"), log(Level::Error, about, "e")];
    world.store.log(&lines).await.unwrap();

    let chosen = async |level, stage: Option<&str>| {
        let filter = Filter { level, stage: stage.map(Into::into), ..Filter::default() };
        let found = world.store.logs_of_job(job, &filter).await.unwrap();
        found.into_iter().map(|line| line.message).collect::<Vec<_>>()
    };

    assert_eq!(chosen(Level::Debug, about).await, ["d", "e"]);
    assert_eq!(chosen(Level::Info, about).await, ["e"]);
    assert_eq!(chosen(Level::Error, None).await, ["e"]);
    assert_eq!(chosen(Level::Warn, Some("other")).await, [""; 0]);
    let of_the_failed = chosen(Level::Warn, Some("plan")).await;
    assert_eq!(of_the_failed.len(), 1, "a task's line is of its stage: {of_the_failed:?}");
}

const PARTITIONS: &str = "
SELECT c.relname::TEXT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE c.relnamespace = current_schema()::regnamespace AND c.relname ~ '_20' AND c.relkind = 'r'
ORDER BY c.relname";

async fn partitions(world: &World) -> Vec<String> {
    world.rows::<(String,)>(PARTITIONS).await.into_iter().map(|(name,)| name).collect()
}

async fn partitions_are_made_ahead_of_time(world: &World) {
    world.store.prepare_history().await.unwrap();

    let made = partitions(world).await;
    assert_eq!(made.len(), 12);
    assert_eq!(made[..4], ["audit_2025_11", "audit_2025_12", "audit_2026_01", "audit_2026_02"]);
    assert_eq!(world.store.prepare_history().await.unwrap(), 0, "once is enough");

    world.turn(DECEMBER - DAWN);
    assert_eq!(world.store.prepare_history().await.unwrap(), 3, "the next month for each table");
    world.submit(simple()).await;
    assert_eq!(world.count("SELECT count(*) FROM audit_2025_12").await, 2);
    assert_eq!(world.count("SELECT count(*) FROM audit_default").await, 0);
}

async fn partitions_may_be_made_by_many_at_once(world: &World) {
    let another = world.elsewhere().await;

    let (here, there, _) =
        tokio::join!(world.store.prepare_history(), another.prepare_history(), world.submit(simple()));

    here.unwrap();
    there.unwrap();
    assert!(partitions(world).await.len() >= 11);
}

async fn a_month_that_has_begun_without_a_partition_stays_where_it_is(world: &World) {
    world.submit(simple()).await;
    world.store.prepare_history().await.unwrap();

    assert_eq!(world.count("SELECT count(*) FROM audit_default").await, 2);
    let made = partitions(world).await;
    assert!(!made.contains(&"audit_2025_11".into()) && made.contains(&"audit_2025_12".into()), "{made:?}");
}

async fn what_lies_outside_all_partitions_is_dropped_too(world: &World) {
    let old = world.submit(simple()).await;
    world.store.cancel(old, None).await.unwrap();
    world.turn(DECEMBER - DAWN);
    world.submit(simple()).await;

    world.store.drop_history(Millis(DECEMBER)).await.unwrap();
    let kept = world.count("SELECT count(*) FROM audit_default").await;
    assert!(kept > 0, "December lies there too");
    world.store.prepare_history().await.unwrap();
    let dropped = world.store.drop_history(Millis(JANUARY)).await.unwrap();

    assert!(dropped > 0);
    assert_eq!(world.count("SELECT count(*) FROM audit_default").await, 0);
    world.turn(-(DECEMBER - DAWN));
    world.submit(simple()).await;
    assert!(world.count("SELECT count(*) FROM audit_default").await > 0, "and it is there for the next time");
    assert!(world.execute("DELETE FROM audit").await.is_err());
    assert!(world.execute("TRUNCATE audit_default").await.is_err());
}

async fn a_partition_cannot_be_emptied_by_hand(world: &World) {
    world.store.prepare_history().await.unwrap();
    world.submit(simple()).await;

    for change in [
        "TRUNCATE audit",
        "TRUNCATE audit_2025_11",
        "TRUNCATE audit_default",
        "DELETE FROM audit_2025_11",
        "UPDATE audit_2025_11 SET note = ''",
    ] {
        assert!(world.execute(change).await.is_err(), "{change}");
    }
}
