//! Serves a directory to the hosts of a lab, without any network beyond it: `mirror DIR ADDRESS:PORT [USER:PASSWORD]`.
//! With a user, nobody else gets anything. The directory is laid out as [`mirror`] has it.

use std::{env, io::Write as _, path::PathBuf};

use anyhow::Context;
use base64::{Engine, engine::general_purpose::STANDARD};
use mirror::{Store, serve};
use tokio::net::TcpListener;

const USAGE: &str = "usage: mirror DIR ADDRESS:PORT [USER:PASSWORD]";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = env::args_os().skip(1);
    let directory = PathBuf::from(arguments.next().context(USAGE)?);
    let mut texts = arguments.map(|argument| argument.into_string().ok().context(USAGE));
    let address = texts.next().context(USAGE)??;
    let login = texts.next().transpose()?;
    let store = Store::open(&directory)
        .with_context(|| format!("failed to open {}", directory.display()))?;
    let authorization = login.map(|login| format!("Basic {}", STANDARD.encode(login)));
    let listener = TcpListener::bind(&address)
        .await
        .with_context(|| format!("failed to listen on {address}"))?;
    println!("listening on {address}");
    std::io::stdout().flush()?;
    axum::serve(listener, serve::router(store, authorization))
        .await
        .context("failed to serve")
}
