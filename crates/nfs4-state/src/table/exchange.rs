//! EXCHANGE_ID (RFC 8881 §18.35) and DESTROY_CLIENTID (§18.50): client records come and go.

use std::time::Duration;

use bytes::Bytes;
use nfs4::{
    ClientId4, EXCHGID4_FLAG_BIND_PRINC_STATEID, EXCHGID4_FLAG_CONFIRMED_R, EXCHGID4_FLAG_MASK_PNFS,
    EXCHGID4_FLAG_SUPP_FENCE_OPS, EXCHGID4_FLAG_SUPP_MOVED_MIGR, EXCHGID4_FLAG_SUPP_MOVED_REFER,
    EXCHGID4_FLAG_UPD_CONFIRMED_REC_A, ExchangeId4Args, ExchangeId4ResOk, NfsImplId4, NfsStat4, ServerOwner4,
    StateProtect4A, StateProtect4R,
};
use xdr::Opaque;

use super::records::Departed;
use super::{SessionTable, share};
use crate::client::Client;
use crate::{Incarnation, Peer, Principal, ServerIdentity};

/// Flags that a client may send in 4.1 (RFC 8881 §18.35.1).
const FLAGS_4_1: u32 = EXCHGID4_FLAG_SUPP_MOVED_REFER
    | EXCHGID4_FLAG_SUPP_MOVED_MIGR
    | EXCHGID4_FLAG_BIND_PRINC_STATEID
    | EXCHGID4_FLAG_MASK_PNFS
    | EXCHGID4_FLAG_UPD_CONFIRMED_REC_A;

/// The reply to EXCHANGE_ID, and the record that it displaced.
#[derive(Debug, PartialEq, Eq)]
pub struct Exchanged {
    pub reply: ExchangeId4ResOk,
    pub departed: Option<Departed>,
}

impl SessionTable {
    /// The nine cases of RFC 8881 §18.35.4. `holds_state` says whether a client has opens, locks or layouts.
    pub fn exchange_id(
        &mut self,
        now: Duration,
        args: &ExchangeId4Args,
        minor_version: u32,
        principal: Principal,
        peer: &Peer,
        holds_state: impl FnOnce(ClientId4) -> bool,
    ) -> Result<Exchanged, NfsStat4> {
        check_flags(args.flags, minor_version)?;
        check_protection(&args.state_protect)?;
        let owner = &args.clientowner.ownerid.0;
        let is_update = args.flags & EXCHGID4_FLAG_UPD_CONFIRMED_REC_A != 0;
        let Some(id) = self.records.clients.confirmed_of(owner) else {
            if is_update {
                return Err(NfsStat4::NoEnt);
            }
            return self.admit(now, args, principal, peer, None);
        };
        let lease = self.config.lease;
        let client = self.records.clients.get_mut(id).expect("a confirmed owner names a client");
        let same_principal = client.principal == principal;
        let same_verifier = client.incarnation.verifier == args.clientowner.verifier.0;
        if is_update {
            if !same_verifier {
                return Err(NfsStat4::NotSame);
            }
            if !same_principal {
                return Err(NfsStat4::Perm);
            }
        }
        if !same_principal {
            // A collision of owners. The name goes to the newcomer only where nobody loses anything by it.
            if !client.is_silent_since(now, lease) && (!client.sessions.is_empty() || holds_state(id)) {
                return Err(NfsStat4::ClidInUse);
            }
            return self.admit(now, args, principal, peer, Some(id));
        }
        if !same_verifier {
            // The client has restarted. Its old record stays until CREATE_SESSION confirms the new one.
            return self.admit(now, args, principal, peer, None);
        }
        client.address = peer.address;
        client.implementation = implementation(args);
        let sequence = client.create_slot.sequence.wrapping_add(1);
        Ok(Exchanged {
            reply: reply(&self.config.identity, id, sequence, EXCHGID4_FLAG_CONFIRMED_R),
            departed: None,
        })
    }

