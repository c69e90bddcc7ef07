//! The crates depend on each other in one direction, as ARCHITECTURE.md draws it.

use cargo_metadata::{DependencyKind, MetadataCommand};

const ARROWS: &[(&str, &[&str])] = &[
    ("vodmill-rules", &[]),
    ("vodmill-failpoint", &[]),
    ("vodmill-telemetry", &[]),
    ("vodmill-wire", &["vodmill-rules"]),
    ("vodmill-pipeline", &[]),
    (
        "vodmill-store",
        &["vodmill-failpoint", "vodmill-pipeline", "vodmill-rules", "vodmill-telemetry", "vodmill-wire"],
    ),
    ("vodmill-outbound", &[]),
    ("vodmill-orchestrator", &["vodmill-failpoint", "vodmill-outbound", "vodmill-rules", "vodmill-store"]),
    ("vodmill-dispatch", &["vodmill-outbound", "vodmill-rules", "vodmill-store", "vodmill-telemetry"]),
    ("vodmill-media", &["vodmill-pipeline"]),
    ("vodmill-files", &["vodmill-failpoint", "vodmill-outbound", "vodmill-rules"]),
    (
        "vodmill-worker",
        &[
            "vodmill-failpoint",
            "vodmill-files",
            "vodmill-media",
            "vodmill-outbound",
            "vodmill-pipeline",
            "vodmill-rules",
            "vodmill-telemetry",
            "vodmill-wire",
        ],
    ),
    (
        "vodmill-server",
        &[
            "vodmill-dispatch",
            "vodmill-failpoint",
            "vodmill-files",
            "vodmill-media",
            "vodmill-outbound",
            "vodmill-pipeline",
            "vodmill-rules",
            "vodmill-store",
            "vodmill-telemetry",
            "vodmill-wire",
            "vodmill-worker",
        ],
    ),
    ("vodmill-fuzz", &["vodmill-media", "vodmill-rules", "vodmill-server", "vodmill-wire"]),
    (
        "vodmill",
        &[
            "vodmill-dispatch",
            "vodmill-files",
            "vodmill-media",
            "vodmill-orchestrator",
            "vodmill-outbound",
            "vodmill-pipeline",
            "vodmill-rules",
            "vodmill-server",
            "vodmill-store",
            "vodmill-telemetry",
            "vodmill-wire",
            "vodmill-worker",
        ],
    ),
];

#[test]
fn arrows_point_one_way() {
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();

    for package in metadata.workspace_packages() {
        let name = package.name.as_str();
        let allowed = ARROWS.iter().find(|(crate_name, _)| *crate_name == name);
        let (_, allowed) = allowed.unwrap_or_else(|| panic!("{name} has no place in the drawing yet"));
        let arrows = package
            .dependencies
            .iter()
            .filter(|arrow| arrow.kind == DependencyKind::Normal && arrow.path.is_some());
        for arrow in arrows {
            assert!(allowed.contains(&arrow.name.as_str()), "{name} must not depend on {}", arrow.name);
        }
    }
}

#[test]
fn the_rules_know_no_clock_no_io_and_nothing_async() {
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    let packages = metadata.workspace_packages();
    let rules = packages.iter().find(|package| package.name == "vodmill-rules").unwrap();

    let normal = rules.dependencies.iter().filter(|arrow| arrow.kind == DependencyKind::Normal);
    let names: Vec<&str> = normal.map(|arrow| arrow.name.as_str()).collect();

    assert_eq!(names, ["serde", "serde_json", "thiserror", "uuid"]);
}
