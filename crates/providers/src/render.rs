//! From the manifests of a plan to the objects that are applied. Pure but for what is read for it.

use std::collections::BTreeMap;

use api::{provider::Reason, run::Failure};
use clusterctl::{
    Components, ComponentsError, ImageOverrides, NonCanonical, Object, Provider, Release, Scopes,
    Substitution, Version,
    customize::{Customization, CustomizeError, Notice},
    patch::{self, ManifestPatch, Matched, Matching, PatchError, PatchTarget},
};
use runs::calls::config;
use serde_json::json;

use crate::{inputs::Changes, names::VARIABLES_MARK};

/// Everything that objects are made of.
#[derive(Clone, Debug)]
pub struct Material {
    /// The provider.
    pub provider: Provider,
    /// The version.
    pub version: Version,
    /// The provider's namespace.
    pub namespace: String,
    /// Whether it is installed in the cluster that has its object, and so its namespace.
    pub is_here: bool,
    /// The manifests.
    pub components: String,
    /// Further manifests.
    pub additional: Option<String>,
    /// Values of variables.
    pub variables: BTreeMap<String, String>,
    /// What tells the Secret of these values from what it held before. Nothing of the values can be told from it.
    pub variables_mark: Option<String>,
    /// What is changed in the objects.
    pub changes: Changes,
    /// Whether pods can be told to go on for some seconds when they are to end.
    pub lingers: bool,
}

