//! A job's stages: what must be finished before what, and what a job of given stages may be.

use crate::job::Phase;
use std::collections::{HashMap, HashSet};

/// One stage as its job's spec gives it; its tasks share prerequisites.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    pub name: String,
    pub phase: Phase,
    /// Positions of the stages that must be finished first.
    pub needs: Vec<usize>,
    /// Positions of the stages whose results its tasks are given.
    pub reads: Vec<usize>,
    /// Position of the stage whose committed plan says which tasks this one has.
    pub expands: Option<usize>,
}

/// How far a stage is, as counted from its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Progress {
    /// Its tasks are known: from the start, or since the plan was expanded.
    pub is_expanded: bool,
    /// Its tasks have been made READY.
    pub is_released: bool,
    /// Tasks that are neither settled nor, in an optional stage, given up.
    pub open: u32,
}

impl Progress {
    pub const fn is_finished(self) -> bool {
        self.is_expanded && self.is_released && self.open == 0
    }
}

/// The stages whose tasks may now go `NEW→READY`. A stage of no tasks is finished by being released, so the
/// caller asks again until nothing is returned.
pub fn releasable(stages: &[(&[usize], Progress)]) -> Vec<usize> {
    let is_due = |(needs, progress): &(&[usize], Progress)| {
        progress.is_expanded
            && !progress.is_released
            && needs.iter().all(|&need| stages.get(need).is_some_and(|(_, p)| p.is_finished()))
    };
    stages.iter().enumerate().filter(|(_, stage)| is_due(stage)).map(|(at, _)| at).collect()
}

/// How many stages one job may have.
pub const MAX_STAGES: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("a job needs at least one stage")]
    NoStages,
    #[error("{0} stages are too many; a job may have {MAX_STAGES}")]
    TooManyStages(usize),
    #[error("stage name `{0}` is not usable; use 1 to 64 letters, digits, `-` and `_`")]
    BadName(String),
    #[error("two stages are called `{0}`")]
    DuplicateName(String),
    #[error("stage `{stage}` needs `{need}`, and no stage is called that")]
    UnknownNeed { stage: String, need: String },
    #[error("stage `{0}` waits for itself, directly or through others")]
    Cycle(String),
    #[error("stage `{stage}` ({phase}) needs `{need}`, which belongs to a later phase ({later})")]
    PhaseBackwards { stage: String, phase: Phase, need: String, later: Phase },
    #[error("stage `{stage}` reads `{read}` without needing it, directly or through others")]
    ReadsUnneeded { stage: String, read: String },
    #[error("stage `{stage}` expands `{plan}` without needing it")]
    ExpandsUnneeded { stage: String, plan: String },
}

/// A stage by the names a person wrote.
pub struct Named<'a> {
    pub name: &'a str,
    pub phase: Phase,
    pub needs: Vec<&'a str>,
    pub reads: Vec<&'a str>,
    pub expands: Option<&'a str>,
}

