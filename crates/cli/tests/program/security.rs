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

fn does_exist((file, test): (&str, &str)) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
    text.contains(&format!("fn {test}(")) || text.contains(&format!("fuzz_target {test}"))
}

#[test]
fn every_line_of_the_threat_model_names_a_test_that_exists() {
    let missing: Vec<_> = proofs(PAGE).filter(|proof| !does_exist(*proof)).collect();
    assert!(missing.is_empty(), "SECURITY.md names tests that do not exist: {missing:#?}");

    let rows = PAGE.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| ---"));
    let claims = rows.filter(|line| !line.contains("| Test |") && !line.contains("| May |"));
    let mut count = 0;
    for claim in claims {
        let is_actor = claim.starts_with("| **");
        assert!(is_actor || proofs(claim).next().is_some(), "no test is named for: {claim}");
        count += usize::from(!is_actor);
    }
    assert!(count >= 20, "{count}");
    assert!(!does_exist(("crates/cli/tests/program/security.rs", "no_such_test")));
}
