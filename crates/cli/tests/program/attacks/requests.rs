//! Requests that say one thing to one reader and another to the next: paths, lengths, ranges, uploads, other sites' pages.

use super::load::first_answer;
use crate::support::Engine;
use crate::support::house::{House, SECRET, good};
use serde_json::json;

#[test]
fn no_path_leads_out_of_a_videos_own_folder() {
    let house = House::new(Engine::Sqlite);
    let id = good(house.admin("POST", "/api/videos?slug=v").body("x").send().unwrap())["id"].clone();
    let folder = house.data().join(format!("videos/{id}/g-0"));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("a.m4s"), "media").unwrap();
    std::fs::write(folder.join(".hidden"), "hidden").unwrap();
    std::fs::write(house.data().join("secret"), "secret").unwrap();
    // As it is sent: a library would tidy it up.
    let get = |path: &str| first_answer(&house, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));

    assert!(get("/videos/v/g-0/a.m4s").starts_with("HTTP/1.1 200"));
    for path in [
        "/videos/v/../../secret",
        "/videos/v/g-0/../../../secret",
        "/videos/v/g-0/..%2f..%2f..%2fsecret",
        "/videos/v/g-0/%2e%2e/%2e%2e/%2e%2e/secret",
        "/videos/v/g-0/..%5c..%5csecret",
        "/videos/v/..%2f..%2f/secret",
        "/videos/v/%2e%2e/secret",
        "/videos/v/g-0//etc/passwd",
        "/videos/v/g-0/%2fetc%2fpasswd",
        "/videos/v/g-0/a.m4s%00",
        "/videos/v/g-0/a.m4s%00.html",
        "/videos/v/g-0/.hidden",
        "/videos/v/g-0/./a.m4s",
        "/videos/v/g-0/%c0%ae%c0%ae/secret",
        "/videos/v/g-0/..;/secret",
        "/videos/..%2fv/g-0/a.m4s",
        "/videos/v/captions/..%2f..%2fsecret.vtt",
        "/videos/v/early/1/..%2f..%2f/secret",
        "/watch/..%2f..%2fsecret",
    ] {
        let answer = get(path);
        assert!(answer.starts_with("HTTP/1.1 404") || answer.starts_with("HTTP/1.1 400"), "{path}: {answer}");
        assert!(!answer.contains("root:") && !answer.ends_with("secret"), "{path}: {answer}");
    }
}

#[test]
fn a_request_with_two_ends_is_refused() {
    let house = House::new(Engine::Sqlite);
    let hidden = "GET /api/videos HTTP/1.1\r\nHost: x\r\n\r\n";
    let head = "POST /api/session HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";

    for lengths in [
        format!("Content-Length: 5\r\nContent-Length: {}\r\n\r\n0\r\n\r\n", hidden.len()),
        format!("Content-Length: 5, {}\r\n\r\n0\r\n\r\n", hidden.len()),
        "Content-Length: -1\r\n\r\n".into(),
        "Content-Length: +5\r\n\r\n0\r\n\r\n".into(),
        "Content-Length: 0x5\r\n\r\n0\r\n\r\n".into(),
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n".into(),
        "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n".into(),
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n".into(),
        "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n".into(),
        "Transfer-Encoding: chunked\r\n\r\n-1\r\n".into(),
        " folded: header\r\n\r\n".into(),
    ] {
        let answer = first_answer(&house, &format!("{head}{lengths}{hidden}"));
        // Of what would be the second request nothing is answered.
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{lengths:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count().max(1), 1, "{lengths:?}: {answer}");
    }
    // Where both are there, chunks are the end, and the connection is not used again.
    let both = format!("{head}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}");
    let answer = first_answer(&house, &both);
    assert!(answer.starts_with("HTTP/1.1 400") && !answer.contains("401 Unauthorized"), "{answer}");
}

#[test]
fn a_request_names_one_host() {
    let house = House::new(Engine::Sqlite);
    for (head, status) in [
        ("GET /health HTTP/1.1\r\nHost: x\r\n\r\n", "200"),
        ("GET /health HTTP/1.0\r\n\r\n", "200"),
        ("GET /health HTTP/1.1\r\n\r\n", "400"),
        ("GET /health HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", "400"),
        ("GET http://x/health HTTP/1.1\r\n\r\n", "400"),
    ] {
        let answer = first_answer(&house, head);
        assert_eq!(answer.split_whitespace().nth(1), Some(status), "{head}: {answer}");
    }
}

