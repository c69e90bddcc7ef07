//! Clients that authenticate nowhere try to use up the server: its memory, its connections, its patience.

use crate::on_both_engines;
use crate::support::Engine;
use crate::support::house::{House, SECRET, good, problem};
use crate::support::{peak_memory, until};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

on_both_engines![
    a_body_is_refused_before_it_is_read,
    a_manifest_is_read_once_however_many_ask_for_its_playlists,
];

fn connect(house: &House) -> TcpStream {
    let address = house.url("").trim_start_matches("http://").to_owned();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// Sends this and reads until the server closes.
fn exchange(house: &House, request: &str) -> String {
    let mut stream = connect(house);
    // The server may have closed already.
    let _ = stream.write_all(request.as_bytes());
    rest(&mut stream)
}

/// Sends this and reads one answer: the server goes on listening for a while to who still has something to send.
pub fn first_answer(house: &House, request: &str) -> String {
    let mut stream = connect(house);
    let _ = stream.write_all(request.as_bytes());
    let (mut said, mut block) = (String::new(), [0; 4096]);
    loop {
        if let Some((head, body)) = said.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.unwrap().parse().unwrap() {
                return said;
            }
        }
        match stream.read(&mut block) {
            Ok(read @ 1..) => said.push_str(std::str::from_utf8(&block[..read]).unwrap()),
            _ => return said,
        }
    }
}

fn rest(stream: &mut TcpStream) -> String {
    let (mut said, mut block) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = stream.read(&mut block) {
        said.extend_from_slice(&block[..read]);
    }
    String::from_utf8_lossy(&said).into_owned()
}

fn a_body_is_refused_before_it_is_read(engine: Engine) {
    let house = House::new(engine);
    let post = |path: &str, header: &str, bytes: usize| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {bytes}\r\n{header}\
             Connection: close\r\n\r\n"
        )
    };
    let secret = format!("X-Admin-Secret: {SECRET}\r\n");

    // Of none of these does a byte of the body ever come.
    for (path, header, bytes, status, word) in [
        ("/api/session", "", 4097, "413", "4096 bytes"),
        ("/api/session", "", 1 << 50, "413", "4096 bytes"),
        ("/api/jobs", "", 4 << 20, "401", "unauthorized"),
        ("/api/worker/complete", "", 4 << 20, "401", "unauthorized"),
        ("/api/worker/register", secret.as_str(), (64 << 10) + 1, "413", "65536 bytes"),
        ("/api/jobs", secret.as_str(), (4 << 20) + 1, "413", "max_request_mb"),
        ("/api/videos", secret.as_str(), (4 << 20) + 1, "413", "max_request_mb"),
    ] {
        let answer = first_answer(&house, &post(path, header, bytes));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path} with {bytes} bytes: {answer}");
        assert!(answer.contains(word), "{path} with {bytes} bytes: {answer}");
    }
    let endless = "POST /api/session HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
                   Transfer-Encoding: chunked\r\n\r\n";
    let chunks = format!("{endless}{}", format!("1000\r\n{}\r\n", " ".repeat(4096)).repeat(3));
    let answer = first_answer(&house, &chunks);
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

/// It may have megabytes, and a published generation never changes.
fn a_manifest_is_read_once_however_many_ask_for_its_playlists(engine: Engine) {
    let house = House::new(engine);
    good(house.admin("POST", "/api/videos?slug=talk").body("x").send().unwrap());
    house.world.execute(
        r##"INSERT INTO generation (video_id, job_id, task_id, manifest, created_at) VALUES (1, 1, 1,
            '{"generation": "g-1", "duration": 7.5, "indexes": [{"name": "master.m3u8", "text": "first"}]}', 5)"##,
    );
    house.world.execute("UPDATE video SET generation_id = 1 WHERE id = 1");
    let captions = house
        .admin("PUT", "/api/videos/talk/captions/en?label=English")
        .body("WEBVTT\n\n00:01.000 --> 00:02.000\nhi\n");
    assert!(captions.send().unwrap().status().is_success());
    let text = |path: &str| house.anyone("GET", path).send().unwrap().text().unwrap();
    let playlists = || (text("/videos/talk/master.m3u8"), text("/videos/talk/captions/en.m3u8"));
    let first = playlists();
    assert!(first.0.contains("first") && first.1.contains("#EXTINF:7.50000,"), "{first:?}");

    house.world.execute("UPDATE generation SET manifest = 'is not read'");
    assert_eq!(playlists(), first);

    // A database that was restored gives the same id to another generation.
    house.world.execute(
        r##"UPDATE generation SET created_at = 6, manifest = '{"indexes": [{"name": "master.m3u8", "text": "second"}]}'"##,
    );
    assert!(text("/videos/talk/master.m3u8").contains("second"));
}

