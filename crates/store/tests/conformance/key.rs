//! API keys of workers.

use crate::world::World;
use rules::WorkerId;
use store::Error;
use uuid::Uuid;

on_both_engines![
    a_key_tells_whose_it_is,
    a_wrong_key_is_nobodys,
    a_revoked_key_is_nobodys,
    a_worker_may_have_two_keys_for_a_while,
    a_key_is_stored_as_hash_and_prefix_alone,
    a_key_does_not_show_itself,
    a_worker_that_nobody_knows_gets_no_key,
];

async fn a_key_tells_whose_it_is(world: &World) {
    let (a, b) = (world.worker("noop").await, world.worker("noop").await);

    let (key_a, key_b) = (world.store.issue_key(a).await.unwrap(), world.store.issue_key(b).await.unwrap());

    assert_eq!(world.store.authenticate(key_a.reveal()).await.unwrap(), a);
    assert_eq!(world.store.authenticate(key_b.reveal()).await.unwrap(), b);
}

async fn a_wrong_key_is_nobodys(world: &World) {
    let worker = world.worker("noop").await;
    let key = world.store.issue_key(worker).await.unwrap();
    let right = key.reveal();

    let same_prefix = format!("{}{}", &right[..8], "0".repeat(right.len() - 8));
    let wrong =
        ["", "short", "ünïcödé-ünïcödé", "\0\0\0\0\0\0\0\0", "' OR 1=1 --", &right[..63], &same_prefix];

    for key in wrong {
        let refused = world.store.authenticate(key).await;
        assert!(matches!(refused, Err(Error::BadKey)), "{key:?}: {refused:?}");
    }
    assert!(world.store.authenticate(&format!("{right}0")).await.is_err());
}

async fn a_revoked_key_is_nobodys(world: &World) {
    let worker = world.worker("noop").await;
    let key = world.store.issue_key(worker).await.unwrap();

    assert_eq!(world.store.revoke_keys(worker).await.unwrap(), 1);

    assert!(matches!(world.store.authenticate(key.reveal()).await, Err(Error::BadKey)));
    assert_eq!(world.store.revoke_keys(worker).await.unwrap(), 0);
}

async fn a_worker_may_have_two_keys_for_a_while(world: &World) {
    let worker = world.worker("noop").await;
    let old = world.store.issue_key(worker).await.unwrap();
    let new = world.store.issue_key(worker).await.unwrap();

    for key in [&old, &new] {
        assert_eq!(world.store.authenticate(key.reveal()).await.unwrap(), worker);
    }
    assert_ne!(old.reveal(), new.reveal());
    assert_eq!(world.store.revoke_keys(worker).await.unwrap(), 2);
}

async fn a_key_is_stored_as_hash_and_prefix_alone(world: &World) {
    let worker = world.worker("noop").await;

    let key = world.store.issue_key(worker).await.unwrap();

    let rows: Vec<(String, String)> = world.rows("SELECT prefix, hash FROM api_key").await;
    let [(prefix, hash)] = rows.as_slice() else { panic!("one key") };
    assert_eq!(prefix, &key.reveal()[..8]);
    assert_eq!((key.reveal().len(), hash.len()), (64, 64));
    assert!(!hash.contains(key.reveal()));
}

async fn a_key_does_not_show_itself(world: &World) {
    let worker = world.worker("noop").await;

    let key = world.store.issue_key(worker).await.unwrap();

    assert_eq!(format!("{key:?}"), "Secret(…)");
}

async fn a_worker_that_nobody_knows_gets_no_key(world: &World) {
    let refused = world.store.issue_key(WorkerId(Uuid::new_v4())).await;

    assert!(matches!(refused, Err(Error::NotFound("worker"))));
}
