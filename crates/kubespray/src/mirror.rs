//! What the hosts of a cluster will ask a network for, and where: the list of kubespray's role `download` with the cluster's own
//! variables, as [`ansible::downloads`] has it evaluated.
//!
//! Variables may tell hosts to ask a mirror. Then the same list without these variables says where everything is from, and the two
//! belong together by the names that the release has for them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use ansible::{
    downloads::{self, Answer, Architecture, Download, Question, RegistryMirror},
    inventory::{self, Directories, Inventory},
};
use api::run::{Failure, FailureClass};
use mirror::{Checksum, Endpoint, File, Image, ImageName, List, Place, check::Finding};
use serde_json::{Map, Value, json};

use crate::{chain, inputs::Inputs, runner::failure, variables};

/// Whose list is wanted.
#[derive(Clone, Debug)]
pub struct Asking<'a> {
    /// The cluster.
    pub inputs: &'a Inputs,
    /// Its playbooks.
    pub checkout: &'a Path,
    /// The ansible-playbook of their environment.
    pub ansible_playbook: PathBuf,
    /// The architectures of its hosts.
    pub processors: Processors,
}

/// What is known of the processors of hosts.
#[derive(Clone, Debug, Default)]
pub struct Processors {
    /// What is known of each.
    known: BTreeMap<String, Architecture>,
    /// What all others may be.
    others: BTreeSet<Architecture>,
}

impl Processors {
    /// All hosts may have each of these; none: they are amd64.
    pub fn of_all(architectures: impl IntoIterator<Item = Architecture>) -> Self {
        Self {
            known: BTreeMap::new(),
            others: architectures.into_iter().collect(),
        }
    }

    /// As the hosts' facts have it, which runs leave in a directory. One that nobody has asked yet counts as amd64.
    pub fn of_facts(inputs: &Inputs, facts: &Path) -> Self {
        let known = inputs.hosts.iter().filter_map(|host| {
            let name = host.name.parse::<api::HostName>().ok()?;
            let facts = fs::read(facts.join(name.as_str())).ok()?;
            let facts: Value = serde_json::from_slice(&facts).ok()?;
            let machine = facts["ansible_architecture"].as_str()?;
            Some((host.name.clone(), Architecture::named(machine)?))
        });
        Self {
            known: known.collect(),
            others: BTreeSet::new(),
        }
    }

    fn each(&self) -> Vec<Architecture> {
        if self.others.is_empty() {
            return vec![Architecture::default()];
        }
        self.others.iter().copied().collect()
    }
}

/// What hosts ask for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The files and images.
    pub list: List,
    /// What the playbooks have on their hosts already, and ask nobody for.
    pub brought: BTreeSet<String>,
    /// Whether it is known which registries are asked for images: by containerd it is.
    pub engine: String,
}

/// Why it is not known.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The inventory does not compile.
    #[error("compile the inventory: {0}")]
    Inventory(String),
    /// The list cannot be evaluated.
    #[error(transparent)]
    Downloads(#[from] downloads::Error),
    /// Entries of the list cannot be mirrored.
    #[error("read what the release downloads: {}", .0.join("; "))]
    Entries(Vec<String>),
}

/// What hosts will ask for, from where it is, and where they will ask. Starts Ansible, and touches no host.
///
/// # Errors
///
/// The playbooks' list cannot be evaluated, or entries of it name nothing that can be mirrored: all of them are told.
pub async fn wanted(asking: &Asking<'_>) -> Result<Wanted, Error> {
    let input = asking
        .inputs
        .to_inventory(Directories::default(), None, &[]);
    let inventory = inventory::compile(&input).map_err(|errors| {
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        Error::Inventory(texts.join(". "))
    })?;
    let told = (inventory.document(), known(&inventory, asking.inputs));
    let upstream = (
        hosts_without_places(told.0.clone()),
        without_places(&told.1),
    );
    let mut collected = Collected::default();
    for hosts in rounds(asking) {
        let ask = async |(inventory, variables): &(Value, Map<String, Value>)| {
            let question = Question {
                ansible_playbook: asking.ansible_playbook.clone(),
                checkout: asking.checkout.to_owned(),
                inventory: inventory.clone(),
                variables: variables.clone(),
                hosts: hosts.clone(),
            };
            downloads::evaluate(&question).await
        };
        let asked = ask(&told).await?;
        let from = if upstream == told {
            asked.clone()
        } else {
            ask(&upstream).await?
        };
        let architectures = hosts.values().map(|one| one.name().to_owned());
        collected.architectures.extend(architectures);
        for (host, asked) in &asked {
            collected.add(asked, from.get(host).unwrap_or(asked));
        }
    }
    collected.finish()
}

