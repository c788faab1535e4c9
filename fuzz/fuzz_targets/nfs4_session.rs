//! COMPOUNDs of two clients with sessions, through the real dispatch of the head: whatever they do and in whatever order,
//! nothing panics, every reply decodes, and when both are gone nothing of them is left. See `program` for the input.

#![no_main]

use std::cell::RefCell;

use bytes::Bytes;
use forebay_fuzz::program::{Decisions, LearntValues, operation, place, sequence};
use forebay_fuzz::world::{LEASE, World};
use libfuzzer_sys::fuzz_target;
use nfs4::{
    CallbackSecParms4, ChannelAttrs4, ClientId4, ClientOwner4, Compound4Args, Compound4Res,
    CreateSession4Args, DestroyClientId4Args, DestroySession4Args, ExchangeId4Args, NfsArgop4, NfsResop4,
    NfsStat4, Res, SessionId4, StateProtect4A, Verifier4,
};
use tokio::runtime::{Builder, Handle, Runtime};
use xdr::{Encoder, Opaque, Xdr, from_bytes, to_bytes};

/// COMPOUNDs of one input.
const COMPOUNDS_MAX: usize = 24;
const OPERATIONS_MAX: u8 = 8;
/// Then the server is taken down and must leave nothing, and another is made.
const INPUTS_PER_SERVER: u32 = 500;
/// Bytes that a server without clients may hold, in its caches for the most part.
const CLEAN_BYTES_MAX: usize = 1 << 20;
/// The task that answers calls to clients.
const TASKS_MAX: usize = 1;
/// Bytes that may stay of a server that is gone: values that are made once and kept.
const LEFT_BYTES_MAX: usize = 64 << 10;

struct Bench {
    runtime: Runtime,
    world: Option<World>,
    inputs: u32,
    bytes_before: usize,
    bytes_at_first: Option<usize>,
}

thread_local! {
    static BENCH: RefCell<Bench> = RefCell::new(Bench {
        // Time stands, and leaps when everybody waits: a client that does not answer costs none.
        runtime: Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime"),
        world: None,
        inputs: 0,
        bytes_before: 0,
        bytes_at_first: None,
    });
}

fuzz_target!(|input: &[u8]| {
    BENCH.with_borrow_mut(|bench| {
        bench.renew();
        let world = bench.world.as_ref().expect("it was just made");
        bench.runtime.block_on(run(world, input));
        let grown = forebay_fuzz::live().saturating_sub(bench.bytes_before);
        assert!(grown <= CLEAN_BYTES_MAX, "a clean server holds {grown} bytes");
    });
});

impl Bench {
    fn renew(&mut self) {
        if self.inputs.is_multiple_of(INPUTS_PER_SERVER) {
            if let Some(world) = self.world.take() {
                self.runtime.block_on(world.close());
                let live = forebay_fuzz::live();
                let first = *self.bytes_at_first.get_or_insert(live);
                assert!(live <= first + LEFT_BYTES_MAX, "servers that are gone left {} bytes", live - first);
            }
            self.bytes_before = forebay_fuzz::live();
            self.world = Some(self.runtime.block_on(World::new()));
        }
        self.inputs += 1;
    }
}

struct Client {
    id: ClientId4,
    session: SessionId4,
    uid: u32,
    next: [u32; 4],
    known: LearntValues,
}

async fn run(world: &World, input: &[u8]) {
    let mut decisions = Decisions::new(input);
    world.manner.be(decisions.byte());
    let mut clients = [client(world, "one", 0).await, client(world, "two", 1000).await];
    for _ in 0..COMPOUNDS_MAX {
        if decisions.is_over() {
            break;
        }
        let byte = decisions.byte();
        let client = &mut clients[usize::from(byte & 1)];
        if byte >> 1 == 127 {
            // A while, and what falls due in it.
            world.pass(LEASE / 3);
            world.server.keep_house().await;
        }
        if byte >> 1 == 125 {
            world.manner.be(decisions.byte());
        }
        let arguments = compound(client, &mut decisions);
        let uid = if byte >> 1 == 126 { 1 - client.uid.min(1) } else { client.uid };
        if let Some(reply) = world.server.call(uid, arguments).await {
            let reply: Compound4Res = from_bytes(reply).expect("what the server says is XDR");
            client.known.learn(&reply);
        }
    }
    let how = decisions.byte();
    world.manner.be(how >> 2);
    leave(world, &clients, how).await;
    world.clear().await;
    let tasks = Handle::current().metrics().num_alive_tasks();
    assert!(tasks <= TASKS_MAX, "clients that are gone left {tasks} tasks");
}

