//! How a VaultSecret stands after passes, told by what it stood like before.

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[expect(clippy::unnecessary_wraps, reason = "as passes end")]
fn kept(written: bool) -> Result<Kept, Trouble> {
    Ok(Kept {
        secret: "a".to_owned(),
        version: Some(2),
        digests: None,
        contents: None,
        written: written.then(|| (vec!["k".to_owned()], "7".to_owned())),
        renewed_in: None,
    })
}

fn sealed() -> Result<Kept, Trouble> {
    Err(vault::Error::Sealed.into())
}

fn shown(status: &VaultSecretStatus) -> String {
    let conditions = status.conditions.iter();
    let shown: Vec<_> = conditions
        .map(|it| format!("{}={}", it.type_, it.status))
        .collect();
    shown.join(" ")
}

#[test]
fn what_was_read_counts_until_vault_says_otherwise() {
    let denied = || Err(vault::Error::Denied("no".to_owned()).into());
    let wrong = || Err(invalid("spec.path".to_owned(), "mend it"));
    let new = VaultSecretStatus::default();
    let good = told(&new, Some(1), &kept(true), at(1));
    for (before, pass, expected) in [
        (&new, kept(true), "Ready=True Stale=False"),
        (&new, sealed(), "Ready=False Reconciling=True Stale=True"),
        (&good, sealed(), "Ready=True Stale=True"),
        (&good, denied(), "Ready=False Stale=True"),
        (&good, wrong(), "Ready=False Stale=True Stalled=True"),
    ] {
        let status = told(before, Some(1), &pass, at(2));
        assert_eq!(shown(&status), expected, "{pass:?}");
    }
}

#[test]
fn a_pass_with_nothing_new_writes_nothing() {
    let first = told(&VaultSecretStatus::default(), Some(1), &kept(true), at(1));
    let second = told(&first, Some(1), &kept(false), at(2));
    assert_eq!(first, second);
    assert_eq!(second.changed_at, Some(Time(at(1))));
    let third = told(&second, Some(1), &kept(true), at(3));
    assert_eq!(third.changed_at, Some(Time(at(3))));
    let away = told(&third, Some(1), &sealed(), at(4));
    assert_eq!(away, told(&away, Some(1), &sealed(), at(5)));
}

#[test]
fn keys_that_somebody_still_reads_stay_while_it_is_said_so() {
    let data = |fields: &[(&str, &str)]| -> BTreeMap<String, ByteString> {
        let fields = fields.iter();
        fields
            .map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())))
            .collect()
    };
    let had = data(&[("a", "1"), ("b", "2")]);
    // "MQ==" is the base64 of 1, "Mw==" that of 3.
    for (read, former, expected) in [
        (data(&[("a", "1"), ("b", "2")]), Former::Go, None),
        (data(&[("a", "1"), ("b", "2")]), Former::Stay, None),
        (
            data(&[("a", "1")]),
            Former::Go,
            Some(json!({"a": "MQ==", "b": null})),
        ),
        (data(&[("a", "1")]), Former::Stay, None),
        (
            data(&[("a", "3")]),
            Former::Stay,
            Some(json!({"a": "Mw=="})),
        ),
        (
            data(&[("c", "3")]),
            Former::Stay,
            Some(json!({"c": "Mw=="})),
        ),
    ] {
        assert_eq!(
            changed(&had, &read, former),
            expected,
            "{read:?} {former:?}"
        );
    }
}

#[test]
fn events_are_of_edges() {
    let object = VaultSecret::new(
        "a",
        serde_json::from_value(json!({
            "vault": {"address": "https://v", "auth": {"kubernetes": {"role": "r"}}}, "path": "p",
        }))
        .unwrap(),
    );
    let mut before = VaultSecretStatus::default();
    let mut reasons = Vec::new();
    let passes = [
        kept(true),
        kept(false),
        sealed(),
        sealed(),
        kept(false),
        kept(true),
    ];
    for (second, pass) in (1..).zip(&passes) {
        let after = told(&before, Some(1), pass, at(second));
        let told = occurrences(&object, (&before, &after), pass);
        reasons.push(
            told.into_iter()
                .map(|it| it.reason)
                .collect::<Vec<_>>()
                .join("+"),
        );
        before = after;
    }
    let expected = [
        "SecretWritten",
        "",
        "VaultSealed",
        "",
        "VaultRead",
        "SecretWritten",
    ];
    assert_eq!(reasons, expected);
}