/// The variables, with something in the place of what stands in Secrets: it may be asked for, and must not fail for it.
fn known(inventory: &Inventory, inputs: &Inputs) -> Map<String, Value> {
    let mut variables = inventory.extra_vars().clone();
    for (name, value) in &inputs.variables {
        if variables::holds_reference(value) {
            let hidden = variables::hidden(value);
            variables.insert(name.clone(), hidden);
        }
    }
    variables
}

/// The names by which sites, registries and mirrors are told.
const PLACES: [&str; 3] = ["files_repo", "registry_host", "registry_addr"];

/// The variables without those that lead to a mirror: texts that name `files_repo` or `registry_host`, and these themselves.
fn without_places(variables: &Map<String, Value>) -> Map<String, Value> {
    let mut left = variables.clone();
    left.retain(|name, value| {
        let names_a_place = |text: &str| {
            let mut words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            words.any(|word| PLACES.contains(&word))
        };
        let leads = value.as_str().is_some_and(names_a_place);
        !leads && !PLACES.contains(&name.as_str()) && name != "containerd_registries_mirrors"
    });
    left
}

/// An inventory whose hosts have no variables of their own that lead to a mirror.
fn hosts_without_places(mut inventory: Value) -> Value {
    let hosts = inventory["all"]["hosts"].as_object_mut();
    for of_one in hosts.into_iter().flat_map(Map::values_mut) {
        if let Value::Object(of_one) = of_one {
            *of_one = without_places(of_one);
        }
    }
    inventory
}

/// The hosts to ask about, one of each kind, for each architecture that they may have.
fn rounds(asking: &Asking<'_>) -> Vec<BTreeMap<String, Architecture>> {
    let mut rounds = Vec::new();
    for other in asking.processors.each() {
        let mut kinds = BTreeSet::new();
        let mut round = BTreeMap::new();
        for host in &asking.inputs.hosts {
            if host.roles == [api::node::Role::Bastion] {
                continue;
            }
            let known = asking.processors.known.get(&host.name).copied();
            let architecture = known.unwrap_or(other);
            let own = json!(host.variables.other).to_string();
            if kinds.insert((host.roles.clone(), own, architecture)) {
                round.insert(host.name.clone(), architecture);
            }
        }
        rounds.push(round);
    }
    rounds
}

#[derive(Default)]
struct Collected {
    files: BTreeMap<Place, File>,
    images: BTreeMap<ImageName, Image>,
    architectures: BTreeSet<String>,
    brought: BTreeSet<String>,
    engine: String,
    wrong: BTreeSet<String>,
}

impl Collected {
    fn add(&mut self, asked: &Answer, from: &Answer) {
        self.engine.clone_from(&asked.engine);
        for (name, download) in asked.wanted() {
            let origin = from.downloads.get(name).unwrap_or(download);
            let added = if download.container {
                let told = (
                    text(&download.repo, &download.tag),
                    text(&origin.repo, &origin.tag),
                );
                self.image(name, told, origin, &asked.mirrors)
            } else {
                self.file(name, address(download), origin)
            };
            self.note(name, added);
        }
        let (Some(asked_kubeadm), Some(from)) = (&asked.kubeadm, &from.kubeadm) else {
            return;
        };
        for program in CONTROL_PLANE {
            let name = |kubeadm: &downloads::Kubeadm| {
                format!("{}/{program}:{}", kubeadm.repository, kubeadm.version)
            };
            let told = (name(asked_kubeadm), name(from));
            let added = self.image(program, told, &Download::default(), &asked.mirrors);
            self.note(program, added);
        }
        if !from.etcd.is_empty() {
            let told = (asked_kubeadm.etcd.clone(), from.etcd.clone());
            let added = self.image("etcd", told, &Download::default(), &asked.mirrors);
            self.note("etcd", added);
        }
    }

    fn note(&mut self, name: &str, added: Result<(), String>) {
        if let Err(why) = added {
            self.wrong
                .insert(api::text::plain(&format!("{name}: {why}"), 400));
        }
    }

