//! Playlists and subtitles.

use crate::containers::{check, check_folder};
use crate::scratch::Scratch;
use media::vtt;

const MEDIA: &str = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:6\n#EXT-X-PLAYLIST-TYPE:VOD\n\
                     #EXT-X-MAP:URI=\"init.mp4\"\n#EXTINF:1.0,\nseg.m4s\n#EXT-X-ENDLIST\n";

/// A playlist of any kind, in a folder of good media that it may name.
pub fn playlist(data: &[u8]) {
    let scratch = Scratch::new();
    scratch.write("master.m3u8", data);
    scratch.write("v/index.m3u8", MEDIA.as_bytes());
    scratch.write("v/init.mp4", include_bytes!("../media/init.mp4"));
    scratch.write("v/seg.m4s", include_bytes!("../media/seg.m4s"));
    let link = scratch.folder().join("link.ts");
    std::os::unix::fs::symlink(scratch.folder().join("../secret"), link).expect("a link");
    check_folder(&scratch, "master.m3u8");
}

/// Subtitles: what is understood is written so that it reads back the same.
pub fn webvtt(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let cues = vtt::parse(&text);
    assert!(cues.is_sorted_by_key(|cue| (cue.start, cue.end)));
    assert!(cues.iter().all(|cue| cue.start < cue.end));
    let whole = vtt::whole(&cues);
    assert_eq!(vtt::parse(&whole), cues, "written as {whole:?}");
    let boundaries = [1.0, 2.5, 60.0];
    for segment in vtt::segments(&cues, &boundaries) {
        assert!(segment.len() <= whole.len() + 100, "a segment has no more cues than the file");
        let shown = vtt::parse(&segment);
        assert!(shown.iter().all(|cue| cues.contains(cue)), "{segment:?}");
    }
    let moved = vtt::earlier(cues.clone(), i64::from(data.first().copied().unwrap_or(0)) * 1000 - 100_000);
    assert!(moved.len() <= cues.len());
    let playlist =
        "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:6\n#EXTINF:1.0,\na.vtt\n#EXT-X-ENDLIST\n";
    check(playlist, &[("a.vtt", data)]);
}
