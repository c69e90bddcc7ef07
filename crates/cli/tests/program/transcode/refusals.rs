//! What cannot become a stream ends at once, with one sentence that names the file and the reason.

use super::studio::{Studio, sine};

/// Ends with this code and says why in one line that names the file.
fn refuses(studio: &Studio, name: &str, code: i32, reason: &str) {
    let told = studio.refuses(name, code);
    let reasons: Vec<&str> = told.lines().filter(|line| line.contains(reason)).collect();
    assert!(reasons.len() == 1 && reasons[0].contains(name), "{name}: {told}");
    assert!(!told.contains("tries again"), "{told}");
}

#[test]
fn what_is_no_video_is_refused_with_the_reason() {
    let studio = Studio::new();
    studio.write("empty.mp4", b"");
    studio.write("letter.mp4", "Dear reader,\nthis is not a film.\n".repeat(40).as_bytes());
    studio.write("list.mp4", b"#EXTM3U\n#EXT-X-TARGETDURATION:6\n#EXTINF:6,\n/etc/passwd\n#EXT-X-ENDLIST\n");
    std::fs::create_dir(studio.path("folder.mp4")).unwrap();
    studio.make("still.png", &["-f", "lavfi", "-i", "testsrc=size=64x64", "-frames:v", "1"]);

    refuses(&studio, "empty.mp4", 1, "the file is empty");
    refuses(&studio, "letter.mp4", 1, "letter.mp4: ");
    refuses(&studio, "list.mp4", 1, "a list of other files");
    refuses(&studio, "still.png", 1, "picture");
    let made = std::process::Command::new("mkfifo").arg(studio.path("pipe.mp4")).status().unwrap();
    assert!(made.success());
    refuses(&studio, "pipe.mp4", 2, "is not a regular file");
    assert!(studio.vodmill(&["plan", "pipe.mp4"]).ends_with(2).contains("is not a regular file"));
    refuses(&studio, "folder.mp4", 2, "is a folder");
    refuses(&studio, "missing.mp4", 2, "No such file");
}

#[test]
fn a_video_that_cannot_be_read_is_refused_with_the_reason() {
    let studio = Studio::new();
    let sound = sine(1.0);
    let inputs = [
        "-f",
        "lavfi",
        "-i",
        "testsrc=size=160x90:duration=1",
        "-f",
        "lavfi",
        "-i",
        &sound,
        "-preset",
        "ultrafast",
    ];
    studio.make("whole.mp4", &inputs);
    let whole = std::fs::read(studio.path("whole.mp4")).unwrap();
    studio.write("cut.mp4", &whole[..whole.len() / 2]);
    let key = "76a6c65c5ea762046bd749a2e632ccbb";
    let locked = ["-encryption_scheme", "cenc-aes-ctr", "-encryption_key", key, "-encryption_kid", key];
    studio.make("locked.mp4", &[&inputs[..], &locked].concat());
    studio.make("sound-locked.mp4", &[&["-f", "lavfi", "-i", &sound], &locked[..]].concat());

    refuses(&studio, "cut.mp4", 1, "moov");
    refuses(&studio, "locked.mp4", 1, "encrypted");
    refuses(&studio, "sound-locked.mp4", 1, "encrypted");
}

#[test]
fn a_plan_of_what_is_no_video_is_refused_likewise() {
    let studio = Studio::new();
    studio.write("empty.mp4", b"");

    let told = studio.vodmill(&["plan", "empty.mp4"]).ends_with(1);
    assert!(told.contains("empty.mp4") && told.contains("the file is empty"), "{told}");
    let told = studio.vodmill(&["plan", "missing.mp4"]).ends_with(2);
    assert!(told.contains("missing.mp4"), "{told}");
}