    fn file(&mut self, name: &str, asked: &str, origin: &Download) -> Result<(), String> {
        let url = address(origin);
        if url.is_empty() {
            self.brought.insert(name.to_owned());
            return Ok(());
        }
        let place = Place::of_url(url).map_err(|error| error.to_string())?;
        let checksum = checksum(origin)?;
        if let Some(other) = self.files.get_mut(&place) {
            if other.checksum != checksum {
                return Err(format!(
                    "{place} is to be two different files: {}",
                    other.name
                ));
            }
            other.asked.insert(asked.to_owned());
            return Ok(());
        }
        let file = File {
            name: name.to_owned(),
            url: url.to_owned(),
            place: place.clone(),
            checksum,
            asked: BTreeSet::from([asked.to_owned()]),
        };
        self.files.insert(place, file);
        Ok(())
    }

    fn image(
        &mut self,
        name: &str,
        (asked, from): (String, String),
        origin: &Download,
        mirrors: &[RegistryMirror],
    ) -> Result<(), String> {
        let parsed = |text: &str| text.parse::<ImageName>().map_err(|error| error.to_string());
        let (asked, image) = (parsed(&asked)?, parsed(&from)?);
        let digest = checksum(origin)?.map(|checksum| checksum.to_string());
        let same = |other: &&ImageName| {
            (&other.repository, &other.tag) == (&image.repository, &image.tag) && **other != image
        };
        if let Some(other) = self.images.keys().find(same) {
            return Err(format!(
                "{image} and {other} would have one name in the mirror"
            ));
        }
        let wanted = self.images.entry(image.clone()).or_insert_with(|| Image {
            name: name.to_owned(),
            image,
            digest,
            architectures: BTreeSet::new(),
            asked: BTreeSet::new(),
        });
        wanted.asked.insert(endpoints(&asked, mirrors));
        Ok(())
    }

    fn finish(self) -> Result<Wanted, Error> {
        if !self.wrong.is_empty() {
            return Err(Error::Entries(self.wrong.into_iter().collect()));
        }
        let mut images: Vec<_> = self.images.into_values().collect();
        for image in &mut images {
            // A pod may come to any node, whichever hosts fetch its image beforehand.
            image.architectures.clone_from(&self.architectures);
        }
        Ok(Wanted {
            list: List {
                files: self.files.into_values().collect(),
                images,
            },
            brought: self.brought,
            engine: self.engine,
        })
    }
}

/// The images that kubeadm names where etcd is not its own, but for pause and CoreDNS, which the role has itself.
const CONTROL_PLANE: [&str; 4] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
];

fn text(repo: &str, tag: &str) -> String {
    format!("{repo}:{tag}")
}

fn address(download: &Download) -> &str {
    let mirrors = download.mirrors.first().map_or("", String::as_str);
    if download.url.is_empty() {
        mirrors
    } else {
        &download.url
    }
}

fn checksum(download: &Download) -> Result<Option<Checksum>, String> {
    let told = if download.checksum.is_empty() {
        &download.sha256
    } else {
        &download.checksum
    };
    if told.is_empty() {
        return Ok(None);
    }
    told.parse()
        .map(Some)
        .map_err(|error: mirror::InvalidName| {
            format!("{error}: the release has none for this version and architecture")
        })
}

/// The registries that containerd asks for an image.
fn endpoints(image: &ImageName, mirrors: &[RegistryMirror]) -> Vec<Endpoint> {
    let of_registry = mirrors.iter().filter(|one| one.prefix == image.registry);
    let mirrored: Vec<_> = of_registry
        .flat_map(|one| &one.mirrors)
        .filter_map(|host| {
            let (scheme, rest) = host.host.split_once("://").unwrap_or(("https", &host.host));
            let (registry, path) = rest.split_once('/').unwrap_or((rest, ""));
            let path = path.trim_matches('/');
            let path = path.strip_prefix("v2").unwrap_or(path).trim_matches('/');
            (!registry.is_empty()).then(|| Endpoint {
                registry: registry.to_owned(),
                clear: scheme == "http",
                unverified: host.skip_verify,
                repository: match path {
                    "" => image.repository.clone(),
                    path => format!("{path}/{}", image.repository),
                },
            })
        })
        .collect();
    if mirrored.is_empty() {
        vec![Endpoint::of(image)]
    } else {
        mirrored
    }
}

