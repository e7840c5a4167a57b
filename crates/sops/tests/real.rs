//! What the real `sops` and `age` encrypt is read here as they read it, and what was altered is refused by both.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use lab::Extent;
use rand::{Rng, RngExt as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use serde_json::{Map, Value, json};
use sops::{Error, Keys};

/// A directory with two keys, of which a person has the first.
struct Place {
    directory: tempfile::TempDir,
    programs: PathBuf,
}

impl Place {
    fn new() -> Self {
        let place = Self {
            directory: tempfile::tempdir().unwrap(),
            programs: lab::sops_programs(&lab::progress::Silent).unwrap(),
        };
        for key in ["mine", "other"] {
            let made = place.run("age-keygen", &["-o", key]);
            assert!(made.status.success(), "{made:?}");
        }
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        Command::new(self.programs.join(program))
            .args(arguments)
            .current_dir(self.directory.path())
            .env_clear()
            .env("HOME", self.directory.path())
            .env("SOPS_AGE_KEY_FILE", self.at("mine"))
            .output()
            .unwrap()
    }

    fn public(&self, key: &str) -> String {
        let said = self.run("age-keygen", &["-y", key]);
        String::from_utf8(said.stdout).unwrap().trim().to_owned()
    }

    fn keys(&self, key: &str) -> Keys {
        Keys::find(Some(&self.at(key)), |_| None).unwrap()
    }

    /// Has the real program encrypt a file, by a rule of its configuration.
    fn encrypted(&self, name: &str, text: &str, rule: &str) -> String {
        fs::write(self.at(name), text).unwrap();
        let rules = format!(
            "creation_rules: [{{age: {}, {rule}}}]\n",
            self.public("mine")
        );
        fs::write(self.at("rules"), rules).unwrap();
        let output = self.run("sops", &["--config", "rules", "encrypt", name]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}\n{text}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What the real program makes of a file; none: it refuses it.
    fn decrypted(&self, name: &str, sealed: &str) -> Option<Vec<Value>> {
        let name = format!("sealed-{name}");
        fs::write(self.at(&name), sealed).unwrap();
        let output = self.run("sops", &["decrypt", &name]);
        output
            .status
            .success()
            .then(|| plain(&String::from_utf8(output.stdout).unwrap()))
    }

    fn opened(&self, sealed: &str) -> Result<Vec<Value>, Error> {
        sops::open(sealed, &self.keys("mine")).map(|opened| opened.documents)
    }
}

/// Documents without encryption, as manifests are read, and without those that are empty.
fn plain(text: &str) -> Vec<Value> {
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options).unwrap();
    let empty = |document: &Value| document.as_object().is_some_and(Map::is_empty);
    let documents = documents.into_iter().filter(|document| !empty(document));
    documents.collect()
}

/// The same, with numbers that are the same the same.
fn even(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64().unwrap().to_string()),
        Value::Array(items) => items.iter().map(even).collect(),
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| (name.clone(), even(value)));
            Value::Object(fields.collect())
        }
        other => other.clone(),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Yaml,
    Json,
}

/// A document as somebody may write it.
struct Writer<'a> {
    random: &'a mut StdRng,
    form: Form,
}

