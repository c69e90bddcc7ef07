//! A DASH manifest over the same segments.

use crate::manifest::{Presentation, Shape, Sound, Subtitles, Track};
use crate::master::Rate;
use crate::playlist::{Micros, uri};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("there is nothing to list")]
    Empty,
    /// HLS can name an init segment anew in mid-track; a DASH template has one.
    #[error("{track} has more than one init segment, which a DASH manifest cannot say")]
    SeveralInits { track: String },
}

/// Writes the manifest for a folder from which `prefix`, such as `g3/` or nothing, leads to the tracks.
pub fn mpd(of: &Presentation, prefix: &str) -> Result<String, Error> {
    let tracks = || of.video.iter().chain(of.audio.iter().map(|sound| &sound.track));
    if let Some(track) = tracks().find(|track| !track.later_inits.is_empty()) {
        return Err(Error::SeveralInits { track: track.name.to_string() });
    }
    let seconds = tracks().map(Track::seconds).fold(0.0, f64::max);
    if tracks().all(|track| track.segments.is_empty()) {
        return Err(Error::Empty);
    }
    let base = if prefix.is_empty() {
        String::new()
    } else {
        format!("  <BaseURL>{}</BaseURL>\n", uri(prefix))
    };
    let sets = [pictures(&of.video), sounds(&of.audio), texts(&of.subtitles, seconds)].concat();
    let longest = tracks().flat_map(durations).max().map_or(0.0, |micros| micros.0 as f64 / 1e6);
    Ok(format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\" profiles=\"urn:mpeg:dash:profile:isoff-live:2011\" \
         type=\"static\" mediaPresentationDuration=\"PT{seconds:.6}S\" minBufferTime=\"PT{longest:.6}S\">\n\
         {base}  <Period id=\"0\" start=\"PT0S\">\n{sets}  </Period>\n</MPD>\n"
    ))
}

/// A set for each codec, within which a player may switch.
fn pictures(video: &[Track]) -> String {
    let mut codecs: Vec<&str> = Vec::new();
    for track in video {
        if !codecs.contains(&family(track)) {
            codecs.push(family(track));
        }
    }
    let set = |codec: &&str| {
        let own = video.iter().filter(|track| family(track) == *codec);
        let head =
            "contentType=\"video\" mimeType=\"video/mp4\" segmentAlignment=\"true\" startWithSAP=\"1\"";
        adaptation_set(head, "", &own.map(representation).collect::<String>())
    };
    codecs.iter().map(set).collect()
}

fn family(track: &Track) -> &str {
    track.codec.split('.').next().unwrap_or_default()
}

/// A set for each track: they differ in language or channels, and a player must not switch between them by itself.
fn sounds(audio: &[Sound]) -> String {
    let default = audio.iter().position(|sound| sound.is_default).unwrap_or(0);
    let set = |(index, sound): (usize, &Sound)| {
        let head = format!(
            "contentType=\"audio\" mimeType=\"audio/mp4\" lang=\"{}\" segmentAlignment=\"true\" startWithSAP=\"1\"",
            escape(&sound.language)
        );
        let role = if index == default { "main" } else { "alternate" };
        adaptation_set(&head, &described(&sound.title, role), &representation(&sound.track))
    };
    audio.iter().enumerate().map(set).collect()
}

fn texts(subtitles: &[Subtitles], seconds: f64) -> String {
    let set = |subtitles: &Subtitles| {
        let head =
            format!("contentType=\"text\" mimeType=\"text/vtt\" lang=\"{}\"", escape(&subtitles.language));
        let role = if subtitles.is_forced { "forced-subtitle" } else { "subtitle" };
        let bandwidth = ((subtitles.whole.bytes as f64 * 8.0 / seconds).ceil() as u64).max(1);
        let representation = format!(
            "      <Representation id=\"{}\" bandwidth=\"{bandwidth}\">\n        <BaseURL>{}</BaseURL>\n      \
             </Representation>\n",
            uri(&subtitles.name),
            uri(&subtitles.whole.path)
        );
        adaptation_set(&head, &described(&subtitles.title, role), &representation)
    };
    subtitles.iter().map(set).collect()
}

fn adaptation_set(attributes: &str, description: &str, content: &str) -> String {
    format!("    <AdaptationSet {attributes}>\n{description}{content}    </AdaptationSet>\n")
}

fn described(title: &str, role: &str) -> String {
    format!(
        "      <Role schemeIdUri=\"urn:mpeg:dash:role:2011\" value=\"{role}\"/>\n      <Label>{}</Label>\n",
        escape(title)
    )
}

