use std::time::Duration;

use rules::phase::Phase;
use rules::task::Refusal;
use rules::worker::Status;
use rules::{WorkerId, failure};
use serde_json::json;
use tokio::time::timeout;
use uuid::Uuid;
use wire::{Answer, Commit, Desk, Error, Failure, Heartbeat, Hello, Kind, Progress, Renewal, Usage};

use crate::line::Harm;
use crate::scene::{Scene, assignment, proof};

fn hello() -> Hello {
    Hello {
        worker: WorkerId(Uuid::from_u128(7)),
        name: "anna".into(),
        kind: Kind::Remote,
        hostname: "den".into(),
        version: "0.1.0".into(),
        slots: 2,
        capabilities: "libx264,encode".parse().unwrap(),
        metadata: json!({ "cores": 2 }),
    }
}

fn heartbeat() -> Heartbeat {
    Heartbeat {
        worker: hello().worker,
        phase: Phase::Polling,
        running: 1,
        is_draining: false,
        is_leaving: true,
        done: 3,
        failed: 1,
        refusal: None,
    }
}

fn commit() -> Commit {
    let usage = Usage { bytes_in: 9, ..Usage::default() };
    Commit {
        proof: proof(),
        result: Some(json!({ "a": 1 })),
        publication: None,
        arrival: None,
        usage,
        steps: Vec::new(),
    }
}

fn failure(kind: failure::Kind) -> Failure {
    Failure { proof: proof(), kind, message: "no".into(), usage: Usage::default(), steps: Vec::new() }
}

fn progress() -> Progress {
    Progress { proof: proof(), progress: 4, step: Some("encode".into()), permille: Some(250), kept: None }
}

pub async fn words_reach_the_server_and_its_answers_come_back() {
    let scene = Scene::new().await;
    let (server, desk) = (&scene.server, &scene.desk);
    let task = assignment("probe", json!({ "source": "talk.mp4" }));
    server.with(|desk| desk.tasks.extend([task.clone(), task.clone()]));

    desk.register(&hello()).await.unwrap();
    let status = desk.heartbeat(&heartbeat()).await.unwrap();
    let has_work = desk.has_work(hello().worker).await.unwrap();
    let claimed = desk.claim(hello().worker, 2).await.unwrap();
    let has_more = desk.has_work(hello().worker).await.unwrap();
    let renewal = Renewal { proof: proof(), progress: 5 };
    let answers = [
        desk.progress(&progress()).await.unwrap(),
        desk.renew(&[renewal, renewal]).await.unwrap()[1],
        desk.commit(&commit()).await.unwrap(),
        desk.fail(&failure(failure::Kind::Permanent)).await.unwrap(),
        desk.fail(&failure(failure::Kind::Drained)).await.unwrap(),
    ];

    assert_eq!((status, has_work, has_more), (Status::Idle, true, false));
    assert_eq!(desk.heartbeat_interval(), Some(Duration::from_millis(750)));
    assert_eq!(
        claimed.iter().map(|task| task.payload.clone()).collect::<Vec<_>>(),
        [task.payload.clone(), task.payload]
    );
    assert_eq!(answers, [Answer::Accepted; 5]);
    let beats = server.said("heartbeat");
    assert_eq!(beats[0]["hello"]["capabilities"], json!(["encode", "libx264"]));
    assert_eq!(beats[0]["incarnation"], json!(hello().worker.0));
    assert!(beats[1].get("hello").is_none() && beats[1]["is_leaving"] == true && beats[1]["done"] == 3);
    assert!(beats[1]["load"]["disk_free_bytes"].as_u64().unwrap() > 0);
    let reports = server.said("progress");
    assert_eq!(reports[0]["reports"][0]["permille"], 250);
    assert_eq!(reports[1]["reports"][1]["is_renewal"], true);
    assert_eq!(server.said("complete")[0]["result"], json!({ "a": 1 }));
    assert_eq!(server.said("fail")[0]["kind"], "permanent");
    assert_eq!(server.said("release")[0]["message"], "no");
}

pub async fn refused_words_are_answers() {
    let scene = Scene::new().await;
    let (server, desk) = (&scene.server, &scene.desk);
    server.with(|desk| desk.refusal = Some(Refusal::StaleToken));

    let answers = [
        desk.progress(&progress()).await.unwrap(),
        desk.renew(&[Renewal { proof: proof(), progress: 5 }]).await.unwrap()[0],
        desk.commit(&commit()).await.unwrap(),
        desk.fail(&failure(failure::Kind::Transient)).await.unwrap(),
        desk.fail(&failure(failure::Kind::Drained)).await.unwrap(),
    ];

    assert_eq!(answers, [Answer::Refused(Refusal::StaleToken); 5]);
}