    /// Ends a client record. The head says in `holds_state` whether the client has opens, locks or layouts.
    pub fn destroy_clientid(&mut self, id: ClientId4, holds_state: bool) -> Result<Departed, NfsStat4> {
        let client = self.records.clients.get(id).ok_or(NfsStat4::StaleClientId)?;
        if holds_state || !client.sessions.is_empty() || client.create_slot.running {
            return Err(NfsStat4::ClientIdBusy);
        }
        self.records.depart(id).ok_or(NfsStat4::StaleClientId)
    }

    /// Makes an unconfirmed record in place of an unconfirmed one of the same owner and of `displaced`.
    fn admit(
        &mut self,
        now: Duration,
        args: &ExchangeId4Args,
        principal: Principal,
        peer: &Peer,
        displaced: Option<ClientId4>,
    ) -> Result<Exchanged, NfsStat4> {
        let owner = Bytes::copy_from_slice(&args.clientowner.ownerid);
        if let Some(former) = self.records.clients.unconfirmed_of(&owner) {
            self.records.remove_client(former);
        }
        let departed = displaced.and_then(|id| self.records.depart(id));
        self.make_room(now, peer)?;
        let incarnation = Incarnation { owner, verifier: args.clientowner.verifier.0 };
        let clients = &mut self.records.clients;
        let id = clients.next_id(self.config.instance);
        clients.insert(Client::new(id, incarnation, principal, peer.address, implementation(args), now));
        Ok(Exchanged { reply: reply(&self.config.identity, id, 1, 0), departed })
    }

    /// At the bound the oldest unconfirmed record goes: it costs its client one more EXCHANGE_ID. Then the client whose
    /// lease ended first; others that are confirmed stay. An address at its own bound makes room by its own records.
    fn make_room(&mut self, now: Duration, peer: &Peer) -> Result<(), NfsStat4> {
        let (max, used) = (self.config.limits.clients_max, self.records.clients.count());
        let clients = &self.records.clients;
        let own = || clients.of_address(peer.address).count() as u64;
        if share::room(max as u64, used as u64, 1, own) > 0 {
            return Ok(());
        }
        let is_full = used >= max;
        let oldest = |clients: &mut dyn Iterator<Item = &Client>| {
            clients
                .filter(|client| !client.confirmed && !client.create_slot.running)
                .min_by_key(|client| (client.lease.renewed, client.id))
                .map(|client| client.id)
        };
        let oldest = oldest(&mut clients.of_address(peer.address))
            .or_else(|| oldest(&mut clients.iter()).filter(|_| is_full));
        match oldest {
            Some(oldest) => _ = self.records.remove_client(oldest),
            None if is_full && self.records.evict(now, self.config.lease) => {}
            None => return Err(NfsStat4::Delay),
        }
        Ok(())
    }
}

fn reply(identity: &ServerIdentity, clientid: ClientId4, sequenceid: u32, flags: u32) -> ExchangeId4ResOk {
    ExchangeId4ResOk {
        clientid,
        sequenceid,
        flags: identity.role.exchange_flags() | flags,
        state_protect: StateProtect4R::None,
        server_owner: ServerOwner4 {
            minor_id: identity.minor_id,
            major_id: Opaque(identity.major_id.clone()),
        },
        server_scope: Opaque(identity.scope.clone()),
        server_impl_id: Some(NfsImplId4 {
            domain: Opaque::new(),
            name: Opaque(identity.implementation.clone()),
            date: nfs4::NfsTime4::default(),
        }),
    }
}

fn check_flags(flags: u32, minor_version: u32) -> Result<(), NfsStat4> {
    let fence_ops = if minor_version >= 2 { EXCHGID4_FLAG_SUPP_FENCE_OPS } else { 0 };
    if flags & !(FLAGS_4_1 | fence_ops) != 0 { Err(NfsStat4::Inval) } else { Ok(()) }
}

