//! A backup as text: statements that MariaDB's own client reads too, one a line, and comments that tell what is whole. Pure.
//!
//! ```text
//! -- windlass openstack backup 2
//! -- keys {"keystone":{"fernet-keys":{"data":{"0":"..."},"annotations":{}}}}
//! -- of {"cloud":"cloud/one","cluster":"...","server":"...","takenAt":"..."}
//! SET NAMES binary;
//! USE `keystone`;
//! CREATE TABLE `user` (...) ENGINE=InnoDB;
//! INSERT INTO `user` (`id`,`extra`) VALUES ('1','{}'),('2',NULL);
//! -- table {"name":"user","rows":2,"sum":"..."}
//! -- end {"databases":1}
//! ```
//!
//! Values are written as the server has them, whatever characters they are: with `SET NAMES binary` it converts nothing, on the way out and
//! on the way in. A text that was cut lacks its end. What is read is data: only lines of these forms are taken. What it is of stands in it
//! and is sealed with it: beside it anybody who writes the store could say that it is another one.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, Write},
};

use jiff::Timestamp;
use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};

use crate::sql::quoted_name;

mod statement;

pub use statement::makes_a_table;

/// The first line.
const HEAD: &str = "-- windlass openstack backup 2";
/// How long a statement with rows becomes before another one is begun, in bytes.
const STATEMENT: usize = 256 * 1024;
/// The longest line that is read, in bytes: more than a server takes at once by default.
const LONGEST: u64 = 64 << 20;

/// What a session says before it writes rows, as the text has it.
pub const SETTINGS: [&str; 2] = [
    "SET NAMES binary",
    "SET SESSION foreign_key_checks = 0, unique_checks = 0, sql_mode = 'NO_AUTO_VALUE_ON_ZERO', time_zone = '+00:00'",
];

/// What a backup is of.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// The cloud, as `NAMESPACE/NAME`.
    pub cloud: String,
    /// The unique id of the cluster that the cloud is in: that of its namespace `kube-system`.
    pub cluster: String,
    /// The release of the cloud, where somebody says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// The images of its services, by their names: where nobody says the release, they tell what made the tables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub images: BTreeMap<String, String>,
    /// The version of the database server.
    pub server: String,
    /// The unique id of the run that took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The moment of which the databases are.
    pub taken_at: Timestamp,
}

/// Secrets of services: by the service, by the word behind the name of its object.
pub type Keys = BTreeMap<String, BTreeMap<String, Kept>>;

/// What a Secret holds.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Kept {
    /// Its data.
    pub data: BTreeMap<String, ByteString>,
    /// What Windlass notes of it.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

/// What a table holds, in numbers.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// How many rows it has.
    pub rows: u64,
    /// A sum over its rows, whatever order they come in: that of a part of the SHA-256 digest of each.
    pub sum: String,
}

/// What the last line tells.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct End {
    databases: usize,
}

/// Counts rows, and sums them up.
#[derive(Debug, Default)]
pub struct Count {
    rows: u64,
    sum: u128,
}

impl Count {
    /// Takes a row.
    pub fn add(&mut self, row: &[Option<&[u8]>]) {
        let mut digest = Sha256::new();
        for value in row {
            match value {
                None => digest.update([0]),
                Some(value) => {
                    digest.update([1]);
                    digest.update(u64::try_from(value.len()).unwrap_or(u64::MAX).to_le_bytes());
                    digest.update(value);
                }
            }
        }
        let digest: [u8; 32] = digest.finalize().into();
        let part = digest.first_chunk().copied().unwrap_or_default();
        self.rows = self.rows.saturating_add(1);
        self.sum = self.sum.wrapping_add(u128::from_le_bytes(part));
    }

    /// Of a table of this name.
    pub fn of(self, name: &str) -> Table {
        Table {
            name: name.to_owned(),
            rows: self.rows,
            sum: format!("{:032x}", self.sum),
        }
    }
}

/// Writes the text.
pub struct Writer<W> {
    out: W,
    databases: usize,
    line: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins it.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn begin(mut out: W, origin: &Origin, keys: &Keys) -> io::Result<Self> {
        let keys = serde_json::to_string(keys)?;
        let origin = serde_json::to_string(origin)?;
        writeln!(out, "{HEAD}\n-- keys {keys}\n-- of {origin}")?;
        for setting in SETTINGS {
            writeln!(out, "{setting};")?;
        }
        Ok(Self {
            out,
            databases: 0,
            line: Vec::new(),
        })
    }

