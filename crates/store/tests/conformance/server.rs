//! What a server keeps: videos that come with their jobs, uploads, captions, processes behind workers' keys.

use crate::shop::{heartbeat, hello, new_job, simple, wide};
use crate::world::World;
use rules::video::State;
use rules::{ExecutionId, Millis, Token, VideoId};
use serde_json::json;
use store::catalogue::Filter;
use store::hold::Ownership;
use store::session::NewSession;
use store::video::NewVideo;
use store::worker::Process;
use store::{Error, Refusal};
use uuid::Uuid;
use wire::Answer;

on_both_engines![
    a_video_comes_with_its_job_or_not_at_all,
    an_upload_becomes_one_video,
    videos_are_listed_with_their_states,
    captions_are_replaced_by_language_and_go_with_their_video,
    a_purged_video_is_gone_and_its_jobs_are_not,
    only_the_newest_process_of_a_worker_is_heard,
    files_are_needed_while_they_may_be_read,
    files_of_a_failed_job_are_needed_as_long_as_it_can_be_retried,
    a_setting_is_set_once,
    a_session_lasts_until_it_is_closed_or_over,
    a_session_is_open_only_with_the_secret_it_began_with,
    sessions_are_listed_and_ended,
];

fn video(slug: &str) -> NewVideo {
    NewVideo { slug: slug.into(), title: format!("About {slug}"), user: "ann".into(), ..NewVideo::default() }
}

async fn take(world: &World, slug: &str) -> store::Result<(VideoId, rules::JobId)> {
    let job = |id| Ok(store::submit::NewJob { video: Some(id), ..new_job(simple()) });
    world.store.submit_video(&video(slug), None, job).await
}

async fn a_video_comes_with_its_job_or_not_at_all(world: &World) {
    let (id, job) = take(world, "a").await.unwrap();
    let taken = take(world, "a").await;
    let broken = world.store.submit_video(&video("b"), None, |_| Err(Error::Invalid("no".into()))).await;

    assert_eq!(world.store.video_of_job(job).await.unwrap(), Some(id));
    assert!(matches!(taken, Err(Error::Taken(_))));
    assert!(broken.is_err());
    assert_eq!(world.count("SELECT count(*) FROM video").await, 1);
    assert_eq!(world.count("SELECT count(*) FROM job").await, 1);
}

async fn a_session_lasts_until_it_is_closed_or_over(world: &World) {
    let store = &world.store;
    let short = store.open_session(&session(&SECRET, 1000)).await.unwrap();
    let long = store.open_session(&session(&SECRET, 9000)).await.unwrap();
    let is_open = async |token: &str| store.is_session(&SECRET, token).await.unwrap();

    assert!(is_open(&short).await && !is_open("another").await);
    world.turn(1000);
    assert!(!is_open(&short).await && is_open(&long).await);
    store.close_session(&long).await.unwrap();
    assert!(!is_open(&long).await);
    store.open_session(&session(&SECRET, 1)).await.unwrap();
    assert_eq!(world.count("SELECT count(*) FROM session").await, 1, "what is over is removed");
}

const SECRET: [u8; 32] = [1; 32];
const OTHER_SECRET: [u8; 32] = [2; 32];

fn session(secret: &[u8; 32], lasts: i64) -> NewSession<'_> {
    NewSession { secret, lasts: Millis(lasts), client: "192.0.2.1", user_agent: "a browser" }
}

async fn a_session_is_open_only_with_the_secret_it_began_with(world: &World) {
    let store = &world.store;
    let token = store.open_session(&session(&SECRET, 9000)).await.unwrap();

    assert!(store.is_session(&SECRET, &token).await.unwrap());
    assert!(!store.is_session(&OTHER_SECRET, &token).await.unwrap());
    assert_eq!(store.sessions(Some(&OTHER_SECRET)).await.unwrap(), []);

    store.open_session(&session(&OTHER_SECRET, 9000)).await.unwrap();
    assert!(!store.is_session(&SECRET, &token).await.unwrap(), "those of the old secret are removed");
    world.execute("INSERT INTO session (token_hash, expires_at) VALUES ('x', 99999999999999)").await.unwrap();
    assert_eq!(store.sessions(None).await.unwrap().len(), 1, "one that an older program opened is not open");
}

