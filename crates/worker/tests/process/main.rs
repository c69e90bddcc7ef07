//! Commands run and killed for real.
//!
//! A worker starts its guard by running its own program again, and libtest's `main` cannot be that program.
//! So this test brings its own `main`: as `… guard …` it is the guard, which makes it the very arrangement of
//! the real binary and needs no second executable. Told so, it also plays a worker to be killed, and a few
//! commands.

#![allow(clippy::unwrap_used)]

mod attempts;
mod cage;
mod endings;
mod limits;
mod output;
mod roles;
mod scene;
mod trees;

use std::process::ExitCode;

macro_rules! tests {
    ($($module:ident :: $name:ident,)*) => {
        const TESTS: &[(&str, fn())] =
            &[$((concat!(stringify!($module), "::", stringify!($name)), $module::$name)),*];
    };
}

// A test left out of the list is an unused function, and the compiler says so.
tests![
    output::exit_codes_and_signals_are_told_apart,
    output::both_streams_are_kept,
    output::tails_are_the_end_of_long_output,
    output::too_much_output_is_refused,
    output::too_much_output_is_refused_even_if_read_late,
    output::a_worker_that_is_held_up_loses_no_output,
    output::a_worker_that_is_held_up_does_not_take_that_for_silence,
    output::lines_on_standard_output_set_the_fraction,
    output::environment_and_directory_are_passed_on,
    output::the_command_starts_from_a_clean_state,
    output::what_cannot_start_says_why,
    endings::a_timeout_ends_the_command,
    endings::a_silent_command_is_stalled_and_a_talking_one_is_not,
    endings::talk_is_no_progress_where_a_number_must_grow,
    endings::a_stop_is_gentle_first,
    endings::a_stop_does_not_wait_for_a_command_that_ignores_it,
    endings::a_token_cancelled_before_starts_nothing,
    endings::a_stopped_command_makes_no_progress,
    endings::a_stopped_guard_still_ends,
    endings::a_guard_that_others_ask_to_end_ends_the_command,
    endings::a_guard_that_is_stuck_is_killed_with_its_group,
    endings::what_escapes_a_dead_guard_does_not_hold_up_the_worker,
    endings::a_dead_guard_is_noticed,
    endings::a_program_that_is_no_guard_is_noticed,
    trees::a_finished_command_leaves_nothing_behind,
    trees::a_tree_that_keeps_growing_is_killed,
    trees::a_timeout_kills_the_whole_tree,
    trees::a_stop_kills_the_whole_tree,
    trees::a_dropped_future_leaves_nothing_behind,
    trees::a_killed_worker_leaves_nothing_behind,
    trees::a_worker_whose_lifeline_leaked_leaves_nothing_behind,
    trees::a_killed_guard_leaves_neither_command_nor_group,
    limits::what_was_used_is_reported,
    limits::limits_hold,
    limits::memory_that_is_made_read_only_counts,
    limits::threads_are_limited,
    cage::a_caged_command_opens_what_it_was_given_and_nothing_else,
    cage::a_caged_command_starts_signals_and_inspects_nobody,
    cage::a_caged_command_reaches_its_source_and_nothing_else_of_the_network,
    cage::a_command_sees_no_secrets_of_its_worker,
    cage::what_a_command_writes_is_limited_over_all_its_files,
    cage::a_caged_command_hides_no_file_and_no_memory_from_its_limits,
    cage::room_that_no_length_tells_and_folders_that_cannot_be_read_count_too,
    cage::where_a_cage_is_required_a_script_does_not_start,
    cage::a_guard_tells_what_of_the_cage_works_here,
    cage::where_landlock_is_missing_too_a_required_cage_does_not_close_and_the_rest_holds,
];

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let first = args.next().unwrap_or_default().into_string().unwrap_or_default();
    match first.as_str() {
        "guard" => worker::guard::run(args),
        "role" => roles::play(args),
        _ => run_tests(std::env::args().skip(1).collect()),
    }
}

/// Takes a filter and `--list` as libtest does, and speaks its language.
fn run_tests(args: Vec<String>) -> ExitCode {
    if args.iter().any(|arg| arg == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let filters: Vec<_> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let is_chosen =
        |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()));
    let (chosen, left_out): (Vec<_>, Vec<_>) = TESTS.iter().partition(|(name, _)| is_chosen(name));
    println!("\nrunning {} tests", chosen.len());
    let start = std::time::Instant::now();
    let _program = cage::copy_program();
    // They mostly wait for other processes, so all run at once, each in a thread of its own.
    let running: Vec<_> = chosen.iter().map(|(name, test)| (name, std::thread::spawn(*test))).collect();
    let mut failed = 0;
    for (name, test) in running {
        let passed = test.join().is_ok();
        failed += usize::from(!passed);
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    let (passed, seconds) = (chosen.len() - failed, start.elapsed().as_secs_f64());
    let counts =
        format!("{passed} passed; {failed} failed; 0 ignored; 0 measured; {} filtered out", left_out.len());
    println!("\ntest result: {verdict}. {counts}; finished in {seconds:.2}s\n");
    // SAFETY: takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("not root: in the tests of the cage, what root could do in it was not tried\n");
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(101) }
}
