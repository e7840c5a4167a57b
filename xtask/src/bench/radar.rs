//! One look of the drift radar at 50 hosts, beside 50 plain logins.
//!
//! The 50 addresses are one host's, as those of the probe, so the host does on this machine's processors what 50 would do on theirs.

use anyhow::Context;
use lab::{Lab, LabOptions, progress::Terminal};
use serde_json::Value;

use super::{
    Profile, Row, example, median, output,
    probe::{further_addresses, processor_seconds},
};

const HOSTS: u8 = 50;
const LOOKS: u32 = 5;
/// How many log in at once, as the radar has it.
const AT_ONCE: u8 = 48;
/// The seconds between two looks, by default.
const EVERY: f64 = 300.0;

pub(crate) fn measure() -> anyhow::Result<Vec<Row>> {
    let program = example("kubespray", "radar", Profile::Debug)?;
    let options = LabOptions {
        hosts: 1,
        ..LabOptions::default()
    };
    let lab = Lab::start(&options, &Terminal::default())?;
    let addresses = further_addresses(&lab, HOSTS)?;
    let mut command = std::process::Command::new(program);
    command
        .arg(lab.key_path())
        .arg((LOOKS + 1).to_string())
        .args(&addresses);
    let before = processor_seconds(&lab)?;
    let said = output(&mut lab.enter_network(&command))?;
    let hosts = (processor_seconds(&lab)? - before) / f64::from(LOOKS + 1);
    let said: Value = serde_json::from_str(&said).context("the example printed no JSON")?;
    // The first one learns the keys of the hosts.
    let looks = said["looks"].as_array().into_iter().flatten().skip(1);
    let looks: Vec<_> = looks.collect();
    let of = |name: &str| {
        let figures = looks.iter().filter_map(|look| look[name].as_f64());
        median(&figures.collect::<Vec<_>>())
    };
    let (wall, own, ssh) = (of("wall"), of("own"), of("ssh"));
    let (peer_wall, peer_used) = plain(&lab, &addresses)?;
    let share = (own + ssh) / EVERY * 100.0;
    let states = said["states"].as_object().into_iter().flatten();
    let states: Vec<_> = states
        .map(|(state, hosts)| format!("{hosts} {state}"))
        .collect();
    let states = states.join(", ");
    Ok(vec![
        Row::new(
            &format!("radar: one look at {HOSTS} hosts, median of {LOOKS}"),
            format!("{wall:.2} s ({states})"),
        )
        .peer(
            &format!("ssh HOST true, {AT_ONCE} at once {peer_wall:.2} s"),
            wall / peer_wall,
        )
        .wanted("<= 3 s"),
        Row::new(
            "the same: processor time of the operator and of its ssh, at one look in five minutes",
            format!("{own:.2} and {ssh:.2} s, {share:.2} % of a core"),
        )
        .peer(&format!("ssh {peer_used:.2} s"), (own + ssh) / peer_used)
        .wanted("< 1 %"),
        Row::new(
            "the same: processor time of all these hosts together",
            format!("{hosts:.2} s"),
        ),
    ])
}

/// What as many logins cost that ask nothing: the seconds that pass, and those of a processor.
fn plain(lab: &Lab, addresses: &[String]) -> anyhow::Result<(f64, f64)> {
    let known = lab.dir().join("radar_known_hosts");
    // `times` counts for the shell that it is called in, so never behind a pipe.
    let script = format!(
        "set -e; export LC_ALL=C; login() {{ printf '%s\\n' {} | xargs -P {AT_ONCE} -I% ssh -i {} -o BatchMode=yes -o LogLevel=ERROR \
         -o UserKnownHostsFile={} -o StrictHostKeyChecking=accept-new root@% true; }}
         login; times; date +%s.%N; login; date +%s.%N; times",
        addresses.join(" "),
        lab.key_path().display(),
        known.display()
    );
    let mut command = std::process::Command::new("bash");
    command.args(["-c", &script]);
    let said = output(&mut lab.enter_network(&command))?;
    let lines: Vec<&str> = said.lines().collect();
    let [_, before, began, ended, _, after] = lines.as_slice() else {
        anyhow::bail!("the plain logins said {said:?}");
    };
    let moment = |text: &str| text.trim().parse::<f64>().context("no moment");
    Ok((
        moment(ended)? - moment(began)?,
        used(after)? - used(before)?,
    ))
}

/// What a shell's `times` says of its children: user and system, each as `0m1.234s`.
fn used(line: &str) -> anyhow::Result<f64> {
    let seconds = |text: &str| -> Option<f64> {
        let (minutes, seconds) = text.strip_suffix('s')?.split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
    };
    let parts: Option<Vec<f64>> = line.split_whitespace().map(seconds).collect();
    let parts = parts.with_context(|| format!("a shell says {line:?} of its children"))?;
    Ok(parts.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_a_shell_are_read() {
        assert!((used("1m1.500s 0m0.250s").unwrap() - 61.75).abs() < 1e-9);
        assert!(used("x").is_err());
    }
}
