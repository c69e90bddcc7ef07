//! PostgreSQL behind a pooler in transaction mode.

use crate::shop::{commit_of, new_job, orchestrate, planned};
use crate::world::World;
use rules::JobId;
use rules::job::State;
use serde_json::json;
use store::{Options, Store};
use wire::{Answer, Commit};

on_a_whole_database![
    whole_jobs_pass_through_a_pooler_side_by_side,
    a_pooled_store_migrates_and_keeps_history
];

async fn pooled(world: &World) -> Store {
    let options = Options { is_pooled: true, ..world.options() };
    Store::open(&world.database.through_pooler(), options).await.unwrap()
}

/// Takes a job from its submission to its end, as four roles in four processes would.
async fn one_job(store: Store, worker: rules::WorkerId) -> JobId {
    let job = store.submit(&new_job(planned())).await.unwrap().id();
    while store.job(job).await.unwrap().state != State::Completed {
        let tasks = store.claim(worker, 3).await.unwrap();
        let result = Some(json!({ "segments": [1, 2, 3, 4, 5] }));
        let commits: Vec<Commit> =
            tasks.iter().map(|task| Commit { result: result.clone(), ..commit_of(task.proof) }).collect();
        let answers = store.commit(&commits).await.unwrap();
        assert!(answers.iter().all(|answer| *answer == Answer::Accepted), "{answers:?}");
        orchestrate(&store).await.unwrap();
    }
    job
}

async fn whole_jobs_pass_through_a_pooler_side_by_side(world: &World) {
    let worker = world.worker("noop").await;
    let mut running = Vec::new();
    for _ in 0..3 {
        let store = pooled(world).await;
        running.extend((0..4).map(|_| tokio::spawn(one_job(store.clone(), worker))));
    }

    let mut jobs = Vec::new();
    for job in running {
        jobs.push(job.await.unwrap());
    }

    for job in jobs {
        assert_eq!(world.store.job(job).await.unwrap().tasks, 7);
    }
    assert!(pooled(world).await.examine().await.unwrap().findings.is_empty());
}

async fn a_pooled_store_migrates_and_keeps_history(world: &World) {
    let options = Options { is_pooled: true, ..world.options() };
    let applied = Store::migrate(&world.database.through_pooler(), options).await.unwrap();
    let store = pooled(world).await;

    let carrier = tokio::spawn({
        let store = store.clone();
        async move { store.wake().run().await }
    });
    let made = store.prepare_history().await.unwrap();
    store.submit(&new_job(planned())).await.unwrap();
    let dropped = store.drop_history(world.now()).await.unwrap();

    assert!(applied.is_empty());
    assert_eq!((made, dropped), (12, 0));
    carrier.abort();
}
