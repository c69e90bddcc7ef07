//! A video that is watched while it is being made: playlists of the segments that are committed so far.
//!
//! Every chunk is a commit, so what is listed once is never taken back. The addresses stay good after the publication:
//! then the same files are those of the generation that the job made.
//!
//! A job may have thousands of chunks. Their results are read once for all requests, and again when there are more.

use super::{BRIEFLY, FOREVER, Stream, shown};
use crate::app::App;
use crate::body::Path;
use crate::data::is_tame;
use crate::problem::{Error, Result};
use crate::ranged::{self, Told};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, header};
use axum::response::IntoResponse;
use files::Place;
use media::manifest::{Presentation, Sound, Track};
use media::plan::Plan;
use media::{kind, master, playlist};
use pipeline::{FilePath, Name, StageKind, TrackResult};
use rules::JobId;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use store::catalogue::Entry;
use store::results::Version;

/// What is kept of jobs whose videos were asked for while they are made: megabytes of a large one.
pub const BYTES: usize = 64 << 20;

/// The stages whose results are played.
const STAGES: [StageKind; 3] = [StageKind::Plan, StageKind::Encode, StageKind::Audio];

/// What was found when a job was looked at.
pub struct Known {
    version: Version,
    /// None as long as nothing can be watched.
    early: Option<Early>,
}

/// What a job has committed so far, as far as it can be played.
struct Early {
    master: String,
    /// By the name of the track.
    playlists: HashMap<String, String>,
    executions: Vec<FilePath>,
    /// Of each file the execution that made it.
    makers: HashMap<FilePath, usize>,
}

impl Known {
    async fn of(app: &App, job: JobId) -> Result<Arc<Self>> {
        if let Ok(known) = Known::find(app, job).await? {
            return Ok(known);
        }
        let _turn = app.early.turn().await;
        match Known::find(app, job).await? {
            Ok(known) => Ok(known),
            Err(version) => {
                let known = Known { version, early: Early::of(app, job).await? };
                let bytes = known.early.as_ref().map_or(0, Early::bytes);
                Ok(app.early.keep(job, known, bytes))
            }
        }
    }

    /// What is known and has not changed since, or the version to look at.
    async fn find(app: &App, job: JobId) -> Result<Result<Arc<Self>, Version>> {
        let version = app.store.version_of_results(job, STAGES.map(StageKind::as_str)).await?;
        Ok(app.early.find(&job).filter(|known| known.version == version).ok_or(version))
    }

    fn early(&self) -> Result<&Early> {
        self.early.as_ref().ok_or(NOT_YET)
    }
}

impl Early {
    async fn of(app: &App, job: JobId) -> Result<Option<Self>> {
        let results = Results {
            plan: app.store.read_results(job, StageKind::Plan.as_str()).await?.pop().flatten(),
            encoded: app.store.read_results(job, StageKind::Encode.as_str()).await?,
            sounds: app.store.read_results(job, StageKind::Audio.as_str()).await?,
        };
        // Seconds of work for the largest job.
        let made = tokio::task::spawn_blocking(move || results.playable(job));
        made.await.map_err(|error| Error::Internal(error.to_string()))?
    }

    fn bytes(&self) -> usize {
        const FILE: usize = 64;
        let texts = self.playlists.iter().map(|(name, text)| name.len() + text.len());
        let executions = self.executions.iter().map(|name| name.as_str().len() + FILE);
        let makers = self.makers.keys().map(|path| path.as_str().len() + FILE);
        self.master.len() + texts.chain(executions).chain(makers).sum::<usize>()
    }

    fn maker(&self, path: &str) -> Option<&FilePath> {
        self.makers.get(path).and_then(|number| self.executions.get(*number))
    }
}

/// What the stages have committed.
struct Results {
    plan: Option<Plan>,
    encoded: Vec<Option<TrackResult>>,
    sounds: Vec<Option<TrackResult>>,
}

