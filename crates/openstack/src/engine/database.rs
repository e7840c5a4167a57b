//! Steps on the database server.

use api::run::{Failure, FailureClass};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt};
use runs::calls::{call, config, failure, transient};

use crate::{
    audit,
    definition::Definition,
    engine::{Done, Worker, stores::disk},
    names, reach,
    service::{Inputs, Server},
    sql::{self, Found, Login, Session},
};

impl Worker {
    pub(super) async fn check_database(&self, inputs: &Inputs) -> Done {
        let (_way, mut session) = self.session(&inputs.database).await?;
        let version = session.version().await.map_err(|error| said(&error))?;
        session.close().await;
        if !version.contains("MariaDB") {
            return Err(config(
                "NotMariaDB",
                format!("the database server says that it is {version}"),
                "give a MariaDB of 10.5 or later",
            )
            .into());
        }
        Ok(Some(api::text::lines(&version, 200)))
    }

    /// What is not known to be this service's is not touched.
    pub(super) async fn check_owner(&self, inputs: &Inputs, definition: &Definition) -> Done {
        let (_way, mut session) = self.session(&inputs.database).await?;
        let found = session.find(&definition.database).await;
        let found = found.map_err(|error| said(&error))?;
        session.close().await;
        let own = self.owner().await?;
        let database = &definition.database;
        let detail = match found {
            Found::Nothing => "it is not there yet".to_owned(),
            Found::Database(owner) if owner == own => "it is this service's".to_owned(),
            Found::Database(_) | Found::User if inputs.adopt => "it is adopted".to_owned(),
            Found::Database(owner) => {
                let whose = if owner.is_empty() {
                    "nobody says whose it is".to_owned()
                } else {
                    format!("it belongs to {owner}")
                };
                return Err(taken(
                    database,
                    &format!("database {database} is there already: {whose}"),
                )
                .into());
            }
            Found::User => {
                let what =
                    format!("user {database} is there already, and no database of that name");
                return Err(taken(database, &what).into());
            }
        };
        Ok(Some(detail))
    }

    pub(super) async fn create_database(&self, inputs: &Inputs, definition: &Definition) -> Done {
        let secret = names::secret(self.name(), "database");
        let password = self.site().secret_value(&secret, "password").await?;
        let (_way, mut session) = self.session(&inputs.database).await?;
        let cluster = self.cluster().await?;
        let own = self.owner_in(&cluster);
        // Between the check and now somebody else may have been faster.
        let found = session.find(&definition.database).await;
        let is_own = match found.map_err(|error| said(&error))? {
            Found::Nothing => true,
            Found::Database(owner) => owner == own,
            Found::User => false,
        };
        if !is_own && !inputs.adopt {
            let what = format!(
                "database {0} or a user {0} is there meanwhile",
                definition.database
            );
            return Err(taken(&definition.database, &what).into());
        }
        let digest = sql::digest(&password);
        for statement in sql::create(&definition.database, &own, &digest) {
            let told = statement.replace(&digest, audit::PASSWORD);
            let told = told.replace(&cluster, audit::CLUSTER);
            self.about(&audit::statement(&told))?;
            let made = session.execute(&[statement]).await;
            made.map_err(|error| said(&error))?;
        }
        session.close().await;
        Ok(None)
    }

    /// Only what is known to be this service's.
    pub(super) async fn drop_database(&self, inputs: &Inputs, definition: &Definition) -> Done {
        let (_way, mut session) = self.session(&inputs.database).await?;
        let found = session.find(&definition.database).await;
        if found.map_err(|error| said(&error))? != Found::Database(self.owner().await?) {
            session.close().await;
            return Ok(Some("there is none that is this service's".to_owned()));
        }
        for statement in sql::remove(&definition.database) {
            self.about(&audit::statement(&statement))?;
            let removed = session.execute(&[statement]).await;
            removed.map_err(|error| said(&error))?;
        }
        session.close().await;
        Ok(None)
    }

    /// What says whose something is: the comment of the service's database, and the description of its user in Keystone. Clusters that share a server may have objects of one name, and tell each other apart by
    /// what does not change as long as they live.
    pub(super) async fn owner(&self) -> Result<String, Failure> {
        Ok(self.owner_in(&self.cluster().await?))
    }

