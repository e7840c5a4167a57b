//! Rows of Magnum's tables, and what is read of them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use uuid::Uuid;

use super::{Finding, Outcome};

/// A table of which something is carried over.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Table {
    /// Cluster templates.
    Templates,
    /// Clusters.
    Clusters,
    /// Their node groups.
    NodeGroups,
    /// Quotas.
    Quotas,
    /// Keys and certificates, where Magnum keeps them in its database.
    KeyPairs,
    /// Federations, which nothing ever made.
    Federations,
}

impl Table {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Templates,
        Self::Clusters,
        Self::NodeGroups,
        Self::Quotas,
        Self::KeyPairs,
        Self::Federations,
    ];

    /// Its name in the database.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Templates => "cluster_template",
            Self::Clusters => "cluster",
            Self::NodeGroups => "nodegroup",
            Self::Quotas => "quotas",
            Self::KeyPairs => "x509keypair",
            Self::Federations => "federation",
        }
    }

    /// The columns that are read. What is not named here is not read: of clusters that are ids of trusts and passwords of trustees.
    pub fn columns(self, release: Release) -> Vec<&'static str> {
        let columns: &[&str] = match self {
            Self::Templates => TEMPLATE,
            Self::Clusters => CLUSTER,
            Self::NodeGroups => NODE_GROUP,
            Self::Quotas => QUOTA,
            Self::KeyPairs => KEY_PAIR,
            Self::Federations => &["id", "uuid"],
        };
        let mut columns = columns.to_vec();
        if self == Self::NodeGroups && release == Release::V23 {
            columns.extend(["node_labels", "node_taints"]);
        }
        columns
    }
}

/// What the schema of a database is of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Release {
    /// Magnum 21 and 22.
    V21,
    /// Magnum 23.
    V23,
}

impl Release {
    /// By the revision that Alembic keeps.
    ///
    /// # Source
    /// `magnum/db/sqlalchemy/alembic/versions` of Magnum 21.0.0, 22.0.0 and 23.0.0.
    pub fn of(revision: &str) -> Option<Self> {
        match revision {
            "c0f832afc4fd" => Some(Self::V21),
            "b3e1cf4a2d5e" => Some(Self::V23),
            _ => None,
        }
    }

    /// For people.
    pub const fn word(self) -> &'static str {
        match self {
            Self::V21 => "Magnum 21 or 22",
            Self::V23 => "Magnum 23",
        }
    }
}

/// A row.
#[derive(Clone, Default)]
pub struct Row(BTreeMap<String, Vec<u8>>);

impl Row {
    /// Of its columns; one that is null is not among them.
    pub fn new(cells: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        Self(cells.into_iter().collect())
    }

    /// What a column has.
    pub fn bytes(&self, column: &str) -> Option<&[u8]> {
        self.0.get(column).map(Vec::as_slice)
    }

    /// The same, where it is text.
    pub fn text(&self, column: &str) -> Option<&str> {
        std::str::from_utf8(self.bytes(column)?).ok()
    }
}

/// All rows of a moment.
#[derive(Clone, Default)]
pub struct Tables(pub(super) BTreeMap<Table, Vec<Row>>);

impl Tables {
    /// With these rows in a table.
    #[must_use]
    pub fn with(mut self, table: Table, rows: Vec<Row>) -> Self {
        self.0.insert(table, rows);
        self
    }

    /// The rows of a table.
    pub fn rows(&self, table: Table) -> &[Row] {
        self.0.get(&table).map_or(&[], Vec::as_slice)
    }
}