/// What `extraVars` are to say, for hosts to ask one mirror for all of it, and what of it no variable of a site leads there.
pub fn settings(list: &List, files: &str, registry: &str) -> Map<String, Value> {
    let hosts: BTreeSet<&str> = list
        .files
        .iter()
        .filter_map(|file| file.place.as_str().split('/').next())
        .collect();
    let mut settings = Map::new();
    settings.insert("files_repo".to_owned(), files.into());
    for (site, variable) in SITES {
        if hosts.contains(site) {
            let value = format!("{{{{ files_repo }}}}/{site}");
            settings.insert(variable.to_owned(), value.into());
        }
    }
    let registries: BTreeSet<&str> = list
        .images
        .iter()
        .map(|image| image.image.registry.as_str())
        .collect();
    if !registries.is_empty() {
        let mirrors = registries.into_iter().map(|prefix| {
            let mut host = json!({"host": registry, "capabilities": ["pull", "resolve"]});
            // containerd wants the word where there is no TLS; where there is, its certificate is to be verified.
            if registry.starts_with("http://") {
                host["skip_verify"] = true.into();
            }
            json!({"prefix": prefix, "mirrors": [host]})
        });
        settings.insert(
            "containerd_registries_mirrors".to_owned(),
            mirrors.collect(),
        );
    }
    settings
}

/// The sites that kubespray has a variable for, since 2.25.
///
/// # Source
/// `roles/kubespray_defaults/defaults/main/download.yml` of 2.31.0, and of each release since 2.25.0.
const SITES: [(&str, &str); 4] = [
    ("dl.k8s.io", "dl_k8s_io_url"),
    ("get.helm.sh", "get_helm_url"),
    ("github.com", "github_url"),
    ("storage.googleapis.com", "storage_googleapis_url"),
];

/// The code of the failure when something is not where hosts will ask for it.
pub const INCOMPLETE: &str = "MirrorIncomplete";

/// What of a list is not where hosts will ask for it; where the container engine is not containerd, files alone are looked at.
///
/// # Errors
///
/// There is no client for the network.
pub async fn missing(wanted: &Wanted) -> Result<Vec<Finding>, mirror::fetch::Error> {
    let mut list = wanted.list.clone();
    if wanted.engine != "containerd" {
        list.images.clear();
    }
    let mut findings = Vec::new();
    for file in &mut list.files {
        let many = file.asked.len();
        file.asked.retain(|at| !at.contains(variables::HIDDEN));
        if file.asked.len() < many {
            findings.push(Finding::unproved(
                &file.name,
                "its address stands in a Secret",
            ));
        }
    }
    findings.extend(mirror::check::asked(&list).await?);
    Ok(findings)
}

/// What is to be said of what is missing. None: nothing that counts is.
pub fn complaint(findings: &[Finding]) -> Option<String> {
    let fatal: Vec<String> = findings
        .iter()
        .filter(|finding| finding.is_fatal())
        .map(ToString::to_string)
        .collect();
    let many = fatal.len();
    let thing = if many == 1 { "thing is" } else { "things are" };
    (many > 0).then(|| {
        format!(
            "{many} {thing} not where hosts will ask: {}",
            fatal.join("; ")
        )
    })
}

/// What to do about it.
pub const REMEDY: &str =
    "windlass mirror check names each; windlass mirror fetch brings what is missing";

/// Looks before a run has hosts fetch anything.
///
/// # Errors
///
/// The list cannot be made, or something is missing.
pub(crate) async fn look(asking: &Asking<'_>) -> Result<usize, Failure> {
    let wanted = wanted(asking).await.map_err(|error| {
        failure(
            FailureClass::Config,
            "MirrorUnknown",
            format!("what hosts will ask the mirror for is not known: {}", chain(&error)),
            Some("correct spec.nodes.all.deploy.extraVars, or set spec.kubespray.mirror.check to Never"),
        )
    })?;
    let findings = missing(&wanted).await.map_err(|error| {
        failure(
            FailureClass::External,
            INCOMPLETE,
            chain(&error),
            Some(REMEDY),
        )
    })?;
    match complaint(&findings) {
        None => Ok(wanted
            .list
            .files
            .len()
            .saturating_add(wanted.list.images.len())),
        Some(missing) => Err(failure(
            FailureClass::External,
            INCOMPLETE,
            missing,
            Some(REMEDY),
        )),
    }
}