/// Why manifests do not become objects.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The manifests cannot be read, or a variable has no value.
    #[error("render the manifests")]
    Components(#[source] ComponentsError),
    /// The settings are not those of a Deployment.
    #[error("read the settings of the spec")]
    Settings(#[source] serde_json::Error),
    /// The settings do not fit the manifests.
    #[error("carry out the settings of the spec")]
    Customize(#[source] CustomizeError),
    /// A patch does not fit the manifests.
    #[error("apply the patch {0}")]
    Patch(String, #[source] PatchError),
}

impl RenderError {
    /// As a step tells it, with what to do.
    pub(crate) fn failure(&self) -> Failure {
        let remedy = "mend the manifests or the spec, or give the variables in the Secret of spec.configSecret";
        let code = match self {
            Self::Components(_) => "ComponentsError",
            Self::Settings(_) | Self::Customize(_) => Reason::ComponentsCustomizationError.as_str(),
            Self::Patch(..) => Reason::ComponentsPatchError.as_str(),
        };
        config(code, controller::chain(self), remedy)
    }
}

/// The objects of a release.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    /// In the order in which they are applied.
    pub objects: Vec<Object>,
    /// What of the spec has no effect on them, for people.
    pub notices: Vec<String>,
}

/// Makes the objects.
///
/// # Errors
///
/// The manifests cannot be read, a variable has no value, or what is changed does not fit them.
pub fn render(material: &Material, scopes: &Scopes) -> Result<Rendered, RenderError> {
    let value = |name: &str| material.variables.get(name).map(String::as_str);
    let mut objects = released(material, scopes, &Substitution::With(&value))?;
    let notices = change(&mut objects, material, |_, _| {})?;
    Ok(Rendered { objects, notices })
}

/// The objects as the release has them.
pub(crate) fn released(
    material: &Material,
    scopes: &Scopes,
    substitution: &Substitution<'_>,
) -> Result<Vec<Object>, RenderError> {
    let release = Release {
        provider: &material.provider,
        version: &material.version,
        components: &material.components,
        additional: material.additional.as_deref(),
        target_namespace: Some(&material.namespace),
        images: &ImageOverrides::default(),
        non_canonical: NonCanonical::Keep,
        scopes,
    };
    let components = Components::render(&release, substitution);
    let mut objects = components.map_err(RenderError::Components)?.into_objects();
    if material.is_here {
        // Its object is in it already, and the namespace is not the provider's to change.
        objects.retain(|object| !is_namespace(object));
    }
    Ok(objects)
}

/// How the settings of a spec are called that are carried out at once.
const SETTINGS: &str = "spec.manager, spec.deployment, spec.additionalDeployments";
/// What Windlass adds to every pod by itself.
const LINGERS: &str = "Windlass, so that a pod that ends answers who was sent to it";

/// Settings first and patches then, which have the last word. After each is said what it was, and what the objects are by then.
pub(crate) fn change(
    objects: &mut [Object],
    material: &Material,
    mut seen: impl FnMut(&str, &[Object]),
) -> Result<Vec<String>, RenderError> {
    let Changes {
        manager,
        deployment,
        additional_deployments,
        manifest_patches,
        patches,
    } = &material.changes;
    let settings = json!({
        "manager": manager,
        "deployment": deployment,
        "additionalDeployments": additional_deployments.clone().unwrap_or_default(),
    });
    let customization: Customization =
        serde_json::from_value(settings).map_err(RenderError::Settings)?;
    let notices = customization
        .apply(objects)
        .map_err(RenderError::Customize)?;
    let mut notices: Vec<_> = notices.iter().map(notice).collect();
    seen(SETTINGS, objects);
    if material.lingers {
        clusterctl::linger(objects);
        seen(LINGERS, objects);
    }
    if let Some(mark) = &material.variables_mark {
        clusterctl::mark_pods(objects, VARIABLES_MARK, mark);
    }
    for (at, text) in manifest_patches.iter().flatten().enumerate() {
        let field = format!("spec.manifestPatches[{at}]");
        let patch = ManifestPatch::parse(text);
        let matched = patch.and_then(|patch| patch.apply(objects, Matching::Documented));
        seen(&field, objects);
        matched_some(field, matched, &mut notices)?;
    }
    for (at, patch) in patches.iter().flatten().enumerate() {
        let field = format!("spec.patches[{at}]");
        let target = target(patch.target.clone().unwrap_or_default());
        let text = patch.patch.as_deref().unwrap_or_default();
        let patch = patch::Patch::parse(text, &target);
        let matched = patch.and_then(|patch| patch.apply(objects));
        seen(&field, objects);
        matched_some(field, matched, &mut notices)?;
    }
    Ok(notices)
}

fn matched_some(
    field: String,
    matched: Result<Matched, PatchError>,
    notices: &mut Vec<String>,
) -> Result<(), RenderError> {
    match matched {
        Ok(Matched(0)) => notices.push(format!("{field} is for no object")),
        Ok(_) => {}
        Err(error) => return Err(RenderError::Patch(field, error)),
    }
    Ok(())
}

/// As `clusterctl` has it.
pub(crate) fn target(target: api::provider::PatchTarget) -> PatchTarget {
    let api::provider::PatchTarget {
        group,
        version,
        kind,
        name,
        namespace,
        label_selector,
    } = target;
    PatchTarget {
        group,
        version,
        kind,
        name,
        namespace,
        label_selector,
    }
}

fn notice(notice: &Notice) -> String {
    match notice {
        Notice::NoFlag { field } => format!("{field}: no manager has a flag for it"),
        Notice::NoDeployment { name } => {
            format!("spec.additionalDeployments[{name}]: there is no Deployment of that name")
        }
        Notice::NoProbe { deployment, field } => {
            format!("{field}: Deployment {deployment} has no such probe")
        }
    }
}

/// Whether an object is a definition, or the namespace that others need.
pub fn comes_first(object: &Object) -> bool {
    is_namespace(object) || is_definition(object)
}

/// Whether an object has the API ask a webhook about others.
pub fn is_admission(object: &Object) -> bool {
    object.group() == "admissionregistration.k8s.io"
}

/// Whether an object has the API call somebody: about others, or to convert its own.
pub fn is_called_by(object: &Object) -> bool {
    let converts = object.value().pointer("/spec/conversion/webhook").is_some();
    is_admission(object) || (is_definition(object) && converts)
}

/// Whether an object is neither of those that come first nor of those that have the API ask webhooks.
pub fn is_plain(object: &Object) -> bool {
    !comes_first(object) && !is_admission(object)
}

/// Whether an object is a definition.
pub fn is_definition(object: &Object) -> bool {
    object.kind() == "CustomResourceDefinition" && object.group() == "apiextensions.k8s.io"
}

/// Whether an object is a namespace.
pub fn is_namespace(object: &Object) -> bool {
    object.kind() == "Namespace" && object.group().is_empty()
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::Value;

    use super::*;

    const COMPONENTS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: example-system}
---
apiVersion: v1
kind: Secret
metadata: {name: credentials, namespace: example-system}
stringData: {token: "${TOKEN}"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: example-controller-manager, namespace: example-system}
spec:
  selector: {matchLabels: {app: example}}
  template:
    metadata: {labels: {app: example}}
    spec: {containers: [{name: manager, image: "example.com/example:v1.0.0", envFrom: [{secretRef: {name: credentials}}]}]}
"#;

    pub(crate) fn material(mark: Option<&str>) -> Material {
        let kind = clusterctl::ProviderType::Infrastructure;
        Material {
            provider: Provider::new(kind, "example").unwrap(),
            version: "v1.0.0".parse().unwrap(),
            namespace: "example-system".to_owned(),
            is_here: true,
            components: COMPONENTS.to_owned(),
            additional: None,
            variables: BTreeMap::from([("TOKEN".to_owned(), "hunter2".to_owned())]),
            variables_mark: mark.map(str::to_owned),
            changes: Changes::default(),
            lingers: false,
        }
    }

    fn template(mark: Option<&str>) -> Value {
        let rendered = render(&material(mark), &Scopes::default()).unwrap();
        let found = rendered.objects.iter();
        let mut found = found.filter(|object| object.kind() == "Deployment");
        found.next().unwrap().value()["spec"]["template"].clone()
    }

    #[test]
    fn pods_are_replaced_when_the_secret_with_variables_is_another() {
        let (first, second) = (template(Some("a")), template(Some("b")));
        assert_eq!(first["metadata"]["annotations"][VARIABLES_MARK], "a");
        assert_eq!(first["metadata"]["labels"]["app"], "example");
        assert_ne!(first, second, "another Secret");
        assert_eq!(first, template(Some("a")), "the same one");
        assert_eq!(template(None)["metadata"].get("annotations"), None);
    }

    #[test]
    fn further_manifests_are_rendered_with_those_of_the_release() {
        let mut material = material(None);
        // As a ConfigMap holds it that `additionalManifests` names.
        let more = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: more}\ndata: {token: \"${TOKEN}\"}\n";
        material.additional = Some(more.to_owned());
        let rendered = render(&material, &Scopes::default()).unwrap();
        let found = rendered.objects.iter();
        let mut found = found.filter(|object| object.kind() == "ConfigMap");
        let more = found.next().unwrap();
        assert_eq!(more.value()["data"]["token"], "hunter2");
        assert_eq!(more.value()["metadata"]["namespace"], "example-system");
        let label = more.label(api::provider::label::PROVIDER);
        assert_eq!(label, Some("infrastructure-example"));
    }

    #[test]
    fn cert_manager_keeps_what_is_of_kube_system_and_is_none_of_clusterctls() {
        let mut material = material(None);
        material.provider = Provider::new(clusterctl::ProviderType::Addon, "cert-manager").unwrap();
        material.namespace = "elsewhere".to_owned();
        material.components += "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: election, namespace: kube-system}\n\
             subjects: [{kind: ServiceAccount, name: cert-manager, namespace: example-system}]\n";
        let rendered = render(&material, &Scopes::default()).unwrap();
        let found = |kind: &str| {
            let mut found = rendered.objects.iter();
            found.find(|object| object.kind() == kind).unwrap()
        };
        let binding = found("RoleBinding");
        assert_eq!(binding.namespace(), "kube-system");
        assert_eq!(binding.value()["subjects"][0]["namespace"], "elsewhere");
        let deployment = found("Deployment");
        assert_eq!(deployment.namespace(), "elsewhere");
        assert_eq!(deployment.label(api::provider::label::CLUSTERCTL), None);
    }

    #[test]
    fn what_does_not_fit_the_release_fails_by_its_reason() {
        let container = json!({"deployment": {"containers": [{"name": "boss"}]}});
        let patch = json!({"patches": [{"patch": "[{op: remove, path: /none}]"}]});
        for (changes, reason, said) in [
            (
                container,
                Reason::ComponentsCustomizationError,
                "names boss",
            ),
            (patch, Reason::ComponentsPatchError, "spec.patches[0]"),
        ] {
            let mut material = material(None);
            material.changes = serde_json::from_value(changes).unwrap();
            let failure = render(&material, &Scopes::default()).unwrap_err().failure();
            assert_eq!(failure.code, reason.as_str());
            assert!(failure.message.contains(said), "{failure:?}");
        }
    }

    /// Why a step fails whose release has two variables without values.
    pub(crate) fn unset() -> Failure {
        let mut material = material(None);
        material.variables.clear();
        material.components += "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {region: \"${REGION}\"}\n";
        let error = render(&material, &Scopes::default()).unwrap_err();
        error.failure()
    }
}
