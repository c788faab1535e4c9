//! Security flavors, and lists of them as exports have them.

use std::fmt;
use std::str::FromStr;

use api::Demand;
use nfs4::{AUTH_SYS, RpcGssSvc, RpcSecGssInfo, SecInfo4};
use oncrpc::GssService;
use xdr::Opaque;

/// A security flavor as `mount -o sec=` names it, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flavor {
    /// The client host says who its user is.
    Sys,
    /// Kerberos: each call is signed.
    Krb5,
    /// And what it carries.
    Krb5i,
    /// And that is encrypted.
    Krb5p,
}

impl Flavor {
    const ALL: [(&str, Flavor); 4] =
        [("sys", Flavor::Sys), ("krb5", Flavor::Krb5), ("krb5i", Flavor::Krb5i), ("krb5p", Flavor::Krb5p)];

    pub fn is_kerberos(self) -> bool {
        self != Flavor::Sys
    }

    /// Of a call; `None` is AUTH_NONE, which goes where AUTH_SYS goes.
    pub(crate) fn of_call(flavor: Option<Flavor>) -> Flavor {
        flavor.unwrap_or(Flavor::Sys)
    }

    pub(crate) fn of(service: GssService) -> Flavor {
        match service {
            GssService::None => Flavor::Krb5,
            GssService::Integrity => Flavor::Krb5i,
            GssService::Privacy => Flavor::Krb5p,
        }
    }

    fn info(self) -> SecInfo4 {
        let service = match self {
            Flavor::Sys => return SecInfo4::Flavor(AUTH_SYS),
            Flavor::Krb5 => RpcGssSvc::None,
            Flavor::Krb5i => RpcGssSvc::Integrity,
            Flavor::Krb5p => RpcGssSvc::Privacy,
        };
        // The content of the encoding, without the tag and length that the text of RFC 8881 §18.29.2 would allow as well: Linux
        // compares it so (`gss_mech_get_by_OID`), and every server sends it so.
        SecInfo4::RpcSecGss(RpcSecGssInfo { oid: Opaque::copy_from_slice(&gss::KRB5_OID), qop: 0, service })
    }

    fn bit(self) -> u8 {
        1 << (self as u8)
    }
}

impl fmt::Display for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Flavor::ALL.iter().find(|(_, flavor)| flavor == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

impl FromStr for Flavor {
    type Err = String;

    fn from_str(text: &str) -> Result<Flavor, String> {
        let known = Flavor::ALL.iter().find(|(name, _)| *name == text);
        known.map(|(_, flavor)| *flavor).ok_or_else(|| format!("{text:?} is not sys, krb5, krb5i or krb5p"))
    }
}

/// Which flavors reach the files of an export, in the order that clients are told; each once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flavors([Option<Flavor>; Flavor::ALL.len()]);

impl Flavors {
    pub const SYS: Flavors = Flavors([Some(Flavor::Sys), None, None, None]);
    pub(crate) const NONE: Flavors = Flavors([None; Flavor::ALL.len()]);

    pub fn new(listed: &[Flavor]) -> Flavors {
        listed.iter().fold(Flavors::NONE, |list, flavor| list.with(*flavor))
    }

    fn with(mut self, flavor: Flavor) -> Flavors {
        let free = self.0.iter_mut().find(|place| place.is_none_or(|listed| listed == flavor));
        *free.expect("there are as many places as flavors") = Some(flavor);
        self
    }

    pub fn iter(&self) -> impl Iterator<Item = Flavor> {
        self.0.into_iter().flatten()
    }

    /// Those of both, this list's first.
    pub(crate) fn union(self, other: Flavors) -> Flavors {
        other.iter().fold(self, Flavors::with)
    }

    /// Whether a call of this flavor reaches files here.
    pub(crate) fn admit(&self, flavor: Option<Flavor>) -> bool {
        self.iter().any(|listed| listed == Flavor::of_call(flavor))
    }

    /// The weakest flavor that is admitted.
    pub(crate) fn weakest(&self) -> Option<Flavor> {
        self.iter().min()
    }

    /// For SECINFO.
    pub(crate) fn infos(&self) -> Vec<SecInfo4> {
        self.iter().map(Flavor::info).collect()
    }

    /// For tickets: the flavors that a client may come with to use one at a pool.
    pub(crate) fn demand(&self) -> Demand {
        Demand(self.iter().fold(0, |bits, flavor| bits | flavor.bit()))
    }
}

/// Whether a call of this flavor may use a ticket.
pub(crate) fn meets(flavor: Option<Flavor>, demand: Demand) -> bool {
    demand.0 & Flavor::of_call(flavor).bit() != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flavors_are_named_as_mount_names_them() {
        for (name, flavor) in Flavor::ALL {
            assert_eq!((name.parse(), flavor.to_string()), (Ok(flavor), name.to_owned()));
        }
        assert!("krb4".parse::<Flavor>().unwrap_err().contains("krb5p"));
    }

    #[test]
    fn none_is_admitted_where_sys_is() {
        assert!(Flavors::SYS.admit(None) && Flavors::SYS.admit(Some(Flavor::Sys)));
        assert!(!Flavors::SYS.admit(Some(Flavor::Krb5)));
        let flavors = Flavors::new(&[Flavor::Krb5p, Flavor::Krb5i, Flavor::Krb5p]);
        assert!(!flavors.admit(None) && !flavors.admit(Some(Flavor::Krb5)));
        assert!(flavors.admit(Some(Flavor::Krb5p)));
        let SecInfo4::RpcSecGss(first) = &flavors.infos()[0] else { panic!("GSS is first") };
        assert_eq!((first.service, first.oid.len()), (RpcGssSvc::Privacy, 9));
        assert_eq!((flavors.infos().len(), flavors.weakest()), (2, Some(Flavor::Krb5i)));
    }

    #[test]
    fn a_union_keeps_the_order_and_has_each_flavor_once() {
        let one = Flavors::new(&[Flavor::Krb5p, Flavor::Sys]);
        let both = one.union(Flavors::new(&[Flavor::Krb5, Flavor::Sys, Flavor::Krb5i]));
        let order = [Flavor::Krb5p, Flavor::Sys, Flavor::Krb5, Flavor::Krb5i];
        assert_eq!(both.iter().collect::<Vec<_>>(), order);
    }

    #[test]
    fn a_ticket_is_for_the_flavors_of_its_export_and_no_others() {
        let demand = Flavors::new(&[Flavor::Krb5p, Flavor::Krb5i]).demand();
        assert!(meets(Some(Flavor::Krb5p), demand) && meets(Some(Flavor::Krb5i), demand));
        assert!(!meets(Some(Flavor::Krb5), demand) && !meets(Some(Flavor::Sys), demand));
        assert!(!meets(None, demand) && meets(None, Flavors::SYS.demand()));
    }
}
