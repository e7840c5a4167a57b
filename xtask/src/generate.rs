//! Files that are generated from the code, kept in the repository and compared in CI: the CRDs and the references.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context;
use api::{
    crd::{SETS, Set},
    provider::{self, ProviderType},
};

use crate::{deploy, image, tools};

mod drop_in;

/// Writes every generated file.
pub(crate) fn write() -> anyhow::Result<()> {
    for (file, content) in files()? {
        let file = tools::root().join(file);
        let directory = file.parent().context("a generated file has a directory")?;
        std::fs::create_dir_all(directory)
            .with_context(|| format!("failed to make {}", directory.display()))?;
        std::fs::write(&file, content)
            .with_context(|| format!("failed to write {}", file.display()))?;
        println!("wrote {}", file.display());
    }
    Ok(())
}

/// Compares every generated file with what the code gives.
pub(crate) fn check() -> anyhow::Result<()> {
    let stale: Vec<_> = files()?
        .into_iter()
        .filter(|(file, content)| {
            std::fs::read_to_string(tools::root().join(file))
                .ok()
                .as_deref()
                != Some(content.as_str())
        })
        .map(|(file, _)| file.display().to_string())
        .collect();
    anyhow::ensure!(
        stale.is_empty(),
        "not what the code gives, run `cargo xtask generate`: {}",
        stale.join(", ")
    );
    Ok(())
}

fn files() -> anyhow::Result<BTreeMap<PathBuf, String>> {
    let mut files = BTreeMap::new();
    let mut reference = String::from(
        "# Custom resources\n\nGenerated from the types in `crates/api` by `cargo xtask generate`. `kubectl explain` \
         shows the same.\n",
    );
    // Of the kinds of the Cluster API operator there is no file each.
    let own = SETS.into_iter().flat_map(Set::definitions);
    for definition in own.filter(|definition| definition.spec.group != provider::GROUP) {
        let value = serde_json::to_value(&definition).context("failed to serialise a CRD")?;
        let name = definition.metadata.name.as_deref().unwrap_or_default();
        let yaml =
            serde_saphyr::to_string(&value).with_context(|| format!("failed to print {name}"))?;
        files.insert(
            Path::new("docs/reference/crds").join(format!("{name}.yaml")),
            yaml,
        );
        describe(
            &text(&value["spec"]["names"]["kind"]),
            &value,
            &mut reference,
        );
    }
    // Seven kinds with the same fields.
    if let Some(definition) = provider::provider_definitions().first() {
        let kinds = ProviderType::ALL.map(|provider| format!("`{provider}`"));
        let value = serde_json::to_value(definition).context("failed to serialise a CRD")?;
        let title = format!("Providers: {}", kinds.join(", "));
        describe(&title, &value, &mut reference);
    }
    files.extend(deploy::files()?);
    files.insert("docs/reference/custom-resources.md".into(), reference);
    files.insert("docs/reference/command-line.md".into(), command_line()?);
    files.insert("docs/failures.md".into(), failures()?);
    files.insert("docs/reference/embedded-api.md".into(), deviations()?);
    files.insert(drop_in::PAGE.into(), drop_in::page()?);
    Ok(files)
}

/// The fields of a kind as a table.
fn describe(title: &str, definition: &serde_json::Value, reference: &mut String) {
    let spec = &definition["spec"];
    let version = &spec["versions"][0];
    reference.push_str(&format!(
        "\n## {title}\n\n`{}/{}`\n\n| field | type | what it is |\n|---|---|---|\n",
        text(&spec["group"]),
        text(&version["name"])
    ));
    let schema = &version["schema"]["openAPIV3Schema"];
    for part in ["spec", "status"] {
        fields(part, &schema["properties"][part], reference);
    }
}

