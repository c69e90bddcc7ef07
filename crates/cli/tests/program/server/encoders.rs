//! Which encoders make a video, and what they may take. Hardware is played by an ffmpeg that says it has NVENC.

use crate::on_both_engines;
use crate::support::house::House;
use crate::support::seat::Seat;
use crate::support::{Engine, NVENC, World, until};
use serde_json::{Value, json};

on_both_engines![
    auto_is_the_hardware_that_a_worker_has_when_a_video_comes,
    hardware_that_nobody_allowed_by_name_does_not_decide,
    no_encoder_takes_more_memory_than_it_may,
];

/// The commands that encoded picture, as far as they name an encoder of picture.
fn encoders(house: &House, job: &Value) -> Vec<String> {
    let steps = house.get(&format!("/api/jobs/{job}/steps"));
    let commands = steps.as_array().unwrap().iter().filter(|step| step["kind"] == "encode");
    let words = commands.flat_map(|step| {
        let words = step["command"].as_str().unwrap().split(' ').map(String::from).collect::<Vec<_>>();
        words.windows(2).find(|pair| pair[0] == "-c:v").map(|pair| pair[1].clone())
    });
    words.collect()
}

fn auto_is_the_hardware_that_a_worker_has_when_a_video_comes(engine: Engine) {
    let world = World::new(engine);
    let path = world.with_ffmpeg(NVENC);
    let house = House::of(world, Seat::take(3), &[("VODMILL_SERVER_SLOTS", "1")]);
    let file = house.sample("talk.mp4", 2);
    let upload = || house.upload(&file, "settings=%7B%22encoder%22%3A%22auto%22%7D")["id"].as_i64().unwrap();

    let before = house.video_is(upload(), "ready");
    let allowed = ["encode", "audio", "libx264", "h264_nvenc"];
    let _gpu = house.remote_worker_as(
        json!({ "name": "gpu", "capabilities": allowed }),
        &[("PATH", &path), ("VODMILL_ENCODERS", "libx264,h264_nvenc")],
    );
    until("the worker has told what it can", || house.get("/api/workers").to_string().contains("h264_nvenc"));
    let after = house.video_is(upload(), "ready");
    let again = house.post(&format!("/api/videos/{}/retranscode", before["id"]), serde_json::json!({}));
    until("it is made again", || house.get(&format!("/api/jobs/{}", again["job"]))["state"] == "completed");

    assert_eq!(encoders(&house, &before["job"]), ["libx264"]);
    assert_eq!(encoders(&house, &after["job"]), ["h264_nvenc"]);
    assert_eq!(encoders(&house, &again["job"]), ["h264_nvenc"], "decided anew for each job");
    house.is_healthy();
}

fn hardware_that_nobody_allowed_by_name_does_not_decide(engine: Engine) {
    let house = House::seated(Seat::take(2), engine, &[("VODMILL_SERVER_SLOTS", "1")]);
    let file = house.sample("talk.mp4", 2);
    let _liar = house.worker("liar", &["encode", "libx264", "h264_nvenc"]);
    assert!(house.get("/api/workers").to_string().contains("h264_nvenc"));

    let upload = house.upload(&file, "settings=%7B%22encoder%22%3A%22auto%22%7D");

    let made = house.video_is(upload["id"].as_i64().unwrap(), "ready");
    assert_eq!(
        encoders(&house, &made["job"]),
        ["libx264"],
        "the job waits for no worker that may never come"
    );
    house.is_healthy();
}

fn no_encoder_takes_more_memory_than_it_may(engine: Engine) {
    let little = ("VODMILL_ENCODER_MEMORY_MB", "24");
    let once = ("VODMILL_MAX_RETRY_ATTEMPTS", "1");
    let of_the_server = [little, once, ("VODMILL_SERVER_SLOTS", "1")];
    for (settings, of_the_worker) in [(&of_the_server[..], None), (&of_the_server[1..2], Some([little]))] {
        let house = House::seated(Seat::take(2), engine, settings);
        let _worker = of_the_worker.map(|settings| house.remote_worker("far", &settings));
        let video = house.upload(&house.sample("talk.mp4", 2), "slug=talk")["id"].as_i64().unwrap();

        let failed = house.video_is(video, "failed");

        let steps = house.get(&format!("/api/jobs/{}/steps", failed["job"])).to_string();
        let said = ["failed to map segment", "Cannot allocate", "memory"];
        assert!(said.iter().any(|said| steps.contains(said)), "{steps}");
    }
}
