//! What a real MariaDB holds is written, loaded by a user who may do nothing else, and compared; and MariaDB's own client reads it.

#![expect(clippy::unwrap_used, reason = "the helpers are test code too")]

use lab::{MariaDb, progress::Terminal};
use openstack::{
    backup::archive::{self, Count, Keys, Origin, Part, Reader, Table, Writer},
    sql::{self, Found, Login, Session},
};

#[tokio::test]
async fn what_is_saved_comes_back_as_it_was() {
    let server = Server::start();
    let mut admin = server.administrator().await;
    admin.execute(&content()).await.unwrap();

    let mut reading = Session::open_for_rows(&server.login("root", ""))
        .await
        .unwrap();
    reading.freeze().await.unwrap();
    let found = reading.find("source").await.unwrap();
    assert_eq!(found, Found::Database("mine".to_owned()));
    let mut writer = Writer::begin(Vec::new(), &Origin::default(), &Keys::new()).unwrap();
    writer.database("source").unwrap();
    // What is written meanwhile is of another moment.
    let later = "INSERT INTO source.parent (name) VALUES ('later')";
    admin.execute(&[later.to_owned()]).await.unwrap();
    let told = read(&mut reading, "source", Some(&mut writer)).await;
    reading.close().await;
    let text = writer.end().unwrap();
    assert_eq!(
        told.iter().map(|table| table.rows).collect::<Vec<_>>(),
        [2, 0, 1003]
    );

    // Beside it, as a drill does.
    let mut admin = Session::open_for_rows(&server.login("root", ""))
        .await
        .unwrap();
    let made = [sql::scratch("beside_1", "mine, drill")];
    admin.execute(&made).await.unwrap();
    assert_eq!(admin.commented("mine, drill").await.unwrap(), ["beside_1"]);
    let user = sql::loader("loader", &sql::digest("word"), &["beside_1".to_owned()]);
    admin.execute(&user).await.unwrap();
    let mut loader = Session::open_for_rows(&server.login("loader", "word"))
        .await
        .unwrap();
    for elsewhere in ["USE source", "DROP DATABASE source", "CREATE USER other"] {
        let refused = loader.execute(&[elsewhere.to_owned()]).await.unwrap_err();
        assert!(refused.is_denied(), "{elsewhere}: {refused:?}");
    }
    load(&mut loader, &text, "beside_1").await;
    assert_eq!(read(&mut admin, "beside_1", None).await, told);
    for more in [
        "DROP TABLE beside_1.child",
        "ALTER TABLE beside_1.child ADD COLUMN more INT",
        "CREATE VIEW beside_1.seen AS SELECT 1",
        "CREATE TRIGGER beside_1.t BEFORE INSERT ON beside_1.child FOR EACH ROW SET @a = 1",
        "CREATE PROCEDURE beside_1.p() SELECT 1",
        "CREATE EVENT beside_1.e ON SCHEDULE EVERY 1 DAY DO SELECT 1",
        "SELECT * FROM beside_1.child",
    ] {
        let refused = loader.execute(&[more.to_owned()]).await.unwrap_err();
        assert!(refused.is_denied(), "{more}: {refused:?}");
    }
    assert_eq!(admin.others("beside_1").await.unwrap(), [""; 0]);
    let changed = "UPDATE beside_1.child SET id = id + 1 WHERE id = 2";
    admin.execute(&[changed.to_owned()]).await.unwrap();
    assert_ne!(read(&mut admin, "beside_1", None).await, told);

    // Over what is there, as a restore does.
    let tables = admin.tables("beside_1").await.unwrap();
    admin
        .execute(&sql::empty("beside_1", &tables))
        .await
        .unwrap();
    assert_eq!(admin.tables("beside_1").await.unwrap(), [""; 0]);
    load(&mut loader, &text, "beside_1").await;
    assert_eq!(read(&mut admin, "beside_1", None).await, told);
    loader.close().await;
    let removed = [sql::remove_user("loader"), sql::remove_database("beside_1")];
    admin.execute(&removed).await.unwrap();
    assert_eq!(admin.commented("mine, drill").await.unwrap(), [""; 0]);

    // By hand.
    let by_hand = String::from_utf8_lossy(&text).into_owned();
    assert_eq!(by_hand.matches("USE `source`;\n").count(), 1);
    let place = text
        .windows(13)
        .position(|part| part == b"USE `source`;")
        .unwrap();
    let database = b"CREATE DATABASE hand; USE `hand`;";
    let by_hand = [&text[..place], database, &text[place + 13..]].concat();
    server.client(&by_hand);
    assert_eq!(read(&mut admin, "hand", None).await, told);

    let others = ["CREATE VIEW hand.seen AS SELECT id FROM hand.child".to_owned()];
    admin.execute(&others).await.unwrap();
    assert_eq!(admin.others("hand").await.unwrap(), ["view seen"]);
}

