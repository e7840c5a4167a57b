//! What is rendered, here and by clusterctl.

use std::{collections::BTreeMap, fs, path::Path};

use clusterctl::{
    Components, ComponentsError, ImageOverride, ImageOverrides, NonCanonical, Provider,
    ProviderType, Release, Scopes, Substitution,
};

/// One rendering.
#[derive(Clone, Debug)]
pub struct Case {
    /// What failures are told by.
    pub name: String,
    pub provider: Provider,
    pub version: String,
    pub components: String,
    pub values: BTreeMap<String, String>,
    pub namespace: Option<String>,
    pub images: ImageOverrides,
}

impl Case {
    /// Of a file of `made`.
    fn made(name: &str, file: &str, namespace: Option<&str>, values: &[(&str, &str)]) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/render/made")
            .join(file);
        Self {
            name: name.to_owned(),
            provider: Provider::new(ProviderType::Infrastructure, "made").unwrap(),
            version: "v0.1.0".to_owned(),
            components: fs::read_to_string(path).unwrap(),
            values: owned(values),
            namespace: namespace.map(str::to_owned),
            images: ImageOverrides::default(),
        }
    }

    fn with_images(mut self, images: &[(&str, [&str; 3])]) -> Self {
        self.images = overrides(images);
        self
    }

    pub fn render(&self) -> Result<Components, ComponentsError> {
        self.render_with(&Scopes::default())
    }

    pub fn render_with(&self, scopes: &Scopes) -> Result<Components, ComponentsError> {
        Components::render(
            &Release {
                provider: &self.provider,
                version: &self.version.parse().unwrap(),
                components: &self.components,
                additional: None,
                target_namespace: self.namespace.as_deref(),
                images: &self.images,
                non_canonical: NonCanonical::Refuse,
                scopes,
            },
            &Substitution::With(&|name| self.values.get(name).map(String::as_str)),
        )
    }
}

/// Those of the files that were made to show each rule.
pub fn made() -> Vec<Case> {
    let set = &[("HOST", "one.example"), ("CREDENTIALS", "secret")][..];
    let all = &[
        ("HOST", "two.example.org"),
        ("CREDENTIALS", "a: b # \\\"c\\\""),
        ("TEXT", "${HOST}"),
        ("VERBOSITY", "5"),
        ("A", "true"),
        ("B", ""),
        ("UNUSED", "x"),
    ][..];
    vec![
        Case::made("everything", "everything.yaml", None, set),
        Case::made(
            "everything-moved",
            "everything.yaml",
            Some("other-system"),
            all,
        ),
        Case::made("everything-images", "everything.yaml", None, set).with_images(&[
            ("all", ["mirror.example/all/", "", ""]),
            ("infrastructure-made", ["", "", "v9"]),
            (
                "infrastructure-made/manager",
                ["mirror.example/one", "boss", ""],
            ),
            ("infrastructure-other/agent", ["wrong.example", "", ""]),
        ]),
        Case::made("plain", "plain.yaml", Some("somewhere"), &[]),
        Case::made("scalars", "scalars.yaml", None, &[]),
    ]
}

pub fn owned(values: &[(&str, &str)]) -> BTreeMap<String, String> {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    values.iter().map(own).collect()
}

pub fn overrides(images: &[(&str, [&str; 3])]) -> ImageOverrides {
    let own = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let layer = |(key, [repository, name, tag]): &(&str, [&str; 3])| {
        let layer = ImageOverride {
            repository: own(repository),
            name: own(name),
            tag: own(tag),
        };
        ((*key).to_owned(), layer)
    };
    ImageOverrides(images.iter().map(layer).collect())
}

