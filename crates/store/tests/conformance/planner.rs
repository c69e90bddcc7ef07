//! Claiming and committing stay driven by indexes, whatever PostgreSQL's statistics say.

use crate::shop::{commit_of, new_job, wide};
use crate::world::World;
use sqlx::Connection;
use sqlx::postgres::PgConnection;
use store::{Options, Store};
use wire::Renewal;

on_a_whole_database![
    stale_statistics_make_no_statement_scan,
    what_a_batch_has_in_common_is_no_way_to_its_rows,
    what_is_under_way_is_found_among_much_that_waits_or_is_done,
];

/// Rows read so far by scans of whole tables, and by way of indexes.
async fn rows_read(connection: &mut PgConnection) -> (i64, i64) {
    let sql = "
SELECT sum(seq_tup_read)::BIGINT, sum(idx_tup_fetch)::BIGINT FROM pg_stat_user_tables
WHERE relname IN ('task', 'execution_aborted', 'stage', 'job', 'task_input')";
    sqlx::query_as(sql).fetch_one(connection).await.unwrap()
}

async fn stale_statistics_make_no_statement_scan(world: &World) {
    let mut by_hand = world.database.connect().await;
    freeze_statistics(&mut by_hand).await;
    let worker = world.worker("noop").await;
    let backlog = 10_000;
    world.submit(wide(backlog)).await;
    let store = counted(world).await;
    let before = rows_read(&mut by_hand).await;

    let mut claimed = 0;
    for _ in 0..20 {
        let tasks = store.claim(worker, 10).await.unwrap();
        let renewals: Vec<Renewal> =
            tasks.iter().map(|task| Renewal { proof: task.proof, progress: 1 }).collect();
        store.renew(&renewals).await.unwrap();
        let commits: Vec<_> = tasks.iter().map(|task| commit_of(task.proof)).collect();
        store.commit(&commits).await.unwrap();
        store.settle(100).await.unwrap();
        claimed += tasks.len() as i64;
    }
    flush(&store).await;
    let after = rows_read(&mut by_hand).await;

    let (scanned, fetched) = (after.0 - before.0, after.1 - before.1);
    assert_eq!(claimed, 200);
    assert_eq!(scanned, 0, "rows of whole tables were read");
    assert!(fetched < 100 * claimed, "{fetched} rows were fetched for {claimed} tasks");
    by_hand.close().await.unwrap();
}

/// All first executions of tasks have one fence, and all only stages one position: as parts of keys they lead to every
/// row there is.
async fn what_a_batch_has_in_common_is_no_way_to_its_rows(world: &World) {
    let mut by_hand = world.database.connect().await;
    freeze_statistics(&mut by_hand).await;
    let worker = world.worker("noop").await;
    world.store.submit_all(&vec![new_job(wide(1)); 4_000]).await.unwrap();
    let store = counted(world).await;
    let before = rows_read(&mut by_hand).await;

    let mut claimed = 0;
    for _ in 0..40 {
        let tasks = store.claim(worker, 100).await.unwrap();
        let commits: Vec<_> = tasks.iter().map(|task| commit_of(task.proof)).collect();
        store.commit(&commits).await.unwrap();
        store.settle(100).await.unwrap();
        claimed += tasks.len() as i64;
    }
    flush(&store).await;
    let after = rows_read(&mut by_hand).await;

    let (scanned, fetched) = (after.0 - before.0, after.1 - before.1);
    assert_eq!(claimed, 4_000);
    assert_eq!(scanned, 0, "rows of whole tables were read");
    assert!(fetched < 40 * claimed, "{fetched} rows were fetched for {claimed} tasks");
    by_hand.close().await.unwrap();
}

/// Keys in a run, and not; and what the orchestrator asks all day long.
async fn what_is_under_way_is_found_among_much_that_waits_or_is_done(world: &World) {
    let mut by_hand = world.database.connect().await;
    freeze_statistics(&mut by_hand).await;
    let worker = world.worker("noop").await;
    world.store.submit_all(&vec![new_job(wide(5_000)); 2]).await.unwrap();
    let store = counted(world).await;
    let before = rows_read(&mut by_hand).await;

    let mut done = 0;
    for _ in 0..20 {
        let tasks = store.claim(worker, 200).await.unwrap();
        let (odd, even): (Vec<_>, Vec<_>) = tasks.iter().partition(|task| task.segment % 2 == 1);
        for part in [odd, even] {
            let commits: Vec<_> = part.iter().map(|task| commit_of(task.proof)).collect();
            store.commit(&commits).await.unwrap();
        }
        done += tasks.len() as i64;
        let left = store.claim(worker, 50).await.unwrap();
        store.settle(100).await.unwrap();
        store.recover(100).await.unwrap();
        store.hedge().await.unwrap();
        assert_eq!(store.running(10).await.unwrap().len(), 0, "leased, and not begun");
        let commits: Vec<_> = left.iter().map(|task| commit_of(task.proof)).collect();
        store.commit(&commits).await.unwrap();
        done += left.len() as i64;
    }
    flush(&store).await;
    let after = rows_read(&mut by_hand).await;

    let (scanned, fetched) = (after.0 - before.0, after.1 - before.1);
    assert_eq!(done, 5_000);
    assert_eq!(scanned, 0, "rows of whole tables were read");
    assert!(fetched < 30 * done, "{fetched} rows were fetched for {done} tasks");
    by_hand.close().await.unwrap();
}

/// What the planner knows is from before the backlog, and stays so.
async fn freeze_statistics(connection: &mut PgConnection) {
    let stale = "
ALTER TABLE task SET (autovacuum_enabled = off);
ALTER TABLE execution_aborted SET (autovacuum_enabled = off);
ALTER TABLE stage SET (autovacuum_enabled = off);
ALTER TABLE job SET (autovacuum_enabled = off);
ANALYZE";
    sqlx::raw_sql(stale).execute(connection).await.unwrap();
}

/// With one connection, what it has read can be told to appear.
async fn counted(world: &World) -> Store {
    let options = Options { connections: 1, ..world.options() };
    let store = Store::open(&world.database.location, options).await.unwrap();
    flush(&store).await;
    store
}

async fn flush(store: &Store) {
    let mut tx = store.db().write(store::Step::Manage).await.unwrap();
    tx.query("SELECT pg_stat_force_next_flush()::TEXT").all::<(String,)>().await.unwrap();
    tx.commit().await.unwrap();
}
