//! MP4 and MPEG-TS.

use crate::scratch::{Scratch, files};
use media::check::{Check, Expect};
use media::mp4::{Cut, CutAudio, Entry, Reader, Sample, cut, cut_audio};
use std::io::Cursor;

/// A fragmented MP4 file, read fragment by fragment.
pub fn mp4(data: &[u8]) {
    let _ = samples(data);
}

/// All samples of the file, and the entry of its first track.
fn samples(data: &[u8]) -> Option<(Entry, Vec<Sample>)> {
    let mut reader = Reader::open(Cursor::new(data)).ok()?;
    assert!(reader.movie().tracks.iter().all(|track| track.timescale > 0));
    let entry = reader.movie().tracks.first()?.entry.clone();
    let (mut all, mut fragments, mut bytes) = (Vec::new(), 0, 0);
    while let Some(fragment) = reader.next_fragment().ok()? {
        fragments += 1;
        assert!(fragments <= data.len() / 8, "a fragment takes eight bytes at least");
        assert!(fragment.offset < data.len() as u64);
        for sample in &fragment.samples {
            assert!(sample.end() <= data.len() as u64, "{sample:?} lies beyond the end");
            assert!(reader.movie().tracks.iter().any(|track| track.id == sample.track));
            bytes += u64::from(sample.size);
        }
        assert!(bytes <= data.len() as u64, "samples overlap: {bytes} bytes of {}", data.len());
        all.extend(fragment.samples);
        if all.len() > 1 << 20 {
            break;
        }
    }
    Some((entry?, all))
}

/// A file cut into segments. The plan expects what the file has, so that cutting begins at all.
pub fn mp4_cut(data: &[u8]) {
    let Some((entry, samples)) = samples(data) else { return };
    let Some(first) = samples.first() else { return };
    let scratch = Scratch::new();
    let source = scratch.folder().join("source.mp4");
    scratch.write("source.mp4", data);
    let (made, count) = (scratch.folder().join("made"), samples.len() as u64);
    let track = match entry {
        Entry::Video { .. } => {
            let group = samples.iter().skip(1).position(|sample| sample.is_sync);
            let plan = Cut {
                name: "v".parse().expect("a name"),
                first_frame: u64::from(data[0]) * count,
                frames: count,
                frames_per_segment: group.map_or(count as u32, |at| at as u32 + 1),
                first_segment: u32::from(data[0]),
                ticks_per_frame: first.duration,
                delay: u32::from(data[0] % 4),
            };
            cut(&source, &made, &plan)
        }
        Entry::Audio { .. } => {
            let starts = (0..8).map(|n| n * u64::from(data[0]) * 100).collect();
            let plan = CutAudio {
                name: "a".parse().expect("a name"),
                priming: 0,
                packets: count,
                starts,
                clock: 25,
            };
            cut_audio(&source, &made, &plan)
        }
    };
    if let Ok(track) = track {
        let told = track.segments.iter().map(|segment| &segment.file).chain([&track.init]);
        let mut told: Vec<_> = told.map(|file| (made.join(&file.path), file.bytes)).collect();
        let mut found: Vec<_> =
            files(&made).into_iter().map(|(path, content)| (path, content.len() as u64)).collect();
        told.sort();
        found.sort();
        assert_eq!(told, found, "the manifest lists the files that were written");
        let bytes: u64 = found.iter().map(|(_, bytes)| bytes).sum();
        let limit = 4 * data.len() as u64 + 1024 * (count + 1);
        assert!(bytes <= limit, "{} bytes became {bytes}", data.len());
    }
    scratch.is_untouched();
}

/// An init segment and a media segment, as the gate reads them: two bytes say how long the first is.
pub fn segment(data: &[u8]) {
    let [high, low, rest @ ..] = data else { return };
    let init = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
    let (init, media) = rest.split_at(init);
    let playlist = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:6\n#EXT-X-PLAYLIST-TYPE:VOD\n\
                    #EXT-X-MAP:URI=\"init.mp4\"\n#EXTINF:1.0,\nseg.m4s\n#EXT-X-ENDLIST\n";
    check(playlist, &[("init.mp4", init), ("seg.m4s", media)]);
}

/// A segment of MPEG-TS, as the gate reads it. A last packet that is not whole is left out.
pub fn ts(data: &[u8]) {
    let whole = &data[..data.len() / 188 * 188];
    let playlist = "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:6\n#EXTINF:1.0,\na.ts\n\
                    #EXTINF:1.0,\nb.ts\n#EXT-X-ENDLIST\n";
    // The clock goes on from one to the next.
    let half = whole.len() / 188 / 2 * 188;
    check(playlist, &[("a.ts", &whole[..half]), ("b.ts", &whole[half..])]);
}

/// Holds a folder of these files to what the gate promises of any folder.
pub(crate) fn check(playlist: &str, files: &[(&str, &[u8])]) {
    let scratch = Scratch::new();
    scratch.write("index.m3u8", playlist.as_bytes());
    for (name, content) in files {
        scratch.write(name, content);
    }
    check_folder(&scratch, "index.m3u8");
}

pub(crate) fn check_folder(scratch: &Scratch, playlist: &str) {
    let folder = scratch.folder();
    let Ok(check) = Check::open(&folder.join(playlist), &Expect::default()) else { return };
    let verdict = check.verdict();
    for finding in &verdict.findings {
        let file = std::fs::read(folder.join(&finding.place.file)).unwrap_or_default();
        let lines = file.split(|byte| *byte == b'\n').count() as u64;
        assert!(finding.place.line.is_none_or(|line| line <= lines), "{finding:?}");
    }
    for measured in &verdict.measured.renditions {
        assert!(measured.duration.is_finite(), "{measured:?}");
        assert!(measured.frame_rate.is_none_or(f64::is_finite), "{measured:?}");
    }
    serde_json::to_string(&verdict).expect("a verdict can be written down");
    decode_inputs(scratch, &check);
    scratch.is_untouched();
}

/// Copies for the decoder come from the folder and from nowhere else.
fn decode_inputs(scratch: &Scratch, check: &Check) {
    let (copies, folder) = (scratch.folder().join("copies"), scratch.folder());
    std::fs::create_dir(&copies).expect("a folder");
    let Ok(decodes) = check.decodes(&copies) else { return };
    for (path, content) in files(&copies) {
        let secret = crate::scratch::SECRET;
        assert!(!content.windows(secret.len()).any(|part| part == secret), "{path:?} has the secret");
    }
    for argument in decodes.iter().flat_map(|decode| &decode.argv) {
        let is_outside = argument.contains("..")
            || argument.starts_with('/') && !argument.starts_with(folder.to_str().expect("text"));
        assert!(!is_outside, "the decoder is told to read {argument}");
    }
}
