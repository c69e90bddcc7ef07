//! Command lines of ffmpeg. Each is a whole command, the program's name first; none goes through a shell.

use crate::encoder::{self, Begins, words};
use crate::ladder::Rung;
use crate::picture;
use crate::plan::{AAC_FRAME, AUDIO_RATE, AudioTrack, Picture, Piece, Plan, SubtitleTrack, Thumbnails};
use crate::probe::input;
use crate::source::{Source, Video};

/// A track comes out as one fragmented file; [`crate::mp4`] cuts it into segments. The trailer would only index it.
const FRAGMENTED: &str = "+empty_moov+default_base_moof+frag_keyframe+skip_sidx+skip_trailer";

/// Says once a second how far it is on standard output, complains on standard error, and asks nobody anything.
fn ffmpeg() -> Vec<String> {
    let quiet = ["ffmpeg", "-nostdin", "-hide_banner", "-nostats", "-v", "warning", "-y"];
    let telling = ["-progress", "pipe:1", "-stats_period", "1"];
    quiet.into_iter().chain(telling).map(String::from).collect()
}

/// A file of one track, and nothing beside it: chapters would become a second.
fn alone(name: &str) -> Vec<String> {
    words(["-map_metadata", "-1", "-map_chapters", "-1", "-f", "mp4", &format!("file:{name}.mp4")])
}

/// Keeps the file's own clock, where that can be trusted. Where not, ffmpeg mends leaps and missing times, and lets its
/// clock begin with the file.
fn clock(source: &Source) -> Vec<String> {
    if is_trusted(source) { words(["-copyts"]) } else { Vec::new() }
}

fn is_trusted(source: &Source) -> bool {
    source.video.as_ref().is_none_or(|video| video.timing.can_seek)
}

/// Time zero of the output on the clock of a command, in seconds.
fn zero(source: &Source) -> f64 {
    if is_trusted(source) { source.zero() } else { source.zero() - source.start }
}

/// Encodes one piece: `NAME.mp4` for each rung.
pub fn encode(plan: &Plan, picture: &Picture, video: &Video, piece: &Piece, source: &str) -> Vec<String> {
    let chunk = &piece.chunk;
    let mut args = ffmpeg();
    args.extend(encoder::device(picture.manner.family));
    let threads = picture.manner.threads.to_string();
    args.extend(words(["-threads", &threads]));
    args.extend(clock(&plan.source));
    if let Some(seconds) = chunk.seek {
        args.extend(words(["-seek_timestamp", "1", "-noaccurate_seek", "-ss", &format!("{seconds:.6}")]));
    }
    args.extend(picture::through_changes(video));
    args.extend(input::arguments(source));
    let rungs: Vec<_> = picture.rungs_of_group(&piece.group).collect();
    let sizes: Vec<_> = rungs.iter().map(|rung| (rung.width, rung.height)).collect();
    let Some(&(width, height)) = sizes.first() else { return args };
    let graph = format!(
        "{},{}[v];{}",
        picture::frames(video, chunk.first_frame, chunk.end_frame),
        picture::prepare(video, width, height),
        picture::cascade(&sizes, encoder::upload(plan.settings.encoder)),
    );
    args.extend(words(["-filter_complex_threads", &threads, "-filter_complex", &graph]));
    let begins = if chunk.first_frame == 0 { Begins::AtFirst } else { Begins::Midway };
    for (at, rung) in rungs.into_iter().enumerate() {
        args.extend(words(["-map", &format!("[r{at}]")]));
        args.extend(encoder::arguments(rung, &picture.manner, begins));
        args.extend(words(["-video_track_timescale", &picture.timescale.to_string()]));
        args.extend(words(["-movflags", FRAGMENTED]));
        args.extend(alone(&rung.name));
    }
    args
}

/// Packets that AAC's encoder puts before the first that is heard.
pub const PRIMING: u64 = 1;

/// Decodes one track of sound of the source, exactly as long as the picture; `then` are filters that follow.
pub(crate) fn decode_audio(plan: &Plan, track: &AudioTrack, source: &str, then: &str) -> Vec<String> {
    let layout = if track.channels > 2 { "5.1" } else { "stereo" };
    let samples = track.packets * u64::from(AAC_FRAME);
    let filter = format!(
        "asetpts=PTS-({zero:.6})/TB,aresample={AUDIO_RATE}:async=1:first_pts=0,\
         aformat=sample_fmts=fltp:channel_layouts={layout},apad,atrim=end_sample={samples}{then}",
        zero = zero(&plan.source),
    );
    let mut args = ffmpeg();
    args.extend(clock(&plan.source));
    args.extend(words(["-vn", "-sn", "-dn"]));
    args.extend(input::arguments(source));
    args.extend(words(["-map", &format!("0:{}", track.stream), "-af", &filter]));
    args
}