pub async fn what_does_not_come_from_the_server_is_its_absence() {
    let harms = [
        Harm::Page(200),
        Harm::Page(403),
        Harm::Page(409),
        Harm::Page(502),
        Harm::Refuse,
        Harm::CutAnswer(5),
    ];
    for harm in harms {
        let scene = Scene::new().await;
        let (line, desk) = (&scene.line, &scene.desk);
        line.harm("complete", harm);

        let harmed = desk.commit(&commit()).await;
        let again = desk.commit(&commit()).await;

        assert!(matches!(harmed, Err(Error::Away(_))), "{harm:?}: {harmed:?}");
        assert_eq!(again.unwrap(), Answer::Accepted, "{harm:?}");
        assert_eq!(line.planned(), 0);
    }
    for problem in [(429, "too_many_requests"), (500, "internal"), (503, "unavailable")] {
        let scene = Scene::new().await;
        let (server, desk) = (&scene.server, &scene.desk);
        server.with(|desk| desk.problem = Some(problem));

        assert!(matches!(desk.commit(&commit()).await, Err(Error::Away(_))), "{problem:?}");
    }
}

pub async fn what_the_server_does_not_take_is_rejected() {
    for problem in [(400, "bad_request"), (404, "not_found"), (413, "too_large"), (422, "bad_manifest")] {
        let scene = Scene::new().await;
        let (server, desk) = (&scene.server, &scene.desk);
        server.with(|desk| desk.problem = Some(problem));

        let Err(Error::Rejected(why)) = desk.commit(&commit()).await else { panic!("{problem:?}") };

        assert_eq!(why, format!("because of {}", problem.1));
        let dismissed = timeout(Duration::ZERO, desk.dismissed()).await;
        assert!(dismissed.is_err(), "it may go on with other work");
    }
}

pub async fn an_older_server_is_told_in_a_word_that_it_knows() {
    let scene = Scene::new().await;
    let fail = async |is_older| {
        scene.server.with(|desk| (desk.is_older, desk.said) = (is_older, Vec::new()));
        let answer = scene.desk.fail(&failure(failure::Kind::StorageAway)).await.unwrap();
        let kinds = scene.server.said("fail").into_iter().map(|said| said["kind"].clone());
        (answer, kinds.collect::<Vec<_>>())
    };

    let (older, newer) = (fail(true).await, fail(false).await);

    assert_eq!(older, (Answer::Accepted, vec![json!("storage_away"), json!("transient")]));
    assert_eq!(newer, (Answer::Accepted, vec![json!("storage_away")]));
}

pub async fn a_worker_that_is_not_wanted_is_told_so() {
    for (problem, words) in [
        ((401, "unauthorized"), "does not accept this worker's key"),
        ((403, "revoked"), "does not accept this worker's key"),
        ((426, "worker_too_old"), "too old"),
        ((409, "superseded"), "another process"),
    ] {
        let scene = Scene::new().await;
        let (server, desk) = (&scene.server, &scene.desk);
        server.with(|desk| desk.problem = Some(problem));

        let answer = desk.heartbeat(&heartbeat()).await;
        let dismissed = desk.dismissed().await;

        assert!(matches!(answer, Err(Error::Rejected(_))), "{answer:?}");
        assert!(dismissed.contains(words) && dismissed.contains(problem.1), "{dismissed}");
    }
}

pub async fn a_long_poll_that_fails_is_not_repeated_at_once() {
    let scene = Scene::new().await;
    let (server, desk) = (&scene.server, &scene.desk);
    desk.register(&hello()).await.unwrap();
    server.with(|desk| desk.problem = Some((500, "internal")));

    let hinted = timeout(Duration::from_millis(2500), desk.wait_for_work()).await;
    let asked = server.asked("POST claim").len();
    server.with(|desk| {
        desk.problem = None;
        desk.tasks.push_back(assignment("noop", json!(null)));
    });
    desk.wait_for_work().await;

    assert!(hinted.is_err(), "a failure is no hint");
    assert!((1..=4).contains(&asked), "asked {asked} times");
}
