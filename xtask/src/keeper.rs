//! A command that keeps something up, in the foreground or in the background, until it is told to end.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{self, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use nix::{
    sys::signal::{SigSet, Signal, kill},
    unistd::Pid,
};

/// Where a keeper notes what it keeps, for the other commands.
pub(crate) fn record(name: &str) -> PathBuf {
    let runtime = env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| path.is_dir());
    let directory = runtime.unwrap_or_else(lab::cache::dir);
    let _ = fs::create_dir_all(&directory);
    directory.join(name)
}

/// The signals that end a keeper. They are blocked once what it keeps is up: until then they end it at once.
pub(crate) fn block_signals() -> Result<SigSet> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    signals.thread_block().context("block signals")?;
    Ok(signals)
}

/// Says that all is up, and waits until it shall end.
pub(crate) fn keep(signals: &SigSet, record: &Path) -> Result<()> {
    println!("{UP}");
    std::io::stdout().flush()?;
    signals.wait().context("wait for a signal")?;
    eprintln!("stopping");
    let _ = fs::remove_file(record);
    Ok(())
}

/// Runs this command again in a session of its own and waits until it says that all is up.
pub(crate) fn detach(record: &Path) -> Result<()> {
    let log = record.with_extension("log");
    let errors = fs::File::create(&log).with_context(|| format!("make {}", log.display()))?;
    let arguments = env::args_os().skip(1);
    let mut child = process::Command::new("setsid")
        .arg(env::current_exe()?)
        .args(arguments.filter(|argument| argument != "--detach"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .context("start in the background")?;
    let output = child.stdout.take().context("no output to read")?;
    eprintln!("starting in the background; progress: {}", log.display());
    for line in BufReader::new(output).lines() {
        let line = line?;
        if line == UP {
            return Ok(());
        }
        println!("{line}");
    }
    let text = fs::read_to_string(&log).unwrap_or_default();
    bail!("it did not start:\n{text}")
}

/// Ends a keeper, and waits until its directory is gone.
pub(crate) fn end(keeper: i32, dir: &Path) -> Result<()> {
    kill(Pid::from_raw(keeper), Signal::SIGTERM).context("end the keeper")?;
    let deadline = Instant::now() + Duration::from_mins(1);
    while dir.exists() {
        if Instant::now() > deadline {
            bail!("{} is still there", dir.display());
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// The last line that a keeper prints.
const UP: &str = "all is up";
