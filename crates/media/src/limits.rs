//! How much of one file is taken on: a few kilobytes can claim a week of video, and a ladder can ask for a thousand
//! renditions of it.

use crate::encoder::{Codec, Family};
use crate::plan::{AAC_FRAME, Plan};
use crate::settings::Settings;
use crate::source::Source;

/// What one file may cost. Each field is a setting of the same name.
#[derive(Debug, Clone, PartialEq)]
pub struct FileLimits {
    /// Default: 12.
    pub max_video_hours: f64,
    /// Of the picture, in the file and in a rendition. Default: 2,592,000, twelve hours at 60 a second.
    pub max_frames: u64,
    /// Frames of a rendition that the file does not have: each repeats the one before. Default: 540,000, five hours at 30
    /// a second.
    pub max_repeated_frames: u64,
    /// Such frames for each frame of the picture and each packet of sound that the file has, beyond the first 54,000.
    /// Default: 30.
    pub max_repeats_per_frame: u32,
    /// Frames in each second of the picture, as the file has them. Default: 1,000.
    pub max_frame_rate: f64,
    /// Of the picture, in millions of pixels. Default: 67.2, twice that of 8K.
    pub max_megapixels: f64,
    /// More are left out. Default: 32.
    pub max_audio_tracks: u32,
    /// More are left out. Default: 32.
    pub max_subtitle_tracks: u32,
    /// Rungs of a ladder, each of which is made in each codec. Default: 16.
    pub max_renditions: u32,
    /// Tasks of a video's job. Default: 20,000.
    pub max_tasks: u32,
    /// What encoding is estimated to take of one processor. Default: 1,000, twelve hours of 4K at 60 a second in
    /// H.264 three times over.
    pub max_encode_hours: f64,
}

impl Default for FileLimits {
    fn default() -> Self {
        FileLimits {
            max_video_hours: 12.0,
            max_frames: 12 * 3600 * 60,
            max_repeated_frames: 5 * 3600 * 30,
            max_repeats_per_frame: 30,
            max_frame_rate: 1000.0,
            max_megapixels: 67.2,
            max_audio_tracks: 32,
            max_subtitle_tracks: 32,
            max_renditions: 16,
            max_tasks: 20_000,
            max_encode_hours: 1000.0,
        }
    }
}

/// A limit, what exceeds it, and how to raise it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{found}, and at most {limit} are accepted: the limit is `{setting}`, which the operator can raise with --{} or \
     VODMILL_{}", setting.replace('_', "-"), setting.to_uppercase()
)]
pub struct Exceeded {
    pub setting: &'static str,
    found: String,
    limit: String,
}

fn exceeded(setting: &'static str, found: String, limit: impl ToString) -> Exceeded {
    Exceeded { setting, found, limit: limit.to_string() }
}

impl FileLimits {
    /// For what has been taken on before, or is made up.
    pub fn none() -> Self {
        FileLimits {
            max_video_hours: f64::INFINITY,
            max_frames: u64::MAX,
            max_repeated_frames: u64::MAX,
            max_repeats_per_frame: u32::MAX,
            max_frame_rate: f64::INFINITY,
            max_megapixels: f64::INFINITY,
            max_audio_tracks: u32::MAX,
            max_subtitle_tracks: u32::MAX,
            max_renditions: u32::MAX,
            max_tasks: u32::MAX,
            max_encode_hours: f64::INFINITY,
        }
    }

    pub fn check_settings(&self, settings: &Settings) -> Result<(), Exceeded> {
        let rungs = settings.rungs.len();
        if rungs > self.max_renditions as usize {
            return Err(exceeded(
                "max_renditions",
                format!("the ladder has {rungs} rungs"),
                self.max_renditions,
            ));
        }
        Ok(())
    }

    /// Before a frame of it is looked at.
    pub fn check_size(&self, width: u32, height: u32) -> Result<(), Exceeded> {
        let megapixels = f64::from(width) * f64::from(height) / 1e6;
        if megapixels > self.max_megapixels {
            let found = format!("the picture has {width}×{height}, {megapixels:.1} million pixels");
            return Err(exceeded("max_megapixels", found, self.max_megapixels));
        }
        Ok(())
    }

    /// The file has more than it may.
    pub(crate) fn too_many_frames(&self) -> Exceeded {
        let found = format!("the picture has more than {} frames", self.max_frames);
        exceeded("max_frames", found, self.max_frames)
    }