impl Writer<'_> {
    fn document(&mut self) -> String {
        let map = self.map(0);
        match self.form {
            Form::Json => map,
            Form::Yaml => format!("# about this\n{map}"),
        }
    }

    /// In flow style, which JSON is; in YAML now and then in blocks with comments.
    fn map(&mut self, depth: usize) -> String {
        const NAMES: [&str; 12] = [
            "data",
            "stringData",
            "a",
            "b c",
            "port",
            "x_unencrypted",
            "y_secret",
            "ключ",
            "metadata",
            "na:me",
            "10",
            "true",
        ];
        let count = self.random.random_range(usize::from(depth == 0)..5);
        let names: Vec<_> = NAMES.sample(self.random, count).copied().collect();
        let mut written = Vec::new();
        for name in names {
            let value = self.value(depth + 1);
            let name = serde_json::to_string(name).unwrap();
            written.push(if self.form == Form::Yaml && depth == 0 {
                let comment = ["", "# secret: no\n", "# sealed\n"]
                    .choose(self.random)
                    .unwrap();
                let inline = ["", " # beside it"].choose(self.random).unwrap();
                format!("{comment}{name}: {value}{inline}\n")
            } else {
                format!("{name}: {value}")
            });
        }
        if self.form == Form::Yaml && depth == 0 {
            written.concat()
        } else {
            format!("{{{}}}", written.join(", "))
        }
    }

    fn value(&mut self, depth: usize) -> String {
        // Not -0.0: SOPS writes it as -0, reads that as 0, and refuses its own digest.
        const WORDS: [&str; 28] = [
            "plain",
            "yes",
            "True",
            "~",
            "0644",
            "0o17",
            "0x1f",
            "1_000",
            "-17",
            "0",
            "1e3",
            "3.10",
            "-0.5",
            ".5",
            "1e-9",
            "1e22",
            "2026-11-25",
            "2026-11-25T01:02:03.500Z",
            "2026-11-25T01:02:03+02:00",
            "9223372036854775807",
            "192.0.2.1",
            "08",
            "null",
            "false",
            "a # b",
            "'it''s'",
            "12345678901234567890123",
            "1.0",
        ];
        // None begins with a blank line: in a map of a list SOPS writes such a text with an indentation that is not its own.
        const TEXTS: [&str; 16] = [
            "",
            " ",
            "plain",
            "ÄÖ ☃ \u{1f600}",
            "a\nb\n",
            "a\n\n x\n",
            "tab\there",
            "yes",
            "1.0",
            "null",
            "a: b",
            "- x",
            "\"'\\",
            "{{ x }}",
            "ENC[AES256_GCM,data:x",
            "trailing \nspace ",
        ];
        const JSON: [&str; 11] = [
            "0",
            "-17",
            "1.50",
            "1e3",
            "9007199254740993",
            "true",
            "false",
            "null",
            "-0",
            "12345678901234567890",
            "2.0",
        ];
        match self.random.random_range(0..10) {
            0..3 => serde_json::to_string(TEXTS.choose(self.random).unwrap()).unwrap(),
            3..7 if self.form == Form::Json => (*JSON.choose(self.random).unwrap()).to_owned(),
            // In a list or map in brackets some of these words would be others.
            3..7 if depth == 1 || self.random.random() => {
                let word = *WORDS.choose(self.random).unwrap();
                if depth > 1 && word.contains(['#', ':']) {
                    "5".to_owned()
                } else {
                    word.to_owned()
                }
            }
            3..7 => self.random.next_u32().to_string(),
            _ if depth > 3 => "[]".to_owned(),
            7..9 => self.map(depth),
            _ => {
                let count = self.random.random_range(0..4);
                let items: Vec<_> = (0..count).map(|_| self.value(depth + 1)).collect();
                format!("[{}]", items.join(", "))
            }
        }
    }
}

#[test]
fn what_sops_encrypts_is_read_as_sops_reads_it() {
    const RULES: [&str; 10] = [
        "",
        "mac_only_encrypted: true",
        "unencrypted_suffix: _unencrypted",
        "encrypted_suffix: _secret",
        "encrypted_regex: ^(data|stringData)$",
        "unencrypted_regex: ^(metadata|a)$",
        "encrypted_regex: ^data$, mac_only_encrypted: true",
        "encrypted_comment_regex: sealed",
        "unencrypted_comment_regex: \"secret: no\"",
        "encrypted_comment_regex: sealed, mac_only_encrypted: true",
    ];
    let place = Place::new();
    let seed = rand::random();
    let mut random = StdRng::seed_from_u64(seed);
    let cases = match Extent::of_this_run() {
        Extent::Usual => 40,
        Extent::Full => 300,
    };
    for case in 0..cases {
        let form = if case % 4 == 3 {
            Form::Json
        } else {
            Form::Yaml
        };
        let rule = RULES[case % RULES.len()];
        let documents = if form == Form::Json { 1 } else { 1 + case % 3 };
        let mut writer = Writer {
            random: &mut random,
            form,
        };
        let written: Vec<_> = (0..documents).map(|_| writer.document()).collect();
        let text = written.join("---\n");
        let name = match form {
            Form::Json => "a.json",
            Form::Yaml => "a.yaml",
        };
        let told = || format!("seed {seed}, case {case}, {rule}:\n{text}");
        let sealed = place.encrypted(name, &text, rule);
        assert!(sops::is_sops(&sealed), "{}", told());
        let expected = place.decrypted(name, &sealed);
        let expected = expected.unwrap_or_else(|| panic!("sops refuses it: {}\n{sealed}", told()));
        let read = place.opened(&sealed);
        let read = read.unwrap_or_else(|error| panic!("{error}: {}\n{sealed}", told()));
        assert_eq!(
            read.iter().map(even).collect::<Vec<_>>(),
            expected.iter().map(even).collect::<Vec<_>>(),
            "{}\n{sealed}",
            told()
        );
        let order = |documents: &[Value]| {
            serde_json::to_string(&documents.iter().map(even).collect::<Vec<_>>()).unwrap()
        };
        assert_eq!(order(&read), order(&expected), "{}", told());
    }
}

