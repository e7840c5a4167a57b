//! The tasks that Ansible lists of a playbook: for weights, and to prove that slices are the whole.

use std::{path::Path, process::Stdio};

use super::Error;

/// One play of a listing.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ListedPlay {
    /// The host pattern.
    pub hosts: String,
    /// The name.
    pub name: String,
    /// The tags, sorted.
    pub tags: Vec<String>,
    /// The tasks, in order.
    pub tasks: Vec<ListedTask>,
}

/// One task of a listing.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ListedTask {
    /// The role and the name.
    pub name: String,
    /// The tags, sorted.
    pub tags: Vec<String>,
}

/// Lists the tasks of a playbook with `ansible-playbook --list-tasks`. Tasks that are included while a play runs are not in
/// it, so a count is the least that will run.
///
/// # Errors
///
/// The program cannot be started, or refuses the playbook.
pub async fn list_tasks(
    ansible_playbook: &Path,
    configuration: &Path,
    inventory: &Path,
    playbook: &Path,
) -> Result<Vec<ListedPlay>, Error> {
    let failed = |reason: String| Error::ListTasks {
        playbook: playbook.to_owned(),
        reason,
    };
    let output = tokio::process::Command::new(ansible_playbook)
        .env("ANSIBLE_CONFIG", configuration)
        .env("ANSIBLE_NOCOLOR", "1")
        .arg("--list-tasks")
        .arg("-i")
        .arg(inventory)
        .arg(playbook)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| failed(format!("start {}: {error}", ansible_playbook.display())))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("{}: {}", output.status, said.trim())));
    }
    Ok(parse_listed_tasks(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads the output of `ansible-playbook --list-tasks`.
pub fn parse_listed_tasks(output: &str) -> Vec<ListedPlay> {
    let mut plays: Vec<ListedPlay> = Vec::new();
    for line in output.lines() {
        if let Some(play) = line.strip_prefix("  play #").and_then(play) {
            plays.push(play);
        } else if let Some(task) = line.strip_prefix("      ")
            && let Some(play) = plays.last_mut()
        {
            let (name, tags) = tagged(task);
            play.tasks.push(ListedTask { name, tags });
        }
    }
    plays
}

/// The rest of `  play #1 (all): Check Ansible version  TAGS: [always]`.
fn play(rest: &str) -> Option<ListedPlay> {
    let (_, rest) = rest.split_once(" (")?;
    let (hosts, rest) = rest.split_once("): ")?;
    let (name, tags) = tagged(rest);
    Some(ListedPlay {
        hosts: hosts.to_owned(),
        name,
        tags,
        tasks: Vec::new(),
    })
}

fn tagged(text: &str) -> (String, Vec<String>) {
    let (name, tags) = text.rsplit_once("TAGS: [").unwrap_or((text, ""));
    let tags = tags
        .trim_end()
        .trim_end_matches(']')
        .split(',')
        .map(str::trim);
    let mut tags: Vec<String> = tags
        .filter(|tag| !tag.is_empty())
        .map(str::to_owned)
        .collect();
    tags.sort();
    (name.trim().to_owned(), tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_read() {
        let output = "\nplaybook: cluster.yml\n\n  play #1 (all): Check Ansible version\tTAGS: [always]\n    tasks:\n      \
                      Check 2 <= x\tTAGS: [check, always]\n      etcd : Say [it]\tTAGS: []\n\n  play #2 (kube_control_plane[0]): \
                      Join (late): go\tTAGS: []\n    tasks:\n";
        let plays = parse_listed_tasks(output);
        assert_eq!(plays.len(), 2);
        assert_eq!(plays[0].tags, ["always"]);
        assert_eq!(plays[0].tasks[0].tags, ["always", "check"]);
        assert_eq!(plays[0].tasks[1].name, "etcd : Say [it]");
        assert_eq!(
            (plays[1].hosts.as_str(), plays[1].name.as_str()),
            ("kube_control_plane[0]", "Join (late): go")
        );
    }
}
