//! WebVTT: subtitles along the segments, and the index of thumbnails.

use crate::plan::Thumbnails;
use crate::source::Chapter;
use std::fmt::Write;

/// What the file of all cues is called, in the track's folder.
pub const WHOLE: &str = "subtitles.vtt";

/// A text and when it is shown, in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cue {
    pub start: u64,
    pub end: u64,
    /// Where it is shown, as WebVTT writes it: `line:0 align:start`. Often empty.
    pub settings: String,
    pub text: String,
}

/// What a segment is called; numbers count from 0, names from 1.
pub fn segment_name(number: usize) -> String {
    format!("seg-{:05}.vtt", number + 1)
}

/// Reads what there is to show, in order of time. What cannot be understood is passed over: a subtitle less is better
/// than none.
pub fn parse(text: &str) -> Vec<Cue> {
    let mut lines = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    lines = lines.replace('\r', "\n");
    // As the specification has it. Left out, a line of nothing else would end its cue when it is written again.
    lines = lines.replace('\0', "\u{fffd}");
    let mut cues: Vec<Cue> = blocks(&lines).filter_map(parse_block).collect();
    cues.sort_by_key(|cue| (cue.start, cue.end));
    cues
}

/// The same cues so many milliseconds earlier. What would be over before the beginning is left out.
pub fn earlier(cues: Vec<Cue>, millis: i64) -> Vec<Cue> {
    let shifted =
        |time: u64| i64::try_from(time).unwrap_or(i64::MAX).saturating_sub(millis).max(0).unsigned_abs();
    let earlier = |cue: Cue| Cue { start: shifted(cue.start), end: shifted(cue.end), ..cue };
    cues.into_iter().map(earlier).filter(|cue| cue.end > cue.start).collect()
}

/// All cues in one file.
pub fn whole(cues: &[Cue]) -> String {
    write_cues("WEBVTT\n", cues)
}

/// A file for each segment, one after the other; segments end at these rising times, in seconds. A cue stands in every
/// segment it is shown in, with its times unchanged. `cues` are in order of their start.
///
/// The files together can be far larger than all cues: a long cue is in many of them.
pub fn segments(cues: &[Cue], boundaries: &[f64]) -> impl Iterator<Item = String> {
    let mut coming = cues;
    let mut shown: Vec<&Cue> = Vec::new();
    boundaries.iter().map(move |seconds| {
        let end = (seconds * 1000.0).round() as u64;
        let (begun, later) = coming.split_at(coming.partition_point(|cue| cue.start < end));
        coming = later;
        shown.extend(begun);
        let text = write_cues("WEBVTT\nX-TIMESTAMP-MAP=MPEGTS:0,LOCAL:00:00:00.000\n", shown.iter().copied());
        shown.retain(|cue| cue.end > end);
        text
    })
}

/// A track of chapters, for players that show them.
pub fn chapters(chapters: &[Chapter]) -> String {
    let millis = |seconds: f64| (seconds.max(0.0) * 1000.0).round() as u64;
    let cue = |chapter: &Chapter| Cue {
        start: millis(chapter.start),
        end: millis(chapter.end),
        settings: String::new(),
        // A line break would end the title, and an arrow begin another cue.
        text: chapter.title.replace(['\r', '\n'], " ").replace("-->", "→"),
    };
    whole(&chapters.iter().map(cue).collect::<Vec<_>>())
}

/// Which part of which sheet, `sprite-1.jpg` and on, shows what a video of this many seconds looks like, and when.
pub fn thumbnails(of: &Thumbnails, duration: f64) -> String {
    let (columns, rows) = (of.columns.max(1), of.rows.max(1));
    let millis = |index: u32| (f64::from(index) * of.seconds).min(duration) * 1000.0;
    let mut out = String::from("WEBVTT\n");
    for index in 0..of.count {
        let (sheet, place) = (index / (columns * rows) + 1, index % (columns * rows));
        let (x, y) = (place % columns * of.width, place / columns * of.height);
        let end = if index + 1 == of.count { duration * 1000.0 } else { millis(index + 1) };
        let (start, end) = (time(millis(index).round() as u64), time(end.round() as u64));
        let (width, height) = (of.width, of.height);
        let _ = write!(out, "\n{start} --> {end}\nsprite-{sheet}.jpg#xywh={x},{y},{width},{height}\n");
    }
    out
}

