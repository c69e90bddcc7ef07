//! Videos: what the viewer sees moves with a commit, and can be moved back.

use crate::shop::{commit_of, simple, wide};
use crate::world::{LEASE, World};
use rules::failure::Kind;
use rules::job;
use rules::task::Refusal;
use rules::video::{self, State};
use rules::{GenerationId, VideoId, WorkerId};
use serde_json::json;
use store::video::NewVideo;
use store::{Error, Step};
use wire::{Answer, Assignment, Commit, Publication, Rendition};

on_both_engines![
    a_new_video_waits_for_its_first_stream,
    a_slug_is_taken_once,
    a_video_follows_its_job,
    a_video_is_published_with_the_commit,
    a_crash_before_the_commit_publishes_nothing,
    a_retranscode_never_takes_a_playable_video_away,
    a_video_can_be_rolled_back_to_an_older_generation,
    a_generation_is_found_by_its_id_and_by_its_job,
    two_executions_never_publish_twice,
    publications_at_once_leave_the_newest,
    a_deleted_video_is_hidden_and_can_be_restored,
    deleting_a_video_cancels_its_jobs,
    a_publication_that_cannot_be_used_fails_its_task_alone,
    a_job_is_not_submitted_for_a_video_that_is_not_there,
    a_failed_video_stays_failed_when_its_job_is_archived,
    what_happens_to_a_video_is_audited,
];

fn publication(video: VideoId) -> Publication {
    let rendition = |name: &str, height| Rendition {
        name: name.into(),
        codec: "avc1".into(),
        width: None,
        height: Some(height),
        bandwidth: Some(1_000_000),
        bytes: 42,
    };
    let renditions = vec![rendition("1080p", 1080), rendition("720p", 720)];
    Publication { video, manifest: json!({ "master.m3u8": "sha256" }), renditions }
}

async fn publish(world: &World, task: &Assignment, video: VideoId) -> Answer {
    world.say(Commit { publication: Some(publication(video)), ..commit_of(task.proof) }).await
}

/// A video whose first job has published.
async fn published(world: &World) -> (WorkerId, VideoId, GenerationId) {
    let worker = world.worker("noop").await;
    let video = world.video("talk").await;
    world.submit_for(video, simple()).await;
    assert_eq!(publish(world, &world.claim(worker).await, video).await, Answer::Accepted);
    world.orchestrate().await;
    (worker, video, world.store.video(video).await.unwrap().generation.unwrap())
}

async fn state(world: &World, video: VideoId) -> State {
    world.store.video(video).await.unwrap().state
}

async fn a_new_video_waits_for_its_first_stream(world: &World) {
    let video = world.video("talk").await;

    let seen = world.store.video(video).await.unwrap();

    assert_eq!((seen.slug.as_str(), seen.state, seen.generation), ("talk", State::Pending, None));
    let unknown = world.store.video(VideoId(404)).await;
    assert!(matches!(unknown, Err(Error::NotFound("video"))));
}

async fn a_slug_is_taken_once(world: &World) {
    world.video("talk").await;

    let again = NewVideo { slug: "talk".into(), ..NewVideo::default() };
    let again = world.store.create_video(&again).await.unwrap_err();

    assert_eq!(again.to_string(), "the slug `talk` is taken; choose another");
}

async fn a_video_follows_its_job(world: &World) {
    let worker = world.worker("noop").await;
    let video = world.video("talk").await;
    world.submit_for(video, simple()).await;
    assert_eq!(state(world, video).await, State::Pending);

    let task = world.claim(worker).await;
    assert_eq!(state(world, video).await, State::Processing);
    world.fail(&task, Kind::Permanent).await;
    world.orchestrate().await;

    assert_eq!(state(world, video).await, State::Failed);
    world.submit_for(video, simple()).await;
    assert_eq!(state(world, video).await, State::Pending, "a new job, a new chance");
}

async fn a_video_is_published_with_the_commit(world: &World) {
    let worker = world.worker("noop").await;
    let video = world.video("talk").await;
    let job = world.submit_for(video, wide(2)).await;
    let task = world.claim(worker).await;

    assert_eq!(publish(world, &task, video).await, Answer::Accepted);

    let seen = world.store.video(video).await.unwrap();
    assert_eq!(seen.state, State::Ready, "before anything is settled");
    let renditions = world.store.renditions(seen.generation.unwrap()).await.unwrap();
    let names: Vec<_> = renditions.iter().map(|one| (one.name.as_str(), one.height)).collect();
    assert_eq!(names, [("1080p", Some(1080)), ("720p", Some(720))]);
    assert!(world.is(job, job::State::Processing).await);
}

async fn a_crash_before_the_commit_publishes_nothing(world: &World) {
    let (_, video, generation) = published(world).await;

    let mut tx = world.store.db().write(Step::Manage).await.unwrap();
    let insert =
        "INSERT INTO generation (video_id, job_id, task_id, manifest, created_at) VALUES ($1, 1, 1, '', 0)";
    tx.query(insert).bind(video).execute().await.unwrap();
    tx.query("UPDATE video SET generation_id = 99 WHERE id = $1").bind(video).execute().await.unwrap();
    drop(tx);

    assert_eq!(world.store.video(video).await.unwrap().generation, Some(generation));
}

