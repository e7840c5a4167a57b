//! A real Keystone, the real `openstack coe` of those who have an account there, and the real Magnum.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, bail};
use lab::{Entrance, Magnum, MagnumRelease, OpenStack, Progress, command::output};
use serde_json::Value;

/// A Keystone on loopback, ended when it is dropped. Of project `demo`, `ann` is a member and `bob` a reader; `eve` is a member of
/// project `other`; `admin` is who they are everywhere.
pub struct Keystone {
    /// Its address.
    pub address: String,
    openstack: OpenStack,
    entrance: Option<Entrance>,
    directory: PathBuf,
    password: String,
    child: Child,
}

impl Keystone {
    /// Starts one that keeps what it has in this directory, on the loopback of a lab or of this machine.
    ///
    /// # Errors
    ///
    /// Its packages cannot be had, or it does not start.
    pub fn start(
        directory: &Path,
        entrance: Option<Entrance>,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let openstack = OpenStack::ensure(progress)?;
        fs::create_dir(directory).context("make the directory of Keystone")?;
        let password = format!("p{}", std::process::id());
        let script = |word: &str| {
            let mut script = openstack.script("identity.py");
            script.arg(word).arg(directory);
            script.env("OS_BOOTSTRAP_PASSWORD", &password);
            inside(entrance, script)
        };
        output(&mut script("make"))?;
        let (child, port) = served(&mut script("serve"), &directory.join("serve.log"))?;
        Ok(Self {
            address: format!("http://127.0.0.1:{port}/v3"),
            openstack,
            entrance,
            directory: directory.to_owned(),
            password,
            child,
        })
    }

    /// Makes the accounts, and a catalogue with this address of Magnum.
    ///
    /// # Errors
    ///
    /// Keystone refuses.
    pub fn people(&self, magnum: &str) -> Result<()> {
        let mut people = self.openstack.script("people.py");
        people
            .args([&self.address, magnum])
            .env("OS_BOOTSTRAP_PASSWORD", &self.password);
        output(&mut inside(self.entrance, people)).map(drop)
    }

    /// A token of a user, for their project.
    ///
    /// # Errors
    ///
    /// Keystone gives none.
    pub fn token(&self, user: &str) -> Result<Token> {
        let issued = output(&mut self.client(user, &["token", "issue", "-f", "json"]))?;
        let issued: Value = serde_json::from_str(&issued).context("read a token")?;
        let member = |name: &str| {
            let text = issued[name].as_str().map(str::to_owned);
            text.with_context(|| format!("a token has no {name}"))
        };
        Ok(Token {
            id: member("id")?,
            project: member("project_id")?,
            user: member("user_id")?,
        })
    }

    /// `openstack coe` of a user.
    pub fn coe(&self, user: &str, arguments: &[&str]) -> Command {
        self.client(user, &[&["coe"], arguments].concat())
    }

    fn client(&self, user: &str, arguments: &[&str]) -> Command {
        let module = ["-m", "openstackclient.shell"];
        self.python_of(user, &[&module, arguments].concat())
    }

    /// Python with the packages of OpenStack, for which a user is known by the environment.
    pub fn python_of(&self, user: &str, arguments: &[&str]) -> Command {
        let project = match user {
            "eve" => "other",
            "admin" => "admin",
            _ => "demo",
        };
        let mut command = self.openstack.python();
        command
            .args(arguments)
            .env("HOME", &self.directory)
            // `config` ends with a line for the shell, which it looks up.
            .env("SHELL", "/bin/sh")
            .env("OS_IDENTITY_API_VERSION", "3")
            .env("OS_AUTH_URL", &self.address)
            .env("OS_USERNAME", user)
            .env("OS_PASSWORD", &self.password)
            .env("OS_PROJECT_NAME", project)
            .env("OS_USER_DOMAIN_ID", "default")
            .env("OS_PROJECT_DOMAIN_ID", "default");
        let mut command = inside(self.entrance, command);
        command.stdin(Stdio::null());
        command
    }

    /// Python with the packages of OpenStack.
    pub fn python(&self) -> Command {
        self.openstack.python()
    }
}

/// What lets somebody in, and whom it names.
pub struct Token {
    /// The token.
    pub id: String,
    /// The project that it is for.
    pub project: String,
    /// Whose it is.
    pub user: String,
}

/// The real Magnum on loopback, ended when it is dropped.
pub struct MagnumService {
    /// Its address.
    pub address: String,
    child: Child,
}

impl MagnumService {
    /// Starts one that keeps what it has in this directory. The kubeconfig is that of Windlass' objects, for the driver.
    ///
    /// # Errors
    ///
    /// Its packages cannot be had, or it does not start.
    pub fn start(
        keystone: &Keystone,
        release: MagnumRelease,
        directory: &Path,
        kubeconfig: &Path,
        progress: &dyn Progress,
    ) -> Result<Self> {
        Self::serve(keystone, release, directory, progress, |script| {
            script.arg(kubeconfig);
        })
    }

    /// Starts the API of a Magnum 23 alone, over a database with so many clusters of somebody, on which nothing works.
    ///
    /// # Errors
    ///
    /// As [`MagnumService::start`].
    pub fn api(
        keystone: &Keystone,
        directory: &Path,
        clusters: u32,
        owner: &Token,
        progress: &dyn Progress,
    ) -> Result<Self> {
        Self::serve(
            keystone,
            MagnumRelease::V23,
            directory,
            progress,
            |script| {
                // No driver is asked for anything, so it needs no kubeconfig.
                script.arg("none").arg(clusters.to_string());
                script.args([&owner.project, &owner.user]);
            },
        )
    }

    fn serve(
        keystone: &Keystone,
        release: MagnumRelease,
        directory: &Path,
        progress: &dyn Progress,
        further: impl FnOnce(&mut Command),
    ) -> Result<Self> {
        let magnum = Magnum::ensure(release, progress)?;
        fs::create_dir(directory).context("make the directory of Magnum")?;
        let mut script = magnum.script()?;
        script.arg(directory).arg(&keystone.address);
        further(&mut script);
        script.env("OS_BOOTSTRAP_PASSWORD", &keystone.password);
        let mut script = inside(keystone.entrance, script);
        let (child, port) = served(&mut script, &directory.join("serve.log"))?;
        Ok(Self {
            address: format!("http://127.0.0.1:{port}/v1"),
            child,
        })
    }
}

impl MagnumService {
    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for MagnumService {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a service that says its port first.
fn served(command: &mut Command, log: &Path) -> Result<(Child, u16)> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(log).context("make the log of a service")?)
        .spawn()
        .context("start a service of OpenStack")?;
    let said = child.stdout.take().context("the service has no output")?;
    let mut line = String::new();
    BufReader::new(said)
        .read_line(&mut line)
        .context("read what the service says")?;
    if let Ok(port) = line.trim().parse() {
        return Ok((child, port));
    }
    let _ = child.kill();
    let _ = child.wait();
    let log = fs::read_to_string(log).unwrap_or_default();
    bail!("the service does not start:\n{log}");
}

fn inside(entrance: Option<Entrance>, command: Command) -> Command {
    match entrance {
        Some(entrance) => entrance.enter(&command),
        None => command,
    }
}

impl Drop for Keystone {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
