//! A real Keystone, and the real `openstack coe` of those who have an account there.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, bail};
use lab::{Entrance, OpenStack, Progress, command::output};

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
        let log = directory.join("serve.log");
        let mut child = script("serve")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).context("make the log of Keystone")?)
            .spawn()
            .context("start Keystone")?;
        let said = child.stdout.take().context("Keystone has no output")?;
        let mut line = String::new();
        BufReader::new(said)
            .read_line(&mut line)
            .context("read what Keystone says")?;
        let Ok(port) = line.trim().parse::<u16>() else {
            let _ = child.kill();
            let _ = child.wait();
            let log = fs::read_to_string(&log).unwrap_or_default();
            bail!("Keystone does not start:\n{log}");
        };
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

    /// `openstack coe` of a user.
    pub fn coe(&self, user: &str, arguments: &[&str]) -> Command {
        let project = match user {
            "eve" => "other",
            "admin" => "admin",
            _ => "demo",
        };
        let mut command = self.openstack.python();
        command
            .args(["-m", "openstackclient.shell", "coe"])
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