#[test]
fn heads_are_bounded_and_what_is_not_http_is_closed() {
    let house = House::with(Engine::Sqlite, &[("VODMILL_HEADER_TIMEOUT_SECONDS", "1")]);
    let huge = format!("GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "a".repeat(64 << 10));
    let many = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "X: y\r\n".repeat(200));

    for (what, sent) in [("a huge head", &huge), ("many headers", &many)] {
        let answer = exchange(&house, sent);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{what}: {answer}");
    }
    for (what, sent) in [
        ("TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\x03\x03"),
        ("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        ("junk", "GARBAGE\r\n\r\n"),
        ("half a head", "GET / HTTP/1.1\r\nHost: x\r\n"),
        ("nothing", ""),
    ] {
        // It ends: the server closes.
        let answer = exchange(&house, sent);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{what}: {answer}");
    }
    good(house.anyone("GET", "/health").send().unwrap());
}

/// A stranger has so many connections; a client that authenticates has more, and gives its places to others.
#[test]
fn an_address_has_few_connections_until_it_authenticates() {
    let house = House::with(Engine::Sqlite, &[("VODMILL_MAX_CONNECTIONS_PER_ADDRESS", "3")]);
    // The test's own client has authenticated, and its connection does not count.
    house.get("/api/videos");
    let held: Vec<TcpStream> = (0..3).map(|_| connect(&house)).collect();

    until("connections beyond the cap are refused", || {
        rest(&mut connect(&house)).starts_with("HTTP/1.1 429")
    });

    let mut admin = &held[0];
    let ask = format!("GET /api/videos HTTP/1.1\r\nHost: x\r\nX-Admin-Secret: {SECRET}\r\n\r\n");
    admin.write_all(ask.as_bytes()).unwrap();
    let mut answer = [0; 12];
    admin.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    let health = "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    until("its place is free for another", || exchange(&house, health).starts_with("HTTP/1.1 200"));
    until("the log names the setting", || {
        std::fs::read_to_string(house.log()).unwrap().contains("max_connections_per_address")
    });
}

/// Whoever opens connections from many addresses and sends no whole request shuts out nobody.
#[test]
fn half_sent_heads_beyond_the_cap_make_room_for_others() {
    let house = House::with(Engine::Sqlite, &[("VODMILL_MAX_CONNECTIONS", "16")]);
    let address: std::net::SocketAddr = house.url("").trim_start_matches("http://").parse().unwrap();
    let ask = format!("GET /api/videos HTTP/1.1\r\nHost: x\r\nX-Admin-Secret: {SECRET}\r\n\r\n");
    let is_answered = |mut admin: &TcpStream| {
        admin.write_all(ask.as_bytes()).unwrap();
        let mut answer = [0; 4096];
        let read = admin.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..read]).starts_with("HTTP/1.1 200")
    };
    let long_known = connect_from(2, address);
    assert!(is_answered(&long_known));

    let mut halves = Vec::new();
    for round in 0..10 {
        for last in 3..15 {
            let mut half = connect_from(last, address);
            // It may have been closed to make room already.
            let _ = half.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nX");
            halves.push(half);
        }
        assert!(is_answered(&connect_from(99, address)), "an admin's new connection in round {round}");
    }
    assert!(is_answered(&long_known), "a connection that has authenticated stays");
    assert_eq!(rest(&mut halves[0]), "", "the longest wait is over, without an answer");
    until("the log names the setting", || {
        std::fs::read_to_string(house.log()).unwrap().contains("the setting max_connections is the limit")
    });
}

/// From 127.0.0.LAST.
fn connect_from(last: u8, to: std::net::SocketAddr) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let connect = async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind(([127, 0, 0, last], 0).into())?;
        socket.connect(to).await?.into_std()
    };
    let stream = runtime.block_on(connect).unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// All clients behind a proxy have its address; they are told apart by what it says.
