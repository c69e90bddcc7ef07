//! Videos are listed, deleted and restored, made again and rolled back; and play all the while.

use crate::on_both_engines;
use crate::support::Engine;
use crate::support::house::{House, problem};
use serde_json::json;

on_both_engines![
    a_video_made_again_plays_throughout_and_can_be_rolled_back,
    some_qualities_are_made_again_and_the_others_shown_on,
    a_deleted_video_is_hidden_and_can_be_restored_until_it_is_purged,
    a_failed_video_is_retried_after_the_janitor_was_round,
    only_what_was_never_published_is_removed_and_only_when_it_is_old,
    videos_are_found_page_by_page_and_by_their_names,
    mistakes_are_answered_with_problems,
    everything_is_there_after_the_server_was_killed_in_the_middle,
];

fn a_video_made_again_plays_throughout_and_can_be_rolled_back(engine: Engine) {
    let mut house = House::encoding(engine);
    let file = house.sample("a.mp4", 4);
    house.upload(&file, "slug=talk");
    house.video_is(1, "ready");
    let first = play(&house);

    let job = house.post("/api/videos/1/retranscode", json!({ "settings": { "mp4": true } }))["job"].clone();
    crate::support::until("the job ends", || {
        play(&house);
        assert_eq!(house.get("/api/videos/1")["state"], "ready");
        house.get(&format!("/api/jobs/{job}"))["state"] == "completed"
    });
    let second = play(&house);
    assert_ne!(first, second);
    let older = house.get("/api/videos/1")["generations"][1]["id"].clone();
    let roll_back = |house: &House| {
        house.admin("POST", "/api/videos/1/rollback").json(&json!({ "generation": older })).send()
    };
    // The server dies at it, and is started again.
    for (moment, shown) in [("rollback.before", &second), ("rollback.after", &first)] {
        house.set("VODMILL_FAILPOINT", moment);
        house.kill();
        house.start();
        assert!(roll_back(&house).is_err(), "{moment}");
        house.dies();
        house.set("VODMILL_FAILPOINT", "never.before");
        house.start();
        assert_eq!(&play(&house), shown, "{moment}");
    }

    problem(roll_back(&house).unwrap(), 409, "refused");
    let unknown = house
        .admin("POST", "/api/videos/1/retranscode")
        .json(&json!({ "qualities": ["8K"] }))
        .send()
        .unwrap();
    problem(unknown, 422, "unknown_quality");
    house.is_healthy();
}

/// The master playlist, of which a variant plays.
fn play(house: &House) -> String {
    let master = house.anyone("GET", "/videos/talk/master.m3u8").send().unwrap().text().unwrap();
    let variant = master.lines().find(|line| line.ends_with("index.m3u8") && !line.starts_with('#')).unwrap();
    let answer = house.anyone("GET", &format!("/videos/talk/{variant}")).send().unwrap();
    assert_eq!(answer.status(), 200, "{variant}");
    master
}

fn some_qualities_are_made_again_and_the_others_shown_on(engine: Engine) {
    let house = House::encoding(engine);
    house.upload(&house.sample_of("a.mp4", "640x360", 2), "slug=talk");
    house.video_is(1, "ready");
    let play = |path: &str| {
        let answer =
            house.anyone("GET", &format!("/videos/talk/{}/{path}", generation(&house))).send().unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        answer.bytes().unwrap()
    };
    let first_segment = |rung: &str| {
        let playlist = String::from_utf8(play(&format!("{rung}/index.m3u8")).to_vec()).unwrap();
        let segment = playlist.lines().find(|line| !line.starts_with('#')).unwrap().to_owned();
        play(&format!("{rung}/{segment}"))
    };
    let before = ["360p", "240p"].map(first_segment);
    let qualities = house.get("/api/jobs/1/qualities");
    let states: Vec<_> = qualities.as_array().unwrap().iter().map(|it| (&it["name"], &it["state"])).collect();
    assert_eq!(states[..2], [(&json!("360p"), &json!("completed")), (&json!("240p"), &json!("completed"))]);
    assert!(states[2..].contains(&(&json!("1080p"), &json!("skipped"))), "{states:?}");
    assert_eq!(house.told("quality", "?after=0-0&job=1")["qualities"], qualities, "told as it happened");

    let asked = json!({ "qualities": ["240p"], "settings": { "rung": [
        { "name": "360p", "height": 360, "kbps": 100 }, { "name": "240p", "height": 240, "kbps": 50, "crf": 45 } ] } });
    let job = house.post("/api/videos/1/retranscode", asked)["job"].clone();
    crate::support::until("the job ends", || house.get(&format!("/api/jobs/{job}"))["state"] == "completed");

    let after = ["360p", "240p"].map(first_segment);
    assert_eq!(before[0], after[0], "it was not asked for");
    assert_ne!(before[1], after[1], "it was made again");
    let renditions = house.get("/api/videos/1")["renditions"].as_array().unwrap().clone();
    assert_eq!(renditions.iter().filter(|it| !it["height"].is_null()).count(), 2);
    house.is_healthy();
}

