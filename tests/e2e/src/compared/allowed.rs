//! What may differ, and why. Each entry has to be met by some request, or it has no place here.
//!
//! Server errors of the reference and its bugs are not copied; neither are the answers of services that are not asked here.

use super::{Body, Case, Who, normal::Answer};

/// A kind of difference.
#[derive(Debug)]
pub struct Allowed {
    /// What the real Magnum does.
    pub magnum: &'static str,
    /// What is done here.
    pub here: &'static str,
    /// Why.
    pub why: &'static str,
    covers: fn(&Case, &Answer, &Answer) -> bool,
}

/// All of them.
pub const ALL: &[Allowed] = &[
    Allowed {
        magnum: "a body that is no object, a truth that is neither, a node count that is null: a server error",
        here: "400",
        why: "it is the client's error",
        covers: |_, theirs, ours| theirs.status == 500 && ours.status == 400,
    },
    Allowed {
        magnum: "a patch of what a cluster cannot change is accepted where it takes nothing away, and dropped",
        here: "400",
        why: "a bug of Magnum (B4): what is accepted is done",
        covers: |case, theirs, ours| {
            case.method == "PATCH"
                && case.path == "/v1/clusters/{cluster}"
                && (theirs.status, ours.status) == (202, 400)
        },
    },
    Allowed {
        magnum: "a flavor that is null is looked up, and not found",
        here: "it is no flavor",
        why: "a bug of Magnum (B8): such a template could not be patched either",
        covers: |case, theirs, ours| {
            let is_null = matches!(&case.body, Body::Json(body)
                if body["flavor_id"].is_null() || body["master_flavor_id"].is_null());
            case.method == "POST" && is_null && (theirs.status, ours.status) == (400, 201)
        },
    },
    Allowed {
        magnum: "an unknown `ca_cert_type` gives the CA of Kubernetes",
        here: "400",
        why: "a bug of Magnum (B9): another authority than the one that was asked for is worse than none",
        covers: |case, theirs, ours| {
            case.path.ends_with("ca_cert_type=word") && (theirs.status, ours.status) == (200, 400)
        },
    },
    Allowed {
        magnum: "a quota of an unknown resource is answered",
        here: "404",
        why: "a bug of Magnum (B9): nothing is counted by it",
        covers: |case, theirs, ours| {
            case.path == "/v1/quotas/{demo}/word" && (theirs.status, ours.status) == (200, 404)
        },
    },
    Allowed {
        magnum: "a reader who writes is told what is wrong with the request, and only then that they may not",
        here: "403 at once",
        why: "who may not ask is told nothing else",
        covers: |case, theirs, ours| {
            case.who == Who::Bob && [400, 404].contains(&theirs.status) && ours.status == 403
        },
    },
    Allowed {
        magnum: "a number of a patch is refused where it is a text",
        here: "it is read, as in all other bodies",
        why: "clients fail for it, and none needs it",
        covers: |case, theirs, ours| {
            let Body::Json(patch) = &case.body else {
                return false;
            };
            let is_number = |text: &str| text.parse::<u32>().is_ok();
            case.method == "PATCH"
                && patch[0]["value"].as_str().is_some_and(is_number)
                && (theirs.status, ours.status) == (400, 200)
        },
    },
    Allowed {
        magnum: "`true` of a patch is the number 1",
        here: "400",
        why: "it is no number",
        covers: |case, theirs, ours| {
            let Body::Json(patch) = &case.body else {
                return false;
            };
            case.method == "PATCH"
                && patch[0]["value"] == true
                && (theirs.status, ours.status) == (200, 400)
        },
    },
    Allowed {
        magnum: "a template whose name or labels are taken away has null there, and one whose tags are empty an empty text",
        here: "a name is made up, labels are an empty map, tags null, as for a new template",
        why: "no client shows a template without a name",
        covers: |_, theirs, ours| {
            ["name", "labels", "tags"]
                .iter()
                .any(|member| only(theirs, ours, member))
        },
    },
    Allowed {
        magnum: "`cluster_distro` is what Glance says of the image",
        here: "what the template says",
        why: "images of hosts are not looked up",
        covers: |_, theirs, ours| only(theirs, ours, "cluster_distro"),
    },
    Allowed {
        magnum: "the `version` of a node group is the driver's to tell",
        here: "it is that of the cluster",
        why: "all groups of a cluster are brought to it",
        covers: |case, theirs, ours| {
            case.path.contains("/nodegroups") && only(theirs, ours, "version")
        },
    },
    Allowed {
        magnum: "labels of a template that are null: a server error",
        here: "they are an empty map",
        why: "as where they are not there",
        covers: |case, theirs, ours| {
            matches!(&case.body, Body::Json(body) if body.get("labels").is_some_and(serde_json::Value::is_null))
                && (theirs.status, ours.status) == (500, 201)
        },
    },
    Allowed {
        magnum: "a template's `driver` is changed to any word, or to none",
        here: "400, and it stays what it is",
        why: "no cluster could be made of such a template",
        covers: |case, theirs, ours| {
            let is_of_driver =
                matches!(&case.body, Body::Json(patch) if patch[0]["path"] == "/driver");
            is_of_driver && (theirs.status, ours.status) == (200, 400)
                || only(theirs, ours, "driver")
        },
    },
    Allowed {
        magnum: "`node_labels` may be any text",
        here: "409 where Kubernetes has no such label",
        why: "a kubelet that is given it does not start",
        covers: |case, theirs, ours| {
            matches!(&case.body, Body::Json(body) if body["node_labels"].is_object())
                && (theirs.status, ours.status) == (202, 409)
        },
    },
    Allowed {
        magnum: "a patch of a node group that changes nothing is an update",
        here: "nothing begins",
        why: "there is nothing to do",
        covers: |case, theirs, ours| {
            let is_empty =
                matches!(&case.body, Body::Json(patch) if *patch == serde_json::json!([]));
            let of = ["/status: ", "/version: "];
            case.method == "PATCH"
                && is_empty
                && theirs
                    .differences(ours)
                    .iter()
                    .all(|found| of.iter().any(|one| found.starts_with(one)))
        },
    },
];

