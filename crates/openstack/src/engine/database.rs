//! Steps on the database server.

use api::{
    openstack::Existing,
    run::{Failure, FailureClass},
};
use runs::calls::{call, config, failure, transient};

use crate::{
    audit,
    definition::Definition,
    engine::{Done, Worker, account::Turn, stores::disk},
    names, reach,
    service::{Inputs, Server},
    sql::{self, Found, Login, Session},
    wish::Operation,
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
        let mut existing = self.existing(inputs);
        let secret = names::secret(self.name(), "database");
        // Who has its password has had the database, whatever that says of itself now: it may hold all that there is.
        if existing == Existing::Replace && self.is_there(&secret).await? {
            existing = Existing::Refuse;
        }
        let detail = match judge(&found, &own, existing) {
            Verdict::Make => "it is not there yet",
            Verdict::Keep => "it is this service's",
            Verdict::Adopt => "it is adopted",
            Verdict::Replace => "it is replaced",
            Verdict::Refuse(whose) => {
                return Err(self.taken(inputs, database, &whose).into());
            }
        };
        Ok(Some(detail.to_owned()))
    }

    pub(super) async fn create_database(&self, inputs: &Inputs, definition: &Definition) -> Done {
        let turn = Turn::of_database(self.name(), &definition.database);
        let secret = &turn.current;
        let held = self.site().read_secret(secret).await?;
        let user = turn.in_turn(held.value("username")?, secret)?;
        let password = held.value("password")?;
        let (_way, mut session) = self.session(&inputs.database).await?;
        let cluster = self.cluster().await?;
        let own = self.owner_in(&cluster);
        // Between the check and now somebody else may have been faster.
        let found = session.find(&definition.database).await;
        let found = found.map_err(|error| said(&error))?;
        let database = &definition.database;
        match judge(&found, &own, self.existing(inputs)) {
            Verdict::Make | Verdict::Keep | Verdict::Adopt => {}
            Verdict::Replace => self.remove(&mut session, database).await?,
            Verdict::Refuse(whose) => return Err(self.taken(inputs, database, &whose).into()),
        }
        let digest = sql::digest(&password);
        for statement in sql::create(&definition.database, &user, &own, &digest) {
            let told = statement.replace(&digest, audit::PASSWORD);
            let told = told.replace(&cluster, audit::CLUSTER);
            self.about(&audit::statement(&told))?;
            let made = session.execute(&[statement]).await;
            made.map_err(|error| said(&error))?;
        }
        let taken = self.confine(&mut session, database, &user).await?;
        session.close().await;
        Ok(taken)
    }

    /// Takes from a user what it may beside all in its database: somebody gave it that since.
    pub(super) async fn confine(
        &self,
        session: &mut Session,
        database: &str,
        user: &str,
    ) -> Result<Option<String>, Failure> {
        let grants = session.grants_of(user).await;
        let excess = sql::excess(&grants.map_err(|error| said(&error))?, database, user);
        for statement in &excess {
            self.about(&audit::statement(statement))?;
            let taken = session.execute(std::slice::from_ref(statement)).await;
            taken.map_err(|error| said(&error))?;
        }
        Ok((!excess.is_empty()).then(|| api::text::lines(&excess.join("; "), 1000)))
    }

    /// The revisions of the tables that the service is to have. None at all: there are no tables, or others take their place.
    pub(super) async fn revisions(
        &self,
        inputs: &Inputs,
        definition: &Definition,
    ) -> Result<Vec<String>, Failure> {
        let database = &definition.database;
        let (_way, mut session) = self.session(&inputs.database).await?;
        let found = session.find(database).await.map_err(|error| said(&error))?;
        let own = self.owner().await?;
        let verdict = judge(&found, &own, self.existing(inputs));
        let stays = matches!(verdict, Verdict::Keep | Verdict::Adopt);
        let revisions = if stays && matches!(found, Found::Database(_)) {
            let revisions = session.revisions(database).await;
            revisions.map_err(|error| said(&error))?
        } else {
            Vec::new()
        };
        session.close().await;
        // Of a database that was somebody else's anything may be said there.
        let plain = revisions.iter().map(|text| api::text::plain(text, 64));
        Ok(plain.collect())
    }

    /// What becomes of what is there: only an installation replaces it.
    pub(super) fn existing(&self, inputs: &Inputs) -> Existing {
        let installs = self.work.run.spec.operation == Operation::Install.name();
        match (inputs.adopt, inputs.replace && installs) {
            (true, _) => Existing::Adopt,
            (false, true) => Existing::Replace,
            (false, false) => Existing::Refuse,
        }
    }

    async fn is_there(&self, secret: &str) -> Result<bool, Failure> {
        let found = self.secrets().get_metadata_opt(secret).await;
        let found = found.map_err(|error| call(format!("read Secret {secret}"), &error))?;
        Ok(found.is_some())
    }

    /// A database that is not noted as this service's is of somebody else, or on another server than its pods have.
    pub(super) async fn must_be_own(&self, inputs: &Inputs, database: &str) -> Result<(), Failure> {
        let (_way, mut session) = self.session(&inputs.database).await?;
        let found = session.find(database).await;
        let found = found.map_err(|error| said(&error))?;
        session.close().await;
        let own = self.owner().await?;
        if judge(&found, &own, Existing::Refuse) == Verdict::Keep {
            return Ok(());
        }
        let host = &inputs.database.host;
        Err(config(
            "Taken",
            format!("database {database} on {host} is not known to be this service's"),
            "name the server that the service has in spec.database, or let a run make or adopt the database there first",
        ))
    }

    fn taken(&self, inputs: &Inputs, database: &str, whose: &str) -> Failure {
        let mut remedy = format!(
            "set spec.existing to Adopt if {database} is to be this service's with what is in it, or take another server"
        );
        if inputs.replace {
            let secret = names::secret(self.name(), "database");
            remedy.push_str(&format!(
                "; existing: Replace removes what is no other object's, in an installation, and as long as there is no Secret {secret}"
            ));
        }
        config("Taken", whose, &remedy)
    }

    /// Only what is known to be this service's.
    pub(super) async fn drop_database(&self, inputs: &Inputs, definition: &Definition) -> Done {
        // Whoever deletes the server first, and the service then, waits for nobody.
        if self.is_service_gone(&inputs.database.host).await? {
            return Ok(Some("the database server is gone".to_owned()));
        }
        let (_way, mut session) = self.session(&inputs.database).await?;
        let found = session.find(&definition.database).await;
        if found.map_err(|error| said(&error))? != Found::Database(self.owner().await?) {
            session.close().await;
            return Ok(Some("there is none that is this service's".to_owned()));
        }
        self.remove(&mut session, &definition.database).await?;
        session.close().await;
        Ok(None)
    }

    /// Removes a database and its users: the database last, since its comment says whose they are. What has the name of the second user and
    /// is not known to serve the database alone may be anybody's.
    async fn remove(&self, session: &mut Session, database: &str) -> Result<(), Failure> {
        let [first, second] = sql::users_of(database);
        let grants = session.grants_of(&second).await;
        let grants = grants.map_err(|error| said(&error))?;
        let is_own = sql::serves_only(&grants, database, &second);
        let second = is_own.then(|| sql::remove_user(&second));
        let statements = std::iter::once(sql::remove_user(&first)).chain(second);
        for statement in statements.chain([sql::remove_database(database)]) {
            self.about(&audit::statement(&statement))?;
            let removed = session.execute(&[statement]).await;
            removed.map_err(|error| said(&error))?;
        }
        Ok(())
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
        self.site().cluster().await
    }

    pub(super) async fn session(&self, server: &Server) -> Result<(reach::Way, Session), Failure> {
        self.opened(server, Opens::ForAnswers).await
    }

    /// A session of the administrator that reads rows.
    pub(super) async fn reading(&self, server: &Server) -> Result<(reach::Way, Session), Failure> {
        self.opened(server, Opens::ForRows).await
    }

    async fn opened(
        &self,
        server: &Server,
        opens: Opens,
    ) -> Result<(reach::Way, Session), Failure> {
        let (way, login) = self.way(server).await?;
        let error = match opens.session(&login).await {
            Ok(session) => return Ok((way, session)),
            Err(error) => error,
        };
        if error.is_denied() {
            let secret = &server.admin_secret;
            for password in self.site().others(secret, &login.password).await? {
                let other = Login {
                    password,
                    ..login.clone()
                };
                if let Ok(session) = opens.session(&other).await {
                    return Ok((way, session));
                }
            }
        }
        Err(refused(server, &login.username, &error))
    }

    /// The way to a server, and its administrator.
    pub(super) async fn way(&self, server: &Server) -> Result<(reach::Way, Login), Failure> {
        let place = (server.host.as_str(), server.port);
        self.site().database(place, &server.admin_secret).await
    }
}

