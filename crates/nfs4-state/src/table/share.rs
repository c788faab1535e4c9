//! The share of one address in clients and in the reply cache: the last eighth of either is for addresses that have
//! little, so that one host cannot keep others from mounting. A cluster behind one address has the rest.

/// The part of all that is kept for others.
const KEPT_DIVISOR: u64 = 8;
/// An address with less than this part of all has little.
const LITTLE_DIVISOR: u64 = 64;

/// How much of `wanted` an address may have when `used` of `max` are in use. `own` is what it has; that is counted only
/// where nothing else would do.
pub(super) fn room(max: u64, used: u64, wanted: u64, own: impl FnOnce() -> u64) -> u64 {
    let free = max.saturating_sub(used);
    let for_all = free.saturating_sub(max / KEPT_DIVISOR);
    let has_little = for_all < wanted && own() <= max / LITTLE_DIVISOR;
    wanted.min(if has_little { free } else { for_all })
}

#[cfg(test)]
mod tests {
    use nfs4::NfsStat4;

    use super::super::fixture::{CHANNEL, Fixture};
    use crate::SessionLimits;

    #[test]
    fn the_share_of_an_address_is_not_counted_while_there_is_plenty() {
        assert_eq!(super::room(80, 60, 10, || unreachable!()), 10);
        assert_eq!([0, 1, 2].map(|own| super::room(80, 65, 10, || own)), [10, 10, 5]);
    }

    fn from_host(server: &mut Fixture, last: u8) {
        server.peer.address = ([10, 0, 0, last], 700).into();
    }

    #[test]
    fn sessions_of_one_host_leave_room_for_those_of_another() {
        let slot_bytes = u64::from(CHANNEL.maxresponsesize_cached);
        let limits =
            SessionLimits { reply_cache_bytes_max: slot_bytes * 16 * 64, ..SessionLimits::default() };
        let mut server = Fixture::with_limits(limits);
        from_host(&mut server, 1);
        let taken = (0..64).take_while(|i| {
            let client = server.exchange_id(&format!("greedy{i}"), 1).unwrap().clientid;
            server.create_session(client, 1).is_ok()
        });
        assert_eq!(taken.count(), 56);
        from_host(&mut server, 2);
        let client = server.exchange_id("other", 1).unwrap().clientid;
        let reply = server.create_session(client, 1).expect("a newcomer does not wait for leases to end");
        assert_eq!(reply.fore_chan_attrs.maxrequests, 16);
    }

    #[test]
    fn clients_of_one_host_leave_room_for_those_of_another() {
        let mut server = Fixture::with_limits(SessionLimits { clients_max: 64, ..SessionLimits::default() });
        from_host(&mut server, 1);
        (0..56).for_each(|i| _ = server.mount(&format!("greedy{i}")));
        assert_eq!(server.exchange_id("greedy", 1).unwrap_err(), NfsStat4::Delay);
        from_host(&mut server, 2);
        server.mount("other");
    }

    #[test]
    fn unconfirmed_records_of_one_host_displace_its_own_and_not_those_of_another() {
        let mut server = Fixture::with_limits(SessionLimits { clients_max: 64, ..SessionLimits::default() });
        from_host(&mut server, 2);
        let other = server.exchange_id("other", 1).unwrap().clientid;
        from_host(&mut server, 1);
        (0..200).for_each(|i| _ = server.exchange_id(&format!("greedy{i}"), 1).unwrap());
        from_host(&mut server, 2);
        server.create_session(other, 1).unwrap();
    }
}
