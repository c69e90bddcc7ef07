//! Rules of a multivariant playlist: what it says of its renditions, and how they fit together.

use super::finding::{Findings, Place};
use super::part::Kind;
use super::playlist::{Entry, Multivariant};
use super::rendition::{Container, Rendition};
use super::rule::{self, Rule};
use std::collections::{BTreeSet, HashSet};

const FIRST_BITS_PER_SECOND: u64 = 2_000_000;

/// A multivariant playlist whose playlists have been read.
pub struct Stream<'a> {
    pub playlist: &'a str,
    pub multivariant: &'a Multivariant,
    pub renditions: &'a [Rendition],
    /// For each variant, rendition and I-frame playlist: its place in `renditions`.
    pub variants: &'a [Option<usize>],
    pub alternatives: &'a [Option<usize>],
}

impl<'a> Stream<'a> {
    pub fn check(&self, findings: &mut Findings) {
        self.groups(findings);
        self.languages(findings);
        self.choice(findings);
        for (entry, variant) in self.multivariant.variants.iter().zip(self.variants) {
            let rendition = variant.map(|index| &self.renditions[index]);
            let variant = Variant { stream: self, entry, rendition };
            variant.check(findings);
        }
        self.subtitles(findings);
    }

    fn place(&self, entry: &Entry) -> Place {
        Place::line(self.playlist, entry.line)
    }

    fn groups(&self, findings: &mut Findings) {
        let of = |entry: &Entry, name: &str| entry.attributes.get(name).unwrap_or_default().to_owned();
        let mut names = HashSet::new();
        for entry in &self.multivariant.renditions {
            if !names.insert((of(entry, "TYPE"), of(entry, "GROUP-ID"), of(entry, "NAME"))) {
                let what = format!("its group has another rendition with the name `{}`", of(entry, "NAME"));
                findings.add(&rule::GROUP, self.place(entry), what);
            }
        }
        for entry in &self.multivariant.variants {
            for kind in ["AUDIO", "VIDEO", "SUBTITLES"] {
                let Some(group) = entry.attributes.get(kind) else { continue };
                if self.group(kind, group).next().is_none() {
                    let what =
                        format!("the variant names the group {kind} `{group}`, which has no rendition");
                    findings.add(&rule::GROUP, self.place(entry), what);
                }
            }
        }
    }

    /// The members of a group, with their renditions where they have any.
    fn group(
        &self,
        kind: &'a str,
        group: &'a str,
    ) -> impl Iterator<Item = (&'a Entry, Option<&'a Rendition>)> {
        let each = self.multivariant.renditions.iter().zip(self.alternatives);
        each.filter(move |(entry, _)| {
            entry.attributes.get("TYPE") == Some(kind) && entry.attributes.get("GROUP-ID") == Some(group)
        })
        .map(|(entry, index)| (entry, index.map(|index| &self.renditions[index])))
    }

    fn languages(&self, findings: &mut Findings) {
        for entry in &self.multivariant.renditions {
            let kind = entry.attributes.get("TYPE").unwrap_or_default();
            let has_language = entry.attributes.get("LANGUAGE").is_some_and(|language| !language.is_empty());
            if matches!(kind, "AUDIO" | "SUBTITLES") && !has_language {
                let name = entry.attributes.get("NAME").unwrap_or_default();
                findings.add(&rule::LANGUAGE, self.place(entry), format!("{kind} `{name}` has no LANGUAGE"));
            }
        }
    }

    /// What players can choose from.
    fn choice(&self, findings: &mut Findings) {
        let place = || Place::file(self.playlist);
        let media = self.renditions.iter().filter(|rendition| !rendition.media.is_i_frames_only);
        let is_told = self.multivariant.is_independent;
        if !is_told
            && media
                .clone()
                .any(|rendition| rendition.container != Container::WebVtt && !rendition.media.is_independent)
        {
            findings.add(&rule::INDEPENDENT, place(), "EXT-X-INDEPENDENT-SEGMENTS is missing");
        }
        let has_video = media.clone().any(|rendition| rendition.has(Kind::Video));
        if has_video && self.multivariant.i_frames.is_empty() {
            findings.add(&rule::I_FRAMES_MISSING, place(), "there is no I-frame playlist to seek with");
        }
        let variants = &self.multivariant.variants;
        let bandwidths: BTreeSet<_> = variants.iter().map(bandwidth).collect();
        if has_video && bandwidths.len() == 1 {
            findings.add(&rule::ONE_BITRATE, place(), "there is one bitrate only: players cannot adapt");
        }
        let nearest =
            bandwidths.into_iter().flatten().min_by_key(|bits| bits.abs_diff(FIRST_BITS_PER_SECOND));
        if let (Some(first), Some(nearest)) = (variants.first(), nearest) {
            let found = bandwidth(first);
            let distance = |bits: u64| bits.abs_diff(FIRST_BITS_PER_SECOND);
            if found.is_some_and(|found| distance(found) > distance(nearest) && is_far(found)) {
                let found = found.unwrap_or_default();
                let what = format!("the first variant has {found} b/s; one of {nearest} is nearer to 2 Mb/s");
                findings.add(&rule::FIRST_VARIANT, self.place(first), what);
            }
        }
        let sounds: Vec<_> = media.filter_map(|rendition| rendition.description(Kind::Audio)).collect();
        let is_stereo_aac = |codec: &str, channels: Option<u16>| {
            codec.starts_with("mp4a.40") && channels.is_none_or(|count| count <= 2)
        };
        let is_plain = sounds
            .iter()
            .any(|sound| sound.codec.as_deref().is_none_or(|codec| is_stereo_aac(codec, sound.channels)));
        if !sounds.is_empty() && !is_plain {
            findings.add(&rule::STEREO, place(), "there is no stereo AAC, which every player can play");
        }
    }