    /// What says the same in the cluster of this unique id.
    pub(super) fn owner_in(&self, cluster: &str) -> String {
        names::owner(self.name(), &self.namespace(), cluster)
    }

    /// What is another one in every cluster.
    pub(super) async fn cluster(&self) -> Result<String, Failure> {
        let cluster = Api::<Namespace>::all(self.work.client.clone())
            .get_metadata("kube-system")
            .await
            .map_err(|error| call("read the namespace kube-system", &error))?;
        Ok(cluster.uid().unwrap_or_default())
    }

    pub(super) async fn session(&self, server: &Server) -> Result<(reach::Way, Session), Failure> {
        let (way, login) = self.way(server).await?;
        let session = Session::open(&login).await;
        let session = session.map_err(|error| refused(server, &login.username, &error))?;
        Ok((way, session))
    }

    /// A session of the administrator that reads rows.
    pub(super) async fn reading(&self, server: &Server) -> Result<(reach::Way, Session), Failure> {
        let (way, login) = self.way(server).await?;
        let session = Session::open_for_rows(&login).await;
        let session = session.map_err(|error| refused(server, &login.username, &error))?;
        Ok((way, session))
    }

    /// The way to a server, and its administrator.
    pub(super) async fn way(&self, server: &Server) -> Result<(reach::Way, Login), Failure> {
        let place = (server.host.as_str(), server.port);
        self.site().database(place, &server.admin_secret).await
    }
}

fn taken(database: &str, what: &str) -> Failure {
    let remedy = format!(
        "set spec.existing to Adopt if {database} is to be this service's with what is in it, or take another server"
    );
    config("Taken", what, &remedy)
}

/// That a server does not let its administrator in, by the Secret that has the password; or what else it said.
fn refused(server: &Server, username: &str, error: &sql::Error) -> Failure {
    if !error.is_denied() {
        return said(error);
    }
    let Server {
        host, admin_secret, ..
    } = server;
    config(
        "Denied",
        format!(
            "the database server {host} does not let {username} in with the password in Secret {admin_secret}: {}",
            controller::chain(error)
        ),
        &format!(
            "put the administrator of {host} under the keys username and password of Secret {admin_secret}, and retry the run"
        ),
    )
}

pub(crate) fn said(error: &sql::Error) -> Failure {
    // What was read could not be written: no fault of the server.
    if let sql::Error::Taken(error) = error {
        return disk(error);
    }
    let message = controller::chain(error);
    if error.is_denied() {
        return failure(
            FailureClass::Config,
            "Denied",
            message,
            "mend the Secret of the server's administrator, and retry the run",
        );
    }
    if error.is_unknown() {
        return failure(
            FailureClass::Permanent,
            "StatementUnknown",
            message,
            "bring the database server to a version that knows what is named there, and retry the run",
        );
    }
    transient("DatabaseServer", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server_error(code: u16) -> sql::Error {
        let error = mysql_async::ServerError {
            code,
            message: "it says".to_owned(),
            state: "HY000".to_owned(),
        };
        sql::Error::Server(mysql_async::Error::Server(error))
    }

    #[test]
    fn a_wrong_password_is_told_by_the_secret_that_has_it() {
        let server = Server {
            host: "db.example".to_owned(),
            port: 3306,
            admin_secret: "root-of-db".to_owned(),
        };
        let failure = refused(&server, "root", &server_error(1045));
        assert_eq!(
            (failure.class, failure.code.as_str()),
            (FailureClass::Config, "Denied")
        );
        for part in ["db.example", "root", "Secret root-of-db", "it says"] {
            assert!(failure.message.contains(part), "{}", failure.message);
        }
        let remedy = failure.remedy.unwrap();
        assert!(remedy.contains("Secret root-of-db"), "{remedy}");
        let away = refused(&server, "root", &server_error(1040));
        assert_eq!(away.class, FailureClass::Transient);
    }

    #[test]
    fn what_a_server_does_not_know_is_not_asked_again() {
        let class = |code| said(&server_error(code)).class;
        assert_eq!(class(1273), FailureClass::Permanent);
        assert_eq!(class(1064), FailureClass::Permanent);
        assert_eq!(class(1045), FailureClass::Config);
        assert_eq!(class(1205), FailureClass::Transient);
    }
}
