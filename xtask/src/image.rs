//! `cargo xtask image`: the operator's image and the runner's, without a container engine.
//!
//! The operator's holds one static program, the bundle, and git with what it needs; nothing in it can be logged in to. The
//! runner's is a small Debian with ssh and the Python environment of a release. Each is one tar with an OCI layout, for
//! `ctr images import`, `skopeo copy oci-archive:...` or `podman load`, and the same bytes from the same input.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use lab::progress::Terminal;
use lab::{Extent, Progress as _, cache, command, packages};
use serde_json::json;

use crate::tools;

mod layer;
mod sbom;

use layer::{Description, Layer};

/// Options of `image`.
#[derive(Args, Debug, Default)]
pub(crate) struct Image {
    /// How the program is built
    #[arg(long, value_enum, default_value_t)]
    profile: Profile,
    /// The operator's image alone
    #[arg(long)]
    operator_only: bool,
    /// The image of the engine that the tests have of their own, in the directory `widgets` beside the others
    #[arg(long)]
    widgets: bool,
    /// Where the images are written [default: target/images]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// How a program is built.
#[derive(Clone, Copy, Debug, Default, PartialEq, ValueEnum)]
enum Profile {
    /// For use: optimised, and the same bytes from the same input
    #[default]
    Release,
    /// As for use, but not optimised
    Debug,
    /// Not optimised, and with this machine's C library in it: one crate is compiled for it where tests are compiled
    Quick,
}

impl Image {
    /// Both images, quickly, in this directory.
    pub(crate) fn quick(out: &Path) -> Self {
        Self {
            profile: Profile::Quick,
            out: Some(out.to_owned()),
            ..Self::default()
        }
    }