    fn subtitles(&self, findings: &mut Findings) {
        let videos = self.variants.iter().flatten().filter_map(|index| {
            let rendition = &self.renditions[*index];
            rendition.whole(Kind::Video).or_else(|| rendition.whole(Kind::Audio))
        });
        let Some(whole) = videos.max_by(|one, two| one.duration.total_cmp(&two.duration)) else { return };
        for (entry, index) in self.multivariant.renditions.iter().zip(self.alternatives) {
            let Some(rendition) = index.map(|index| &self.renditions[index]) else { continue };
            let is_text = entry.attributes.get("TYPE") == Some("SUBTITLES");
            let missing = whole.duration - rendition.promised();
            if is_text && missing > whole.frame + 0.001 {
                let what = format!("the subtitles end {missing:.3} s before the picture");
                findings.add(&rule::SUBTITLES_COVER, rendition.place(), what);
            }
        }
    }
}

fn bandwidth(entry: &Entry) -> Option<u64> {
    entry.attributes.number("BANDWIDTH")
}

/// More than half of it away.
fn is_far(bits: u64) -> bool {
    bits.abs_diff(FIRST_BITS_PER_SECOND) > FIRST_BITS_PER_SECOND / 2
}

struct Variant<'a> {
    stream: &'a Stream<'a>,
    entry: &'a Entry,
    /// `None` when its playlist could not be read.
    rendition: Option<&'a Rendition>,
}

impl<'a> Variant<'a> {
    fn check(&self, findings: &mut Findings) {
        if bandwidth(self.entry).is_none() {
            findings.add(&rule::VARIANT_ATTRIBUTE, self.place(), "the variant has no BANDWIDTH");
        }
        self.rates(findings);
        let Some(rendition) = self.rendition else { return };
        self.codecs(rendition, findings);
        if rendition.has(Kind::Video) {
            self.picture(rendition, findings);
        }
        for sound in self.sounds() {
            self.together(rendition, sound, findings);
        }
        self.together(rendition, rendition, findings);
    }

    fn place(&self) -> Place {
        self.stream.place(self.entry)
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.entry.attributes.get(name)
    }

