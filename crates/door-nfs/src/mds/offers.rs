//! Offers of the head to its clients beyond the bare file: delegations, and layouts from a certain size on.

use nfs4::{
    Bitmap4, OPEN4_SHARE_ACCESS_WANT_ANY_DELEG, OPEN4_SHARE_ACCESS_WANT_CANCEL,
    OPEN4_SHARE_ACCESS_WANT_NO_DELEG, OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION, OpenArguments4,
};
use nfs4_state::{DelegationMode, WriteDelegations};

/// As the site has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offers {
    pub delegations: DelegationMode,
    pub write_delegations: WriteDelegations,
    /// Files below go without a layout.
    pub layout_bytes_min: u64,
}

impl Offers {
    /// Arguments that OPEN supports (RFC 9754 §3). Linux asks with every open for the extensions listed here, so
    /// delegations instead of opens are listed only where delegations of both kinds are on. Delegated times are never
    /// listed: a time from before the delegation is to be ignored, but Linux, given the times, keeps to itself the times
    /// that `tar` and `cp -p` set. A client that asks for either all the same gets it.
    pub fn open_arguments(&self) -> OpenArguments4 {
        const WANTS: Bitmap4 = Bitmap4::of(&[
            OPEN4_SHARE_ACCESS_WANT_ANY_DELEG >> 8,
            OPEN4_SHARE_ACCESS_WANT_NO_DELEG >> 8,
            OPEN4_SHARE_ACCESS_WANT_CANCEL >> 8,
        ]);
        const EXTENSIONS: Bitmap4 = WANTS.with(OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION.trailing_zeros());
        let share_access_want = match (self.delegations, self.write_delegations) {
            (DelegationMode::Off, _) => Bitmap4::EMPTY,
            (_, WriteDelegations::On) => EXTENSIONS,
            (_, WriteDelegations::Off | WriteDelegations::Wanted) => WANTS,
        };
        OpenArguments4 {
            share_access: Bitmap4::of(&[1, 2, 3]),
            share_deny: Bitmap4::of(&[0, 1, 2, 3]),
            share_access_want,
            // Nothing of a client outlives its own restart: CLAIM_DELEGATE_PREV (3) and CLAIM_DELEG_PREV_FH (6) are missing.
            open_claim: Bitmap4::of(&[0, 1, 2, 4, 5]),
            create_mode: Bitmap4::of(&[0, 1, 2, 3]),
        }
    }
}
