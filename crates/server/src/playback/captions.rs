//! Captions that people attached, added to the playlist as it is served.

use super::{BRIEFLY, Stream, shown};
use crate::app::App;
use crate::body::Path;
use crate::problem::{Error, Result};
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use store::caption::Caption;

/// Adds captions to a master playlist: in the group of its own subtitles where it has one.
pub fn add(master: &str, captions: &[Caption]) -> String {
    if captions.is_empty() {
        return master.into();
    }
    const GROUP: &str = "SUBTITLES=\"subtitles\"";
    let entry = |caption: &Caption| {
        format!(
            "#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"subtitles\",NAME=\"{}\",LANGUAGE=\"{}\",AUTOSELECT=YES,DEFAULT=NO,FORCED=NO,URI=\"captions/{}.m3u8\"\n",
            caption.label, caption.language, caption.language
        )
    };
    let mut lines = String::new();
    let mut is_added = false;
    for line in master.lines() {
        let is_variant = line.starts_with("#EXT-X-STREAM-INF:");
        if is_variant && !is_added {
            captions.iter().for_each(|caption| lines.push_str(&entry(caption)));
            is_added = true;
        }
        lines.push_str(line);
        if is_variant && !line.contains("SUBTITLES=") {
            lines.push(',');
            lines.push_str(GROUP);
        }
        lines.push('\n');
    }
    lines
}

/// `en.m3u8`, a playlist of one segment, and `en.vtt`, the captions themselves.
pub async fn serve(
    State(app): State<App>,
    Path((slug, file)): Path<(String, String)>,
) -> Result<impl IntoResponse> {
    let video = shown(&app, &slug).await?;
    let (language, kind) = file.rsplit_once('.').ok_or(Error::NotFound("file"))?;
    let text = app.store.caption_text(video.id, language).await?;
    let (kind, text) = match kind {
        "vtt" => (media::kind::of("a.vtt"), text),
        "m3u8" => {
            let stream = Stream::shown(&app, &video).await?;
            let seconds = stream.and_then(|stream| stream.duration).unwrap_or(1.0);
            let list = format!(
                "#EXTM3U\n#EXT-X-VERSION:6\n#EXT-X-TARGETDURATION:{}\n#EXT-X-PLAYLIST-TYPE:VOD\n#EXTINF:{seconds:.5},\n{language}.vtt\n#EXT-X-ENDLIST\n",
                seconds.ceil().max(1.0)
            );
            (media::kind::of("a.m3u8"), list)
        }
        _ => return Err(Error::NotFound("file")),
    };
    Ok(([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, BRIEFLY)], text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captions_are_offered_with_every_variant() {
        let master = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\na.m3u8\n#EXT-X-STREAM-INF:BANDWIDTH=2,SUBTITLES=\"subtitles\"\nb.m3u8\n";
        let caption = Caption { language: "en".into(), label: "English".into(), updated_at: 0 };

        let added = add(master, &[caption]);

        assert_eq!(added.matches("SUBTITLES=\"subtitles\"").count(), 2);
        assert_eq!(added.matches("URI=\"captions/en.m3u8\"").count(), 1);
        assert!(added.find("TYPE=SUBTITLES") < added.find("#EXT-X-STREAM-INF"));
        assert_eq!(add(master, &[]), master);
    }
}
