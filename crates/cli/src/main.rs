//! The program: settings, commands, and what people see. One file for each command.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.

mod bench;
mod beside;
mod command;
mod limits;
mod log;
mod metrics;
mod office;
mod output;
mod settings;
mod trace;

use anyhow::Context;
use clap::{Parser, Subcommand};
use settings::Settings;
use std::process::ExitCode;
use trace::Traces;

/// Crash-safe video transcoding, on one machine or a fleet.
///
/// Videos go in, a checked adaptive stream comes out. Any process may be killed at any instant: nothing is lost, and
/// nothing is published twice.
#[derive(Parser)]
#[command(name = "vodmill", version, max_term_width = 110)]
struct Program {
    #[command(flatten)]
    settings: Settings,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Transcode(command::transcode::Args),
    Plan(command::plan::Args),
    Check(command::check::Args),
    Serve(command::serve::Args),
    Migrate(command::migrate::Args),
    Submit(command::submit::Args),
    Worker(command::worker::Args),
    Orchestrate(command::orchestrate::Args),
    Watch(command::watch::Args),
    Jobs(command::jobs::Args),
    #[command(subcommand)]
    Job(command::job::Command),
    Videos(command::videos::Args),
    #[command(subcommand)]
    Video(command::video::Command),
    Workers(command::workers::Args),
    Sessions(command::sessions::Args),
    Doctor(command::doctor::Args),
    #[command(subcommand)]
    Bench(bench::Command),
    Completions(command::completions::Args),
    /// Supervises one command for a worker.
    #[command(hide = true, disable_help_flag = true)]
    Guard {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<std::ffi::OsString>,
    },
}

impl Command {
    /// What is logged where nobody says. Who watches a stream being made sees how far it is, and at its end what is wrong.
    fn default_log(&self) -> &'static str {
        match self {
            Command::Transcode(_) => "error,worker=off,orchestrator=error",
            _ => "warn,worker=info,orchestrator=info,server=info,dispatch=info",
        }
    }

    /// Whether what it makes is for this user alone. A stream that is made for a folder is for whoever the user says.
    fn keeps_files_private(&self) -> bool {
        !matches!(
            self,
            Command::Transcode(_) | Command::Plan(_) | Command::Check(_) | Command::Completions(_)
        )
    }

    /// What it is called in traces, if it has a part in any.
    fn traced_as(&self) -> Option<&'static str> {
        match self {
            Command::Serve(_) => Some("vodmill-server"),
            Command::Worker(_) => Some("vodmill-worker"),
            Command::Submit(_) | Command::Transcode(_) => Some("vodmill"),
            _ => None,
        }
    }
}

/// What a command comes to, short of an error.
pub enum Done {
    Yes,
    /// It did what was asked, and the answer is bad: a failed job, a finding.
    No,
    Interrupted,
}

fn main() -> ExitCode {
    // The guard supervises one command and must stay small: no runtime, no settings.
    if std::env::args_os().nth(1).is_some_and(|word| word == "guard") {
        worker::guard::run(std::env::args_os().skip(2));
    }
    outbound::choose_tls();
    let program = Program::parse();
    if matches!(program.command, Command::Transcode(_)) && command::transcode::Supervised::here().is_none() {
        return command::transcode::supervise().unwrap_or_else(|error| {
            eprintln!("vodmill: cannot start the working process: {error}");
            ExitCode::from(1)
        });
    }
    match start(program) {
        Ok(Done::Yes) => ExitCode::SUCCESS,
        Ok(Done::No) => ExitCode::from(1),
        Ok(Done::Interrupted) => ExitCode::from(130),
        Err(error) => complain(&error),
    }
}

fn start(program: Program) -> anyhow::Result<Done> {
    if program.command.keeps_files_private() {
        limits::keep_files_private();
    }
    let settings = program.settings.with_file()?;
    // Outlives the runtime: the last spans are sent when nothing runs any more.
    let traces = match program.command.traced_as() {
        Some(service) => Traces::start(&settings, service)?,
        None => Traces::default(),
    };
    log::start(&settings, program.command.default_log(), &traces);
    limits::warn_of_secrets_in_arguments();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("cannot start")?.block_on(run(program.command, settings))
}

async fn run(command: Command, settings: Settings) -> anyhow::Result<Done> {
    match command {
        Command::Transcode(args) => args.run(&settings).await,
        Command::Plan(args) => args.run(&settings).await,
        Command::Check(args) => args.run(&settings).await,
        Command::Serve(args) => args.run(&settings).await,
        Command::Migrate(args) => args.run(&settings).await,
        Command::Submit(args) => args.run(&settings).await,
        Command::Worker(args) => args.run(&settings).await,
        Command::Orchestrate(args) => args.run(&settings).await,
        Command::Watch(args) => args.run(&settings).await,
        Command::Jobs(args) => args.run(&settings).await,
        Command::Job(command) => command.run(&settings).await,
        Command::Videos(args) => args.run(&settings).await,
        Command::Video(command) => command.run(&settings).await,
        Command::Workers(args) => args.run(&settings).await,
        Command::Sessions(args) => args.run(&settings).await,
        Command::Doctor(args) => args.run(&settings).await,
        Command::Bench(command) => command.run(&settings).await,
        Command::Completions(args) => args.run(),
        Command::Guard { .. } => unreachable!("handled before anything else is set up"),
    }
}

/// Errors a person can mend by typing something else are wrong usage.
fn complain(error: &anyhow::Error) -> ExitCode {
    output::tell(&format!("{error:#}"));
    let is_usage = error.chain().any(|cause| {
        cause.is::<settings::Usage>()
            || cause.downcast_ref::<office::Fault>().is_some_and(office::Fault::is_usage)
            || cause.downcast_ref::<office::Error>().is_some_and(office::Error::is_usage)
            || matches!(cause.downcast_ref(), Some(store::Error::BadSpec(_) | store::Error::Invalid(_)))
    });
    ExitCode::from(if is_usage { 2 } else { 1 })
}
