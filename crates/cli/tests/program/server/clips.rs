//! Videos of which no two are alike, so that a piece of one in another would be seen: each has a gray of its own in the
//! middle of every frame, and a size, a rate, a length, a container and sound or none besides.

use crate::support::house::House;
use crate::transcode::stream::Stream;
use crate::transcode::studio::ffmpeg;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Clip {
    name: &'static str,
    size: (u32, u32),
    rate: &'static str,
    seconds: u32,
    /// Whatever else ffmpeg is told when it makes it.
    made_with: &'static [&'static str],
    has_sound: bool,
    /// It is stored lying on its side.
    is_turned: bool,
    /// Every third frame is left out of its second half.
    is_uneven: bool,
}

const X264: &[&str] = &["-c:v", "libx264", "-preset", "ultrafast", "-g", "50", "-c:a", "aac"];
const VP8: &[&str] = &["-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-c:a", "libopus"];
const MPEG4: &[&str] = &["-c:v", "mpeg4", "-q:v", "3", "-c:a", "mp2"];

const PLAIN: Clip = Clip {
    name: "plain.mp4",
    size: (320, 180),
    rate: "25",
    seconds: 16,
    made_with: X264,
    has_sound: true,
    is_turned: false,
    is_uneven: false,
};

const CLIPS: [Clip; 10] = [
    PLAIN,
    Clip { name: "turned.mp4", rate: "30", seconds: 12, has_sound: false, is_turned: true, ..PLAIN },
    Clip { name: "uneven.mkv", rate: "30", seconds: 10, is_uneven: true, ..PLAIN },
    Clip { name: "vp8.webm", size: (240, 180), seconds: 9, made_with: VP8, ..PLAIN },
    Clip { name: "film.mov", size: (426, 180), rate: "24000/1001", seconds: 11, ..PLAIN },
    Clip { name: "live.ts", rate: "50", seconds: 6, ..PLAIN },
    Clip { name: "old.avi", rate: "15", seconds: 13, made_with: MPEG4, ..PLAIN },
    Clip { name: "smooth.mp4", rate: "60", seconds: 5, has_sound: false, ..PLAIN },
    Clip { name: "tall.mkv", size: (180, 320), rate: "30000/1001", seconds: 8, ..PLAIN },
    Clip { name: "slow.mp4", size: (240, 240), rate: "10", seconds: 20, has_sound: false, ..PLAIN },
];

/// The clip of this number and what it looks like in the middle.
pub fn clip(number: usize) -> (&'static Clip, u8) {
    let kind = number % CLIPS.len();
    (&CLIPS[kind], 40 + 18 * kind as u8)
}

impl Clip {
    pub fn make(&self, house: &House, gray: u8) -> PathBuf {
        let path = house.world.folder.path().join(self.name);
        let ((width, height), rate, seconds) = (self.size, self.rate, self.seconds);
        let box_of = "x=iw*3/8:y=ih*3/8:w=iw/4:h=ih/4";
        let mut picture = format!(
            "testsrc2=size={width}x{height}:rate={rate}:duration={seconds},\
             drawbox={box_of}:color=0x{gray:02x}{gray:02x}{gray:02x}:t=fill,format=yuv420p"
        );
        if self.is_uneven {
            picture += &format!(",select='lt(t,{seconds}/2)+mod(n,3)'");
        }
        let mut command = ffmpeg();
        command.args(["-y", "-f", "lavfi", "-i", &picture]);
        if self.has_sound {
            command.args(["-f", "lavfi", "-i", &format!("sine=sample_rate=48000:duration={seconds}")]);
        }
        let uneven: &[&str] = if self.is_uneven { &["-fps_mode", "vfr"] } else { &[] };
        self.runs(command.args(self.made_with).args(uneven).arg(&path));
        if self.is_turned {
            // Only while it is copied does ffmpeg 5 write how a picture is turned.
            let upright = path.with_file_name("upright.mp4");
            std::fs::rename(&path, &upright).unwrap();
            let turn = ["-c", "copy", "-metadata:s:v", "rotate=90"];
            self.runs(ffmpeg().arg("-i").arg(&upright).args(turn).arg(&path));
        }
        path
    }

    fn runs(&self, command: &mut Command) {
        let made = command.output().expect("ffmpeg is missing: `make test` installs it");
        assert!(made.status.success(), "making {}: {}", self.name, crate::support::said(&made));
    }

    /// What was published in this folder is this clip from its first frame to its last, and nothing else.
    pub fn is_in(&self, gray: u8, folder: &Path) {
        let stream = Stream::open(folder.into(), String::new());
        let (width, height) = self.size;
        let size = if self.is_turned { (height, width) } else { (width, height) };
        assert_eq!(stream.size(), size, "{}", self.name);
        assert_eq!(!stream.sounds().is_empty(), self.has_sound, "{}", self.name);

        let shown = stream.play("crop=iw/8:ih/8,scale=1:1:flags=area");

        let (num, den) = self.rate.split_once('/').unwrap_or((self.rate, "1"));
        let rate = num.parse::<f64>().unwrap() / den.parse::<f64>().unwrap();
        let due = (f64::from(self.seconds) * rate).round() as usize;
        // Of a rate that changes, the last frame is as long as its container says.
        let missing = due.abs_diff(shown.frames());
        assert!(
            missing <= 2 * usize::from(self.is_uneven),
            "{}: {} frames, not {due}",
            self.name,
            shown.frames()
        );
        for (number, seen) in shown.bytes.iter().enumerate() {
            assert!(seen.abs_diff(gray) <= 8, "frame {number} of {} is {seen}, not {gray}", self.name);
        }
    }
}
