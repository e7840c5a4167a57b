//! A backup as text: statements that MariaDB's own client reads too, one a line, and comments that tell what is whole. Pure.
//!
//! ```text
//! -- windlass openstack backup 1
//! -- keys {"keystone":{"fernet-keys":{"data":{"0":"..."},"annotations":{}}}}
//! SET NAMES binary;
//! USE `keystone`;
//! CREATE TABLE `user` (...);
//! INSERT INTO `user` (`id`,`extra`) VALUES ('1','{}'),('2',NULL);
//! -- table {"name":"user","rows":2,"sum":"..."}
//! -- end {"databases":1}
//! ```
//!
//! Values are written as the server has them, whatever characters they are: with `SET NAMES binary` it converts nothing, on the way out and
//! on the way in. A text that was cut lacks its end. What is read is data: only lines of these forms are taken.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, Write},
};

use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};

use crate::sql::quoted_name;

/// The first line.
const HEAD: &str = "-- windlass openstack backup 1";
/// How long a statement with rows becomes before another one is begun, in bytes.
const STATEMENT: usize = 256 * 1024;
/// The longest line that is read, in bytes: more than a server takes at once by default.
const LONGEST: u64 = 64 << 20;

/// What a session says before it writes rows, as the text has it.
pub const SETTINGS: [&str; 2] = [
    "SET NAMES binary",
    "SET SESSION foreign_key_checks = 0, unique_checks = 0, sql_mode = 'NO_AUTO_VALUE_ON_ZERO', time_zone = '+00:00'",
];

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
    pub fn begin(mut out: W, keys: &Keys) -> io::Result<Self> {
        let keys = serde_json::to_string(keys)?;
        writeln!(out, "{HEAD}\n-- keys {keys}")?;
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
        // What is in quotes has its line breaks escaped: these are of the layout.
        writeln!(self.out, "{};", create.replace(['\n', '\r'], " "))
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
        };
        if reader.next_line()?.as_deref() != Some(HEAD.as_bytes()) {
            return Err(Unreadable::Line(1));
        }
        let keys = reader.next_line()?.ok_or(Unreadable::Cut(1))?;
        reader.keys = comment(&keys, "keys").ok_or(Unreadable::Line(2))?;
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
        if statement.starts_with(b"CREATE TABLE `") || statement.starts_with(b"INSERT INTO `") {
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

/// What a text tells of its tables, by their databases: it is read to its end.
///
/// # Errors
///
/// It is none, or not whole.
pub fn tables(from: impl BufRead) -> Result<(Keys, BTreeMap<String, Vec<Table>>), Unreadable> {
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
    Ok((reader.keys, tables))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> Vec<u8> {
        let mut text = Vec::new();
        let kept = Kept {
            data: [("0".to_owned(), ByteString(b"key\n".to_vec()))].into(),
            annotations: BTreeMap::new(),
        };
        let of = BTreeMap::from([("fernet-keys".to_owned(), kept)]);
        let keys = Keys::from([("keystone".to_owned(), of)]);
        let mut writer = Writer::begin(&mut text, &keys).unwrap();
        writer.database("keystone").unwrap();
        writer
            .table("CREATE TABLE `user` (\n  `id` int\n)")
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
        let (keys, tables) = tables(text.as_slice()).unwrap();
        assert_eq!(keys["keystone"]["fernet-keys"].data["0"].0, b"key\n");
        let user = &tables["keystone"][0];
        assert_eq!((user.name.as_str(), user.rows), ("user", 2));
        for length in 0..text.len() {
            assert!(super::tables(&text[..length]).is_err(), "cut at {length}");
        }
        let mut more = text.clone();
        more.extend_from_slice(b"USE `mysql`;\n");
        assert!(super::tables(more.as_slice()).is_err());
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
    fn other_statements_are_not_taken() {
        let text = String::from_utf8_lossy(&text()).into_owned();
        for other in [
            "DROP DATABASE keystone;",
            "GRANT ALL ON *.* TO a;",
            "\\! id;",
            "USE ``;",
            "CREATE USER a;",
        ] {
            let altered = text.replace("-- table", &format!("{other}\n-- table"));
            let refused = tables(altered.as_bytes()).unwrap_err();
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
