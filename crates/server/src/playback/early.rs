//! A video that is watched while it is being made: playlists of the segments that are committed so far.
//!
//! Every chunk is a commit, so what is listed once is never taken back. The addresses stay good after the publication:
//! then the same files are those of the generation that the job made.

use super::{BRIEFLY, FOREVER, shown};
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
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashMap};
use store::catalogue::Entry;

/// What a job has committed so far, as far as it can be played.
struct Early {
    plan: Plan,
    presentation: Presentation,
    is_complete: bool,
    /// The execution that made each file.
    makers: HashMap<FilePath, FilePath>,
}

impl Early {
    async fn of(app: &App, job: JobId) -> Result<Self> {
        let plan: Plan = committed(app, job, StageKind::Plan).await?.pop().flatten().ok_or(NOT_YET)?;
        let encoded: Vec<Option<TrackResult>> = committed(app, job, StageKind::Encode).await?;
        let sounds: Vec<Option<TrackResult>> = committed(app, job, StageKind::Audio).await?;
        let mut makers = HashMap::new();
        for made in encoded.iter().chain(&sounds).flatten() {
            for file in made.tracks.iter().flat_map(Track::files) {
                makers.entry(file.path.clone()).or_insert_with(|| made.execution.clone());
            }
        }
        let is_complete = encoded.iter().chain(&sounds).all(Option::is_some);
        // A track of sound is committed as a whole; picture without its sound is not worth watching.
        let sounds: Vec<TrackResult> = sounds.into_iter().collect::<Option<_>>().ok_or(NOT_YET)?;
        let video = pictures(&plan, encoded)?;
        let end = video.iter().map(seconds).fold(f64::INFINITY, f64::min);
        let audio =
            sounds.into_iter().flat_map(|made| made.tracks).filter_map(|track| sound(&plan, track, end));
        let presentation = Presentation { audio: audio.collect(), video, subtitles: Vec::new() };
        Ok(Early { plan, presentation, is_complete, makers })
    }

    fn track(&self, name: &str) -> Option<&Track> {
        let sounds = self.presentation.audio.iter().map(|sound| &sound.track);
        self.presentation.video.iter().chain(sounds).find(|track| track.name == name)
    }

    fn caps(&self) -> BTreeMap<String, u64> {
        let rungs = self.plan.picture.iter().flat_map(|picture| &picture.rungs);
        rungs.map(|rung| (rung.name.to_string(), u64::from(rung.max_kbps) * 1000)).collect()
    }
}

const NOT_YET: Error = Error::NotFound("stream: nothing of the video can be watched yet");

async fn committed<T: DeserializeOwned>(app: &App, job: JobId, stage: StageKind) -> Result<Vec<Option<T>>> {
    let values = app.store.results_of_stage(job, stage.as_str()).await?;
    let read = |value| {
        serde_json::from_value(value)
            .map_err(|error| Error::Internal(format!("{stage} of job {job}: {error}")))
    };
    values.into_iter().map(read).collect()
}

/// Of each rung what there is without a gap from the beginning, and of all rungs equally much. What is listed once is
/// never taken back, so an optional rung is not among them.
fn pictures(plan: &Plan, encoded: Vec<Option<TrackResult>>) -> Result<Vec<Track>> {
    let Some(picture) = &plan.picture else { return Err(NOT_YET) };
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
        return Err(NOT_YET);
    }
    let join = |rung: &media::ladder::Rung| {
        let mut runs = runs.remove(&rung.name).unwrap_or_default();
        runs.truncate(common);
        Track::join(runs).map_err(|error| Error::Internal(format!("{}: {error}", rung.name)))
    };
    rungs().map(join).collect()
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
    let early = Early::of(app, job).await?;
    Ok(master::early(&early.presentation, &format!("early/{job}/"), &early.caps()))
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
    let early = Early::of(app, job).await?;
    let track = early.track(name).ok_or(Error::NotFound("track"))?;
    let text = playlist::event(track, early.plan.settings.segment_seconds, early.is_complete);
    Ok(([(header::CONTENT_TYPE, kind::of(playlist::MEDIA)), (header::CACHE_CONTROL, BRIEFLY)], text)
        .into_response())
}

/// Where a file is now: with the execution that made it, or in the generation that it became part of.
async fn place(app: &App, video: &Entry, job: JobId, path: &str) -> Result<Place> {
    let generations = app.store.generations(video.id).await?;
    if let Some(generation) = generations.iter().find(|generation| generation.job == job) {
        let name = generation.manifest["generation"].as_str().unwrap_or_default();
        return Ok(app.data.published(video.id, name, path));
    }
    let early = Early::of(app, job).await?;
    let maker = early.makers.get(path).ok_or(Error::NotFound("file"))?;
    Ok(app.data.part(maker, path))
}
