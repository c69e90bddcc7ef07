//! Every rule that is checked, under the name it keeps.

use serde::Serialize;

/// How bad it is when a rule is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Players may fail: a MUST of HLS, of Apple's authoring rules, or of the gate.
    Error,
    /// It plays, but not as well as it could: a SHOULD.
    Warning,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    pub id: &'static str,
    pub level: Level,
    /// What holds when the rule is kept.
    pub holds: &'static str,
}

macro_rules! rules {
    ($($name:ident = $level:ident $id:literal: $holds:literal;)+) => {
        $(pub const $name: Rule = Rule { id: $id, level: Level::$level, holds: $holds };)+
        pub const RULES: &[Rule] = &[$($name),+];
    };
}

rules! {
    NOT_A_PLAYLIST = Error "hls.not-a-playlist": "a playlist is UTF-8 text that begins with #EXTM3U";
    PLAYLIST_TOO_LARGE = Error "hls.playlist-too-large": "a playlist is small enough to be read";
    SYNTAX = Error "hls.syntax": "every line of a playlist can be understood";
    VERSION = Error "hls.version": "EXT-X-VERSION is as high as the tags in use need";
    PLAYLIST_MISSING = Error "hls.playlist-missing": "every playlist that is named exists";
    SEGMENT_MISSING = Error "hls.segment-missing": "every segment that is named exists";
    URI_OUTSIDE = Error "hls.uri-outside": "nothing outside of the folder is named";
    RANGE = Error "hls.range": "byte ranges lie within their files";
    NO_SEGMENTS = Error "hls.no-segments": "a media playlist has segments";
    NO_END = Error "hls.no-endlist": "a finished playlist says so";
    ENCRYPTED = Warning "hls.encrypted": "segments can be read without a key";
    TARGET_DURATION = Error "hls.target-duration": "no segment, rounded, is longer than EXT-X-TARGETDURATION";
    EXTINF = Error "hls.extinf": "EXTINF is the segment's real duration, to within a frame";
    EXTINF_SUM = Error "hls.extinf-sum": "all EXTINF together are the real duration, to within a frame";
    MAP_MISSING = Error "hls.map-missing": "segments of fragmented MP4 have an EXT-X-MAP";
    GROUP = Error "hls.group": "groups that a variant names exist, and names in them differ";
    VARIANT_ATTRIBUTE = Error "hls.variant-attribute": "a variant has BANDWIDTH";
    FRAMES_UNEQUAL = Error "hls.frames-unequal": "renditions of equal frame rate have equally many frames";
    SOUND_LENGTH = Error "hls.sound-length": "sound and picture begin and end together, to within a frame";

    INIT = Error "cmaf.init": "init segments can be read";
    SEGMENT = Error "cmaf.segment": "segments of fragmented MP4 can be read";
    NOT_SYNC = Error "cmaf.not-sync": "every segment of picture begins with a sync sample";
    TFDT_GAP = Error "cmaf.tfdt-gap": "a segment begins where the one before it ended, to the tick";

    TS_SEGMENT = Error "ts.segment": "segments of MPEG-TS are whole packets with tables at the beginning";
    TS_NOT_SYNC = Error "ts.not-sync": "every segment of picture begins with a key frame";
    TS_GAP = Error "ts.gap": "a segment begins where the one before it ended, to within a frame";

    BANDWIDTH = Error "apple.bandwidth": "BANDWIDTH is the worst measured peak, or up to 10 % more";
    AVERAGE_BANDWIDTH = Error "apple.average-bandwidth": "AVERAGE-BANDWIDTH is there, and within 10 % of the measured";
    CODECS = Error "apple.codecs": "CODECS is there, and is what the init segments say";
    RESOLUTION = Error "apple.resolution": "RESOLUTION is there, and is what the init segment says";
    FRAME_RATE = Error "apple.frame-rate": "FRAME-RATE is there, and is what is measured";
    FRAME_RATE_HIGH = Error "apple.frame-rate-high": "no more than 60 frames are shown in a second";
    VIDEO_RANGE = Error "apple.video-range": "VIDEO-RANGE is what the picture's colours say";
    LANGUAGE = Error "apple.language": "every rendition of sound and subtitles has a LANGUAGE";
    PLAYLIST_TYPE = Error "apple.playlist-type": "EXT-X-PLAYLIST-TYPE is VOD";
    TARGETS_DIFFER = Error "apple.targets-differ": "sound and picture have the same EXT-X-TARGETDURATION";
    HEVC_IN_FMP4 = Error "apple.hevc": "HEVC is in fragmented MP4, as hvc1";
    I_FRAMES_MISSING = Error "apple.i-frames-missing": "there are I-frame playlists";
    I_FRAME = Error "apple.i-frame": "what an I-frame playlist names begins with a fragment that begins with a key frame";
    SUBTITLE = Error "apple.subtitle": "segments of subtitles are WebVTT with an X-TIMESTAMP-MAP";
    SUBTITLES_COVER = Error "apple.subtitles-cover": "subtitles cover the whole duration";
    ALIGNED = Warning "apple.aligned": "all renditions of picture are cut at the same times";
    INDEPENDENT = Warning "apple.independent-segments": "EXT-X-INDEPENDENT-SEGMENTS is there";
    SEGMENT_LENGTH = Warning "apple.segment-length": "segments are about 6 s long";
    KEY_FRAMES = Warning "apple.key-frames": "there is a key frame every 2 s";
    FIRST_VARIANT = Warning "apple.first-variant": "the first variant is near 2 Mb/s";
    ONE_BITRATE = Warning "apple.one-bitrate": "there are several bitrates to choose from";
    STEREO = Warning "apple.stereo-aac": "stereo AAC is offered";
    AVC1 = Warning "apple.in-band-parameters": "the codec's parameters are in the init segment: avc1, hvc1";

    DECODE = Error "decode.error": "the first and the last segment decode without a complaint";

    GATE_MISSING = Error "gate.missing": "every file that was committed is there";
    GATE_SIZE = Error "gate.size": "every file has the size that was committed";
    GATE_HASH = Error "gate.hash": "every file has the hash that was committed";
    GATE_UNLISTED = Warning "gate.unlisted": "there is no file that nobody committed";
    GATE_FRAMES = Error "gate.frames": "every rendition of picture has the frames that were planned";
    GATE_DURATION = Error "gate.duration": "every rendition has the duration that was planned";
    GATE_BEGIN = Error "gate.begin": "every rendition begins when it was planned to";
    GATE_SHOWN = Error "gate.shown": "every segment shows its frames from its beginning to its end";
    GATE_PIXELS = Error "gate.pixels": "pixels are square";
    GATE_TRACKS = Error "gate.tracks": "files hold one track, of the kind that was planned";
    GATE_TURNED = Error "gate.turned": "pictures are neither turned nor mirrored";
    GATE_CONTENT = Error "gate.content": "files hold picture or sound, and nothing else";
    GATE_RENDITION = Error "gate.rendition": "every rendition that was planned is there";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_rules_have_one_name() {
        let mut ids: Vec<_> = RULES.iter().map(|rule| rule.id).collect();
        ids.sort_unstable();
        ids.dedup();

        assert_eq!(ids.len(), RULES.len());
    }
}