    /// What suites of this extent need, in this directory.
    pub(crate) fn for_tests(extent: Extent, out: &Path) -> Self {
        let profile = match extent {
            Extent::Full => Profile::Debug,
            Extent::Usual => Profile::Quick,
        };
        Self {
            widgets: true,
            profile,
            ..Self::quick(out)
        }
    }
}

/// What was written.
struct Written {
    path: PathBuf,
    reference: String,
    digest: String,
}

/// Builds and writes the images.
pub(crate) fn image(options: &Image) -> Result<()> {
    let out = options
        .out
        .clone()
        .unwrap_or_else(|| target().join("images"));
    let program = program("windlass", options)?;
    let root = root(&program)?;
    fs::create_dir_all(&out).with_context(|| format!("make {}", out.display()))?;
    let blobs = tempfile::tempdir_in(&out).context("make a directory for layers")?;
    let operator = operator(&program, &root, blobs.path(), &out)?;
    let mut components = crates()?;
    let files = closure(&root, GIT)?;
    let files = files
        .iter()
        .filter_map(|(name, _)| Some(sbom::merged(name.to_str()?)));
    components.extend(sbom::debian(&root, Some(&files.collect()))?);
    list(&operator, &components)?;
    let mut written = vec![operator];
    if !options.operator_only {
        let runner = runner(&root, blobs.path(), &out)?;
        let mut components = sbom::debian(&root, None)?;
        components.extend(sbom::python(&root));
        list(&runner, &components)?;
        written.push(runner);
    }
    if options.widgets {
        written.push(widgets(options, blobs.path(), &out.join("widgets"))?);
    }
    for image in written {
        let Written {
            path,
            reference,
            digest,
        } = image;
        println!("{reference}  {digest}  {}", path.display());
    }
    Ok(())
}

/// A static program.
fn program(package: &str, options: &Image) -> Result<PathBuf> {
    if options.profile == Profile::Quick {
        return quick_program(package);
    }
    packages::ensure(PACKAGES, &Terminal::default())?;
    let triple = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let installed =
        command::output(Command::new("rustup").args(["target", "list", "--installed"]))?;
    if !installed.lines().any(|line| line == triple) {
        tools::run(Command::new("rustup").args(["target", "add", &triple]))?;
    }
    let mut cargo = tools::cargo(&["build", "--quiet", "--locked", "--package", package]);
    cargo
        .args(["--target", &triple])
        .env(format!("CC_{}", triple.replace('-', "_")), "musl-gcc");
    let profile = if options.profile == Profile::Debug {
        // Lines for backtraces are four fifths of it, and a part of the time.
        cargo
            .env("CARGO_PROFILE_DEV_DEBUG", "false")
            .env("CARGO_PROFILE_DEV_STRIP", "symbols");
        "debug"
    } else {
        // Where the sources lay is nobody's business and would be in the program.
        let home = std::env::var("CARGO_HOME")
            .or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")))
            .unwrap_or_default();
        let root = tools::root();
        cargo
            .arg("--release")
            .env(
                "RUSTFLAGS",
                format!(
                    "--remap-path-prefix={}=/windlass --remap-path-prefix={home}=/cargo",
                    root.display()
                ),
            )
            // C that says when it was compiled, as mimalloc does, says this: https://reproducible-builds.org/specs/source-date-epoch
            // Not above: build scripts that ask for it are shared with the tests, and all that needs them would be built twice.
            .env("SOURCE_DATE_EPOCH", layer::TIME.to_string());
        "release"
    };
    tools::run(&mut cargo)?;
    Ok(target().join(&triple).join(profile).join(package))
}

/// A program that this machine's C library is linked into, of the crates that the tests are made of: one crate is compiled for it,
/// where musl's takes all of them once more.
fn quick_program(package: &str) -> Result<PathBuf> {
    let mut cargo = tools::cargo(&["rustc", "--quiet", "--locked", "--package", package]);
    cargo
        .args(["--bin", package, "--"])
        .args(["-C", "target-feature=+crt-static"])
        .args(["-C", "debuginfo=0", "-C", "strip=symbols"]);
    tools::run(&mut cargo)?;
    // The next build puts its own in this place.
    let built = target().join("debug").join(package);
    let kept = target().join("debug/static");
    fs::create_dir_all(&kept).with_context(|| format!("make {}", kept.display()))?;
    let kept = kept.join(package);
    fs::copy(&built, &kept).with_context(|| format!("copy {}", built.display()))?;
    Ok(kept)
}

/// The crates that the program is made of.
fn crates() -> Result<BTreeSet<sbom::Component>> {
    let triple = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let mut tree = tools::cargo(&["tree", "--locked", "--package", "windlass"]);
    tree.args(["--target", &triple, "--edges", "normal"])
        .args(["--prefix", "none", "--format", "{p}"]);
    let tree = command::output(&mut tree).context("list the crates")?;
    let lock = fs::read_to_string(tools::root().join("Cargo.lock")).context("read Cargo.lock")?;
    Ok(sbom::crates(&lock, &tree))
}

/// Writes the bill of materials of an image beside it.
fn list(image: &Written, components: &BTreeSet<sbom::Component>) -> Result<()> {
    let bill = sbom::bill(&image.reference, &image.digest, components);
    let path = image.path.with_extension("cdx.json");
    let text = serde_json::to_string_pretty(&bill)?;
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

/// Where cargo builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| tools::root().join("target"), PathBuf::from)
}

/// The file system of the runner, in the cache: made anew when its recipe or what the bundle requires changes.
fn root(program: &Path) -> Result<PathBuf> {
    let bundle = tools::root().join("bundle");
    let requirements =
        fs::read(bundle.join("requirements.txt")).context("read the bundle's requirements")?;
    let sandbox = fs::read(tools::root().join("crates/ansible/src/sandbox.rs"))?;
    let parts: [&[u8]; 4] = [
        RECIPE.as_bytes(),
        RUNNER.as_bytes(),
        &requirements,
        &sandbox,
    ];
    let key = cache::key(parts);
    let progress = Terminal::default();
    cache::ensure("runner-root", &key, |target| {
        packages::ensure(packages::BASE, &progress)?;
        progress.begin("file system of the runner", "about a minute, 0.5 GB");
        let mirror = std::env::var("WINDLASS_DEBIAN_MIRROR")
            .unwrap_or_else(|_| "http://deb.debian.org/debian".to_owned());
        let mut script = Command::new("unshare");
        script
            .args(["--mount", "bash", "-c", RECIPE])
            .env("ROOT", target)
            .env("MIRROR", mirror)
            .env("PACKAGES", RUNNER)
            .env("BUNDLE", &bundle)
            .env("WINDLASS", program);
        command::output(&mut script).context("make the runner's file system")?;
        progress.end();
        Ok(())
    })
}

fn operator(program: &Path, root: &Path, blobs: &Path, out: &Path) -> Result<Written> {
    let mut base = Layer::default()
        .directory("tmp", 0o1777)
        .directory("data", 0o777)
        .text(
            "etc/passwd",
            "windlass:x:65532:65532:windlass:/data:/sbin/nologin\n",
        )
        .text("etc/group", "windlass:x:65532:\n")
        .file(
            "etc/ssl/certs/ca-certificates.crt",
            &root.join("etc/ssl/certs/ca-certificates.crt"),
            0o644,
        );
    for (name, file) in closure(root, GIT)? {
        base = base.file(name, &file, 0o755);
    }
    let own = Layer::default()
        .file("usr/bin/windlass", program, 0o755)
        .sources("opt/windlass/bundle", &tools::root().join("bundle"))?;
    let layers = [base.pack(blobs)?, own.pack(blobs)?];
    let config = json!({
        "Entrypoint": ["/usr/bin/windlass"],
        "Cmd": ["controller"],
        "User": "65532:65532",
        "WorkingDir": "/data",
        "Env": [
            "PATH=/usr/bin:/bin", "HOME=/tmp", "WINDLASS_DATA_DIR=/data",
            "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt",
        ],
    });
    finish("windlass", &config, &layers, blobs, out)
}

fn runner(root: &Path, blobs: &Path, out: &Path) -> Result<Written> {
    let system = Layer::default().tree("", root)?;
    let own = Layer::default().sources("opt/windlass/bundle", &tools::root().join("bundle"))?;
    let layers = [system.pack(blobs)?, own.pack(blobs)?];
    let config = json!({
        "User": "65532:65532",
        "WorkingDir": "/data",
        "Env": [
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp",
            "PYTHONDONTWRITEBYTECODE=1", "LC_ALL=C.UTF-8", "WINDLASS_SANDBOXES=/opt/windlass/sandboxes",
        ],
    });
    finish("windlass-runner", &config, &layers, blobs, out)
}

/// The tests' own engine, whose operator and runner are one program that needs nothing else.
fn widgets(options: &Image, blobs: &Path, out: &Path) -> Result<Written> {
    fs::create_dir_all(out).with_context(|| format!("make {}", out.display()))?;
    let program = program("widgets", options)?;
    let layers = [Layer::default()
        .file("usr/bin/widgets", &program, 0o755)
        .pack(blobs)?];
    let config = json!({"Entrypoint": ["/usr/bin/widgets"], "User": "65532:65532"});
    finish("widgets", &config, &layers, blobs, out)
}

fn finish(
    name: &str,
    config: &serde_json::Value,
    layers: &[layer::Blob],
    blobs: &Path,
    out: &Path,
) -> Result<Written> {
    let tag = format!("v{}", env!("CARGO_PKG_VERSION"));
    let path = out.join(format!("{name}-{tag}.tar"));
    // A name without a registry means Docker Hub's library to every engine; the full form says so.
    let reference = format!("docker.io/library/{name}");
    let description = Description {
        name: &reference,
        tag: &tag,
        config: config.clone(),
        labels: json!({
            "org.opencontainers.image.title": name,
            "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
            "org.opencontainers.image.licenses": "Apache-2.0",
        }),
    };
    let digest = layer::write(&path, blobs, layers, &description)?;
    Ok(Written {
        path,
        reference: format!("{name}:{tag}"),
        digest,
    })
}

/// Programs of a Debian root and the libraries that they load, by their path in an image.
fn closure(root: &Path, programs: &[&str]) -> Result<Vec<(PathBuf, PathBuf)>> {
    let mut ldd = Command::new("chroot");
    ldd.arg(root).arg("ldd");
    ldd.args(programs.iter().map(|program| Path::new("/").join(program)));
    let listed = command::output(&mut ldd).context("list the libraries of git")?;
    let mut files = Vec::new();
    for library in listed
        .split_whitespace()
        .filter(|word| word.starts_with('/') && !word.ends_with(':'))
    {
        let mut readlink = Command::new("chroot");
        readlink.arg(root).args(["readlink", "-f", library]);
        let real = command::output(&mut readlink)?;
        let file = root.join(real.trim().trim_start_matches('/'));
        files.push((library.trim_start_matches('/').into(), file));
    }
    for program in programs {
        let file = fs::canonicalize(root.join(program))
            .with_context(|| format!("{program} is not in the runner's file system"))?;
        ensure!(file.starts_with(root), "{program} leads out of the root");
        files.push((program.into(), file));
    }
    files.sort();
    files.dedup();
    Ok(files)
}

const RECIPE: &str = include_str!("image/root.sh");

/// What making the images takes.
pub(crate) const PACKAGES: &[(&str, &str)] = &[("musl-tools", "musl-gcc")];

/// What runners use beside the minimal system.
const RUNNER: &str = "ca-certificates,git,iproute2,openssh-client,python3,python3-venv,rsync";

/// What fetches playbooks by https and by ssh-less protocols.
const GIT: &[&str] = &["usr/bin/git", "usr/lib/git-core/git-remote-https"];