    /// Begins a database.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn database(&mut self, name: &str) -> io::Result<()> {
        self.databases += 1;
        writeln!(self.out, "USE {};", quoted_name(name))
    }

    /// Begins a table, by the statement that makes it.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn table(&mut self, create: &str) -> io::Result<()> {
        writeln!(self.out, "{};", line(create))
    }

    /// Writes a row of a table.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn row(
        &mut self,
        table: &str,
        columns: &[String],
        row: &[Option<&[u8]>],
    ) -> io::Result<()> {
        if self.line.is_empty() {
            let columns: Vec<_> = columns.iter().map(|column| quoted_name(column)).collect();
            let (table, columns) = (quoted_name(table), columns.join(","));
            write!(self.line, "INSERT INTO {table} ({columns}) VALUES ")?;
        } else {
            self.line.push(b',');
        }
        self.line.push(b'(');
        for (place, value) in row.iter().enumerate() {
            if place > 0 {
                self.line.push(b',');
            }
            match value {
                None => self.line.extend_from_slice(b"NULL"),
                Some(value) => quote(&mut self.line, value),
            }
        }
        self.line.push(b')');
        if self.line.len() >= STATEMENT {
            self.flush()?;
        }
        Ok(())
    }

    /// Ends a table.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn told(&mut self, table: &Table) -> io::Result<()> {
        self.flush()?;
        let table = serde_json::to_string(table)?;
        writeln!(self.out, "-- table {table}")
    }

    /// Ends the text, and gives back what it went into.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn end(mut self) -> io::Result<W> {
        let end = serde_json::to_string(&End {
            databases: self.databases,
        })?;
        writeln!(self.out, "-- end {end}")?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.line.is_empty() {
            return Ok(());
        }
        self.line.extend_from_slice(b";\n");
        self.out.write_all(&self.line)?;
        self.line.clear();
        Ok(())
    }
}

/// The statement that makes a table, on one line: what is in quotes has its line breaks escaped, and these are of the layout.
pub fn line(create: &str) -> String {
    create.replace(['\n', '\r'], " ")
}

/// As a statement has a value, on one line.
fn quote(line: &mut Vec<u8>, value: &[u8]) {
    line.push(b'\'');
    for byte in value {
        match byte {
            0 => line.extend_from_slice(b"\\0"),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            0x1a => line.extend_from_slice(b"\\Z"),
            b'\\' | b'\'' => line.extend_from_slice(&[b'\\', *byte]),
            byte => line.push(*byte),
        }
    }
    line.push(b'\'');
}

/// A part of the text.
#[derive(Debug, PartialEq)]
pub enum Part {
    /// A database begins.
    Database(String),
    /// A statement that makes a table, or rows of it.
    Statement(Vec<u8>),
    /// A table is whole.
    Table(Table),
}

/// Why a text is none, or not whole.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// It ends before its end.
    #[error("it ends in the middle, after {0} lines: it was cut")]
    Cut(u64),
    /// It does not say what it is of.
    #[error("it does not say what it is of, as backups of this Windlass do")]
    Nameless,
    /// A line of it has no form that is taken.
    #[error("line {0} is none that a backup has")]
    Line(u64),
    /// A file cannot be read.
    #[error("a file cannot be read")]
    File(#[source] io::Error),
}

/// Reads the text.
pub struct Reader<R> {
    from: R,
    line: u64,
    databases: usize,
    ended: bool,
    /// What is in it of Secrets.
    pub keys: Keys,
    /// What it is of.
    pub origin: Origin,
}

impl<R: BufRead> Reader<R> {
    /// Reads its beginning.
    ///
    /// # Errors
    ///
    /// It is none.
    pub fn begin(from: R) -> Result<Self, Unreadable> {
        let mut reader = Self {
            from,
            line: 0,
            databases: 0,
            ended: false,
            keys: Keys::new(),
            origin: Origin::default(),
        };
        if reader.next_line()?.as_deref() != Some(HEAD.as_bytes()) {
            return Err(Unreadable::Line(1));
        }
        let keys = reader.next_line()?.ok_or(Unreadable::Cut(1))?;
        reader.keys = comment(&keys, "keys").ok_or(Unreadable::Line(2))?;
        let origin = reader.next_line()?.ok_or(Unreadable::Cut(2))?;
        reader.origin = comment(&origin, "of").ok_or(Unreadable::Nameless)?;
        for setting in SETTINGS {
            let line = reader.next_line()?.ok_or(Unreadable::Cut(reader.line))?;
            if line.strip_suffix(b";") != Some(setting.as_bytes()) {
                return Err(Unreadable::Line(reader.line));
            }
        }
        Ok(reader)
    }

