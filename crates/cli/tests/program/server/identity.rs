//! A database and its files belong together, whoever starts a server and with what settings.

use crate::on_both_engines;
use crate::storage::bucket::Bucket;
use crate::support::house::{House, SECRET, good};
use crate::support::seat::Seat;
use crate::support::{Engine, Program, World, until};
use std::path::Path;
use std::time::Duration;

on_both_engines![
    a_server_with_another_data_folder_is_refused,
    a_server_with_the_files_of_another_database_is_refused,
    a_data_folder_that_is_not_mounted_is_noticed,
    a_data_folder_is_moved_on_purpose,
    a_bucket_belongs_to_one_database_and_a_database_to_one_bucket,
];

fn serve(world: &World, data: &Path) -> Program {
    world
        .vodmill(&["serve", "--slots", "0"])
        .env("VODMILL_LISTEN", "127.0.0.1:0")
        .env("VODMILL_ADMIN_SECRET", SECRET)
        .env("VODMILL_DATA_FOLDER", data.to_str().unwrap())
}

/// Refused as a mistake of whoever started it; what it said.
fn is_refused(world: &World, data: &Path) -> String {
    serve(world, data).ends_with(2)
}

fn names(said: &str, folder: &Path) -> bool {
    said.contains(folder.canonicalize().unwrap().to_str().unwrap())
}

fn a_server_with_another_data_folder_is_refused(engine: Engine) {
    let mut house = House::new(engine);
    let (here, there) = (house.data(), house.world.folder.path().join("elsewhere"));

    let while_running = is_refused(&house.world, &there);
    house.stop();
    let afterwards = is_refused(&house.world, &there);
    let by_storage = serve(&house.world, &here)
        .env("VODMILL_STORAGE", &format!("file://{}", there.display()))
        .ends_with(2);

    for said in [while_running, afterwards, by_storage] {
        assert!(names(&said, &here) && names(&said, &there), "{said}");
    }
    house.start();
    house.is_healthy();
}

/// Any number of servers share a database on PostgreSQL and its files, by whatever name they know the folder.
#[test]
fn servers_with_the_same_folder_run_side_by_side_on_postgres() {
    let house = House::new(Engine::Postgres);
    let alias = house.world.folder.path().join("alias");
    std::os::unix::fs::symlink(house.data(), &alias).unwrap();

    let log = house.world.folder.path().join("second.log");
    let (_second, address) = serve(&house.world, &alias).start_serving(&log);

    good(house.client.get(format!("http://{address}/health")).send().unwrap());
    good(house.anyone("GET", "/health").send().unwrap());
}

fn a_server_with_the_files_of_another_database_is_refused(engine: Engine) {
    let mut house = House::new(engine);
    house.stop();
    let another = World::new(engine);

    let said = is_refused(&another, &house.data());

    assert!(names(&said, &house.data()) && said.contains("belongs to another database"), "{said}");
}

fn a_data_folder_that_is_not_mounted_is_noticed(engine: Engine) {
    let mut house = House::new(engine);
    house.stop();
    let aside = house.world.folder.path().join("aside");
    std::fs::rename(house.data(), &aside).unwrap();

    let said = is_refused(&house.world, &house.data());

    assert!(names(&said, &house.data()) && said.contains("is the disk mounted?"), "{said}");
    std::fs::remove_dir_all(house.data()).unwrap();
    std::fs::rename(aside, house.data()).unwrap();
    house.start();
}

