//! Orientation, shape, fields, depth and colour of the picture.

use super::stream::{ONE, STRIPES, Stream, probed};
use super::studio::{Studio, ffmpeg, numbers};

/// Half a second of black whose upper left quarter is white.
const QUARTER: &str = "color=size=320x180:rate=10:duration=0.5,drawbox=w=160:h=90:color=white:thickness=fill";

/// Places the matrix of a track header, given as its upper left four numbers.
fn turn(studio: &Studio, name: &str, matrix: [i32; 4]) {
    const BEFORE_MATRIX: usize = 40;
    let [a, b, c, d] = matrix;
    studio.patch(name, b"tkhd", |header| {
        for (at, value) in [a, b, 0, c, d, 0].into_iter().enumerate() {
            let at = BEFORE_MATRIX + at * 4;
            header[at..at + 4].copy_from_slice(&(value * 65_536).to_be_bytes());
        }
    });
}

/// Where the white quarter is, counted line by line from the upper left.
fn white_quarter(stream: &Stream) -> usize {
    let shown = stream.play("scale=2:2:flags=area");
    assert_eq!(shown.frames(), 5);
    let white: Vec<usize> = (0..4).filter(|at| shown.bytes[*at] > 200).collect();
    assert!(
        white.len() == 1 && shown.bytes.iter().filter(|byte| **byte < 40).count() == 15,
        "{:?}",
        shown.bytes
    );
    white[0]
}

#[test]
fn a_turned_or_mirrored_picture_comes_out_upright() {
    let studio = Studio::new();
    studio.make("upright.mp4", &["-f", "lavfi", "-i", QUARTER, "-preset", "ultrafast"]);
    for (at, matrix) in [
        [1, 0, 0, 1],
        [0, 1, -1, 0],
        [-1, 0, 0, -1],
        [0, -1, 1, 0],
        [-1, 0, 0, 1],
        [1, 0, 0, -1],
        [0, 1, 1, 0],
        [0, -1, -1, 0],
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("{at}.mp4");
        std::fs::copy(studio.path("upright.mp4"), studio.path(&name)).unwrap();
        turn(&studio, &name, matrix);

        let stream = studio.transcode(&name, &[]);

        let [a, b, c, d] = matrix;
        // A point (x, y) is shown at (a·x + c·y, b·x + d·y); the quarter's middle is left of and above the picture's.
        let (is_right, is_below) = (-a - c > 0, -b - d > 0);
        assert_eq!(white_quarter(&stream), usize::from(is_right) + 2 * usize::from(is_below), "{matrix:?}");
        assert_eq!(stream.size(), if a == 0 { (180, 320) } else { (320, 180) }, "{matrix:?}");
    }
}

#[test]
fn pixels_that_are_not_square_become_square() {
    let studio = Studio::new();
    let picture = numbers("25", 1.0) + ",scale=160:180:flags=neighbor,setsar=2";
    studio.make("wide.mp4", &["-f", "lavfi", "-i", &picture, "-preset", "ultrafast"]);

    let stream = studio.transcode("wide.mp4", &[]);

    assert_eq!(stream.size(), (320, 180));
    assert_eq!(stream.picture_is("sample_aspect_ratio"), "1:1");
    assert_eq!(stream.play(STRIPES).numbers(), (0..25).collect::<Vec<_>>());
}

#[test]
fn odd_standing_and_tiny_pictures_keep_their_shape() {
    for (width, height) in [(321, 181), (181, 321), (16, 16), (180, 320)] {
        let studio = Studio::new();
        let picture = format!("testsrc=size={width}x{height}:rate=25:duration=1,format=yuv444p");
        studio.make("odd.mp4", &["-f", "lavfi", "-i", &picture, "-preset", "ultrafast"]);

        let stream = studio.transcode("odd.mp4", &[]);

        let (made_width, made_height) = stream.size();
        assert!(made_width % 2 == 0 && made_height % 2 == 0, "{made_width}×{made_height}");
        assert!(made_width.abs_diff(width) <= 1 && made_height.abs_diff(height) <= 1);
        assert_eq!(stream.play(ONE).frames(), 25);
    }
}

