//! What an admin allowed a remote worker bounds what it is given, whatever its process declares.

use crate::shop::{heartbeat, hello, simple, spec};
use crate::world::World;
use rules::placement::{Grant, SERVER_KINDS};
use rules::{JobId, WorkerId};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use store::worker::View;
use uuid::Uuid;
use wire::{Hello, Kind};

on_both_engines![
    a_remote_worker_is_given_only_what_it_was_allowed,
    the_servers_own_kinds_are_given_to_no_remote_worker,
    a_bound_holds_for_capabilities_that_were_stored_before_it,
    what_was_registered_stays_next_to_what_the_worker_says_of_itself,
    a_job_that_names_a_pool_is_done_in_that_pool,
    a_worker_that_is_bound_to_users_takes_only_their_jobs,
    a_job_that_only_a_restricted_worker_could_do_says_so,
];

/// A registered worker whose process declares `declared`.
pub async fn remote(world: &World, declared: &str, grant: Grant) -> WorkerId {
    let registered = registered(declared, json!({}));
    world.store.enroll_worker(&registered, &grant).await.unwrap();
    introduce(world, &registered, declared).await;
    registered.worker
}

fn registered(name: &str, metadata: Value) -> Hello {
    Hello { kind: Kind::Remote, metadata, ..hello(name) }
}

async fn introduce(world: &World, worker: &Hello, declared: &str) {
    let said =
        Hello { capabilities: declared.parse().unwrap(), metadata: json!({"os": "x"}), ..worker.clone() };
    world.store.introduce_worker(&said, Uuid::new_v4()).await.unwrap();
    world.store.heartbeat(&heartbeat(worker.worker)).await.unwrap();
}

fn allowed(capabilities: &str) -> Grant {
    Grant { capabilities: Some(capabilities.parse().unwrap()), ..Grant::default() }
}

fn in_pool(name: &str) -> Grant {
    Grant { pool: Some(name.parse().unwrap()), ..Grant::default() }
}

fn of_kind(kind: &str, more: Value) -> rules::spec::Spec {
    spec(json!([{ "name": "work", "kind": kind }]), more)
}

async fn view(world: &World, worker: WorkerId) -> View {
    let workers = world.store.workers(true).await.unwrap();
    workers.into_iter().find(|view| view.id == worker.to_string()).unwrap()
}

/// Whether the worker sees work, which must agree with what it gets.
async fn gets(world: &World, worker: WorkerId) -> Option<JobId> {
    let has_work = world.store.has_work(worker).await.unwrap();
    let claimed = world.store.claim(worker, 1).await.unwrap();
    assert_eq!(has_work, !claimed.is_empty());
    claimed.first().map(|task| task.job)
}

async fn why(world: &World, job: JobId) -> String {
    world.store.why(job).await.unwrap().reasons.join(" ")
}

async fn a_remote_worker_is_given_only_what_it_was_allowed(world: &World) {
    let worker = remote(world, "noop,encode,gpu", allowed("encode,gpu")).await;
    world.submit(simple()).await;

    assert_eq!(gets(world, worker).await, None, "it declares `noop` and was not allowed it");
    let encode = world.submit(of_kind("encode", json!({}))).await;
    assert_eq!(gets(world, worker).await, Some(encode));
    assert_eq!(view(world, worker).await.capabilities, "encode,gpu");
}

async fn the_servers_own_kinds_are_given_to_no_remote_worker(world: &World) {
    let worker = remote(world, &SERVER_KINDS.join(","), Grant::default()).await;

    for kind in SERVER_KINDS {
        world.submit(of_kind(kind, json!({}))).await;
        assert_eq!(gets(world, worker).await, None, "{kind}");
        let registered = registered("greedy", json!({}));
        assert!(world.store.enroll_worker(&registered, &allowed(kind)).await.is_err(), "{kind}");
    }

    let local = world.worker(&SERVER_KINDS.join(",")).await;
    assert_eq!(world.store.claim(local, 10).await.unwrap().len(), SERVER_KINDS.len());
}

