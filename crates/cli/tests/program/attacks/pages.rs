//! What a browser is told it may do, and what strangers see of a server.

use crate::support::Engine;
use crate::support::house::{House, SECRET, good, problem};
use reqwest::blocking::Response;
use serde_json::json;

fn header<'a>(answer: &'a Response, name: &str) -> &'a str {
    answer.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

#[test]
fn every_answer_says_what_a_browser_must_not_make_of_it() {
    let house = House::new(Engine::Sqlite);
    let video =
        good(house.admin("POST", "/api/videos?slug=early&early_playback=true").body("x").send().unwrap());
    let published = house.data().join(format!("videos/{}/g-0", video["id"]));
    std::fs::create_dir_all(&published).unwrap();
    std::fs::write(published.join("a.html"), "<script>alert(1)</script>").unwrap();
    std::fs::write(published.join("a.m4s"), "media").unwrap();

    for (path, status) in [
        ("/", 200),
        ("/api/docs", 200),
        ("/watch/early", 200),
        ("/api/openapi.json", 200),
        ("/assets/hls.js", 200),
        ("/health", 200),
        ("/api/videos", 401),
        ("/nothing/here/at/all", 404),
        ("/videos/early/g-0/a.m4s", 200),
        ("/videos/early/g-0/a.html", 200),
    ] {
        let answer = house.anyone("GET", path).send().unwrap();

        assert_eq!(answer.status(), status, "{path}");
        assert_eq!(header(&answer, "x-content-type-options"), "nosniff", "{path}");
        assert_eq!(header(&answer, "referrer-policy"), "no-referrer", "{path}");
        let policy = header(&answer, "content-security-policy").to_owned();
        assert!(
            policy.contains("default-src 'none'") && policy.contains("frame-ancestors"),
            "{path}: {policy}"
        );
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        if header(&answer, "content-type").starts_with("text/html") {
            assert_eq!(header(&answer, "cross-origin-opener-policy"), "same-origin", "{path}");
        }
        if path.starts_with("/videos/") {
            assert_eq!(header(&answer, "access-control-allow-origin"), "*", "{path}");
            assert_eq!(header(&answer, "cross-origin-resource-policy"), "cross-origin", "{path}");
            assert!(policy.contains("sandbox"), "{path}: {policy}");
        }
    }
    let pages = ["/", "/api/docs", "/watch/early"];
    for path in pages {
        let answer = house.anyone("GET", path).send().unwrap();
        let policy = header(&answer, "content-security-policy").to_owned();
        let page = answer.text().unwrap();
        let inline = page.matches("<script>").count() + page.matches("<script type").count();
        assert_eq!(policy.matches("'sha256-").count(), inline + page.matches("<style>").count(), "{path}");
        assert!(
            !page.contains("onclick=") && !page.contains(" style="),
            "{path}: an attribute no hash allows"
        );
    }
}

#[test]
fn strangers_see_no_titles_of_what_is_not_published_and_little_of_the_server() {
    let house = House::new(Engine::Sqlite);
    good(house.admin("POST", "/api/videos?slug=hidden&title=Top%20secret").body("x").send().unwrap());

    let page = house.anyone("GET", "/watch/hidden").send().unwrap();
    assert_eq!(page.status(), 404);
    assert!(!page.text().unwrap().contains("Top secret"));
    problem(house.anyone("GET", "/watch/nothing").send().unwrap(), 404, "not_found");

    let told = good(house.anyone("GET", "/api/health").send().unwrap());
    let wrong = house.anyone("GET", "/api/health").header("x-admin-secret", "wrong").send().unwrap();
    for told in [told, good(wrong)] {
        assert_eq!(told["status"], "ok");
        for hidden in ["storage", "ready_tasks", "running_tasks", "undelivered_messages"] {
            assert!(told.get(hidden).is_none(), "{told}");
        }
    }
    let told = house.anyone("GET", "/api/health").header("x-admin-secret", SECRET).send().unwrap();
    assert!(good(told)["storage"]["free_bytes"].is_number());
}

#[test]
fn digits_alone_are_a_number_and_never_a_slug() {
    let house = House::new(Engine::Sqlite);
    let add = |query: &str| house.admin("POST", &format!("/api/videos?{query}")).body("x").send().unwrap();

    problem(add("slug=1"), 422, "bad_slug");
    problem(add("slug=0012"), 422, "bad_slug");
    let first = good(add("title=2"));
    let second = good(add("title=1"));

    assert_eq!((&first["slug"], &second["slug"]), (&json!("video-2"), &json!("video-1")));
    assert_eq!(house.get("/api/videos/1")["title"], "2");
    assert_eq!(house.get("/api/videos/video-1")["id"], second["id"]);
}

#[test]
fn titles_and_names_are_shown_as_text() {
    let house = House::new(Engine::Sqlite);
    let title = "%3Cscript%3Ealert(1)%3C/script%3E%1b%5B31m%C2%9B%E2%80%AEgpj";
    good(
        house
            .admin("POST", &format!("/api/videos?slug=evil&early_playback=true&title={title}"))
            .body("x")
            .send()
            .unwrap(),
    );

    let page = house.anyone("GET", "/watch/evil").send().unwrap().text().unwrap();

    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;[31mgpj"), "{page}");
}
