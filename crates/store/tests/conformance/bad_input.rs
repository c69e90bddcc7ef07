//! Nonsense is answered with a sentence that says what is wrong, and breaks nothing.

use crate::shop::{commit_of, failure_of, heartbeat, hello, new_job, progress_of, simple, spec, wide};
use crate::world::World;
use rules::failure::Kind;
use rules::job::State;
use rules::{JobId, TaskId, WorkerId};
use serde_json::json;
use std::path::Path;
use std::str::FromStr;
use store::submit::NewJob;
use store::{Error, Location, Options, Store};
use wire::{Answer, Commit, Heartbeat, Progress, StepRecord};

on_both_engines![
    characters_that_a_database_cannot_hold_are_replaced,
    text_that_looks_like_sql_is_text,
    absurd_numbers_are_kept_or_cut,
    a_very_long_message_is_cut,
    a_spec_that_cannot_run_is_refused_with_its_reason,
    an_idempotency_key_has_a_length,
    metadata_has_a_size,
    what_does_not_exist_is_not_found,
];

on_sqlite_alone![
    a_file_that_cannot_be_written_says_so,
    a_file_that_is_no_database_says_so,
    a_path_that_cannot_be_a_file_says_so,
    an_url_that_makes_no_sense_says_what_does,
    a_full_disk_says_so_and_loses_nothing,
];

on_postgres_alone![
    a_server_that_is_not_there_says_so,
    a_database_that_is_not_there_is_not_taken_for_an_empty_one,
    a_client_that_was_stopped_does_not_keep_its_locks,
];

on_a_whole_database![a_lost_connection_says_so_and_the_next_one_works];

const NUL: &str = "before\0after";
const REPLACED: &str = "before\u{fffd}after";

async fn characters_that_a_database_cannot_hold_are_replaced(world: &World) {
    let hello = wire::Hello { name: NUL.into(), hostname: NUL.into(), ..hello("noop") };
    world.store.register_worker(&hello).await.unwrap();
    let named =
        spec(json!([{ "name": "work", "kind": "noop", "with": NUL }]), json!({ "name": NUL, "user": NUL }));
    let job = world.submit(named).await;
    let task = world.claim(hello.worker).await;
    let step = StepRecord {
        kind: NUL.into(),
        command: NUL.into(),
        exit_code: None,
        signal: None,
        stdout_tail: NUL.into(),
        // Six characters, and no NUL among them.
        stderr_tail: r"\u0000".into(),
        duration_ms: 1,
        is_success: true,
        error: Some(NUL.into()),
    };

    let said = Progress { step: Some(NUL.into()), ..progress_of(task.proof, 1) };
    world.store.progress(&[said]).await.unwrap();
    let mut failure = failure_of(task.proof, Kind::Transient, NUL);
    failure.steps = vec![step.clone()];
    assert_eq!(world.store.fail(&[failure]).await.unwrap(), [Answer::Accepted]);
    world.turn(400_000);
    world.orchestrate().await;
    let task = world.claim(hello.worker).await;
    let result = Some(json!({ NUL: NUL }));
    let commit = Commit { result, steps: vec![step], ..commit_of(task.proof) };
    assert_eq!(world.say(commit).await, Answer::Accepted);

    assert_eq!(world.store.job(job).await.unwrap().name, REPLACED);
    assert_eq!(world.store.workers(false).await.unwrap()[0].name, REPLACED);
    assert_eq!(world.executions(job).await[0].error.as_deref(), Some(REPLACED));
    let steps = world.store.steps_of_job(job).await.unwrap();
    assert_eq!((steps[0].stdout_tail.as_str(), steps[0].stderr_tail.as_str()), (REPLACED, r"\u0000"));
    assert_eq!(task.payload, json!(NUL), "JSON has a way to write it");
    world.orchestrate().await;
}