/// Number of operations, SEQUENCE, operations; now and then with a byte that is another.
fn compound(client: &mut Client, decisions: &mut Decisions<'_>) -> Bytes {
    let mut e = Encoder::new();
    Opaque::from("fuzz").encode(&mut e);
    (2 - u32::from(decisions.below(8) == 7)).encode(&mut e);
    let operations = e.reserve_u32();
    sequence(&mut e, decisions, client.session, &mut client.next);
    let on_the_way = place(&mut e, decisions, &client.known);
    let count = decisions.below(OPERATIONS_MAX);
    (0..count).for_each(|_| operation(&mut e, decisions, &client.known));
    e.patch_u32(operations, 1 + on_the_way + u32::from(count));
    let mut wire = e.into_bytes().to_vec();
    if decisions.byte() == 255 {
        let at = usize::from(decisions.byte()) * wire.len() / 256;
        wire[at] ^= 1 << decisions.below(8);
    }
    wire.into()
}

async fn alone(world: &World, uid: u32, operation: NfsArgop4) -> Compound4Res {
    let arguments = Compound4Args { tag: Opaque::new(), minorversion: 2, argarray: vec![operation] };
    let reply = world.server.call(uid, to_bytes(&arguments)).await.expect("it decodes");
    from_bytes(reply).expect("what the server says is XDR")
}

async fn client(world: &World, name: &'static str, uid: u32) -> Client {
    let exchange = ExchangeId4Args {
        clientowner: ClientOwner4 { verifier: Verifier4([1; 8]), ownerid: Opaque::from(name) },
        flags: 0x2_0000,
        state_protect: StateProtect4A::None,
        client_impl_id: None,
    };
    let mut known = LearntValues::default();
    let reply = alone(world, uid, NfsArgop4::ExchangeId(exchange)).await;
    known.learn(&reply);
    let [NfsResop4::ExchangeId(Res::Ok(exchanged))] = &reply.resarray[..] else {
        panic!("EXCHANGE_ID is refused: {reply:?}");
    };
    let channel = ChannelAttrs4 {
        headerpadsize: 0,
        maxrequestsize: 65_536,
        maxresponsesize: 16_384,
        maxresponsesize_cached: 2_048,
        maxoperations: 16,
        maxrequests: 4,
        rdma_ird: None,
    };
    let create = CreateSession4Args {
        clientid: exchanged.clientid,
        sequence: exchanged.sequenceid,
        // With a back channel.
        flags: 2,
        fore_chan_attrs: channel,
        back_chan_attrs: channel,
        cb_program: 0x4000_0000,
        sec_parms: vec![CallbackSecParms4::None],
    };
    let reply = alone(world, uid, NfsArgop4::CreateSession(create)).await;
    known.learn(&reply);
    let [NfsResop4::CreateSession(Res::Ok(created))] = &reply.resarray[..] else {
        panic!("CREATE_SESSION is refused: {reply:?}");
    };
    let mut client = Client { id: exchanged.clientid, session: created.sessionid, uid, next: [0; 4], known };
    let mut e = Encoder::new();
    Opaque::new().encode(&mut e);
    2u32.encode(&mut e);
    4u32.encode(&mut e);
    // Choices that are the plain ones.
    sequence(&mut e, &mut Decisions::new(&[]), client.session, &mut client.next);
    let complete = NfsArgop4::ReclaimComplete(nfs4::ReclaimComplete4Args { one_fs: false });
    for operation in [complete, NfsArgop4::PutRootFh, NfsArgop4::GetFh] {
        operation.encode(&mut e);
    }
    let reply = world.server.call(uid, e.into_bytes()).await.expect("it decodes");
    let reply: Compound4Res = from_bytes(reply).expect("what the server says is XDR");
    assert_eq!(reply.status, NfsStat4::Ok, "{:?}", reply.resarray);
    client.known.learn(&reply);
    client
}

/// Both go, in order or by their leases, and must be gone.
async fn leave(world: &World, clients: &[Client; 2], how: u8) {
    for (client, bit) in clients.iter().zip([1, 2]) {
        if how & bit != 0 {
            continue;
        }
        let session = DestroySession4Args { sessionid: client.session };
        alone(world, client.uid, NfsArgop4::DestroySession(session)).await;
        let id = DestroyClientId4Args { clientid: client.id };
        // BUSY, if it has anything: then its lease ends.
        alone(world, client.uid, NfsArgop4::DestroyClientId(id)).await;
    }
    // Leases, then recalls that nobody answers, then what was found twice.
    for _ in 0..4 {
        world.pass(LEASE * 2);
        // Calls to clients wait by the runtime's clock.
        tokio::time::sleep(LEASE / 2).await;
        world.server.keep_house().await;
    }
    let left = world.server.footprint();
    assert!(
        left.clients == 0
            && left.sessions == 0
            && left.is_stateless
            && left.remembered == 0
            && left.copies == 0,
        "clients that are gone left {left:?}"
    );
}
