//! How much sooner one long video is done by more workers: simulated, with the planner's own chunks, the rules' own
//! hedging, and workers that are slow, or die.

mod fleet;
mod plot;

use crate::{Done, output};
use anyhow::Context;
use fleet::{Fleet, Outcome};
use media::settings::Settings;
use media::source::Source;
use serde_json::json;
use std::path::PathBuf;

/// Simulate one long video on fleets of every size
///
/// A two-hour video is planned as `vodmill transcode` would plan it; its chunks are then given to workers that take as long
/// as encoders do, some slower, some dying, by the lease, retry and hedging rules of the product. No frame is encoded: what
/// is measured is how evenly the work is cut and how well losses are made good.
#[derive(clap::Args)]
pub struct Args {
    /// The video's length, in minutes
    #[arg(long, value_name = "MINUTES", default_value_t = 120.0)]
    minutes: f64,
    /// Sizes of fleets, with commas between
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 3, 10, 30, 100, 300, 1000])]
    workers: Vec<u32>,
    /// How many times faster than playing one worker encodes the whole ladder
    #[arg(long, value_name = "×", default_value_t = 0.4)]
    speed: f64,
    /// A worker dies once in so many minutes, on average
    #[arg(long, value_name = "MINUTES", default_value_t = 60.0)]
    mean_life: f64,
    /// Repeats a run
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Also draw the figures into this file, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One size of fleet.
struct Point {
    workers: u32,
    chunks: usize,
    /// Nobody slow, nobody dying.
    calm: Outcome,
    rough: Outcome,
    /// The rough one, if nothing were done twice where it is slow.
    unhedged: Outcome,
    /// All processors busy to the last moment.
    ideal: f64,
}

impl Args {
    pub fn run(self) -> anyhow::Result<Done> {
        let points =
            self.workers.iter().map(|&workers| self.point(workers)).collect::<anyhow::Result<Vec<_>>>()?;
        if let Some(file) = &self.svg {
            let drawn = plot::svg(&points);
            std::fs::write(file, drawn).with_context(|| format!("cannot write {}", file.display()))?;
        }
        if self.json {
            output::json(&points.iter().map(Point::json).collect::<Vec<_>>())?;
        } else {
            table(&points);
        }
        Ok(Done::Yes)
    }

    fn point(&self, workers: u32) -> anyhow::Result<Point> {
        let settings = Settings { parallel: workers, ..Settings::default() };
        let plan = media::plan::make(two_streams(self.minutes * 60.0)?, settings);
        let picture = plan.picture.as_ref().context("there is no picture")?;
        let rate = picture.frames as f64 / plan.duration();
        let chunks: Vec<f64> =
            picture.chunks.iter().map(|chunk| (chunk.end_frame - chunk.first_frame) as f64 / rate).collect();
        let fleet = Fleet {
            workers,
            speed: self.speed,
            mean_life: None,
            slow_share: 0.0,
            hedges: true,
            segments: picture.segments() * picture.rungs.len() as u64,
            seed: self.seed,
        };
        let rough = Fleet { mean_life: Some(self.mean_life * 60.0), slow_share: 0.02, ..fleet };
        Ok(Point {
            workers,
            chunks: chunks.len(),
            ideal: chunks.iter().sum::<f64>() / self.speed / f64::from(workers),
            calm: fleet.run(&chunks),
            rough: rough.run(&chunks),
            unhedged: Fleet { hedges: false, ..rough }.run(&chunks),
        })
    }
}

impl Point {
    fn speedup(&self, seconds: f64) -> f64 {
        self.ideal * f64::from(self.workers) / seconds
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "workers": self.workers,
            "chunks": self.chunks,
            "ideal_seconds": self.ideal,
            "calm": self.calm.json(),
            "rough": self.rough.json(),
            "unhedged": self.unhedged.json(),
            "speedup": self.speedup(self.rough.seconds),
        })
    }
}

fn table(points: &[Point]) {
    output::line(
        "| workers | chunks | ideal | nobody fails | some slow, some die | speed-up | of ideal | without hedging | lost, done again | hedged |",
    );
    output::line("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for point in points {
        output::line(&format!(
            "| {} | {} | {} | {} | {} | {:.1} × | {:.0} % | {} | {} | {} |",
            point.workers,
            point.chunks,
            span(point.ideal),
            span(point.calm.seconds),
            span(point.rough.seconds),
            point.speedup(point.rough.seconds),
            100.0 * point.ideal / point.rough.seconds,
            span(point.unhedged.seconds),
            point.rough.lost,
            point.rough.hedged,
        ));
    }
}

fn span(seconds: f64) -> String {
    match seconds.round() as u64 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// A file as films are: one picture, one sound.
fn two_streams(seconds: f64) -> anyhow::Result<Source> {
    let frames = (seconds * 30.0).round() as u64;
    let source = json!({
        "container": "mov,mp4,m4a,3gp,3g2,mj2", "bytes": 1, "subtitles": [], "chapters": [], "notes": [],
        "video": {
            "stream": 0, "codec": "h264", "width": 1920, "height": 1080, "rotation": 0, "sample_aspect": "1/1",
            "pixel_format": "yuv420p", "bit_depth": 8, "is_interlaced": false,
            "color": { "range": "sdr", "primaries": null, "transfer": null, "matrix": null, "is_full_range": false },
            "timing": {
                "time_base": "1/30", "first": 0, "rate": "30/1", "frames": frames,
                "held": 0, "source_frames": frames, "is_one_to_one": true, "reorder_seconds": 0.0, "can_seek": true,
            },
        },
        "audio": [{
            "stream": 1, "codec": "aac", "channels": 2, "layout": "stereo", "sample_rate": 48000, "language": "en",
            "title": null, "is_default": true, "start": 0.0, "duration": seconds,
        }],
    });
    serde_json::from_value(source).context("the simulated source is not one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_fleet_is_sooner_done_and_never_sooner_than_possible() {
        let args = Args {
            minutes: 10.0,
            workers: vec![1, 10],
            speed: 0.5,
            mean_life: 30.0,
            seed: 1,
            svg: None,
            json: false,
        };

        let [one, ten] = [1, 10].map(|workers| args.point(workers).unwrap());

        assert!(ten.rough.seconds < one.rough.seconds);
        assert!(ten.speedup(ten.rough.seconds) < 10.0 && one.speedup(one.calm.seconds) <= 1.2);
        assert!(plot::svg(&[one, ten]).ends_with("</svg>\n"));
    }

    #[test]
    fn spans_are_said_as_people_say_them() {
        assert_eq!([59.6, 150.0, 7300.0].map(span), ["60 s", "2 min 30 s", "2 h 01 min"]);
    }
}
