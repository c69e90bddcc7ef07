use crate::scene::{Scene, commit, job, until, within};
use dispatch::Mode;
use rules::TaskId;
use std::collections::BTreeSet;
use store::wake::Topic;

#[tokio::test]
async fn a_submission_wakes_one_process_and_the_others_sleep_on() {
    let scene = Scene::new();
    let elsewhere = scene.process("none", Mode::Redis).await;
    let (one, other) = (scene.process("noop", Mode::Redis).await, scene.process("noop", Mode::Redis).await);
    let (mut ones, mut others) = (one.works(usize::MAX), other.works(usize::MAX));
    one.waits().await;
    other.waits().await;

    for _ in 0..5 {
        let before = one.looks() + other.looks();
        elsewhere.store.submit(&job(1, 5)).await.unwrap();
        within("one has it", async {
            tokio::select! {
                task = ones.recv() => task.unwrap(),
                task = others.recv() => task.unwrap(),
            }
        })
        .await;
        until("the hint is used up", async || scene.hints().await == 0).await;

        assert_eq!(one.looks() + other.looks(), before + 1, "one look for one task");
    }
}

#[tokio::test]
async fn what_one_process_cannot_take_is_passed_on_until_all_have_some() {
    let scene = Scene::new();
    let elsewhere = scene.process("none", Mode::Redis).await;
    let mut workers = Vec::new();
    for _ in 0..12 {
        let process = scene.process("noop", Mode::Redis).await;
        let got = process.works(1);
        process.waits().await;
        workers.push((process, got));
    }

    elsewhere.store.submit(&job(12, 5)).await.unwrap();

    let mut tasks: BTreeSet<TaskId> = BTreeSet::new();
    for (_, got) in &mut workers {
        tasks.insert(within("each has a task", got.recv()).await.unwrap().proof.task);
    }
    assert_eq!(tasks.len(), 12, "each has another");
}

#[tokio::test]
async fn a_hint_that_its_taker_cannot_use_reaches_who_can() {
    let scene = Scene::new();
    let elsewhere = scene.process("none", Mode::Redis).await;
    let unable = scene.process("other", Mode::Redis).await;
    let _unable = unable.works(usize::MAX);
    unable.waits().await;
    // It hears what all are told, and takes no hints itself.
    let able = scene.process("noop", Mode::Redis).await;
    let mut hints = able.store.wake().subscribe(Topic::Ready);

    elsewhere.store.submit(&job(1, 5)).await.unwrap();

    within("it is told", hints.changed()).await.unwrap();
    assert_eq!(able.store.claim(able.worker, 1).await.unwrap().len(), 1);
    until("the hint is gone", async || scene.hints().await == 0).await;
}

#[tokio::test]
async fn stale_doubled_and_foreign_hints_cost_a_look_and_nothing_else() {
    let scene = Scene::new();
    let elsewhere = scene.process("none", Mode::Redis).await;
    let process = scene.process("noop", Mode::Redis).await;
    for number in 0..300 {
        let stream = scene.stream(number as u8 % 11);
        let field = if number % 3 == 0 { "nonsense" } else { "tasks" };
        let value = if number % 5 == 0 { "18446744073709551615" } else { "3" };
        scene.ask::<String>(&["XADD", &stream, "*", field, value]).await;
    }

    let mut got = process.works(usize::MAX);
    until("they are used up", async || scene.hints().await == 0).await;
    let wasted = process.looks();
    elsewhere.store.submit(&job(2, 7)).await.unwrap();
    let tasks = [within("one", got.recv()).await.unwrap(), within("another", got.recv()).await.unwrap()];

    assert!(wasted < 100, "{wasted} looks for 300 hints");
    assert_ne!(tasks[0].proof.task, tasks[1].proof.task);
    process.store.commit(&tasks.each_ref().map(commit)).await.unwrap();
    assert!(process.store.examine().await.unwrap().findings.is_empty());
}