fn fields(path: &str, schema: &serde_json::Value, reference: &mut String) {
    let kind = schema["type"].as_str().unwrap_or("integer or string");
    let description = text(&schema["description"])
        .replace('\n', " ")
        .replace('|', "\\|");
    let values = schema["enum"].as_array().map(|values| {
        let values: Vec<_> = values
            .iter()
            .filter(|v| !v.is_null())
            .map(|v| format!("`{}`", text(v)))
            .collect();
        format!(" One of {}.", values.join(", "))
    });
    reference.push_str(&format!(
        "| `{path}` | {kind} | {description}{} |\n",
        values.unwrap_or_default()
    ));
    if let Some(properties) = schema["properties"].as_object() {
        for (name, property) in properties {
            fields(&format!("{path}.{name}"), property, reference);
        }
    }
    if schema["items"]["properties"].is_object() {
        for (name, property) in schema["items"]["properties"]
            .as_object()
            .into_iter()
            .flatten()
        {
            fields(&format!("{path}[].{name}"), property, reference);
        }
    }
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Where the embedded API differs from a real one, by reason, from the file that the conformance suite checks.
fn deviations() -> anyhow::Result<String> {
    let path = tools::root().join("crates/kapi/tests/conformance/deviations.json");
    let text = std::fs::read_to_string(path).context("failed to read the deviations")?;
    let steps: BTreeMap<String, String> =
        serde_json::from_str(&text).context("failed to read the deviations")?;
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (step, reason) in steps {
        reasons.entry(reason).or_default().push(step);
    }
    let mut page = String::from(
        "# Where the embedded API differs from Kubernetes\n\nGenerated by `cargo xtask generate` from the list that the \
         tests check: they send the same requests to the embedded API and to two versions of a real one, and fail for a \
         difference that is not here, and for one that is here and gone. The requests are in \
         `tests/conformance/scenarios`, the commands of kubectl in `tests/conformance/tests/suites/kubectl.rs`.\n\n| difference | requests |\n|---|---|\n",
    );
    for (reason, steps) in reasons {
        let steps: Vec<_> = steps.iter().map(|step| format!("`{step}`")).collect();
        page.push_str(&format!("| {reason} | {} |\n", steps.join("<br>")));
    }
    Ok(page)
}

/// The help of every command, from the program itself.
fn command_line() -> anyhow::Result<String> {
    tools::run(&mut tools::cargo(&[
        "build",
        "--quiet",
        "--package",
        "windlass",
    ]))?;
    let program = image::target().join("debug/windlass");
    let main = help(&program, &[])?;
    let mut reference = format!(
        "# Command line\n\nGenerated from the program's own help by `cargo xtask generate`.\n\n## windlass\n\n```text\n{main}```\n"
    );
    below(&program, &main, &[], &mut reference)?;
    Ok(reference)
}

/// The help of the commands that are listed in one, and of those below them.
fn below(
    program: &Path,
    listed: &str,
    above: &[&str],
    reference: &mut String,
) -> anyhow::Result<()> {
    for name in commands(listed) {
        let mut command = above.to_vec();
        command.push(&name);
        let help = help(program, &command)?;
        let (level, title) = ("#".repeat(command.len() + 1), command.join(" "));
        reference.push_str(&format!(
            "\n{level} windlass {title}\n\n```text\n{help}```\n"
        ));
        below(program, &help, &command, reference)?;
    }
    Ok(())
}

/// Every code that a run may fail with, from the program's own table, which `command_line` has just built.
fn failures() -> anyhow::Result<String> {
    let program = image::target().join("debug/windlass");
    let output = Command::new(program)
        .args(["explain", "codes", "--output", "json"])
        .env_clear()
        .output()
        .context("failed to start windlass")?;
    anyhow::ensure!(
        output.status.success(),
        "windlass explain codes failed: {}",
        output.status
    );
    let codes: Vec<serde_json::Value> =
        serde_json::from_slice(&output.stdout).context("the codes are not JSON")?;
    let mut page = FAILURES.to_owned();
    for code in &codes {
        let how = if code["recognised"].is_null() {
            "by how it ends"
        } else {
            "by its words"
        };
        let cells = ["code", "class", "meaning", "remedy"].map(|field| cell(&code[field]));
        let [code, class, meaning, remedy] = cells;
        page.push_str(&format!(
            "| `{code}` | {class} | {meaning} | {remedy} | {how} |\n"
        ));
    }
    page.push_str(&made(&codes)?);
    Ok(page)
}

fn cell(value: &serde_json::Value) -> String {
    text(value).replace('|', "\\|")
}

/// Which of the codes tests make for real, and why the others are not made.
fn made(codes: &[serde_json::Value]) -> anyhow::Result<String> {
    let of_hosts = codes.iter().filter(|code| !code["made"].is_null());
    let (made, not): (Vec<_>, Vec<_>) = of_hosts.partition(|code| code["made"]["not"].is_null());
    anyhow::ensure!(
        made.len() >= LEAST_MADE,
        "only {} kinds of failures are made for real",
        made.len()
    );
    let mut page = format!(
        "\n## Faults that are made for real\n\nOf {} kinds that go wrong on hosts or while Ansible works there, tests make {} on hosts, with real programs that say what is\n\
         wrong, and each must be told by its code. The table is the one that the code has: a test fails where a kind is not in it, and the tests\n\
         that are named fail unless they make exactly these.\n\n| code | fault | made by |\n|---|---|---|\n",
        made.len() + not.len(),
        made.len()
    );
    for code in made {
        let [name, fault, by] =
            [&code["code"], &code["made"]["fault"], &code["made"]["by"]].map(cell);
        page.push_str(&format!("| `{name}` | {fault} | `{by}` |\n"));
    }
    page.push_str("\nThe others are recognised, and not made:\n\n| code | why not |\n|---|---|\n");
    for code in not {
        let [name, why] = [&code["code"], &code["made"]["not"]].map(cell);
        page.push_str(&format!("| `{name}` | {why} |\n"));
    }
    Ok(page)
}

/// So many kinds of faults are to be made.
const LEAST_MADE: usize = 25;

const FAILURES: &str = "\
# Failures

Generated by `cargo xtask generate` from the table that Windlass recognises failures by.

A run that fails says with which code: in `windlass status`, in the status of the Run and its Cluster, and in Events.

```console
windlass -n my-cluster explain failure                  # the run at work, else the newest: what led to it, what to do, the log
windlass -n my-cluster explain failure first-create-1   # that run
windlass explain failure DiskFull                       # what a code means
windlass explain codes                                  # this table, also without a network: --output json
```

What fails last is often what something else led to. `explain` looks for that: for a task of the same step that failed before and was
ignored or tried again, then for a step that failed before and was skipped, or an earlier attempt. It is told first, then what came of
it, then the log at the task that failed, and last where the whole log is and what comes next. Of several hosts the one is told
whose failure is a cause by itself. After a failure whose words leave it open, Windlass looks at the host: which file system is full
and of what, bytes or inodes; whether a certificate has expired or a clock is wrong; whether what
cannot be written lies on a file system that takes no writes.

The class says whose it is: `Transient` may pass and is tried again as often as the step allows, `Permanent` does not pass by
itself, `Config` wants another spec, `External` something else: a host, a network, a registry.

## Remedies

Between a failed attempt and the next one, Windlass does on the host that the failure's code comes from what `spec.remedies` of the Cluster
lists, and nothing else. It is the first host of the failure: others that failed in the same step may have failed of something else, and
nothing is done there. Where more than 50 hosts have failed, the trouble is none of a host, and nothing is done at all.

```yaml
spec:
  remedies: [WaitForPackageLock, ClearCaches]    # default: [WaitForPackageLock]; [] allows nothing
```

| remedy | after | what it does |
|---|---|---|
| `WaitForPackageLock` | `PackageManagerLocked` | waits until nobody holds the lock of apt, dpkg, dnf or rpm, 15 minutes at most, and says who held it. It is the default because it changes nothing |
| `ClearCaches` | `DiskFull` | where less than a tenth of the file system is left that holds them: `apt-get clean`, `dnf clean packages` (`yum` likewise). It says how much came free and where |
| `PruneImages` | `DiskFull` | likewise `crictl rmi --prune`, which removes container images that no container uses. Images that were pulled for later steps go too: not where they cannot be pulled again, as without a network |

A host gets each remedy once for a step, until a person has the step tried again. Where it helped, the step is tried again at once, which
uses up no retry, three times at most; after that, or where it did not help, everything is as without it. `windlass plan` shows what may be
done, the Run's history (`remedies`) and an Event (`RemedyApplied`) what was, and `windlass explain failure` both. Hooks and steps that are
no plays have no remedies.

What restarts a service, ends a process or takes a lock away is no remedy here: nobody but you knows what relies on it. Nor is the
directory that kubespray downloads to: steps to come copy from there.

## Codes

| code | class | what happened | what to do | recognised |
|---|---|---|---|---|
";

fn help(program: &Path, command: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program)
        .args(command)
        .arg("--help")
        .env_clear()
        .env("COLUMNS", "100")
        .output()
        .context("failed to start windlass")?;
    anyhow::ensure!(
        output.status.success(),
        "windlass --help failed: {}",
        output.status
    );
    let help = String::from_utf8(output.stdout).context("the help is not UTF-8")?;
    let lines: Vec<_> = help.lines().map(str::trim_end).collect();
    Ok(lines.join("\n") + "\n")
}

/// The names under `Commands:`.
fn commands(help: &str) -> Vec<String> {
    help.lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        // What a command is for may take a second line, which is indented further.
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !matches!(*name, "" | "help"))
        .map(str::to_owned)
        .collect()
}