async fn text_that_looks_like_sql_is_text(world: &World) {
    let worker = world.worker("noop").await;
    let nasty = "'); DROP TABLE task; -- $1 \" \\ ; 日本 🎬 \u{202e} FOR UPDATE";
    let named = spec(json!([{ "name": "work", "kind": "noop" }]), json!({ "name": nasty }));
    let job = world.submit_with_key(named, nasty).await.unwrap().id();
    let task = world.claim(worker).await;

    world.store.fail(&[failure_of(task.proof, Kind::Permanent, nasty)]).await.unwrap();
    world.orchestrate().await;

    let seen = world.store.job(job).await.unwrap();
    assert_eq!((seen.name.as_str(), seen.idempotency_key.as_deref()), (nasty, Some(nasty)));
    assert!(seen.error.unwrap().ends_with(nasty));
    let filter = store::job::Filter { user: Some(nasty.into()), ..Default::default() };
    assert!(world.store.jobs(&filter).await.unwrap().is_empty());
}

async fn absurd_numbers_are_kept_or_cut(world: &World) {
    let worker = world.worker("noop").await;
    let stage = json!({ "name": "work", "kind": "noop", "timeout_ms": u32::MAX, "stall_ms": u32::MAX });
    let job = world.submit(spec(json!([stage]), json!({ "backoff_initial_ms": u32::MAX }))).await;
    let task = world.claim(worker).await;

    for progress in [i64::MIN, i64::MAX, 0] {
        let said = Progress { permille: Some(u16::MAX), ..progress_of(task.proof, progress) };
        assert_eq!(world.store.progress(&[said]).await.unwrap(), [Answer::Accepted]);
    }
    assert_eq!(world.task(task.proof.task).await.permille, Some(1000), "more than all is all");
    let said = Heartbeat { running: u32::MAX, done: u64::MAX, failed: u64::MAX, ..heartbeat(worker) };
    world.store.heartbeat(&said).await.unwrap();
    let mut failure = failure_of(task.proof, Kind::Transient, "");
    (failure.usage.wall_ms, failure.usage.bytes_in) = (i64::MAX, i64::MIN);
    assert_eq!(world.store.fail(&[failure]).await.unwrap(), [Answer::Accepted]);

    assert_eq!(world.executions(job).await[0].wall_ms, Some(i64::MAX));
    for limit in [i64::MIN, -1, 0] {
        let filter = store::job::Filter { limit: Some(limit), ..Default::default() };
        assert_eq!(world.store.jobs(&filter).await.unwrap().len(), 1);
    }
    let filter = store::job::Filter { before: Some(JobId(i64::MIN)), ..Default::default() };
    assert!(world.store.jobs(&filter).await.unwrap().is_empty());
}

async fn a_very_long_message_is_cut(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(simple()).await;
    let task = world.claim(worker).await;

    let failure = failure_of(task.proof, Kind::Permanent, &"ä".repeat(1_000_000));
    world.store.fail(&[failure]).await.unwrap();
    world.orchestrate().await;

    assert_eq!(world.executions(job).await[0].error.as_ref().unwrap().chars().count(), 8192);
}

async fn a_spec_that_cannot_run_is_refused_with_its_reason(world: &World) {
    let work = |name: &str| json!({ "name": name, "kind": "noop" });
    let long = "x".repeat(201);
    let cases = [
        (spec(json!([]), json!({})), "at least one stage"),
        (spec(json!([work("a"), work("a")]), json!({})), "two stages are called `a`"),
        (spec(json!([work("a")]), json!({ "max_attempts": 0 })), "max_attempts is 0"),
        (spec(json!([work("a")]), json!({ "name": long })), "`name` is too long"),
        (
            spec(json!([{ "name": "a", "kind": "noop", "needs": ["b"] }]), json!({})),
            "no stage is called that",
        ),
        (
            spec(json!([{ "name": "a", "kind": "noop", "with": "x".repeat(1 << 20) }]), json!({})),
            "bytes long",
        ),
    ];
    for (spec, reason) in cases {
        let refused = world.store.submit(&new_job(spec)).await.unwrap_err();
        assert!(matches!(refused, Error::BadSpec(_)));
        assert!(refused.to_string().contains(reason), "{refused}");
    }
    assert_eq!(world.open_jobs().await, 0);
}

async fn an_idempotency_key_has_a_length(world: &World) {
    for key in [String::new(), "k".repeat(256)] {
        let job = NewJob { idempotency_key: Some(key), ..new_job(simple()) };
        assert!(matches!(world.store.submit(&job).await, Err(Error::Invalid(_))));
    }
    assert!(world.submit_with_key(simple(), &"k".repeat(255)).await.is_ok());
}

