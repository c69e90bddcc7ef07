//! What goes wrong between a command and its server is told in one line: what happened, and what to do.

use super::proxy::stranger;
use super::{asking, there};
use crate::support::Engine;
use crate::support::house::House;

/// One line, with this exit code, that says all of this.
#[track_caller]
fn told(said: &str, words: &[&str]) {
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    for word in words {
        assert!(said.contains(word), "`{word}` is missing: {said}");
    }
}

#[test]
fn a_secret_that_is_wrong_or_missing_is_said_to_be() {
    let house = House::new(Engine::Sqlite);

    let wrong = there(&house, &["jobs"]).env("VODMILL_ADMIN_SECRET", "not the secret at all").ends_with(1);
    told(&wrong, &[&house.url(""), "the admin secret is wrong", "VODMILL_ADMIN_SECRET must be"]);
    assert!(!wrong.contains("not the secret at all"), "{wrong}");
    let mut missing = there(&house, &["jobs"]);
    missing.command.env_remove("VODMILL_ADMIN_SECRET");
    told(&missing.ends_with(2), &["wants the admin's secret", "give it as VODMILL_ADMIN_SECRET"]);
}

#[test]
fn a_server_that_is_not_there_is_said_to_be_away() {
    let house = House::new(Engine::Sqlite);
    let file = house.world.write("talk.mp4", "not a video, but nobody will look");

    for args in [
        vec!["jobs"],
        vec!["videos"],
        vec!["watch"],
        vec!["watch", "1"],
        vec!["workers"],
        vec!["job", "logs", "1", "--follow"],
        vec!["submit", file.to_str().unwrap()],
    ] {
        let said = asking(&house, "http://127.0.0.1:1", &args).ends_with(1);
        told(&said, &["http://127.0.0.1:1 cannot be reached", "refused", "is it running"]);
    }
    let bad = asking(&house, "ftp://host", &["jobs"]).ends_with(2);
    told(&bad, &["--server", "by http or https, not by `ftp`"]);
}

#[test]
fn a_page_for_people_is_no_answer() {
    let house = House::new(Engine::Sqlite);
    let file = house.world.write("talk.mp4", "not a video, but nobody will look");
    let page = stranger(
        "HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: 6\r\n\
         connection: close\r\n\r\n<html>",
    );
    let gateway = stranger(
        "HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>",
    );
    let moved =
        stranger("HTTP/1.1 302 Found\r\nlocation: /login\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");

    for args in [vec!["jobs"], vec!["watch", "1"], vec!["submit", file.to_str().unwrap()]] {
        let said = asking(&house, &page, &args).ends_with(1);
        told(&said, &[&page, "is not a Vodmill server", "is the address right"]);
    }
    told(&asking(&house, &page, &["jobs"]).ends_with(1), &["200 OK, text/html"]);
    told(&asking(&house, &gateway, &["watch", "1"]).ends_with(1), &["502 Bad Gateway, text/html"]);
    told(&asking(&house, &moved, &["videos"]).ends_with(1), &["302 Found", "want a login"]);
}

#[test]
fn what_a_server_refuses_is_told_in_its_own_words() {
    let house = House::new(Engine::Sqlite);
    let file = house.sample("talk.mp4", 1);
    let file = file.to_str().unwrap();
    let spec = house.world.write("bad.toml", "name = 'x'");
    let spec = spec.to_str().unwrap();
    there(&house, &["submit", file, "--slug", "taken"]).succeeds();
    for (args, code, reason) in [
        (vec!["job", "show", "77"], 1, "no such job"),
        (vec!["video", "show", "nothing"], 1, "no such video"),
        (vec!["watch", "nothing"], 1, "no such video"),
        (vec!["submit", spec], 2, "at least one stage"),
        (vec!["submit", spec, "--title", "x"], 2, "cannot be said of a job's spec"),
        (vec!["submit", file, "--idempotency-key", "x"], 2, "not for a video"),
        (vec!["submit", file, "--slug", "Not One"], 2, "`Not One` is no slug"),
        (vec!["submit", file, "--slug", "taken"], 1, "the slug `taken` is taken"),
        (vec!["submit", file, "--priority", "99"], 2, "priority 99"),
        (vec!["submit", file, "--rungs", "9p"], 2, "there is no rung `9p`"),
        (vec!["submit", "nowhere.mp4"], 2, "cannot read nowhere.mp4"),
        (vec!["submit", "/"], 2, "is no file"),
        (vec!["video", "retranscode", "taken", "--rungs", "9p"], 2, "there is no quality `9p`"),
        (vec!["video", "rollback", "taken", "--to", "99"], 1, "no such generation"),
        (vec!["jobs", "--state", "asleep"], 2, "unknown job state"),
        (vec!["doctor"], 2, "without --server"),
    ] {
        let said = there(&house, &args).ends_with(code);
        assert!(said.contains(reason), "{args:?}: {said}");
    }
    let lost = house.world.vodmill(&["submit", file]).ends_with(2);
    told(&lost, &["if it is a video, name the server it is for with --server"]);
}
