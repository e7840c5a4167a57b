//! The database of a real Magnum, in a real MariaDB, read and shown: what is answered is what that Magnum answers.

use std::{net::TcpListener, process::Command};

use lab::{Magnum, MagnumRelease, MariaDb, progress::Terminal};

use super::*;
use crate::migration::{
    Authorities, carried,
    database::{self, Address, Way},
    rows::{Release, Table},
};

/// What is another than that Magnum's, and is to be: the number of a group in its table, which is that in its cluster here.
const DIFFERENT: [(&str, &str); 1] = [("/nodegroups/", "id")];
/// Who reads. It may do no more than that, and needs no more.
const READER: &str = "reader:r%40/d?#:";

struct Database {
    server: MariaDb,
    /// What Magnum answers, by project and path.
    answers: Value,
}

impl Database {
    fn filled_by(release: MagnumRelease) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let server = MariaDb::start(&Terminal::default()).unwrap();
        let made = "CREATE DATABASE magnum; CREATE USER owner@'%' IDENTIFIED BY 'owns'; GRANT ALL ON magnum.* TO owner@'%'; \
            CREATE USER reader@'%' IDENTIFIED BY 'r@/d?#:'; GRANT SELECT ON magnum.* TO reader@'%'";
        server.client(made.as_bytes()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let magnum = Magnum::ensure(release, &Terminal::default()).unwrap();
        let mut script: Command = magnum.database().unwrap();
        let address = format!(
            "mysql+pymysql://owner:owns@127.0.0.1:{}/magnum",
            server.port()
        );
        script.arg(directory.path().join("magnum")).arg(address);
        let answers = lab::command::output(&mut script).unwrap();
        Self {
            answers: serde_json::from_str(&answers).unwrap(),
            server,
        }
    }

    fn address(&self) -> Address {
        address(READER, self.server.port(), "magnum")
    }

    fn told(&self, text: &str) {
        self.server.client(text.as_bytes()).unwrap();
    }
}

fn address(login: &str, port: u16, database: &str) -> Address {
    let text = format!("mysql+pymysql://{login}@127.0.0.1:{port}/{database}?charset=utf8");
    Address::parse(&text, Way::Local).unwrap()
}

/// What is told of an address that cannot be read.
async fn refused(address: &Address) -> String {
    let error = database::read(address).await.err().unwrap();
    controller::chain(&error)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_magnum_23_and_windlass_answer_the_same_of_its_database() {
    let database = Database::filled_by(MagnumRelease::V23);
    let (release, tables) = database::read(&database.address()).await.unwrap();
    assert_eq!(release, Release::V23);
    let wanted = carried(&tables, &Authorities::new(&tables, None));
    assert_eq!(wanted.findings, []);
    let world = World::new().await;
    world.migrate(&wanted).await.unwrap();
    assert!(
        world
            .compared(&wanted)
            .await
            .iter()
            .all(|standing| *standing == Standing::Same)
    );
    let writes = || {
        let calls = world.calls.lock().unwrap();
        let writes = calls.iter().filter(|call| !call.starts_with("GET "));
        writes.count()
    };
    let written = writes();
    let (_, again) = database::read(&database.address()).await.unwrap();
    let again = carried(&again, &Authorities::new(&again, None));
    world.migrate(&again).await.unwrap();
    assert_eq!(writes(), written);

    let mut asked = 0;
    for (project, user) in [("p1", "ann"), ("p2", "eve")] {
        for (path, theirs) in database.answers[project].as_object().unwrap() {
            let ours = world.get(&format!("{project}:{user}:member"), path).await;
            assert_eq!(ours.status, 200, "{path}: {ours:?}");
            for (member, value) in theirs.as_object().unwrap() {
                let is_different =
                    |(part, other): &(&str, &str)| path.contains(part) && member == other;
                if !DIFFERENT.iter().any(is_different) {
                    assert_eq!(&ours.body[member], value, "{path}: {member}");
                }
            }
            asked += 1;
        }
    }
    assert_eq!(asked, 18);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_database_of_a_real_magnum_21_comes_without_its_trusts() {
    let database = Database::filled_by(MagnumRelease::V21);
    let secret =
        "UPDATE magnum.cluster SET trust_id = 'never-told', trustee_password = 'never-told'";
    database.told(secret);
    let (release, tables) = database::read(&database.address()).await.unwrap();
    assert_eq!(release, Release::V21);
    for row in tables.rows(Table::Clusters) {
        assert_eq!(
            (row.bytes("trust_id"), row.bytes("trustee_password")),
            (None, None)
        );
    }
    let wanted = carried(&tables, &Authorities::new(&tables, None));
    assert_eq!(wanted.findings, []);
    let counts = (
        wanted.templates.len(),
        wanted.clusters.len(),
        wanted.quotas.len(),
    );
    assert_eq!(counts, (2, 2, 2));
    assert!(wanted.authorities.values().all(|keys| keys.len() == 3));

    let other = "UPDATE magnum.alembic_version SET version_num = 'd7e6a4d39fe4'";
    database.told(other);
    let refused = refused(&database.address()).await;
    assert!(
        refused.contains("d7e6a4d39fe4") && refused.contains("c0f832afc4fd"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_not_read_says_what_to_look_at_and_no_password() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = MariaDb::start(&Terminal::default()).unwrap();
    let made = "CREATE DATABASE magnum; CREATE DATABASE other; CREATE TABLE magnum.alembic_version (version_num VARCHAR(32)); \
        INSERT INTO magnum.alembic_version VALUES ('b3e1cf4a2d5e'); CREATE TABLE magnum.cluster_template (id INT); \
        CREATE USER reader@'%' IDENTIFIED BY 's3cret'; GRANT SELECT ON other.* TO reader@'%'; \
        GRANT SELECT ON magnum.alembic_version TO reader@'%'";
    server.client(made.as_bytes()).unwrap();
    let port = server.port();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = listener.local_addr().unwrap().port();
    drop(listener);
    let good = "reader:s3cret";
    for (login, port, database, word) in [
        ("reader:s3creT", port, "magnum", "the user and the password"),
        ("nobody:s3cret", port, "magnum", "the user and the password"),
        (good, port, "magnun", "the name of the database"),
        (good, port, "other", "is not Magnum's"),
        (
            good,
            port,
            "magnum",
            "the right SELECT on the whole database",
        ),
        (good, nobody, "magnum", "the port of its address"),
    ] {
        let told = refused(&address(login, port, database)).await;
        assert!(told.contains(word), "{word}: {told}");
        assert!(!told.to_lowercase().contains("s3cret"), "{told}");
    }
}
