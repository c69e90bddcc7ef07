//! One track of text, as WebVTT along the segments of the picture.

use super::tools::{Run, disk};
use super::{Work, outcome};
use crate::handler::{BoxFuture, Failed, Outcome};
use media::manifest::{Artifact, Subtitles};
use media::plan::{Plan, SubtitleTrack};
use media::{command, vtt};
use pipeline::SubtitleResult;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// Of one track, in bytes; a film has a hundred kilobytes of it.
const LONGEST_TEXT: u64 = 16 << 20;

/// Of one track, in bytes. A cue stands in each segment it is shown in, of most films in one or two.
const MOST_OF_SEGMENTS: u64 = 4 * LONGEST_TEXT;

pub(super) fn run(work: Work<'_>) -> BoxFuture<'_, Result<Outcome, Failed>> {
    Box::pin(async move {
        let input = work.open().await?;
        let (plan, track): (Plan, SubtitleTrack) = (work.result("plan")?, work.input()?);
        let folder = work.context.folder().await?.to_owned();
        let (file, made) = (folder.join(format!("{}.vtt", track.name)), folder.join("made"));
        let argv = command::subtitles(&plan, &track, input.argument());
        let run = Run::new("subtitles", argv, input.reach()).writing(LONGEST_TEXT);
        input.unchanged(work.succeed(run).await)?;
        let subtitles = work.blocking({
            let made = made.clone();
            move || write(&file, &made, &plan, &track)
        });
        let subtitles = subtitles.await?;
        outcome(&SubtitleResult { execution: work.keep(made).await?, subtitles })
    })
}

fn write(file: &Path, made: &Path, plan: &Plan, track: &SubtitleTrack) -> Result<Subtitles, Failed> {
    let delay = (command::subtitle_delay(plan) * 1000.0).round() as i64;
    let cues = vtt::earlier(vtt::parse(&read(file, track)?), delay);
    let whole = vtt::whole(&cues);
    if whole.len() as u64 > LONGEST_TEXT {
        return Err(too_much(track, "text", LONGEST_TEXT));
    }
    let save = |path: String, text: &str| {
        let to = made.join(&path);
        fs::write(&to, text).map_err(|error| disk("writing", &to, &error))?;
        Artifact::of(made, &path).map_err(|error| disk("reading", &to, &error))
    };
    let folder = made.join(&track.name);
    fs::create_dir_all(&folder).map_err(|error| disk("making", &folder, &error))?;
    let mut segments = Vec::new();
    let mut left = MOST_OF_SEGMENTS;
    for (number, text) in vtt::segments(&cues, &plan.boundaries()).enumerate() {
        left = left
            .checked_sub(text.len() as u64)
            .ok_or_else(|| too_much(track, "segments", MOST_OF_SEGMENTS))?;
        segments.push(save(Subtitles::segment_path(&track.name, number), &text)?);
    }
    Ok(Subtitles {
        name: track.name.clone(),
        language: track.language.clone(),
        title: track.title.clone(),
        is_default: track.is_default,
        is_forced: track.is_forced,
        segments,
        whole: save(Subtitles::whole_path(&track.name), &whole)?,
    })
}

fn read(file: &Path, track: &SubtitleTrack) -> Result<String, Failed> {
    let mut text = Vec::new();
    let opened = File::open(file).map(|file| file.take(LONGEST_TEXT + 1));
    opened.and_then(|mut file| file.read_to_end(&mut text)).map_err(|error| disk("reading", file, &error))?;
    if text.len() as u64 > LONGEST_TEXT {
        return Err(too_much(track, "text", LONGEST_TEXT));
    }
    Ok(String::from_utf8(text).unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned()))
}

fn too_much(track: &SubtitleTrack, what: &str, limit: u64) -> Failed {
    Failed::permanent(format!(
        "{} (stream {}) is left out: its {what} would take more than {} MiB, the most for one track of subtitles",
        track.name,
        track.stream,
        limit >> 20
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use media::plan;
    use media::settings::Settings;
    use media::source::{Audio, Source, Subtitle};

    /// Of sound that lasts so many hours, with one track of text.
    fn plan(hours: f64) -> Plan {
        let audio = Audio {
            stream: 0,
            codec: "aac".into(),
            channels: 2,
            layout: None,
            sample_rate: 48_000,
            language: "en".into(),
            title: None,
            is_default: true,
            start: 0.0,
            duration: hours * 3600.0,
            packets: None,
        };
        let subtitle = Subtitle {
            stream: 3,
            codec: "subrip".into(),
            language: "en".into(),
            title: None,
            is_default: false,
            is_forced: false,
            is_text: true,
        };
        let source = Source {
            container: "matroska,webm".into(),
            bytes: 1,
            start: 0.0,
            video: None,
            audio: vec![audio],
            subtitles: vec![subtitle],
            chapters: Vec::new(),
            notes: Vec::new(),
        };
        plan::make(source, Settings::default())
    }

    fn written(text: &str, hours: f64) -> Result<Subtitles, Failed> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("subtitles.vtt");
        fs::write(&file, text).unwrap();
        let plan = plan(hours);
        write(&file, &folder.path().join("made"), &plan, &plan.subtitles[0])
    }

    #[test]
    fn cues_that_last_for_hours_do_not_multiply_without_end() {
        let lasting = format!("\n00:00.000 --> 12:00:00.000\n{}\n", "x".repeat(1000));

        let one = written(&format!("WEBVTT\n{lasting}"), 12.0).unwrap();
        let many = written(&format!("WEBVTT\n{}", lasting.repeat(1000)), 1.0).unwrap_err().message;

        assert_eq!(one.segments.len(), 7200);
        assert_eq!(
            many,
            "subtitles-en (stream 3) is left out: its segments would take more than 64 MiB, the most for one track of \
             subtitles"
        );
    }

    #[test]
    fn a_text_that_is_too_long_is_not_read() {
        let cue = format!("\n00:00.000 --> 00:01.000\n{}\n", "x".repeat(1 << 20));

        let refused = written(&format!("WEBVTT\n{}", cue.repeat(16)), 0.01).unwrap_err().message;

        assert!(refused.contains("its text would take more than 16 MiB"), "{refused}");
        assert!(written(&format!("WEBVTT\n{}", cue.repeat(15)), 0.01).is_ok());
    }
}