/// Encodes one track of sound, whole, exactly as long as the picture: `NAME.mp4`.
pub fn audio(plan: &Plan, track: &AudioTrack, source: &str) -> Vec<String> {
    let mut args = decode_audio(plan, track, source, "");
    args.extend(words(["-c:a", "aac", "-b:a", &format!("{}k", track.kbps), "-threads", "1"]));
    args.extend(words([
        "-frag_duration",
        "5000000",
        "-movflags",
        "+empty_moov+default_base_moof+skip_sidx+skip_trailer",
    ]));
    args.extend(alone(&track.name));
    args
}

/// Writes one track of text as WebVTT: `NAME.vtt`, with times that are later than the output's by [`subtitle_delay`].
pub fn subtitles(plan: &Plan, track: &SubtitleTrack, source: &str) -> Vec<String> {
    let mut args = ffmpeg();
    args.extend(clock(&plan.source));
    args.extend(words(["-vn", "-an", "-dn"]));
    args.extend(input::arguments(source));
    args.extend(words([
        "-map",
        &format!("0:{}", track.stream),
        "-f",
        "webvtt",
        &format!("file:{}.vtt", track.name),
    ]));
    args
}

/// In seconds.
pub fn subtitle_delay(plan: &Plan) -> f64 {
    zero(&plan.source)
}

/// Sheets of small pictures, `sprite-1.jpg` and on, and `poster.jpg`, all from the pictures that stand alone.
pub fn thumbnails(plan: &Plan, thumbnails: &Thumbnails, video: &Video, source: &str) -> Vec<String> {
    let Thumbnails { seconds, count, width, height, columns, rows } = thumbnails;
    let (poster_width, poster_height) = poster_size(video);
    let poster = count / 10;
    let graph = format!(
        "[0:{stream}]setpts=PTS-{first}{deinterlaced},fps=1/{seconds}:start_time=0:round=up,\
         tpad=stop_mode=clone:stop={count},trim=end_frame={count},{prepared},split=2[s][p];\
         [s]scale={width}:{height},setsar=1,tile={columns}x{rows}[sheet];\
         [p]select='eq(n\\,{poster})'[poster]",
        stream = video.stream,
        first = picture::zero(&video.timing),
        deinterlaced = if video.is_interlaced { ",bwdif=mode=send_frame:deint=interlaced" } else { "" },
        prepared = picture::prepare(video, poster_width, poster_height),
    );
    let mut args = ffmpeg();
    args.extend(clock(&plan.source));
    args.extend(words(["-threads", "1", "-skip_frame", "nokey", "-an", "-sn", "-dn"]));
    args.extend(picture::through_changes(video));
    args.extend(input::arguments(source));
    args.extend(words(["-filter_complex_threads", "1", "-filter_complex", &graph]));
    args.extend(words(["-map", "[sheet]", "-fps_mode", "passthrough", "-q:v", "5", "-pix_fmt", "yuvj420p"]));
    args.extend(words(["-f", "image2", "file:sprite-%d.jpg"]));
    args.extend(words(["-map", "[poster]", "-fps_mode", "passthrough", "-frames:v", "1", "-q:v", "3"]));
    args.extend(words(["-pix_fmt", "yuvj420p", "-f", "image2", "-update", "1", "file:poster.jpg"]));
    args
}

fn poster_size(video: &Video) -> (u32, u32) {
    let scale = (1280.0 / f64::from(video.width.max(video.height).max(1))).min(1.0);
    let even = |side: u32| ((f64::from(side) * scale / 2.0).round() as u32 * 2).max(2);
    (even(video.width), even(video.height))
}

/// One plain file of a video and a sound playlist, nothing encoded again: `video.mp4`.
pub fn progressive(video: Option<&str>, audio: Option<&str>) -> Vec<String> {
    let mut args = ffmpeg();
    args.extend([video, audio].into_iter().flatten().flat_map(playlist_input));
    args.extend(words(["-c", "copy", "-movflags", "+faststart", "-f", "mp4", "file:video.mp4"]));
    args
}

