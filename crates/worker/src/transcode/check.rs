//! Checks what a remote worker made of a task, before the server commits it: nothing that was not compared with the source
//! is shown, also not to those who watch while the video is encoded.

use super::compare::{Unlike, compare_chunk, compare_sound};
use super::package::{playlists, sound};
use super::tools::disk;
use super::turns::Turns;
use super::{Tools, Work, gate};
use crate::Context;
use crate::handler::Failed;
use crate::workshop::Workshop;
use files::Tree;
use media::check::Expect;
use media::manifest::{Artifact, Presentation, Track};
use media::master;
use media::plan::{Piece, Plan};
use pipeline::{FilePath, StageKind, TrackResult};
use rules::WorkerId;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;
use wire::Assignment;

/// How long one check may take. What it compares is decoded far faster than it is played, but a file that cannot be entered in
/// the middle is decoded from its beginning.
const LEAST: Duration = Duration::from_secs(10 * 60);
const MOST: Duration = Duration::from_secs(30 * 60);

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct ResultCheck {
    tools: Tools,
    room: Arc<Room>,
    /// Each check keeps about one processor busy.
    turns: Arc<Turns>,
}

/// Removed with the last check; where the process is killed, by the next worker that uses the same folder.
#[derive(Debug)]
struct Room(Workshop);

impl Drop for Room {
    fn drop(&mut self) {
        let _ = self.0.close();
    }
}

#[derive(Debug)]
pub enum CheckError {
    /// It is not what the task was to make; in words.
    Rejected(String),
    /// It could not be compared.
    Failed(Failed),
}

impl ResultCheck {
    /// Compares up to `at_once` results at a time, in folders of their own below `folder`.
    pub fn open(tools: Tools, folder: &Path, at_once: usize) -> io::Result<Self> {
        let room = Arc::new(Room(Workshop::open(folder, WorkerId(Uuid::now_v7()))?));
        Ok(ResultCheck { tools, room, turns: Turns::new(at_once.max(1)) })
    }

    /// Whether a task of this kind has a result that can be compared with the source.
    pub fn applies_to(task: &Assignment) -> bool {
        let kind = task.kind.parse::<StageKind>();
        let is_made_of_the_source = matches!(kind, Ok(kind) if kind.is_picture() || kind == StageKind::Audio);
        is_made_of_the_source && task.payload.get("source").is_some()
    }

    /// Compares the committed files of a task with its source. `task` is as it was assigned, with what the server knows.
    pub async fn check(&self, task: &Assignment, made: &TrackResult) -> Result<(), CheckError> {
        let _turn = self.turns.take(task.proof.worker).await;
        let timeout_ms = i64::try_from(patience(task).as_millis()).ok();
        let task = Assignment { timeout_ms, stall_ms: None, ..task.clone() };
        let context = Context::new(&task, self.room.0.folder(task.proof.execution()), Instant::now());
        let work = Work { tools: &self.tools, job: &task, context: &context };
        let checked = compare(&work, made).await;
        context.remove_folder().await;
        checked.map_err(|unlike| match unlike {
            Unlike::Differs(what) => CheckError::Rejected(what),
            Unlike::Failed(failed) => CheckError::Failed(failed),
        })
    }
}

/// By the end of what was encoded: as long as it takes to play up to there, and twice the chunk.
fn patience(task: &Assignment) -> Duration {
    let covers = task.input.as_ref().and_then(|input| {
        let seconds = |at: usize| input.get("covers_seconds")?.get(at)?.as_f64();
        Some((seconds(0)?, seconds(1)?))
    });
    // Sound is compared whole, and so is a chunk of an older plan, which says less.
    let Some((from, to)) = covers else { return MOST };
    let own = Duration::try_from_secs_f64(2.0 * (to - from) + to / 4.0).unwrap_or_default();
    (LEAST + own).min(MOST)
}

/// Holds the files to the rules that the gate has for whole streams, so that one worker's bad segments do not fail the job.
async fn inspect(work: &Work<'_>, made: &TrackResult, parts: &Path) -> Result<(), Unlike> {
    let plan: Plan = work.result(StageKind::Plan.as_str())?;
    let (video, audio) = match work.job.kind.parse() {
        Ok(StageKind::Audio) => (Vec::new(), made.tracks.clone()),
        _ => (made.tracks.clone(), Vec::new()),
    };
    let audio = audio.into_iter().filter_map(|track| sound(&plan, track)).collect();
    let presentation = Presentation { video, audio, subtitles: Vec::new() };
    let (mut frames, mut decoding) = (BTreeMap::new(), None);
    let sounds = presentation.audio.iter().map(|sound| (sound.track.name.to_string(), 0.0));
    let mut begins: BTreeMap<String, f64> = sounds.collect();
    if let (Ok(piece), Some(picture)) = (work.input::<Piece>(), &plan.picture) {
        let of = presentation.video.iter().map(|track| (track.name.to_string(), piece.chunk.frames()));
        frames.extend(of);
        let begin = piece.chunk.first_frame as f64 / picture.manner.rate.to_f64();
        begins.extend(presentation.video.iter().map(|track| (track.name.to_string(), begin)));
        // The gate decodes the first and the last segment of a stream.
        let is_at_an_end = piece.chunk.first_frame == 0 || piece.chunk.end_frame == picture.frames;
        decoding = is_at_an_end.then(|| media::memory::checking(&plan));
    }
    let folder = work.context.folder().await?;
    let (tree, scratch) = (folder.join("stream"), folder.join("decoded"));
    std::fs::create_dir_all(&scratch).map_err(|error| disk("making", &scratch, &error))?;
    let laid_out = work.blocking({
        let (tree, parts) = (tree.clone(), parts.to_owned());
        move || lay_out(&tree, &parts, &presentation).map_err(|error| disk("laying out", &tree, &error))
    });
    let artifacts = laid_out.await?;
    let expect = Expect { frames, begins, artifacts, has_others: true, ..Expect::default() };
    match gate::inspect(work, &tree, expect, &scratch, decoding).await? {
        None => Ok(()),
        Some(what) => Err(Unlike::Differs(what)),
    }
}

/// Links the files below `parts` into `tree`, with playlists that list them.
fn lay_out(tree: &Path, parts: &Path, of: &Presentation) -> io::Result<Vec<Artifact>> {
    let (own, from) = (Tree::make(tree)?, Tree::open(parts)?);
    let tracks = of.video.iter().chain(of.audio.iter().map(|sound| &sound.track));
    let files: Vec<Artifact> = tracks.flat_map(Track::files).cloned().collect();
    for file in &files {
        own.link(&from, file.path.as_str(), file.path.as_str())?;
    }
    for (path, text) in playlists(of).into_iter().chain([("master.m3u8".into(), master::master(of, ""))]) {
        own.create_new(&path, text.as_bytes())?;
    }
    Ok(files)
}

async fn compare(work: &Work<'_>, made: &TrackResult) -> Result<(), Unlike> {
    let files = made.files().map(|file| (made.execution.clone(), file.clone()));
    let files: Vec<(FilePath, Artifact)> = files.collect();
    let parts = work.tools.depot.bring(work.context, &files).await?;
    let tree = parts.folder(&made.execution);
    inspect(work, made, &tree).await?;
    match work.job.kind.parse() {
        Ok(StageKind::Audio) => compare_sound(work, made, &tree).await,
        _ => compare_chunk(work, made, &tree).await,
    }
}
