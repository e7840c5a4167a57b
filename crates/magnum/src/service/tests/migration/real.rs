//! The database of a real Magnum, in a real MariaDB, read and shown: what is answered is what that Magnum answers.

use std::process::Command;

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
const READER: &str = "mysql+pymysql://reader:r%40ad@127.0.0.1";

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
            CREATE USER reader@'%' IDENTIFIED BY 'r@ad'; GRANT SELECT ON magnum.* TO reader@'%'";
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
        let text = format!("{READER}:{}/magnum?charset=utf8", self.server.port());
        Address::parse(&text, Way::Local).unwrap()
    }
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
    database.server.client(secret.as_bytes()).unwrap();
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
    database.server.client(other.as_bytes()).unwrap();
    let refused = database::read(&database.address())
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(
        refused.contains("d7e6a4d39fe4") && refused.contains("c0f832afc4fd"),
        "{refused}"
    );
    database.server.client(b"DROP DATABASE magnum").unwrap();
    let refused = database::read(&database.address()).await.err().unwrap();
    assert!(matches!(refused, database::Error::Server(..)), "{refused}");
}