async fn a_retranscode_never_takes_a_playable_video_away(world: &World) {
    let (worker, video, first) = published(world).await;
    world.submit_for(video, simple()).await;

    let task = world.claim(worker).await;
    assert_eq!(state(world, video).await, State::Ready);
    world.fail(&task, Kind::Permanent).await;
    world.orchestrate().await;
    let seen = world.store.video(video).await.unwrap();
    assert_eq!((seen.state, seen.generation), (State::Ready, Some(first)));

    world.submit_for(video, simple()).await;
    publish(world, &world.claim(worker).await, video).await;
    let seen = world.store.video(video).await.unwrap();
    assert_eq!(seen.state, State::Ready);
    assert!(seen.generation > Some(first));
    assert!(!world.store.renditions(first).await.unwrap().is_empty(), "the old one is still there");
    world.orchestrate().await;
}

async fn a_video_can_be_rolled_back_to_an_older_generation(world: &World) {
    let (worker, video, first) = published(world).await;
    world.submit_for(video, simple()).await;
    publish(world, &world.claim(worker).await, video).await;
    world.orchestrate().await;
    let second = world.store.video(video).await.unwrap().generation.unwrap();

    world.store.rollback_video(video, first).await.unwrap();

    assert_eq!(world.store.video(video).await.unwrap().generation, Some(first));
    let refused = world.store.rollback_video(video, second).await;
    assert!(matches!(
        refused,
        Err(Error::Refused(store::Refusal::Video(video::Refusal::Newer(newer)))) if newer == second
    ));
    let unknown = world.store.rollback_video(video, GenerationId(404)).await;
    assert!(matches!(unknown, Err(Error::NotFound(_))));
    let other = world.video("other").await;
    let foreign = world.store.rollback_video(other, first).await;
    assert!(matches!(foreign, Err(Error::NotFound(_))), "a generation belongs to one video");
}

async fn two_executions_never_publish_twice(world: &World) {
    let (worker, video) = (world.worker("noop").await, world.video("talk").await);
    world.submit_for(video, simple()).await;
    let lost = world.claim(worker).await;
    world.turn(LEASE);
    world.orchestrate().await;
    let taken = world.claim(worker).await;

    let answers = [
        publish(world, &lost, video).await,
        publish(world, &taken, video).await,
        publish(world, &taken, video).await,
        publish(world, &lost, video).await,
    ];

    let expected = [
        Answer::Refused(Refusal::StaleToken),
        Answer::Accepted,
        Answer::AlreadyAccepted,
        Answer::Refused(Refusal::CommittedByOther),
    ];
    assert_eq!(answers, expected);
    assert_eq!(world.count("SELECT count(*) FROM generation").await, 1);
    let by_hand = "INSERT INTO generation (video_id, job_id, task_id, manifest, created_at)
        SELECT video_id, job_id, task_id, manifest, created_at FROM generation";
    assert!(world.execute(by_hand).await.is_err(), "the database sees to it too");
}

async fn publications_at_once_leave_the_newest(world: &World) {
    let worker = world.worker("noop").await;
    let videos = [world.video("a").await, world.video("b").await];
    let another = world.elsewhere().await;
    let publish =
        |task: &Assignment, video| Commit { publication: Some(publication(video)), ..commit_of(task.proof) };
    for _ in 0..10 {
        for video in videos {
            world.submit_for(video, wide(2)).await;
        }
        let tasks = world.store.claim(worker, 4).await.unwrap();
        // Two batches that publish both videos, in opposite order.
        let here = [publish(&tasks[0], videos[0]), publish(&tasks[2], videos[1])];
        let there = [publish(&tasks[3], videos[1]), publish(&tasks[1], videos[0])];

        let (here, there) = tokio::join!(world.store.commit(&here), another.commit(&there));

        assert_eq!((here.unwrap(), there.unwrap()), (vec![Answer::Accepted; 2], vec![Answer::Accepted; 2]));
        world.orchestrate().await;
        let newest: Vec<(i64, i64)> =
            world.rows("SELECT video_id, max(id) FROM generation GROUP BY video_id ORDER BY video_id").await;
        for (video, newest) in newest {
            let seen = world.store.video(VideoId(video)).await.unwrap();
            assert_eq!(seen.generation, Some(GenerationId(newest)));
        }
    }
}

async fn a_deleted_video_is_hidden_and_can_be_restored(world: &World) {
    let (_, video, generation) = published(world).await;

    world.store.delete_video(video).await.unwrap();
    assert!(world.store.video(video).await.unwrap().is_deleted);
    let refused = world.store.delete_video(video).await;
    assert!(matches!(refused, Err(Error::Refused(store::Refusal::Video(video::Refusal::Deleted)))));

    world.store.restore_video(video).await.unwrap();
    let seen = world.store.video(video).await.unwrap();
    assert_eq!((seen.is_deleted, seen.state, seen.generation), (false, State::Ready, Some(generation)));
    let refused = world.store.restore_video(video).await;
    assert!(matches!(refused, Err(Error::Refused(store::Refusal::Video(video::Refusal::NotDeleted)))));
}

