//! The database of a service: what is asked of the server and told to it. The statements are pure, and the same that a plan shows.
//!
//! A database is known to be a service's by its comment. MariaDB 10.5 or later.

use std::time::Duration;

use mysql_async::{Conn, OptsBuilder, prelude::Queryable as _};
use sha1::{Digest as _, Sha1};
use tokio::time::timeout;

/// How long the server may take for one statement.
const ANSWERS: Duration = Duration::from_secs(30);

/// How much a server may send at once: every answer is a word.
const LARGEST: usize = 1024 * 1024;

/// How to reach a server as an administrator.
#[derive(Clone)]
pub struct Login {
    /// The host, as it is reached from here.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The user.
    pub username: String,
    /// Its password.
    pub password: String,
}

/// What there is of a service's database.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// The database, with its comment.
    Database(String),
    /// No database, but a user of that name.
    User,
}

/// Why the server did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It did not answer in time.
    #[error("the database server did not answer within {} s", ANSWERS.as_secs())]
    Late,
    /// It refused, or is not there.
    #[error("{0}")]
    Server(#[source] mysql_async::Error),
}

impl Error {
    /// Whether the server refused the user.
    pub const fn is_denied(&self) -> bool {
        matches!(self, Self::Server(mysql_async::Error::Server(error)) if matches!(error.code, 1044 | 1045 | 1227 | 1698))
    }
}

/// A session of an administrator.
pub struct Session(Conn);

impl Session {
    /// Opens one.
    ///
    /// # Errors
    ///
    /// The server does not answer, or refuses the user.
    pub async fn open(login: &Login) -> Result<Self, Error> {
        let options = OptsBuilder::default()
            .ip_or_hostname(login.host.clone())
            .tcp_port(login.port)
            .prefer_socket(false)
            .user(Some(login.username.clone()))
            .pass(Some(login.password.clone()))
            // Else the server says how much it may send.
            .max_allowed_packet(Some(LARGEST));
        in_time(Conn::new(options)).await.map(Self)
    }

    /// The version of the server.
    ///
    /// # Errors
    ///
    /// The server refuses or does not answer.
    pub async fn version(&mut self) -> Result<String, Error> {
        let version = in_time(self.0.query_first::<String, _>("SELECT VERSION()")).await?;
        Ok(version.unwrap_or_default())
    }

    /// What there is.
    ///
    /// # Errors
    ///
    /// The server refuses or does not answer.
    pub async fn find(&mut self, database: &str) -> Result<Found, Error> {
        let comment = in_time(self.0.exec_first::<String, _, _>(
            "SELECT SCHEMA_COMMENT FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = ?",
            (database,),
        ))
        .await?;
        if let Some(comment) = comment {
            return Ok(Found::Database(comment));
        }
        let users = in_time(self.0.exec_first::<i64, _, _>(
            "SELECT COUNT(*) FROM mysql.user WHERE User = ?",
            (database,),
        ))
        .await?;
        Ok(if users.unwrap_or_default() > 0 {
            Found::User
        } else {
            Found::Nothing
        })
    }

    /// Executes statements one after the other.
    ///
    /// # Errors
    ///
    /// The server refuses or does not answer.
    pub async fn execute(&mut self, statements: &[String]) -> Result<(), Error> {
        for statement in statements {
            in_time(self.0.query_drop(statement)).await?;
        }
        Ok(())
    }

    /// Ends it.
    pub async fn close(self) {
        // The server ends it by itself otherwise.
        let _ = timeout(ANSWERS, self.0.disconnect()).await;
    }
}

async fn in_time<T>(call: impl Future<Output = Result<T, mysql_async::Error>>) -> Result<T, Error> {
    match timeout(ANSWERS, call).await {
        Err(_) => Err(Error::Late),
        Ok(answer) => answer.map_err(Error::Server),
    }
}

/// Makes a database and its user, or makes them as they should be. Each may be there already. `owner` is the comment by which it is
/// known again, `password` the [`digest`] of the user's.
pub fn create(database: &str, owner: &str, password: &str) -> Vec<String> {
    let (name, user) = (quoted_name(database), quoted(database));
    vec![
        // With its comment at once: without, nobody would know whose it is after a death in between.
        format!(
            "CREATE DATABASE IF NOT EXISTS {name} CHARACTER SET utf8mb3 COMMENT {}",
            quoted(owner)
        ),
        format!("ALTER DATABASE {name} COMMENT {}", quoted(owner)),
        format!("CREATE USER IF NOT EXISTS {user}@'%'"),
        format!(
            "ALTER USER {user}@'%' IDENTIFIED BY PASSWORD {}",
            quoted(password)
        ),
        format!(
            "GRANT ALL PRIVILEGES ON {}.* TO {user}@'%'",
            granted_name(database)
        ),
    ]
}

/// Removes a database and its user: the database last, since its comment says whose both are.
pub fn remove(database: &str) -> Vec<String> {
    vec![
        format!("DROP USER IF EXISTS {}@'%'", quoted(database)),
        format!("DROP DATABASE IF EXISTS {}", quoted_name(database)),
    ]
}

/// What the server keeps of a password: with it, a password is in no statement and in no log of one.
pub fn digest(password: &str) -> String {
    let twice = Sha1::digest(Sha1::digest(password.as_bytes()));
    format!("*{}", hex::encode_upper(twice))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

fn quoted_name(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// In a grant `_` and `%` stand for other letters: `nova_api` would be `nova1api` too.
fn granted_name(name: &str) -> String {
    quoted_name(name).replace('_', "\\_").replace('%', "\\%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_statement_holds_a_password_or_ends_early() {
        // As the server answers to SELECT PASSWORD('secret').
        let digest = digest("secret");
        assert_eq!(digest, "*14E65567ABDB5135D0CFD9A70B3032C179A49EE7");
        let all = create("it's`", "windlass a/b\\", &digest).join(";\n");
        assert!(!all.contains("secret"));
        assert!(all.contains("DATABASE IF NOT EXISTS `it's```"), "{all}");
        assert!(all.contains("COMMENT 'windlass a/b\\\\'"), "{all}");
        assert!(all.contains("USER IF NOT EXISTS 'it''s`'@'%'"), "{all}");
    }

    #[test]
    fn a_grant_is_for_one_database() {
        let grant = create("nova_api", "o", "*").pop().unwrap();
        assert_eq!(
            grant,
            "GRANT ALL PRIVILEGES ON `nova\\_api`.* TO 'nova_api'@'%'"
        );
    }
}
