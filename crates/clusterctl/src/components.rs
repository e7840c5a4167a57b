//! From the file of a release to the objects of an installation.
//!
//! The order is clusterctl's, for each step sees what those before it made: variables, objects, images, the target namespace,
//! namespaces in and on objects, labels, order.

use crate::{
    ImageOverrides, InvalidImage, ManifestError, NonCanonical, Object, Provider, Scopes, Version,
    label, manifest, provider::is_subdomain,
};

mod images;
mod namespace;
mod order;

/// What is rendered, and with what.
#[derive(Clone, Copy, Debug)]
pub struct Release<'a> {
    /// The provider.
    pub provider: &'a Provider,
    /// Its version.
    pub version: &'a Version,
    /// The file of components.
    pub components: &'a str,
    /// Further objects, which are appended to the file before variables are put in.
    pub additional: Option<&'a str>,
    /// The namespace to install into; by default that of the file.
    pub target_namespace: Option<&'a str>,
    /// What replaces images.
    pub images: &'a ImageOverrides,
    /// What is done with images whose registry is left out.
    pub non_canonical: NonCanonical,
    /// The scopes of kinds that are known beside those of the file.
    pub scopes: &'a Scopes,
}

/// Whether variables are put in.
pub enum Substitution<'a> {
    /// With the value of each by name, where there is one.
    With(&'a dyn Fn(&str) -> Option<&'a str>),
    /// They stay as they are.
    Raw,
}

/// The objects that a release is installed as.
#[derive(Clone, Debug, PartialEq)]
pub struct Components {
    provider: Provider,
    version: Version,
    target_namespace: String,
    variables: Vec<String>,
    images: Vec<String>,
    objects: Vec<Object>,
}

/// A release that cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum ComponentsError {
    /// Variables that are written wrongly.
    #[error("the variables of the components cannot be read: {0}")]
    Template(#[source] envsubst::ParseError),
    /// Variables that cannot be put in.
    #[error("the variables of the components cannot be put in: {0}")]
    Variables(#[source] envsubst::SubstituteError),
    /// A file without objects.
    #[error("the components cannot be read: {0}")]
    Manifest(#[source] ManifestError),
    /// An image of a container.
    #[error("container {container} of {object}: {source}")]
    Image {
        /// The object.
        object: String,
        /// The container.
        container: String,
        /// What is wrong with its image.
        source: InvalidImage,
    },
    /// A field that is not what its kind has.
    #[error("{field} of {object} is {rule}")]
    Field {
        /// The object.
        object: String,
        /// The field.
        field: &'static str,
        /// What it has to be.
        rule: &'static str,
    },
    /// A kind in a version that is unknown.
    #[error(
        "{object} is of version {version}, which is unknown for its kind; write it in version v1"
    )]
    Version {
        /// The object.
        object: String,
        /// Its version.
        version: String,
    },
    /// Several namespaces.
    #[error(
        "the components hold the namespaces {first} and {second}; a provider lives in one, so that they may hold one at most"
    )]
    Namespaces {
        /// The first.
        first: String,
        /// The second.
        second: String,
    },
    /// No namespace.
    #[error("the components hold no namespace and none is given; give the target namespace")]
    NoNamespace,
    /// A namespace that cannot be one.
    #[error(
        "the target namespace {0:?} is no name of a namespace: at most 63 lower-case letters, digits and hyphens, beginning and ending \
         with a letter or digit"
    )]
    TargetNamespace(String),
}

impl Components {
    /// Renders a release.
    ///
    /// # Errors
    ///
    /// What is wrong with its file, with what is put into it, or with where it is to go.
    pub fn render(
        release: &Release<'_>,
        substitution: &Substitution<'_>,
    ) -> Result<Self, ComponentsError> {
        let text = release.text();
        let template = envsubst::Template::parse(&text).map_err(ComponentsError::Template)?;
        let variables = template
            .variables()
            .into_keys()
            .map(str::to_owned)
            .collect();
        let text = match substitution {
            Substitution::With(values) => template
                .substitute(values)
                .map_err(ComponentsError::Variables)?,
            Substitution::Raw => text,
        };
        let mut objects = manifest::parse(&text).map_err(ComponentsError::Manifest)?;

        images::replace(&mut objects, release)?;
        let images = images::list(&objects);

        let target_namespace = namespace::target(&objects, release.target_namespace)?;
        namespace::add_missing(&mut objects, &target_namespace)?;
        let scopes = release.scopes.with_definitions(&objects);
        let is_cert_manager = release.provider.is_cert_manager();
        // There its pods agree on who leads, whatever namespace they are in.
        let stays = is_cert_manager.then_some("kube-system");
        for object in &mut objects {
            namespace::move_to(object, &target_namespace, stays, &scopes)?;
            if !is_cert_manager {
                object.set_label(label::CLUSTERCTL, "");
            }
            object.set_label(label::PROVIDER, &release.provider.manifest_label());
        }
        order::sort(&mut objects);
        Ok(Self {
            provider: release.provider.clone(),
            version: release.version.clone(),
            target_namespace,
            variables,
            images,
            objects,
        })
    }

    /// The provider.
    pub fn provider(&self) -> &Provider {
        &self.provider
    }

    /// Its version.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// The namespace that they are for.
    pub fn target_namespace(&self) -> &str {
        &self.target_namespace
    }

    /// The names of the variables in the file, sorted.
    pub fn variables(&self) -> &[String] {
        &self.variables
    }

    /// The images of Deployments and DaemonSets, in the order of the file.
    pub fn images(&self) -> &[String] {
        &self.images
    }

    /// The objects, in the order in which they are to be made.
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// The objects, to be changed further.
    pub fn into_objects(self) -> Vec<Object> {
        self.objects
    }
}

impl Release<'_> {
    fn text(&self) -> String {
        match self.additional {
            None => self.components.to_owned(),
            Some(additional) => format!("{}\n---\n{additional}", self.components),
        }
    }
}

/// A name of a namespace.
fn is_namespace(name: &str) -> bool {
    name.len() <= 63 && !name.contains('.') && is_subdomain(name)
}
