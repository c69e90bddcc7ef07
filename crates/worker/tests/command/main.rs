//! The kind of work that is a program of the user's, run for real.
//!
//! As in `tests/process`, this program is its own guard: it brings its own `main`.

#![allow(clippy::unwrap_used)]

mod commands;

use std::process::ExitCode;

macro_rules! tests {
    ($($name:ident,)*) => {
        const TESTS: &[(&str, fn())] = &[$((stringify!($name), commands::$name)),*];
    };
}

// A test left out of the list is an unused function, and the compiler says so.
tests![
    a_printed_json_object_is_the_result,
    anything_else_that_is_printed_is_kept_as_text,
    a_program_knows_its_task_and_works_in_a_folder_of_its_own,
    an_exit_code_says_whether_to_try_again,
    a_program_that_is_not_there_is_a_permanent_failure,
    nonsense_for_a_payload_is_a_permanent_failure,
    limits_of_the_execution_hold_for_its_program,
    a_program_is_ended_when_its_execution_is,
    every_program_leaves_a_record,
];

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).peekable();
    if args.next_if(|arg| arg == "guard").is_some() {
        worker::guard::run(args);
    }
    let args: Vec<String> = args.filter_map(|arg| arg.into_string().ok()).collect();
    if args.iter().any(|arg| arg == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let is_chosen = |name: &str| {
        let mut filters = args.iter().filter(|arg| !arg.starts_with('-')).peekable();
        filters.peek().is_none() || filters.any(|filter| name.contains(filter.as_str()))
    };
    run(TESTS.iter().filter(|(name, _)| is_chosen(name)))
}

/// They mostly wait for other processes, so all run at once, each in a thread of its own.
fn run<'a>(tests: impl Iterator<Item = &'a (&'a str, fn())>) -> ExitCode {
    let running: Vec<_> = tests.map(|(name, test)| (name, std::thread::spawn(*test))).collect();
    println!("\nrunning {} tests", running.len());
    let mut failed = 0;
    for (name, test) in running {
        let passed = test.join().is_ok();
        failed += usize::from(!passed);
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
    }
    println!("\ntest result: {failed} failed\n");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(101) }
}