/// The folder of what is shown.
fn generation(house: &House) -> String {
    let master = house.anyone("GET", "/videos/talk/master.m3u8").send().unwrap().text().unwrap();
    let variant = master.lines().find(|line| line.ends_with("index.m3u8") && !line.starts_with('#'));
    variant.unwrap().split('/').next().unwrap().into()
}

fn a_deleted_video_is_hidden_and_can_be_restored_until_it_is_purged(engine: Engine) {
    let mut house = House::encoding(engine);
    let file = house.sample("a.mp4", 4);
    house.upload(&file, "slug=talk");
    house.video_is(1, "ready");
    let plays =
        |house: &House| house.anyone("GET", "/videos/talk/master.m3u8").send().unwrap().status() == 200;

    assert_eq!(house.admin("DELETE", "/api/videos/talk").send().unwrap().status(), 204);
    assert!(!plays(&house));
    assert_eq!(house.get("/api/videos")["items"].as_array().unwrap().len(), 0);
    assert_eq!(house.get("/api/videos?deleted=true")["items"].as_array().unwrap().len(), 1);
    house.post("/api/videos/talk/restore", json!({}));
    assert!(plays(&house));
    house.admin("DELETE", "/api/videos/talk").send().unwrap();

    // A retention that is over at once.
    house.stop();
    house.set("VODMILL_RETENTION_DAYS", "0.0000001");
    house.start();

    crate::support::until("it is purged", || {
        house.admin("GET", "/api/videos/1").send().unwrap().status() == 404
    });
    assert!(!house.data().join("videos/1").exists());
    assert_eq!(std::fs::read_dir(house.data().join("sources")).unwrap().count(), 0);
    house.is_healthy();
}

fn a_failed_video_is_retried_after_the_janitor_was_round(engine: Engine) {
    let house = House::with(engine, &[("VODMILL_SERVER_SLOTS", "2"), ("VODMILL_MAX_RETRY_ATTEMPTS", "1")]);
    let in_the_way = house.data().join("videos/1");
    std::fs::create_dir_all(house.data().join("videos")).unwrap();
    std::fs::write(&in_the_way, "no folder").unwrap();
    house.upload(&house.sample("a.mp4", 2), "slug=talk");
    house.video_is(1, "failed");
    let committed = |house: &House| {
        let executions = house.get("/api/jobs/1/executions").as_array().unwrap().clone();
        executions
            .iter()
            .filter(|it| !it["committed_at"].is_null())
            .map(|it| it["id"].clone())
            .collect::<Vec<_>>()
    };
    let before = committed(&house);
    assert!(before.len() > 3, "only the publication has failed: {before:?}");
    house.janitor_goes_round();

    std::fs::remove_file(&in_the_way).unwrap();
    let retry = house.world.vodmill(&["job", "retry", "1"]);
    retry.env("VODMILL_DATA_FOLDER", house.data().to_str().unwrap()).succeeds();

    crate::support::until("the job ends", || !house.get("/api/jobs/1")["ended_at"].is_null());
    house.video_is(1, "ready");
    play(&house);
    let after = committed(&house);
    assert!(before.iter().all(|it| after.contains(it)), "what was done is not done again: {after:?}");
    assert_eq!(after.len(), before.len() + 1);
    let parts = house.data().join("parts");
    crate::support::until("its parts are gone", || std::fs::read_dir(&parts).unwrap().count() == 0);
    house.is_healthy();
}

fn only_what_was_never_published_is_removed_and_only_when_it_is_old(engine: Engine) {
    let mut house = House::encoding(engine);
    house.upload(&house.sample("a.mp4", 2), "slug=talk");
    house.video_is(1, "ready");
    house.kill();
    let videos = house.data().join("videos");
    let plant = |name: &str| {
        std::fs::create_dir_all(videos.join(name)).unwrap();
        std::fs::write(videos.join(name).join("master.m3u8"), "x").unwrap();
    };
    let (left, young) = (["1/g-left", "77/g-left"], "1/g-young");
    left.iter().chain([&young]).for_each(|name| plant(name));
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(2 * 3600);
    for name in left.iter().map(|name| (*name).to_owned()).chain([format!("1/{}", published(&videos))]) {
        std::fs::File::open(videos.join(name)).unwrap().set_modified(old).unwrap();
    }
    house.start();

    crate::support::until("what is left is gone", || left.iter().all(|name| !videos.join(name).exists()));
    house.janitor_goes_round();
    assert!(videos.join(young).exists());
    play(&house);
}