#[tokio::test]
async fn the_most_urgent_is_started_first_and_of_equals_the_oldest() {
    let scene = Scene::new();
    let elsewhere = scene.process("none", Mode::Redis).await;
    let mut expected = Vec::new();
    for priority in [3, 10, 0, 7, 10, 3] {
        let job = elsewhere.store.submit(&job(1, priority)).await.unwrap().id();
        expected.push((u8::MAX - priority, job.0));
    }
    expected.sort();
    until("all are told", async || scene.hints().await == 6).await;

    let process = scene.process("noop", Mode::Redis).await;
    let mut got = process.works(usize::MAX);
    let mut started = Vec::new();
    for _ in 0..6 {
        started.push(within("the next", got.recv()).await.unwrap().job.0);
    }

    assert_eq!(started, expected.iter().map(|(_, job)| *job).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_a_dead_consumer_had_taken_is_taken_by_another() {
    let scene = Scene::new();
    let process = scene.process("noop", Mode::Redis).await;
    let stream = scene.stream(5);
    until("the group is there", async || scene.ask::<bool>(&["EXISTS", &stream]).await).await;
    let entry: String = scene.ask(&["XADD", &stream, "*", "tasks", "1"]).await;
    let read = ["XREADGROUP", "GROUP", "workers", "dead", "COUNT", "1", "STREAMS", &stream, ">"];
    scene.ask::<redis::Value>(&read).await;
    let silent = ["XCLAIM", &stream, "workers", "dead", "0", &entry, "IDLE", "60000", "JUSTID"];
    scene.ask::<redis::Value>(&silent).await;

    let _got = process.works(usize::MAX);

    until("it is taken and used up", async || scene.ask::<usize>(&["XLEN", &stream]).await == 0).await;
    let pending: redis::Value = scene.ask(&["XPENDING", &stream, "workers"]).await;
    assert!(matches!(&pending, redis::Value::Array(all) if all[0] == redis::Value::Int(0)), "{pending:?}");
}

#[tokio::test]
async fn streams_do_not_grow_for_ever() {
    let scene = Scene::new();
    let process = scene.process("none", Mode::Redis).await;
    let stream = scene.stream(5);
    let fill = "for i = 1, 5000 do redis.call('XADD', KEYS[1], '*', 'tasks', '1') end";
    scene.ask::<redis::Value>(&["EVAL", fill, "1", &stream]).await;

    process.store.submit(&job(1, 5)).await.unwrap();

    until("it is trimmed", async || scene.ask::<usize>(&["XLEN", &stream]).await <= 1200).await;
}

#[tokio::test]
async fn what_a_process_can_do_itself_is_told_to_nobody() {
    let scene = Scene::new();
    let process = scene.process("noop", Mode::Redis).await;
    let mut got = process.works(1);
    process.waits().await;

    process.store.submit(&job(1, 5)).await.unwrap();
    within("it has it", got.recv()).await.unwrap();
    // The next has nobody here to take it. When that is told, the first would have been.
    process.store.submit(&job(1, 9)).await.unwrap();

    until("the second is told", async || scene.ask::<usize>(&["XLEN", &scene.stream(9)]).await == 1).await;
    assert_eq!(scene.ask::<usize>(&["XLEN", &scene.stream(5)]).await, 0);
}

#[tokio::test]
async fn a_commit_wakes_the_orchestrator_of_another_process() {
    let scene = Scene::new();
    let (here, there) = (scene.process("noop", Mode::Redis).await, scene.process("none", Mode::Redis).await);
    let mut hints = there.store.wake().subscribe(Topic::Settle);
    let mut events = there.store.wake().subscribe(Topic::Event);
    here.store.submit(&job(1, 5)).await.unwrap();
    let task = here.store.claim(here.worker, 1).await.unwrap().remove(0);
    hints.mark_unchanged();
    events.mark_unchanged();

    here.store.commit(&[commit(&task)]).await.unwrap();

    within("it is woken", hints.changed()).await.unwrap();
    within("listeners too", events.changed()).await.unwrap();
}