/// Runs of lines that are not empty.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    let is_empty = |line: &&str| line.trim().is_empty();
    let mut rest = text;
    std::iter::from_fn(move || {
        let skipped: usize = rest.split_inclusive('\n').take_while(is_empty).map(str::len).sum();
        let begun = &rest[skipped..];
        let length: usize =
            begun.split_inclusive('\n').take_while(|line| !is_empty(line)).map(str::len).sum();
        let (block, after) = begun.split_at(length);
        rest = after;
        (!block.is_empty()).then_some(block)
    })
}

/// `None` for the header, notes, styles, and cues that are never seen.
fn parse_block(block: &str) -> Option<Cue> {
    let line = block[..block.find("-->")?].rfind('\n').map_or(0, |end| end + 1);
    if block.starts_with("NOTE") && line > 0 {
        return None;
    }
    let (times, text) = block[line..].split_once('\n').unwrap_or((&block[line..], ""));
    let (start, rest) = times.split_once("-->")?;
    let (end, settings) = rest.trim().split_once(char::is_whitespace).unwrap_or((rest.trim(), ""));
    let (start, end) = (parse_time(start)?, parse_time(end)?);
    let text = text.strip_suffix('\n').unwrap_or(text).replace("-->", "--&gt;");
    let settings = settings.split_whitespace().collect::<Vec<_>>().join(" ");
    (start < end && !text.trim().is_empty()).then_some(Cue { start, end, settings, text })
}

/// `01:02:03.456`, `02:03.456`, and with SubRip's comma.
fn parse_time(text: &str) -> Option<u64> {
    let (clock, fraction) = text.trim().split_once(['.', ','])?;
    let mut seconds: u64 = 0;
    for part in clock.split(':') {
        seconds = seconds.checked_mul(60)?.checked_add(digits(part)?)?;
    }
    let millis = digits(format!("{fraction:0<3}").get(..3)?)?;
    seconds.checked_mul(1000)?.checked_add(millis)
}

fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn write_cues<'a>(head: &str, cues: impl IntoIterator<Item = &'a Cue>) -> String {
    let mut out = head.to_owned();
    for cue in cues {
        let space = if cue.settings.is_empty() { "" } else { " " };
        let (start, end) = (time(cue.start), time(cue.end));
        let _ = write!(out, "\n{start} --> {end}{space}{}\n{}\n", cue.settings, cue.text);
    }
    out
}