#[tokio::test]
async fn revisions_are_read_where_alembic_has_noted_them() {
    let server = Server::start();
    let mut admin = server.administrator().await;
    let made = [
        "CREATE DATABASE keystone",
        "CREATE DATABASE empty",
        "CREATE DATABASE other",
        "CREATE TABLE keystone.alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)",
        "INSERT INTO keystone.alembic_version VALUES ('e25ffa003242'), ('29e87d24a316')",
        // Somebody else's.
        "CREATE TABLE other.alembic_version (a INT)",
    ];
    admin.execute(&made.map(str::to_owned)).await.unwrap();
    let revisions = admin.revisions("keystone").await.unwrap();
    assert_eq!(revisions, ["29e87d24a316", "e25ffa003242"]);
    for none in ["empty", "other", "nowhere"] {
        assert_eq!(admin.revisions(none).await.unwrap(), [""; 0], "{none}");
    }
}

#[tokio::test]
async fn a_user_of_a_database_may_nothing_elsewhere_and_goes_with_every_session() {
    let server = Server::start();
    let mut admin = server.administrator().await;
    let (database, user) = ("keystone", "keystone_2");
    let made = ["CREATE DATABASE keystone", "CREATE ROLE dba"].map(str::to_owned);
    admin.execute(&made).await.unwrap();
    assert!(!admin.has_user(user).await.unwrap());
    assert_eq!(admin.grants_of(user).await.unwrap(), [""; 0]);
    let account = sql::account(database, user, &sql::digest("word"));
    admin.execute(&account).await.unwrap();
    assert!(admin.has_user(user).await.unwrap());
    let given = [
        "GRANT dba TO 'keystone_2'@'%'",
        "GRANT ALL PRIVILEGES ON *.* TO 'keystone_2'@'%' WITH GRANT OPTION",
    ];
    admin.execute(&given.map(str::to_owned)).await.unwrap();
    let grants = admin.grants_of(user).await.unwrap();
    assert!(!sql::serves_only(&grants, database, user), "{grants:?}");
    let excess = sql::excess(&grants, database, user);
    admin.execute(&excess).await.unwrap();
    let grants = admin.grants_of(user).await.unwrap();
    assert!(sql::serves_only(&grants, database, user), "{grants:?}");

    let local = "CREATE USER 'keystone_2'@'localhost', 'keystone_3'@'localhost'";
    admin.execute(&[local.to_owned()]).await.unwrap();
    let beside = admin.beside(user).await.unwrap();
    assert_eq!(beside, ["'keystone_2'@'localhost'"]);
    let local = "DROP USER 'keystone_2'@'localhost'";
    admin.execute(&[local.to_owned()]).await.unwrap();
    assert_eq!(admin.beside(user).await.unwrap(), [""; 0]);

    let login = server.login(user, "word");
    let mut at_work = Session::open(&login).await.unwrap();
    assert_eq!(admin.sessions_of(user).await.unwrap(), 1);
    // Once more changes nothing.
    for _ in 0..2 {
        admin.execute(&sql::end_user(user)).await.unwrap();
        assert!(at_work.version().await.is_err());
        assert!(Session::open(&login).await.is_err());
        assert!(!admin.has_user(user).await.unwrap());
    }
}

#[tokio::test]
async fn an_administrator_has_the_next_password_from_everywhere_and_sessions_go_on() {
    let server = Server::start();
    let mut admin = server.administrator().await;
    admin.execute(&sql::init("first")).await.unwrap();
    let is_let_in =
        async |password: &str| match Session::open(&server.login(sql::ROOT, password)).await {
            Ok(session) => {
                session.close().await;
                true
            }
            Err(error) => {
                assert!(error.is_denied(), "{error:?}");
                false
            }
        };
    assert!(is_let_in("first").await && !is_let_in("").await);
    for (former, next) in [("first", "second"), ("second", "third")] {
        let statements = sql::administrator(&sql::digest(next));
        // Once more changes nothing.
        for _ in 0..2 {
            admin.execute(&statements).await.unwrap();
            assert!(is_let_in(next).await && !is_let_in(former).await);
        }
    }
    admin.version().await.unwrap();
    admin.close().await;

    let login = server.login(sql::ROOT, "third");
    let mut admin = Session::open_for_rows(&login).await.unwrap();
    let (mut users, digest) = (Vec::new(), sql::digest("third"));
    let columns = ["User", "Host", "Priv"].map(str::to_owned);
    let rows = admin.rows(("mysql", "global_priv"), &columns, |row| {
        let text = |place: usize| String::from_utf8_lossy(row[place].unwrap()).into_owned();
        if text(0) == sql::ROOT && text(2).contains(&digest) {
            users.push(text(1));
        }
        Ok(())
    });
    rows.await.unwrap();
    users.sort();
    // One by the name of the host is there, too, and nobody comes as that: names are not looked up.
    assert_eq!(users, ["%", "localhost"]);
}

