//! A real MariaDB, of the image of the tests, on a port of loopback.

use std::ffi::OsStr;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tempfile::TempDir;

use super::cloud_images::CloudImages;
use crate::{Progress, command::output};

/// How long it may take to start on a loaded machine.
const LIMIT: Duration = Duration::from_mins(3);

/// A MariaDB whose administrator is `root` without a password. It ends with the value.
#[derive(Debug)]
pub struct MariaDb {
    directory: TempDir,
    port: u16,
    process: Child,
}

impl MariaDb {
    /// Starts one, and waits until it serves.
    ///
    /// # Errors
    ///
    /// The image cannot be had, or it does not start.
    pub fn start(progress: &dyn Progress) -> Result<Self> {
        let images = CloudImages::ensure(progress)?;
        let [image, _] = images.files();
        let directory = tempfile::tempdir()?;
        unpack(&image, directory.path())?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        drop(listener);
        let script = format!(
            "mkdir -p /data && mariadb-install-db --force --datadir=/data --skip-name-resolve --skip-test-db --user=root \
             --auth-root-authentication-method=normal > /install.log 2>&1 && exec mariadbd --no-defaults --datadir=/data \
             --socket=/mariadb.sock --bind-address=127.0.0.1 --port={port} --skip-name-resolve --pid-file=/mariadb.pid \
             --character-set-server=utf8mb4 --user=root"
        );
        // Its devices are mounted for it alone, and go with it.
        let mut inside = Command::new("unshare");
        inside.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-ec"]);
        inside.arg("mount --bind /dev \"$0/dev\"; mount -t tmpfs tmp \"$0/tmp\"; exec chroot \"$0\" sh -ec \"$1\"");
        inside.args([root(directory.path()).as_os_str(), OsStr::new(&script)]);
        let log = fs::File::create(directory.path().join("log"))?;
        let process = inside.stdout(Stdio::null()).stderr(log).spawn();
        let mut server = Self {
            directory,
            port,
            process: process.context("start MariaDB")?,
        };
        server.until_it_serves()?;
        Ok(server)
    }

    fn until_it_serves(&mut self) -> Result<()> {
        let begun = Instant::now();
        while self.client(b"SELECT 1").is_err() {
            if begun.elapsed() > LIMIT || self.process.try_wait()?.is_some() {
                let log = fs::read_to_string(self.directory.path().join("log"));
                bail!("MariaDB does not serve: {}", log.unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// The port on 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Has MariaDB's own client execute a text.
    ///
    /// # Errors
    ///
    /// The server refuses it.
    pub fn client(&self, text: &[u8]) -> Result<()> {
        let root = root(self.directory.path());
        fs::write(root.join("text.sql"), text)?;
        let script = "exec mariadb --no-defaults --user=root --socket=/mariadb.sock < /text.sql";
        output(Command::new("chroot").arg(root).args(["sh", "-c", script])).map(drop)
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn root(directory: &Path) -> PathBuf {
    directory.join("root")
}

/// Unpacks the one layer of an image.
fn unpack(image: &Path, directory: &Path) -> Result<()> {
    let tar = |from: &Path, to: &Path| {
        output(Command::new("tar").arg("xf").arg(from).arg("-C").arg(to)).map(drop)
    };
    let blobs = directory.join("image");
    fs::create_dir(&blobs)?;
    tar(image, &blobs)?;
    let json =
        |path: &str| -> Result<Value> { Ok(serde_json::from_slice(&fs::read(blobs.join(path))?)?) };
    let blob = |of: &Value| {
        let digest = of["digest"].as_str().unwrap_or_default();
        format!("blobs/{}", digest.replace(':', "/"))
    };
    let manifest = json(&blob(&json("index.json")?["manifests"][0]))?;
    let root = root(directory);
    for part in ["dev", "tmp"] {
        fs::create_dir_all(root.join(part))?;
    }
    tar(&blobs.join(blob(&manifest["layers"][0])), &root)?;
    fs::remove_dir_all(blobs).context("remove the image")
}
