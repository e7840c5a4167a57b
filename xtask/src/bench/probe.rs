//! 200 addresses of which 20 are dead.
//!
//! 180 addresses are one host's, with a real sshd; the 20 dead ones swallow every packet, so that connections time out.

use anyhow::{Context, ensure};
use lab::{Lab, LabOptions, Presence, progress::Terminal};

use super::{Profile, Row, example, output};

const TIMEOUT_SECONDS: f64 = 5.0;
const DEAD: u8 = 20;
const ANSWERING: u8 = 180;
/// The last byte of the first further address of the host; the lab's own hosts are below.
const FIRST: u8 = 40;

pub(crate) fn measure() -> anyhow::Result<Vec<Row>> {
    let program = example("ansible", "probe", Profile::Debug)?;
    let options = LabOptions {
        hosts: 1,
        dead: DEAD,
        ..LabOptions::default()
    };
    let lab = Lab::start(&options, &Terminal::default())?;
    let dead = lab.hosts().iter();
    let dead = dead.filter(|host| host.presence == Presence::Dead);
    let addresses = further_addresses(&lab, ANSWERING)?
        .into_iter()
        .chain(dead.map(|host| host.address.to_string()));
    let mut command = std::process::Command::new(program);
    command
        .arg(lab.key_path())
        .arg(lab.dir().join("bench_known_hosts"))
        .arg(TIMEOUT_SECONDS.to_string())
        .args(addresses);
    let before = processor_seconds(&lab)?;
    let text = output(&mut lab.enter_network(&command))?;
    let host = processor_seconds(&lab)? - before;
    let figures: serde_json::Value =
        serde_json::from_str(&text).context("the example printed no JSON")?;
    let number = |name: &str| figures[name].as_f64().unwrap_or(f64::NAN);
    let (connect, probe) = (number("connect_seconds"), number("probe_seconds"));
    let client = number("ssh_cpu_seconds");
    let peer = format!("timeout {TIMEOUT_SECONDS:.1} s");
    Ok(vec![
        Row::new(
            "probe of 200 addresses, 20 dead: who answers (TCP and ssh banner)",
            format!("{connect:.2} s ({} of 180 answer)", figures["answering"]),
        )
        .peer(&peer, connect / TIMEOUT_SECONDS)
        .wanted("<= 5.2 s"),
        Row::new(
            "the same with login, sudo and Python of 180 hosts",
            format!("{probe:.2} s ({} of 180 usable)", figures["usable"]),
        )
        .peer(&peer, probe / TIMEOUT_SECONDS)
        .wanted("<= 5.2 s"),
        Row::new(
            "processor time of these 180 logins: ssh here, sshd and the questions on the host",
            format!("{client:.1} s and {host:.1} s"),
        ),
    ])
}

/// Has the first host play so many, each with an address of its own.
pub(crate) fn further_addresses(lab: &Lab, count: u8) -> anyhow::Result<Vec<String>> {
    let last = FIRST + count - 1;
    // sshd refuses new connections at random when 10 are not logged in; 180 machines would not share that limit. Nor would
    // they share two processors with the probe: PAM is a third of what a login costs a host.
    let prepare = format!(
        "for i in $(seq {FIRST} {last}); do ip address add 10.77.0.$i/32 dev eth0; done
         echo 'MaxStartups 1000' >> /etc/ssh/sshd_config
         sed -i 's/^UsePAM .*/UsePAM no/' /etc/ssh/sshd_config
         systemctl restart ssh"
    );
    let prepared = lab.ssh("host-1", &prepare)?;
    ensure!(
        prepared.status.success(),
        "the host has no further addresses: {}",
        String::from_utf8_lossy(&prepared.stderr)
    );
    let addresses = FIRST..=last;
    Ok(addresses.map(|last| format!("10.77.0.{last}")).collect())
}

/// What sshd's sessions have used so far: the kernel adds a process to its parent's figure when it has ended. The banners of
/// the probe and the login that asks are in it, and cost little beside 180 logins.
pub(crate) fn processor_seconds(lab: &Lab) -> anyhow::Result<f64> {
    let asked = lab.ssh(
        "host-1",
        "cut -d ' ' -f 16,17 /proc/$(systemctl show --property MainPID --value ssh)/stat",
    )?;
    let text = String::from_utf8_lossy(&asked.stdout);
    let ticks: Vec<f64> = text
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()
        .with_context(|| format!("the host says {text:?} of its sshd"))?;
    Ok(ticks.iter().sum::<f64>() / 100.0)
}