/// Values that a careless text would change.
fn content() -> Vec<String> {
    [
        "CREATE DATABASE source CHARACTER SET utf8mb3 COMMENT 'mine'",
        "USE source",
        "CREATE TABLE parent (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(64) NOT NULL DEFAULT 'x' COMMENT 'sch\u{f6}n\nline', \
            text TEXT, bytes BLOB, at DATETIME(6), stamp TIMESTAMP NULL, number DOUBLE, exact DECIMAL(20,6), yes TINYINT(1), \
            json LONGTEXT CHECK (json_valid(json)), one ENUM('a','b'), bits BIT(9), made VARCHAR(70) AS (CONCAT(name, 1)) STORED, \
            wide VARCHAR(9) CHARACTER SET utf8mb4, narrow VARCHAR(9) CHARACTER SET latin1, KEY (name))",
        "CREATE TABLE child (id INT, parent INT, FOREIGN KEY (parent) REFERENCES parent (id) ON DELETE CASCADE)",
        "CREATE TABLE empty (id INT)",
        "INSERT INTO parent (name, text, bytes, at, stamp, number, exact, yes, json, one, bits, wide, narrow) VALUES \
            ('it''s \\\\ \u{fc}', 'l1\\nl2\\r\\0x', UNHEX('00FF0A0D1A275C22'), '2026-01-02 03:04:05.123456', '2026-01-02 03:04:05', 0.1, \
            12345.678900, 1, '{\"a\": 1}', 'b', b'101010101', '\u{1F600}', '\u{e9}')",
        "INSERT INTO parent (name) VALUES ('')",
        "SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO'",
        "INSERT INTO parent (id, name) VALUES (0, 'zero')",
        "INSERT INTO child VALUES (1, 1), (2, NULL)",
        "INSERT INTO parent (name, text) SELECT CONCAT('m', seq), REPEAT('y', 1000) FROM seq_1_to_1000",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// What the tables of a database hold, written where that is wanted.
async fn read(
    session: &mut Session,
    database: &str,
    mut writer: Option<&mut Writer<Vec<u8>>>,
) -> Vec<Table> {
    let mut all = Vec::new();
    for table in session.tables(database).await.unwrap() {
        let make = session.maker(database, &table).await.unwrap();
        if let Some(writer) = &mut writer {
            writer.table(&make).unwrap();
        }
        let columns = session.columns(database, &table).await.unwrap();
        let mut count = Count::default();
        let rows = session.rows((database, &table), &columns, |row| {
            count.add(row);
            writer
                .as_mut()
                .map_or(Ok(()), |writer| writer.row(&table, &columns, row))
        });
        rows.await.unwrap();
        let count = count.of(&table);
        if let Some(writer) = &mut writer {
            writer.told(&count).unwrap();
        }
        all.push(count);
    }
    all
}

async fn load(session: &mut Session, text: &[u8], database: &str) {
    assert!(archive::contents(text).is_ok());
    let mut reader = Reader::begin(text).unwrap();
    while let Some(part) = reader.part().unwrap() {
        match part {
            Part::Database(_) => session.execute(&[sql::within(database)]).await.unwrap(),
            Part::Statement(statement) => session.load(&statement).await.unwrap(),
            Part::Table(_) => {}
        }
    }
}

/// A real MariaDB.
struct Server(MariaDb);

impl Server {
    fn start() -> Self {
        Self(MariaDb::start(&Terminal::default()).unwrap())
    }

    fn login(&self, user: &str, password: &str) -> Login {
        Login {
            host: "127.0.0.1".to_owned(),
            port: self.0.port(),
            username: user.to_owned(),
            password: password.to_owned(),
        }
    }

    /// A session of its administrator.
    async fn administrator(&self) -> Session {
        Session::open(&self.login("root", "")).await.unwrap()
    }

    /// Has MariaDB's own client execute a text.
    fn client(&self, text: &[u8]) {
        self.0.client(text).unwrap();
    }
}
