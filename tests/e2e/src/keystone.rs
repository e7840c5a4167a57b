//! A real Keystone, the real `openstack coe` of those who have an account there, and the real Magnum.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, bail};
use lab::{
    Entrance, Magnum, MagnumRelease, OpenStack, Progress, Tempest, command::output, gophercloud,
};
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
    /// What is looked things up in, where somebody asked for it.
    cloud: Option<Child>,
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
            cloud: None,
        })
    }

    /// Puts a Nova, a Glance and a Neutron into the catalogue that know the image `debian`, the flavor `metal` and the network `public`.
    ///
    /// # Errors
    ///
    /// It does not start, or Keystone refuses.
    pub fn with_cloud(mut self) -> Result<Self> {
        let mut script = self.openstack.script("cloud.py");
        script
            .arg(&self.address)
            .env("OS_BOOTSTRAP_PASSWORD", &self.password);
        let log = self.directory.join("cloud.log");
        let (child, _) = served(&mut inside(self.entrance, script), &log)?;
        self.cloud = Some(child);
        Ok(self)
    }

    /// OpenStack's own tests of a Magnum, against the one in the catalogue.
    ///
    /// # Errors
    ///
    /// They cannot be had.
    pub fn acceptance(&self, progress: &dyn Progress) -> Result<Command> {
        let directory = self.directory.join("tempest");
        let mut script = Tempest::ensure(progress)?.script(&directory, &self.address)?;
        script
            .env("OS_BOOTSTRAP_PASSWORD", &self.password)
            .env("HOME", &self.directory);
        Ok(inside(self.entrance, script))
    }

    /// gophercloud's tests of a Magnum, by the administrator.
    ///
    /// # Errors
    ///
    /// They cannot be had.
    pub fn gophercloud(&self, progress: &dyn Progress) -> Result<Command> {
        let mut tests = gophercloud(&self.directory.join("gophercloud"), progress)?;
        self.account("admin", &mut tests);
        tests
            .env("OS_DOMAIN_ID", "default")
            .env("OS_REGION_NAME", "");
        for (name, value) in [
            // It has tests for older releases too.
            ("OS_BRANCH", "master"),
            ("OS_IMAGE_ID", "debian"),
            ("OS_MAGNUM_IMAGE_ID", "debian"),
            ("OS_MAGNUM_KEYPAIR", ""),
            ("OS_FLAVOR_ID", "metal"),
            // They are to differ, and nothing of Magnum is resized to it.
            ("OS_FLAVOR_ID_RESIZE", "other"),
            ("OS_NETWORK_NAME", "public"),
            ("OS_NETWORK_ID", "public"),
            ("OS_SUBNET_ID", "none"),
            ("OS_POOL_NAME", "public"),
            ("OS_EXTGW_ID", "public"),
        ] {
            tests.env(name, value);
        }
        Ok(inside(self.entrance, tests))
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
        let mut command = self.openstack.python();
        command
            .args(arguments)
            .env("HOME", &self.directory)
            // `config` ends with a line for the shell, which it looks up.
            .env("SHELL", "/bin/sh");
        self.account(user, &mut command);
        let mut command = inside(self.entrance, command);
        command.stdin(Stdio::null());
        command
    }

    /// Tells a command whose it is.
    fn account(&self, user: &str, command: &mut Command) {
        let project = match user {
            "eve" => "other",
            "admin" => "admin",
            _ => "demo",
        };
        command
            .env("OS_IDENTITY_API_VERSION", "3")
            .env("OS_AUTH_URL", &self.address)
            .env("OS_USERNAME", user)
            .env("OS_PASSWORD", &self.password)
            .env("OS_PROJECT_NAME", project)
            .env("OS_USER_DOMAIN_ID", "default")
            .env("OS_PROJECT_DOMAIN_ID", "default");
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
        for child in self.cloud.iter_mut().chain([&mut self.child]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