/// What both refuse, and a part of what is said here.
pub fn refused() -> Vec<(Case, &'static str)> {
    let of = |name: &str, components: &str, said| {
        let mut case = Case::made(name, "plain.yaml", Some("somewhere"), &[]);
        components.clone_into(&mut case.components);
        (case, said)
    };
    let deployment = |container: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d}}\nspec: {{template: {{spec: {{containers: [{container}]}}}}}}"
        )
    };
    let certificate = |names: &str| {
        format!(
            "apiVersion: cert-manager.io/v1\nkind: Certificate\nmetadata: {{name: c}}\nspec: {{dnsNames: {names}}}"
        )
    };
    let webhook = |version: &str, from: &str| {
        format!(
            "apiVersion: admissionregistration.k8s.io/{version}\nkind: ValidatingWebhookConfiguration\nmetadata: {{name: w, annotations: {{cert-manager.io/inject-ca-from: {from}}}}}\nwebhooks: []"
        )
    };
    let namespace =
        |name: &str| format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n---\n");
    let mut cases = vec![
        of(
            "unset",
            "a: ${ONE} ${TWO:=2} ${ZERO}",
            "the variables ONE, ZERO are not set and have no default",
        ),
        of(
            "template",
            "a: 1\nb: ${ONE-two}",
            "line 2, column 4: the name is followed by neither a closing brace nor a function",
        ),
        of("no YAML", "a: [1, 2", "the file is no YAML at line"),
        of(
            "a list",
            "- apiVersion: v1",
            "document 1 of the file is no object of Kubernetes: it is no mapping",
        ),
        of(
            "no image",
            &deployment("{name: manager}"),
            "container manager of Deployment d: image \"\" is no reference",
        ),
        of(
            "short image",
            &deployment("{name: a, image: \"nginx:1\"}"),
            "image \"nginx:1\" leaves out its registry; write it out",
        ),
        of(
            "env",
            &deployment("{name: a, image: r.example/a, env: [{name: A, value: 1}]}"),
            "env[].value of a container of Deployment d is no text; put it in quotes",
        ),
        of(
            "args",
            &deployment("{name: a, image: r.example/a, args: [true]}"),
            "args or command of a container of Deployment d is no list of texts",
        ),
        of(
            "containers",
            &deployment("a"),
            "a list of containers of Deployment d is no list of mappings",
        ),
        of(
            "two namespaces",
            &(namespace("a") + &namespace("b")),
            "hold the namespaces a and b; a provider lives in one",
        ),
        of(
            "names",
            &certificate("[1]"),
            "spec.dnsNames of Certificate somewhere/c is no list of texts",
        ),
        of(
            "authority",
            &webhook("v1", "a"),
            "annotation cert-manager.io/inject-ca-from of ValidatingWebhookConfiguration w is not NAMESPACE/NAME",
        ),
        of(
            "version",
            &webhook("v2", "a/b"),
            "ValidatingWebhookConfiguration w is of version v2, which is unknown",
        ),
    ];
    let mut nowhere = of(
        "no namespace",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}",
        "hold no namespace and none is given",
    );
    nowhere.0.namespace = None;
    cases.push(nowhere);
    cases
}

/// Kinds whose scope clusterctl takes for another one than it is.
pub fn scopes() -> Vec<(Case, &'static str)> {
    let of = |kind: &'static str, version: &str| {
        let mut case = Case::made(kind, "plain.yaml", Some("somewhere"), &[]);
        case.components = format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\n");
        (case, kind)
    };
    let mut own = of("Boat", "made.example/v1");
    own.0.components += "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: boats.made.example}\n\
                         spec: {group: made.example, scope: Cluster, names: {kind: Boat, plural: boats}, versions: []}\n";
    vec![
        own,
        of("APIService", "apiregistration.k8s.io/v1"),
        of("ClusterIssuer", "cert-manager.io/v1"),
        of("IngressClass", "networking.k8s.io/v1"),
        of(
            "ValidatingAdmissionPolicy",
            "admissionregistration.k8s.io/v1",
        ),
        // A kind of a list of kinds, but of another group.
        of("Node", "made.example/v1"),
    ]
}
