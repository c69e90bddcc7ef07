//! Traces, received by a real collector.

use crate::support::house::{House, good};
use crate::support::seat::Seat;
use crate::support::{Engine, Process, until};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Installed by `make test`.
const COLLECTOR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/checkers/bin/rotel-agent");

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CLIENT: &str = "b7ad6b7169203331";

#[test]
fn one_trace_leads_from_the_upload_through_every_task_on_every_worker() {
    let collector = Collector::start();
    let settings = [("VODMILL_OTLP_ENDPOINT", collector.url.as_str()), ("OTEL_BSP_SCHEDULE_DELAY", "100")];
    let house = House::seated(Seat::take(3), Engine::Postgres, &settings);
    let worker = house.remote_worker("far", &settings);
    let upload =
        house.admin("POST", "/api/videos?title=a").header("traceparent", format!("00-{TRACE}-{CLIENT}-01"));

    let video = good(upload.body(std::fs::read(house.sample("a.mp4", 4)).unwrap()).send().unwrap());
    house.video_is(video["id"].as_i64().unwrap(), "ready");
    until("the collector has heard of the end", || {
        collector.spans().iter().any(|span| span.name == "publish")
    });

    let spans = collector.spans();
    let ours: Vec<&Span> = spans.iter().filter(|span| span.trace == TRACE).collect();
    let request = ours.iter().find(|span| span.name == "POST /api/videos").expect("the upload is a span");
    assert_eq!((request.parent.as_str(), request.service.as_str()), (CLIENT, "vodmill-server"));
    let submitted = ours.iter().find(|span| span.name == "submit").expect("so is the submission");
    assert_eq!(submitted.parent, request.id);

    let executions: Vec<&Span> =
        spans.iter().filter(|span| span.attributes.contains_key("execution.id")).collect();
    for span in &executions {
        assert_eq!((span.trace.as_str(), &span.parent), (TRACE, &submitted.id), "{span:?}");
        for id in ["job.id", "task.id", "worker.id"] {
            assert!(span.attributes.contains_key(id), "{id} is missing: {span:?}");
        }
        assert_eq!(span.attributes["job.id"], video["job"].to_string());
    }
    let of =
        |stage: &str| executions.iter().find(|span| span.name == stage).map(|span| span.service.as_str());
    let stages: BTreeSet<&str> = executions.iter().map(|span| span.name.as_str()).collect();
    for stage in ["probe", "plan", "encode", "audio", "package", "publish"] {
        assert!(stages.contains(stage), "{stages:?}");
    }
    assert_eq!((of("encode"), of("publish")), (Some("vodmill-worker"), Some("vodmill-server")));

    let encode = executions.iter().find(|span| span.name == "encode").unwrap();
    assert_eq!(encode.attributes["worker.id"], worker.id);
    let command = ours.iter().find(|span| span.name == "ffmpeg (encode)").expect("its command is a span");
    assert_eq!(command.parent, encode.id);
    assert_eq!(command.attributes["process.exit.code"], "0");
    let told = ours.iter().filter(|span| span.name == "POST /api/worker/complete");
    assert!(told.clone().count() > 0 && told.clone().all(|span| span.service == "vodmill-server"));
}

/// A collector that writes down what it receives.
struct Collector {
    _process: Process,
    url: String,
    log: PathBuf,
    _folder: tempfile::TempDir,
}

#[derive(Debug, Default, Clone)]
struct Span {
    service: String,
    trace: String,
    id: String,
    parent: String,
    name: String,
    attributes: BTreeMap<String, String>,
}

impl Collector {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("collector.log");
        let [http, grpc] = [0, 0].map(|any| TcpListener::bind(("127.0.0.1", any)).unwrap());
        let [http, grpc] = [http, grpc].map(|free| free.local_addr().unwrap().to_string());
        let process = Command::new(COLLECTOR)
            .args(["start", "--otlp-http-endpoint", &http, "--otlp-grpc-endpoint", &grpc])
            .args(["--debug-log", "traces", "--debug-log-verbosity", "detailed", "--exporter", "blackhole"])
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&log).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .expect("the collector is missing: `make test` installs it");
        let mut process = Process(process);
        until("the collector listens", || {
            assert!(!process.has_ended(), "{}", std::fs::read_to_string(&log).unwrap());
            TcpStream::connect(&http).is_ok()
        });
        Collector { _process: process, url: format!("http://{http}"), log, _folder: folder }
    }

    /// Every span it has written down whole.
    fn spans(&self) -> Vec<Span> {
        let text = std::fs::read_to_string(&self.log).unwrap();
        let (mut service, mut spans) = (String::new(), Vec::<Span>::new());
        for line in text.lines().map(str::trim) {
            if line.starts_with("Span #") {
                spans.push(Span { service: service.clone(), ..Span::default() });
            } else if let Some((name, value)) =
                line.strip_prefix("-> ").and_then(|line| line.split_once(": "))
            {
                let value = value.split_once('(').map_or(value, |(_, value)| value.trim_end_matches(')'));
                match spans.last_mut() {
                    _ if name == "service.name" => service = value.into(),
                    Some(span) => drop(span.attributes.insert(name.into(), value.into())),
                    None => {}
                }
            } else if let (Some(span), Some((name, value))) = (spans.last_mut(), line.split_once(':')) {
                let value = value.trim().to_owned();
                match name.trim() {
                    "Trace ID" => span.trace = value,
                    "Parent ID" => span.parent = value,
                    "ID" => span.id = value,
                    "Name" => span.name = value,
                    _ => {}
                }
            }
        }
        spans
    }
}
