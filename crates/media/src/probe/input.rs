//! How a file is handed to ffprobe and ffmpeg so that it can neither pose as an option nor reach for anything else.

/// Containers of moving pictures and sound that carry all they need. Left out on purpose: playlists and manifests (`hls`,
/// `dash`, `concat`, `imf`, `sdp`), which open what they name; devices and generators; pictures and sequences of them;
/// subtitles; text drawn as video (`tty`); headerless sound, which anything can be taken for.
const FORMATS: &str = "3gp,aac,ac3,aiff,amr,ape,apng,asf,au,av1,avi,caf,cavsvideo,dirac,dnxhd,dts,dtshd,dv,eac3,flac,flv,\
gif,gxf,h261,h263,h264,hevc,ivf,live_flv,m4a,m4v,matroska,mj2,mlp,mov,mp3,mp4,mpeg,mpegts,mpegvideo,mxf,nsv,nut,obu,ogg,\
pva,rm,smk,truehd,tta,vc1,vc1test,vvc,w64,wav,webm,wtv,wv,yuv4mpegpipe";

/// A server that says nothing for so long is taken for gone. One on this machine speaks for another and waits for it as
/// long as that makes sense.
const SILENCE_US: &str = "60000000";
const LOCAL_SILENCE_US: &str = "900000000";

/// The arguments that name an input: limits first, `-i` last. `input` is a path, or an `http(s)` URL.
///
/// ```
/// let arguments = media::probe::input::arguments("-rf: 100%.mp4");
///
/// assert_eq!(arguments.last().map(String::as_str), Some("file:-rf: 100%.mp4"));
/// ```
pub fn arguments(input: &str) -> Vec<String> {
    let mut arguments = vec!["-protocol_whitelist"];
    if is_on_this_machine(input) {
        // Whatever proxy the machine is set to use, it is not for this.
        arguments.extend(["http,tcp", "-http_proxy", "", "-rw_timeout", LOCAL_SILENCE_US]);
    } else if is_remote(input) {
        arguments.extend(["http,https,tls,tcp", "-rw_timeout", SILENCE_US]);
    } else {
        arguments.push("file");
    }
    arguments.extend(["-format_whitelist", FORMATS, "-i"]);
    let mut arguments: Vec<String> = arguments.into_iter().map(String::from).collect();
    arguments.push(name(input));
    arguments
}

/// Whether it is read over HTTP, so that an error may be the network's and not the file's.
pub fn is_remote(input: &str) -> bool {
    let starts =
        |scheme: &str| input.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    starts("http://") || starts("https://")
}

/// The worker itself serves it, so that nothing may lead elsewhere.
fn is_on_this_machine(input: &str) -> bool {
    input.starts_with("http://127.0.0.1:")
}

/// With `file:` before it a path is a path, whatever it looks like.
fn name(input: &str) -> String {
    if is_remote(input) { input.into() } else { format!("file:{input}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_path_whatever_it_looks_like() {
        for path in ["-i", "concat:a|b", "/a/b%03d.mp4", "pipe:0", "a\nb", "ftp://host/x", "httpx", ""] {
            let arguments = arguments(path);

            assert_eq!(arguments.last(), Some(&format!("file:{path}")));
            assert!(arguments.windows(2).any(|pair| pair == ["-protocol_whitelist", "file"]), "{path}");
        }
    }

    #[test]
    fn a_url_is_fetched_and_nothing_but_a_url() {
        let arguments = arguments("HTTPS://host/a.mp4?x=1");

        assert_eq!(arguments.last().map(String::as_str), Some("HTTPS://host/a.mp4?x=1"));
        assert!(arguments.contains(&"http,https,tls,tcp".to_string()));
    }

    #[test]
    fn what_the_worker_itself_serves_leads_nowhere_else() {
        let arguments = arguments("http://127.0.0.1:4711/x/source.mp4");

        assert!(arguments.windows(2).any(|pair| pair == ["-protocol_whitelist", "http,tcp"]));
        assert!(arguments.windows(2).any(|pair| pair == ["-http_proxy", ""]));
    }

    #[test]
    fn nothing_that_opens_other_files_is_let_in() {
        for format in ["hls", "dash", "concat", "imf", "image2", "lavfi", "sdp", "rtsp", "tty", "webvtt"] {
            assert!(!FORMATS.split(',').any(|allowed| allowed == format), "{format}");
        }
    }
}