#[test]
fn fields_become_whole_pictures_as_many_as_there_were_frames() {
    let studio = Studio::new();
    let bar = "color=size=320x180:rate=50:duration=2,format=gray,\
               geq=lum='if(lt(mod(X+32000-N*8,320),60),235,16)',format=yuv420p,tinterlace=interleave_top,setfield=tff";
    let codec = ["-c:v", "libx264", "-preset", "ultrafast", "-flags", "+ildct+ilme", "-x264-params", "tff=1"];
    studio.make("fields.mp4", &[&["-f", "lavfi", "-i", bar], &codec[..], &["-field_order", "tt"]].concat());

    let stream = studio.transcode("fields.mp4", &[]);

    let first =
        ["-select_streams", "v", "-read_intervals", "%+#1", "-show_entries", "frame=interlaced_frame"];
    assert_eq!(probed(&stream.pictures()[0].playlist, &first), "0");
    let shown = stream.play("null");
    assert_eq!(shown.frames(), 50);
    let raw = ["-f", "rawvideo", "-pix_fmt", "gray", "-"];
    let source = ffmpeg().arg("-i").arg(studio.path("fields.mp4")).args(raw).output().unwrap().stdout;
    let (before, after) = (combing(&source), combing(&shown.bytes));
    assert!(before > 5.0 && after < before / 4.0, "lines differed by {before}, and do by {after}");
}

/// How much lines differ from the next; in a picture of upright bars they do not.
fn combing(frames: &[u8]) -> f64 {
    let lines: Vec<&[u8]> = frames.chunks_exact(320).collect();
    let difference =
        |pair: &[&[u8]]| pair[0].iter().zip(pair[1]).map(|(a, b)| f64::from(a.abs_diff(*b))).sum::<f64>();
    lines.windows(2).map(difference).sum::<f64>() / frames.len() as f64
}

#[test]
fn ten_bits_and_fine_colour_become_what_every_player_takes() {
    let studio = Studio::new();
    let picture = numbers("25", 1.0) + ",format=yuv422p10le";
    studio.make("fine.mkv", &["-f", "lavfi", "-i", &picture, "-c:v", "libx264", "-preset", "ultrafast"]);

    let stream = studio.transcode("fine.mkv", &[]);

    assert_eq!(stream.picture_is("pix_fmt"), "yuv420p");
    assert_eq!(stream.play(STRIPES).numbers(), (0..25).collect::<Vec<_>>());
}

/// Four bars from black to the brightest, given as parts of the signal's range, come out of `transfer` as they went in:
/// each brighter than the one before, black black, and white bright.
fn is_toned_down(transfer: &str, codec: &[&str], signal: [f64; 4]) {
    let studio = Studio::new();
    let [black, dark, middle, bright] = signal.map(|part| (64.0 + 876.0 * part).round());
    let picture = format!(
        "color=size=320x180:rate=25:duration=1,format=yuv420p10le,\
         geq=lum='if(lt(X,80),{black},if(lt(X,160),{dark},if(lt(X,240),{middle},{bright})))':cb=512:cr=512"
    );
    let tags = [
        "-color_primaries",
        "bt2020",
        "-color_trc",
        transfer,
        "-colorspace",
        "bt2020nc",
        "-color_range",
        "tv",
    ];
    studio.make("hdr.mkv", &[&["-f", "lavfi", "-i", &picture], codec, &tags].concat());

    let stream = studio.transcode("hdr.mkv", &[]);

    let told = stream.picture_is("pix_fmt,color_space,color_transfer,color_primaries");
    assert_eq!(told, "yuv420p,bt709,bt709,bt709");
    assert_eq!(stream.pictures()[0].get("VIDEO-RANGE"), "SDR");
    let shown = stream.play("scale=4:1:flags=area");
    assert_eq!(shown.frames(), 25);
    let bars = &shown.bytes[..4];
    assert!(bars[0] < 30 && bars[3] > 150, "{bars:?}");
    assert!(bars.windows(2).all(|pair| pair[1] > pair[0] + 15), "{bars:?}");
}

#[test]
fn hdr10_is_toned_down() {
    let codec = ["-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=error"];
    // 0, 10, 100 and 1000 candela a square metre.
    is_toned_down("smpte2084", &codec, [0.0, 0.302, 0.508, 0.752]);
}

#[test]
fn hlg_is_toned_down() {
    is_toned_down("arib-std-b67", &["-c:v", "libx264", "-preset", "ultrafast"], [0.0, 0.3, 0.6, 1.0]);
}

#[test]
fn cover_art_is_not_the_picture() {
    let studio = Studio::new();
    studio.make("cover.jpg", &["-f", "lavfi", "-i", "color=red:size=640x640", "-frames:v", "1"]);
    let picture = numbers("25", 1.0);
    let maps = ["-map", "1", "-map", "0", "-c:v:1", "copy", "-disposition:v:1", "attached_pic"];
    let inputs = ["-i", "cover.jpg", "-f", "lavfi", "-i", &picture];
    studio.make("film.mp4", &[&inputs[..], &maps, &["-preset", "ultrafast"]].concat());

    let stream = studio.transcode("film.mp4", &[]);

    assert_eq!(stream.play(STRIPES).numbers(), (0..25).collect::<Vec<_>>());
    assert!(stream.told.contains("cover"), "{}", stream.told);
}
