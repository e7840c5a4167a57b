//! Planning for 2,000 hosts: from the objects in memory to the plan that is stored.

use std::process::Command;

use anyhow::Context;
use serde_json::Value;

use super::{Profile, Row, example, median, output};

const HOSTS: u32 = 2000;
const TIMES: u32 = 9;

pub(crate) fn measure() -> anyhow::Result<Vec<Row>> {
    let program = example("kubespray", "plans", Profile::Release)?;
    let said = output(Command::new(program).args([HOSTS.to_string(), TIMES.to_string()]))?;
    let said: Value = serde_json::from_str(&said).context("it printed no JSON")?;
    let figures = |operation: &str| -> Vec<f64> {
        let each = said[operation].as_array().into_iter().flatten();
        each.filter_map(Value::as_f64).collect()
    };
    let rows = [
        ("Create", "to create a cluster"),
        ("Scale", "to add one worker to it"),
        ("Upgrade", "to upgrade it in batches of 5 %"),
    ];
    Ok(rows
        .map(|(operation, what)| {
            let what = format!("planning for {HOSTS} hosts, {what}, median of {TIMES}");
            let took = format!("{:.0} ms", median(&figures(operation)));
            Row::new(&what, took).wanted("< 100 ms")
        })
        .into())
}
