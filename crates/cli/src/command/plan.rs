use super::transcode::{Choices, clock, find_encoders, source};
use crate::settings::{Settings, Usage};
use crate::{Done, output};
use media::command;
use media::encoder::Family;
use media::limits::encode_hours;
use media::plan::{Plan, make};
use media::probe::LONGEST_REPORT;
use serde_json::json;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use worker::Failed;
use worker::process::{self, Exit, Guard, Progress, Reach, Sink};

/// Show what would be made of a video file
///
/// Looks at the file and prints its streams, the ladder, the chunks and the tracks of sound and text, without encoding
/// anything.
#[derive(clap::Args)]
pub struct Args {
    /// The video file
    file: PathBuf,
    #[command(flatten)]
    choices: Choices,
    /// How many encoders will run side by side. Default: one for each processor
    #[arg(long, value_name = "N")]
    slots: Option<NonZeroU32>,
    /// Print the one ffmpeg command that makes the same ladder, for comparing
    #[arg(long, conflicts_with = "json")]
    as_ffmpeg: bool,
    #[arg(long)]
    json: bool,
}

/// As long as a job's own look at a file may be silent.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

impl Args {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        let mut chosen = self.choices.settings()?;
        let guard = settings.guard();
        if chosen.encoder == Family::Auto {
            find_encoders(&mut chosen, &guard).await?;
        }
        chosen.parallel = self.slots.unwrap_or_else(super::worker::processors).get();
        let limits = settings.file_limits()?;
        limits.check_settings(&chosen).map_err(|bad| Usage(bad.to_string()))?;
        let input = source(&self.file)?.to_string_lossy().into_owned();
        let source =
            worker::transcode::look(&input, &limits, |_, argv, sink| run(argv, sink, &input, &guard)).await?;
        let plan = make(source, chosen);
        limits.check_plan(&plan)?;
        if self.as_ffmpeg {
            output::line(&worker::context::command_line(&command::whole(&plan, &input)));
        } else if self.json {
            output::json(&json!(plan))?;
        } else {
            lines(&plan).iter().for_each(|line| output::line(line));
        }
        Ok(Done::Yes)
    }
}

async fn run(argv: Vec<String>, sink: Option<Sink>, input: &str, guard: &Guard) -> Result<Exit, Failed> {
    let mut command = process::Command::new(argv, ".");
    command.guard = guard.clone();
    command.reach = Some(Reach::reading(input));
    (command.output_limit, command.sink) = (LONGEST_REPORT, sink);
    command.stall = Some(PATIENCE);
    let ended = process::run(&command, &Progress::default(), CancellationToken::new()).await;
    ended.map_err(|error| Failed::transient(error.to_string()))
}

fn lines(plan: &Plan) -> Vec<String> {
    let source = &plan.source;
    let mut lines = vec![format!("source      {}, {}", source.container, clock(plan.duration()))];
    if let Some(video) = &source.video {
        let timing = &video.timing;
        let kept = if timing.is_one_to_one { "each frame kept" } else { "made even" };
        lines.push(format!(
            "picture     {} {}×{}, {:.3} frames a second ({kept}), {} frames",
            video.codec,
            video.width,
            video.height,
            timing.rate.to_f64(),
            timing.frames
        ));
    }
    if let Some(picture) = &plan.picture {
        for rung in &picture.rungs {
            let size = format!("{}×{}", rung.width, rung.height);
            lines.push(format!(
                "rung        {:<12} {size:<10} {} crf {}, at most {} kb/s",
                rung.name, rung.codec, rung.crf, rung.max_kbps
            ));
        }
        for skipped in &picture.skipped {
            lines.push(format!("skipped     {:<12} {}", skipped.name, skipped.reason));
        }
        let seconds = |frames: u64| frames as f64 / picture.manner.rate.to_f64();
        let longest = picture.chunks.iter().map(|chunk| chunk.frames()).max().unwrap_or(0);
        lines.push(format!(
            "chunks      {} of at most {:.1} s, segments of {:.3} s; {} pieces of work",
            picture.chunks.len(),
            seconds(longest),
            seconds(picture.segment_frames.into()),
            plan.pieces().len() + plan.optional_pieces().len()
        ));
    }
    lines.push(format!("cost        about {:.1} processor hours", encode_hours(plan)));
    for track in &plan.audio {
        lines
            .push(format!("sound       {:<12} {} channels, {} kb/s", track.name, track.channels, track.kbps));
    }
    for track in &plan.subtitles {
        lines.push(format!("subtitles   {:<12} {}", track.name, track.title));
    }
    if let Some(thumbnails) = &plan.thumbnails {
        let each = thumbnails.seconds;
        lines.push(format!("thumbnails  {} pictures, one every {each} s", thumbnails.count));
    }
    lines.extend(source.notes.iter().map(|note| format!("note        {note}")));
    lines
}