    pub fn check_source(&self, source: &Source) -> Result<(), Exceeded> {
        let hours = source.duration() / 3600.0;
        if hours > self.max_video_hours {
            let found = format!("the video lasts {hours:.1} hours");
            return Err(exceeded("max_video_hours", found, self.max_video_hours));
        }
        let Some(video) = &source.video else { return Ok(()) };
        self.check_size(video.width, video.height)?;
        let (there, made) = (video.timing.source_frames, video.timing.frames);
        if there.max(made) > self.max_frames {
            let found = format!("the picture has {there} frames, and {made} would be made of them");
            return Err(exceeded("max_frames", found, self.max_frames));
        }
        let rate = there as f64 / video.timing.picture_duration();
        // Of fewer frames than that the rate is nothing that costs anything: two may be shown at almost the same time.
        if rate > self.max_frame_rate && there as f64 > self.max_frame_rate {
            let found = format!("the picture has about {rate:.0} frames a second");
            return Err(exceeded("max_frame_rate", found, self.max_frame_rate));
        }
        let repeated = made.saturating_sub(there);
        if repeated > self.max_repeated_frames {
            let found = format!("the picture has {there} frames, and {repeated} more would only repeat them");
            return Err(exceeded("max_repeated_frames", found, self.max_repeated_frames));
        }
        // A still picture may be shown to hours of sound, if that is there.
        let sounds = source.audio.iter().map(|audio| audio.packets.unwrap_or(u64::MAX));
        let present = sounds.fold(there, u64::saturating_add);
        let granted = present.saturating_mul(self.max_repeats_per_frame.into()).saturating_add(FREE_REPEATS);
        if repeated > granted {
            let found = format!(
                "the picture has {there} frames, and {repeated} more would only repeat them, which is {} for each frame \
                 and each packet of sound of the file",
                repeated / present.max(1)
            );
            return Err(exceeded("max_repeats_per_frame", found, self.max_repeats_per_frame));
        }
        Ok(())
    }

    /// Leaves out tracks beyond the limits, with a note.
    pub fn trim(&self, source: &mut Source) {
        let (sounds, texts) = (self.max_audio_tracks as usize, self.max_subtitle_tracks as usize);
        if let Some(more) = source.audio.len().checked_sub(sounds).filter(|more| *more > 0) {
            source.audio.truncate(sounds);
            source.notes.push(left_out(more, "tracks of sound", sounds, "max_audio_tracks"));
        }
        let is_more = |seen: &mut usize| {
            *seen += 1;
            *seen > texts
        };
        let (before, mut seen) = (source.subtitles.len(), 0);
        source.subtitles.retain(|subtitle| !subtitle.is_text || !is_more(&mut seen));
        let more = before - source.subtitles.len();
        if more > 0 {
            source.notes.push(left_out(more, "tracks of text", texts, "max_subtitle_tracks"));
        }
        if let Some(more) = source.notes.len().checked_sub(MOST_NOTES).filter(|more| *more > 0) {
            source.notes.truncate(MOST_NOTES);
            source.notes.push(format!("{more} more notes are left out"));
        }
    }

    pub fn check_plan(&self, plan: &Plan) -> Result<(), Exceeded> {
        let tasks = tasks(plan);
        if tasks > u64::from(self.max_tasks) {
            return Err(exceeded("max_tasks", format!("the video takes {tasks} tasks"), self.max_tasks));
        }
        let hours = encode_hours(plan);
        if hours > self.max_encode_hours {
            let found = format!("encoding is estimated at {hours:.0} processor hours");
            return Err(exceeded("max_encode_hours", found, self.max_encode_hours));
        }
        Ok(())
    }
}

/// Repeated frames that need no frames to repeat: half an hour at 30 a second.
const FREE_REPEATS: u64 = 1800 * 30;

const MOST_NOTES: usize = 50;

fn left_out(more: usize, what: &str, most: usize, setting: &str) -> String {
    format!("{more} more {what} are left out: at most {most} are made (`{setting}`)")
}

/// Without those that every job has.
fn tasks(plan: &Plan) -> u64 {
    let pieces = plan.picture.as_ref().map_or(0, |picture| {
        let groups = picture.groups(&plan.settings.codecs).len() + picture.optional_rungs().count();
        groups as u64 * picture.chunks.len() as u64
    });
    pieces + (plan.audio.len() + plan.subtitles.len()) as u64
}

/// About what encoding takes of one processor.
pub fn encode_hours(plan: &Plan) -> f64 {
    let pictures = plan.picture.iter().flat_map(|picture| {
        picture.rungs.iter().map(|rung| {
            let pixels = f64::from(rung.width) * f64::from(rung.height) * picture.frames as f64;
            pixels / pixels_per_second(picture.manner.family, rung.codec)
        })
    });
    let sounds = plan.audio.iter().map(|track| {
        let samples = track.packets as f64 * f64::from(AAC_FRAME) * f64::from(track.channels);
        samples / SAMPLES_PER_SECOND
    });
    (pictures.sum::<f64>() + sounds.sum::<f64>()) / 3600.0
}

/// Of one thread, with decoding: stereo of an hour takes a minute.
const SAMPLES_PER_SECOND: f64 = 6e6;

