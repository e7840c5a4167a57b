//! Text of others, damaged: it is shown without doing anything to whoever looks at it, or refused.

use api::{
    Cluster, ClusterNode, Duration, HostName, KubernetesVersion, KubesprayVersion, Run, Threshold,
    text,
};

#[test]
fn text_of_others_survives_fuzzing() {
    let corpus = [
        "fatal: \x1b[31munable to access 'https://a.example/': \u{202e}gnp.exe\r\nretry",
        "Debian GNU/Linux 13 (trixie)",
    ];
    fuzz::text("text of others", &corpus, |given| {
        for limit in [8, 64, 256] {
            for shown in [text::plain(given, limit), text::lines(given, limit)] {
                assert!(shown.len() <= limit, "{shown:?}");
                let controls = |c: char| c.is_control() && c != '\n' && c != '\t';
                assert!(!shown.contains(controls), "{shown:?}");
                assert!(!shown.contains(['\u{202e}', '\u{2066}']), "{shown:?}");
            }
            assert!(text::is_plain(&text::plain(given, limit)));
        }
    });
}

#[test]
fn values_of_a_spec_survive_fuzzing() {
    let corpus = [
        "1h30m", "20%", "3", "v1.35.4", "2.31.0", "worker-1", "60d", "1.35.0",
    ];
    fuzz::text("values", &corpus, |text| {
        macro_rules! is_read_back {
            ($($type:ty),*) => {$(
                if let Ok(value) = text.parse::<$type>() {
                    assert_eq!(value.to_string().parse::<$type>().unwrap(), value);
                }
            )*};
        }
        is_read_back!(
            Duration,
            HostName,
            KubernetesVersion,
            KubesprayVersion,
            Threshold
        );
    });
}

#[test]
fn objects_survive_fuzzing() {
    let cluster = r#"{"apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": {"name": "a"}, "spec": {
        "kubernetesVersion": "1.35.4", "kubespray": {"version": "2.31.0", "source": {"path": "/srv"}},
        "ssh": {"user": "root", "privateKeySecretRef": {"name": "ssh"}},
        "operations": {"creation": {"startConditions": {"etcd": {"minimum": 3}}, "thresholds": {"unreachable": "20%"}}}}}"#;
    let node = r#"{"apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode", "metadata": {"name": "a"},
        "spec": {"type": "master", "inventory": {"ansible_host": "10.0.0.11", "ip": "10.0.0.11"}}}"#;
    fuzz::bytes("objects", &[cluster.as_bytes(), node.as_bytes()], |bytes| {
        if let Ok(cluster) = serde_json::from_slice::<Cluster>(bytes) {
            serde_json::to_vec(&cluster).unwrap();
        }
        if let Ok(node) = serde_json::from_slice::<ClusterNode>(bytes) {
            serde_json::to_vec(&node).unwrap();
        }
        drop(serde_json::from_slice::<Run>(bytes));
    });
}
