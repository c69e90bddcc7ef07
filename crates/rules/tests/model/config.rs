//! What is walked: the jobs, how many workers, and which misfortunes may strike.

use crate::flaw::Flaw;
use rules::Millis;
use rules::job::Phase;
use rules::stage::{Named, Stage, resolve};

#[derive(Clone)]
pub struct Config {
    pub name: &'static str,
    pub jobs: Vec<Shape>,
    /// Worker processes; each holds at most one claim.
    pub processes: usize,
    pub max_attempts: u32,
    /// How many words may be under way at once.
    pub mail: usize,
    /// How many ticks work may stand still, where progress is asked for.
    pub stall: Option<Millis>,
    pub faults: Faults,
    pub flaw: Flaw,
    /// Whether worlds that differ only in the order of alike tasks and workers count as one.
    pub merges_alike: bool,
}

/// What may happen besides orderly work. Pauses need no switch: anything may wait while time passes.
#[derive(Clone, Copy)]
pub struct Faults {
    /// A process dies and comes back as a new incarnation.
    pub crash: bool,
    /// A process shuts down in an orderly way and gives its work back.
    pub drain: bool,
    /// Where files are kept is away, and work is given back for its sake.
    pub storage: bool,
    /// Words and answers get lost.
    pub loss: bool,
    /// Words arrive twice.
    pub duplicate: bool,
    /// Work fails, for now or for good.
    pub failure: bool,
    /// A person cancels, and retries what failed.
    pub person: bool,
    /// Workers send heartbeats, are found silent, are disabled and enabled.
    pub fleet: bool,
    /// The workers are remote: that one of them calls work hopeless needs to be confirmed.
    pub remote: bool,
    /// Work leaves durable progress, and its worker dies or falls silent all the same.
    pub keeps: bool,
}

impl Faults {
    pub const NONE: Faults = Faults {
        crash: false,
        drain: false,
        storage: false,
        loss: false,
        duplicate: false,
        failure: false,
        person: false,
        fleet: false,
        remote: false,
        keeps: false,
    };
    /// All but the fleet's own affairs and durable progress, which multiply everything else.
    pub const ALL: Faults = Faults {
        crash: true,
        drain: true,
        storage: true,
        loss: true,
        duplicate: true,
        failure: true,
        person: true,
        fleet: false,
        remote: false,
        keeps: false,
    };
}

impl Config {
    /// Two workers, two attempts, one word under way at a time, every misfortune.
    pub fn new(name: &'static str, jobs: Vec<Shape>) -> Self {
        Config {
            name,
            jobs,
            processes: 2,
            max_attempts: 2,
            mail: 1,
            stall: None,
            faults: Faults::ALL,
            flaw: Flaw::None,
            merges_alike: true,
        }
    }
}

/// A job's stages, with what the store knows of them beyond their order. The last one publishes.
#[derive(Clone)]
pub struct Shape(pub Vec<Part>);

#[derive(Clone)]
pub struct Part {
    pub stage: Stage,
    pub tasks: usize,
    pub is_optional: bool,
}

/// A stage as a configuration writes it down.
pub struct Written {
    named: Named<'static>,
    tasks: usize,
    is_optional: bool,
}

pub fn stage(name: &'static str, phase: Phase, tasks: usize) -> Written {
    Written {
        named: Named { name, phase, needs: vec![], reads: vec![], expands: None },
        tasks,
        is_optional: false,
    }
}

impl Written {
    pub fn needs(mut self, stage: &'static str) -> Self {
        self.named.needs.push(stage);
        self
    }

    /// Its tasks come into being when the plan is settled.
    pub fn expands(mut self, plan: &'static str) -> Self {
        self.named.expands = Some(plan);
        self.needs(plan)
    }

    pub fn optional(self) -> Self {
        Written { is_optional: true, ..self }
    }
}

pub fn job<const N: usize>(stages: [Written; N]) -> Shape {
    let (named, sizes): (Vec<_>, Vec<_>) =
        stages.into_iter().map(|stage| (stage.named, (stage.tasks, stage.is_optional))).unzip();
    let resolved = resolve(&named).expect("the configuration is a valid job");
    let part = |(stage, (tasks, is_optional))| Part { stage, tasks, is_optional };
    Shape(resolved.into_iter().zip(sizes).map(part).collect())
}