    /// What comes next. None: it was read to its end.
    ///
    /// # Errors
    ///
    /// It was cut, or a line is none that a backup has.
    pub fn part(&mut self) -> Result<Option<Part>, Unreadable> {
        if self.ended {
            return match self.next_line()? {
                None => Ok(None),
                Some(_) => Err(Unreadable::Line(self.line)),
            };
        }
        let line = self.next_line()?.ok_or(Unreadable::Cut(self.line))?;
        if let Some(end) = comment::<End>(&line, "end") {
            self.ended = true;
            if end.databases != self.databases {
                return Err(Unreadable::Line(self.line));
            }
            return self.part();
        }
        let wrong = Unreadable::Line(self.line);
        if let Some(table) = comment(&line, "table") {
            return Ok(Some(Part::Table(table)));
        }
        let statement = line.strip_suffix(b";").ok_or(wrong)?;
        if let Some(name) = statement.strip_prefix(b"USE `") {
            let name = name.strip_suffix(b"`").unwrap_or_default();
            let name = String::from_utf8(name.to_vec()).unwrap_or_default();
            if name.is_empty() || name.contains('`') {
                return Err(Unreadable::Line(self.line));
            }
            self.databases += 1;
            return Ok(Some(Part::Database(name)));
        }
        if makes_a_table(statement) || statement::fills_a_table(statement) {
            return Ok(Some(Part::Statement(statement.to_vec())));
        }
        Err(Unreadable::Line(self.line))
    }

    fn next_line(&mut self) -> Result<Option<Vec<u8>>, Unreadable> {
        let mut line = Vec::new();
        let mut bounded = io::Read::take(&mut self.from, LONGEST);
        bounded
            .read_until(b'\n', &mut line)
            .map_err(Unreadable::File)?;
        if line.is_empty() {
            return Ok(None);
        }
        self.line += 1;
        // The last line has its end, too.
        if line.pop() != Some(b'\n') {
            return Err(Unreadable::Cut(self.line));
        }
        Ok(Some(line))
    }
}

fn comment<T: DeserializeOwned>(line: &[u8], word: &str) -> Option<T> {
    let line = line.strip_prefix(b"-- ")?.strip_prefix(word.as_bytes())?;
    serde_json::from_slice(line.strip_prefix(b" ")?).ok()
}

/// What a text tells.
#[derive(Debug)]
pub struct Contents {
    /// What it is of.
    pub origin: Origin,
    /// What is in it of Secrets.
    pub keys: Keys,
    /// Its tables, by their databases.
    pub tables: BTreeMap<String, Vec<Table>>,
}

