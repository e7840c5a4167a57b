//! Magnum's database, which is read in one transaction and never written.

use std::time::Duration;

use mysql_async::{Conn, Opts, OptsBuilder, Value, prelude::Queryable as _};
use tokio::time::timeout;

use super::rows::{Release, Row, Table, Tables};

/// How long the server may take for one statement.
const ANSWERS: Duration = Duration::from_mins(2);
/// The longest that it may send at once: a row has few columns of 64 KiB.
const LARGEST: usize = 16 * 1024 * 1024;
/// The most rows of a table. All of them are held until they are objects.
const MOST_ROWS: usize = 200_000;
/// What the server is told first. The user's rights are no matter: nothing is written in such a session.
const SETTINGS: [&str; 5] = [
    "SET NAMES utf8mb4",
    "SET SESSION time_zone = '+00:00'",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SET SESSION TRANSACTION READ ONLY",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
];

/// Where a database is, and by whom it is read. It holds a password, and is not shown.
#[derive(Clone)]
pub struct Address(Opts);

/// Why an address is none.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub enum AddressError {
    /// It is no URL of MySQL. It is not repeated: a password may be in it.
    #[error(
        "the address of the database has to be mysql+pymysql://USER:PASSWORD@HOST/DATABASE, as `connection` in the section `database` of magnum.conf; an @ in a password is written %40"
    )]
    Form,
    /// It asks for TLS.
    #[error(
        "the address of the database says {0}, and TLS is not spoken to databases: take that out, and have the port brought to this machine, as by `ssh -L 3306:localhost:3306 HOST`"
    )]
    Tls(String),
    /// Keys would go through a network in the clear.
    #[error(
        "the database is on {0}, and it sends keys of clusters in the clear: have its port brought to this machine, as by `ssh -L 3306:localhost:3306 HOST`, or say --plaintext if nobody else is on the way"
    )]
    Clear(String),
}

/// Whether what is read may go through a network in the clear.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Way {
    /// Only within this machine.
    Local,
    /// Anywhere.
    Plaintext,
}

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server did not answer in time.
    #[error("the database server did not answer within {} s", ANSWERS.as_secs())]
    Late,
    /// It refused, or is not there. The error tells its own sources, and is none so that they are not told twice.
    #[error("the database server was not read, while it was asked {0}: {1}{remedy}", remedy = remedy(.1))]
    Server(&'static str, mysql_async::Error),
    /// It has another schema.
    #[error(
        "the database has the revision {0}: those of Magnum 21 and 22 (c0f832afc4fd) and of Magnum 23 (b3e1cf4a2d5e) are read; bring it to one with `magnum-db-manage upgrade` of such a Magnum"
    )]
    Revision(String),
    /// It has too much.
    #[error("the table {0} has more than {MOST_ROWS} rows, which are not held at once")]
    Many(&'static str),
}

impl Address {
    /// As Magnum itself has it, for `SQLAlchemy`: with the name of a driver and with parameters of it.
    ///
    /// # Errors
    ///
    /// It is none, or keys would go through a network in the clear.
    pub fn parse(text: &str, way: Way) -> Result<Self, AddressError> {
        let (scheme, rest) = text.trim().split_once("://").ok_or(AddressError::Form)?;
        if !matches!(scheme.split('+').next(), Some("mysql" | "mariadb")) {
            return Err(AddressError::Form);
        }
        let (login, rest) = login(rest)?;
        let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let options = Opts::from_url(&format!("mysql://{login}{place}"));
        let options = options.map_err(|_| AddressError::Form)?;
        if options.db_name().is_none_or(str::is_empty) {
            return Err(AddressError::Form);
        }
        let mut socket = None;
        for parameter in parameters.split('&') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            if name.starts_with("ssl") {
                return Err(AddressError::Tls(api::text::plain(name, 64)));
            }
            if name == "unix_socket" {
                socket = Some(value.replace("%2F", "/").replace("%2f", "/"));
            }
        }
        let host = options.ip_or_hostname();
        let is_local = host == "localhost"
            || host
                .trim_matches(['[', ']'])
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback());
        if way == Way::Local && socket.is_none() && !is_local {
            return Err(AddressError::Clear(api::text::plain(host, 255)));
        }
        let built = OptsBuilder::from_opts(options)
            .prefer_socket(false)
            .socket(socket)
            .max_allowed_packet(Some(LARGEST));
        Ok(Self(built.into()))
    }
}

