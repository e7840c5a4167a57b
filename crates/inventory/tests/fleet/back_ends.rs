//! One inventory with clusters of all back ends: an edit of their site is an edit of each of them.

use inventory::{Fleet, diff};
use serde_json::json;

use crate::{cluster, objects};

fn inventory(version: &str) -> Fleet {
    let mut all = objects(INVENTORY);
    let mut sites = all.iter_mut().filter(|object| object["kind"] == "Site");
    sites.next().unwrap()["spec"]["values"]["version"] = json!(version);
    Fleet::read(all, "default").unwrap()
}

#[test]
fn one_site_has_clusters_of_three_back_ends() {
    let fleet = inventory("1.34.3");
    let rendered = |name: &str| {
        let objects = fleet.render(&cluster(name)).unwrap().objects();
        objects.into_iter().next().unwrap()
    };
    assert_eq!(rendered("hosts")["spec"]["kubernetesVersion"], "1.34.3");
    assert_eq!(rendered("machines")["spec"]["version"], "v1.34.3");
    let topology = &rendered("classy")["spec"]["topology"];
    assert_eq!(
        (&topology["version"], &topology["classRef"]["name"]),
        (&json!("v1.34.3"), &json!("small"))
    );

    let changes = diff::diff(&fleet, &inventory("1.34.4")).unwrap();
    let changed: Vec<_> = changes.iter().map(|change| &*change.cluster.name).collect();
    assert_eq!(changed, ["classy", "hosts", "machines"]);
}

const INVENTORY: &str = "
apiVersion: inventory.windlass.dev/v1alpha1
kind: Hierarchy
metadata: {name: default}
spec: {levels: [{name: site, kind: Site}]}
---
apiVersion: inventory.windlass.dev/v1alpha1
kind: Site
metadata: {name: fra1}
spec: {values: {}}
---
apiVersion: inventory.windlass.dev/v1alpha1
kind: FleetCluster
metadata: {name: hosts}
spec: {template: kubespray, parents: {site: fra1}}
---
apiVersion: inventory.windlass.dev/v1alpha1
kind: FleetCluster
metadata: {name: machines}
spec: {template: plain, parents: {site: fra1}}
---
apiVersion: inventory.windlass.dev/v1alpha1
kind: FleetCluster
metadata: {name: classy}
spec: {template: topology, parents: {site: fra1}}
---
apiVersion: inventory.windlass.dev/v1alpha1
kind: ClusterTemplate
metadata: {name: kubespray}
spec:
  backEnd: Kubespray
  documents:
    - object:
        apiVersion: kubespray.k8s.io/v1
        kind: Cluster
        metadata: {name: '{{ cluster.name }}'}
        spec: {kubernetesVersion: '{{ version }}'}
---
apiVersion: inventory.windlass.dev/v1alpha1
kind: ClusterTemplate
metadata: {name: plain}
spec:
  backEnd: Plain
  documents:
    - object:
        apiVersion: controlplane.cluster.x-k8s.io/v1beta2
        kind: KubeadmControlPlane
        metadata: {name: '{{ cluster.name }}'}
        spec: {version: 'v{{ version }}'}
---
apiVersion: inventory.windlass.dev/v1alpha1
kind: ClusterTemplate
metadata: {name: topology}
spec:
  backEnd: Plain
  documents:
    - object:
        apiVersion: cluster.x-k8s.io/v1beta2
        kind: Cluster
        metadata: {name: '{{ cluster.name }}'}
        spec: {topology: {classRef: {name: small}, version: 'v{{ version }}'}}
";
