//! What a statement of a backup may be: one that makes a table, or one that fills one. Pure.
//!
//! A store is no place that is trusted, and a server takes several statements in one line. So nothing is looked for that would be wrong:
//! what fills a table is read by the form in which it is written, and of what makes one everything that stands outside of quotes.

/// Whether a statement makes a table of the database that is worked in, and does nothing else. Its engine is InnoDB: the tables of others are
/// not of one moment, and some of them reach files and servers.
pub fn makes_a_table(statement: &[u8]) -> bool {
    let bare = statement.strip_prefix(b"CREATE TABLE ").and_then(bare);
    let Some(bare) = bare.filter(|bare| bare.starts_with("` (")) else {
        return false;
    };
    let mut engines = bare.split("ENGINE").skip(1).peekable();
    let has_engine = engines.peek().is_some();
    let is_known = |engine: &str| engine.trim_start_matches([' ', '=']).starts_with("INNODB");
    has_engine && engines.all(is_known) && !bare.contains("DIRECTORY") && !bare.contains("SELECT")
}

/// Whether a statement fills a table of the database that is worked in with values, and does nothing else.
pub(super) fn fills_a_table(statement: &[u8]) -> bool {
    inserted(statement).is_some()
}

fn inserted(statement: &[u8]) -> Option<()> {
    let rest = name(statement.strip_prefix(b"INSERT INTO ")?)?;
    let rest = list(rest.strip_prefix(b" ")?, name)?;
    let mut rest = list(rest.strip_prefix(b" VALUES ")?, value)?;
    while !rest.is_empty() {
        rest = list(rest.strip_prefix(b",")?, value)?;
    }
    Some(())
}

/// What stands behind a list in parentheses.
fn list(text: &[u8], item: fn(&[u8]) -> Option<&[u8]>) -> Option<&[u8]> {
    let mut rest = item(text.strip_prefix(b"(")?)?;
    while let Some(next) = rest.strip_prefix(b",") {
        rest = item(next)?;
    }
    rest.strip_prefix(b")")
}

/// What stands behind a name, in which a quote is written twice.
fn name(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text.strip_prefix(b"`")?;
    loop {
        let end = rest.iter().position(|byte| *byte == b'`')?;
        rest = rest.get(end + 1..)?;
        match rest.strip_prefix(b"`") {
            Some(next) => rest = next,
            None => return Some(rest),
        }
    }
}

/// What stands behind a value.
fn value(text: &[u8]) -> Option<&[u8]> {
    text.strip_prefix(b"NULL").or_else(|| quoted(text))
}

/// What stands behind a text, in which a quote has a backslash before it.
fn quoted(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text.strip_prefix(b"'")?;
    loop {
        let end = rest.iter().position(|byte| matches!(byte, b'\\' | b'\''))?;
        let is_end = rest.get(end) == Some(&b'\'');
        rest = rest.get(end + 1..)?;
        if is_end {
            return Some(rest);
        }
        rest = rest.get(1..)?;
    }
}

