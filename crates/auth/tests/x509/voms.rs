//! Memberships signed by a VOMS server.

use forebay_auth::x509::{CertifiedUser, Crl, VomsError, X509Error};

use crate::forge::*;
use crate::site::{ALICE, ROOT, SERVER, Site, ders};

struct Grid {
    site: Site,
    server: Holder,
    alice: Holder,
}

impl Grid {
    fn new() -> Grid {
        let site = Site::new();
        site.trust_server();
        let server = site.root.user_draft(SERVER).with(extended_key_usage(1)).signed_by(&site.root);
        let alice = site.root.user_draft(ALICE).change(|draft| draft.serial = 0x2002).signed_by(&site.root);
        Grid { site, server, alice }
    }

    fn draft(&self) -> AttributeDraft<'_> {
        AttributeDraft::of(&self.alice, &self.server, &["/atlas/Role=NULL/Capability=NULL", "/atlas/de"])
    }

    fn with(&self, certificates: &[Vec<u8>]) -> CertifiedUser {
        let proxy = self.alice.proxy_draft("1").with(voms_extension(certificates)).signed_by(&self.alice);
        self.site.judge(&[&proxy, &self.alice]).expect("certified, whatever the attributes")
    }

    /// Why the one attribute certificate does not count.
    fn refusal(&self, draft: &AttributeDraft<'_>) -> VomsError {
        self.refusal_of(draft.signed_by(&self.server.key))
    }

    fn refusal_of(&self, certificate: Vec<u8>) -> VomsError {
        let user = self.with(&[certificate]);
        assert_eq!((user.dn.as_str(), &user.fqans[..]), (ALICE, &[][..]));
        let [refusal] = &user.voms_refusals[..] else { panic!("{:?}", user.voms_refusals) };
        refusal.clone()
    }
}

#[test]
fn memberships_are_read_and_end_with_their_signature() {
    let grid = Grid::new();
    let user = grid.with(&[grid.draft().signed_by(&grid.server.key)]);
    assert_eq!(user.fqans, ["/atlas", "/atlas/de"]);
    assert_eq!((user.expires_s, &user.voms_refusals[..]), (NOW_S + 3600, &[][..]));
}

#[test]
fn memberships_stay_through_delegation_and_the_nearest_ones_count() {
    let grid = Grid::new();
    let given = |fqan: &str| {
        let draft = AttributeDraft::of(&grid.alice, &grid.server, &[fqan]);
        voms_extension(&[draft.signed_by(&grid.server.key)])
    };
    let first = grid.alice.proxy_draft("1").with(given("/atlas/Role=production")).signed_by(&grid.alice);
    let second = first.proxy("2");
    let user = grid.site.judge(&[&second, &first, &grid.alice]).expect("certified");
    assert_eq!(user.fqans, ["/atlas/Role=production"]);
    let third = second.proxy_draft("3").with(given("/atlas/Role=pilot")).signed_by(&second);
    let user = grid.site.judge(&[&third, &second, &first, &grid.alice]).expect("certified");
    assert_eq!(user.fqans, ["/atlas/Role=pilot"]);
}

#[test]
fn a_signature_by_another_key_does_not_count() {
    let grid = Grid::new();
    let mallory = grid.site.root.user("/DC=org/CN=Mallory");
    assert_eq!(grid.refusal_of(grid.draft().signed_by(&mallory.key)), VomsError::WrongSignature);
    // Nor does a server of the right name below an authority of the right name that is another.
    let stranger = root(ROOT);
    let server = stranger.user(SERVER);
    let draft = AttributeDraft::of(&grid.alice, &server, &["/atlas"]);
    let refusal = grid.refusal_of(draft.signed_by(&server.key));
    assert!(matches!(refusal, VomsError::Issuer(X509Error::WrongSignature { .. })));
    let draft = AttributeDraft::of(&grid.alice, &server, &["/atlas"]);
    let draft = draft.change(|draft| draft.embedded.push(&stranger));
    assert!(matches!(grid.refusal_of(draft.signed_by(&server.key)), VomsError::Issuer(_)));
}

