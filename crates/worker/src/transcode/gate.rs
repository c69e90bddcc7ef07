//! Nothing is published that was not seen to be right.

use super::Work;
use super::package::Parts;
use super::tools::{Run, disk};
use crate::handler::Failed;
use crate::process::Reach;
use media::check::{self, Check, Expect, Level, Outcome};
use media::manifest::Artifact;
use pipeline::FilePath;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// For two segments of each rendition: far more than any takes.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// What the gate has to say of a generation that may pass.
pub(super) struct Judged {
    pub proof: Value,
    pub warnings: Vec<String>,
}

pub(super) async fn judge(
    work: &Work<'_>,
    parts: &Parts,
    tree: &Path,
    files: &[Artifact],
) -> Result<Judged, Failed> {
    work.context.set_step("check");
    let expect = expect(parts, files);
    let scratch = work.context.folder().await?.join("scratch");
    let prepared = work.blocking({
        let (tree, scratch) = (tree.to_owned(), scratch.clone());
        move || {
            let check = Check::open(&tree, &expect).map_err(|error| unreadable(&error))?;
            std::fs::create_dir_all(&scratch).map_err(|error| disk("making", &scratch, &error))?;
            let decodes = check.decodes(&scratch).map_err(|error| disk("writing", &scratch, &error))?;
            Ok((check, decodes))
        }
    });
    let (mut check, decodes) = prepared.await?;
    let memory = media::memory::checking(&parts.plan);
    for decode in &decodes {
        let run = Run::new("check", decode.argv.clone(), Reach::reading(&scratch));
        let exit = work.run(run.in_folder(&scratch).within(PATIENCE).taking(memory)).await?;
        check.decoded(decode, &Outcome { is_success: exit.status.is_success(), stderr: exit.stderr_tail });
    }
    let verdict = check.verdict();
    if verdict.is_good() {
        let tools = BTreeMap::from([("vodmill".into(), env!("CARGO_PKG_VERSION").into())]);
        let warnings = verdict.findings.iter().map(|finding| finding.message.clone()).collect();
        return Ok(Judged { proof: verdict.proof(files, &tools), warnings });
    }
    Err(refused(work, parts, &verdict))
}

/// Checks what one task made as if it were a whole stream; its ends are also decoded, where `decoding` says how much memory
/// that takes. What is wrong with it, in words.
pub(super) async fn inspect(
    work: &Work<'_>,
    tree: &Path,
    expect: Expect,
    scratch: &Path,
    decoding: Option<u64>,
) -> Result<Option<String>, Failed> {
    let prepared = work.blocking({
        let (tree, scratch) = (tree.to_owned(), scratch.to_owned());
        move || {
            let check = Check::open(&tree, &expect).map_err(|error| unreadable(&error))?;
            let decodes = match decoding {
                Some(_) => check.decodes(&scratch).map_err(|error| disk("writing", &scratch, &error))?,
                None => Vec::new(),
            };
            Ok((check, decodes))
        }
    });
    let (mut check, decodes) = prepared.await?;
    for decode in &decodes {
        let run = Run::new("check", decode.argv.clone(), Reach::reading(scratch)).in_folder(scratch);
        let run = run.within(PATIENCE).taking(decoding.unwrap_or_default());
        let Some(exit) = work.run_on_untrusted(run).await? else {
            return Ok(Some("decoding it does not end".into()));
        };
        check.decoded(decode, &Outcome { is_success: exit.status.is_success(), stderr: exit.stderr_tail });
    }
    let verdict = check.verdict();
    Ok((!verdict.is_good()).then(|| errors(&verdict)))
}

/// Rungs that were taken over from another generation have as many frames as those made now.
fn expect(parts: &Parts, files: &[Artifact]) -> Expect {
    let rungs = parts.presentation.video.iter();
    let frames = parts.plan.picture.as_ref().map(|picture| picture.frames);
    Expect {
        frames: rungs.filter_map(|rung| Some((rung.name.to_string(), frames?))).collect(),
        duration: Some(parts.plan.duration()),
        artifacts: files.to_vec(),
        ..Expect::default()
    }
}

fn unreadable(error: &check::Error) -> Failed {
    Failed::transient(format!("the output cannot be checked: {error}"))
}

/// Says what is wrong. Where it can be traced to an execution, another try would find the same: its output has to be made
/// again.
fn refused(work: &Work<'_>, parts: &Parts, verdict: &check::Verdict) -> Failed {
    let errors_of = || verdict.findings.iter().filter(|finding| finding.level == Level::Error);
    let makers: BTreeSet<FilePath> =
        errors_of().filter_map(|finding| parts.maker_at(&finding.place)).collect();
    let what = errors(verdict);
    for maker in &makers {
        work.refuse_output(maker, &what);
    }
    let what = format!("the output is not right, and nothing was published: {what}");
    match makers.is_empty() {
        true => Failed::transient(what),
        false => {
            let makers: Vec<&str> = makers.iter().map(FilePath::as_str).collect();
            Failed::permanent(format!(
                "{what}; it was made by execution {}; `vodmill job retry` makes it again",
                makers.join(", ")
            ))
        }
    }
}

/// Names the first findings; the rest would be more of the same.
fn errors(verdict: &check::Verdict) -> String {
    let errors = verdict.findings.iter().filter(|finding| finding.level == Level::Error);
    let told: Vec<String> = errors
        .take(3)
        .map(|finding| format!("{}: {} ({})", finding.place.file, finding.message, finding.rule))
        .collect();
    let more = verdict.errors().saturating_sub(told.len());
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!("{}{more}", told.join("; "))
}
