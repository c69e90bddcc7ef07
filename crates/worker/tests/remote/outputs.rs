use std::path::PathBuf;

use pipeline::FilePath;
use rules::task::Refusal;
use serde_json::json;
use wire::{Assignment, Commit, Desk, Usage};
use worker::{Context, Depot, Failed};

use crate::line::Harm;
use crate::scene::{Scene, job, noise, proof};

const LARGE: usize = 3 << 20;

/// An execution that has made three files, one of them large.
struct Made {
    scene: Scene,
    job: Assignment,
    context: Context,
    folder: PathBuf,
}

impl Made {
    async fn new() -> Self {
        let scene = Scene::new().await;
        let (job, folder) = (job(), scene.folder.path().join("made"));
        std::fs::create_dir_all(folder.join("720p")).unwrap();
        std::fs::write(folder.join("720p/seg-00001.m4s"), noise(LARGE)).unwrap();
        std::fs::write(folder.join("720p/init.mp4"), noise(700)).unwrap();
        std::fs::write(folder.join("poster.jpg"), b"").unwrap();
        let context = scene.context(&job);
        Made { scene, job, context, folder }
    }

    async fn keep(&self) -> Result<FilePath, Failed> {
        Depot::from(self.scene.client.clone()).keep(&self.job, &self.context, self.folder.clone()).await
    }

    /// That the server has what was made, and nothing else.
    fn assert_arrived(&self) {
        self.scene.server.with(|desk| {
            let paths: Vec<_> = desk.outputs.keys().map(String::as_str).collect();
            assert_eq!(paths, ["720p/init.mp4", "720p/seg-00001.m4s", "poster.jpg"]);
            assert!(desk.outputs["720p/seg-00001.m4s"] == noise(LARGE));
            assert!(desk.outputs["720p/init.mp4"] == noise(700));
        });
    }
}

pub async fn files_arrive_whole_and_are_listed_in_the_commit() {
    let made = Made::new().await;

    let place = made.keep().await.unwrap();
    let commit = Commit {
        proof: proof(),
        result: Some(json!({})),
        publication: None,
        arrival: None,
        usage: Usage::default(),
        steps: Vec::new(),
    };
    made.scene.line.harm("complete", Harm::Page(200));
    made.scene.desk.commit(&commit).await.unwrap_err();
    made.scene.desk.commit(&commit).await.unwrap();

    assert_eq!(place, proof().execution().to_string());
    made.assert_arrived();
    assert!(made.context.progress.beats() > 10, "bytes that move are progress");
    let listed = made.scene.server.said("complete")[0]["outputs"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 3, "also when it had to be said again");
    assert_eq!(listed[1]["path"], "720p/seg-00001.m4s");
    assert_eq!(listed[1]["bytes"], LARGE);
    assert_eq!(listed[2]["sha256"], "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

pub async fn an_upload_that_was_cut_goes_on_where_the_server_is() {
    let made = Made::new().await;
    let line = &made.scene.line;
    line.harm("PUT /api/worker/outputs/720p/seg", Harm::CutRequest(2 << 20));
    line.harm("HEAD", Harm::Refuse).harm("HEAD", Harm::Page(502));
    line.harm("PUT /api/worker/outputs/720p/seg", Harm::Silence);

    made.keep().await.unwrap();

    made.assert_arrived();
    assert_eq!(line.planned(), 0, "all harm was done");
    let received = made.scene.server.with(|desk| desk.received);
    assert!(received < LARGE + (1 << 20), "sent {received} bytes for {LARGE}");
    let asked = made.scene.server.asked("PUT 720p/seg");
    let asked = if asked.is_empty() {
        made.scene.server.asked("PUT outputs/720p/seg")
    } else {
        asked
    };
    assert!(asked.last().unwrap().contains(&format!("/{LARGE}")), "{asked:?}");
}

pub async fn a_file_that_arrives_damaged_is_sent_again_whole() {
    let made = Made::new().await;
    made.scene.server.with(|desk| desk.sees_damage = true);

    made.keep().await.unwrap();

    made.assert_arrived();
    assert_eq!(made.scene.server.asked("PUT").len(), 4, "one of the three twice");
}

pub async fn a_page_in_place_of_the_server_takes_no_file() {
    let made = Made::new().await;
    made.scene.line.harm("PUT", Harm::Page(200)).harm("PUT", Harm::Page(413)).harm("PUT", Harm::Refuse);

    made.keep().await.unwrap();

    made.assert_arrived();
    assert_eq!(made.scene.line.planned(), 0, "all harm was done");
}

pub async fn a_lost_lease_ends_the_upload() {
    let made = Made::new().await;
    made.scene.line.harm("PUT", Harm::Refuse).harm("PUT", Harm::Refuse);
    made.scene.server.with(|desk| desk.refusal = Some(Refusal::NotRunning));

    let kept = made.keep().await;

    assert!(kept.is_err());
    assert!(made.context.stop.is_cancelled());
    assert!(made.scene.server.with(|desk| desk.outputs.is_empty()));
}