async fn metadata_has_a_size(world: &World) {
    let big = wire::Hello { metadata: json!("x".repeat(20_000)), ..hello("noop") };

    let refused = world.store.register_worker(&big).await.unwrap_err();

    assert_eq!(refused.to_string(), "a worker's metadata may be 10240 bytes long");
}

async fn what_does_not_exist_is_not_found(world: &World) {
    for job in [JobId(0), JobId(-1), JobId(404), JobId(i64::MAX), JobId(i64::MIN)] {
        assert!(matches!(world.store.job(job).await, Err(Error::NotFound("job"))));
        assert!(matches!(world.store.stages_of_job(job).await, Err(Error::NotFound("job"))));
        assert!(matches!(world.store.audit_of_job(job).await, Err(Error::NotFound("job"))));
        assert!(world.tasks(job).await.is_empty() && world.executions(job).await.is_empty());
        let all = store::log::Filter { after: i64::MIN, ..Default::default() };
        assert!(world.store.logs_of_job(job, &all).await.unwrap().is_empty());
    }
    assert_eq!(world.store.retry(&[TaskId(404)]).await.unwrap(), 0);
    assert_eq!(world.store.judge(&[TaskId(404)]).await.unwrap(), 0);
    assert!(world.store.has_work(WorkerId(uuid::Uuid::nil())).await.is_err());
}

/// Opens as a user who may not write, whoever runs the tests: root may write everywhere.
fn open_as_nobody(path: &Path) -> Error {
    let path = path.to_owned();
    let opened = std::thread::spawn(move || {
        // SAFETY: on Linux this sets the user for file access of this thread, and of those it starts.
        unsafe { libc::setfsuid(65_534) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = Store::open(&Location::Sqlite(path), Options::default()).await?;
            store.submit(&new_job(simple())).await
        })
    });
    opened.join().unwrap().unwrap_err()
}

async fn a_file_that_cannot_be_written_says_so(world: &World) {
    use std::os::unix::fs::PermissionsExt;
    let file = world.database.file();
    world.submit(simple()).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let copy = folder.path().join("copy.db");
    std::fs::copy(&file, &copy).unwrap();

    let refused = open_as_nobody(&copy);
    assert!(matches!(refused, Error::ReadOnly(_)), "{refused:?}");
    assert!(refused.to_string().contains("permissions"), "{refused}");

    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o000)).unwrap();
    let refused = open_as_nobody(&copy).to_string();
    assert!(refused.contains(&copy.display().to_string()), "{refused}");
    let refused = open_as_nobody(&folder.path().join("sub/new.db")).to_string();
    assert!(refused.contains("cannot make the folder") && refused.contains("Permission denied"), "{refused}");
    let refused = open_as_nobody(&folder.path().join("new.db")).to_string();
    assert!(refused.contains("cannot open the database"), "{refused}");
}

async fn open(path: &Path) -> String {
    let opened = Store::open(&Location::Sqlite(path.to_owned()), Options::default()).await;
    opened.err().unwrap().to_string()
}

async fn a_file_that_is_no_database_says_so(world: &World) {
    let path = world.database.file().with_file_name("talk.mov");
    std::fs::write(
        &path,
        "this is a film, and not a database, and it is long enough to see that".repeat(100),
    )
    .unwrap();

    let refused = open(&path).await;

    assert!(refused.contains("talk.mov") && refused.contains("not a database"), "{refused}");
}

async fn a_path_that_cannot_be_a_file_says_so(world: &World) {
    let folder = world.database.file().parent().unwrap().to_owned();
    let refused = open(&folder).await;
    assert!(refused.contains("cannot open the database"), "{refused}");

    let below_a_file = world.database.file().join("x.db");
    let refused = open(&below_a_file).await;
    assert!(refused.contains("cannot make the folder"), "{refused}");
}

