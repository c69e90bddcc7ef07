//! What a person, a log or a script sees while a stream is made.

use super::event;
use super::report::Report;
use super::summary::Summary;
use crate::output;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::json;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Instant;

pub struct Display {
    manner: Manner,
    file: PathBuf,
    output: PathBuf,
    /// When this run first saw some of the video encoded, and how much that was: what was done before is not its speed.
    since: Option<(Instant, f64)>,
}

/// How much of the stream earlier runs have left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    Nothing,
    Some,
    All,
}

enum Manner {
    Bars(Bars),
    /// Not on a terminal: only what matters.
    Plain {
        last: String,
    },
    Json {
        last: String,
    },
}

struct Bars {
    all: MultiProgress,
    rungs: Vec<ProgressBar>,
    whole: ProgressBar,
}

const STEPS: u64 = 1000;

impl Display {
    pub fn new(json: bool, file: &Path, output: &Path) -> Self {
        let manner = match (json, std::io::stderr().is_terminal()) {
            (true, _) => Manner::Json { last: String::new() },
            (false, true) => Manner::Bars(Bars::new()),
            (false, false) => Manner::Plain { last: String::new() },
        };
        Display { manner, file: file.into(), output: output.into(), since: None }
    }

    pub fn begin(&mut self, found: Found, slots: u32) {
        let (file, output) = (self.file.display(), self.output.display());
        let (is_new, is_complete) = (found == Found::Nothing, found == Found::All);
        let how = match found {
            Found::Nothing => "",
            Found::Some => ", going on where it was",
            Found::All => ": complete already, nothing to do",
        };
        match &self.manner {
            Manner::Json { .. } => {
                event(
                    "started",
                    json!({
                        "file": self.file, "output": self.output, "slots": slots,
                        "is_new": is_new, "is_complete": is_complete,
                    }),
                );
            }
            Manner::Bars(bars) => drop(bars.all.println(output::text(&format!("{file} → {output}{how}")))),
            Manner::Plain { .. } => output::error_line(&format!("{file} → {output}{how}")),
        }
    }

    pub fn show(&mut self, report: &Report) {
        let (speed, left) = self.pace(report);
        match &mut self.manner {
            Manner::Bars(bars) => bars.draw(report, speed, left),
            Manner::Plain { last } => {
                if report.doing != *last && report.doing != "waiting" {
                    last.clone_from(&report.doing);
                    output::error_line(&format!("{:3.0} % {}", report.fraction * 100.0, report.doing));
                }
            }
            Manner::Json { last } => {
                let line = json!({ "progress": report, "speed": speed, "seconds_left": left });
                let text = json!(report).to_string();
                if text != *last {
                    *last = text;
                    event("progress", line);
                }
            }
        }
    }

    /// How many seconds of video a second, and how many seconds it will take.
    fn pace(&mut self, report: &Report) -> (Option<f64>, Option<f64>) {
        if report.encoded_seconds <= 0.0 && self.since.is_none() {
            return (None, None);
        }
        let &mut (since, before) = self.since.get_or_insert((Instant::now(), report.encoded_seconds));
        let (took, made) = (since.elapsed().as_secs_f64(), report.encoded_seconds - before);
        if took < 1.0 || made <= 0.0 {
            return (None, None);
        }
        let speed = made / took;
        (Some(speed), Some((report.duration - report.encoded_seconds).max(0.0) / speed))
    }

    pub fn done(&mut self, summary: &Summary) {
        self.clear();
        match &self.manner {
            Manner::Json { .. } => event("done", json!(summary)),
            Manner::Bars(_) | Manner::Plain { .. } => {
                summary.lines().iter().for_each(|line| output::line(line))
            }
        }
    }

    /// A permanent failure would come again; anything else is worth another try.
    pub fn failed(&mut self, error: &str, is_permanent: bool) {
        self.clear();
        match &self.manner {
            Manner::Json { .. } => event("failed", json!({ "error": error, "is_permanent": is_permanent })),
            Manner::Bars(_) | Manner::Plain { .. } => {
                output::error_line(&format!("vodmill: {error}"));
                if !is_permanent {
                    output::error_line("What is done is kept: the same command tries again what failed.");
                }
            }
        }
    }

    pub fn interrupted(&mut self) {
        self.clear();
        match &self.manner {
            Manner::Json { .. } => event("interrupted", json!({})),
            Manner::Bars(_) | Manner::Plain { .. } => {
                output::error_line("Stopped. What is done is kept: the same command goes on from here.");
            }
        }
    }

    fn clear(&self) {
        if let Manner::Bars(bars) = &self.manner {
            let _ = bars.all.clear();
        }
    }
}

impl Bars {
    fn new() -> Self {
        let all = MultiProgress::new();
        let whole = all.add(bar("{prefix:<10!} [{bar:32}] {percent:>3} %  {msg}"));
        whole.set_prefix("all");
        Bars { all, rungs: Vec::new(), whole }
    }

    fn draw(&mut self, report: &Report, speed: Option<f64>, left: Option<f64>) {
        for rung in report.rungs.iter().skip(self.rungs.len()) {
            let bar =
                self.all.insert_before(&self.whole, bar("{prefix:<10!} [{bar:32}] {percent:>3} %  {msg}"));
            bar.set_prefix(output::text(&rung.name));
            bar.set_message(format!("{}×{}", rung.width, rung.height));
            self.rungs.push(bar);
        }
        for (bar, rung) in self.rungs.iter().zip(&report.rungs) {
            bar.set_position(position(rung.fraction));
        }
        self.whole.set_position(position(report.fraction));
        let speed = speed.map(|speed| format!("{speed:.2}×, ")).unwrap_or_default();
        let left = left.map(|left| format!("{} left, ", clock(left))).unwrap_or_default();
        self.whole.set_message(format!("{speed}{left}{}", output::text(&report.doing)));
    }
}

fn bar(template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(STEPS).with_style(style.progress_chars("=> "))
}

fn position(fraction: f64) -> u64 {
    (fraction.clamp(0.0, 1.0) * STEPS as f64) as u64
}

/// `1:02:03`, `2:03`.
pub fn clock(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match seconds / 3600 {
        0 => format!("{}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds % 3600 / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_told_as_on_a_clock() {
        assert_eq!([clock(0.4), clock(63.0), clock(3723.0)], ["0:00", "1:03", "1:02:03"]);
    }
}