/// Of one thread of a processor that is neither new nor slow, with the default preset.
fn pixels_per_second(family: Family, codec: Codec) -> f64 {
    match (family, codec) {
        (Family::Software | Family::Auto, Codec::H264) => 40e6,
        (Family::Software | Family::Auto, Codec::Hevc) => 8e6,
        (Family::Software | Family::Auto, Codec::Av1) => 15e6,
        (Family::Nvenc | Family::Qsv | Family::Vaapi | Family::Videotoolbox, _) => 500e6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::Step;
    use crate::plan;
    use crate::ratio::Ratio;
    use crate::source::{Audio, Color, DynamicRange, Timing, Video};

    fn source(video: Option<Video>, audio: Vec<Audio>) -> Source {
        Source {
            container: "matroska,webm".into(),
            bytes: 1,
            start: 0.0,
            video,
            audio,
            subtitles: Vec::new(),
            chapters: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// In 4K: frames that are there, and what is made of them at so many a second.
    fn picture(source_frames: u64, frames: u64, rate: u32) -> Video {
        let timing = Timing {
            time_base: Ratio { num: 1, den: 1000 },
            first: 0,
            rate: Ratio { num: rate, den: 1 },
            frames,
            held: 0,
            source_frames,
            is_one_to_one: false,
            reorder_seconds: 0.0,
            can_seek: true,
            keys: Vec::new(),
            entries: Vec::new(),
        };
        let color = Color {
            range: DynamicRange::Sdr,
            primaries: None,
            transfer: None,
            matrix: None,
            is_full_range: false,
        };
        Video {
            stream: 0,
            codec: "h264".into(),
            width: 3840,
            height: 2160,
            rotation: 0,
            sample_aspect: Ratio::ONE,
            pixel_format: "yuv420p".into(),
            bit_depth: 8,
            color,
            is_interlaced: false,
            timing,
        }
    }

    fn sound(hours: f64, packets: Option<u64>) -> Audio {
        Audio {
            stream: 1,
            codec: "aac".into(),
            channels: 2,
            layout: None,
            sample_rate: 48_000,
            language: "en".into(),
            title: None,
            is_default: true,
            start: 0.0,
            duration: hours * 3600.0,
            packets,
        }
    }

    #[test]
    fn frames_that_are_made_up_need_frames_or_sound_that_are_there() {
        let limits = FileLimits::default();
        let check = |video, audio| limits.check_source(&source(Some(video), audio));
        let hour = 3600;

        for (what, video, audio) in [
            ("a still picture of a short song", picture(1, 25 * 300, 25), vec![]),
            (
                "a still picture of five hours of speech",
                picture(1, 25 * 5 * hour, 25),
                vec![sound(5.0, Some(843_750))],
            ),
            (
                "the same, of packets of half a second",
                picture(1, 25 * 5 * hour, 25),
                vec![sound(5.0, Some(36_000))],
            ),
            ("a screen at a frame a second", picture(10 * hour, 10 * hour + 600, 1), vec![]),
            ("slides of two minutes", picture(90, 3 * hour, 1), vec![]),
            ("a phone's varying rate", picture(200_000, 216_000, 30), vec![]),
            ("a silent screen that moves a tenth of the time", picture(10_800, 108_000, 30), vec![]),
            (
                "a lecture whose slides hardly move",
                picture(500, 216_000, 30),
                vec![sound(2.0, Some(310_000))],
            ),
            ("seen by an older version", picture(1, 25 * 5 * hour, 25), vec![sound(5.0, None)]),
        ] {
            assert_eq!(check(video, audio), Ok(()), "{what}");
        }
        for (what, video, audio) in [
            ("two frames", picture(2, 5 * hour * 30, 30), vec![]),
            ("a burst and a gap", picture(101, 5 * hour * 30, 30), vec![]),
            ("sound that hardly is", picture(1, 5 * hour * 25, 25), vec![sound(5.0, Some(2))]),
        ] {
            assert_eq!(check(video, audio).unwrap_err().setting, "max_repeats_per_frame", "{what}");
        }
    }

    #[test]
    fn an_estimate_counts_every_track_of_sound() {
        let hours = |tracks: usize| {
            let plan = plan::make(source(None, vec![sound(10.0, None); tracks]), Settings::default());
            encode_hours(&plan)
        };

        assert!((0.1..0.3).contains(&hours(1)), "{}", hours(1));
        assert!((hours(32) / hours(1) - 32.0).abs() < 0.1, "{}", hours(32));
    }

    #[test]
    fn an_error_names_the_limit_and_how_to_raise_it() {
        let step =
            |n: u32| Step { name: format!("r{n}"), height: 240, kbps: 100, crf: None, optional: false };
        let settings = Settings { rungs: (0..400).map(step).collect(), ..Settings::default() };

        let error = FileLimits::default().check_settings(&settings).unwrap_err();

        assert_eq!(
            error.to_string(),
            "the ladder has 400 rungs, and at most 16 are accepted: the limit is `max_renditions`, which the operator can \
             raise with --max-renditions or VODMILL_MAX_RENDITIONS"
        );
        assert_eq!(FileLimits::default().check_settings(&Settings::default()), Ok(()));
        assert_eq!(FileLimits::none().check_settings(&settings), Ok(()));
    }

    #[test]
    fn a_picture_has_a_largest_size() {
        assert_eq!(FileLimits::default().check_size(7680, 4320), Ok(()));
        let error = FileLimits::default().check_size(16_000, 16_000).unwrap_err();
        assert_eq!(error.setting, "max_megapixels");
    }
}
