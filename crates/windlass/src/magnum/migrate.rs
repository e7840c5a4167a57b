//! `windlass magnum migrate`: brings what another Magnum has in its database.
//!
//! It is read whole, compared with what is there, and told; with `--apply` what is missing is written, and all is compared once more.

use std::{fs::File, io::Read as _, path::Path};

use anyhow::{Context, ensure};
use api::text::plain;
use kube::ResourceExt;
use magnum::migration::{
    Authorities, Carried, Directory, Outcome, carried,
    database::{self, Address, Way},
    rows::{Release, Table as Kind, Tables},
    there::{Compared, Standing, There},
};

use super::defined;
use crate::{
    cli::{Global, Migrate},
    terminal::{say, table},
};

/// Where the address is where no file has it.
const VARIABLE: &str = "MAGNUM_DATABASE";
/// The longest file with an address.
const LONGEST: u64 = 65_536;

/// Says what comes and what does not, and has it come.
pub(super) async fn migrate(global: &Global, options: &Migrate) -> anyhow::Result<()> {
    let address = address(options)?;
    let client = global.client().await?;
    defined(&client).await?;
    let there = There::new(client);
    there.keeps_imported().await?;
    let (release, tables) = database::read(&address)
        .await
        .context("failed to read the database of Magnum")?;
    let directory = options.certificates.clone().map(Directory);
    let wanted = carried(&tables, &Authorities::new(&tables, directory.as_ref()));
    let compared = there.compare(&wanted).await?;
    told(release, &tables, &wanted, &compared);
    let refused = refused(&wanted);
    if !options.apply {
        say!("\nNothing was written: say --apply.");
        return Ok(());
    }
    ensure!(
        refused == 0 || options.skip_refused,
        "nothing was written: {refused} rows cannot be carried over, as told above; mend them, or leave them out by --skip-refused"
    );
    there.apply(&wanted, &compared).await?;
    verified(&there.compare(&wanted).await?)
}

/// Its file, or the variable: never an argument, which everybody on the machine can read.
fn address(options: &Migrate) -> anyhow::Result<Address> {
    let text = match &options.database {
        Some(file) => of_file(file)?,
        None => std::env::var(VARIABLE).ok().with_context(|| {
            format!("it is not said where the database is: give --database FILE, or set {VARIABLE}")
        })?,
    };
    let way = if options.plaintext {
        Way::Plaintext
    } else {
        Way::Local
    };
    Ok(Address::parse(&text, way)?)
}

fn of_file(file: &Path) -> anyhow::Result<String> {
    let told = file.display();
    // It is not repeated: a password may be in it.
    ensure!(
        !told.to_string().contains("://"),
        "--database is the name of a file with the address of the database, not the address: an argument is in the list of processes, \
         so change the password, if one was given"
    );
    let mut text = String::new();
    let read = File::open(file).and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text));
    let length =
        read.with_context(|| format!("failed to read the address of the database in {told}"))?;
    let fits = u64::try_from(length).is_ok_and(|length| length <= LONGEST);
    ensure!(fits, "{told} is no address of a database");
    Ok(text)
}

fn refused(wanted: &Carried) -> usize {
    let rows = wanted.findings.iter();
    let refused = rows.filter(|finding| finding.outcome == Outcome::Refused);
    let mut rows: Vec<_> = refused
        .map(|finding| (finding.table, &finding.row))
        .collect();
    rows.sort_unstable();
    rows.dedup();
    rows.len()
}

fn told(release: Release, tables: &Tables, wanted: &Carried, compared: &Compared) {
    say!("The database is of {}.\n", release.word());
    let rows = [
        (Kind::Templates, &compared.templates),
        (Kind::Clusters, &compared.clusters),
        (Kind::Quotas, &compared.quotas),
    ];
    let rows = rows.map(|(kind, standings)| {
        let count = |is: fn(&Standing) -> bool| {
            let count = standings.iter().filter(|standing| is(standing)).count();
            count.to_string()
        };
        [
            kind.name().to_owned(),
            tables.rows(kind).len().to_string(),
            count(|standing| *standing == Standing::New),
            count(|standing| *standing == Standing::Undone),
            count(|standing| *standing == Standing::Same || is_ours(standing)),
            count(|standing| matches!(standing, Standing::Differs(_))),
        ]
    });
    let header = ["TABLE", "ROWS", "NEW", "UNDONE", "THERE", "DIFFERENT"];
    say!("{}", table(header, rows));
    let groups = wanted.clusters.iter();
    let groups: usize = groups.map(|cluster| cluster.spec.node_groups.len()).sum();
    let keys: usize = wanted.authorities.values().map(Vec::len).sum();
    say!(
        "\nWith the clusters come {groups} of {} node groups and {keys} authorities.",
        tables.rows(Kind::NodeGroups).len()
    );
    for finding in &wanted.findings {
        say!("{finding}");
    }
    for line in differences(wanted, compared) {
        say!("{line}");
    }
}

const fn is_ours(standing: &Standing) -> bool {
    matches!(standing, Standing::Ours(_))
}

/// What is there already and says something else, or is not of that Magnum.
fn differences(wanted: &Carried, compared: &Compared) -> Vec<String> {
    let quotas = wanted.quotas.iter().zip(&compared.quotas);
    let quotas =
        quotas.map(|(quota, standing)| (Kind::Quotas, quota.spec.project_id.clone(), standing));
    let templates = wanted.templates.iter().zip(&compared.templates);
    let templates =
        templates.map(|(object, standing)| (Kind::Templates, object.name_any(), standing));
    let clusters = wanted.clusters.iter().zip(&compared.clusters);
    let clusters = clusters.map(|(object, standing)| (Kind::Clusters, object.name_any(), standing));
    let all = quotas.chain(templates).chain(clusters);
    all.filter_map(|(kind, name, standing)| {
        let (name, kind) = (plain(&name, 80), kind.name());
        match standing {
            Standing::Differs(fields) => Some(format!(
                "left as it is: {kind} {name} is there and says something else: {}",
                fields.join(", ")
            )),
            Standing::Ours(fields) if fields.is_empty() => None,
            Standing::Ours(fields) => Some(format!(
                "left as it is: {kind} {name} is made by Windlass and says something else: {}",
                fields.join(", ")
            )),
            Standing::New | Standing::Undone | Standing::Same => None,
        }
    })
    .collect()
}

/// Whether all is there now.
fn verified(compared: &Compared) -> anyhow::Result<()> {
    let all = [&compared.quotas, &compared.templates, &compared.clusters];
    let all = || all.iter().copied().flatten();
    let open = all().filter(|standing| matches!(standing, Standing::New | Standing::Undone));
    let open = open.count();
    ensure!(
        open == 0,
        "{open} objects are not there as they were written: somebody else changes them; migrate again"
    );
    let same = all().filter(|standing| matches!(standing, Standing::Same | Standing::Ours(_)));
    say!(
        "\nVerified: {} objects are there as the database has them.",
        same.count()
    );
    // Those of Windlass are none of them: it would take their clusters away to have them deleted.
    let others = all().filter(|standing| matches!(standing, Standing::Differs(_)));
    let others = others.count();
    ensure!(
        others == 0,
        "{others} objects are there and say something else, as told above; delete those that are to come from the database, and migrate again"
    );
    Ok(())
}

#[cfg(test)]
mod tests;