/// Reads a row; what does not fit is noted, and something is read in its place.
pub(super) struct Reader<'a> {
    table: Table,
    row: &'a Row,
    findings: Vec<Finding>,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(table: Table, row: &'a Row) -> Self {
        Self {
            table,
            row,
            findings: Vec::new(),
        }
    }

    /// The row for people.
    fn told(&self) -> String {
        let cell = |column| self.row.bytes(column).map(String::from_utf8_lossy);
        let id = || cell("id").map(|id| format!("with id {id}"));
        let uuid = cell("uuid").map(std::borrow::Cow::into_owned);
        uuid.or_else(id).unwrap_or_else(|| "without id".to_owned())
    }

    pub(super) fn note(
        &mut self,
        outcome: Outcome,
        field: &'static str,
        value: impl Into<String>,
        rule: impl Into<String>,
        remedy: &'static str,
    ) {
        self.findings.push(Finding {
            outcome,
            table: self.table,
            row: self.told(),
            field,
            value: value.into(),
            rule: rule.into(),
            remedy,
        });
    }

    pub(super) fn refuse(
        &mut self,
        field: &'static str,
        value: impl Into<String>,
        rule: impl Into<String>,
        remedy: &'static str,
    ) {
        self.note(Outcome::Refused, field, value, rule, remedy);
    }

    /// What was read, where all that it needs is there; the findings in any case.
    pub(super) fn finish<T>(self, read: T, findings: &mut Vec<Finding>) -> Option<T> {
        let refused = |finding: &Finding| finding.outcome == Outcome::Refused;
        let is_refused = self.findings.iter().any(refused);
        findings.extend(self.findings);
        (!is_refused).then_some(read)
    }

    /// A text of at most so many characters. An empty one is none.
    pub(super) fn text(&mut self, field: &'static str, most: usize) -> Option<String> {
        let bytes = self.row.bytes(field)?;
        let Ok(text) = std::str::from_utf8(bytes) else {
            self.refuse(field, "not UTF-8", "it has to be text", MEND);
            return None;
        };
        let length = text.chars().count();
        if length > most {
            let rule = format!("it may have {most} characters");
            self.refuse(field, format!("{length} characters long"), rule, MEND);
            return None;
        }
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// A text that has to be there.
    pub(super) fn needed(&mut self, field: &'static str, most: usize) -> String {
        let before = self.findings.len();
        let text = self.text(field, most);
        if text.is_none() && self.findings.len() == before {
            self.refuse(field, "empty", "it has to say something", MEND);
        }
        text.unwrap_or_default()
    }

    /// A UUID, as objects are named by it.
    pub(super) fn uuid(&mut self, field: &'static str) -> String {
        let text = self.needed(field, 255);
        let is_one = Uuid::try_parse(&text).is_ok_and(|uuid| uuid.to_string() == text);
        if !is_one && !text.is_empty() {
            self.refuse(
                field,
                &text,
                "it has to be a UUID in lower case with hyphens",
                MEND,
            );
        }
        text
    }

    /// A number.
    pub(super) fn count(&mut self, field: &'static str, least: u32, most: u32) -> Option<u32> {
        let text = String::from_utf8_lossy(self.row.bytes(field)?).into_owned();
        let count = text.parse().ok();
        let count = count.filter(|count| (least..=most).contains(count));
        if count.is_none() {
            let rule = format!("it has to be a number from {least} to {most}");
            self.refuse(field, text, rule, MEND);
        }
        count
    }

    /// A truth.
    pub(super) fn flag(&mut self, field: &'static str) -> Option<bool> {
        self.count(field, 0, 1).map(|count| count == 1)
    }

    /// One of a few words.
    pub(super) fn word<T: serde::de::DeserializeOwned>(
        &mut self,
        field: &'static str,
        words: &str,
    ) -> Option<T> {
        let text = self.text(field, 255)?;
        let word = serde_json::from_value(Value::String(text.clone())).ok();
        if word.is_none() {
            self.refuse(
                field,
                text,
                format!("it has to be {words}"),
                "make another one of it in Magnum",
            );
        }
        word
    }

    /// A moment, as clients read it.
    pub(super) fn moment(&mut self, field: &'static str) -> Option<String> {
        let text = self.row.text(field)?.replace(' ', "T");
        let moment = format!("{text}Z").parse::<jiff::Timestamp>().ok();
        if moment.is_none() {
            self.note(
                Outcome::Changed,
                field,
                text,
                "it is no moment, and is left out",
                "",
            );
        }
        moment.map(crate::view::moment)
    }

    /// A document. None: there is none, or none that can be read.
    pub(super) fn json(&mut self, field: &'static str) -> Option<Value> {
        let bytes = self.row.bytes(field)?;
        let document = serde_json::from_slice(bytes);
        if document.is_err() {
            let value = format!("{} bytes that are no JSON", bytes.len());
            self.refuse(field, value, "it has to be JSON", MEND);
        }
        document.ok().filter(|document: &Value| !document.is_null())
    }

    /// A map of texts.
    pub(super) fn texts(&mut self, field: &'static str) -> BTreeMap<String, String> {
        let Some(document) = self.json(field) else {
            return BTreeMap::new();
        };
        let Value::Object(entries) = document else {
            self.refuse(field, "no map", "it has to be a map of texts", MEND);
            return BTreeMap::new();
        };
        let many = entries.len();
        if many > MOST_LABELS {
            let rule = format!("it may have {MOST_LABELS} entries");
            self.refuse(field, format!("{many} entries"), rule, SHORTEN);
            return BTreeMap::new();
        }
        let mut texts = BTreeMap::new();
        for (key, value) in entries {
            let text = match value {
                Value::String(text) => text,
                // As Magnum itself writes what clients send as numbers and truths.
                Value::Number(number) => number.to_string(),
                Value::Bool(true) => "True".to_owned(),
                Value::Bool(false) => "False".to_owned(),
                _ => {
                    let value = format!("a map whose {key} is no text");
                    self.refuse(field, value, "it has to be a map of texts", MEND);
                    continue;
                }
            };
            let length = text.chars().count();
            if length > LONGEST_LABEL {
                let value = format!("a map whose {key} has {length} characters");
                let rule = format!("a value may have {LONGEST_LABEL}");
                self.refuse(field, value, rule, SHORTEN);
                continue;
            }
            texts.insert(key, text);
        }
        texts
    }

    /// The same of what is told anew before long: what does not fit is left out, and its row comes.
    pub(super) fn passing_texts(&mut self, field: &'static str) -> BTreeMap<String, String> {
        let before = self.findings.len();
        let texts = self.texts(field);
        for finding in self.findings.iter_mut().skip(before) {
            finding.outcome = Outcome::Changed;
            finding.remedy = "it is left out";
        }
        texts
    }

    /// A list of texts.
    pub(super) fn list(&mut self, field: &'static str, most: usize) -> Vec<String> {
        let Some(document) = self.json(field) else {
            return Vec::new();
        };
        let list: Result<Vec<String>, _> = serde_json::from_value(document);
        let fits = list.ok().filter(|list| list.len() <= most);
        if fits.is_none() {
            let rule = format!("it has to be a list of at most {most} texts");
            self.refuse(field, "something else", rule, MEND);
        }
        fits.unwrap_or_default()
    }
}