#[test]
fn clients_behind_a_proxy_are_counted_one_by_one() {
    let settings = [
        ("VODMILL_MAX_CONNECTIONS_PER_ADDRESS", "2"),
        ("VODMILL_CLIENT_ADDRESS_HEADER", "X-Forwarded-For"),
        ("VODMILL_PROXY_ADDRESSES", "127.0.0.1"),
    ];
    let house = House::with(Engine::Sqlite, &settings);
    let slow = |from: &str| {
        let mut stream = connect(&house);
        let head = format!(
            "POST /api/session HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: {from}\r\nContent-Type: application/json\r\n\
             Content-Length: 100\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let ask = |from: &str| house.anyone("GET", "/health").header("x-forwarded-for", from).send().unwrap();

    // One of these may itself be refused, while the question is being answered.
    let mut held = Vec::new();
    until("more requests of that client are refused", || {
        held.push(slow("198.51.100.7"));
        let answer = ask("203.0.113.1, 198.51.100.7");
        let is_refused = answer.status() == 429;
        if is_refused {
            problem(answer, 429, "too_many_connections");
        }
        is_refused
    });
    good(ask("198.51.100.8"));
}

#[test]
fn the_soft_limit_of_open_files_is_raised_at_the_start() {
    let world = crate::support::World::new(Engine::Sqlite);
    let log = world.folder.path().join("serve.log");
    let mut program =
        world.vodmill(&["serve"]).env("VODMILL_LISTEN", "127.0.0.1:0").env("VODMILL_SERVER_SLOTS", "0");
    let program = {
        use std::os::unix::process::CommandExt;
        let lower = || {
            let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: plain calls on a value of this function's own.
            unsafe {
                libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
                limit.rlim_cur = 256;
                libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
            }
            Ok(())
        };
        // SAFETY: nothing but system calls between fork and exec.
        unsafe { program.command.pre_exec(lower) };
        program
    };
    let (process, _) = program.start_serving(&log);

    let limits = std::fs::read_to_string(format!("/proc/{}/limits", process.0.id())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let numbers: Vec<&str> = line.split_whitespace().rev().skip(1).take(2).collect();
    assert_eq!(numbers[0], numbers[1], "{line}");
}

#[test]
fn wrong_metrics_tokens_count_as_guesses() {
    let token = "a metrics token of twenty";
    let house = House::with(Engine::Sqlite, &[("VODMILL_METRICS_TOKEN", token)]);
    let ask = |token: &str| house.anyone("GET", "/metrics").bearer_auth(token).send().unwrap();

    for n in 0..10 {
        problem(ask(&format!("guess {n}")), 401, "unauthorized");
    }

    problem(ask("another guess"), 429, "too_many_guesses");
    problem(ask(token), 429, "too_many_guesses");
    let secret = house.anyone("POST", "/api/session").json(&json!({ "secret": SECRET })).send().unwrap();
    problem(secret, 429, "too_many_guesses");
}

/// The program that floods a server, and the memory that docs/operations.md says a flood may take. In full: `make flood`.
#[test]
fn under_all_bad_connections_at_once_honest_clients_are_answered_and_memory_is_bounded() {
    const PER_ADDRESS: u64 = 100;
    let settings = [("VODMILL_MAX_CONNECTIONS_PER_ADDRESS", "100"), ("VODMILL_HEADER_TIMEOUT_SECONDS", "2")];
    let house = House::with(Engine::Sqlite, &settings);
    let video = good(house.admin("POST", "/api/videos?slug=big").body("x").send().unwrap());
    let folder = house.data().join(format!("videos/{}/g-0", video["id"]));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("big.m4s"), vec![0; 64 << 20]).unwrap();
    let (address, pid) = (house.url("").replace("http://", ""), house.pid().to_string());
    let before = peak_memory(house.pid());

    let flood = ["bench", "strangers", "--together", "--connections", "30", "--seconds", "6", "--json"];
    let rest = ["--address", &address, "--pid", &pid, "--file", "/videos/big/g-0/big.m4s"];
    let seen = house.world.vodmill(&[&flood[..], &rest[..]].concat()).json()[0].clone();

    assert!(seen["opened"].as_u64() > Some(PER_ADDRESS), "{seen}");
    assert!(seen["refused"].as_u64() > Some(0), "connections beyond the cap are refused: {seen}");
    assert!(
        seen["answered"].as_u64() > Some(0) && seen["failed"] == 0,
        "honest clients are answered: {seen}"
    );
    let grown = seen["peak_memory_bytes"].as_u64().unwrap() - before;
    assert!(grown < (64 << 20) + PER_ADDRESS * (256 << 10), "the server grew by {grown} bytes: {seen}");
    good(house.anyone("GET", "/health").send().unwrap());
}