async fn sessions_are_listed_and_ended(world: &World) {
    let store = &world.store;
    let first = store.open_session(&session(&SECRET, 9000)).await.unwrap();
    world.turn(1);
    let second = store.open_session(&session(&SECRET, 9000)).await.unwrap();

    let listed = store.sessions(Some(&SECRET)).await.unwrap();

    assert_eq!((listed.len(), listed[0].client.as_str()), (2, "192.0.2.1"));
    assert!(listed[0].created_at > listed[1].created_at, "newest first");
    assert!(!first.starts_with(&listed[1].id), "the id says nothing of the token");
    store.end_session(&listed[0].id).await.unwrap();
    assert!(matches!(store.end_session(&listed[0].id).await, Err(Error::NotFound(_))));
    assert!(store.is_session(&SECRET, &first).await.unwrap());
    assert!(!store.is_session(&SECRET, &second).await.unwrap());
    assert_eq!(store.end_sessions().await.unwrap(), 1);
    assert!(!store.is_session(&SECRET, &first).await.unwrap());
}

async fn an_upload_becomes_one_video(world: &World) {
    world.store.begin_upload("u", 10, &json!({ "filename": "a" }), Millis(1000)).await.unwrap();
    let job = |id| Ok(store::submit::NewJob { video: Some(id), ..new_job(simple()) });

    let (id, _) = world.store.submit_video(&video("a"), Some("u"), job).await.unwrap();
    let again = world.store.submit_video(&video("b"), Some("u"), job).await;

    assert_eq!(world.store.upload("u").await.unwrap().video, Some(id));
    assert!(again.is_err());
    assert_eq!(world.count("SELECT count(*) FROM video").await, 1);
    assert!(world.store.expired_uploads(10).await.unwrap().is_empty());
    world.turn(1000);
    assert_eq!(world.store.expired_uploads(10).await.unwrap().len(), 1);
    world.store.forget_upload("u").await.unwrap();
    assert!(matches!(world.store.upload("u").await, Err(Error::NotFound(_))));
}

async fn videos_are_listed_with_their_states(world: &World) {
    let worker = world.worker("noop").await;
    for slug in ["one", "two_", "three"] {
        take(world, slug).await.unwrap();
    }
    let task = world.claim(worker).await;
    world.progress(&task, 1).await;

    let all = world.store.videos(&Filter::default()).await.unwrap();
    let searched = Filter { search: Some("TWO_".into()), ..Filter::default() };
    let processing = Filter { state: Some(State::Processing), ..Filter::default() };
    let page = Filter { limit: Some(1), before: Some(all[0].id), ..Filter::default() };

    let slugs = async |filter: &Filter| {
        let found = world.store.videos(filter).await.unwrap();
        found.into_iter().map(|video| video.slug).collect::<Vec<_>>()
    };
    assert_eq!(slugs(&Filter::default()).await, ["three", "two_", "one"]);
    assert_eq!(slugs(&searched).await, ["two_"]);
    assert_eq!(slugs(&processing).await, ["one"]);
    assert_eq!(slugs(&page).await, ["two_"]);
    assert_eq!(world.store.entry_called("one").await.unwrap().state, State::Processing);
    world.work_off(worker).await;
}

async fn captions_are_replaced_by_language_and_go_with_their_video(world: &World) {
    let id = world.video("a").await;

    world.store.set_caption(id, "en", "English", "WEBVTT 1").await.unwrap();
    world.store.set_caption(id, "en", "English", "WEBVTT 2").await.unwrap();
    world.store.set_caption(id, "de", "Deutsch", "WEBVTT 3").await.unwrap();

    let languages: Vec<_> =
        world.store.captions(id).await.unwrap().into_iter().map(|it| it.language).collect();
    assert_eq!(languages, ["de", "en"]);
    assert_eq!(world.store.caption_text(id, "en").await.unwrap(), "WEBVTT 2");
    world.store.delete_caption(id, "en").await.unwrap();
    assert!(matches!(world.store.delete_caption(id, "en").await, Err(Error::NotFound(_))));
    assert!(matches!(world.store.set_caption(VideoId(99), "en", "", "").await, Err(Error::NotFound(_))));
}

async fn a_purged_video_is_gone_and_its_jobs_are_not(world: &World) {
    let (id, job) = take(world, "a").await.unwrap();
    world.store.set_caption(id, "en", "English", "WEBVTT").await.unwrap();
    assert!(world.store.purge_video(id).await.is_err(), "it is not deleted");
    world.store.delete_video(id).await.unwrap();
    assert_eq!(world.store.videos_deleted_before(world.now(), 10).await.unwrap().len(), 0);
    world.turn(1);
    assert_eq!(world.store.videos_deleted_before(world.now(), 10).await.unwrap().len(), 1);

    world.store.purge_video(id).await.unwrap();

    assert!(matches!(world.store.entry(id).await, Err(Error::NotFound(_))));
    assert!(world.store.job(job).await.is_ok());
}

