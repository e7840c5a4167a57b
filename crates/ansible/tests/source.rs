//! Playbooks from directories and real git repositories.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::{fs, path::Path, process::Command};

use ansible::source::{Error, SourceRequest, digest, fetch};

fn make_tree(directory: &Path) {
    fs::create_dir_all(directory.join("roles/etcd")).expect("roles");
    for file in ["cluster.yml", "requirements.txt", "roles/etcd/main.yml"] {
        fs::write(directory.join(file), file).expect("a file");
    }
}

fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .arg("-C")
        .arg(directory)
        .args(["-c", "user.name=test", "-c", "user.email=test@localhost"])
        .args(arguments)
        .output()
        .expect("git");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[tokio::test]
async fn a_directory_is_copied_once_and_never_touched() {
    let place = tempfile::tempdir().expect("a directory");
    let (tree, cache) = (place.path().join("tree"), place.path().join("cache"));
    make_tree(&tree);
    let request = SourceRequest::Path(tree.clone());
    let before = digest(&tree).expect("a digest");
    let (first, second) = tokio::join!(fetch(&request, &cache), fetch(&request, &cache));
    let (first, second) = (first.expect("first"), second.expect("second"));
    assert_eq!(first, second);
    assert_eq!(first.digest, before);
    assert_eq!(digest(&tree).expect("a digest"), before);
    // What was changed in the cache is not used.
    fs::write(first.path.join("cluster.yml"), "changed").expect("a change");
    let third = fetch(&request, &cache).await.expect("third");
    assert_eq!(digest(&third.path).expect("a digest"), before);
    // Another content is another place.
    fs::write(tree.join("cluster.yml"), "new").expect("a change");
    let fourth = fetch(&request, &cache).await.expect("fourth");
    assert_ne!(fourth.path, first.path);
}

#[tokio::test]
async fn a_tag_becomes_its_commit() {
    let place = tempfile::tempdir().expect("a directory");
    let (tree, cache) = (place.path().join("tree"), place.path().join("cache"));
    make_tree(&tree);
    git(&tree, &["init", "--quiet"]);
    git(&tree, &["add", "."]);
    git(&tree, &["commit", "--quiet", "-m", "one"]);
    git(&tree, &["tag", "-a", "v1.0.0", "-m", "one"]);
    let commit = git(&tree, &["rev-parse", "HEAD"]);
    fs::write(tree.join("cluster.yml"), "later").expect("a change");
    git(&tree, &["commit", "--quiet", "-am", "two"]);
    let request = |reference: &str| SourceRequest::Git {
        url: format!("file://{}", tree.display()),
        reference: reference.to_owned(),
    };
    let tagged = fetch(&request("v1.0.0"), &cache).await.expect("the tag");
    assert_eq!(tagged.revision.as_deref(), Some(commit.as_str()));
    assert_eq!(
        fs::read_to_string(tagged.path.join("cluster.yml")).expect("the file"),
        "cluster.yml"
    );
    let exact = fetch(&request(&commit), &cache).await.expect("the commit");
    assert_eq!(exact, tagged);
    let branch = git(&tree, &["branch", "--show-current"]);
    let newest = fetch(&request(&branch), &cache).await.expect("the branch");
    assert_ne!(newest, tagged);
    for missing in ["v9.9.9", &"0".repeat(40)] {
        let error = fetch(&request(missing), &cache).await.expect_err("none");
        assert!(matches!(error, Error::NoReference { .. }), "{error:?}");
        assert!(error.to_string().contains(missing), "{error}");
    }
    let nowhere = SourceRequest::Git {
        url: format!("file://{}/nowhere", place.path().display()),
        reference: "v1.0.0".to_owned(),
    };
    let error = fetch(&nowhere, &cache).await.expect_err("no repository");
    assert!(!error.is_final(), "{error:?}");
    assert!(error.to_string().contains("nowhere"), "{error}");
}

#[tokio::test]
async fn what_is_not_kubespray_is_refused() {
    let place = tempfile::tempdir().expect("a directory");
    let cache = place.path().join("cache");
    let fetched = fetch(&SourceRequest::Path(place.path().join("none")), &cache).await;
    assert!(matches!(fetched, Err(Error::NoDirectory(_))), "{fetched:?}");
    let other = place.path().join("other");
    fs::create_dir(&other).expect("a directory");
    let fetched = fetch(&SourceRequest::Path(other), &cache).await;
    let expected = "cluster.yml";
    assert!(
        matches!(&fetched, Err(Error::NotKubespray { missing, .. }) if *missing == expected),
        "{fetched:?}"
    );
}
