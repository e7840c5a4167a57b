//! Layers and manifests that strangers made, damaged: the playbooks are taken out of them, or they are refused.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use oci_client::manifest::OciManifest;
use tar::{Builder, Header};

use super::*;
use crate::source::tree::tests::{BOUNDS, Place};

fn add(archive: &mut Builder<Vec<u8>>, kind: EntryType, path: &str, content: &str) {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o7777);
    header.set_size(0);
    if matches!(kind, EntryType::Symlink | EntryType::Link) {
        archive.append_link(&mut header, path, content)
    } else {
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, path, content.as_bytes())
    }
    .expect("an entry");
}

fn archive(entries: &[(EntryType, &str, &str)]) -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    for (kind, path, content) in entries {
        add(&mut archive, *kind, path, content);
    }
    archive.into_inner().expect("an archive")
}

fn playbooks_of_a_layer() -> Vec<u8> {
    let long = format!("kubespray/roles/{}/main.yml", "long-".repeat(24));
    archive(&[
        (EntryType::Directory, "kubespray/", ""),
        (EntryType::Regular, "kubespray/cluster.yml", "- hosts: all"),
        (EntryType::Regular, "kubespray/roles/etcd/main.yml", "a"),
        (EntryType::Regular, &long, "b"),
        (EntryType::Symlink, "kubespray/roles/latest", "etcd"),
        (EntryType::Link, "kubespray/copy", "kubespray/cluster.yml"),
        (
            EntryType::Regular,
            "usr/local/lib/python3/netaddr-1.3.0.dist-info/METADATA",
            "",
        ),
    ])
}

fn hostile_layer() -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    archive
        .append_pax_extensions([("path", &b"kubespray/../../beside/kept"[..])])
        .expect("a long path");
    for (kind, path, content) in [
        (EntryType::Regular, "kubespray/x", "changed"),
        (EntryType::Symlink, "kubespray/roles", "../../beside"),
        (EntryType::Regular, "kubespray/roles/kept", "changed"),
        (EntryType::Regular, "kubespray/.wh.copy", ""),
        (EntryType::Regular, "kubespray/roles/.wh..wh..opq", ""),
        (EntryType::Link, "kubespray/hard", "beside/kept"),
        (EntryType::Fifo, "kubespray/pipe", ""),
        (EntryType::Char, "kubespray/roles/etcd", ""),
    ] {
        add(&mut archive, kind, path, content);
    }
    archive.into_inner().expect("an archive")
}

/// Writes the sums of damaged heads anew: who attacks would.
fn summed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for block in bytes.chunks_exact_mut(512) {
        if block.get(257..262) != Some(b"ustar") {
            continue;
        }
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    bytes
}

fn unpack(layers: &[&[u8]], place: &Place) -> Result<(), Error> {
    let paths = layers.iter().enumerate().map(|(index, bytes)| {
        let path = place.path().join(format!("layer-{index}"));
        fs::write(&path, bytes).expect("a layer");
        path
    });
    let image = Image {
        name: "registry/image".to_owned(),
        layers: paths.collect(),
        bounds: BOUNDS,
        wanted: Wanted::default(),
    };
    image.unpack(&place.tree(), 0)
}

#[test]
fn layers_survive_fuzzing() {
    let base = playbooks_of_a_layer();
    let hostile = hostile_layer();
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&base).expect("bytes");
    let packed = packed.finish().expect("a packed layer");
    for layer in [&base, &packed] {
        let place = Place::new();
        unpack(&[layer], &place).expect("a layer that is taken");
        let pins = fs::read_to_string(place.tree().join("requirements.txt"));
        assert_eq!(pins.expect("what was installed"), "netaddr==1.3.0\n");
        place.check();
    }
    fuzz::bytes("layers", &[&base, &hostile, &packed], |bytes| {
        let layer = summed(bytes);
        for layers in [&[&layer[..]][..], &[&base, &layer]] {
            let place = Place::new();
            if let Err(Error::Refused { source, .. }) = unpack(layers, &place) {
                let said = source.to_string();
                assert!(api::text::is_plain(&said) && said.len() < 1024, "{said:?}");
            }
            place.check();
        }
    });
}

#[test]
fn manifests_survive_fuzzing() {
    let manifest = r#"{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": "sha256:00", "size": 2},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": "sha256:01", "size": 1024},
                   {"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": "sha256:02", "size": 4096}]}"#;
    fuzz::bytes("manifests", &[manifest.as_bytes()], |bytes| {
        let Ok(OciManifest::Image(manifest)) = serde_json::from_slice(bytes) else {
            return;
        };
        if let Ok(total) = measured(&manifest, &BOUNDS) {
            assert!(total <= BOUNDS.download && manifest.layers.len() <= LAYERS);
            assert!(manifest.layers.iter().all(|layer| layer.size >= 0));
        }
    });
}

#[tokio::test]
async fn what_a_registry_fails_with_does_not_tell_the_credential_of_the_gate() {
    let work = tempfile::tempdir().expect("a directory");
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let image = format!("{}/image:v1", nobody.local_addr().expect("an address"));
    drop(nobody);
    let policy = Policy::person();
    let gate = Gate::open(&policy, work.path(), MANIFESTS);
    let gate = gate.await.expect("a gate");
    let url = gate.url();
    let (login, _) = url.split_once('@').expect("a login");
    let (_, secret) = login.rsplit_once(':').expect("a password");
    let error = download(&image, &policy, Some(&gate), work.path()).await;
    let error = error.expect_err("nobody is there");
    assert!(!format!("{error} {error:?}").contains(secret), "{error:?}");
}
