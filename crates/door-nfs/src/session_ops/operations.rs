//! The operations that make, change and end clients and sessions (RFC 8881 §18.33–18.37, §18.50, §18.51).

use nfs4::{
    CREATE_SESSION4_FLAG_CONN_BACK_CHAN, ChannelDirFromServer4, ClientId4, CreateSession4Args,
    CreateSession4ResOk, ExchangeId4Args, ExchangeId4ResOk, NfsArgop4, NfsResop4, NfsStat4,
    ReclaimComplete4Args,
};
use nfs4_state::CreateStep;

use super::{Sessions, peer, principal};
use crate::context::Compound;
use crate::status;

/// Whether a client has opens, locks or layouts.
pub(crate) type HoldsState<'a> = &'a (dyn Fn(ClientId4) -> bool + Sync);

impl Sessions {
    /// Runs a session operation but SEQUENCE; `None` for any other and for what is not served. `is_last` says that
    /// nothing follows in the COMPOUND.
    pub async fn execute(
        &self,
        compound: &mut Compound,
        operation: NfsArgop4,
        is_last: bool,
        holds_state: HoldsState<'_>,
    ) -> Option<NfsResop4> {
        use NfsArgop4 as A;
        use NfsResop4 as R;
        Some(match operation {
            A::ExchangeId(args) => R::ExchangeId(self.exchange_id(compound, &args, holds_state).into()),
            A::CreateSession(args) => R::CreateSession(self.create_session(compound, &args).await.into()),
            A::DestroySession(args) => {
                let connection = compound.caller.connection.id();
                let done =
                    self.table.lock().destroy_session(args.sessionid, connection, compound.session, is_last);
                R::DestroySession(outcome(done))
            }
            A::BindConnToSession(args) => {
                let bound = self.table.lock().bind_conn_to_session(self.table.now(), &args, &peer(compound));
                if bound.as_ref().is_ok_and(|bound| bound.dir != ChannelDirFromServer4::Fore) {
                    self.callbacks.remember(compound);
                }
                R::BindConnToSession(bound.into())
            }
            A::BackchannelCtl(args) => {
                let session = compound.session.ok_or(NfsStat4::OpNotInSession);
                let done = session
                    .and_then(|session| self.table.lock().sessions_mut().backchannel_ctl(session, &args));
                R::BackchannelCtl(outcome(done))
            }
            A::DestroyClientId(args) => {
                let holds = holds_state(args.clientid);
                let done = self.table.lock().destroy_clientid(args.clientid, holds);
                R::DestroyClientId(outcome(done.map(|departed| self.leases.note_departed(departed))))
            }
            A::ReclaimComplete(args) => {
                R::ReclaimComplete(outcome(self.reclaim_complete(compound, &args).await))
            }
            _ => return None,
        })
    }

    fn exchange_id(
        &self,
        compound: &Compound,
        args: &ExchangeId4Args,
        holds_state: HoldsState<'_>,
    ) -> Result<ExchangeId4ResOk, NfsStat4> {
        let exchanged = {
            let mut table = self.table.lock();
            let exchanged = table.exchange_id(
                self.table.now(),
                args,
                compound.minorversion,
                principal(compound),
                &peer(compound),
                holds_state,
            );
            self.leases.note_evicted(&mut table);
            exchanged?
        };
        exchanged.departed.into_iter().for_each(|departed| self.leases.note_departed(departed));
        Ok(exchanged.reply)
    }

    async fn create_session(
        &self,
        compound: &Compound,
        args: &CreateSession4Args,
    ) -> Result<CreateSession4ResOk, NfsStat4> {
        let step = self.table.lock().create_session(
            args,
            compound.minorversion,
            principal(compound),
            &peer(compound),
        )?;
        let mut pending = match step {
            CreateStep::Replay(reply) => return reply,
            CreateStep::Prepared(pending) => pending,
        };
        for action in std::mem::take(&mut pending.actions) {
            if let Err(error) = self.records.record(Some(&action)).await {
                self.table.lock().abandon_session(pending);
                return Err(status::of_namespace(error));
            }
        }
        if args.flags & CREATE_SESSION4_FLAG_CONN_BACK_CHAN != 0 {
            self.callbacks.remember(compound);
        }
        let started = {
            let mut table = self.table.lock();
            let started = table.commit_session(self.table.now(), pending);
            self.leases.note_evicted(&mut table);
            started?
        };
        started.departed.into_iter().for_each(|departed| self.leases.note_departed(departed));
        tracing::debug!(client = args.clientid.0, peer = %compound.caller.connection.peer(), "session created");
        Ok(started.reply)
    }

    async fn reclaim_complete(
        &self,
        compound: &Compound,
        args: &ReclaimComplete4Args,
    ) -> Result<(), NfsStat4> {
        let client = compound.client()?;
        if args.one_fs {
            // There is one file system, and it does not move: nothing to note (RFC 8881 §18.51.3).
            return compound.current.handle.map(|_| ()).ok_or(NfsStat4::NoFileHandle);
        }
        let action = self.table.lock().reclaims().complete(client)?;
        self.records.record(Some(&action)).await.map_err(status::of_namespace)?;
        self.table.lock().reclaims().completed(client);
        Ok(())
    }
}

fn outcome(done: Result<(), NfsStat4>) -> NfsStat4 {
    done.err().unwrap_or(NfsStat4::Ok)
}