/// Compares a rung with the source, frame by frame; [`likeness`] reads what it says.
pub fn measure(
    plan: &Plan,
    picture: &Picture,
    video: &Video,
    rung: &Rung,
    playlist: &str,
    source: &str,
) -> Vec<String> {
    let rate = picture.manner.rate;
    // Both count the same frames; by number, no rounding of times can pair a frame with its neighbour.
    let even = format!("settb=AVTB,setpts=N/({rate})/TB");
    let graph = format!(
        "{frames},{prepared},{even}[a];[1:v:0]{even},split=2[b][c];[a]split=2[d][e];[b][d]ssim[s];[c][e]psnr[p]",
        frames = picture::frames(video, 0, picture.frames),
        prepared = picture::prepare(video, rung.width, rung.height),
    );
    let mut args = ffmpeg();
    args.extend(words(["-v", "info"]));
    args.extend(clock(&plan.source));
    args.extend(picture::through_changes(video));
    args.extend(input::arguments(source));
    args.extend(playlist_input(playlist));
    args.extend(words(["-filter_complex", &graph, "-map", "[s]", "-map", "[p]", "-f", "null", "-"]));
    args
}

/// SSIM, from 0 to 1, and PSNR in decibels, where the command has said them. Equal pictures have no PSNR.
pub fn likeness(stderr: &str) -> (Option<f64>, Option<f64>) {
    let number = |line_with: &str, key: &str| {
        let line = stderr.lines().rev().find(|line| line.contains(line_with))?;
        let value = line.split_once(key)?.1.split_whitespace().next()?;
        value.parse::<f64>().ok().filter(|value| value.is_finite())
    };
    (number("SSIM ", "All:"), number("PSNR ", "average:"))
}

fn playlist_input(playlist: &str) -> Vec<String> {
    let input = format!("file:{playlist}");
    words(["-protocol_whitelist", "file", "-allowed_extensions", "ALL", "-i", &input])
}

/// What the whole plan comes to as one command: one decoding, every rung and track. For comparing.
pub fn whole(plan: &Plan, source: &str) -> Vec<String> {
    let (Some(picture), Some(video)) = (&plan.picture, &plan.source.video) else {
        return plan.audio.first().map(|track| audio(plan, track, source)).unwrap_or_default();
    };
    let mut args = ffmpeg();
    args.extend(clock(&plan.source));
    args.extend(picture::through_changes(video));
    args.extend(input::arguments(source));
    let mut graph = Vec::new();
    for codec in &plan.settings.codecs {
        let sizes: Vec<_> = picture.rungs_of(*codec).map(|rung| (rung.width, rung.height)).collect();
        let Some(&(width, height)) = sizes.first() else { continue };
        let frames = picture::frames(video, 0, picture.frames);
        let cascade = picture::cascade(&sizes, encoder::upload(plan.settings.encoder));
        let own = |pad: &str| format!("[{codec}{pad}");
        let cascade = cascade.replace("[r", &own("r")).replace("[c", &own("c")).replace("[u", &own("u"));
        let cascade = cascade.replace("[v]", &own("v]"));
        graph.push(format!("{frames},{}{};{cascade}", picture::prepare(video, width, height), own("v]")));
    }
    args.extend(words(["-filter_complex", &graph.join(";")]));
    for codec in &plan.settings.codecs {
        for (at, rung) in picture.rungs_of(*codec).enumerate() {
            args.extend(words(["-map", &format!("[{codec}r{at}]")]));
            args.extend(default_threads(encoder::arguments(rung, &picture.manner, Begins::AtFirst)));
            args.extend(words(["-video_track_timescale", &picture.timescale.to_string()]));
            args.extend(words(["-movflags", FRAGMENTED]));
            args.extend(alone(&rung.name));
        }
    }
    for track in &plan.audio {
        let layout = if track.channels > 2 { "6" } else { "2" };
        args.extend(words(["-map", &format!("0:{}", track.stream), "-c:a", "aac", "-ac", layout]));
        args.extend(words(["-ar", "48000", "-b:a", &format!("{}k", track.kbps)]));
        args.extend(words(["-movflags", FRAGMENTED]));
        args.extend(alone(&track.name));
    }
    args
}

/// Leaves the number of threads to the encoder, as somebody who types the command would.
fn default_threads(args: Vec<String>) -> Vec<String> {
    let Some(at) = args.iter().position(|arg| arg == "-threads") else { return args };
    args.iter().take(at).chain(args.iter().skip(at + 2)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likeness_is_read_from_what_ffmpeg_says() {
        let said = "[Parsed_ssim_7 @ 0x5] SSIM Y:0.98 (17.2) U:0.99 (20) V:0.99 (20.1) All:0.985123 (18.27)\n\
                    [Parsed_psnr_8 @ 0x5] PSNR y:38.1 u:44.2 v:43.9 average:39.512 min:36.1 max:inf\n";

        assert_eq!(likeness(said), (Some(0.985123), Some(39.512)));
        assert_eq!(likeness("PSNR y:inf u:inf v:inf average:inf min:inf max:inf"), (None, None));
    }
}