impl Results {
    /// None if nothing can be watched yet.
    fn playable(self, job: JobId) -> Result<Option<Early>> {
        let Some(plan) = self.plan else { return Ok(None) };
        let (mut executions, mut makers) = (Vec::new(), HashMap::new());
        for made in self.encoded.iter().chain(&self.sounds).flatten() {
            for file in made.tracks.iter().flat_map(Track::files) {
                makers.entry(file.path.clone()).or_insert(executions.len());
            }
            executions.push(made.execution.clone());
        }
        let is_complete = self.encoded.iter().chain(&self.sounds).all(Option::is_some);
        // A track of sound is committed as a whole; picture without its sound is not worth watching.
        let sounds: Option<Vec<TrackResult>> = self.sounds.into_iter().collect();
        let (Some(sounds), Some(video)) = (sounds, pictures(&plan, self.encoded)?) else { return Ok(None) };
        let end = video.iter().map(seconds).fold(f64::INFINITY, f64::min);
        let audio =
            sounds.into_iter().flat_map(|made| made.tracks).filter_map(|track| sound(&plan, track, end));
        let presentation = Presentation { audio: audio.collect(), video, subtitles: Vec::new() };
        let tracks = presentation.video.iter().chain(presentation.audio.iter().map(|sound| &sound.track));
        let playlist = |track: &Track| playlist::event(track, plan.settings.segment_seconds, is_complete);
        Ok(Some(Early {
            playlists: tracks.map(|track| (track.name.to_string(), playlist(track))).collect(),
            master: master::early(&presentation, &format!("early/{job}/"), &caps(&plan)),
            executions,
            makers,
        }))
    }
}

fn caps(plan: &Plan) -> BTreeMap<String, u64> {
    let rungs = plan.picture.iter().flat_map(|picture| &picture.rungs);
    rungs.map(|rung| (rung.name.to_string(), u64::from(rung.max_kbps) * 1000)).collect()
}

const NOT_YET: Error = Error::NotFound("stream: nothing of the video can be watched yet");

/// Of each rung what there is without a gap from the beginning, and of all rungs equally much. What is listed once is
/// never taken back, so an optional rung is not among them.
fn pictures(plan: &Plan, encoded: Vec<Option<TrackResult>>) -> Result<Option<Vec<Track>>> {
    let Some(picture) = &plan.picture else { return Ok(None) };
    let mut runs: BTreeMap<Name, Vec<Track>> = BTreeMap::new();
    for chunks in encoded.chunks(picture.chunks.len().max(1)) {
        for made in chunks.iter().map_while(Option::as_ref) {
            for track in &made.tracks {
                runs.entry(track.name.clone()).or_default().push(track.clone());
            }
        }
    }
    let rungs = || picture.rungs.iter().filter(|rung| !rung.optional);
    let common = rungs().map(|rung| runs.get(&rung.name).map_or(0, Vec::len)).min().unwrap_or(0);
    if common == 0 {
        return Ok(None);
    }
    let join = |rung: &media::ladder::Rung| {
        let mut runs = runs.remove(&rung.name).unwrap_or_default();
        runs.truncate(common);
        Track::join(runs).map_err(|error| Error::Internal(format!("{}: {error}", rung.name)))
    };
    rungs().map(join).collect::<Result<_>>().map(Some)
}

/// The part of it that there is picture for.
fn sound(plan: &Plan, mut track: Track, end: f64) -> Option<Sound> {
    let planned = plan.audio.iter().find(|planned| planned.name == track.name)?;
    let scale = f64::from(track.timescale.max(1));
    track.segments.retain(|segment| (segment.start as f64 / scale) < end - 0.1);
    let (language, title) = (planned.language.clone(), planned.title.clone());
    Some(Sound { track, language, title, is_default: planned.is_default })
}

fn seconds(track: &Track) -> f64 {
    track.end() as f64 / f64::from(track.timescale.max(1))
}

/// The master playlist of a video that has none yet.
pub async fn playlist_of(app: &App, video: &Entry) -> Result<String> {
    let job = video.job.filter(|_| video.is_early_playback).ok_or(NOT_YET)?;
    Ok(Known::of(app, job).await?.early()?.master.clone())
}

