//! A worker and its server, with real sockets between them, and somebody on the line who cuts, truncates and answers in
//! the server's place.
//!
//! As in `tests/process`, this program is its own guard: it brings its own `main`. Everything that is logged by any test
//! is kept, and searched for the key at the end.

#![allow(clippy::unwrap_used, clippy::result_large_err)]

mod breaker;
mod desk;
mod fleet;
mod line;
mod logs;
mod outputs;
mod scene;
mod server;
mod source;

use std::process::ExitCode;

macro_rules! tests {
    ($($module:ident :: $name:ident,)*) => {
        const TESTS: &[(&str, fn())] = &[$((
            concat!(stringify!($module), "::", stringify!($name)),
            || scene::play($module::$name()),
        )),*];
    };
}

// A test left out of the list is an unused function, and the compiler says so.
tests![
    desk::words_reach_the_server_and_its_answers_come_back,
    desk::refused_words_are_answers,
    desk::what_does_not_come_from_the_server_is_its_absence,
    desk::what_the_server_does_not_take_is_rejected,
    desk::an_older_server_is_told_in_a_word_that_it_knows,
    desk::a_worker_that_is_not_wanted_is_told_so,
    desk::a_long_poll_that_fails_is_not_repeated_at_once,
    breaker::a_failing_server_is_left_alone_for_a_while,
    source::a_reader_gets_the_file_whatever_happens_on_the_way,
    source::a_reader_gets_the_part_it_asks_for_and_little_else_is_fetched,
    source::only_a_few_connections_are_served_at_a_time,
    source::what_fails_while_the_source_is_away_is_the_storages_fault,
    source::a_file_that_changes_is_not_read_on,
    source::another_user_of_the_machine_gets_nothing,
    source::a_file_that_is_gone_or_empty_is_a_permanent_failure,
    source::a_lost_lease_ends_the_execution,
    source::an_expired_lease_may_be_renewed_meanwhile,
    source::nothing_counts_as_progress_while_the_source_is_away,
    outputs::files_arrive_whole_and_are_listed_in_the_commit,
    outputs::an_upload_that_was_cut_goes_on_where_the_server_is,
    outputs::a_file_that_arrives_damaged_is_sent_again_whole,
    outputs::a_page_in_place_of_the_server_takes_no_file,
    outputs::a_lost_lease_ends_the_upload,
    fleet::a_video_is_transcoded_far_from_its_server,
    fleet::a_worker_whose_place_is_taken_gives_back_its_work_and_ends,
    fleet::a_worker_far_away_does_not_offer_what_only_a_server_runs,
];

/// These act as another user, which only root can.
const AS_ROOT: [&str; 1] = ["source::another_user_of_the_machine_gets_nothing"];

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
    logs::keep();
    let failed = run(TESTS.iter().filter(|(name, _)| is_chosen(name))) + u32::from(logs::told_the_key());
    println!("\ntest result: {failed} failed\n");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(101) }
}

/// They mostly wait for each other, so all run at once, each in a thread of its own.
fn run<'a>(tests: impl Iterator<Item = &'a (&'a str, fn())>) -> u32 {
    // SAFETY: takes nothing and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let (tests, ignored): (Vec<_>, Vec<_>) = tests.partition(|(name, _)| is_root || !AS_ROOT.contains(name));
    let running: Vec<_> = tests.iter().map(|(name, test)| (name, std::thread::spawn(*test))).collect();
    println!("\nrunning {} tests", running.len() + ignored.len());
    for (name, _) in ignored {
        println!("test {name} ... ignored, needs root");
    }
    let mut failed = 0;
    for (name, test) in running {
        let passed = test.join().is_ok();
        failed += u32::from(!passed);
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
    }
    failed
}