/// SP4_MACH_CRED is not offered: Linux asks for it with krb5i and krb5p and then goes on without (RFC 8881 §18.35.3). SSV
/// no server offers.
fn check_protection(asked: &StateProtect4A) -> Result<(), NfsStat4> {
    match asked {
        StateProtect4A::None => Ok(()),
        StateProtect4A::MachCred(_) => Err(NfsStat4::Inval),
        StateProtect4A::Ssv(_) => Err(NfsStat4::EncrAlgUnsupp),
    }
}

fn implementation(args: &ExchangeId4Args) -> Option<Bytes> {
    args.client_impl_id.as_ref().map(|id| Bytes::copy_from_slice(&id.name))
}

#[cfg(test)]
mod tests {
    use nfs4::{EXCHGID4_FLAG_USE_PNFS_DS, EXCHGID4_FLAG_USE_PNFS_MDS, StateProtectOps4};

    use super::super::fixture::{Fixture, LEASE, s};
    use super::super::records::Action;
    use super::*;
    use crate::{Role, SessionLimits};

    #[test]
    fn a_new_owner_gets_an_unconfirmed_client_id() {
        let mut server = Fixture::new();
        let reply = server.exchange_id("a", 1).unwrap();
        assert_eq!(reply.flags, EXCHGID4_FLAG_USE_PNFS_MDS);
        assert_eq!(reply.sequenceid, 1);
        assert!(!server.table.clients().is_confirmed(reply.clientid));
        assert_eq!(reply.clientid.0 >> 32, 0x0123_4567, "another instance's ids are unknown here");
    }

    #[test]
    fn a_data_server_says_that_it_is_one() {
        let mut server = Fixture::with_role(Role::DataServer);
        assert_eq!(server.exchange_id("a", 1).unwrap().flags, EXCHGID4_FLAG_USE_PNFS_DS);
    }

    #[test]
    fn a_known_client_gets_its_id_again() {
        let mut server = Fixture::new();
        let (client, _) = server.mount("a");
        let again = server.exchange_id("a", 1).unwrap();
        assert_eq!((again.clientid, again.sequenceid), (client, 2));
        assert_eq!(again.flags, EXCHGID4_FLAG_USE_PNFS_MDS | EXCHGID4_FLAG_CONFIRMED_R);
    }

    #[test]
    fn an_unconfirmed_record_is_replaced() {
        let mut server = Fixture::new();
        let first = server.exchange_id("a", 1).unwrap().clientid;
        let second = server.exchange_id("a", 1).unwrap().clientid;
        assert_ne!(first, second);
        assert_eq!(server.create_session(first, 1).unwrap_err(), NfsStat4::StaleClientId);
        server.create_session(second, 1).unwrap();
    }

    #[test]
    fn a_restarted_client_keeps_its_old_record_until_it_confirms_the_new_one() {
        let mut server = Fixture::new();
        let (old, session) = server.mount("a");
        let new = server.exchange_id("a", 2).unwrap();
        assert_eq!(new.flags & EXCHGID4_FLAG_CONFIRMED_R, 0);
        server.sequence(session, 0, 1).expect("the old incarnation still works");
        server.create_session(new.clientid, 1).unwrap();
        assert!(!server.table.clients().is_confirmed(old));
        assert_eq!(server.departed, [old]);
        assert_eq!(server.sequence(session, 0, 2), Err(NfsStat4::BadSession));
        let put = Action::PutRecord { owner: "a".into(), reclaim_complete: false };
        assert_eq!(server.actions.last(), Some(&put));
    }

    #[test]
    fn an_owner_in_use_is_not_given_to_another_principal() {
        let mut server = Fixture::new();
        let (client, _) = server.mount("a");
        server.principal = Principal::sys(7);
        assert_eq!(server.exchange_id("a", 1).unwrap_err(), NfsStat4::ClidInUse);
        assert_eq!(server.exchange_id("a", 2).unwrap_err(), NfsStat4::ClidInUse);
        server.now += LEASE + s(1);
        server.exchange_id("a", 2).expect("its lease is over");
        assert_eq!(server.departed, [client]);
        assert_eq!(server.actions, [Action::RemoveRecord { owner: "a".into() }]);
    }

