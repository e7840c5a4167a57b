//! The authorities of clusters, where Magnum keeps them.
//!
//! A cluster says by a reference where its authorities are: the UUID of a row, of files, or the address of a container in Barbican. The
//! rows and the files have all that is needed, the password of the key beside it. Barbican is not asked: what it keeps is its users' own,
//! and an administrator of Magnum may not have it. What somebody has exported of it is read as files are.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use pkcs8::{EncryptedPrivateKeyInfo, LineEnding, PrivateKeyInfo, SecretDocument};
use rcgen::{KeyPair, PublicKeyData as _};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use uuid::Uuid;

use super::{
    Finding, Outcome,
    rows::{Reader, Row, Table, Tables},
};
use crate::authority::{Authority, Purpose};

/// The longest file that is read.
const LONGEST: u64 = 1024 * 1024;
/// What can be done where a reference leads to nothing.
const EXPORT: &str = "the cluster is shown without it; put its files UUID.crt, UUID.key and UUID.pass into the directory of --certificates, and migrate again";

/// A directory with files as Magnum's `local` manager has them.
#[derive(Clone, Debug)]
pub struct Directory(pub PathBuf);

/// Where authorities are looked for.
pub struct Authorities<'a> {
    rows: BTreeMap<&'a str, &'a Row>,
    directory: Option<&'a Directory>,
}

/// What is kept of one.
struct Kept {
    certificate: String,
    key: String,
    password: Option<String>,
}

impl<'a> Authorities<'a> {
    /// In these rows, and before them in a directory.
    pub fn new(tables: &'a Tables, directory: Option<&'a Directory>) -> Self {
        let rows = tables.rows(Table::KeyPairs).iter();
        let named = rows.filter_map(|row| Some((row.text("uuid")?, row)));
        Self {
            rows: named.collect(),
            directory,
        }
    }

    /// Those of a cluster, as far as they can be read.
    pub(super) fn of(&self, row: &Row, findings: &mut Vec<Finding>) -> Vec<(Purpose, Authority)> {
        let mut reader = Reader::new(Table::Clusters, row);
        let mut found = Vec::new();
        for (purpose, column) in [
            (Purpose::Kubernetes, "ca_cert_ref"),
            (Purpose::Etcd, "etcd_ca_cert_ref"),
            (Purpose::FrontProxy, "front_proxy_ca_cert_ref"),
        ] {
            let Some(reference) = reader.text(column, 512) else {
                continue;
            };
            match self.kept(&reference).and_then(|kept| opened(&kept)) {
                Ok(authority) => found.push((purpose, authority)),
                Err(rule) => reader.note(Outcome::Changed, column, reference, rule, EXPORT),
            }
        }
        if found.is_empty() && row.bytes("ca_cert_ref").is_none() {
            let rule = "no certificate is signed for it";
            reader.note(Outcome::Changed, "ca_cert_ref", "empty", rule, EXPORT);
        }
        reader.finish(found, findings).unwrap_or_default()
    }

    fn kept(&self, reference: &str) -> Result<Kept, String> {
        // An address of Barbican ends with a UUID. Nothing else becomes the name of a file.
        let last = reference.rsplit('/').next().unwrap_or_default();
        let uuid = Uuid::try_parse(last).map_err(|_| "it is no UUID and no address".to_owned())?;
        if let Some(Directory(directory)) = self.directory
            && let Some(kept) = of_files(directory, &uuid.to_string())?
        {
            return Ok(kept);
        }
        if reference.contains('/') {
            return Err("it is in Barbican, which is not asked".to_owned());
        }
        let row = self
            .rows
            .get(reference)
            .ok_or_else(|| "there is no such row of x509keypair, and no such file".to_owned())?;
        let text = |column: &'static str| {
            let text = row.text(column).map(str::to_owned);
            text.ok_or_else(|| format!("its row of x509keypair has no {column}"))
        };
        Ok(Kept {
            certificate: text("certificate")?,
            key: text("private_key")?,
            password: row.text("private_key_passphrase").map(str::to_owned),
        })
    }
}

fn of_files(directory: &Path, uuid: &str) -> Result<Option<Kept>, String> {
    let read = |end: &str| {
        let file = directory.join(format!("{uuid}.{end}"));
        limited(&file).map_err(|error| format!("{uuid}.{end} cannot be read: {error}"))
    };
    let Some(certificate) = read("crt")? else {
        return Ok(None);
    };
    let key = read("key")?.ok_or_else(|| format!("there is no {uuid}.key beside {uuid}.crt"))?;
    let password = read("pass")?;
    Ok(Some(Kept {
        certificate,
        key,
        password,
    }))
}

fn limited(file: &Path) -> io::Result<Option<String>> {
    match fs::metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(found) if found.len() > LONGEST => Err(io::ErrorKind::FileTooLarge.into()),
        Ok(_) => fs::read_to_string(file).map(Some),
    }
}

/// An authority whose key is open, as the service signs with it. What fails is told without anything of the key.
fn opened(kept: &Kept) -> Result<Authority, String> {
    let der = CertificateDer::from_pem_slice(kept.certificate.as_bytes());
    let der = der.map_err(|_| "its certificate is none in PEM form".to_owned())?;
    let (_, certificate) = x509_parser::parse_x509_certificate(&der)
        .map_err(|_| "its certificate cannot be read".to_owned())?;
    if !certificate.is_ca() {
        return Err("its certificate is not that of an authority".to_owned());
    }
    let key = decrypted(kept)?;
    let pair = KeyPair::from_pem(&key).map_err(|_| "its key is of a kind that is not used here")?;
    if pair.der_bytes() != certificate.public_key().subject_public_key.as_ref() {
        return Err("its key is not that of its certificate".to_owned());
    }
    Ok(Authority {
        certificate: kept.certificate.clone(),
        key,
    })
}

fn decrypted(kept: &Kept) -> Result<String, String> {
    let (label, document) = SecretDocument::from_pem(kept.key.trim())
        .map_err(|_| "its key is none in PEM form".to_owned())?;
    let open = match label {
        "PRIVATE KEY" => document,
        "ENCRYPTED PRIVATE KEY" => {
            let password = kept.password.as_deref().unwrap_or_default();
            let sealed = EncryptedPrivateKeyInfo::try_from(document.as_bytes())
                .map_err(|_| "its key cannot be read".to_owned())?;
            let open = sealed.decrypt(password.trim_end_matches('\n'));
            open.map_err(|_| "its key cannot be opened with the password beside it".to_owned())?
        }
        _ => return Err("its key is not in the form PKCS #8".to_owned()),
    };
    PrivateKeyInfo::try_from(open.as_bytes()).map_err(|_| "its key cannot be read".to_owned())?;
    let key = open.to_pem("PRIVATE KEY", LineEnding::LF);
    let key = key.map_err(|_| "its key cannot be written".to_owned())?;
    Ok(key.as_str().to_owned())
}
