//! What was made, and what it took.

use super::display::clock;
use super::megabytes;
use media::plan::Plan;
use rules::JobId;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;
use store::Store;
use worker::transcode::{Likeness, Published};

#[derive(Debug, Serialize)]
pub struct Summary {
    pub master: PathBuf,
    pub duration: f64,
    /// Of this run; a stream that was complete before took almost none.
    pub seconds: f64,
    /// Of all runs.
    pub cpu_seconds: f64,
    /// The largest single encoder.
    pub peak_memory_bytes: i64,
    pub bytes: u64,
    pub renditions: Vec<Rendition>,
    pub skipped: Vec<media::ladder::Skipped>,
    pub notes: Vec<String>,
    pub warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct Rendition {
    #[serde(flatten)]
    pub made: wire::Rendition,
    /// Compared with the source, where that was asked for.
    pub ssim: Option<f64>,
    pub psnr: Option<f64>,
}

impl Summary {
    pub async fn of(
        store: &Store,
        job: JobId,
        output: &Path,
        published: &Published,
        began: Instant,
    ) -> anyhow::Result<Self> {
        let executions = store.executions_of_job(job).await?;
        let plan = store.results_of_stage(job, "plan").await?.into_iter().next().unwrap_or_default();
        let plan: Plan = serde_json::from_value(plan)?;
        let packaged = &published.packaged;
        let likenesses = likenesses(store, job).await;
        let rendition = |made: &wire::Rendition| {
            let likeness = likenesses.iter().find(|one| one.rung == made.name);
            let (ssim, psnr) = likeness.map_or((None, None), |one| (one.ssim, one.psnr));
            Rendition { made: made.clone(), ssim, psnr }
        };
        Ok(Summary {
            master: output.join("master.m3u8"),
            duration: plan.duration(),
            seconds: began.elapsed().as_secs_f64(),
            cpu_seconds: executions.iter().filter_map(|e| e.cpu_ms).sum::<i64>() as f64 / 1000.0,
            peak_memory_bytes: executions.iter().filter_map(|e| e.peak_memory_bytes).max().unwrap_or(0),
            bytes: packaged.files.iter().map(|file| file.bytes).sum(),
            renditions: packaged.renditions.iter().map(rendition).collect(),
            skipped: plan.picture.map(|picture| picture.skipped).unwrap_or_default(),
            notes: plan.source.notes,
            warnings: packaged.warnings.clone(),
        })
    }

    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.renditions.iter().map(|one| self.rendition(one)).collect();
        for skipped in &self.skipped {
            lines.push(format!("{:<14} skipped: {}", skipped.name, skipped.reason));
        }
        lines.extend(self.notes.iter().chain(&self.warnings).map(|note| format!("note: {note}")));
        lines.push(format!(
            "{} of video in {} ({:.2}×), {:.0} s of processor time, {} in all",
            clock(self.duration),
            clock(self.seconds),
            self.duration / self.seconds.max(0.001),
            self.cpu_seconds,
            megabytes(self.bytes),
        ));
        lines.push(self.master.display().to_string());
        lines
    }

    fn rendition(&self, one: &Rendition) -> String {
        let made = &one.made;
        let size = made
            .width
            .zip(made.height)
            .map(|(width, height)| format!("{width}×{height}"))
            .unwrap_or_default();
        let average = made.bytes as f64 * 8.0 / self.duration.max(0.001) / 1000.0;
        let bytes = megabytes(made.bytes.max(0).unsigned_abs());
        let ssim = one.ssim.map(|ssim| format!("  SSIM {ssim:.4}")).unwrap_or_default();
        let psnr = one.psnr.map(|psnr| format!("  PSNR {psnr:.2} dB")).unwrap_or_default();
        format!("{:<14} {size:<10} {:<22} {average:>6.0} kb/s {bytes:>10}{ssim}{psnr}", made.name, made.codec)
    }
}

/// None where nobody asked for it.
async fn likenesses(store: &Store, job: JobId) -> Vec<Likeness> {
    let results = store.results_of_stage(job, "measure").await.unwrap_or_default();
    results.into_iter().filter_map(|result| serde_json::from_value(result).ok()).collect()
}