/// Of texts of which there may be one of each: those of which there are several, and how many rows have one.
pub(super) fn several<'a>(all: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    all.filter(|text| !seen.insert(*text)).collect()
}

/// What can be done where a row is not what Magnum would write.
const MEND: &str = "mend the row";
/// What can be done where there is too much.
const SHORTEN: &str = "Windlass keeps no more; shorten it in Magnum, or in the row";
/// As the definitions of the kinds have it.
const MOST_LABELS: usize = 256;
/// The same of a value.
const LONGEST_LABEL: usize = 4096;

const TEMPLATE: &[&str] = &[
    "id",
    "uuid",
    "project_id",
    "user_id",
    "name",
    "image_id",
    "flavor_id",
    "master_flavor_id",
    "keypair_id",
    "external_network_id",
    "fixed_network",
    "fixed_subnet",
    "network_driver",
    "volume_driver",
    "dns_nameserver",
    "apiserver_port",
    "docker_volume_size",
    "docker_storage_driver",
    "cluster_distro",
    "coe",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "registry_enabled",
    "labels",
    "tls_disabled",
    "public",
    "server_type",
    "insecure_registry",
    "master_lb_enabled",
    "floating_ip_enabled",
    "hidden",
    "tags",
    "driver",
    "created_at",
    "updated_at",
];

const CLUSTER: &[&str] = &[
    "id",
    "uuid",
    "project_id",
    "user_id",
    "name",
    "cluster_template_id",
    "keypair",
    "docker_volume_size",
    "labels",
    "master_flavor_id",
    "flavor_id",
    "stack_id",
    "api_address",
    "status",
    "status_reason",
    "health_status",
    "health_status_reason",
    "create_timeout",
    "discovery_url",
    "coe_version",
    "container_version",
    "ca_cert_ref",
    "etcd_ca_cert_ref",
    "front_proxy_ca_cert_ref",
    "fixed_network",
    "fixed_subnet",
    "floating_ip_enabled",
    "master_lb_enabled",
    "created_at",
    "updated_at",
];

const NODE_GROUP: &[&str] = &[
    "id",
    "uuid",
    "name",
    "cluster_id",
    "project_id",
    "docker_volume_size",
    "labels",
    "flavor_id",
    "image_id",
    "node_addresses",
    "node_count",
    "role",
    "max_node_count",
    "min_node_count",
    "is_default",
    "stack_id",
    "status",
    "status_reason",
    "version",
    "created_at",
    "updated_at",
];

const QUOTA: &[&str] = &[
    "id",
    "project_id",
    "resource",
    "hard_limit",
    "created_at",
    "updated_at",
];

const KEY_PAIR: &[&str] = &[
    "id",
    "uuid",
    "certificate",
    "private_key",
    "private_key_passphrase",
];
