//! A fleet of 10,000 clusters: rendered whole, one site of it, where the leaves of an object come from, and the memory of it all.

use std::process::Command;

use anyhow::Context;

use super::{Profile, Row, example, output};

const CLUSTERS: u32 = 10_000;

/// What the example tells, and what is wanted of it.
const FIGURES: [(&str, &str, &str); 5] = [
    ("read", "read", ""),
    ("render all", "rendered whole", "< 30 s"),
    ("one site", "one site edited", "< 200 ms"),
    (
        "explain",
        "where each leaf of an object comes from",
        "< 50 ms",
    ),
    ("memory", "the most memory", "< 500 MB"),
];

pub(crate) fn measure() -> anyhow::Result<Vec<Row>> {
    let program = example("inventory", "ten_thousand", Profile::Release)?;
    let said = output(Command::new(program).arg(CLUSTERS.to_string()))?;
    let rows = FIGURES.map(|(word, what, wanted)| -> anyhow::Result<Row> {
        let mut lines = said.lines();
        let told = lines.find_map(|line| line.strip_prefix(word));
        let told = told.with_context(|| format!("{word:?} is not in {said}"))?;
        let what = format!("fleet of {CLUSTERS} clusters: {what}");
        Ok(Row::new(&what, told.trim()).wanted(wanted))
    });
    rows.into_iter().collect()
}
