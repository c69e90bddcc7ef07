//! SECURITY.md names the test that proves each of its lines.

use std::path::Path;

const PAGE: &str = include_str!("../../../../SECURITY.md");

/// `crates/…/file.rs::name_of_the_test`, as the page writes them.
pub fn proofs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split('`').skip(1).step_by(2).filter_map(|quoted| {
        let (file, test) = quoted.rsplit_once("::")?;
        file.ends_with(".rs").then_some((file, test))
    })
}

/// Whether the file has a test of this name that is run: a function marked as one, or a member of a list of which a macro makes
/// tests.
fn is_tested((file, test): (&str, &str)) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |file: &Path| std::fs::read_to_string(root.join(file)).unwrap_or_default();
    let text = read(Path::new(file));
    // Programs with a `main` of their own name their tests in it, after the module.
    let main = read(&Path::new(file).with_file_name("main.rs"));
    let module = Path::new(file).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    is_marked(&text, test)
        || is_listed(&text, &["on_both_engines", "targets", "on"], test)
        || is_listed(&main, &["tests"], &format!("{module}::{test}"))
}

/// Whether the attributes above the function make it a test, and none leaves it out.
fn is_marked(text: &str, test: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_it = |line: &&str| line.contains(&format!("fn {test}("));
    lines.iter().enumerate().filter(|(_, line)| is_it(line)).any(|(at, _)| {
        let above =
            lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        let attributes: Vec<&&str> = above.filter(|line| line.starts_with("#[")).collect();
        attributes.iter().any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
            && !attributes.iter().any(|line| line.starts_with("#[ignore"))
    })
}

/// Whether `macro![…]` or `crate::macro![…]` at the beginning of a line has this member.
fn is_listed(text: &str, macros: &[&str], member: &str) -> bool {
    let text = text.replace("\ncrate::", "\n");
    macros.iter().any(|name| {
        let begin = format!("\n{name}![");
        let lists = text.split(&begin).skip(1).filter_map(|rest| rest.split_once("];"));
        lists.flat_map(|(list, _)| list.split([',', '\n'])).any(|listed| listed.trim() == member)
    })
}

#[test]
fn every_line_of_the_threat_model_names_a_test_that_exists() {
    let missing: Vec<_> = proofs(PAGE).filter(|proof| !is_tested(*proof)).collect();
    assert!(missing.is_empty(), "SECURITY.md names what is no test, or is not run: {missing:#?}");

    let rows = PAGE.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| ---"));
    let claims = rows.filter(|line| !line.contains("| Test |") && !line.contains("| May |"));
    let mut count = 0;
    for claim in claims {
        let is_actor = claim.starts_with("| **");
        assert!(is_actor || proofs(claim).next().is_some(), "no test is named for: {claim}");
        count += usize::from(!is_actor);
    }
    assert!(count >= 20, "{count}");
}

#[test]
fn a_helper_and_a_test_that_is_left_out_prove_nothing() {
    let file = "#[test]\n/// Why.\n#[should_panic]\nfn runs() {}\n#[tokio::test]\nasync fn waits() {}\n\nfn helps() {}\n\
                #[test]\n#[ignore = \"long\"]\nfn sleeps() {}\n#[test]\n\nfn apart() {}\n\
                \non_both_engines![stores, keeps];\n\nfn stores(engine: Engine) {}\n";
    let found = |test: &str| is_marked(file, test) || is_listed(file, &["on_both_engines"], test);

    for (test, is_run) in [
        ("runs", true),
        ("waits", true),
        ("stores", true),
        ("keeps", true),
        ("helps", false),
        ("sleeps", false),
        ("apart", false),
        ("no_such_test", false),
    ] {
        assert_eq!(found(test), is_run, "{test}");
    }
    assert!(!is_tested(("fuzz/tests/replay.rs", "survives")));
    assert!(!is_tested(("crates/cli/tests/program/security.rs", "is_marked")));
}