#[test]
fn ranges_never_give_more_than_the_file() {
    let house = House::new(Engine::Sqlite);
    let id = good(house.admin("POST", "/api/videos?slug=v").body("x").send().unwrap())["id"].clone();
    let folder = house.data().join(format!("videos/{id}/g-0"));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("a.m4s"), "0123456789").unwrap();

    let many = format!("bytes={}", "0-0,".repeat(2000));
    for (range, status) in [
        ("bytes=0-18446744073709551615", 206),
        ("bytes=18446744073709551615-", 416),
        ("bytes=-18446744073709551615", 206),
        ("bytes=-0", 416),
        ("bytes=5-2", 200),
        ("bytes=99999999999999999999999-", 200),
        ("bytes=--1", 200),
        ("bytes=a-b", 200),
        (many.as_str(), 200),
        ("lines=1-2", 200),
        ("", 200),
    ] {
        let asked = house.anyone("GET", "/videos/v/g-0/a.m4s").header("range", range);
        let answer = asked.send().unwrap();
        assert_eq!(answer.status(), status, "{range}");
        assert!(answer.bytes().unwrap().len() <= 300, "{range}");
    }
}

#[test]
fn forms_and_uploads_are_bounded_before_they_are_held() {
    let house = House::new(Engine::Sqlite);
    let form = |body: String| {
        let request =
            house.admin("POST", "/api/videos").header("content-type", "multipart/form-data; boundary=b");
        let answer = request.body(body).send().unwrap();
        (answer.status().as_u16(), answer.text().unwrap())
    };
    let field = |name: &str, value: &str| {
        format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let file =
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.mp4\"\r\n\r\nx\r\n--b--\r\n";

    let long = field("title", &"a".repeat(100 << 10));
    let (status, said) = form(format!("{long}{file}"));
    assert!(status == 413 && said.contains("65536"), "{status} {said}");
    let many = field("title", "a").repeat(50);
    let (status, said) = form(format!("{many}{file}"));
    assert!(status == 413 && said.contains("fields"), "{status} {said}");
    let name = "n".repeat(5 << 20);
    let (status, said) = form(format!("{}{file}", field(&name, "x")));
    assert!((400..=413).contains(&status) && said.len() < 1000, "{status} {said}");
    let good_one = format!("{}{}{file}", field("title", "fine"), field("slug", "fine"));
    assert_eq!(form(good_one).0, 201);
    // A file of any size may follow.
    let large = format!(
        "{}--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.mp4\"\r\n\r\n{}\r\n--b--\r\n",
        field("title", "large"),
        "x".repeat(8 << 20)
    );
    assert_eq!(form(large).0, 201);

    let begin = |metadata: &str, length: &str| {
        let request = house.admin("POST", "/api/uploads").header("tus-resumable", "1.0.0");
        request
            .header("upload-length", length)
            .header("upload-metadata", metadata)
            .send()
            .unwrap()
            .status()
            .as_u16()
    };
    for (metadata, length, status) in [
        ("filename ====", "5", 400),
        ("filename /w==", "5", 400),
        (
            "user YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYQ==",
            "5",
            422,
        ),
        ("filename YQ==", "-5", 400),
        ("filename YQ==", "99999999999999999999", 400),
        ("filename YQ==", "9999999999999999", 413),
        ("filename YQ==", "0", 422),
    ] {
        assert_eq!(begin(metadata, length), status, "{metadata} {length}");
    }
}

#[test]
fn pages_of_other_sites_cannot_use_a_session() {
    let house = House::new(Engine::Sqlite);
    let signed_in = house.anyone("POST", "/api/session").json(&json!({ "secret": SECRET })).send().unwrap();
    let cookie = signed_in.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let own = house.url("");
    let port = own.rsplit_once(':').unwrap().1;

    for origin in [
        "https://evil.example".to_owned(),
        "null".into(),
        String::new(),
        format!("http://127.0.0.1:{port}.evil.example"),
        format!("http://evil.example:{port}"),
        "http://127.0.0.1".into(),
        format!("{own}/"),
    ] {
        for (method, path) in [
            ("DELETE", "/api/videos/1"),
            ("POST", "/api/jobs"),
            ("DELETE", "/api/sessions"),
            ("POST", "/api/uploads"),
        ] {
            let request = house.anyone(method, path).header("cookie", &cookie).header("origin", &origin);
            let answer = request.header("tus-resumable", "1.0.0").json(&json!({})).send().unwrap();
            assert_eq!(answer.status(), 401, "{method} {path} from {origin}");
        }
    }
    let own_page = house.anyone("DELETE", "/api/sessions").header("cookie", &cookie).header("origin", &own);
    assert_eq!(own_page.send().unwrap().status(), 200);
    // A site may read nothing of an answer that was given to a cookie.
    let read = house.anyone("GET", "/api/videos").header("origin", "https://evil.example").send().unwrap();
    assert_eq!(read.headers()["access-control-allow-origin"], "*");
    assert!(!read.headers().contains_key("access-control-allow-credentials"));
}