/// The failure of a look that does not end.
pub(crate) fn too_slow(limit: Duration) -> Failure {
    let message = format!(
        "the mirror was not looked through within {} min: it answers slowly, or a template of the release's list does not end",
        limit.as_secs() / 60
    );
    failure(FailureClass::Transient, INCOMPLETE, message, Some(REMEDY))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(url: &str, checksum: &str) -> Download {
        Download {
            enabled: true,
            url: url.to_owned(),
            checksum: checksum.to_owned(),
            groups: vec!["k8s_cluster".to_owned()],
            ..Download::default()
        }
    }

    fn answer(downloads: &[(&str, Download)]) -> Answer {
        Answer {
            groups: vec!["k8s_cluster".to_owned()],
            downloads: downloads
                .iter()
                .map(|(name, download)| ((*name).to_owned(), download.clone()))
                .collect(),
            ..Answer::default()
        }
    }

    #[test]
    fn entries_that_cannot_be_mirrored_are_all_named() {
        let bad = answer(&[
            ("outside", entry("https://github.com/../../etc/passwd", "")),
            ("query", entry("https://github.com/a?b", "")),
            ("sum", entry("https://github.com/a/b", "0")),
            ("good", entry("https://github.com/a/c", "")),
            ("brought", entry("", "built-from-source")),
        ]);
        let mut collected = Collected::default();
        collected.add(&bad, &bad);
        let Err(Error::Entries(wrong)) = collected.finish() else {
            panic!("they are refused");
        };
        let names: Vec<_> = wrong
            .iter()
            .filter_map(|one| one.split(':').next())
            .collect();
        assert_eq!(names, ["outside", "query", "sum"], "{wrong:?}");
    }

    #[test]
    fn variables_that_lead_to_a_mirror_are_known() {
        let Value::Object(variables) = json!({
            "files_repo": "http://10.0.0.1", "github_url": "{{ files_repo }}/github.com",
            "kube_image_repo": "{{registry_host}}", "my_files_repository": "stays",
            "kube_network_plugin": "flannel", "containerd_registries_mirrors": [],
            "downloads": {"x": {"url": "{{ files_repo }}/x"}},
        }) else {
            panic!("an object");
        };
        let left = without_places(&variables);
        let names: Vec<_> = left.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            ["my_files_repository", "kube_network_plugin", "downloads"]
        );
    }

    #[test]
    fn hosts_of_several_sites_ask_at_each() {
        let at = |site: &str| {
            answer(&[
                ("file", entry(&format!("{site}/a"), "")),
                (
                    "image",
                    Download {
                        container: true,
                        repo: format!("{}/pause", site.trim_start_matches("https://")),
                        tag: "1".to_owned(),
                        ..entry("", "")
                    },
                ),
            ])
        };
        let mut collected = Collected::default();
        for site in ["https://one.example", "https://two.example"] {
            collected.add(&at(site), &at("https://up.example"));
        }
        let list = collected.finish().unwrap().list;
        let (file, image) = (&list.files[0], &list.images[0]);
        assert_eq!(
            Vec::from_iter(&file.asked),
            ["https://one.example/a", "https://two.example/a"]
        );
        let registries = image.asked.iter().flatten();
        let registries: Vec<_> = registries.map(|one| one.registry.as_str()).collect();
        assert_eq!(registries, ["one.example", "two.example"]);
        assert_eq!((list.files.len(), list.images.len()), (1, 1));

        // What hosts are told by their own variables is no origin.
        let inventory = json!({"all": {"hosts": {
            "a": {"files_repo": "http://10.0.0.1", "github_url": "{{ files_repo }}/github.com", "ip": "10.0.0.11"},
        }}});
        let left = hosts_without_places(inventory);
        assert_eq!(left["all"]["hosts"]["a"], json!({"ip": "10.0.0.11"}));
    }

    #[test]
    fn containerd_asks_the_mirrors_of_a_registry() {
        let image: ImageName = "quay.io/calico/node:v3".parse().unwrap();
        let mirror = |host: &str| downloads::MirrorHost {
            host: host.to_owned(),
            skip_verify: true,
        };
        let mirrors = [RegistryMirror {
            prefix: "quay.io".to_owned(),
            mirrors: vec![mirror("http://10.0.0.1:5000"), mirror("https://h/v2/p")],
        }];
        let asked = endpoints(&image, &mirrors);
        let shown: Vec<_> = asked
            .iter()
            .map(|one| (one.registry.as_str(), one.clear, one.repository.as_str()))
            .collect();
        assert_eq!(
            shown,
            [
                ("10.0.0.1:5000", true, "calico/node"),
                ("h", false, "p/calico/node")
            ]
        );
        assert_eq!(endpoints(&image, &[])[0].registry, "quay.io");
    }
}