#[test]
fn what_was_altered_is_refused_as_sops_refuses_it() {
    let place = Place::new();
    let text = "kind: Secret\nmetadata: {name: a}\nstringData:\n  one: first\n  two: second\n  three: third\nlist: [1, 2.5]\n";
    let sealed = place.encrypted("b.yaml", text, "encrypted_regex: ^(stringData|list)$");
    assert_eq!(place.opened(&sealed).unwrap(), plain(text));
    let line = |name: &str| {
        let mut lines = sealed.lines();
        lines
            .find(|line| line.trim_start().starts_with(name))
            .unwrap()
    };
    let value = |name: &str| line(name).split_once(": ").unwrap().1;
    let flip = |text: &str| {
        // The first letter of the data.
        let (begin, rest) = text.split_once("data:").unwrap();
        let first = if rest.starts_with('A') { 'B' } else { 'A' };
        format!("{begin}data:{first}{}", &rest[1..])
    };
    let mut envelope: Vec<_> = sealed.lines().map(str::to_owned).collect();
    let begin = envelope
        .iter()
        .position(|line| line.contains("BEGIN AGE"))
        .unwrap();
    envelope.swap(begin + 1, begin + 2);
    for (what, altered) in [
        (
            "a value",
            sealed.replace(value("one:"), &flip(value("one:"))),
        ),
        ("two values exchanged", {
            let (one, two) = (value("one:"), value("two:"));
            sealed.replace(one, "@").replace(two, one).replace('@', two)
        }),
        (
            "a value in the open",
            sealed.replace("kind: Secret", "kind: Other"),
        ),
        (
            "a value is gone",
            sealed.replace(&format!("{}\n", line("three:")), ""),
        ),
        (
            "a value more",
            sealed.replace("kind: Secret", "kind: Secret\nmore: x"),
        ),
        (
            "a value that is not encrypted",
            sealed.replace(value("two:"), "second"),
        ),
        ("an empty value", sealed.replace(value("two:"), "\"\"")),
        (
            "a number that is not encrypted",
            sealed.replace(value("two:"), "5"),
        ),
        ("a name", sealed.replace("    two: ENC", "    four: ENC")),
        (
            "a type",
            sealed.replace(
                value("two:"),
                &value("two:").replace("type:str", "type:int"),
            ),
        ),
        (
            "no digest",
            sealed.replace(&format!("{}\n", line("mac:")), ""),
        ),
        ("an empty digest", sealed.replace(value("mac:"), "\"\"")),
        (
            "another digest",
            sealed.replace(value("mac:"), value("one:")),
        ),
        (
            "a time",
            sealed.replace(value("lastmodified:"), "\"2001-01-01T00:00:00Z\""),
        ),
        ("the rule", sealed.replace("^(stringData|list)$", "^list$")),
        (
            "how it is digested",
            format!("{sealed}    mac_only_encrypted: true\n"),
        ),
        ("the envelope", envelope.join("\n")),
        (
            "nothing of sops",
            sealed.split("sops:").next().unwrap().to_owned() + "sops: {}\n",
        ),
        ("cut", sealed.lines().take(8).collect::<Vec<_>>().join("\n")),
        ("a document more", format!("{sealed}---\nmore: x\n")),
        ("a list of another order", {
            let items: Vec<_> = sealed
                .lines()
                .filter(|line| line.trim_start().starts_with("- ENC"))
                .collect();
            sealed
                .replace(items[0], "@")
                .replace(items[1], items[0])
                .replace('@', items[1])
        }),
    ] {
        assert_ne!(altered, sealed, "{what}");
        assert_eq!(
            place.decrypted("b.yaml", &altered),
            None,
            "{what}: sops takes it"
        );
        let error = place.opened(&altered).err();
        let told = error
            .unwrap_or_else(|| panic!("{what} is taken:\n{altered}"))
            .to_string();
        for secret in ["first", "second", "third"] {
            assert!(!told.contains(secret), "{what}: {told}");
        }
    }
}