/// What a text tells: it is read to its end.
///
/// # Errors
///
/// It is none, or not whole.
pub fn contents(from: impl BufRead) -> Result<Contents, Unreadable> {
    let mut reader = Reader::begin(from)?;
    let mut tables = BTreeMap::<String, Vec<Table>>::new();
    let mut at = String::new();
    while let Some(part) = reader.part()? {
        match part {
            Part::Database(name) => {
                tables.entry(name.clone()).or_default();
                at = name;
            }
            Part::Table(table) => tables.entry(at.clone()).or_default().push(table),
            Part::Statement(_) => {}
        }
    }
    Ok(Contents {
        origin: reader.origin,
        keys: reader.keys,
        tables,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        Origin {
            cloud: "cloud/one".into(),
            taken_at: "2026-11-25T03:30:00.123456789Z".parse().unwrap(),
            ..Origin::default()
        }
    }

    fn text() -> Vec<u8> {
        let mut text = Vec::new();
        let kept = Kept {
            data: [("0".to_owned(), ByteString(b"key\n".to_vec()))].into(),
            annotations: BTreeMap::new(),
        };
        let of = BTreeMap::from([("fernet-keys".to_owned(), kept)]);
        let keys = Keys::from([("keystone".to_owned(), of)]);
        let mut writer = Writer::begin(&mut text, &origin(), &keys).unwrap();
        writer.database("keystone").unwrap();
        writer
            .table("CREATE TABLE `user` (\n  `id` int\n) ENGINE=InnoDB")
            .unwrap();
        let columns = ["id".to_owned(), "extra".to_owned()];
        let mut count = Count::default();
        let rows: [[Option<&[u8]>; 2]; 2] = [
            [
                Some(b"1"),
                Some(b"it's\n-- end {\"databases\":1}\n\\\0\x1a\xff;"),
            ],
            [Some(b"2"), None],
        ];
        for row in rows {
            count.add(&row);
            writer.row("user", &columns, &row).unwrap();
        }
        writer.told(&count.of("user")).unwrap();
        writer.end().unwrap();
        text
    }

    #[test]
    fn what_is_written_is_read_again_and_every_cut_is_seen() {
        let text = text();
        let read = contents(text.as_slice()).unwrap();
        assert_eq!(read.origin, origin());
        assert_eq!(read.keys["keystone"]["fernet-keys"].data["0"].0, b"key\n");
        let user = &read.tables["keystone"][0];
        assert_eq!((user.name.as_str(), user.rows), ("user", 2));
        for length in 0..text.len() {
            assert!(contents(&text[..length]).is_err(), "cut at {length}");
        }
        let mut more = text.clone();
        more.extend_from_slice(b"USE `mysql`;\n");
        assert!(contents(more.as_slice()).is_err());
    }

    #[test]
    fn a_text_that_does_not_say_what_it_is_of_is_refused() {
        let text = String::from_utf8_lossy(&text()).into_owned();
        let lines = text.split_inclusive('\n');
        let nameless: String = lines.filter(|line| !line.starts_with("-- of ")).collect();
        assert_ne!(nameless, text);
        let refused = contents(nameless.as_bytes()).unwrap_err();
        assert!(matches!(refused, Unreadable::Nameless), "{refused}");
    }

    #[test]
    fn a_text_of_the_form_before_is_refused_by_its_first_line() {
        let text = String::from_utf8_lossy(&text()).into_owned();
        let before = text.replacen("backup 2", "backup 1", 1);
        assert_ne!(before, text);
        let refused = contents(before.as_bytes()).unwrap_err();
        assert!(matches!(refused, Unreadable::Line(1)), "{refused}");
    }

    #[test]
    fn a_value_ends_no_line_and_no_statement() {
        let text = text();
        let insert = text.split(|byte| *byte == b'\n');
        let insert = insert.filter(|line| line.starts_with(b"INSERT"));
        let insert: Vec<_> = insert.collect();
        let wanted: &[u8] = b"INSERT INTO `user` (`id`,`extra`) VALUES \
            ('1','it\\'s\\n-- end {\"databases\":1}\\n\\\\\\0\\Z\xff;'),('2',NULL);";
        assert_eq!(insert, [wanted]);
    }

    #[test]
    fn every_value_that_is_written_is_read_as_one_value() {
        let special = b"\0\n\r\x1a\\'`\";-#/*,)(a\xff";
        let pairs = special
            .iter()
            .flat_map(|first| special.iter().map(move |second| vec![*first, *second]));
        let all: Vec<u8> = (0..=u8::MAX).collect();
        for written in pairs.chain([all, Vec::new()]) {
            let mut writer = Writer::begin(Vec::new(), &origin(), &Keys::new()).unwrap();
            writer.database("a").unwrap();
            let columns = ["`a".to_owned(), "b".to_owned()];
            let row = [Some(written.as_slice()), None];
            writer.row("t`", &columns, &row).unwrap();
            writer.row("t`", &columns, &row).unwrap();
            writer.told(&Table::default()).unwrap();
            let text = writer.end().unwrap();
            assert!(contents(text.as_slice()).is_ok(), "{written:?}");
        }
    }

    #[test]
    fn other_statements_are_not_taken() {
        let text = String::from_utf8_lossy(&text()).into_owned();
        for other in [
            "DROP DATABASE keystone;",
            "GRANT ALL ON *.* TO a;",
            "\\! id;",
            "USE ``;",
            "CREATE USER a;",
            "INSERT INTO `user` (`id`) VALUES ('1'); DROP DATABASE glance;",
            "CREATE TABLE `b` (`id` int) ENGINE=InnoDB; DROP DATABASE glance;",
        ] {
            let altered = text.replace("-- table", &format!("{other}\n-- table"));
            let refused = contents(altered.as_bytes()).unwrap_err();
            assert!(matches!(refused, Unreadable::Line(_)), "{other}");
        }
    }

    #[test]
    fn a_sum_does_not_mind_the_order_and_minds_everything_else() {
        let sum = |rows: &[[Option<&[u8]>; 2]]| {
            let mut count = Count::default();
            for row in rows {
                count.add(row);
            }
            count.of("t")
        };
        let a: [Option<&[u8]>; 2] = [Some(b"1"), None];
        let b: [Option<&[u8]>; 2] = [Some(b"2"), Some(b"")];
        assert_eq!(sum(&[a, b]), sum(&[b, a]));
        assert_ne!(sum(&[a, b]), sum(&[a, a]));
        let empty: [Option<&[u8]>; 2] = [Some(b"1"), Some(b"")];
        assert_ne!(sum(&[a]), sum(&[empty]));
        assert_ne!(
            sum(&[[Some(b"ab"), Some(b"c")]]),
            sum(&[[Some(b"a"), Some(b"bc")]])
        );
    }
}