/// As a server of an earlier version stored them.
async fn a_bound_holds_for_capabilities_that_were_stored_before_it(world: &World) {
    let worker = remote(world, "encode", allowed("encode")).await;
    world.execute("UPDATE worker SET capabilities = 'encode,noop,package,pool:eu'").await.unwrap();
    for spec in [simple(), of_kind("package", json!({})), of_kind("encode", json!({ "pool": "eu" }))] {
        world.submit(spec).await;
    }

    assert_eq!(gets(world, worker).await, None);
}

async fn what_was_registered_stays_next_to_what_the_worker_says_of_itself(world: &World) {
    let registered = Hello { name: "studio-7".into(), ..registered("noop", json!({ "rack": 4 })) };
    world.store.enroll_worker(&registered, &in_pool("eu")).await.unwrap();

    introduce(world, &registered, "noop").await;

    let seen = view(world, registered.worker).await;
    assert_eq!((seen.name.as_str(), seen.pool.as_deref()), ("studio-7", Some("eu")));
    assert_eq!(seen.registered_metadata.as_deref(), Some("{\"rack\":4}"));
    assert_eq!(seen.metadata.as_deref(), Some("{\"os\":\"x\"}"));
}

async fn a_job_that_names_a_pool_is_done_in_that_pool(world: &World) {
    let eu = remote(world, "noop", in_pool("eu")).await;
    let free = remote(world, "noop,pool:eu", Grant::default()).await;

    let pooled = world.submit(of_kind("noop", json!({ "pool": "eu" }))).await;
    assert_eq!(gets(world, free).await, None, "a worker cannot declare itself into a pool");
    assert_eq!(gets(world, eu).await, Some(pooled));
    let unpooled = world.submit(simple()).await;
    assert_eq!(gets(world, eu).await, None, "it is kept for its pool");
    assert_eq!(gets(world, free).await, Some(unpooled));
    let other = world.submit(of_kind("noop", json!({ "pool": "us" }))).await;
    assert_eq!((gets(world, eu).await, gets(world, free).await), (None, None));

    let local = world.worker("noop").await;
    assert_eq!(gets(world, local).await, Some(other), "a worker with the database belongs to every pool");
}

async fn a_worker_that_is_bound_to_users_takes_only_their_jobs(world: &World) {
    let users = Some(BTreeSet::from(["ann".to_owned(), "bea".to_owned()]));
    let bound = remote(world, "noop", Grant { users, ..Grant::default() }).await;
    let of = |user: &str| of_kind("noop", json!({ "user": user }));
    world.submit(of("zoe")).await;

    assert_eq!(gets(world, bound).await, None);
    let (bea, ann) = (world.submit(of("bea")).await, world.submit(of("ann")).await);
    let mut got = [gets(world, bound).await.unwrap(), gets(world, bound).await.unwrap()];
    got.sort();
    assert_eq!((got, gets(world, bound).await), ([bea, ann], None));
}

async fn a_job_that_only_a_restricted_worker_could_do_says_so(world: &World) {
    let users = Some(BTreeSet::from(["ann".to_owned()]));
    remote(world, "noop", Grant { users, ..in_pool("eu") }).await;

    let unpooled = world.submit(simple()).await;
    let of_zoe = world.submit(of_kind("noop", json!({ "pool": "eu", "user": "zoe" }))).await;
    for job in [unpooled, of_zoe] {
        let said = why(world, job).await;
        assert!(
            said.contains("restricted to other pools or users: worker-noop (pool eu, users ann)"),
            "{said}"
        );
    }
    let gpu = world.submit(of_kind("gpu-thing", json!({}))).await;
    assert!(why(world, gpu).await.contains("none of the workers can do it: it asks for `gpu-thing`"));
    let of_ann = world.submit(of_kind("noop", json!({ "pool": "eu", "user": "ann" }))).await;
    assert!(why(world, of_ann).await.contains("waiting for a free worker"));
}