/// Who reads, and what follows. A password ends at the first @, as it does for `SQLAlchemy`, and may have what ends a host elsewhere; with
/// another @ behind it, part of it would be taken for the host, and told.
fn login(rest: &str) -> Result<(String, &str), AddressError> {
    let Some((login, rest)) = rest.split_once('@') else {
        return Ok((String::new(), rest));
    };
    let user = login.split(':').next().unwrap_or_default();
    if user.contains('/') || rest.contains('@') {
        return Err(AddressError::Form);
    }
    let login = login.replace('/', "%2F").replace('?', "%3F");
    Ok((format!("{}@", login.replace('#', "%23")), rest))
}

/// Reads all rows, as they were at one moment.
///
/// # Errors
///
/// The server does not answer or refuses, or the schema is none that is known.
pub async fn read(address: &Address) -> Result<(Release, Tables), Error> {
    let mut session = Session::open(address).await?;
    let read = session.all().await;
    session.close().await;
    read
}

struct Session(Conn);

impl Session {
    async fn open(address: &Address) -> Result<Self, Error> {
        let opened = in_time("for a session", Conn::new(address.0.clone())).await?;
        let mut session = Self(opened);
        for setting in SETTINGS {
            in_time(setting, session.0.query_drop(setting)).await?;
        }
        Ok(session)
    }

    async fn all(&mut self) -> Result<(Release, Tables), Error> {
        let asked = "SELECT version_num FROM alembic_version";
        let revisions: Vec<String> = in_time(asked, self.0.query(asked)).await?;
        let revision = revisions.join(" and ");
        let release = Release::of(&revision)
            .ok_or_else(|| Error::Revision(api::text::plain(&revision, 64)))?;
        let mut tables = Tables::default();
        for table in Table::ALL {
            let rows = self.rows(table, release).await?;
            tables = tables.with(table, rows);
        }
        Ok((release, tables))
    }

    async fn rows(&mut self, table: Table, release: Release) -> Result<Vec<Row>, Error> {
        let columns = table.columns(release);
        // The words are ours, and none needs to be quoted but one that MySQL 8 may come to reserve.
        let listed = columns.join("`, `");
        let query = format!("SELECT `{listed}` FROM `{}` ORDER BY id", table.name());
        let mut found = in_time(table.name(), self.0.query_iter(query)).await?;
        let mut rows = Vec::new();
        while let Some(row) = in_time(table.name(), found.next()).await? {
            if rows.len() == MOST_ROWS {
                return Err(Error::Many(table.name()));
            }
            let cells = columns.iter().zip(row.unwrap());
            rows.push(Row::new(cells.filter_map(|(column, value)| match value {
                Value::Bytes(bytes) => Some(((*column).to_owned(), bytes)),
                // As text, everything that is something is bytes.
                _ => None,
            })));
        }
        Ok(rows)
    }

    async fn close(self) {
        // The server ends it by itself otherwise.
        let _ = timeout(ANSWERS, self.0.disconnect()).await;
    }
}

async fn in_time<T>(
    what: &'static str,
    call: impl Future<Output = Result<T, mysql_async::Error>>,
) -> Result<T, Error> {
    match timeout(ANSWERS, call).await {
        Err(_) => Err(Error::Late),
        Ok(answer) => answer.map_err(|error| Error::Server(what, error)),
    }
}

/// What can be done where a server was not read.
fn remedy(error: &mysql_async::Error) -> &'static str {
    let error = match error {
        mysql_async::Error::Server(error) => error,
        mysql_async::Error::Io(_) => {
            return "; look whether it runs, and at the host and the port of its address";
        }
        // What was said is not understood: a way to log in, for example, that is not known here.
        _ => return "",
    };
    match error.code {
        1045 | 1698 => {
            "; look at the user and the password of its address, in which an @ is written %40"
        }
        1044 | 1049 => {
            "; look at the name of the database in its address, and whether its user has the right SELECT on it"
        }
        1142 | 1143 => "; give the user of its address the right SELECT on the whole database",
        1146 => "; look at the name of the database in its address: that one is not Magnum's",
        _ => "",
    }
}
