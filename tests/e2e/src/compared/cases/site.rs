//! Versions, paths, verbs, media, tokens; and what is told of the service itself.

use serde_json::{Value, json};

use super::{Case, Who, everybody, no_bodies, pages};

/// Paths that are read.
const READ: [&str; 8] = [
    "/v1/clustertemplates",
    "/v1/clustertemplates/detail",
    "/v1/clusters",
    "/v1/clusters/detail",
    "/v1/stats",
    "/v1/mservices",
    "/v1/quotas",
    "/v1/federations",
];

pub(super) fn cases() -> Vec<Case> {
    let mut all = paths();
    all.extend(versions());
    let read = READ.iter().map(|path| Case::new("GET", *path));
    all.extend(read.flat_map(|case| everybody(&case)));
    let writing = ["/v1/clusters", "/v1/clustertemplates", "/v1/certificates"];
    all.extend(writing.iter().flat_map(|path| no_bodies("POST", path)));
    all.extend(told());
    all.extend(quotas());
    all
}

fn paths() -> Vec<Case> {
    let mut all: Vec<_> = [
        "/",
        "/v1",
        "/v1/",
        "/v2",
        "/word",
        "/v1/word",
        "/clusters",
        "/v1/clusters/",
        "/v1/clusters.json",
        "/v1/clusters/word/word",
        "/v1/clusters/word/actions",
        "/v1/clusters/word/actions/word",
        "/v1/clustertemplates/word",
        "/v1/clusters/00000000-0000-4000-8000-000000000000",
        "/v1/clusters/word/nodegroups",
        "/v1/certificates/word",
        "/v1/certificates",
        "/v1/federations/word",
        "/v1/mservices/word",
    ]
    .map(|path| Case::new("GET", path))
    .to_vec();
    all.extend(["/", "/v1"].map(|path| Case::new("GET", path).by(Who::Nobody)));
    for method in ["PUT", "OPTIONS", "DELETE", "PATCH", "POST"] {
        let paths = ["/v1/stats", "/v1/mservices", "/v1/clusters"];
        all.extend(paths.map(|path| Case::new(method, path)));
    }
    all
}

fn versions() -> Vec<Case> {
    let headers = [
        None,
        Some("container-infra 1.1"),
        Some("container-infra 1.14"),
        Some("container-infra latest"),
        Some("container-infrastructure 1.9"),
        Some("container-infrastructure-management 1.9"),
        Some("container-infra 1.15"),
        Some("container-infra 1.0"),
        Some("container-infra 2.0"),
        Some("container-infra 0.9"),
        Some("container-infra 1"),
        Some("container-infra word"),
        Some("container-infra"),
        Some("compute 1.5"),
        Some("1.5"),
        Some("word"),
        Some("container-infra 1.1.1"),
    ];
    let mut all = Vec::new();
    for header in headers {
        let paths = ["/v1/clusters", "/v1/stats", "/v1/word"];
        all.extend(paths.map(|path| Case::new("GET", path).header(header)));
    }
    for version in ["1.1", "1.6", "1.7", "1.8", "1.11", "1.12"] {
        let post = |action: &str, body: &Value| {
            let path = format!("/v1/clusters/word/actions/{action}");
            Case::new("POST", path).at(version).json(body.clone())
        };
        all.extend([
            Case::new("GET", "/v1/clusters/word/nodegroups").at(version),
            post("resize", &json!({"node_count": 1})),
            post(
                "upgrade",
                &json!({"cluster_template": "word", "max_batch_size": 1}),
            ),
            Case::new("PATCH", "/v1/credentials/word").at(version),
            Case::new("GET", "/v1/quotas/word/Cluster").at(version),
        ]);
    }
    all
}

fn told() -> Vec<Case> {
    let mut all = Vec::new();
    for query in ["type=cluster", "type=word", "word=1", "project_id=word"] {
        let case = Case::new("GET", format!("/v1/stats?{query}"));
        all.extend([Who::Ann, Who::Admin].map(|who| case.clone().by(who)));
    }
    let lists = ["/v1/clusters", "/v1/clusters/detail"];
    all.extend(lists.iter().flat_map(|path| pages(path)));
    all
}

fn quotas() -> Vec<Case> {
    const ALL: &str = "/v1/quotas";
    const ONE: &str = "/v1/quotas/{demo}/Cluster";
    let made = json!({"project_id": "{demo}", "resource": "Cluster", "hard_limit": 7});
    let changed =
        |limit: i32| json!({"project_id": "{demo}", "resource": "Cluster", "hard_limit": limit});
    let by_admin = |case: Case| case.by(Who::Admin);
    let wrong = [
        json!({"project_id": "{demo}", "resource": "word", "hard_limit": 7}),
        json!({"project_id": "{demo}", "hard_limit": 7}),
        json!({"resource": "Cluster", "hard_limit": 7}),
        json!({"project_id": "{demo}", "resource": "Cluster", "hard_limit": -1}),
        json!({"project_id": "{demo}", "resource": "Cluster", "hard_limit": "word"}),
        json!({"project_id": "{demo}", "resource": "Cluster", "hard_limit": 7, "word": 1}),
    ];
    let mut all = everybody(&Case::new("GET", ONE));
    all.extend(wrong.map(|body| by_admin(Case::new("POST", ALL).json(body))));
    all.extend([
        by_admin(Case::new("PATCH", ONE).json(made.clone())),
        by_admin(Case::new("DELETE", ONE)),
        Case::new("POST", ALL).json(made.clone()),
        by_admin(Case::new("POST", ALL).json(made.clone())),
        by_admin(Case::new("POST", ALL).json(made)),
    ]);
    all.extend(everybody(&Case::new("GET", ONE)));
    all.extend([
        by_admin(Case::new("GET", ALL)),
        by_admin(Case::new("GET", "/v1/quotas?limit=1")),
        by_admin(Case::new("GET", "/v1/quotas?all_tenants=true")),
        by_admin(Case::new("PATCH", ONE).json(changed(9))),
        by_admin(Case::new("PATCH", ONE).json(changed(-1))),
        Case::new("PATCH", ONE).json(changed(8)),
        Case::new("DELETE", ONE),
        by_admin(Case::new("GET", "/v1/quotas/{demo}/word")),
        by_admin(Case::new("DELETE", ONE)),
        by_admin(Case::new("DELETE", ONE)),
    ]);
    all
}