async fn an_url_that_makes_no_sense_says_what_does(_world: &World) {
    for url in ["", "mysql://x", "vodmill.db", "sqlite:", "sqlite://", "SQLITE:x"] {
        let refused = Location::from_str(url).err().unwrap().to_string();
        assert!(refused.contains("`postgres://`") && refused.contains("`sqlite:`"), "{url}: {refused}");
    }
    let refused = Location::from_str("postgres://user@host:notaport/db").err().unwrap().to_string();
    assert!(refused.starts_with("the PostgreSQL URL cannot be read"), "{refused}");
    assert!(
        matches!(Location::from_str("sqlite:a b.db"), Ok(Location::Sqlite(path)) if path == Path::new("a b.db"))
    );
    assert!(
        matches!(Location::from_str("sqlite:///tmp/x.db"), Ok(Location::Sqlite(path)) if path == Path::new("/tmp/x.db"))
    );
}

async fn a_server_that_is_not_there_says_so(_world: &World) {
    let opened = std::thread::spawn(|| {
        // It waits for a server that may be starting. Here that time is passed over.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let nowhere = Location::from_str("postgres://nobody@127.0.0.1:1/nothing").unwrap();
        runtime.unwrap().block_on(Store::open(&nowhere, Options::default())).err().unwrap()
    });
    let refused = opened.join().unwrap();

    assert!(refused.is_unavailable(), "{refused:?}");
    let source = std::error::Error::source(&refused).unwrap().to_string();
    assert!(source.contains("refused"), "{source}");
}

async fn a_database_that_is_not_there_is_not_taken_for_an_empty_one(world: &World) {
    let Location::Postgres(here) = &world.database.location else { panic!("on PostgreSQL alone") };
    let nowhere = Location::Postgres(Box::new(here.as_ref().clone().database("no_such_database")));

    let opened = Store::open(&nowhere, world.options()).await.err().unwrap();
    let migrated = Store::migrate(&nowhere, world.options()).await.unwrap_err();

    for refused in [opened, migrated] {
        let said = format!("{refused}: {:?}", std::error::Error::source(&refused));
        assert!(said.contains("no_such_database"), "{said}");
    }
}

async fn a_full_disk_says_so_and_loses_nothing(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(simple()).await;
    let task = world.claim(worker).await;
    let mut tx = world.store.db().write(store::Step::Manage).await.unwrap();
    tx.query("PRAGMA max_page_count = 1").all::<(i64,)>().await.unwrap();
    drop(tx);

    let refused = world.store.submit(&new_job(wide(5000))).await.unwrap_err();

    assert!(matches!(refused, Error::Full(_)) && refused.is_unavailable(), "{refused:?}");
    let mut tx = world.store.db().write(store::Step::Manage).await.unwrap();
    tx.query("PRAGMA max_page_count = 1000000").all::<(i64,)>().await.unwrap();
    drop(tx);
    assert_eq!(world.commit(&task).await, Answer::Accepted);
    world.orchestrate().await;
    assert!(world.is(job, State::Completed).await);
}

async fn a_lost_connection_says_so_and_the_next_one_works(world: &World) {
    let mut by_hand = world.database.connect().await;
    let mut tx = world.store.db().write(store::Step::Manage).await.unwrap();

    let end_all = "
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()";
    sqlx::raw_sql(end_all).execute(&mut by_hand).await.unwrap();

    let lost = tx.query("SELECT id FROM job").all::<(i64,)>().await.unwrap_err();
    assert!(lost.is_unavailable(), "{lost:?}");
    drop(tx);
    world.submit(simple()).await;
}

async fn a_client_that_was_stopped_does_not_keep_its_locks(world: &World) {
    const SETTINGS: &str = "
SELECT current_setting('idle_in_transaction_session_timeout'), current_setting('lock_timeout')";
    let mut tx = world.store.db().write(store::Step::Manage).await.unwrap();
    let within: (String, String) = tx.query(SETTINGS).one().await.unwrap();
    tx.commit().await.unwrap();
    let mut by_hand = world.database.connect().await;
    let outside: (String, String) = sqlx::query_as(SETTINGS).fetch_one(&mut by_hand).await.unwrap();

    assert_eq!((within.0.as_str(), within.1.as_str()), ("15s", "10s"));
    assert_eq!((outside.0.as_str(), outside.1.as_str()), ("0", "0"), "and others keep their own");
}