fn time(millis: u64) -> String {
    let seconds = millis / 1000;
    format!("{:02}:{:02}:{:02}.{:03}", seconds / 3600, seconds / 60 % 60, seconds % 60, millis % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\u{feff}WEBVTT\r\n\r\nNOTE from --> a tool\r\nnothing\r\n\r\n\
        1\r\n00:05.000 --> 00:07.500 line:0   align:start\r\nover the <i>seam</i>\r\ntwo lines\r\n\r\n\
        00:00:01,000 --> 00:00:02,5\r\nearly --> bird\r\n\r\n\
        00:03.000 --> 00:03.000\r\nnever\r\n\r\n00:xx.000 --> 00:09.000\r\nbroken\r\n\r\n\
        01:00:00.000 --> 01:00:01.000\r\nlate";

    #[test]
    fn what_can_be_understood_is_read_in_order() {
        let cues = parse(TEXT);

        let texts: Vec<_> = cues.iter().map(|cue| (cue.start, cue.end, &*cue.text)).collect();
        assert_eq!(
            texts,
            [
                (1000, 2500, "early --&gt; bird"),
                (5000, 7500, "over the <i>seam</i>\ntwo lines"),
                (3_600_000, 3_601_000, "late")
            ]
        );
        assert_eq!(cues[1].settings, "line:0 align:start");
        assert_eq!(parse(&whole(&cues)), cues);
    }

    #[test]
    fn a_cue_stands_in_every_segment_it_is_shown_in() {
        let segments: Vec<String> = segments(&parse(TEXT), &[6.0, 12.0, 18.0]).collect();

        let head = "WEBVTT\nX-TIMESTAMP-MAP=MPEGTS:0,LOCAL:00:00:00.000\n";
        let over = "\n00:00:05.000 --> 00:00:07.500 line:0 align:start\nover the <i>seam</i>\ntwo lines\n";
        assert_eq!(segments.len(), 3);
        assert!(segments[0].starts_with(head) && segments[0].ends_with(over), "{}", segments[0]);
        assert_eq!(segments[1], format!("{head}{over}"));
        assert_eq!(segments[2], head);
    }

    #[test]
    fn cues_that_overlap_and_touch_a_boundary_stand_where_they_are_shown() {
        let cue = |start, end, text: &str| Cue { start, end, settings: String::new(), text: text.into() };
        let cues = [
            cue(0, 18_000, "all"),
            cue(1000, 6000, "first"),
            cue(6000, 6001, "second"),
            cue(18_000, 19_000, "none"),
        ];

        let texts = segments(&cues, &[6.0, 12.0, 18.0])
            .map(|segment| parse(&segment).into_iter().map(|cue| cue.text).collect::<Vec<_>>());

        assert_eq!(texts.collect::<Vec<_>>(), [vec!["all", "first"], vec!["all", "second"], vec!["all"]]);
    }

    #[test]
    fn thumbnails_run_over_the_sheets_and_end_with_the_video() {
        let of = Thumbnails { seconds: 2.0, count: 6, width: 160, height: 90, columns: 2, rows: 2 };

        let index = thumbnails(&of, 11.5);

        assert!(
            index.contains("00:00:06.000 --> 00:00:08.000\nsprite-1.jpg#xywh=160,90,160,90\n"),
            "{index}"
        );
        assert!(
            index.ends_with("00:00:10.000 --> 00:00:11.500\nsprite-2.jpg#xywh=160,0,160,90\n"),
            "{index}"
        );
    }

    #[test]
    fn chapters_are_cues_of_their_titles() {
        let chapter = |start, end, title: &str| Chapter { start, end, title: title.into() };

        let written = chapters(&[chapter(0.0, 61.5, "Intro"), chapter(61.5, 90.0, "a\n00:01 --> 00:02")]);

        let parsed = parse(&written);
        assert_eq!(
            parsed.iter().map(|cue| (cue.start, cue.end)).collect::<Vec<_>>(),
            [(0, 61_500), (61_500, 90_000)]
        );
        assert_eq!(parsed[1].text, "a 00:01 → 00:02");
    }

    #[test]
    fn cues_move_to_the_beginning_of_the_picture() {
        let cue = |start, end| Cue { start, end, settings: String::new(), text: "hi".into() };

        let moved = earlier(vec![cue(0, 900), cue(500, 1500), cue(3000, 4000)], 1000);

        assert_eq!(moved, [cue(0, 500), cue(2000, 3000)]);
    }

    #[test]
    fn a_cue_with_nul_bytes_reads_back_as_it_was_written() {
        let cues = parse("WEBVTT\n\n00:00.000 --> 00:01.000\na\n\0\nb\n");

        assert_eq!(cues[0].text, "a\n\u{fffd}\nb");
        assert_eq!(parse(&whole(&cues)), cues);
    }

    #[test]
    fn noise_is_no_cue_and_no_panic() {
        for noise in
            ["", "-->", "WEBVTT\n\n--> -->\nx", "é:é.é --> 1:1.é\nx", "99999999999999999999:1.0 --> 2:0.0\nx"]
        {
            assert_eq!(parse(noise), [], "{noise}");
        }
    }
}
