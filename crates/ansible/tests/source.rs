//! Playbooks from directories and real git repositories.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use ansible::source::{
    Bounds, Checkout, Error, NetworkRefusal, Policy, Protocol, Room, SourceRequest, Sources,
    TreeRefusal, digest,
};
use nix::sys::stat::Mode;

async fn fetch(request: &SourceRequest, cache: &Path) -> Result<Checkout, Error> {
    fetch_under(Policy::person(), request, cache).await
}

async fn fetch_under(
    policy: Policy,
    request: &SourceRequest,
    cache: &Path,
) -> Result<Checkout, Error> {
    let sources = Sources::new(cache, policy);
    sources.fetch("default", request).await
}

fn git_source(url: impl Into<String>, reference: &str) -> SourceRequest {
    SourceRequest::Git {
        url: url.into(),
        reference: reference.to_owned(),
        commit: None,
    }
}

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

/// The first two were one text to the hash once: a name, a kind and where a link leads stood beside each other.
#[test]
fn trees_that_differ_in_anything_have_digests_that_differ() {
    let place = tempfile::tempdir().expect("a directory");
    let digest_of = |name: &str, make: &dyn Fn(&Path) -> std::io::Result<()>| {
        let tree = place.path().join(name);
        fs::create_dir(&tree).expect("a tree");
        make(&tree).expect("its entries");
        digest(&tree).expect("a digest")
    };
    let mut digests = vec![
        digest_of("directories", &|tree| {
            let mut names = ["a", "link", "z"].iter();
            names.try_for_each(|name| fs::create_dir(tree.join(name)))
        }),
        digest_of("a link", &|tree| symlink("z", tree.join("a"))),
        digest_of("a longer link", &|tree| symlink("z>", tree.join("a"))),
        digest_of("a longer name", &|tree| symlink("z", tree.join("a>"))),
        digest_of("a directory", &|tree| fs::create_dir(tree.join("a"))),
        digest_of("an empty file", &|tree| fs::write(tree.join("a"), "")),
        digest_of("a file", &|tree| fs::write(tree.join("a"), "z")),
        digest_of("a program", &|tree| {
            fs::write(tree.join("a"), "z")?;
            fs::set_permissions(tree.join("a"), fs::Permissions::from_mode(0o755))
        }),
    ];
    let trees = digests.len();
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), trees);
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
    let request = |reference: &str| git_source(format!("file://{}", tree.display()), reference);
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
    let nowhere = git_source(
        format!("file://{}/nowhere", place.path().display()),
        "v1.0.0",
    );
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

/// A repository with the least that counts as kubespray, and a tag.
fn repository(tree: &Path) -> String {
    make_tree(tree);
    git(tree, &["init", "--quiet", "--initial-branch", "main"]);
    commit(tree)
}

fn commit(tree: &Path) -> String {
    git(tree, &["add", "."]);
    git(tree, &["commit", "--quiet", "-m", "one"]);
    git(tree, &["tag", "--force", "v1.0.0"]);
    git(tree, &["rev-parse", "HEAD"])
}

/// What a git server does with a request.
#[derive(Clone)]
enum Answer {
    /// Serves the repositories below a directory, by git's own CGI.
    Serve(PathBuf),
    /// Sends the client elsewhere.
    Redirect(&'static str),
    /// Says nothing.
    Nothing,
}

/// A git server by http on loopback; its address.
fn serve(answer: Answer) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its number");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            // A client that goes away in the middle is no concern of the server.
            std::thread::spawn(move || drop(respond(stream, &answer)));
        }
    });
    format!("http://{address}")
}

