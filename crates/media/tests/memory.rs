//! How much memory it takes to find out what a file is.

#![allow(clippy::unwrap_used)]

use media::limits::FileLimits;
use media::probe::{Answer, File, Looked};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts what is held, and the most that ever was.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

const FRAMES: u64 = 200_000;
const MOST_FOR_A_FRAME: u64 = 48;

#[test]
fn a_frame_takes_few_bytes_until_its_time_is_known() {
    let report = br#"{"streams":[{"index":0,"codec_type":"video","codec_name":"h264","width":64,"height":64,
        "pix_fmt":"yuv420p","time_base":"1/90000"}],"format":{"format_name":"mov,mp4,m4a,3gp,3g2,mj2"}}"#;
    let answer = |stdout| Answer { stdout, stderr: "", succeeded: true };
    let looked = Looked::read(&File { input: "film.mp4", bytes: 1, head: b"" }, &answer(report)).unwrap();
    let limits = FileLimits::default();
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);

    let mut reader = looked.reader(&limits);
    for frame in 0..FRAMES {
        let key = if frame % 50 == 0 { 'K' } else { '_' };
        let line = format!("0,{},{},3600,{key}_\n", frame * 3600, frame * 3600);
        assert!(reader.feed(line.as_bytes()).is_continue());
    }
    let source = looked.finish_read(reader, &answer(b""), &limits).unwrap();

    assert_eq!(source.video.unwrap().timing.frames, FRAMES);
    let peak = (PEAK.load(Ordering::Relaxed) - before) as u64;
    assert!(peak < FRAMES * MOST_FOR_A_FRAME, "{} bytes for each frame", peak / FRAMES);
}