/// What of a statement stands outside of quotes, in capitals, with a quote for each text and each name. None: it does not leave the last of
/// them, or has something that ends a statement, begins a comment, or quotes in another way.
fn bare(statement: &[u8]) -> Option<String> {
    let mut bare = String::new();
    let mut rest = statement;
    while let [byte, behind @ ..] = rest {
        rest = match byte {
            b'`' => name(rest)?,
            // Where a quote is written twice, it is two texts here, which is the same.
            b'\'' => quoted(rest)?,
            b';' | b'#' | b'"' | b'\\' => return None,
            b' '..=b'~' => behind,
            _ => return None,
        };
        bare.push(char::from(byte.to_ascii_uppercase()));
    }
    let is_plain = !bare.contains("--") && !bare.contains("/*");
    is_plain.then_some(bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_tells_of_its_tables_makes_them() {
        for statement in [
            "CREATE TABLE `a` (   `id` int(11) NOT NULL AUTO_INCREMENT,   PRIMARY KEY (`id`) ) ENGINE=InnoDB AUTO_INCREMENT=3 DEFAULT CHARSET=utf8mb3",
            "CREATE TABLE `a``; b` (`c--d` varchar(9) DEFAULT 'it''s; -- \\' \\\\' COMMENT '/* \" #') ENGINE=InnoDB",
            "CREATE TABLE `a` (`engine` int, `directory` enum('SELECT','b'), CONSTRAINT `c` CHECK (json_valid(`j`))) ENGINE=InnoDB COMMENT='sch\u{f6}n'",
            "CREATE TABLE `a` (`b` int) ENGINE=InnoDB PARTITION BY HASH (`b`) (PARTITION `p0` ENGINE = InnoDB)",
        ] {
            assert!(makes_a_table(statement.as_bytes()), "{statement}");
        }
    }

    #[test]
    fn what_does_more_than_make_a_table_is_refused() {
        for statement in [
            "CREATE TABLE `a` (`b` int) ENGINE=InnoDB; DROP DATABASE glance",
            "CREATE TABLE `a` (`b` int DEFAULT '\\\\'; DROP DATABASE glance; -- ') ENGINE=InnoDB",
            "CREATE TABLE `a` (`b` int) ENGINE=InnoDB -- ",
            "CREATE TABLE `a` (`b` int) ENGINE=InnoDB # ",
            "CREATE TABLE `a` (`b` int) ENGINE=InnoDB /*!; DROP DATABASE glance */",
            "CREATE TABLE `a` (`b` int) ENGINE=InnoDB COMMENT=\"; DROP DATABASE glance",
            "CREATE TABLE `a` (`b` int) ENGINE=InnoDB COMMENT='",
            "CREATE TABLE `a` (`b` int) ENGINE=InnoDB COMMENT='\\",
            "CREATE TABLE `a` (`b` int) ENGINE=InnoDB `",
            "CREATE TABLE `a` (`b` int) ENGINE=InnoDB\u{a0}",
            "CREATE TABLE `a` (`b` int)",
            "CREATE TABLE `a` (`b` int) ENGINE=InnoDB engine = federated CONNECTION='mysql://a@b/c/d'",
            "CREATE TABLE `a` (`b` int) ENGINE=InnoDB Data Directory='/tmp'",
            "CREATE TABLE `a` (`b` int) ENGINE=InnoDB select * from `other`.`user`",
            "CREATE TABLE `other`.`a` (`b` int) ENGINE=InnoDB",
            "CREATE TABLE a (`b` int) ENGINE=InnoDB",
            "CREATE TABLE `a` LIKE `other`.`a`",
            "CREATE TEMPORARY TABLE `a` (`b` int) ENGINE=InnoDB",
            "",
        ] {
            assert!(!makes_a_table(statement.as_bytes()), "{statement}");
            assert!(!fills_a_table(statement.as_bytes()), "{statement}");
        }
    }

    #[test]
    fn what_does_more_than_fill_a_table_is_refused() {
        for good in [
            "INSERT INTO `t` (`a`) VALUES ('1')",
            "INSERT INTO `t``s` (`a`,`b`) VALUES ('\\'; \\\\',NULL),('',NULL)",
        ] {
            assert!(fills_a_table(good.as_bytes()), "{good}");
        }
        for statement in [
            "INSERT INTO `t` (`a`) VALUES ('1');CREATE TRIGGER x",
            "INSERT INTO `t` (`a`) VALUES ('1'); ",
            "INSERT INTO `t` (`a`) VALUES ('1'),",
            "INSERT INTO `t` (`a`) VALUES ('a''b')",
            "INSERT INTO `t` (`a`) VALUES ('\\\\'; DROP DATABASE glance; -- ')",
            "INSERT INTO `t` (`a`) VALUES ('1') ON DUPLICATE KEY UPDATE `a` = '2'",
            "INSERT INTO `t` (`a`) VALUES (SLEEP(9))",
            "INSERT INTO `t` (`a`) VALUES (1)",
            "INSERT INTO `t` (`a`) VALUES ()",
            "INSERT INTO `t` () VALUES ('1')",
            "INSERT INTO `t` (`a`) SELECT * FROM `other`.`user`",
            "INSERT INTO `other`.`t` (`a`) VALUES ('1')",
            "INSERT INTO `t` (`a`) VALUES ('1'",
            "INSERT INTO `t` (`a`) VALUES ('1",
            "INSERT INTO `t",
        ] {
            assert!(!fills_a_table(statement.as_bytes()), "{statement}");
            assert!(!makes_a_table(statement.as_bytes()), "{statement}");
        }
    }
}
