use crate::scene::{Scene, commit, job, within};
use dispatch::Mode;
use dispatch::herald;
use dispatch::news::{self, News};
use futures_util::StreamExt;
use serde_json::{Value, json};
use store::submit::NewJob;
use store::video::NewVideo;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use wire::{Commit, Progress, Publication};

#[tokio::test]
async fn what_happens_is_told_by_the_channels_of_document_001() {
    let scene = Scene::new();
    let process = scene.process("noop", Mode::Redis).await;
    let client = redis::Client::open(scene.url.as_str()).unwrap();
    let mut heard = client.get_async_pubsub().await.unwrap();
    heard.psubscribe(format!("{}*_*", scene.prefix)).await.unwrap();
    let mut heard = heard.into_on_message();
    let ending = CancellationToken::new();
    let herald = tokio::spawn(herald::run(process.redis.clone(), process.store.clone(), ending.clone()));
    let mut next = async |channel: &str| -> Value {
        let channel = format!("{}{channel}", scene.prefix);
        within(&channel, async {
            loop {
                let message = heard.next().await.unwrap();
                if message.get_channel_name() == channel {
                    let said: String = message.get_payload().unwrap();
                    return serde_json::from_str(&said).unwrap();
                }
            }
        })
        .await
    };
    // Somebody tells already.
    assert!(next("worker_status").await["worker"].is_string());

    let new =
        NewVideo { slug: "talk".into(), title: "talk".into(), user: "ann".into(), ..NewVideo::default() };
    let video = process.store.create_video(&new).await.unwrap();
    process.store.submit(&NewJob { video: Some(video), ..job(1, 5) }).await.unwrap();
    let task = process.store.claim(process.worker, 1).await.unwrap().remove(0);
    let word = Progress {
        proof: task.proof,
        progress: 1,
        step: Some("encode".into()),
        permille: Some(420),
        kept: None,
    };
    process.store.progress(&[word]).await.unwrap();
    let progress = next(&format!("transcode_progress:{video}")).await;
    let publication = Publication { video, manifest: json!({}), renditions: Vec::new() };
    process.store.commit(&[Commit { publication: Some(publication), ..commit(&task) }]).await.unwrap();
    let complete = next(&format!("transcode_complete:{video}")).await;

    assert_eq!((&progress["video"], &progress["running"][0]["permille"]), (&json!(video.0), &json!(420)));
    assert_eq!((&complete["video"], &complete["status"]), (&json!(video.0), &json!("ready")));
    ending.cancel();
    herald.await.unwrap();
}

#[tokio::test]
async fn one_process_looks_and_another_hears_how_far_work_is() {
    let scene = Scene::new();
    let (here, there) = (scene.process("noop", Mode::Redis).await, scene.redis(Mode::Redis).await);
    let (sender, mut heard) = mpsc::unbounded_channel();
    tokio::spawn(async move { news::listen(&there, |news| drop(sender.send(news))).await });
    tokio::spawn(herald::run(here.redis.clone(), here.store.clone(), CancellationToken::new()));
    let is_load = |news: Option<News>| matches!(news, Some(News::Load(_)));
    assert!(is_load(within("a worker is told of", heard.recv()).await));

    let id = here.store.submit(&job(1, 5)).await.unwrap().id();
    let task = here.store.claim(here.worker, 1).await.unwrap().remove(0);
    let word = Progress { proof: task.proof, progress: 1, step: None, permille: Some(7), kept: None };
    here.store.progress(&[word]).await.unwrap();

    let progress = loop {
        match within("progress is told", heard.recv()).await.unwrap() {
            News::Progress(progress) => break progress,
            News::Load(_) => {}
        }
    };
    assert_eq!((progress.job, progress.video, &progress.running[0]["permille"]), (id, None, &json!(7)));
}
