use rules::failure::Kind;
use rules::task::Refusal;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use worker::remote::{Relay, Source};
use worker::{Context, Failed};

use crate::line::Harm;
use crate::scene::{Scene, job, noise, proof};

const MIB: usize = 1 << 20;

/// A scene whose server has a source of so many bytes, and an execution that reads it.
async fn reading(bytes: usize) -> (Scene, Context, Relay) {
    let scene = Scene::new().await;
    scene.server.with(|desk| desk.source = noise(bytes));
    let context = scene.context(&job());
    let source = Source::open(&scene.client, proof(), "talk.mp4", &context).await.unwrap();
    let relay = Relay::start(source).await.unwrap();
    (scene, context, relay)
}

/// Head and body of the answer, as far as it came.
async fn ask(relay: &Relay, method: &str, path: &str, range: &str) -> (String, Vec<u8>) {
    let url = relay.url();
    let (authority, own_path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let path = if path.is_empty() { format!("/{own_path}") } else { path.into() };
    let mut stream = TcpStream::connect(authority).await.unwrap();
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n{range}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A connection that breaks is an answer too.
    let _ = stream.read_to_end(&mut answer).await;
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    let body = answer.split_off(head);
    (String::from_utf8(answer).unwrap().to_lowercase(), body)
}

pub async fn a_reader_gets_the_file_whatever_happens_on_the_way() {
    let (scene, context, relay) = reading(9 * MIB + 123).await;
    for harm in [
        Harm::CutAnswer(100_000),
        Harm::CutAnswer(0),
        Harm::Page(200),
        Harm::Page(502),
        Harm::Page(403),
        Harm::Refuse,
        Harm::Silence,
        Harm::CutAnswer(MIB / 2 + 7),
    ] {
        scene.line.harm("source", harm);
    }

    let (head, body) = ask(&relay, "GET", "", "").await;

    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(body == scene.server.with(|desk| desk.source.clone()), "{} bytes, and not the same", body.len());
    assert_eq!(scene.line.planned(), 0, "all harm was done");
    let asked = scene.server.asked("source");
    assert!(asked.iter().any(|line| line.contains("bytes=100000-")), "goes on at the very byte: {asked:?}");
    assert!(relay.source().trouble().is_none() && !context.stop.is_cancelled());
    assert!(relay.source().bytes_in() >= body.len() as u64);
}

pub async fn a_reader_gets_the_part_it_asks_for_and_little_else_is_fetched() {
    let (scene, _context, relay) = reading(16 * MIB).await;
    let source = scene.server.with(|desk| desk.source.clone());

    let (head, body) = ask(&relay, "GET", "", "Range: bytes=15000000-15000999\r\n").await;
    let (_, tail) = ask(&relay, "GET", "", "Range: bytes=-10\r\n").await;
    let (beyond, _) = ask(&relay, "GET", "", "Range: bytes=60000000-\r\n").await;
    let (sizes, nothing) = ask(&relay, "HEAD", "", "").await;
    let (wrong_path, _) = ask(&relay, "GET", "/source.mp4", "").await;
    let (wrong_method, _) = ask(&relay, "DELETE", "", "").await;

    assert!(
        head.contains("206") && head.contains("content-range: bytes 15000000-15000999/16777216"),
        "{head}"
    );
    assert!(body == source[15_000_000..15_001_000]);
    assert!(tail == source[source.len() - 10..]);
    assert!(beyond.contains("416") && beyond.contains("bytes */16777216"), "{beyond}");
    assert!(sizes.contains("content-length: 16777216") && nothing.is_empty(), "{sizes}");
    assert!(wrong_path.contains("404") && wrong_method.contains("405"));
    assert!(relay.source().bytes_in() < 2000, "{} bytes", relay.source().bytes_in());
    assert!(relay.url().ends_with(".mp4") && relay.url().len() > 60, "{}", relay.url());
}

pub async fn only_a_few_connections_are_served_at_a_time() {
    let (_scene, _context, relay) = reading(MIB).await;
    let url = relay.url();
    let (authority, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let request = format!("HEAD /{path} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    let mut held = Vec::new();
    for _ in 0..16 {
        let mut stream = TcpStream::connect(authority).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.read_exact(&mut [0; 12]).await.unwrap();
        held.push(stream);
    }

    let mut one_more = Box::pin(ask(&relay, "GET", "", ""));

    let waiting = tokio::time::timeout(Duration::from_millis(300), &mut one_more).await;
    assert!(waiting.is_err(), "it is served");
    held.pop();
    assert_eq!(one_more.await.1.len(), MIB);
}

pub async fn what_fails_while_the_source_is_away_is_the_storages_fault() {
    let (scene, _context, relay) = reading(4 * MIB).await;
    let blamed = |failed: Failed| relay.source().blame(failed).kind;
    for _ in 0..4 {
        scene.line.harm("source", Harm::Page(502));
    }

    let meanwhile = async {
        while blamed(Failed::transient("it stood still")) != Kind::StorageAway {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(blamed(Failed::permanent("there is no video in it")), Kind::Permanent);
    };
    let ((_, body), ()) = tokio::join!(ask(&relay, "GET", "", ""), meanwhile);

    assert_eq!(body.len(), 4 * MIB);
    assert_eq!(blamed(Failed::transient("it stood still")), Kind::Transient, "it is back");
}

pub async fn a_file_that_changes_is_not_read_on() {
    let (scene, _context, relay) = reading(4 * MIB).await;
    scene.line.harm("source", Harm::CutAnswer(1000));
    scene.server.with(|desk| desk.etag = "\"two\"".into());

    let (_, body) = ask(&relay, "GET", "", "").await;

    assert!(body.len() <= 1000, "{} bytes", body.len());
    let trouble = relay.source().trouble().unwrap();
    assert_eq!(trouble, Failed::permanent("talk.mp4 was changed while a stream was made of it"));
}

pub async fn a_file_that_is_gone_or_empty_is_a_permanent_failure() {
    let scene = Scene::new().await;
    let context = scene.context(&job());

    let empty = Source::open(&scene.client, proof(), "talk.mp4", &context).await.unwrap_err();
    scene.server.with(|desk| desk.problem = Some((404, "source_missing")));
    let gone = Source::open(&scene.client, proof(), "talk.mp4", &context).await.unwrap_err();

    assert_eq!(empty, Failed::permanent("talk.mp4: the file is empty: upload it again"));
    assert_eq!(gone, Failed::permanent("talk.mp4: because of source_missing"));
}

pub async fn a_lost_lease_ends_the_execution() {
    let (scene, context, relay) = reading(4 * MIB).await;
    scene.server.with(|desk| desk.refusal = Some(Refusal::StaleToken));

    let (_, body) = ask(&relay, "GET", "", "").await;

    assert!(body.is_empty());
    assert!(context.stop.is_cancelled(), "the encoder is stopped");
    assert!(relay.source().trouble().is_some());
}

pub async fn an_expired_lease_may_be_renewed_meanwhile() {
    let (scene, context, relay) = reading(MIB).await;
    scene.server.with(|desk| (desk.refusal, desk.refusals_left) = (Some(Refusal::LeaseExpired), Some(2)));

    let (_, body) = ask(&relay, "GET", "", "").await;

    assert_eq!(body.len(), MIB);
    assert!(!context.stop.is_cancelled());
}

pub async fn nothing_counts_as_progress_while_the_source_is_away() {
    let (scene, context, relay) = reading(4 * MIB).await;
    scene.server.with(|desk| desk.problem = Some((503, "unavailable")));
    let beats = |context: &Context| {
        let before = context.progress.beats();
        context.progress.beat();
        context.progress.beats() - before
    };

    assert_eq!(beats(&context), 1);
    let reading = async { ask(&relay, "GET", "", "").await };
    let watching = async {
        scene
            .server
            .until(|desk| desk.asked.iter().filter(|line| line.contains("source")).count() >= 4)
            .await;
        let while_away = beats(&context);
        scene.server.with(|desk| desk.problem = None);
        while_away
    };
    let ((_, body), while_away) = tokio::join!(reading, watching);

    assert_eq!(while_away, 0);
    assert_eq!(body.len(), 4 * MIB);
    assert_eq!(beats(&context), 1, "and it does again");
}

/// The address stands among a program's arguments, where every user of the machine can read it.
pub async fn another_user_of_the_machine_gets_nothing() {
    let (_scene, _context, relay) = reading(MIB).await;
    let (authority, path) = relay.url().strip_prefix("http://").unwrap().split_once('/').map(own).unwrap();
    let (host, port) = authority.split_once(':').unwrap();
    let ask = format!(
        "exec 3<>/dev/tcp/{host}/{port}; printf 'GET /{path} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n' >&3; \
         head -c 40 <&3"
    );
    let by = async |user: &[&str]| {
        let argv = [user, &["bash", "-c", &ask]].concat();
        let output = tokio::process::Command::new(argv[0]).args(&argv[1..]).output().await.unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };

    let own = by(&[]).await;
    assert!(own.starts_with("HTTP/1.1 200"), "{own}");
    let other = by(&["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]).await;
    assert!(other.starts_with("HTTP/1.1 403"), "{other}");
}

fn own((host, path): (&str, &str)) -> (String, String) {
    (host.into(), path.into())
}