    #[test]
    fn an_update_changes_the_confirmed_record_only() {
        let mut server = Fixture::new();
        server.flags = EXCHGID4_FLAG_UPD_CONFIRMED_REC_A;
        assert_eq!(server.exchange_id("a", 1).unwrap_err(), NfsStat4::NoEnt);
        server.flags = 0;
        server.exchange_id("a", 1).unwrap();
        server.flags = EXCHGID4_FLAG_UPD_CONFIRMED_REC_A;
        assert_eq!(server.exchange_id("a", 1).unwrap_err(), NfsStat4::NoEnt, "not confirmed yet");
        server.flags = 0;
        let (client, _) = server.mount("a");
        server.flags = EXCHGID4_FLAG_UPD_CONFIRMED_REC_A;
        assert_eq!(server.exchange_id("a", 2).unwrap_err(), NfsStat4::NotSame);
        let updated = server.exchange_id("a", 1).unwrap();
        assert_eq!(updated.clientid, client);
        assert_ne!(updated.flags & EXCHGID4_FLAG_CONFIRMED_R, 0);
        server.principal = Principal::sys(7);
        assert_eq!(server.exchange_id("a", 1).unwrap_err(), NfsStat4::Perm);
    }

    #[test]
    fn flags_that_no_client_may_send_are_invalid() {
        let mut server = Fixture::new();
        for flags in [EXCHGID4_FLAG_CONFIRMED_R, 0x0800_0000, EXCHGID4_FLAG_SUPP_FENCE_OPS] {
            server.flags = flags;
            assert_eq!(server.exchange_id("a", 1).unwrap_err(), NfsStat4::Inval, "{flags:#x}");
        }
        server.minor_version = 2;
        server.exchange_id("a", 1).expect("4.2 has fence ops");
    }

    #[test]
    fn state_protection_is_refused() {
        let asked = StateProtect4A::MachCred(StateProtectOps4::default());
        assert_eq!(check_protection(&asked), Err(NfsStat4::Inval));
    }

    #[test]
    fn at_the_bound_the_oldest_unconfirmed_record_goes_and_confirmed_ones_stay() {
        let mut server = Fixture::with_limits(SessionLimits { clients_max: 2, ..SessionLimits::default() });
        server.mount("a");
        let second = server.exchange_id("b", 1).unwrap().clientid;
        let third = server.exchange_id("c", 1).unwrap().clientid;
        assert_eq!(server.create_session(second, 1).unwrap_err(), NfsStat4::StaleClientId);
        server.create_session(third, 1).unwrap();
        assert_eq!(server.exchange_id("d", 1).unwrap_err(), NfsStat4::Delay);
    }

    #[test]
    fn a_client_id_is_destroyed_once_nothing_hangs_on_it() {
        let mut server = Fixture::new();
        let (client, session) = server.mount("a");
        assert_eq!(
            server.table.destroy_clientid(client, false),
            Err(NfsStat4::ClientIdBusy),
            "has a session"
        );
        server.destroy_session(session).unwrap();
        assert_eq!(server.table.destroy_clientid(client, true), Err(NfsStat4::ClientIdBusy), "has opens");
        let gone = server.table.destroy_clientid(client, false).unwrap();
        assert_eq!(gone.action, Some(Action::RemoveRecord { owner: "a".into() }));
        assert_eq!(server.table.destroy_clientid(client, false), Err(NfsStat4::StaleClientId));
    }

    #[test]
    fn an_unconfirmed_client_id_can_be_destroyed() {
        let mut server = Fixture::new();
        let client = server.exchange_id("a", 1).unwrap().clientid;
        assert_eq!(server.table.destroy_clientid(client, false), Ok(Departed { client, action: None }));
    }
}