async fn only_the_newest_process_of_a_worker_is_heard(world: &World) {
    let hello = hello("noop");
    world.store.register_worker(&hello).await.unwrap();
    let (first, second) = (Uuid::new_v4(), Uuid::new_v4());
    world.store.introduce_worker(&hello, first).await.unwrap();
    let job = world.submit(simple()).await;
    let held = world.claim(hello.worker).await;
    // Said again, as after an answer that was lost, it takes nothing away.
    world.store.introduce_worker(&hello, first).await.unwrap();
    assert_eq!(world.progress(&held, 1).await, Answer::Accepted);

    world.store.introduce_worker(&hello, second).await.unwrap();

    let said = |incarnation| Process { incarnation, load: "{}" };
    let old = world.store.heartbeat_of(&said(first), &heartbeat(hello.worker)).await;
    assert!(matches!(old, Err(Error::Refused(Refusal::Worker(rules::worker::Refusal::Superseded)))));
    world.store.heartbeat_of(&said(second), &heartbeat(hello.worker)).await.unwrap();
    assert!(!world.store.is_current_process(hello.worker, first).await.unwrap());
    assert!(world.store.is_current_process(hello.worker, second).await.unwrap());
    assert!(matches!(world.commit(&held).await, Answer::Refused(_)));
    let lost = &world.tasks(job).await[0];
    assert_eq!((lost.state.as_str(), lost.attempts), ("ERROR", 1), "what the first had is not waited for");
    world.turn(20_000);
    world.orchestrate().await;
    assert_eq!(world.task_states(job).await, ["READY"]);
}

async fn files_are_needed_while_they_may_be_read(world: &World) {
    let (worker, other) = (world.worker("noop").await, world.worker("noop").await);
    world.submit(simple()).await;
    let lost = world.claim(worker).await;
    assert_eq!(world.store.ownership(lost.proof).await.unwrap(), Ownership::Current);
    assert!(world.store.needs_files(lost.proof.execution()).await.unwrap());
    world.fail(&lost, rules::failure::Kind::Drained).await;
    world.orchestrate().await;
    let held = world.claim(other).await;

    assert!(!world.store.needs_files(lost.proof.execution()).await.unwrap(), "it has lost");
    assert_eq!(world.store.ownership(lost.proof).await.unwrap(), Ownership::Lost);
    world.commit(&held).await;
    assert!(world.store.needs_files(held.proof.execution()).await.unwrap(), "others may read it");
    assert!(
        world.store.needs_files(held.proof.execution().short()).await.unwrap(),
        "an older version named it so"
    );
    let forgotten = ExecutionId { token: Token(!held.proof.token.0), ..held.proof.execution() };
    assert!(!world.store.needs_files(forgotten).await.unwrap(), "only its number is the same");
    world.orchestrate().await;
    assert!(!world.store.needs_files(held.proof.execution()).await.unwrap(), "the job is over");
}

async fn files_of_a_failed_job_are_needed_as_long_as_it_can_be_retried(world: &World) {
    let worker = world.worker("noop").await;
    let id = world.video("a").await;
    let submit = async || {
        let job = store::submit::NewJob { video: Some(id), ..new_job(wide(2)) };
        world.store.submit(&job).await.unwrap().id()
    };
    let failed = submit().await;
    let done = world.claim(worker).await;
    world.commit(&done).await;
    let other = world.claim(worker).await;
    world.fail(&other, rules::failure::Kind::Permanent).await;
    world.orchestrate().await;
    let is_needed = async || world.store.needs_files(done.proof.execution()).await.unwrap();
    assert!(world.is(failed, rules::job::State::Failed).await);
    assert!(is_needed().await, "a retry goes on with it");
    assert!(!world.store.needs_files(other.proof.execution()).await.unwrap());

    let cancelled = submit().await;
    world.store.cancel(cancelled, None).await.unwrap();
    assert!(is_needed().await, "nothing newer was made");
    assert!(world.store.may_be_published(id).await.unwrap());
    let newer = submit().await;
    world.work_off(worker).await;

    assert!(!is_needed().await);
    assert!(!world.store.may_be_published(id).await.unwrap());
    let refused = world.store.retry_job(failed, None).await;
    let Err(Error::Refused(Refusal::Job(rules::job::Refusal::Outdated(by)))) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(by, newer);
}

async fn a_setting_is_set_once(world: &World) {
    let elsewhere = world.elsewhere().await;

    assert!(world.store.set_once("a", "1").await.unwrap());
    assert!(!elsewhere.set_once("a", "2").await.unwrap());

    assert_eq!(elsewhere.setting("a").await.unwrap().as_deref(), Some("1"));
    assert_eq!(elsewhere.setting("b").await.unwrap(), None);
}