#[test]
fn a_user_is_no_server_even_below_the_same_authority() {
    let grid = Grid::new();
    let mallory = grid.site.root.user("/DC=org/CN=Mallory");
    let draft = AttributeDraft::of(&grid.alice, &mallory, &["/atlas"]);
    let refusal = grid.refusal_of(draft.signed_by(&mallory.key));
    assert!(matches!(refusal, VomsError::NotInLsc { .. }));
    // A user's proxy named like the server, and one that claims the server's name as issuer.
    let proxy =
        mallory.proxy_draft("1").change(|draft| draft.subject = SERVER.to_owned()).signed_by(&mallory);
    let draft = AttributeDraft::of(&grid.alice, &proxy, &["/atlas"]);
    let draft = draft.change(|draft| draft.embedded.push(&mallory));
    assert!(matches!(grid.refusal_of(draft.signed_by(&proxy.key)), VomsError::Issuer(_)));
    let draft = AttributeDraft::of(&grid.alice, &mallory, &["/atlas"]);
    let draft = draft.change(|draft| draft.issuer = SERVER.to_owned());
    assert_eq!(grid.refusal_of(draft.signed_by(&mallory.key)), VomsError::NoIssuer);
}

#[test]
fn memberships_of_somebody_else_do_not_count() {
    let grid = Grid::new();
    let refusal = grid.refusal(&grid.draft().change(|draft| draft.holder_serial += 1));
    assert_eq!(refusal, VomsError::WrongHolder);
    let refusal = grid.refusal(&grid.draft().change(|draft| draft.holder_issuer = "/CN=Other CA".to_owned()));
    assert_eq!(refusal, VomsError::WrongHolder);
}

#[test]
fn memberships_have_their_time() {
    let grid = Grid::new();
    let refusal = grid.refusal(&grid.draft().change(|draft| draft.until_s = NOW_S - 301));
    assert_eq!(refusal, VomsError::NotValidNow);
    let refusal = grid.refusal(&grid.draft().change(|draft| draft.from_s = NOW_S + 301));
    assert_eq!(refusal, VomsError::NotValidNow);
}

#[test]
fn a_server_speaks_for_the_organisations_it_is_trusted_for() {
    let grid = Grid::new();
    let refusal = grid.refusal(&grid.draft().change(|draft| draft.fqans.push("/cms/Role=admin".to_owned())));
    assert!(matches!(refusal, VomsError::ForeignAttribute { fqan, .. } if fqan == "/cms/Role=admin"));
    let refusal = grid.refusal(&grid.draft().change(|draft| draft.fqans.push("/atlasx".to_owned())));
    assert!(matches!(refusal, VomsError::ForeignAttribute { .. }));
    let cms = |draft: &mut AttributeDraft<'_>| {
        draft.authority = "cms://voms.example.org:15001".to_owned();
        draft.fqans = vec!["/cms".to_owned()];
    };
    let unknown = VomsError::UnknownServer { vo: "cms".to_owned(), host: "voms.example.org".to_owned() };
    assert_eq!(grid.refusal(&grid.draft().change(cms)), unknown);
    // Text that a client sends never becomes a path.
    let up = |draft: &mut AttributeDraft<'_>| {
        draft.authority = "../vomsdir/atlas://voms.example.org:1".to_owned();
        draft.fqans = vec!["/../vomsdir/atlas".to_owned()];
    };
    assert!(matches!(grid.refusal(&grid.draft().change(up)), VomsError::UnknownServer { .. }));
    let other = grid.draft().change(|draft| draft.authority = "atlas://other.example.org:15001".to_owned());
    assert!(matches!(grid.refusal(&other), VomsError::UnknownServer { .. }));
}

#[test]
fn an_lsc_file_names_the_whole_chain_that_it_wants() {
    let grid = Grid::new();
    let file = "vomsdir/atlas/voms.example.org.lsc";
    grid.site.put(file, &format!("{SERVER}\n/CN=Other CA\n"));
    assert!(matches!(grid.refusal(&grid.draft()), VomsError::NotInLsc { .. }));
    grid.site.put(file, &format!("{SERVER}\n/CN=Other CA\n--- NEXT CHAIN ---\n{SERVER}\n{ROOT}\n"));
    assert_eq!(grid.with(&[grid.draft().signed_by(&grid.server.key)]).fqans.len(), 2);
    grid.site.put(file, &format!("{SERVER}\n"));
    assert!(matches!(grid.refusal(&grid.draft()), VomsError::UnknownServer { .. }));
}

#[test]
fn a_server_that_is_revoked_vouches_for_nobody() {
    let grid = Grid::new();
    let list = RevocationDraft::of(&[grid.server.serial]);
    grid.site.put_list("certificates/root.r0", &list, &grid.site.root);
    let refusal = grid.refusal(&grid.draft());
    assert!(matches!(refusal, VomsError::Issuer(X509Error::Revoked { .. })));
}