async fn deleting_a_video_cancels_its_jobs(world: &World) {
    let (worker, video, generation) = published(world).await;
    let job = world.submit_for(video, simple()).await;
    let other = world.submit_for(world.video("other").await, simple()).await;
    let task = world.claim(worker).await;

    world.store.delete_video(video).await.unwrap();

    assert!(world.is(job, job::State::Cancelled).await);
    assert!(world.is(other, job::State::Pending).await);
    assert_eq!(publish(world, &task, video).await, Answer::Refused(Refusal::NotRunning));
    assert_eq!(world.store.video(video).await.unwrap().generation, Some(generation));
}

async fn a_publication_that_cannot_be_used_fails_its_task_alone(world: &World) {
    let worker = world.worker("noop").await;
    let (video, other) = (world.video("talk").await, world.video("other").await);
    let job = world.submit_for(video, wide(5)).await;
    let tasks = world.store.claim(worker, 5).await.unwrap();
    let with =
        |task: &Assignment, publication| Commit { publication: Some(publication), ..commit_of(task.proof) };
    let mut twice = publication(video);
    twice.renditions.push(twice.renditions[0].clone());

    let commits = [
        with(&tasks[0], publication(VideoId(404))),
        with(&tasks[1], publication(other)),
        with(&tasks[2], twice),
        with(&tasks[3], publication(video)),
        commit_of(tasks[4].proof),
    ];
    let answers = world.store.commit(&commits).await.unwrap();

    let unusable = Answer::Refused(Refusal::BadResult);
    assert_eq!(answers, [unusable, unusable, unusable, Answer::Accepted, Answer::Accepted]);
    world.orchestrate().await;
    assert!(world.is(job, job::State::Failed).await);
    let reasons: Vec<(String,)> =
        world.rows("SELECT error FROM execution WHERE error IS NOT NULL ORDER BY task_id").await;
    let reasons: Vec<&str> = reasons.iter().map(|(reason,)| reason.as_str()).collect();
    let expected = [
        "it would publish video 404, and its job is about video 1",
        "it would publish video 2, and its job is about video 1",
        "it would publish two renditions called `1080p`",
    ];
    assert_eq!(reasons, expected);
}

async fn a_job_is_not_submitted_for_a_video_that_is_not_there(world: &World) {
    let video = world.video("talk").await;
    world.store.delete_video(video).await.unwrap();
    let job = |video| store::submit::NewJob { video: Some(video), ..crate::shop::new_job(simple()) };

    let unknown = world.store.submit(&job(VideoId(404))).await;
    let deleted = world.store.submit(&job(video)).await;

    assert!(matches!(unknown, Err(Error::NotFound("video"))), "{unknown:?}");
    assert!(
        matches!(deleted, Err(Error::Refused(store::Refusal::Video(video::Refusal::Deleted)))),
        "{deleted:?}"
    );
}

async fn a_failed_video_stays_failed_when_its_job_is_archived(world: &World) {
    let worker = world.worker("noop").await;
    let video = world.video("talk").await;
    world.submit_for(video, simple()).await;
    world.fail(&world.claim(worker).await, Kind::Permanent).await;
    world.orchestrate().await;

    assert_eq!(world.store.archive(world.now(), 10).await.unwrap(), 1);

    assert_eq!(state(world, video).await, State::Failed);
    world.submit_for(video, simple()).await;
    assert_eq!(state(world, video).await, State::Pending);
}

async fn what_happens_to_a_video_is_audited(world: &World) {
    let (_, video, generation) = published(world).await;

    world.store.delete_video(video).await.unwrap();

    let audit: Vec<(String, String, String)> =
        world.rows("SELECT role, command, note FROM audit WHERE note LIKE 'video %' ORDER BY id").await;
    let ready = format!("ready (generation {generation}");
    let expected = [
        ("worker", "publish", format!("video {video}: processing → {ready})")),
        ("user", "delete", format!("video {video}: {ready}) → {ready}, deleted)")),
    ];
    assert_eq!(audit, expected.map(|(role, command, note)| (role.to_owned(), command.to_owned(), note)));
}

async fn a_generation_is_found_by_its_id_and_by_its_job(world: &World) {
    let (_, video, id) = published(world).await;

    let key = world.store.generation_key(id).await.unwrap();

    let generation = world.store.generation(id).await.unwrap();
    assert_eq!((key.id, key.job, key.created_at), (id, generation.job, generation.created_at));
    assert_eq!(world.store.generation_of_job(video, key.job).await.unwrap(), Some(key));
    assert_eq!(world.store.generation_of_job(VideoId(404), key.job).await.unwrap(), None);
    let manifest: serde_json::Value = world.store.manifest(id).await.unwrap();
    assert_eq!(manifest, generation.manifest);
    let unknown = world.store.generation_key(rules::GenerationId(404)).await;
    assert!(matches!(unknown, Err(Error::NotFound("generation"))));
}