fn respond(mut stream: TcpStream, answer: &Answer) -> std::io::Result<()> {
    let mut input = BufReader::new(stream.try_clone()?);
    let mut head = Vec::new();
    for line in input.by_ref().lines() {
        let line = line?;
        if line.is_empty() {
            break;
        }
        head.push(line);
    }
    match answer {
        Answer::Nothing => std::io::copy(&mut input, &mut std::io::sink()).map(drop),
        Answer::Redirect(to) => write!(
            stream,
            "HTTP/1.1 302 Elsewhere\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        ),
        Answer::Serve(root) => {
            let header = |name: &str| {
                let mut lines = head.iter().filter_map(|line| line.split_once(": "));
                lines.find_map(|(key, value)| {
                    key.eq_ignore_ascii_case(name).then(|| value.to_owned())
                })
            };
            let mut words = head
                .first()
                .map(String::as_str)
                .unwrap_or_default()
                .split(' ');
            let (method, target) = (
                words.next().unwrap_or_default(),
                words.next().unwrap_or_default(),
            );
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            let length: u64 = header("content-length")
                .and_then(|length| length.parse().ok())
                .unwrap_or(0);
            let mut cgi = Command::new("git")
                .arg("http-backend")
                .env("GIT_PROJECT_ROOT", root)
                .env("GIT_HTTP_EXPORT_ALL", "1")
                .env("REQUEST_METHOD", method)
                .env("PATH_INFO", path)
                .env("QUERY_STRING", query)
                .env("CONTENT_TYPE", header("content-type").unwrap_or_default())
                .env("CONTENT_LENGTH", length.to_string())
                .env("GIT_PROTOCOL", header("git-protocol").unwrap_or_default())
                .env(
                    "HTTP_CONTENT_ENCODING",
                    header("content-encoding").unwrap_or_default(),
                )
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let mut to_cgi = cgi.stdin.take().expect("its input");
            std::io::copy(&mut input.take(length), &mut to_cgi)?;
            drop(to_cgi);
            write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\n")?;
            std::io::copy(&mut cgi.stdout.take().expect("its output"), &mut stream)?;
            cgi.wait().map(drop)
        }
    }
}

/// A tenant's policy that knows this machine, as a test needs it.
fn near() -> Policy {
    Policy {
        protocols: vec![Protocol::Https, Protocol::Http],
        addresses: vec!["127.0.0.1/32".parse().expect("a network")],
        ..Policy::tenants()
    }
}

#[tokio::test]
async fn a_tenants_repository_is_fetched_through_the_gate() {
    let place = tempfile::tempdir().expect("a directory");
    let cache = place.path().join("cache");
    let commit = repository(&place.path().join("kubespray"));
    let url = format!(
        "{}/kubespray/.git",
        serve(Answer::Serve(place.path().to_owned()))
    );
    let fetched = fetch_under(near(), &git_source(&url, "v1.0.0"), &cache)
        .await
        .expect("the tag");
    assert_eq!(fetched.revision.as_deref(), Some(commit.as_str()));
    // The same machine, but not allowed.
    let strict = Policy {
        addresses: Vec::new(),
        ..near()
    };
    let refused = fetch_under(strict, &git_source(&url, "v1.0.0"), &cache).await;
    assert!(
        matches!(
            &refused,
            Err(Error::Network { source: NetworkRefusal::Address { what, .. }, .. }) if what.contains("loopback")
        ),
        "{refused:?}"
    );
    // Allowed, but led elsewhere.
    let metadata = serve(Answer::Redirect(
        "http://169.254.169.254/kubespray.git/info/refs?service=git-upload-pack",
    ));
    let refused = fetch_under(
        near(),
        &git_source(format!("{metadata}/kubespray.git"), "v1.0.0"),
        &cache,
    )
    .await;
    assert!(
        matches!(
            &refused,
            Err(Error::Network { source: NetworkRefusal::Address { address, .. }, .. })
                if address.to_string() == "169.254.169.254"
        ),
        "{refused:?}"
    );
}

#[tokio::test]
async fn protocols_that_are_not_allowed_are_refused_before_anybody_is_asked() {
    let place = tempfile::tempdir().expect("a directory");
    let cache = place.path().join("cache");
    let marker = place.path().join("executed");
    repository(&place.path().join("kubespray"));
    let local = place.path().join("kubespray").display().to_string();
    for url in [
        "http://192.0.2.1/kubespray.git".to_owned(),
        "git://192.0.2.1/kubespray.git".to_owned(),
        format!("file://{local}"),
        local,
    ] {
        let refused = fetch_under(Policy::tenants(), &git_source(&url, "v1.0.0"), &cache).await;
        assert!(
            matches!(&refused, Err(error @ Error::Protocol { .. }) if error.is_final()),
            "{url}: {refused:?}"
        );
    }
    // Not even a person's: it is a command.
    let command = format!("ext::touch {}", marker.display());
    for policy in [Policy::person(), Policy::tenants()] {
        let refused = fetch_under(policy, &git_source(&command, "v1.0.0"), &cache).await;
        assert!(matches!(refused, Err(Error::Url(_))), "{refused:?}");
    }
    assert!(!marker.exists());
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up_and_git_with_it() {
    let place = tempfile::tempdir().expect("a directory");
    let cache = place.path().join("cache");
    let url = format!("{}/kubespray.git", serve(Answer::Nothing));
    let policy = Policy {
        time: Duration::from_secs(1),
        ..near()
    };
    let hung = fetch_under(policy, &git_source(url, "v1.0.0"), &cache).await;
    assert!(
        matches!(&hung, Err(error @ Error::Late { .. }) if !error.is_final()),
        "{hung:?}"
    );
    // Every git of this fetch names its directory.
    let name = cache.display().to_string();
    let at_work = || {
        fs::read_dir("/proc")
            .expect("processes")
            .flatten()
            .filter_map(|process| fs::read(process.path().join("cmdline")).ok())
            .any(|line| String::from_utf8_lossy(&line).contains(&name))
    };
    let begun = Instant::now();
    while at_work() {
        assert!(begun.elapsed() < Duration::from_secs(20), "git goes on");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn a_tag_that_was_moved_is_refused_with_both_commits() {
    let place = tempfile::tempdir().expect("a directory");
    let (tree, cache) = (place.path().join("tree"), place.path().join("cache"));
    let released = repository(&tree);
    let request = |commit: &str| SourceRequest::Git {
        url: format!("file://{}", tree.display()),
        reference: "v1.0.0".to_owned(),
        commit: Some(commit.to_owned()),
    };
    fetch(&request(&released), &cache)
        .await
        .expect("the release");
    fs::write(tree.join("cluster.yml"), "backdoor").expect("a change");
    let moved = commit(&tree);
    let error = fetch(&request(&released), &cache).await.expect_err("moved");
    assert!(
        matches!(error, Error::Moved { .. }) && error.is_final(),
        "{error:?}"
    );
    let said = error.to_string();
    assert!(said.contains(&released) && said.contains(&moved), "{said}");
}

/// Puts an entry into the index that git itself would not make of a file.
fn index(tree: &Path, mode: &str, object: &str, path: &str) {
    git(
        tree,
        &[
            "update-index",
            "--add",
            "--cacheinfo",
            &format!("{mode},{object},{path}"),
        ],
    );
    git(tree, &["commit", "--quiet", "-m", "entry"]);
    git(tree, &["tag", "--force", "v1.0.0"]);
}

#[tokio::test]
async fn nothing_that_a_repository_says_of_itself_is_acted_upon() {
    let place = tempfile::tempdir().expect("a directory");
    let (tree, cache) = (place.path().join("tree"), place.path().join("cache"));
    repository(&tree);
    fs::write(
        tree.join(".gitattributes"),
        "* text eol=crlf filter=lfs export-subst\ninventory export-ignore\n",
    )
    .expect("attributes");
    fs::write(
        tree.join(".gitmodules"),
        "[submodule \"m\"]\n\tpath = m\n\turl = /etc\n",
    )
    .expect("modules");
    fs::write(tree.join("cluster.yml"), "one\n$Format:%H$\n").expect("a playbook");
    fs::write(tree.join("inventory"), "kept").expect("a file");
    let head = commit(&tree);
    index(&tree, "160000", &head, "m");
    let fetched = fetch(
        &git_source(format!("file://{}", tree.display()), "v1.0.0"),
        &cache,
    )
    .await
    .expect("the playbooks");
    let read = |name: &str| fs::read_to_string(fetched.path.join(name)).expect("a file");
    assert_eq!(read("cluster.yml"), "one\n$Format:%H$\n");
    assert_eq!(read("inventory"), "kept");
    assert_eq!(
        fs::read_dir(fetched.path.join("m"))
            .expect("a directory")
            .count(),
        0
    );
}

/// A tree of these lines, and nothing else.
fn made_tree(repository: &Path, lines: &str) -> String {
    let mut made = Command::new("git")
        .arg("-C")
        .arg(repository)
        .arg("mktree")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("git");
    let mut input = made.stdin.take().expect("its input");
    input.write_all(lines.as_bytes()).expect("a tree");
    drop(input);
    let output = made.wait_with_output().expect("git");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[tokio::test]
async fn a_repository_that_leads_out_or_unfolds_is_refused() {
    let place = tempfile::tempdir().expect("a directory");
    let (tree, cache) = (place.path().join("tree"), place.path().join("cache"));
    repository(&tree);
    let request = git_source(format!("file://{}", tree.display()), "v1.0.0");
    symlink("/etc/shadow", tree.join("secret.yml")).expect("a link");
    commit(&tree);
    let error = fetch(&request, &cache).await.expect_err("a link");
    assert!(
        matches!(&error, Error::Refused { source: TreeRefusal::Link { entry, .. }, .. } if entry == "secret.yml"),
        "{error:?}"
    );
    fs::remove_file(tree.join("secret.yml")).expect("no link");
    commit(&tree);
    // Ten trees of ten trees of ten trees, and so on: a handful of objects, ten million files. And the same of nothing but
    // trees, two of two of two: they unfold for longer than anybody waits, without a single file.
    let file = format!(
        "100644 blob {}",
        git(&tree, &["hash-object", "-w", "cluster.yml"])
    );
    let none = format!("040000 tree {}", made_tree(&tree, ""));
    for (what, leaf, wide, deep) in [("files", file, 10, 7), ("trees", none, 2, 60)] {
        let mut node = leaf;
        for _ in 0..deep {
            let lines: Vec<_> = (0..wide)
                .map(|number| format!("{node}\tn{number}\n"))
                .collect();
            node = format!("040000 tree {}", made_tree(&tree, &lines.concat()));
        }
        let object = node.rsplit(' ').next().unwrap_or_default();
        let root = git(&tree, &["commit-tree", object, "-m", "bomb"]);
        git(&tree, &["tag", "--force", "v1.0.0", &root]);
        let error = fetch(&request, &cache).await.expect_err(what);
        assert!(
            matches!(
                &error,
                Error::Refused {
                    source: TreeRefusal::Bound {
                        what: "entries are",
                        ..
                    },
                    ..
                }
            ),
            "{what}: {error:?}"
        );
    }
    let small = Policy {
        bounds: Bounds {
            file_bytes: 1000,
            ..Bounds::default()
        },
        ..Policy::person()
    };
    fs::write(tree.join("roles/big"), "x".repeat(1001)).expect("a file");
    commit(&tree);
    let error = fetch_under(small, &request, &cache)
        .await
        .expect_err("a big file");
    assert!(
        matches!(&error, Error::Refused { source: TreeRefusal::Bound { at, .. }, .. } if at == "roles/big"),
        "{error:?}"
    );
}

/// What a repository packs small and git unpacks large is cut off while it comes.
#[tokio::test]
async fn a_pack_that_grows_beyond_its_bound_ends_git() {
    let place = tempfile::tempdir().expect("a directory");
    let (tree, cache) = (place.path().join("tree"), place.path().join("cache"));
    repository(&tree);
    let policy = Policy {
        bounds: Bounds {
            memory: 0,
            ..Bounds::default()
        },
        ..Policy::person()
    };
    // Any git at all is too much, if it is looked at while it runs: this one waits for a server that says nothing.
    let url = format!("{}/kubespray.git", serve(Answer::Nothing));
    let error = fetch_under(policy, &git_source(url, "v1.0.0"), &cache)
        .await
        .expect_err("too much");
    assert!(
        matches!(&error, Error::Refused { source: TreeRefusal::Bound { what, .. }, .. } if what.contains("memory")),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_directory_outside_of_the_roots_is_not_even_looked_at() {
    let place = tempfile::tempdir().expect("a directory");
    let (root, cache) = (place.path().join("root"), place.path().join("cache"));
    let (inside, outside) = (root.join("bundle"), place.path().join("outside"));
    make_tree(&inside);
    make_tree(&outside);
    symlink(&outside, root.join("link")).expect("a link");
    let policy = Policy {
        roots: Some(vec![root.clone()]),
        ..Policy::tenants()
    };
    let bring =
        async |path: PathBuf| fetch_under(policy.clone(), &SourceRequest::Path(path), &cache).await;
    bring(inside.clone()).await.expect("what is below a root");
    for refused in [
        outside.clone(),
        // Whether there is such a directory is not told.
        PathBuf::from("/var/run/secrets/kubernetes.io/serviceaccount"),
        PathBuf::from("/"),
        root.join("../outside"),
        root.join("link"),
        PathBuf::from("bundle"),
    ] {
        let error = bring(refused.clone()).await.expect_err("outside");
        assert!(
            matches!(error, Error::Outside { .. }),
            "{}: {error:?}",
            refused.display()
        );
    }
    let none = bring(root.join("none")).await;
    assert!(matches!(none, Err(Error::NoDirectory(_))), "{none:?}");
}

#[tokio::test]
async fn no_text_of_a_file_outside_of_a_directory_is_read() {
    for (name, spoil) in [
        (
            "link",
            (|tree: &Path| symlink("/etc/shadow", tree.join("extra.yml")).expect("a link"))
                as fn(&Path),
        ),
        ("pipe", |tree| {
            nix::unistd::mkfifo(&tree.join("extra.yml"), Mode::S_IRUSR).expect("a pipe");
        }),
        ("socket", |tree| {
            drop(std::os::unix::net::UnixListener::bind(tree.join("extra.yml")).expect("a socket"));
        }),
    ] {
        let place = tempfile::tempdir().expect("a directory");
        let (tree, cache) = (place.path().join("tree"), place.path().join("cache"));
        make_tree(&tree);
        spoil(&tree);
        let error = fetch(&SourceRequest::Path(tree), &cache)
            .await
            .expect_err(name);
        assert!(
            matches!(error, Error::Refused { .. }) && error.is_final(),
            "{name}: {error:?}"
        );
    }
}

#[tokio::test]
async fn a_tenant_loses_what_they_used_longest_ago_and_nobody_else_does() {
    let place = tempfile::tempdir().expect("a directory");
    let cache = place.path().join("cache");
    let policy = Policy {
        // A tree counts a MiB at least.
        room: Room {
            total: 3 << 20,
            share: 2 << 20,
            reserve: 0,
        },
        // A disk that is nearly full makes room for the largest tree that may come, and it does so first.
        bounds: Bounds {
            bytes: 1 << 20,
            ..Bounds::default()
        },
        ..Policy::person()
    };
    let sources = Sources::new(&cache, policy);
    let tree = |name: &str| {
        let tree = place.path().join(name);
        make_tree(&tree);
        fs::write(tree.join("cluster.yml"), name).expect("a playbook");
        SourceRequest::Path(tree)
    };
    let other = sources.fetch("other", &tree("other")).await.expect("other");
    let other = (other.path.clone(), drop(other)).0;
    let first = sources
        .fetch("greedy", &tree("first"))
        .await
        .expect("first");
    let second = sources
        .fetch("greedy", &tree("second"))
        .await
        .expect("second");
    let second = (second.path.clone(), drop(second)).0;
    // Three would be beyond the share. The first is read; so the second goes, although it was used later.
    let third = sources
        .fetch("greedy", &tree("third"))
        .await
        .expect("third");
    assert!(first.path.is_dir() && third.path.is_dir() && other.is_dir());
    assert!(!second.exists(), "the share was passed");
    let first = (first.path.clone(), drop(first)).0;
    // Beyond the total: whoever has the most gives.
    let more = sources
        .fetch("newcomer", &tree("more"))
        .await
        .expect("more");
    assert!(more.path.is_dir() && third.path.is_dir() && other.is_dir());
    assert!(!first.exists(), "the total was passed");
    // What was removed is brought again.
    sources
        .fetch("greedy", &tree("second"))
        .await
        .expect("second");
}

#[tokio::test]
async fn a_full_volume_is_left_alone() {
    let place = tempfile::tempdir().expect("a directory");
    let tree = place.path().join("tree");
    make_tree(&tree);
    let policy = Policy {
        room: Room {
            reserve: u64::MAX,
            ..Room::default()
        },
        ..Policy::person()
    };
    let cache = place.path().join("cache");
    let error = fetch_under(policy, &SourceRequest::Path(tree), &cache)
        .await
        .expect_err("full");
    assert!(!error.is_final(), "{error:?}");
    let source = std::error::Error::source(&error).map(ToString::to_string);
    assert!(
        source.is_some_and(|source| source.contains("must stay free")),
        "{error:?}"
    );
}
