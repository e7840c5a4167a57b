//! The table of paths.

use axum::http::Method;

/// What a path is of.
#[derive(Debug, PartialEq)]
pub(super) enum Route<'a> {
    Templates,
    Template(&'a str),
    Clusters,
    ClustersDetail,
    Cluster(&'a str),
    Resize(&'a str),
    Upgrade(&'a str),
    Groups(&'a str),
    Group(&'a str, &'a str),
    Certificates,
    Certificate(&'a str),
    Credential(&'a str),
    Quotas,
    Quota(&'a str, &'a str),
    Stats,
    Services,
    Federations,
    Federation(&'a str),
    /// There is something, which is served with no verb.
    Mute,
}

impl<'a> Route<'a> {
    /// Of the parts of a path, with or without the version in front.
    pub(super) fn of(segments: &[&'a str]) -> Option<Self> {
        let segments = segments.strip_prefix(&["v1"]).unwrap_or(segments);
        Some(match *segments {
            ["clustertemplates"] | ["clustertemplates", "detail"] => Self::Templates,
            ["clustertemplates", ident] => Self::Template(ident),
            ["clusters"] => Self::Clusters,
            ["clusters", "detail"] => Self::ClustersDetail,
            ["clusters", ident] => Self::Cluster(ident),
            ["clusters", ident, "actions", "resize"] => Self::Resize(ident),
            ["clusters", ident, "actions", "upgrade"] => Self::Upgrade(ident),
            ["clusters", _, "actions"] | ["clusters", _, "actions", _] | ["mservices", _] => {
                Self::Mute
            }
            ["clusters", cluster, "nodegroups"] => Self::Groups(cluster),
            ["clusters", cluster, "nodegroups", ident] => Self::Group(cluster, ident),
            ["certificates"] => Self::Certificates,
            ["certificates", cluster] => Self::Certificate(cluster),
            ["credentials", cluster] => Self::Credential(cluster),
            ["quotas"] => Self::Quotas,
            ["quotas", project, resource] => Self::Quota(project, resource),
            ["stats"] => Self::Stats,
            ["mservices"] => Self::Services,
            ["federations"] | ["federations", "detail"] => Self::Federations,
            ["federations", ident] => Self::Federation(ident),
            _ => return None,
        })
    }
}

impl Route<'_> {
    /// The name of the policy of a request, as the reference has it. None: nothing is served there.
    pub(super) fn policy(&self, method: &Method) -> Option<&'static str> {
        let of = |[get, post, patch, delete]: [&'static str; 4]| match *method {
            Method::GET => Some(get),
            Method::POST => Some(post),
            Method::PATCH => Some(patch),
            Method::DELETE => Some(delete),
            _ => None,
        };
        let name = of(match self {
            Self::Templates => ["clustertemplate:get_all", "clustertemplate:create", "", ""],
            Self::Template(_) => [
                "clustertemplate:get",
                "",
                "clustertemplate:update",
                "clustertemplate:delete",
            ],
            Self::Clusters => ["cluster:get_all", "cluster:create", "", ""],
            Self::ClustersDetail => ["cluster:detail", "", "", ""],
            Self::Cluster(_) => ["cluster:get", "", "cluster:update", "cluster:delete"],
            Self::Resize(_) => ["", "cluster:resize", "", ""],
            Self::Upgrade(_) => ["", "cluster:upgrade", "", ""],
            Self::Groups(_) => ["nodegroup:get_all", "nodegroup:create", "", ""],
            Self::Group(..) => ["nodegroup:get", "", "nodegroup:update", "nodegroup:delete"],
            Self::Certificates => ["", "certificate:create", "", ""],
            Self::Certificate(_) => ["certificate:get", "", "certificate:rotate_ca", ""],
            Self::Credential(_) => ["", "", "credential:rotate", ""],
            Self::Quotas => ["quota:get_all", "quota:create", "", ""],
            Self::Quota(..) => ["quota:get", "", "quota:update", "quota:delete"],
            Self::Stats => ["stats:get_all", "", "", ""],
            Self::Services => ["magnum-service:get_all", "", "", ""],
            Self::Federations => ["federation:get_all", "", "", ""],
            Self::Federation(_) => ["federation:get", "", "", ""],
            Self::Mute => ["", "", "", ""],
        })?;
        (!name.is_empty()).then_some(name)
    }
}

/// The parts of a path, decoded. None where it cannot be decoded.
pub(super) fn segments(path: &str) -> Option<Vec<String>> {
    path.split('/').map(decoded).collect()
}

fn decoded(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let code = digit()? * 16 + digit()?;
        bytes.push(u8::try_from(code).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_found_with_and_without_its_version() {
        assert_eq!(
            Route::of(&["v1", "clusters", "a"]),
            Some(Route::Cluster("a"))
        );
        assert_eq!(Route::of(&["clusters", "a"]), Some(Route::Cluster("a")));
        for path in [&["clusters", "a", "actions", "b"][..], &["mservices", "a"]] {
            assert_eq!(Route::of(path), Some(Route::Mute), "{path:?}");
        }
        for path in [
            &["v1"][..],
            &["v2", "clusters"],
            &["clusters", "a", "b"],
            &["clusters", "a", "actions", "resize", "b"],
            &["clusters.json"],
            &[""],
        ] {
            assert_eq!(Route::of(path), None, "{path:?}");
        }
    }

    #[test]
    fn each_policy_is_that_of_one_request() {
        let routes = [
            Route::Templates,
            Route::Template("a"),
            Route::Clusters,
            Route::ClustersDetail,
            Route::Cluster("a"),
            Route::Resize("a"),
            Route::Upgrade("a"),
            Route::Groups("a"),
            Route::Group("a", "b"),
            Route::Certificates,
            Route::Certificate("a"),
            Route::Credential("a"),
            Route::Quotas,
            Route::Quota("a", "b"),
            Route::Stats,
            Route::Services,
            Route::Federations,
            Route::Federation("a"),
            Route::Mute,
        ];
        let methods = [Method::GET, Method::POST, Method::PATCH, Method::DELETE];
        let mut names: Vec<_> = routes
            .iter()
            .flat_map(|route| methods.iter().filter_map(|method| route.policy(method)))
            .collect();
        names.sort_unstable();
        assert_eq!(names, crate::policy::NAMES);
    }

    #[test]
    fn names_in_a_path_are_decoded_once() {
        assert_eq!(segments("clusters/a%20b").unwrap()[1], "a b");
        assert_eq!(segments("clusters/a%252Fb").unwrap()[1], "a%2Fb");
        for path in ["%", "%2", "%zz", "%ff"] {
            assert_eq!(segments(path), None, "{path}");
        }
    }
}