pub async fn serve(
    State(app): State<App>,
    Path((slug, job, track, file)): Path<(String, JobId, String, String)>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response<Body>> {
    let video = shown(&app, &slug).await?;
    let is_own = app.store.video_of_job(job).await? == Some(video.id);
    if !is_own || !video.is_early_playback || !is_tame(&track) || !is_tame(&file) {
        return Err(Error::NotFound("file"));
    }
    if file == playlist::MEDIA {
        return list(&app, job, &track).await;
    }
    let path = format!("{track}/{file}");
    let place = place(&app, &video, job, &path).await?;
    let told = Told {
        content_type: kind::of(&file),
        etag: format!("{job}-{path}").replace('/', "-"),
        cache: FOREVER,
    };
    ranged::respond(&place, &told, &method, &headers).await
}

async fn list(app: &App, job: JobId, name: &str) -> Result<Response<Body>> {
    let known = Known::of(app, job).await?;
    let text = known.early()?.playlists.get(name).ok_or(Error::NotFound("track"))?.clone();
    Ok(([(header::CONTENT_TYPE, kind::of(playlist::MEDIA)), (header::CACHE_CONTROL, BRIEFLY)], text)
        .into_response())
}

/// Where a file is now: with the execution that made it, or in the generation that it became part of.
async fn place(app: &App, video: &Entry, job: JobId, path: &str) -> Result<Place> {
    if let Some(generation) = app.store.generation_of_job(video.id, job).await? {
        let stream = Stream::of(app, generation).await?;
        return Ok(app.data.published(video.id, &stream.generation, path));
    }
    let known = Known::of(app, job).await?;
    let maker = known.early()?.maker(path).ok_or(Error::NotFound("file"))?;
    Ok(app.data.part(maker, path))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{AdminSecret, Data};
    use rules::WorkerId;
    use serde_json::json;
    use store::submit::NewJob;
    use store::{Location, Store};
    use wire::{Commit, Hello, Usage};

    /// An app, a job with two chunks, and their tasks.
    async fn with_a_job(folder: &std::path::Path) -> (App, JobId, Vec<wire::Assignment>) {
        let store = Store::open(&Location::Sqlite(folder.join("db")), Default::default()).await.unwrap();
        let stages = json!([{ "name": "plan", "kind": "noop" }, { "name": "encode", "kind": "noop", "segments": 2 },
                            { "name": "audio", "kind": "noop" }]);
        let spec = serde_json::from_value(json!({ "name": "test", "stage": stages })).unwrap();
        let job = store.submit(&NewJob { spec, video: None, idempotency_key: None }).await.unwrap().id();
        let hello = Hello {
            worker: WorkerId(uuid::Uuid::new_v4()),
            name: "one".into(),
            kind: wire::Kind::Local,
            hostname: "here".into(),
            version: "1".into(),
            slots: 9,
            capabilities: "noop".parse().unwrap(),
            metadata: json!(null),
        };
        store.register_worker(&hello).await.unwrap();
        let tasks = store.claim(hello.worker, 9).await.unwrap();
        let options = crate::Options::default();
        (App::new(store, Data::open(folder).unwrap(), AdminSecret::given("x"), options), job, tasks)
    }

    fn commit(task: &wire::Assignment) -> Commit {
        let (usage, steps) = (Usage::default(), Vec::new());
        Commit { proof: task.proof, result: None, publication: None, arrival: None, usage, steps }
    }

    #[tokio::test]
    async fn results_are_read_once_for_all_who_ask_and_again_when_there_are_more() {
        let folder = tempfile::tempdir().unwrap();
        let (app, job, tasks) = with_a_job(folder.path()).await;

        let all = futures_util::future::join_all((0..20).map(|_| Known::of(&app, job))).await;

        let first = all[0].as_ref().unwrap();
        assert!(all.iter().all(|known| Arc::ptr_eq(known.as_ref().unwrap(), first)));
        assert!(first.early().is_err(), "nothing can be watched yet");
        for task in &tasks {
            let before = Known::of(&app, job).await.unwrap();
            app.store.commit(&[commit(task)]).await.unwrap();
            let after = Known::of(&app, job).await.unwrap();
            assert!(!Arc::ptr_eq(&before, &after), "a commit is seen");
            assert!(Arc::ptr_eq(&after, &Known::of(&app, job).await.unwrap()));
        }
    }
}