/// Turns names into positions, refusing what could never run to its end.
pub fn resolve(named: &[Named<'_>]) -> Result<Vec<Stage>, Invalid> {
    if named.is_empty() {
        return Err(Invalid::NoStages);
    }
    if named.len() > MAX_STAGES {
        return Err(Invalid::TooManyStages(named.len()));
    }
    let mut positions = HashMap::new();
    for (at, stage) in named.iter().enumerate() {
        check_name(stage.name)?;
        if positions.insert(stage.name, at).is_some() {
            return Err(Invalid::DuplicateName(stage.name.into()));
        }
    }
    let find = |stage: &str, need: &str| {
        positions
            .get(need)
            .copied()
            .ok_or_else(|| Invalid::UnknownNeed { stage: stage.into(), need: short(need) })
    };
    let mut stages = Vec::with_capacity(named.len());
    for stage in named {
        let needs = stage.needs.iter().map(|need| find(stage.name, need)).collect::<Result<Vec<_>, _>>()?;
        let reads = stage.reads.iter().map(|read| find(stage.name, read)).collect::<Result<Vec<_>, _>>()?;
        let expands = stage.expands.map(|plan| find(stage.name, plan)).transpose()?;
        if let (Some(plan), Some(name)) = (expands, stage.expands)
            && !needs.contains(&plan)
        {
            return Err(Invalid::ExpandsUnneeded { stage: stage.name.into(), plan: name.into() });
        }
        stages.push(Stage { name: stage.name.into(), phase: stage.phase, needs, reads, expands });
    }
    check_order(&stages)?;
    check_reads(&stages)?;
    Ok(stages)
}

/// What a stage reads must be there when it begins.
fn check_reads(stages: &[Stage]) -> Result<(), Invalid> {
    for (at, stage) in stages.iter().enumerate() {
        let before = all_before(stages, at);
        if let Some(read) = stage.reads.iter().find(|read| !before.contains(read)) {
            let (stage, read) = (stage.name.clone(), stages[*read].name.clone());
            return Err(Invalid::ReadsUnneeded { stage, read });
        }
    }
    Ok(())
}

/// The stages that are finished when this one begins. There must be no cycle.
fn all_before(stages: &[Stage], at: usize) -> HashSet<usize> {
    let (mut found, mut next) = (HashSet::new(), stages[at].needs.clone());
    while let Some(need) = next.pop() {
        if found.insert(need) {
            next.extend(&stages[need].needs);
        }
    }
    found
}

fn check_name(name: &str) -> Result<(), Invalid> {
    let usable = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if (1..=64).contains(&name.len()) && name.chars().all(usable) {
        Ok(())
    } else {
        Err(Invalid::BadName(short(name)))
    }
}

fn short(name: &str) -> String {
    name.chars().take(64).collect()
}

/// No cycle, and no stage before one of an earlier phase: that keeps a job's state from going backwards.
fn check_order(stages: &[Stage]) -> Result<(), Invalid> {
    let mut finished = HashSet::new();
    while finished.len() < stages.len() {
        let before = finished.len();
        for (at, stage) in stages.iter().enumerate() {
            if stage.needs.iter().all(|need| finished.contains(need)) {
                finished.insert(at);
            }
        }
        if finished.len() == before {
            let stuck =
                (0..stages.len()).find(|at| !finished.contains(at)).expect("some stage is unfinished");
            return Err(Invalid::Cycle(stages[stuck].name.clone()));
        }
    }
    for stage in stages {
        for need in stage.needs.iter().map(|&at| &stages[at]) {
            if need.phase > stage.phase {
                return Err(Invalid::PhaseBackwards {
                    stage: stage.name.clone(),
                    phase: stage.phase,
                    need: need.name.clone(),
                    later: need.phase,
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named<'a>(name: &'a str, phase: Phase, needs: &[&'a str]) -> Named<'a> {
        Named { name, phase, needs: needs.to_vec(), reads: vec![], expands: None }
    }

    const OPEN: Progress = Progress { is_expanded: true, is_released: false, open: 1 };
    const FINISHED: Progress = Progress { is_expanded: true, is_released: true, open: 0 };

    #[test]
    fn names_become_positions() {
        let stages = [
            named("encode", Phase::Processing, &["plan"]),
            Named { expands: Some("plan"), ..named("plan", Phase::Planning, &[]) },
        ];
        assert!(matches!(resolve(&stages), Err(Invalid::ExpandsUnneeded { .. })));

        let stages = [
            Named { expands: Some("plan"), ..named("encode", Phase::Processing, &["plan"]) },
            named("plan", Phase::Planning, &[]),
        ];
        let stages = resolve(&stages).unwrap();

        assert_eq!(stages[0].needs, [1]);
        assert_eq!(stages[0].expands, Some(1));
    }

    #[test]
    fn what_could_never_end_is_refused() {
        let p = Phase::Processing;
        let cases: [(Vec<Named>, &str); 6] = [
            (vec![], "at least one"),
            (vec![named("a", p, &[]), named("a", p, &[])], "two stages"),
            (vec![named("a b", p, &[])], "not usable"),
            (vec![named("a", p, &["b"])], "no stage is called"),
            (vec![named("a", p, &["b"]), named("b", p, &["a"])], "waits for itself"),
            (vec![named("a", p, &[]), named("b", Phase::Planning, &["a"])], "later phase"),
        ];
        for (stages, reason) in cases {
            let refused = resolve(&stages).unwrap_err().to_string();
            assert!(refused.contains(reason), "{refused}");
        }
    }

    #[test]
    fn only_what_is_finished_before_can_be_read() {
        let p = Phase::Processing;
        let reading = |read| {
            resolve(&[
                named("probe", p, &[]),
                named("plan", p, &["probe"]),
                named("beside", p, &[]),
                Named { reads: vec![read], ..named("encode", p, &["plan"]) },
            ])
        };

        assert_eq!(reading("probe").unwrap()[3].reads, [0]);
        for unfinished in ["beside", "encode"] {
            assert!(matches!(reading(unfinished), Err(Invalid::ReadsUnneeded { .. })), "{unfinished}");
        }
    }

    #[test]
    fn a_stage_is_released_once_and_only_after_all_it_needs() {
        let (none, both): (&[usize], &[usize]) = (&[], &[0, 1]);

        assert_eq!(releasable(&[(none, FINISHED), (none, OPEN), (both, OPEN)]), [1]);
        assert_eq!(releasable(&[(none, FINISHED), (none, FINISHED), (both, OPEN)]), [2]);
        let unexpanded = Progress { is_expanded: false, ..OPEN };
        assert!(releasable(&[(none, FINISHED), (none, FINISHED), (both, unexpanded)]).is_empty());
    }
}
