//! A site: a directory of authorities, one of VOMS servers, and a verifier over them.

use std::fs;

use bytes::Bytes;
use forebay_auth::x509::{CertifiedUser, Crl, Verifier, VerifierConfig, X509Error};
use tempfile::TempDir;

use crate::forge::{Holder, NOW_S, RevocationDraft, pem, root};

pub const ROOT: &str = "/DC=org/DC=example/CN=Root CA";
pub const ALICE: &str = "/DC=org/DC=example/O=Physics/CN=Alice Adams";
pub const SERVER: &str = "/DC=org/DC=example/OU=Hosts/CN=voms.example.org";

pub struct Site {
    pub dir: TempDir,
    pub root: Holder,
}

impl Site {
    pub fn new() -> Site {
        Site::trusting(root(ROOT))
    }

    pub fn trusting(root: Holder) -> Site {
        let dir = TempDir::new().expect("a directory");
        fs::create_dir_all(dir.path().join("certificates")).expect("a directory");
        fs::create_dir_all(dir.path().join("vomsdir/atlas")).expect("a directory");
        let site = Site { dir, root };
        site.put("certificates/root.pem", &site.root.pem());
        site
    }

    pub fn put(&self, path: &str, content: &str) {
        fs::write(self.dir.path().join(path), content).expect("a file");
    }

    pub fn put_list(&self, path: &str, list: &RevocationDraft, authority: &Holder) {
        self.put(path, &pem("X509 CRL", &list.signed_by(authority)));
    }

    pub fn trust_server(&self) {
        self.put("vomsdir/atlas/voms.example.org.lsc", &format!("{SERVER}\n{ROOT}\n"));
    }

    pub fn verifier(&self, crl: Crl) -> Verifier {
        Verifier::new(VerifierConfig {
            ca_dir: self.dir.path().join("certificates"),
            vomsdir: self.dir.path().join("vomsdir"),
            crl,
            hosts: vec!["SE.example.org".to_owned()],
        })
    }

    pub fn judge(&self, chain: &[&Holder]) -> Result<CertifiedUser, X509Error> {
        self.judge_at(chain, NOW_S)
    }

    pub fn judge_at(&self, chain: &[&Holder], now_s: u64) -> Result<CertifiedUser, X509Error> {
        self.verifier(Crl::IfPresent).judge(&ders(chain), now_s)
    }
}

pub fn ders(chain: &[&Holder]) -> Vec<Bytes> {
    chain.iter().map(|holder| holder.der.clone()).collect()
}