    /// The renditions that may be heard with it.
    fn sounds(&self) -> Vec<&'a Rendition> {
        self.group().filter_map(|(_, rendition)| rendition).collect()
    }

    fn group(&self) -> impl Iterator<Item = (&'a Entry, Option<&'a Rendition>)> {
        self.get("AUDIO").into_iter().flat_map(|group| self.stream.group("AUDIO", group))
    }

    /// Whether every playlist of sound that it names could be read, so that sums and lists mean something.
    fn is_complete(&self) -> bool {
        self.group().all(|(entry, rendition)| entry.uri.is_none() || rendition.is_some())
    }

    fn rates(&self, findings: &mut Findings) {
        let Some((average, peak)) = self.measured() else { return };
        if let Some(said) = bandwidth(self.entry) {
            // A hundredth below is a matter of rounding and of what is counted.
            let is_right = said as f64 >= peak as f64 * 0.99 && said as f64 <= peak as f64 * 1.1;
            if !is_right {
                let what = format!("BANDWIDTH is {said}, the worst measured peak is {peak}");
                findings.add(&rule::BANDWIDTH, self.place(), what);
            }
        }
        match self.entry.attributes.number::<u64>("AVERAGE-BANDWIDTH") {
            None => findings.add(&rule::AVERAGE_BANDWIDTH, self.place(), "AVERAGE-BANDWIDTH is missing"),
            Some(said) if said.abs_diff(average) as f64 > average as f64 * 0.1 => {
                let what = format!("AVERAGE-BANDWIDTH is {said}, measured is {average}");
                findings.add(&rule::AVERAGE_BANDWIDTH, self.place(), what);
            }
            Some(_) => {}
        }
    }

    /// Average and peak with the heaviest of the sounds, when all are known.
    fn measured(&self) -> Option<(u64, u64)> {
        if !self.is_complete() {
            return None;
        }
        let (mut average, mut peak) = self.rendition?.bitrates()?;
        let mut sounds = Vec::new();
        for sound in self
            .sounds()
            .into_iter()
            .filter(|sound| self.rendition.is_none_or(|own| own.playlist != sound.playlist))
        {
            sounds.push(sound.bitrates()?);
        }
        average += sounds.iter().map(|(average, _)| *average).max().unwrap_or(0);
        peak += sounds.iter().map(|(_, peak)| *peak).max().unwrap_or(0);
        Some((average, peak))
    }

    fn codecs(&self, rendition: &Rendition, findings: &mut Findings) {
        let Some(said) = self.get("CODECS") else {
            return findings.add(&rule::CODECS, self.place(), "CODECS is missing");
        };
        let said: BTreeSet<_> = said.split(',').map(|codec| codec.trim().to_ascii_lowercase()).collect();
        let tracks = || self.sounds().into_iter().chain([rendition]).flat_map(|rendition| &rendition.tracks);
        let found: BTreeSet<_> =
            tracks().filter_map(|track| track.codec.as_deref()).map(str::to_ascii_lowercase).collect();
        // What could not be read, or not be named, is not known to be wrong.
        let is_all_known = self.is_complete()
            && tracks().all(|track| track.codec.is_some())
            && self.sounds().into_iter().chain([rendition]).all(|rendition| !rendition.tracks.is_empty());
        let is_text = |codec: &str| codec.starts_with("wvtt") || codec.starts_with("stpp");
        let extra = said.difference(&found).filter(|codec| is_all_known && !is_text(codec));
        let list = |codecs: &BTreeSet<String>| codecs.iter().cloned().collect::<Vec<_>>().join(",");
        if extra.chain(found.difference(&said)).next().is_some() {
            let what = format!("CODECS is {}, the media are {}", list(&said), list(&found));
            findings.add(&rule::CODECS, self.place(), what);
        }
    }

    fn picture(&self, rendition: &Rendition, findings: &mut Findings) {
        let Some(track) = rendition.description(Kind::Video) else { return };
        if let Some((width, height)) = track.size {
            let found = format!("{width}x{height}");
            self.compare(
                &rule::RESOLUTION,
                "RESOLUTION",
                &found,
                self.get("RESOLUTION") == Some(&found),
                findings,
            );
        }
        if let Some(whole) = rendition.whole(Kind::Video) {
            let said: Option<f64> = self.entry.attributes.number("FRAME-RATE");
            // Of uneven frames the attribute is the highest rate, which says little of the average.
            let is_right = said.is_some_and(|said| match whole.is_even {
                true => (said - whole.rate).abs() <= whole.rate * 0.002,
                false => said >= whole.rate * 0.98,
            });
            self.compare(&rule::FRAME_RATE, "FRAME-RATE", &format!("{:.3}", whole.rate), is_right, findings);
        }
        if let Some(range) = track.range {
            let said = self.get("VIDEO-RANGE").unwrap_or("SDR");
            self.compare(&rule::VIDEO_RANGE, "VIDEO-RANGE", range, said == range, findings);
        }
    }

    fn compare(&self, rule: &Rule, name: &str, found: &str, is_right: bool, findings: &mut Findings) {
        if !is_right {
            let said = self.get(name).unwrap_or("missing");
            findings.add(rule, self.place(), format!("{name} is {said}, measured is {found}"));
        }
    }

    /// Picture and sound that are played together.
    fn together(&self, picture: &Rendition, sound: &Rendition, findings: &mut Findings) {
        let (one, two) = (picture.media.target, sound.media.target);
        let is_cut = picture.media.segments.len() > 1 && sound.media.segments.len() > 1;
        if let (Some(one), Some(two)) = (one, two)
            && one != two
            && is_cut
        {
            let what = format!("EXT-X-TARGETDURATION is {two}; it is {one} in {}", picture.playlist);
            findings.add(&rule::TARGETS_DIFFER, sound.place(), what);
        }
        let (Some(video), Some(audio)) = (picture.whole(Kind::Video), sound.whole(Kind::Audio)) else {
            return;
        };
        let allowed = video.frame.max(audio.frame) + 0.001;
        for (end, difference) in [("begins", audio.start - video.start), ("ends", audio.end - video.end)] {
            if difference.abs() > allowed {
                let way = if difference > 0.0 { "after" } else { "before" };
                let what = format!(
                    "the sound {end} {:.3} s {way} the picture of {}",
                    difference.abs(),
                    picture.playlist
                );
                findings.add(&rule::SOUND_LENGTH, sound.place(), what);
            }
        }
    }
}
