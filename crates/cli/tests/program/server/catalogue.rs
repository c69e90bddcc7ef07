//! A catalogue of thousands of videos: all of them are listed and played, and no pass that removes what is old removes what is
//! needed. One video is made; the others are copies of its rows and files.

use super::retention::plays;
use crate::on_both_engines;
use crate::support::house::{House, good};
use crate::support::{Engine, peak_memory, psql, until};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

on_both_engines![thousands_of_videos_are_listed_kept_and_examined];

/// Fewer on PostgreSQL, where archiving a job takes a dozen round trips.
fn videos(engine: Engine) -> u64 {
    match engine {
        Engine::Sqlite => 5000,
        Engine::Postgres => 1000,
    }
}

/// Tables with what a copy differs by: columns, and what is added to them for each copy or, in texts, behind them.
const TABLES: [(&str, &[(&str, &str)]); 11] = [
    (
        "video",
        &[
            ("id", "id + k"),
            ("slug", "slug || '-' || k"),
            ("source", "source || '-' || k"),
            ("generation_id", "generation_id + k"),
        ],
    ),
    ("job", &[("id", "id + k"), ("video_id", "video_id + k"), ("idempotency_key", "NULL")]),
    ("stage", &[("job_id", "job_id + k"), ("first_task", "first_task + k * 1048576")]),
    ("task", &[("id", "id + k * 1048576"), ("twin_of", "twin_of + k * 1048576")]),
    ("task_input", &[("task_id", "task_id + k * 1048576")]),
    ("execution_aborted", &[("task_id", "task_id + k * 1048576")]),
    (
        "generation",
        &[
            ("id", "id + k"),
            ("video_id", "video_id + k"),
            ("job_id", "job_id + k"),
            ("task_id", "task_id + k * 1048576"),
        ],
    ),
    ("rendition", &[("generation_id", "generation_id + k")]),
    (
        "audit",
        &[
            ("id", ""),
            ("job_id", "job_id + k"),
            ("task_id", "task_id + k * 1048576"),
            ("video_id", "video_id + k"),
        ],
    ),
    ("job_log", &[("id", ""), ("job_id", "job_id + k"), ("task_id", "task_id + k * 1048576")]),
    ("execution_step", &[("id", ""), ("task_id", "task_id + k * 1048576")]),
];

fn thousands_of_videos_are_listed_kept_and_examined(engine: Engine) {
    let videos = videos(engine);
    let mut house = House::with(engine, &[("VODMILL_SERVER_SLOTS", "2")]);
    house.upload(&house.sample_of("clip.mp4", "64x36", 1), "slug=clip");
    house.video_is(1, "ready");
    house.janitor_goes_round();
    let of_one = peak_memory(house.pid());
    house.stop();
    timed(engine, "copied in the database", || copy_rows(&house, videos));
    if engine == Engine::Postgres {
        // As it does by itself within a minute.
        psql(&house.world.url, "ANALYZE");
    }
    timed(engine, "copied on the disk", || copy_files(&house, videos));
    house.set("VODMILL_SERVER_SLOTS", "0");
    house.start();

    let listed = timed(engine, "listed", || listed(&house));
    assert_eq!(listed, (1..=videos).collect());
    for copy in [1, videos / 2, videos - 1] {
        plays(&house, &format!("clip-{copy}"));
    }
    timed(engine, "examined", || house.is_healthy());
    timed(engine, "archived, and tidied up", || {
        good(house.admin("DELETE", "/api/videos/2").send().unwrap());
        house.stop();
        for (name, value) in [
            ("VODMILL_RETENTION_DAYS", "0.000001"),
            ("VODMILL_ARCHIVE_AFTER_DAYS", "0.000001"),
            ("VODMILL_HISTORY_AFTER_DAYS", "0.000001"),
            ("VODMILL_HOUSEKEEPING_SECONDS", "0.2"),
            ("VODMILL_SAFE_AGE_SECONDS", "1"),
        ] {
            house.set(name, value);
        }
        house.start();
        until("all jobs are archived", || house.world.count("SELECT count(*) FROM job") == 0);
        until("the deleted video is gone", || !house.data().join("videos/2").exists());
        house.janitor_goes_round();
    });

    let kept: BTreeSet<u64> = (1..=videos).filter(|id| *id != 2).collect();
    assert_eq!(self::listed(&house), kept);
    for copy in [2, videos / 2, videos - 1] {
        plays(&house, &format!("clip-{copy}"));
    }
    timed(engine, "examined with files", || {
        let doctor = house.world.vodmill(&["doctor", "--files"]);
        doctor.env("VODMILL_DATA_FOLDER", house.data().to_str().unwrap()).succeeds();
    });
    let grown = peak_memory(house.pid()).saturating_sub(of_one) >> 20;
    println!("{engine:?}: the server's largest memory is {grown} MiB more than with one video");
    assert!(grown < 64, "{grown} MiB");
}

/// How long it took is for people to see.
fn timed<T>(engine: Engine, what: &str, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = work();
    println!("{engine:?}: {what} in {:.1} s", begun.elapsed().as_secs_f64());
    done
}

fn copy_rows(house: &House, videos: u64) {
    for (table, changes) in TABLES {
        let columns = house.world.columns(table);
        let value = |column: &String| {
            changes
                .iter()
                .find(|(name, _)| name == column)
                .map_or(column.clone(), |(_, value)| (*value).into())
        };
        let (names, values): (Vec<_>, Vec<_>) = columns
            .iter()
            .map(|name| (name.clone(), value(name)))
            .filter(|(_, value)| !value.is_empty())
            .unzip();
        let statement = format!(
            "WITH RECURSIVE copies (k) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT k + 1 FROM copies WHERE k < {}) \
             INSERT INTO {table} ({}) SELECT {} FROM {table}, copies",
            videos - 1,
            names.join(", "),
            values.join(", ")
        );
        house.world.execute(statement.leak());
    }
}

fn copy_files(house: &House, videos: u64) {
    let (folder, sources) = (house.data().join("videos"), house.data().join("sources"));
    let source = std::fs::read_dir(&sources).unwrap().next().unwrap().unwrap().path();
    for k in 1..videos {
        link(&folder.join("1"), &folder.join((1 + k).to_string()));
        std::fs::hard_link(&source, format!("{}-{k}", source.display())).unwrap();
    }
}

/// A copy of a folder whose files are the same.
fn link(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => link(&entry.path(), &to),
            false => std::fs::hard_link(entry.path(), to).unwrap(),
        }
    }
}

/// The ids of all videos, page by page.
fn listed(house: &House) -> BTreeSet<u64> {
    let (mut ids, mut before) = (BTreeSet::new(), String::new());
    loop {
        let page = house.get(&format!("/api/videos?limit=500{before}"));
        for video in page["items"].as_array().unwrap() {
            assert_eq!(video["state"], "ready", "{video}");
            assert!(ids.insert(video["id"].as_u64().unwrap()), "twice: {video}");
        }
        match page["next_before"].as_u64() {
            Some(next) => before = format!("&before={next}"),
            None => return ids,
        }
    }
}
