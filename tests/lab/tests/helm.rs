//! Helm, and our chart as it reads it.

use std::{path::Path, process::Command};

use lab::{command::output, progress::Terminal};

#[test]
fn the_chart_passes_lint_and_renders() {
    let helm = lab::helm(&Terminal::default()).unwrap();
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/chart/windlass");
    output(Command::new(&helm).args(["lint", "--strict"]).arg(&chart)).unwrap();
    let of_the_release = ["template", "windlass", "--namespace", "windlass-system"];
    let said = output(Command::new(&helm).args(of_the_release).arg(&chart)).unwrap();
    assert!(said.contains("kind: Deployment"), "{said}");
}