#[test]
fn the_servers_certificate_comes_along_with_what_stands_above_it() {
    let grid = Grid::new();
    let middle = grid.site.root.authority("/CN=Middle CA");
    let server = middle.user(SERVER);
    grid.site.put("vomsdir/atlas/voms.example.org.lsc", &format!("{SERVER}\n/CN=Middle CA\n"));
    let draft = AttributeDraft::of(&grid.alice, &server, &["/atlas"]);
    assert!(matches!(grid.refusal_of(draft.signed_by(&server.key)), VomsError::Issuer(_)));
    let draft = draft.change(|draft| draft.embedded.push(&middle));
    assert_eq!(grid.with(&[draft.signed_by(&server.key)]).fqans, ["/atlas"]);
    let draft = draft.change(|draft| draft.embedded.clear());
    assert_eq!(grid.refusal_of(draft.signed_by(&server.key)), VomsError::NoIssuer);
}

#[test]
fn memberships_for_other_servers_do_not_count() {
    let grid = Grid::new();
    let targeted = |host: &str| {
        let target = tlv(0xa0, &tlv(0x86, host.as_bytes()));
        let value = sequence(&[&sequence(&[&target])]);
        grid.draft().change(|draft| draft.extensions.push(extension("2.5.29.55", true, &value)))
    };
    assert_eq!(grid.refusal(&targeted("ce.example.org")), VomsError::NotForThisServer);
    assert_eq!(grid.with(&[targeted("se.EXAMPLE.org").signed_by(&grid.server.key)]).fqans.len(), 2);
}

#[test]
fn a_critical_extension_of_the_attributes_that_is_not_understood_is_refused() {
    let grid = Grid::new();
    let strange = |is_critical| {
        let extension = extension("1.2.3.4", is_critical, &[0x05, 0x00]);
        grid.draft().change(|draft| draft.extensions.push(extension))
    };
    assert_eq!(grid.refusal(&strange(true)), VomsError::UnknownCritical { oid: "1.2.3.4".to_owned() });
    assert_eq!(grid.with(&[strange(false).signed_by(&grid.server.key)]).fqans.len(), 2);
}

#[test]
fn each_organisation_counts_by_itself() {
    let grid = Grid::new();
    grid.site.put("certificates/other.pem", "nothing");
    let good = grid.draft().signed_by(&grid.server.key);
    let bad = grid.draft().change(|draft| draft.holder_serial += 1).signed_by(&grid.server.key);
    let user = grid.with(&[bad, good.clone(), good]);
    assert_eq!(user.fqans, ["/atlas", "/atlas/de"]);
    assert_eq!(user.voms_refusals, [VomsError::WrongHolder]);
}

#[test]
fn attributes_have_bounds() {
    let grid = Grid::new();
    let good = grid.draft().signed_by(&grid.server.key);
    assert_eq!(grid.with(&vec![good.clone(); 8]).fqans.len(), 2);
    assert_eq!(grid.with(&vec![good; 9]).voms_refusals, [VomsError::Unreadable]);
    let many = |count: usize| {
        let fqans = (0..count).map(|n| format!("/atlas/{n}")).collect();
        grid.draft().change(|draft| draft.fqans = fqans)
    };
    assert_eq!(grid.with(&[many(256).signed_by(&grid.server.key)]).fqans.len(), 256);
    assert_eq!(grid.refusal(&many(257)), VomsError::Unreadable);
    let long = grid.draft().change(|draft| draft.fqans = vec![format!("/atlas/{}", "x".repeat(600))]);
    assert_eq!(grid.refusal(&long), VomsError::Unreadable);
}

#[test]
fn no_byte_of_the_attributes_can_be_changed() {
    let grid = Grid::new();
    let verifier = grid.site.verifier(Crl::IfPresent);
    let good = grid.draft().signed_by(&grid.server.key);
    for position in 0..good.len() {
        let mut bytes = good.clone();
        bytes[position] ^= 1 << (position % 8);
        let proxy = grid.alice.proxy_draft("1").with(voms_extension(&[bytes])).signed_by(&grid.alice);
        let user = verifier.judge(&ders(&[&proxy, &grid.alice]), NOW_S).expect("certified");
        assert_eq!((user.dn.as_str(), user.fqans.len()), (ALICE, 0), "byte {position}");
        assert_eq!(user.voms_refusals.len(), 1);
    }
}
