//! The seven kinds: one object type, and what tells one from another.

use std::{borrow::Cow, fmt, marker::PhantomData};

use kube::{Resource, api::ObjectMeta, core::NamespaceResourceScope};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::{GROUP, ProviderSpec, ProviderStatus, VERSION};

/// What a provider does for Cluster API. The order is the one in which providers are installed and upgraded.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum ProviderType {
    /// The controllers of Cluster API itself.
    Core,
    /// Turns machines into nodes.
    Bootstrap,
    /// Runs control planes.
    ControlPlane,
    /// Makes machines and what they need.
    Infrastructure,
    /// Hands out addresses.
    Ipam,
    /// Extends what Cluster API does at run time.
    RuntimeExtension,
    /// Installs applications in clusters.
    Addon,
}

impl ProviderType {
    /// All of them, in their order.
    pub const ALL: [Self; 7] = [
        Self::Core,
        Self::Bootstrap,
        Self::ControlPlane,
        Self::Infrastructure,
        Self::Ipam,
        Self::RuntimeExtension,
        Self::Addon,
    ];

    /// The kind of its objects, which is also its type in clusterctl's inventory.
    pub const fn kind(self) -> &'static str {
        self.words().kind
    }

    /// The resource of its objects.
    pub const fn plural(self) -> &'static str {
        self.words().plural
    }

    /// What kubectl takes for the resource.
    pub const fn short_name(self) -> &'static str {
        self.words().short
    }

    /// Its word in the names and labels of ConfigMaps that hold its manifests.
    pub const fn word(self) -> &'static str {
        self.words().word
    }

    /// What the label of a provider's own objects begins with, before the provider's name.
    ///
    /// # Source
    /// clusterctl `ManifestLabel`.
    pub const fn prefix(self) -> &'static str {
        self.words().prefix
    }

    /// What labels the objects of the provider of that name, and is the name of its object in clusterctl's inventory.
    pub fn manifest_label(self, name: &str) -> String {
        format!("{}{name}", self.prefix())
    }

    const fn words(self) -> Words {
        let [kind, plural, short, word, prefix] = match self {
            Self::Core => ["CoreProvider", "coreproviders", "cacp", "core", ""],
            Self::Bootstrap => [
                "BootstrapProvider",
                "bootstrapproviders",
                "cabp",
                "bootstrap",
                "bootstrap-",
            ],
            Self::ControlPlane => [
                "ControlPlaneProvider",
                "controlplaneproviders",
                "cacpp",
                "control-plane",
                "control-plane-",
            ],
            Self::Infrastructure => [
                "InfrastructureProvider",
                "infrastructureproviders",
                "caip",
                "infrastructure",
                "infrastructure-",
            ],
            Self::Ipam => ["IPAMProvider", "ipamproviders", "caipamp", "ipam", "ipam-"],
            // The one whose word and prefix differ.
            Self::RuntimeExtension => [
                "RuntimeExtensionProvider",
                "runtimeextensionproviders",
                "carep",
                "runtimeextension",
                "runtime-extension-",
            ],
            Self::Addon => ["AddonProvider", "addonproviders", "caap", "addon", "addon-"],
        };
        Words {
            kind,
            plural,
            short,
            word,
            prefix,
        }
    }
}

impl fmt::Display for ProviderType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

/// What one of the seven is called, and where.
struct Words {
    kind: &'static str,
    plural: &'static str,
    short: &'static str,
    word: &'static str,
    prefix: &'static str,
}

/// Makes a [`Provider`] one of the seven kinds.
pub trait Kind: Clone + Copy + fmt::Debug + Default + PartialEq + Send + Sync + 'static {
    /// Which one.
    const TYPE: ProviderType;
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $object:ident is $kind:ident),* $(,)?) => {$(
        #[doc = concat!("Of a [`", stringify!($object), "`].")]
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        pub struct $kind;

        impl Kind for $kind {
            const TYPE: ProviderType = ProviderType::$kind;
        }

        $(#[$doc])*
        pub type $object = Provider<$kind>;
    )*};
}

kinds! {
    /// The controllers of Cluster API itself. There is one, and all other providers wait for it.
    CoreProvider is Core,
    /// A provider that turns machines into nodes.
    BootstrapProvider is Bootstrap,
    /// A provider that runs control planes.
    ControlPlaneProvider is ControlPlane,
    /// A provider of machines and what they need.
    InfrastructureProvider is Infrastructure,
    /// A provider of addresses.
    IpamProvider is Ipam,
    /// A provider of extensions of Cluster API.
    RuntimeExtensionProvider is RuntimeExtension,
    /// A provider of applications in clusters.
    AddonProvider is Addon,
}

/// A provider of Cluster API. Its name is the provider's, as clusterctl knows it, and its namespace the one it is installed in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Provider<K: Kind> {
    /// Of every object.
    pub metadata: ObjectMeta,
    /// The wish.
    pub spec: ProviderSpec,
    /// How it stands.
    pub status: Option<ProviderStatus>,
    kind: PhantomData<K>,
}

impl<K: Kind> Provider<K> {
    /// A provider with no status yet.
    pub fn new(namespace: &str, name: &str, spec: ProviderSpec) -> Self {
        Self {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            spec,
            status: None,
            kind: PhantomData,
        }
    }
}

impl<K: Kind> Resource for Provider<K> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        K::TYPE.kind().into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::TYPE.plural().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl<K: Kind> Serialize for Provider<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Form {
            api_version: Self::api_version(&()),
            kind: Self::kind(&()),
            metadata: Cow::Borrowed(&self.metadata),
            spec: Cow::Borrowed(&self.spec),
            status: self.status.as_ref().map(Cow::Borrowed),
        }
        .serialize(serializer)
    }
}

impl<'de, K: Kind> Deserialize<'de> for Provider<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let form = Form::deserialize(deserializer)?;
        // Items of a list have neither.
        let fits = |given: &str, own: Cow<'_, str>| given.is_empty() || given == own;
        if !fits(&form.api_version, Self::api_version(&())) || !fits(&form.kind, Self::kind(&())) {
            return Err(D::Error::custom(format_args!(
                "a {} of {} is no {} of {}",
                form.kind,
                form.api_version,
                Self::kind(&()),
                Self::api_version(&()),
            )));
        }
        Ok(Self {
            metadata: form.metadata.into_owned(),
            spec: form.spec.into_owned(),
            status: form.status.map(Cow::into_owned),
            kind: PhantomData,
        })
    }
}

/// A provider as it is written.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Form<'a> {
    #[serde(default)]
    api_version: Cow<'a, str>,
    #[serde(default)]
    kind: Cow<'a, str>,
    #[serde(default)]
    metadata: Cow<'a, ObjectMeta>,
    #[serde(default)]
    spec: Cow<'a, ProviderSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<Cow<'a, ProviderStatus>>,
}