fn a_data_folder_is_moved_on_purpose(engine: Engine) {
    let house = House::new(engine);
    let clip = house.world.write("talk.mp4", "no video");
    let video = house.upload(&clip, "name=talk.mp4");
    house.post(&format!("/api/jobs/{}/cancel", video["job"]), serde_json::json!({}));
    let moved = house.world.folder.path().join("moved");
    let migrate = || {
        let program = house.world.vodmill(&["migrate", "--move-storage", "--json"]);
        program.env("VODMILL_DATA_FOLDER", moved.to_str().unwrap())
    };
    if engine == Engine::Sqlite {
        assert!(migrate().ends_with(2).contains("a server uses this database"));
        std::fs::remove_dir_all(&moved).unwrap();
    }
    let mut house = { house };
    house.stop();
    std::fs::rename(house.data(), &moved).unwrap();
    let said = is_refused(&house.world, &moved);
    assert!(said.contains("--move-storage"), "{said}");

    let program = house.world.vodmill(&["migrate", "--move-storage", "--json"]);
    let done = program.env("VODMILL_DATA_FOLDER", moved.to_str().unwrap()).json();

    assert_eq!(done["storage"], moved.canonicalize().unwrap().to_str().unwrap());
    house.set("VODMILL_DATA_FOLDER", moved.to_str().unwrap());
    house.start();
    assert_eq!(house.world.count("SELECT count(*) FROM video WHERE source LIKE '%/moved/sources/%'"), 1);
    let again = house.post(&format!("/api/videos/{}/retranscode", video["id"]), serde_json::json!({}));
    assert!(again["job"].is_i64(), "its source is found: {again}");
}

fn a_bucket_belongs_to_one_database_and_a_database_to_one_bucket(engine: Engine) {
    let (here, there) = (Bucket::start(), Bucket::start());
    let (url, endpoint) = (Bucket::url(), here.endpoint());
    let settings = Bucket::settings(&url, &endpoint);
    let mut house = House::of(World::new(engine), Seat::take(1), &settings);
    let ours = std::fs::read_to_string(here.path("database-id")).unwrap();
    let data = house.data();
    let serve_with = |world: &World, data: &Path, changed: &[(&'static str, &str)]| {
        let program = serve(world, data);
        settings.iter().chain(changed).fold(program, |program, (name, value)| program.env(name, value))
    };

    // While the server runs, another database's mark makes its janitor stand back.
    let planted = "parts/999-0.1-0123456789abcdef/x";
    here.plant("database-id", "another", Duration::ZERO);
    here.plant(planted, "another's", Duration::from_secs(7200));
    let log = || std::fs::read_to_string(house.log()).unwrap();
    until("its janitor stands back", || log().contains("cannot tidy up") && log().contains("(another)"));
    assert!(here.path(planted).exists());
    here.plant("database-id", &ours, Duration::ZERO);
    until("its janitor goes on", || !here.path(planted).exists());
    house.stop();

    let another = World::new(engine);
    let apart = another.folder.path().join("data");
    let said = serve_with(&another, &apart, &[]).ends_with(2);
    assert!(said.contains(&url) && said.contains("belongs to another database"), "{said}");
    let beside = [("VODMILL_STORAGE", "s3://vodmill/beside")];
    drop(serve_with(&another, &apart, &beside).start_serving(&another.folder.path().join("serve.log")));

    let in_folder = format!("file://{}", data.display());
    for (changed, words) in [
        (&[("VODMILL_STORAGE", "s3://vodmill/third")][..], ["s3://vodmill/third", url.as_str()]),
        (&[("VODMILL_STORAGE", in_folder.as_str())][..], [data.to_str().unwrap(), url.as_str()]),
        (&[("AWS_ENDPOINT", there.endpoint().as_str())][..], [&there.endpoint(), endpoint.as_str()]),
    ] {
        let said = serve_with(&house.world, &data, changed).ends_with(2);
        assert!(words.iter().all(|word| said.contains(word)), "{words:?}: {said}");
    }
    assert!(!there.path("database-id").exists(), "a bucket that is refused is left as it is");
    // One service by another name; and a database of a version that kept no endpoint.
    let alias = endpoint.replace("127.0.0.1", "localhost");
    assert_ne!(alias, endpoint);
    let log = house.world.folder.path().join("alias.log");
    drop(serve_with(&house.world, &data, &[("AWS_ENDPOINT", alias.as_str())]).start_serving(&log));
    house.world.execute("DELETE FROM setting WHERE name = 'storage_endpoint'");
    house.start();
    assert_eq!(std::fs::read_to_string(here.path("database-id")).unwrap(), ours);
}