/// What a session is for.
#[derive(Clone, Copy, Debug)]
enum Opens {
    ForAnswers,
    ForRows,
}

impl Opens {
    async fn session(self, login: &Login) -> Result<Session, sql::Error> {
        match self {
            Self::ForAnswers => Session::open(login).await,
            Self::ForRows => Session::open_for_rows(login).await,
        }
    }
}

/// What is done about what is found under the name of a database.
#[derive(Debug, Eq, PartialEq)]
enum Verdict {
    Make,
    Keep,
    Adopt,
    Replace,
    /// Whose it is.
    Refuse(String),
}

fn judge(found: &Found, own: &str, existing: Existing) -> Verdict {
    let whose = match found {
        Found::Nothing => return Verdict::Make,
        Found::Database(owner) if owner == own => return Verdict::Keep,
        Found::Database(owner) if owner.is_empty() => {
            "the database is there already: nobody says whose it is".to_owned()
        }
        Found::Database(owner) => format!("the database is there already: it belongs to {owner}"),
        Found::User => "its user is there already, and no database of that name".to_owned(),
    };
    let is_of_object = matches!(found, Found::Database(owner) if names::is_owner(owner));
    match existing {
        Existing::Adopt => Verdict::Adopt,
        Existing::Replace if !is_of_object => Verdict::Replace,
        Existing::Replace | Existing::Refuse => Verdict::Refuse(whose),
    }
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
    fn what_is_there_is_touched_only_where_somebody_says_so() {
        let own = names::owner("one-keystone", "cloud", "here");
        let found = |owner: &str| Found::Database(owner.to_owned());
        let another = names::owner("two-keystone", "cloud", "here");
        for (found, existing, expected) in [
            (Found::Nothing, Existing::Refuse, "Make"),
            (found(&own), Existing::Replace, "Keep"),
            (found(""), Existing::Refuse, "Refuse"),
            (found(""), Existing::Adopt, "Adopt"),
            (found(""), Existing::Replace, "Replace"),
            (Found::User, Existing::Replace, "Replace"),
            (Found::User, Existing::Refuse, "Refuse"),
            // Nothing of another object is lost.
            (found(&another), Existing::Replace, "Refuse"),
        ] {
            let verdict = format!("{:?}", judge(&found, &own, existing));
            assert!(
                verdict.starts_with(expected),
                "{found:?} {existing:?}: {verdict}"
            );
        }
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