fn representation(track: &Track) -> String {
    let (shape, channels) = match track.shape {
        Shape::Video { width, height, frame_rate } => {
            let rate = match frame_rate.den {
                1 => frame_rate.num.to_string(),
                _ => frame_rate.to_string(),
            };
            (format!("width=\"{width}\" height=\"{height}\" frameRate=\"{rate}\" sar=\"1:1\""), None)
        }
        Shape::Audio { channels, sample_rate } => {
            (format!("audioSamplingRate=\"{sample_rate}\""), Some(channels))
        }
    };
    let channels = channels.map_or(String::new(), |count| {
        let scheme = "urn:mpeg:dash:23003:3:audio_channel_configuration:2011";
        format!("        <AudioChannelConfiguration schemeIdUri=\"{scheme}\" value=\"{count}\"/>\n")
    });
    let (id, codec, peak) = (uri(&track.name), escape(&track.codec), Rate::of(track).peak);
    format!(
        "      <Representation id=\"{id}\" codecs=\"{codec}\" bandwidth=\"{peak}\" {shape}>\n{channels}{}      \
         </Representation>\n",
        template(track)
    )
}

fn template(track: &Track) -> String {
    let first = track.segments.first().map_or(0, |segment| segment.number) + 1;
    let runs = track.segments.chunk_by(|a, b| a.duration == b.duration);
    let run = |run: &[crate::manifest::Segment]| {
        let (start, duration, more) = (run[0].start, run[0].duration, run.len() - 1);
        let repeat = if more == 0 { String::new() } else { format!(" r=\"{more}\"") };
        format!("            <S t=\"{start}\" d=\"{duration}\"{repeat}/>\n")
    };
    let timeline: String = runs.map(run).collect();
    format!(
        "        <SegmentTemplate timescale=\"{}\" startNumber=\"{first}\" \
         initialization=\"$RepresentationID$/init.mp4\" media=\"$RepresentationID$/seg-$Number%05d$.m4s\">\n          \
         <SegmentTimeline>\n{timeline}          </SegmentTimeline>\n        </SegmentTemplate>\n",
        track.timescale
    )
}

fn durations(track: &Track) -> impl Iterator<Item = Micros> {
    let of = |segment: &crate::manifest::Segment| Micros::between(0, segment.duration, track.timescale);
    track.segments.iter().map(of)
}

/// Text that means itself in an attribute or an element; characters that XML does not know are left out.
fn escape(text: &str) -> String {
    let escaped = |c: char| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => String::new(),
        c => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Artifact, LaterInit, Segment};
    use crate::ratio::Ratio;

    fn artifact(path: &str) -> Artifact {
        Artifact { path: path.parse().unwrap(), bytes: 750_000, sha256: "x".into() }
    }

    fn track(name: &str, codec: &str, shape: Shape) -> Track {
        let segment = |number: u32| Segment {
            file: artifact("x"),
            number,
            start: u64::from(number) * 150,
            duration: if number == 2 { 40 } else { 150 },
            samples: 150,
            key_frames: Vec::new(),
        };
        Track {
            name: name.parse().unwrap(),
            codec: codec.into(),
            timescale: 25,
            shape,
            init: artifact("x"),
            later_inits: Vec::new(),
            segments: (0..3).map(segment).collect(),
        }
    }

    fn presentation() -> Presentation {
        let picture = Shape::Video { width: 640, height: 360, frame_rate: Ratio { num: 25, den: 1 } };
        let sound = track("audio-en", "mp4a.40.2", Shape::Audio { channels: 2, sample_rate: 48000 });
        Presentation {
            video: vec![
                track("360p", "avc1.64001e", picture),
                track("480p", "avc1.64001f", picture),
                track("av1-360p", "av01.0.01M.08", picture),
            ],
            audio: vec![Sound {
                track: sound,
                language: "en".into(),
                title: "Q & \"A\" <live>".into(),
                is_default: true,
            }],
            subtitles: vec![Subtitles {
                name: "subtitles-en".parse().unwrap(),
                language: "en".into(),
                title: "English".into(),
                is_default: false,
                is_forced: false,
                whole: artifact("subtitles-en/subtitles.vtt"),
                segments: Vec::new(),
            }],
        }
    }

    #[test]
    fn segments_are_listed_by_number_and_time() {
        let listed = mpd(&presentation(), "g3/").unwrap();

        let timeline = "<S t=\"0\" d=\"150\" r=\"1\"/>\n            <S t=\"300\" d=\"40\"/>\n";
        assert_eq!(listed.matches(timeline).count(), 4, "{listed}");
        assert_eq!(listed.matches("<AdaptationSet").count(), 4, "two codecs, sound, text");
        assert!(listed.contains("mediaPresentationDuration=\"PT13.600000S\""), "{listed}");
        assert!(listed.contains("<BaseURL>g3/</BaseURL>"), "{listed}");
        assert!(listed.contains("<BaseURL>subtitles-en/subtitles.vtt</BaseURL>"), "{listed}");
        assert!(listed.contains("<Label>Q &amp; &quot;A&quot; &lt;live&gt;</Label>"), "{listed}");
    }

    #[test]
    fn what_a_template_cannot_say_is_refused() {
        let mut of = presentation();
        of.video[1].later_inits = vec![LaterInit { from: 1, file: artifact("480p/init-00002.mp4") }];

        assert_eq!(mpd(&of, ""), Err(Error::SeveralInits { track: "480p".into() }));
        assert_eq!(mpd(&Presentation::default(), ""), Err(Error::Empty));
    }
}