/// The first kind that a difference is of.
pub fn of(case: &Case, theirs: &Answer, ours: &Answer) -> Option<usize> {
    ALL.iter()
        .position(|allowed| (allowed.covers)(case, theirs, ours))
}

/// Whether two answers differ in this member alone, wherever it stands, and in nothing that is not looked up.
fn only(theirs: &Answer, ours: &Answer, member: &str) -> bool {
    let end = format!("/{member}: ");
    let all = theirs.differences(ours).into_iter();
    let mut others = all.filter(|difference| !difference.contains("/cluster_distro: "));
    match others.next() {
        Some(first) => first.contains(&end) && others.all(|other| other.contains(&end)),
        None => member == "cluster_distro" && theirs != ours,
    }
}

/// The table of `docs/magnum.md`.
pub fn table() -> String {
    let mut table = "| Magnum 23 | here | why |\n|---|---|---|\n".to_owned();
    for allowed in ALL {
        let Allowed {
            magnum, here, why, ..
        } = allowed;
        table += &format!("| {magnum} | {here} | {why} |\n");
    }
    table
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use serde_json::{Value, json};

    use super::*;
    use crate::root;

    fn answer(status: u16, body: Value) -> Answer {
        Answer {
            status,
            headers: BTreeMap::new(),
            body,
        }
    }

    #[test]
    fn a_difference_that_is_not_listed_is_not_allowed() {
        let case = Case::new("GET", "/v1/clusters");
        let is_allowed = |theirs, ours| of(&case, &theirs, &ours).is_some();
        assert!(is_allowed(answer(500, json!({})), answer(400, json!({}))));
        assert!(!is_allowed(answer(200, json!({})), answer(400, json!({}))));
        assert!(!is_allowed(answer(400, json!({})), answer(500, json!({}))));
        let template = |distro, coe| answer(200, json!({"cluster_distro": distro, "coe": coe}));
        assert!(is_allowed(template("debian", "a"), template("none", "a")));
        assert!(!is_allowed(template("debian", "a"), template("none", "b")));
        let both = |tags, distro| answer(200, json!({"tags": tags, "cluster_distro": distro}));
        assert!(is_allowed(both("", "debian"), both("none", "none")));
    }

    #[test]
    fn the_guide_has_this_table() {
        let guide = fs::read_to_string(root().join("docs/magnum.md")).unwrap();
        let differences = guide.split("<!-- differences -->").nth(1).unwrap();
        assert_eq!(
            differences.trim(),
            table().trim(),
            "docs/magnum.md: put what `allowed::table` gives between the marks"
        );
    }
}
