//! What a new generation takes over from the one before: the rungs that nobody asked to have made again.

use crate::handler::Failed;
use crate::transcode::disk;
use media::manifest::{Presentation, Shape, Track};
use pipeline::FilePath;
use std::cmp::Reverse;
use std::path::{Path, PathBuf};

pub const FILE: &str = Presentation::FILE;

/// The rungs of the generation in `folder` that are not among those of `new`, whose pieces they must match; with
/// where their files lie.
pub(super) fn read(folder: &Path, new: &Presentation) -> Result<Vec<Track>, Failed> {
    let path = folder.join(FILE);
    let text = std::fs::read(&path).map_err(|error| disk("reading", &path, &error))?;
    let old: Presentation = serde_json::from_slice(&text)
        .map_err(|error| Failed::permanent(format!("{} cannot be read: {error}", path.display())))?;
    let is_made_again = |track: &Track| new.video.iter().any(|made| made.name == track.name);
    let carried: Vec<Track> = old.video.into_iter().filter(|track| !is_made_again(track)).collect();
    match carried.iter().find(|track| !new.video.first().is_some_and(|made| is_cut_alike(made, track))) {
        None => Ok(carried),
        Some(odd) => Err(Failed::permanent(format!(
            "{} of the generation before is cut in other places than what was made now, and players could not change \
             between them: make all qualities again",
            odd.name
        ))),
    }
}

/// Puts the carried rungs among the new ones, each codec's best first.
pub(super) fn merge(tracks: &mut Vec<Track>, carried: Vec<Track>) {
    tracks.extend(carried);
    let codecs: Vec<String> = tracks.iter().map(|track| family(track).to_owned()).collect();
    let place = |track: &Track| codecs.iter().position(|codec| codec == family(track));
    tracks.sort_by_key(|track| (place(track), Reverse(pixels(track))));
}

/// The files of some tracks, and the folder in which they lie.
pub(super) fn files<'a>(
    folder: &'a Path,
    tracks: &'a [Track],
) -> impl Iterator<Item = (FilePath, PathBuf)> + 'a {
    tracks.iter().flat_map(Track::files).map(|file| (file.path.clone(), folder.to_owned()))
}

fn is_cut_alike(a: &Track, b: &Track) -> bool {
    let times = |track: &Track, of: u32| -> Vec<u128> {
        track.segments.iter().map(|segment| u128::from(segment.start) * u128::from(of)).collect()
    };
    times(a, b.timescale) == times(b, a.timescale)
}

fn family(track: &Track) -> &str {
    track.codec.split('.').next().unwrap_or_default()
}

fn pixels(track: &Track) -> u64 {
    match track.shape {
        Shape::Video { width, height, .. } => u64::from(width) * u64::from(height),
        Shape::Audio { .. } => 0,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use media::manifest::{Artifact, Segment};
    use media::ratio::Ratio;

    fn track(name: &str, codec: &str, height: u32, cuts: &[u64]) -> Track {
        let file = |path: String| Artifact { path: path.parse().unwrap(), bytes: 1, sha256: String::new() };
        let segment = |(number, start): (usize, &u64)| Segment {
            file: file(format!("{name}/{number}")),
            number: u32::try_from(number).unwrap(),
            start: *start,
            duration: 1,
            samples: 1,
            key_frames: Vec::new(),
        };
        Track {
            name: name.parse().unwrap(),
            codec: codec.into(),
            timescale: 1000,
            shape: Shape::Video { width: height * 2, height, frame_rate: Ratio::new(25, 1).unwrap() },
            init: file(format!("{name}/init")),
            later_inits: Vec::new(),
            segments: cuts.iter().enumerate().map(segment).collect(),
        }
    }

    fn kept(tracks: Vec<Track>) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let old = Presentation { video: tracks, ..Presentation::default() };
        std::fs::write(folder.path().join(FILE), serde_json::to_vec(&old).unwrap()).unwrap();
        folder
    }

    #[test]
    fn what_was_not_made_again_is_shown_beside_what_was() {
        let all = ["1080p", "720p", "480p"]
            .map(|name| track(name, "avc1.64001f", name.trim_end_matches('p').parse().unwrap(), &[0, 6000]));
        let folder = kept(all.into());
        let mut new = Presentation {
            video: vec![track("720p", "avc1.4d", 720, &[0, 6000])],
            ..Presentation::default()
        };

        let carried = read(folder.path(), &new).unwrap();
        let lies_in = files(folder.path(), &carried).all(|(_, found)| found == folder.path());
        merge(&mut new.video, carried);

        let shown: Vec<_> =
            new.video.iter().map(|track| (track.name.as_str(), track.codec.as_str())).collect();
        assert_eq!(shown, [("1080p", "avc1.64001f"), ("720p", "avc1.4d"), ("480p", "avc1.64001f")]);
        assert!(lies_in);
    }

    #[test]
    fn rungs_that_are_cut_in_other_places_are_not_shown_together() {
        let folder = kept(vec![track("480p", "avc1", 480, &[0, 4000])]);
        let new =
            Presentation { video: vec![track("720p", "avc1", 720, &[0, 6000])], ..Presentation::default() };

        let refused = read(folder.path(), &new).unwrap_err();

        assert!(refused.message.contains("make all qualities again"), "{}", refused.message);
    }
}
