//! Takes away templates of Cluster API that a revision no longer has, once nothing was made from them and nothing would be.
//!
//! What was made from a template says so in annotations, whatever kind it is. What makes more of it names it: MachineSets, of which one
//! stays for as long as it has Machines, and what makes those. Where that or the MachineSets may not be looked at, the template stays; the
//! other makers make MachineSets, or are kinds that an API or the operator's rights may lack.
//! A ClusterClass is a template as well, of which Clusters name one: see [`classes`].

use std::collections::{BTreeMap, BTreeSet};

use api::inventory::FleetCluster;
use kube::api::ListParams;
use serde_json::Value;

use super::{
    Context, Error,
    apply::{delete, is_unknown},
    live,
    part::{Identity, Part, Parts, holds},
    records,
};

mod classes;

/// Deletes what nothing needs of the templates of former revisions, and says of which revisions some stay.
pub(super) async fn remove(
    cluster: &FleetCluster,
    parts: &Parts,
    former: &[String],
    context: &Context,
) -> Result<BTreeSet<String>, Error> {
    let former = there(cluster, parts, former, context).await?;
    let (classes, templates): (Vec<_>, Vec<_>) = former
        .into_iter()
        .partition(|former| former.part.is_class());
    let mut looked = Looked::default();
    let gone = classes::remove(&mut looked, &classes, &templates, parts, context).await?;
    let mut stay: BTreeSet<_> = classes
        .into_iter()
        .filter(|class| !gone.contains(&class.part.identity()))
        .map(|class| class.revision)
        .collect();
    for template in templates {
        if looked
            .is_needed(&template.part, parts, &gone, context)
            .await?
        {
            stay.insert(template.revision);
        } else {
            delete(&template.part, &template.live, context).await?;
        }
    }
    Ok(stay)
}

/// A template that a former revision has, this one has not, and that is there still.
struct Former {
    revision: String,
    part: Part,
    live: Value,
}

/// The templates of former revisions that are there, and the cluster's own.
async fn there(
    cluster: &FleetCluster,
    parts: &Parts,
    former: &[String],
    context: &Context,
) -> Result<Vec<Former>, Error> {
    let kept: BTreeSet<_> = parts.objects.iter().map(Part::identity).collect();
    let mut there = Vec::new();
    for revision in former {
        let Ok(old) = records::parts(cluster, revision, context) else {
            continue;
        };
        let templates = old.objects.into_iter().filter(Part::is_template);
        for part in templates.filter(|part| !kept.contains(&part.identity())) {
            let live = match live::read_own(&part, cluster, context).await {
                Err(Error::Api(_, error)) if is_unknown(&error) => None,
                live => live?,
            };
            there.extend(live.map(|live| Former {
                revision: revision.clone(),
                part,
                live,
            }));
        }
    }
    Ok(there)
}

/// What was looked at already: the objects of a kind, of one namespace or of all. None: they may not be looked at.
#[derive(Default)]
struct Looked(BTreeMap<(String, String, Option<String>), Option<Vec<Value>>>);

impl Looked {
    /// Whether anything but some classes, which go, needs a template.
    async fn is_needed(
        &mut self,
        template: &Part,
        parts: &Parts,
        without: &BTreeSet<Identity>,
        context: &Context,
    ) -> Result<bool, Error> {
        let mut own = parts.objects.iter();
        if own.any(|part| part.namespace == template.namespace && names(&part.value, template)) {
            return Ok(true);
        }
        let kind = template.kind.trim_end_matches("Template");
        let place = Some(template.namespace.as_str());
        let made = self.at(&template.api_version, kind, place, context).await?;
        // Nobody knows what an API that does not have the kind has made.
        let Some(made) = made else {
            return Ok(true);
        };
        if made.iter().any(|object| is_made_from(object, template)) {
            return Ok(true);
        }
        let Some((_, version)) = parts
            .main()
            .and_then(|main| main.api_version.split_once('/'))
        else {
            return Ok(true);
        };
        for (group, kind) in MAKERS {
            let version = format!("{group}/{version}");
            let goes = |object: &Value| {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let identity = part(&version, kind, place, name).identity();
                without.contains(&identity)
            };
            let needs = |object: &Value| names(object, template) && !goes(object);
            match self.at(&version, kind, place, context).await? {
                Some(makers) if !makers.iter().any(needs) => {}
                Some(_) => return Ok(true),
                None if kind == "MachineSet" => return Ok(true),
                None => {}
            }
        }
        Ok(false)
    }

    /// The objects of a kind, of one namespace or of all.
    async fn at(
        &mut self,
        api_version: &str,
        kind: &str,
        place: Option<&str>,
        context: &Context,
    ) -> Result<Option<&Vec<Value>>, Error> {
        let key = (
            api_version.to_owned(),
            kind.to_owned(),
            place.map(ToOwned::to_owned),
        );
        if !self.0.contains_key(&key) {
            let listed = listed(&part(api_version, kind, place, ""), context).await?;
            self.0.insert(key.clone(), listed);
        }
        Ok(self.0.get(&key).and_then(Option::as_ref))
    }
}

fn part(api_version: &str, kind: &str, place: Option<&str>, name: &str) -> Part {
    Part {
        value: Value::Null,
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: place.unwrap_or_default().to_owned(),
        name: name.to_owned(),
    }
}

/// The objects of a part's kind, in its namespace, or in all if it has none. None: the API does not have the kind, or does not let us.
async fn listed(part: &Part, context: &Context) -> Result<Option<Vec<Value>>, Error> {
    let api = match live::api(part, context).await {
        Err(Error::Api(_, error)) if is_unknown(&error) => return Ok(None),
        api => api?,
    };
    match api.list(&ListParams::default()).await {
        Ok(list) => {
            let objects = list.items.into_iter();
            let objects = objects.map(|object| serde_json::to_value(object).unwrap_or_default());
            Ok(Some(objects.collect()))
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
            tracing::debug!(kind = %part.kind, namespace = %part.namespace, "templates stay: what needs them cannot be listed");
            Ok(None)
        }
        Err(error) => Err(Error::Api(format!("list {} objects", part.kind), error)),
    }
}

/// Whether an object was made from a template, by what Cluster API writes on it.
fn is_made_from(object: &Value, template: &Part) -> bool {
    let annotations = &object["metadata"]["annotations"];
    let group = template.api_version.split('/').next().unwrap_or_default();
    let kind = format!("{}.{group}", template.kind);
    annotations["cluster.x-k8s.io/cloned-from-name"] == template.name
        && annotations["cluster.x-k8s.io/cloned-from-groupkind"]
            .as_str()
            .is_none_or(|known| known == kind)
}

/// Whether an object names a template where references stand. One of another kind with that name counts: to delete less is no harm.
fn names(object: &Value, template: &Part) -> bool {
    holds(&object["spec"], &template.name)
}

/// What makes objects from templates. All but the first are kinds that an API may lack.
const MAKERS: [(&str, &str); 5] = [
    ("cluster.x-k8s.io", "MachineSet"),
    ("cluster.x-k8s.io", "MachineDeployment"),
    ("cluster.x-k8s.io", "MachinePool"),
    ("cluster.x-k8s.io", "ClusterClass"),
    ("controlplane.cluster.x-k8s.io", "KubeadmControlPlane"),
];