/// The folder of the only generation of video 1 that was not planted.
fn published(videos: &std::path::Path) -> String {
    let planted = ["g-left", "g-young"];
    let names = std::fs::read_dir(videos.join("1")).unwrap().flatten().map(|it| it.file_name());
    let mut names = names.map(|name| name.into_string().unwrap());
    names.find(|name| !planted.contains(&name.as_str())).unwrap()
}

fn videos_are_found_page_by_page_and_by_their_names(engine: Engine) {
    let house = House::new(engine);
    let file = house.world.write("a.bin", "no video at all");
    for n in 1..=5 {
        house.upload(&file, &format!("title=Talk%20{n}%25&slug=talk-{n}"));
    }

    let page = house.get("/api/videos?limit=2");
    let next = house.get(&format!("/api/videos?limit=2&before={}", page["next_before"]));
    let titles = |list: &serde_json::Value| {
        let items = list["items"].as_array().unwrap().iter();
        items.map(|it| it["title"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };

    assert_eq!(
        (titles(&page), titles(&next)),
        (vec!["Talk 5%".to_owned(), "Talk 4%".into()], vec!["Talk 3%".to_owned(), "Talk 2%".into()])
    );
    assert_eq!(titles(&house.get("/api/videos?search=TALK%203")), ["Talk 3%"]);
    assert_eq!(
        titles(&house.get("/api/videos?search=talk_")).len(),
        0,
        "a wildcard is a letter like any other"
    );
    assert_eq!(titles(&house.get("/api/videos?search=%25")).len(), 5);
}

fn mistakes_are_answered_with_problems(engine: Engine) {
    let house = House::new(engine);
    let ask = |method: &str, path: &str| house.admin(method, path).send().unwrap();

    problem(ask("GET", "/api/nothing"), 404, "not_found");
    problem(ask("DELETE", "/api/jobs"), 405, "method_not_allowed");
    problem(ask("GET", "/api/jobs/999"), 404, "not_found");
    problem(ask("GET", "/api/jobs/x"), 404, "not_found");
    problem(ask("GET", "/api/jobs?limit=0"), 400, "invalid_request");
    problem(ask("GET", "/api/jobs?limit=x"), 400, "invalid_request");
    problem(ask("GET", "/api/jobs?state=nonsense"), 400, "invalid_request");
    problem(ask("GET", "/api/videos/no-such"), 404, "not_found");
    problem(house.admin("POST", "/api/jobs").body("{}").send().unwrap(), 415, "unsupported_media_type");
    problem(
        house.admin("POST", "/api/jobs").json(&json!({ "name": 3 })).send().unwrap(),
        400,
        "invalid_request",
    );
    let large = json!({ "name": "x".repeat(10 << 20) });
    problem(house.admin("POST", "/api/jobs").json(&large).send().unwrap(), 413, "too_large");
    let job = json!({ "name": "x", "stage": [{ "name": "s", "sleep_ms": 1 }] });
    let keyed = |job: &serde_json::Value| {
        house.admin("POST", "/api/jobs").header("idempotency-key", "k").json(job).send().unwrap()
    };
    assert_eq!(
        (keyed(&job).status(), keyed(&job).status()),
        (201.try_into().unwrap(), 200.try_into().unwrap())
    );
    problem(
        keyed(&json!({ "name": "y", "stage": [{ "name": "s", "sleep_ms": 1 }] })),
        422,
        "idempotency_key_reused",
    );
    let own = house.anyone("GET", "/health").header("x-request-id", "mine-1").send().unwrap();
    assert_eq!(own.headers()["x-request-id"], "mine-1");
}

fn everything_is_there_after_the_server_was_killed_in_the_middle(engine: Engine) {
    // Each death is an attempt at what was under way.
    let settings = [("VODMILL_SERVER_SLOTS", "2"), ("VODMILL_MAX_RETRY_ATTEMPTS", "6")];
    let mut house = House::with(engine, &settings);
    let file = house.sample("a.mp4", 20);
    house.upload(&file, "slug=talk");
    let running = |house: &House| {
        house.get("/api/jobs/1/executions").as_array().unwrap().iter().any(|it| it["status"] == "IN_PROGRESS")
    };
    for _ in 0..3 {
        crate::support::until("it is at work", || running(&house));
        house.kill();
        house.start();
    }

    house.video_is(1, "ready");

    let executions = house.get("/api/jobs/1/executions");
    let committed = executions.as_array().unwrap().iter().filter(|it| !it["committed_at"].is_null());
    let mut tasks: Vec<String> =
        committed.map(|it| it["id"].as_str().unwrap().split('.').next().unwrap().to_owned()).collect();
    let count = tasks.len();
    tasks.sort();
    tasks.dedup();
    assert_eq!(tasks.len(), count, "each task committed once");
    assert_eq!(house.get("/api/videos/1")["generations"].as_array().unwrap().len(), 1, "published once");
    house.is_healthy();
    assert_eq!(house.stop(), Some(0));
}
