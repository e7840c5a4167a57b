//! What runs of Cluster API is built from modules alone.

use lab::programs::{cluster_api::ClusterApi, managers};
use lab::progress::Terminal;

#[test]
fn releases_name_the_images_that_are_built() {
    let managers = managers::managers(&Terminal::default()).unwrap();
    for version in ClusterApi::VERSIONS {
        assert_eq!(managers.images(version).unwrap().len(), 4);
        for provided in ClusterApi::PROVIDERS {
            let release = managers.repository.join(provided.label).join(version);
            let components = std::fs::read_to_string(release.join(provided.file)).unwrap();
            assert!(
                components.contains(&format!(":{version}\n")),
                "{}",
                provided.label
            );
            assert!(
                !components.contains("k8s-staging-cluster-api"),
                "{}",
                provided.label
            );
        }
    }
}
