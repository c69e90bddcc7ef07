use std::time::{Duration, Instant};

use rules::failure::Kind;
use rules::{Fence, JobId, TaskId, Token, WorkerId};
use serde_json::{Value, json};
use tempfile::TempDir;
use wire::{Assignment, Proof};
use worker::handler::Command;
use worker::{Context, Failed, Handler, Outcome};

const DEADLINE: Duration = Duration::from_secs(30);

struct Scene {
    job: Assignment,
    folder: TempDir,
}

impl Scene {
    fn sh(script: &str) -> Self {
        Self::payload(json!({ "run": ["sh", "-c", script] }))
    }

    fn payload(payload: Value) -> Self {
        let job = Assignment {
            proof: Proof {
                task: TaskId::new(JobId(42), 7),
                fence: Fence(3),
                token: Token(1),
                worker: WorkerId(uuid::Uuid::nil()),
            },
            job: JobId(42),
            stage: "encode".into(),
            kind: "command".into(),
            payload,
            segment: 6,
            input: Some(json!({ "from": 0, "to": 6 })),
            results: Default::default(),
            attempt: 2,
            max_attempts: 3,
            lease_ms: 60_000,
            timeout_ms: None,
            stall_ms: None,
            traceparent: None,
        };
        Scene { job, folder: tempfile::tempdir().unwrap() }
    }

    fn context(&self) -> Context {
        Context::new(&self.job, self.folder.path().join("42-7.3"), tokio::time::Instant::now())
    }

    fn run(&self) -> Result<Outcome, Failed> {
        self.run_in(&self.context())
    }

    fn run_in(&self, context: &Context) -> Result<Outcome, Failed> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let command = Command::default();
        let patience = async { tokio::time::timeout(DEADLINE, command.run(&self.job, context)).await };
        runtime.block_on(patience).expect("the command never ends")
    }
}

pub fn a_printed_json_object_is_the_result() {
    let scene = Scene::sh(r#"echo '{"segments": [1, 2]}'"#);

    let outcome = scene.run().unwrap();

    assert_eq!(outcome.result, Some(json!({ "segments": [1, 2] })));
}

pub fn anything_else_that_is_printed_is_kept_as_text() {
    let text = Scene::sh("echo probed").run().unwrap();
    let list = Scene::sh("echo '[1]'").run().unwrap();
    let long = Scene::sh("yes | head -c 100000").run().unwrap();

    assert_eq!(text.result, Some(json!({ "stdout": "probed\n" })));
    assert_eq!(list.result, Some(json!({ "stdout": "[1]\n" })));
    assert_eq!(long.result.unwrap()["stdout"].as_str().unwrap().len(), 4096);
}

pub fn a_program_knows_its_task_and_works_in_a_folder_of_its_own() {
    let scene = Scene::sh(
        r#"echo "$VODMILL_JOB $VODMILL_TASK $VODMILL_STAGE $VODMILL_SEGMENT $VODMILL_ATTEMPT"
           echo "$VODMILL_INPUT"; pwd"#,
    );

    let result = scene.run().unwrap().result.unwrap();

    let folder = scene.folder.path().join("42-7.3");
    let expected = format!("42 42-7 encode 6 2\n{{\"from\":0,\"to\":6}}\n{}\n", folder.display());
    assert_eq!(result["stdout"], expected);
}

pub fn an_exit_code_says_whether_to_try_again() {
    let failed = |script: &str| Scene::sh(script).run().unwrap_err();

    let broken = failed("echo 'moov atom not found' >&2; exit 65");
    let crashed = failed("echo first >&2; echo 'no space left' >&2; echo >&2; exit 1");
    let killed = failed("kill -9 $$");

    assert_eq!(broken, Failed::permanent("`sh` ended with exit code 65: moov atom not found"));
    assert_eq!(crashed, Failed::transient("`sh` ended with exit code 1: no space left"));
    assert_eq!(killed, Failed::transient("`sh` was ended by signal 9"));
}

pub fn a_program_that_is_not_there_is_a_permanent_failure() {
    let failed = Scene::payload(json!({ "run": ["ffmpog", "-i", "x"] })).run().unwrap_err();

    assert_eq!(failed.kind, Kind::Permanent);
    assert!(failed.message.starts_with("cannot start `ffmpog`: no such program in PATH"), "{failed}");
}

pub fn nonsense_for_a_payload_is_a_permanent_failure() {
    for (payload, reason) in [
        (Value::Null, "not a payload of `command`"),
        (json!({ "run": "true" }), "not a payload of `command`"),
        (json!({ "run": [] }), "no command given"),
    ] {
        let failed = Scene::payload(payload).run().unwrap_err();

        assert_eq!(failed.kind, Kind::Permanent);
        assert!(failed.message.starts_with(reason), "{failed}");
    }
}

pub fn limits_of_the_execution_hold_for_its_program() {
    let mut slow = Scene::sh("while :; do echo; sleep 0.1; done");
    slow.job.timeout_ms = Some(1000);
    let mut silent = Scene::sh("sleep 60");
    silent.job.stall_ms = Some(500);

    let (slow, silent) = (slow.run().unwrap_err(), silent.run().unwrap_err());

    let limit = "`sh` was still running after 1000 ms, its time limit, and was killed";
    assert_eq!(slow, Failed::transient(limit));
    assert_eq!(silent, Failed::transient("`sh` made no progress for 500ms and was killed"));
}

pub fn a_program_is_ended_when_its_execution_is() {
    let scene = Scene::sh("sleep 60");
    let context = scene.context();
    let began = Instant::now();

    let failed = std::thread::scope(|scope| {
        scope.spawn(|| context.stop.cancel());
        scene.run_in(&context).unwrap_err()
    });

    assert_eq!(failed.kind, Kind::Transient);
    assert!(began.elapsed() < Duration::from_secs(30));
}

pub fn every_program_leaves_a_record() {
    let scene = Scene::sh("echo out; echo err >&2; exit 3");
    let context = scene.context();

    let _ = scene.run_in(&context);
    let (usage, steps) = context.recorded();

    let [step] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!(step.kind, "encode");
    assert_eq!(step.command, "sh -c 'echo out; echo err >&2; exit 3'");
    assert_eq!((step.exit_code, step.signal, step.is_success), (Some(3), None, false));
    assert_eq!((step.stdout_tail.as_str(), step.stderr_tail.as_str()), ("out\n", "err\n"));
    assert!(usage.wall_ms >= step.duration_ms && usage.peak_memory_bytes > 0, "{usage:?}");
}