#[test]
fn a_path_is_told_in_part_and_one_beyond_all_bounds_is_refused() {
    let place = Place::new();
    let name = "n".repeat(1000);
    let below = |depth: usize| {
        let names = format!("{{{name}: ").repeat(depth);
        format!("a: {names}hidden{}\n", "}".repeat(depth))
    };
    let sealed = place.encrypted("e.yaml", &below(2), "");
    let opened = sops::open(&sealed, &place.keys("mine")).ok().unwrap();
    assert_eq!(opened.secrets[0].within, None);
    let told = |sealed: &str| place.opened(sealed).err().unwrap().to_string();
    let altered = told(&sealed.replace("ENC[AES256_GCM,data:", "ENC[AES256_GCM,data:AAAA"));
    assert!(
        altered.contains("altered") && altered.len() < 400,
        "{altered}"
    );
    let deep = told(&place.encrypted("e.yaml", &below(9), ""));
    assert!(deep.contains("8 KiB") && deep.len() < 400, "{deep}");
}

#[test]
fn keys_are_looked_for_where_sops_looks_and_named_where_none_fits() {
    let place = Place::new();
    let (mine, other) = (place.public("mine"), place.public("other"));
    let sealed = place.encrypted("c.yaml", "a: hidden\n", "");
    let told = |keys: &Keys| {
        sops::open(&sealed, keys)
            .err()
            .map(|error| error.to_string())
    };

    let message = told(&place.keys("other")).unwrap();
    assert!(
        message.contains(&mine) && message.contains(&other) && message.contains("--age-key-file"),
        "{message}"
    );
    let none = Keys::find(None, |name| {
        (name == "HOME").then(|| place.at("nobody").display().to_string())
    });
    let message = told(&none.unwrap()).unwrap();
    for word in [
        "there is no private key",
        "SOPS_AGE_KEY is not set",
        "nobody/.config/sops/age/keys.txt",
    ] {
        assert!(message.contains(word), "{word}: {message}");
    }

    // Where SOPS looks.
    let secret = |key: &str| {
        let text = fs::read_to_string(place.at(key)).unwrap();
        text.lines()
            .find(|line| line.starts_with("AGE-"))
            .unwrap()
            .to_owned()
    };
    let several = format!("{} {}", secret("other"), secret("mine"));
    let usual = place.at("home/sops/age");
    fs::create_dir_all(&usual).unwrap();
    fs::copy(place.at("mine"), usual.join("keys.txt")).unwrap();
    for (variable, value) in [
        ("SOPS_AGE_KEY", several),
        ("SOPS_AGE_KEY_FILE", place.at("mine").display().to_string()),
        ("XDG_CONFIG_HOME", place.at("home").display().to_string()),
    ] {
        let keys = Keys::find(None, |name| (name == variable).then(|| value.clone())).unwrap();
        assert_eq!(told(&keys), None, "{variable}");
    }

    // Files that are no keys.
    let refused = |name: &str, text: &[u8], mode: u32| {
        let path = place.at(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = Keys::find(Some(&path), |_| None).err().unwrap().to_string();
        assert!(error.contains(name), "{error}");
        assert!(!error.contains("AGE-SECRET-KEY-1Q"), "{error}");
        error
    };
    assert!(refused("open", secret("mine").as_bytes(), 0o640).contains("chmod 600"));
    let broken = format!("# a comment\n{}\nAGE-SECRET-KEY-1QQ\n", secret("mine"));
    assert!(refused("broken", broken.as_bytes(), 0o600).contains("line 3"));
    assert!(refused("public", mine.as_bytes(), 0o600).contains("line 1"));
    assert!(refused("bytes", b"\xff\xfe", 0o600).contains("line 1"));
    assert!(
        refused("sealed", b"age-encryption.org/v1\n-> scrypt x 18\n", 0o600)
            .contains("SOPS_AGE_KEY")
    );
    let missing = Keys::find(Some(Path::new("/nowhere/key")), |_| None)
        .err()
        .unwrap();
    assert!(missing.to_string().contains("/nowhere/key"), "{missing}");
}

#[test]
fn documents_are_for_several_people_and_not_for_services() {
    let place = Place::new();
    let (mine, other) = (place.public("mine"), place.public("other"));
    let both = format!("{other},{mine}");
    fs::write(place.at("d.yaml"), "a: hidden\n").unwrap();
    let output = place.run("sops", &["encrypt", "--age", &both, "d.yaml"]);
    let sealed = String::from_utf8(output.stdout).unwrap();
    for key in ["mine", "other"] {
        let opened = sops::open(&sealed, &place.keys(key)).ok().unwrap();
        assert_eq!(opened.documents, [json!({"a": "hidden"})]);
        let secrets: Vec<_> = opened
            .secrets
            .iter()
            .map(|secret| (&*secret.field, secret.text.as_str()))
            .collect();
        assert_eq!(secrets, [("a", "hidden")]);
    }

    // Groups of keys that are needed together.
    let rules = format!(
        "creation_rules:\n- shamir_threshold: 2\n  key_groups:\n  - age: [{mine}]\n  - age: [{other}]\n"
    );
    fs::write(place.at("rules.yaml"), rules).unwrap();
    let output = place.run("sops", &["--config", "rules.yaml", "encrypt", "d.yaml"]);
    let shared = String::from_utf8(output.stdout).unwrap();
    let told = |text: &str| place.opened(text).err().unwrap().to_string();
    assert!(told(&shared).contains("Shamir"), "{}", told(&shared));

    let service = sealed.replace("    age:\n", "    pgp:\n");
    assert!(told(&service).contains("PGP"), "{}", told(&service));
    let version = sealed
        .lines()
        .find(|line| line.starts_with("    version:"))
        .unwrap();
    let later = sealed.replace(version, "    version: 4.0.0");
    assert!(told(&later).contains("SOPS 4.0.0"), "{}", told(&later));
    for (line, word) in [
        ("unencrypted_regex: \"(\"", "sops.unencrypted_regex"),
        ("encrypted_suffix: x", "more than one"),
        ("mac_only_encrypted: maybe", "sops.mac_only_encrypted"),
    ] {
        let suffix = "    unencrypted_suffix: _unencrypted\n";
        assert!(sealed.contains(suffix), "{sealed}");
        let line = format!("    {line}\n");
        let text = if line.contains("regex") {
            sealed.replace(suffix, &line)
        } else {
            sealed.clone() + &line
        };
        assert!(told(&text).contains(word), "{}", told(&text));
    }
}

#[test]
fn a_file_that_age_encrypts_is_opened_and_one_that_was_altered_is_not() {
    let place = Place::new();
    let mine = place.public("mine");
    let text = "apiVersion: v1\nkind: Secret\n";
    fs::write(place.at("plain"), text).unwrap();
    for form in [&["-a"][..], &[]] {
        let arguments = [&["-r", &mine, "-o", "sealed"], form, &["plain"]].concat();
        assert!(place.run("age", &arguments).status.success());
        let sealed = fs::read(place.at("sealed")).unwrap();
        assert!(sops::is_age(&sealed));
        let opened = sops::unseal(&sealed, &place.keys("mine"));
        assert_eq!(opened.ok().unwrap().as_str(), text);
        let other = sops::unseal(&sealed, &place.keys("other")).err().unwrap();
        assert!(
            other.to_string().contains(&place.public("other")),
            "{other}"
        );
        for at in [30, sealed.len() / 2, sealed.len() - 45] {
            let mut altered = sealed.clone();
            altered[at] ^= 1;
            let error = sops::unseal(&altered, &place.keys("mine")).err();
            assert!(error.is_some(), "byte {at}");
        }
        let cut = sops::unseal(&sealed[..sealed.len() - 5], &place.keys("mine"));
        assert!(cut.is_err());
    }
}
