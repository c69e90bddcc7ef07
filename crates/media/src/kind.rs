//! MIME types of what a stream consists of.

pub fn of(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("m3u8") => "application/vnd.apple.mpegurl",
        Some("mpd") => "application/dash+xml",
        Some("mp4" | "m4s") => "video/mp4",
        Some("m4a") => "audio/mp4",
        Some("vtt") => "text/vtt; charset=utf-8",
        Some("jpg") => "image/jpeg",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    }
}
