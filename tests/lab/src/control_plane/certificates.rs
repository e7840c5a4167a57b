//! The certificates of one control plane, made for its life of a day.

use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;

/// Signs for one control plane.
pub(super) struct Authority {
    dir: PathBuf,
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Writes `ca.crt`, `server.{crt,key}` and the pair that signs service account tokens.
    pub(super) fn new(dir: &Path) -> Result<Self> {
        let key = KeyPair::generate().context("make a key")?;
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "testenv-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params
            .self_signed(&key)
            .context("sign the authority")?
            .pem();
        fs::write(dir.join("ca.crt"), &certificate)?;
        let authority = Self {
            dir: dir.to_owned(),
            certificate,
            issuer: Issuer::new(params, key),
        };
        let names = [
            "127.0.0.1",
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "10.254.0.1",
        ];
        let mut server = CertificateParams::new(names.map(str::to_owned))?;
        server
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let (certificate, key) = authority.sign(server)?;
        fs::write(dir.join("server.crt"), certificate)?;
        private(&dir.join("server.key"), &key)?;
        let accounts = KeyPair::generate().context("make a key")?;
        private(&dir.join("accounts.key"), &accounts.serialize_pem())?;
        fs::write(dir.join("accounts.pub"), accounts.public_key_pem())?;
        Ok(authority)
    }

    /// Writes `<user>.kubeconfig`.
    pub(super) fn kubeconfig(&self, server: &str, user: &str, group: Option<&str>) -> Result<()> {
        let mut client = CertificateParams::new(Vec::new())?;
        client.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            client
                .distinguished_name
                .push(DnType::OrganizationName, group);
        }
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let (certificate, key) = self.sign(client)?;
        let encode = |text: &str| base64(text.as_bytes());
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "testenv",
            "clusters": [{"name": "testenv", "cluster": {
                "server": server, "certificate-authority-data": encode(&self.certificate),
            }}],
            "users": [{"name": user, "user": {
                "client-certificate-data": encode(&certificate), "client-key-data": encode(&key),
            }}],
            "contexts": [{"name": "testenv", "context": {"cluster": "testenv", "user": user}}],
        });
        let text = serde_json::to_string_pretty(&config)?;
        private(&self.dir.join(format!("{user}.kubeconfig")), &text)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<(String, String)> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().context("make a key")?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .context("sign a certificate")?;
        Ok((certificate.pem(), key.serialize_pem()))
    }
}

fn private(path: &Path, text: &str) -> Result<()> {
    let mut file = fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("make {}", path.display()))?;
    std::io::Write::write_all(&mut file, text.as_bytes())?;
    Ok(())
}

fn base64(bytes: &[u8]) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    STANDARD.encode(bytes)
}
