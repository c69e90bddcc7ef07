//! A real Prometheus, and what it says.

use crate::support::{Process, http, said, until};
use reqwest::blocking::Client;
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

pub struct Prometheus {
    _process: Process,
    url: String,
    client: Client,
    _folder: TempDir,
}

impl Prometheus {
    /// One that reads these addresses, each under its job, every second, and knows our alerts.
    pub fn scraping(targets: &[(&str, u16)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("prometheus.yml");
        std::fs::write(&config, configuration(targets)).unwrap();
        let port = free_port();
        let log = folder.path().join("prometheus.log");
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .expect("prometheus is missing: `make test` installs it");
        let client = http().build().unwrap();
        let mut process = Process(process);
        let url = format!("http://127.0.0.1:{port}");
        until("Prometheus is ready", || {
            assert!(!process.has_ended(), "{}", std::fs::read_to_string(&log).unwrap());
            client.get(format!("{url}/-/ready")).send().is_ok_and(|answer| answer.status().is_success())
        });
        Prometheus { _process: process, url, client, _folder: folder }
    }

    /// What it answers to a query: a row for each series.
    pub fn query(&self, query: &str) -> Vec<Value> {
        self.get("query", &[("query", query)])["result"].as_array().unwrap().clone()
    }

    /// Every alert it knows.
    pub fn alerts(&self) -> Vec<Value> {
        let groups = self.get("rules", &[("type", "alert")])["groups"].as_array().unwrap().clone();
        groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
    }

    fn get(&self, what: &str, query: &[(&str, &str)]) -> Value {
        let mut url = reqwest::Url::parse(&format!("{}/api/v1/{what}", self.url)).unwrap();
        url.query_pairs_mut().extend_pairs(query);
        let answer: Value = self.client.get(url).send().unwrap().json().unwrap();
        assert_eq!(answer["status"], "success", "{query:?}: {answer}");
        answer["data"].clone()
    }
}

fn configuration(targets: &[(&str, u16)]) -> String {
    let target = |(job, port): &(&str, u16)| {
        format!("  - job_name: {job}\n    static_configs: [{{targets: ['127.0.0.1:{port}']}}]\n")
    };
    format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{}']\nscrape_configs:\n{}",
        deploy("prometheus/alerts.yml").display(),
        targets.iter().map(target).collect::<String>()
    )
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A file that comes with Vodmill.
pub fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name).canonicalize().unwrap()
}

/// What `promtool` says, which must be good.
pub fn promtool(args: &[&str], input: &str) -> String {
    let mut tool = Command::new("promtool");
    let tool = tool.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tool = tool.spawn().expect("promtool is missing: `make test` installs it");
    tool.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = tool.wait_with_output().unwrap();
    assert!(output.status.success(), "promtool {args:?}: {}", said(&output));
    said(&output)
}
