//! The database of a service: what is asked of the server and told to it. The statements are pure, and the same that a plan shows.
//!
//! A database is known to be a service's by its comment. MariaDB 10.5 or later.

use std::{io, time::Duration};

use mysql_async::{Conn, OptsBuilder, Value, prelude::Queryable as _};
use sha1::{Digest as _, Sha1};
use tokio::time::timeout;

use crate::backup::archive::SETTINGS;

/// How long the server may take for one statement.
const ANSWERS: Duration = Duration::from_secs(30);

/// How much a server may send at once: every answer is a word.
const LARGEST: usize = 1024 * 1024;
/// The same of one whose rows are read and written.
const LARGEST_ROW: usize = 64 * 1024 * 1024;
/// How long it may take for a statement with many rows.
const LOADS: Duration = Duration::from_mins(10);

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
    /// What it sent was not taken.
    #[error("what the database server sent cannot be written")]
    Taken(#[source] io::Error),
    /// It refused, or is not there.
    #[error("{0}")]
    Server(#[source] mysql_async::Error),
}

impl Error {
    /// Whether the server knows no such statement, or not something that is named in it: it does not learn that by itself.
    pub const fn is_unknown(&self) -> bool {
        // The syntax, a character set, a variable, a collation, an engine, a function, an option, a type.
        matches!(self, Self::Server(mysql_async::Error::Server(error)) if matches!(error.code, 1064 | 1115 | 1193 | 1273 | 1286 | 1305 | 1911 | 4161))
    }

    /// Whether the server refused the user.
    pub const fn is_denied(&self) -> bool {
        matches!(self, Self::Server(mysql_async::Error::Server(error)) if matches!(error.code, 1044 | 1045 | 1142 | 1143 | 1227 | 1370 | 1698))
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
        Self::opened(login, LARGEST).await
    }

    /// Opens one that reads and writes rows as the server has them.
    ///
    /// # Errors
    ///
    /// The server does not answer, or refuses the user.
    pub async fn open_for_rows(login: &Login) -> Result<Self, Error> {
        let mut session = Self::opened(login, LARGEST_ROW).await?;
        for setting in SETTINGS {
            in_time(session.0.query_drop(setting)).await?;
        }
        Ok(session)
    }

    async fn opened(login: &Login, largest: usize) -> Result<Self, Error> {
        let options = OptsBuilder::default()
            .ip_or_hostname(login.host.clone())
            .tcp_port(login.port)
            .prefer_socket(false)
            .user(Some(login.username.clone()))
            .pass(Some(login.password.clone()))
            // Else the server says how much it may send.
            .max_allowed_packet(Some(largest));
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
        for user in users_of(database) {
            if self.has_user(&user).await? {
                return Ok(Found::User);
            }
        }
        Ok(Found::Nothing)
    }

    /// Whether there is a user of this name, from wherever it may come.
    ///
    /// # Errors
    ///
    /// The server refuses or does not answer.
    pub async fn has_user(&mut self, user: &str) -> Result<bool, Error> {
        let query = "SELECT COUNT(*) FROM mysql.user WHERE User = ?";
        let count = in_time(self.0.exec_first::<i64, _, _>(query, (user,))).await?;
        Ok(count.unwrap_or_default() > 0)
    }

    /// Those of this name that may come from certain places alone, as `'NAME'@'PLACE'`. None of them is made here.
    ///
    /// # Errors
    ///
    /// The server refuses or does not answer.
    pub async fn beside(&mut self, user: &str) -> Result<Vec<String>, Error> {
        let query = "SELECT Host FROM mysql.user WHERE User = ? AND Host <> '%' ORDER BY Host";
        let hosts = in_time(self.0.exec::<String, _, _>(query, (user,))).await?;
        let named = |host: &String| format!("{}@{}", quoted(user), quoted(host));
        Ok(hosts.iter().map(named).collect())
    }

    /// How many sessions a user has.
    ///
    /// # Errors
    ///
    /// The server refuses or does not answer.
    pub async fn sessions_of(&mut self, user: &str) -> Result<u64, Error> {
        let query = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = ?";
        let count = in_time(self.0.exec_first(query, (user,))).await?;
        Ok(count.unwrap_or_default())
    }

    /// What a user may, as the server writes it; nothing of one that is not there.
    ///
    /// # Errors
    ///
    /// The server refuses or does not answer.
    pub async fn grants_of(&mut self, user: &str) -> Result<Vec<String>, Error> {
        let query = "SELECT COUNT(*) FROM mysql.user WHERE User = ? AND Host = '%'";
        let count = in_time(self.0.exec_first::<i64, _, _>(query, (user,))).await?;
        if count.unwrap_or_default() == 0 {
            return Ok(Vec::new());
        }
        let query = format!("SHOW GRANTS FOR {}@'%'", quoted(user));
        in_time(self.0.query(query)).await
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

    /// Sees everything from now on as it is now.
    ///
    /// # Errors
    ///
    /// The server refuses or does not answer.
    pub async fn freeze(&mut self) -> Result<(), Error> {
        let statements = [
            // Who reads writes into the store meanwhile.
            "SET SESSION net_write_timeout = 600",
            "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            "START TRANSACTION WITH CONSISTENT SNAPSHOT",
        ];
        for statement in statements {
            in_time(self.0.query_drop(statement)).await?;
        }
        Ok(())
    }

    /// The databases with this comment.
    ///
    /// # Errors
    ///
    /// The server refuses or does not answer.
    pub async fn commented(&mut self, comment: &str) -> Result<Vec<String>, Error> {
        let query = "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_COMMENT = ? ORDER BY 1";
        in_time(self.0.exec(query, (comment,))).await
    }

    /// The tables of a database.
    ///
    /// # Errors
    ///
    /// The server refuses or does not answer.
    pub async fn tables(&mut self, database: &str) -> Result<Vec<String>, Error> {
        let query = "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_TYPE = 'BASE TABLE' ORDER BY 1";
        in_time(self.0.exec(query, (database,))).await
    }

    /// What a database has beside tables: views, sequences, triggers, routines and events.
    ///
    /// # Errors
    ///
    /// The server refuses or does not answer.
    pub async fn others(&mut self, database: &str) -> Result<Vec<String>, Error> {
        let query = "SELECT CONCAT(LOWER(TABLE_TYPE), ' ', TABLE_NAME) FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_TYPE <> 'BASE TABLE' \
            UNION ALL SELECT CONCAT('trigger ', TRIGGER_NAME) FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = ? \
            UNION ALL SELECT CONCAT('routine ', ROUTINE_NAME) FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = ? \
            UNION ALL SELECT CONCAT('event ', EVENT_NAME) FROM information_schema.EVENTS WHERE EVENT_SCHEMA = ?";
        in_time(self.0.exec(query, (database, database, database, database))).await
    }

    /// The revisions that the tables of a database are at, as alembic notes them there; none where it has made no tables.
    ///
    /// # Errors
    ///
    /// The server refuses or does not answer.
    pub async fn revisions(&mut self, database: &str) -> Result<Vec<String>, Error> {
        // Somebody else's table may be called so, too.
        let query = "SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = ? AND TABLE_NAME = 'alembic_version' AND COLUMN_NAME = 'version_num'";
        let count = in_time(self.0.exec_first::<i64, _, _>(query, (database,))).await?;
        if count.unwrap_or_default() == 0 {
            return Ok(Vec::new());
        }
        let database = quoted_name(database);
        let query = format!(
            "SELECT LEFT(version_num, 64) FROM {database}.alembic_version WHERE version_num IS NOT NULL ORDER BY 1 LIMIT 16"
        );
        in_time(self.0.query(query)).await
    }

    /// The columns of a table that are not computed.
    ///
    /// # Errors
    ///
    /// The server refuses or does not answer.
    pub async fn columns(&mut self, database: &str, table: &str) -> Result<Vec<String>, Error> {
        let query = "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? AND IS_GENERATED = 'NEVER' ORDER BY ORDINAL_POSITION";
        in_time(self.0.exec(query, (database, table))).await
    }

    /// The statement that makes a table.
    ///
    /// # Errors
    ///
    /// The server refuses or does not answer.
    pub async fn maker(&mut self, database: &str, table: &str) -> Result<String, Error> {
        let (database, table) = (quoted_name(database), quoted_name(table));
        let query = format!("SHOW CREATE TABLE {database}.{table}");
        let found = in_time(self.0.query_first::<(String, String), _>(query)).await?;
        Ok(found.map(|(_, statement)| statement).unwrap_or_default())
    }

    /// Has each row of a table taken.
    ///
    /// # Errors
    ///
    /// The server refuses or does not answer, or a row is not taken.
    pub async fn rows(
        &mut self,
        (database, table): (&str, &str),
        columns: &[String],
        mut take: impl FnMut(&[Option<&[u8]>]) -> io::Result<()>,
    ) -> Result<(), Error> {
        let columns: Vec<_> = columns.iter().map(|column| quoted_name(column)).collect();
        let query = format!(
            "SELECT {} FROM {}.{}",
            columns.join(","),
            quoted_name(database),
            quoted_name(table)
        );
        let mut found = in_time(self.0.query_iter(query)).await?;
        while let Some(row) = in_time(found.next()).await? {
            let values = (0..columns.len()).map(|place| match row.as_ref(place) {
                Some(Value::Bytes(bytes)) => Some(bytes.as_slice()),
                // As text, everything that is something is bytes.
                _ => None,
            });
            let values: Vec<_> = values.collect();
            take(&values).map_err(Error::Taken)?;
        }
        Ok(())
    }

    /// Executes a statement with rows.
    ///
    /// # Errors
    ///
    /// The server refuses or does not answer.
    pub async fn load(&mut self, statement: &[u8]) -> Result<(), Error> {
        match timeout(LOADS, self.0.query_drop(statement)).await {
            Err(_) => Err(Error::Late),
            Ok(done) => done.map_err(Error::Server),
        }
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
pub fn create(database: &str, user: &str, owner: &str, password: &str) -> Vec<String> {
    let name = quoted_name(database);
    let mut statements = vec![
        // With its comment at once: without, nobody would know whose it is after a death in between.
        format!(
            "CREATE DATABASE IF NOT EXISTS {name} CHARACTER SET utf8mb3 COMMENT {}",
            quoted(owner)
        ),
        format!("ALTER DATABASE {name} COMMENT {}", quoted(owner)),
    ];
    statements.extend(account(database, user, password));
    statements
}

/// Makes a user who may do all in a database and nothing elsewhere, or gives it this password and that right.
pub fn account(database: &str, user: &str, password: &str) -> Vec<String> {
    let user = quoted(user);
    vec![
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

/// What a managed server does each time that it starts: its administrator has this password, from wherever it comes.
pub fn init(password: &str) -> Vec<String> {
    let (root, password) = (quoted(ROOT), quoted(password));
    vec![
        // They are made without a password, and come before '%' for who comes through the API of the cluster.
        format!("DROP USER IF EXISTS {root}@'127.0.0.1', {root}@'::1'"),
        format!("CREATE USER IF NOT EXISTS {root}@'%'"),
        format!("ALTER USER {root}@'%' IDENTIFIED BY {password}"),
        format!("GRANT ALL PRIVILEGES ON *.* TO {root}@'%' WITH GRANT OPTION"),
        format!("ALTER USER {root}@'localhost' IDENTIFIED BY {password}"),
    ]
}

/// Gives the administrator of a managed server the password of this [`digest`]. From anywhere it has it last: by that is seen whether it is
/// done.
pub fn administrator(password: &str) -> [String; 2] {
    let at = |host: &str| {
        let (user, host) = (quoted(ROOT), quoted(host));
        let password = quoted(password);
        format!("ALTER USER IF EXISTS {user}@{host} IDENTIFIED BY PASSWORD {password}")
    };
    [at("localhost"), at("%")]
}

/// The administrator of a managed server.
pub const ROOT: &str = "root";

/// The users that a database has in turn: there is one of them, and while that is replaced, both.
pub fn users_of(database: &str) -> [String; 2] {
    [database.to_owned(), format!("{database}_2")]
}

/// What takes from a user what it may beside all in this database; `grants` as the server writes them.
pub fn excess(grants: &[String], database: &str, user: &str) -> Vec<String> {
    let own = format!("{}.*", granted_name(database));
    let user = quoted(user);
    let revoke = |what: &str| format!("REVOKE {what} FROM {user}@'%'");
    let revoked = |grant: &String| {
        let grant = grant.strip_prefix("GRANT ")?;
        let Some((what, rest)) = grant.split_once(" ON ") else {
            // A role, with all that it may.
            let (role, _) = grant.rsplit_once(" TO ")?;
            return Some(vec![revoke(role)]);
        };
        let (place, rest) = rest.rsplit_once(" TO ")?;
        let is_meant = place == own || what == "USAGE";
        let passes_on = rest.contains(" WITH GRANT OPTION");
        // To take all is not to take the right to pass it on.
        let what = (!is_meant).then_some(what);
        let what = what.into_iter().chain(passes_on.then_some("GRANT OPTION"));
        Some(
            what.map(|what| revoke(&format!("{what} ON {place}")))
                .collect(),
        )
    };
    grants.iter().filter_map(revoked).flatten().collect()
}

/// Whether a user may do something in this database and nothing elsewhere: it is a user of it, and of nobody else's.
pub fn serves_only(grants: &[String], database: &str, user: &str) -> bool {
    let own = format!(" ON {}.* TO ", granted_name(database));
    grants.iter().any(|grant| grant.contains(&own)) && excess(grants, database, user).is_empty()
}

/// Makes an empty database that has this comment.
pub fn scratch(database: &str, comment: &str) -> String {
    format!(
        "CREATE DATABASE {} CHARACTER SET utf8mb3 COMMENT {}",
        quoted_name(database),
        quoted(comment)
    )
}

/// Removes a database.
pub fn remove_database(database: &str) -> String {
    format!("DROP DATABASE IF EXISTS {}", quoted_name(database))
}

/// Makes a user who may make tables in these databases and fill them, and nothing else; `password` is the [`digest`] of the user's.
pub fn loader(user: &str, password: &str, databases: &[String]) -> Vec<String> {
    user_of(user, password, databases, "CREATE, INSERT, REFERENCES")
}

/// Makes a user who may read and change what is in the tables of these databases, and nothing else; `password` is the [`digest`] of the user's.
pub fn tenant(user: &str, password: &str, databases: &[String]) -> Vec<String> {
    user_of(user, password, databases, "SELECT, INSERT, UPDATE, DELETE")
}

fn user_of(user: &str, password: &str, databases: &[String], rights: &str) -> Vec<String> {
    let name = quoted(user);
    let mut statements = vec![
        format!("DROP USER IF EXISTS {name}@'%'"),
        format!(
            "CREATE USER {name}@'%' IDENTIFIED BY PASSWORD {}",
            quoted(password)
        ),
    ];
    statements.extend(databases.iter().map(|database| {
        let database = granted_name(database);
        format!("GRANT {rights} ON {database}.* TO {name}@'%'")
    }));
    statements
}

/// Removes a user.
pub fn remove_user(user: &str) -> String {
    format!("DROP USER IF EXISTS {}@'%'", quoted(user))
}

/// Removes a user and ends its sessions. It is locked first, so that none begins in between.
pub fn end_user(user: &str) -> [String; 3] {
    let name = quoted(user);
    [
        format!("ALTER USER IF EXISTS {name}@'%' ACCOUNT LOCK"),
        format!("KILL USER {name}@'%'"),
        remove_user(user),
    ]
}

/// Empties a database of these tables, whatever they refer to.
pub fn empty(database: &str, tables: &[String]) -> Vec<String> {
    let database = quoted_name(database);
    let drop = |table: &String| format!("DROP TABLE IF EXISTS {database}.{}", quoted_name(table));
    std::iter::once("SET SESSION foreign_key_checks = 0".to_owned())
        .chain(tables.iter().map(drop))
        .collect()
}

/// Works in a database.
pub fn within(database: &str) -> String {
    format!("USE {}", quoted_name(database))
}

/// What the server keeps of a password: with it, a password is in no statement and in no log of one.
pub fn digest(password: &str) -> String {
    let twice = Sha1::digest(Sha1::digest(password.as_bytes()));
    format!("*{}", hex::encode_upper(twice))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// As statements name things.
pub(crate) fn quoted_name(name: &str) -> String {
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
        let all = create("it's`", "it's`", "windlass a/b\\", &digest).join(";\n");
        assert!(!all.contains("secret"));
        assert!(all.contains("DATABASE IF NOT EXISTS `it's```"), "{all}");
        assert!(all.contains("COMMENT 'windlass a/b\\\\'"), "{all}");
        assert!(all.contains("USER IF NOT EXISTS 'it''s`'@'%'"), "{all}");
    }

    #[test]
    fn who_loads_may_make_tables_and_fill_them_alone() {
        let databases = ["nova_api".to_owned()];
        let grant = loader("l", "*", &databases).pop().unwrap();
        let wanted = "GRANT CREATE, INSERT, REFERENCES ON `nova\\_api`.* TO 'l'@'%'";
        assert_eq!(grant, wanted);
        let grant = tenant("l", "*", &databases).pop().unwrap();
        let wanted = "GRANT SELECT, INSERT, UPDATE, DELETE ON `nova\\_api`.* TO 'l'@'%'";
        assert_eq!(grant, wanted);
    }

    #[test]
    fn a_grant_is_for_one_database() {
        let grant = account("nova_api", "nova_api", "*").pop().unwrap();
        assert_eq!(
            grant,
            "GRANT ALL PRIVILEGES ON `nova\\_api`.* TO 'nova_api'@'%'"
        );
    }

    #[test]
    fn what_a_user_may_elsewhere_is_taken() {
        let grants = [
            "GRANT USAGE ON *.* TO `nova_api`@`%` IDENTIFIED BY PASSWORD '*1'",
            "GRANT ALL PRIVILEGES ON `nova\\_api`.* TO `nova_api`@`%` WITH GRANT OPTION",
            "GRANT SELECT, INSERT ON `keystone`.* TO `nova_api`@`%`",
            "GRANT SELECT (`a`) ON `x`.`y` TO `nova_api`@`%`",
        ];
        let grants = grants.map(str::to_owned);
        assert_eq!(
            excess(&grants, "nova_api", "nova_api"),
            [
                "REVOKE GRANT OPTION ON `nova\\_api`.* FROM 'nova_api'@'%'",
                "REVOKE SELECT, INSERT ON `keystone`.* FROM 'nova_api'@'%'",
                "REVOKE SELECT (`a`) ON `x`.`y` FROM 'nova_api'@'%'",
            ]
        );
        let everything = [
            "GRANT ALL PRIVILEGES ON *.* TO `a`@`%` IDENTIFIED BY PASSWORD '*1' WITH GRANT OPTION",
            "GRANT `dba` TO `a`@`%` WITH ADMIN OPTION",
            "SET DEFAULT ROLE `dba` FOR `a`@`%`",
        ];
        assert_eq!(
            excess(&everything.map(str::to_owned), "a", "a"),
            [
                "REVOKE ALL PRIVILEGES ON *.* FROM 'a'@'%'",
                "REVOKE GRANT OPTION ON *.* FROM 'a'@'%'",
                "REVOKE `dba` FROM 'a'@'%'",
            ]
        );
        let global = ["GRANT SUPER ON *.* TO `a`@`%` IDENTIFIED BY PASSWORD '*1'".to_owned()];
        let revoked = ["REVOKE SUPER ON *.* FROM 'a'@'%'"];
        assert_eq!(excess(&global, "a", "a"), revoked);
        assert!(excess(&grants[..1], "nova_api", "nova_api").is_empty());
    }
}
