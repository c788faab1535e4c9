//! A head and a pool that know files of one directory, opens and layouts by number, and check sequence ids.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use bytes::{Bytes, BytesMut};
use nfs4::{
    ChangeInfo4, ChannelAttrs4, ClientId4, Close4ResOk, Commit4ResOk, Compound4Args, Compound4Res,
    CreateHow4, CreateSession4ResOk, DeviceId4, ExchangeId4ResOk, FfDataServer4, FfDeviceAddr4, FfLayout4,
    FfMirror4, FileAttributes, GetAttr4ResOk, GetDeviceInfo4Res, GetDeviceInfo4ResOk, GetFh4ResOk, Layout4,
    LayoutCommit4ResOk, LayoutGet4Args, LayoutGet4Res, LayoutGet4ResOk, LayoutReturn4ResOk, NetAddr4,
    NfsArgop4, NfsFh4, NfsResop4, NfsStat4, Open4Args, Open4ResOk, OpenClaim4, OpenDelegation4, OpenFlag4,
    Read4Args, Read4ResOk, Remove4ResOk, Res, Sequence4Args, Sequence4ResOk, ServerOwner4, SessionId4,
    StableHow4, StateId4, StateProtect4R, Verifier4, Write4Args, Write4ResOk, op,
};
use oncrpc::{CallHeader, Credential, RecordReader, ReplyHeader, record_header};
use xdr::{Decoder, Encoder, Opaque, Xdr};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Head,
    Pool,
}

#[derive(Clone, Debug)]
pub struct Behaviour {
    pub gives_layouts: bool,
    pub slots_max: u32,
    pub is_full: bool,
    pub restarts_before_commit: bool,
    pub ignores_stability: bool,
    /// So many OPENs are answered GRACE.
    pub graces: u32,
}

impl Default for Behaviour {
    fn default() -> Behaviour {
        Behaviour {
            gives_layouts: true,
            slots_max: 64,
            is_full: false,
            restarts_before_commit: false,
            ignores_stability: false,
            graces: 0,
        }
    }
}

#[derive(Debug, Default)]
pub struct State {
    pub files: BTreeMap<String, Vec<u8>>,
    /// Server, minor version and uid of each READ, WRITE and COMMIT.
    pub transfers: Vec<(Role, u32, u32)>,
    pub opens: u32,
    pub layouts: u32,
    pub sessions: u32,
    /// By the last LAYOUTCOMMIT.
    pub committed_end: u64,
    /// The next sequence id, by session and slot.
    sequences: BTreeMap<(SessionId4, u32), u32>,
    sessions_made: u8,
    graces: u32,
    verifier: u8,
}

impl State {
    /// Of head and pool since the start.
    pub fn sessions_made(&self) -> u8 {
        self.sessions_made
    }
}

pub struct Servers {
    head: String,
    state: Arc<Mutex<State>>,
}

impl Servers {
    pub fn start(behaviour: Behaviour) -> Servers {
        let state = Arc::new(Mutex::new(State { graces: behaviour.graces, ..State::default() }));
        let serve = |role, pool| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let server = Server { role, pool, behaviour: behaviour.clone(), state: Arc::clone(&state) };
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let server = server.clone();
                    thread::spawn(move || server.serve(stream.unwrap()));
                }
            });
            address
        };
        let pool = serve(Role::Pool, None);
        let head = serve(Role::Head, Some(pool)).to_string();
        Servers { head, state }
    }

    pub fn head(&self) -> &str {
        &self.head
    }

    pub fn content(&self, name: &str) -> Vec<u8> {
        self.with_state(|state| state.files[name].clone())
    }

    pub fn with_state<T>(&self, action: impl FnOnce(&mut State) -> T) -> T {
        action(&mut self.state.lock().unwrap())
    }
}

#[derive(Clone)]
struct Server {
    role: Role,
    pool: Option<SocketAddr>,
    behaviour: Behaviour,
    state: Arc<Mutex<State>>,
}

/// The COMPOUND that is carried out.
struct Current {
    minor_version: u32,
    uid: u32,
    handle: String,
}

impl Server {
    fn serve(&self, mut stream: TcpStream) {
        let (mut records, mut buffer) = (RecordReader::new(2 << 20, 1), BytesMut::new());
        let mut chunk = vec![0; 1 << 16];
        loop {
            let len = stream.read(&mut chunk).unwrap_or(0);
            if len == 0 {
                return;
            }
            buffer.extend_from_slice(&chunk[..len]);
            while let Some(call) = records.feed(&mut buffer).unwrap() {
                let reply = self.answer(call);
                stream.write_all(&[&record_header(reply.len())[..], &reply].concat()).unwrap();
            }
        }
    }

    fn answer(&self, call: Bytes) -> Bytes {
        let mut d = Decoder::new(call);
        let header = CallHeader::decode(&mut d).unwrap();
        let Credential::Sys(user) = header.credential else { panic!("{:?}", header.credential) };
        let compound = Compound4Args::decode(&mut d).unwrap();
        let mut current =
            Current { minor_version: compound.minorversion, uid: user.uid, handle: String::new() };
        let (mut status, mut resarray) = (NfsStat4::Ok, Vec::new());
        for operation in compound.argarray {
            let result = self.perform(operation, &mut current);
            status = result.status();
            resarray.push(result);
            if status != NfsStat4::Ok {
                break;
            }
        }
        let mut e = Encoder::new();
        ReplyHeader::success(header.xid).encode(&mut e);
        Compound4Res { status, tag: Opaque::new(), resarray }.encode(&mut e);
        e.into_bytes()
    }

    fn perform(&self, operation: NfsArgop4, current: &mut Current) -> NfsResop4 {
        let mut state = self.state.lock().unwrap();
        match operation {
            NfsArgop4::ExchangeId(_) => NfsResop4::ExchangeId(Res::Ok(exchanged())),
            NfsArgop4::CreateSession(args) => {
                state.sessions += 1;
                state.sessions_made += 1;
                let maxrequests = args.fore_chan_attrs.maxrequests.min(self.behaviour.slots_max);
                NfsResop4::CreateSession(Res::Ok(CreateSession4ResOk {
                    sessionid: SessionId4([state.sessions_made; 16]),
                    sequence: args.sequence,
                    flags: 0,
                    fore_chan_attrs: ChannelAttrs4 { maxrequests, ..args.fore_chan_attrs },
                    back_chan_attrs: args.back_chan_attrs,
                }))
            }
            NfsArgop4::DestroySession(_) => {
                state.sessions -= 1;
                NfsResop4::DestroySession(NfsStat4::Ok)
            }
            NfsArgop4::DestroyClientId(_) => NfsResop4::DestroyClientId(NfsStat4::Ok),
            NfsArgop4::ReclaimComplete(_) => NfsResop4::ReclaimComplete(NfsStat4::Ok),
            NfsArgop4::Sequence(args) => sequence(&mut state, args),
            NfsArgop4::PutRootFh => {
                current.handle = "/".to_owned();
                NfsResop4::PutRootFh(NfsStat4::Ok)
            }
            NfsArgop4::PutFh(args) => {
                current.handle = String::from_utf8(args.object.as_bytes().to_vec()).unwrap();
                NfsResop4::PutFh(NfsStat4::Ok)
            }
            NfsArgop4::GetFh => NfsResop4::GetFh(Res::Ok(GetFh4ResOk { object: fh(&current.handle) })),
            other if self.role == Role::Head => match self.perform_at_head(&mut state, &other, current) {
                Some(result) => result,
                None => self.transfer(&mut state, other, current),
            },
            other => self.transfer(&mut state, other, current),
        }
    }

    /// Names and layouts; `None` for I/O.
    fn perform_at_head(
        &self,
        state: &mut State,
        operation: &NfsArgop4,
        current: &mut Current,
    ) -> Option<NfsResop4> {
        Some(match operation {
            NfsArgop4::Lookup(args) => {
                assert_eq!((current.handle.as_str(), args.objname.as_bytes()), ("/", &b"dir"[..]));
                current.handle = "/dir".to_owned();
                NfsResop4::Lookup(NfsStat4::Ok)
            }
            NfsArgop4::Open(_) if state.graces > 0 => {
                state.graces -= 1;
                NfsResop4::error(op::OPEN, NfsStat4::Grace)
            }
            NfsArgop4::Open(args) => open(state, args, current),
            NfsArgop4::Close(args) => {
                state.opens -= 1;
                NfsResop4::Close(Res::Ok(Close4ResOk { open_stateid: args.open_stateid }))
            }
            NfsArgop4::GetAttr(_) => {
                let size = Some(state.files[&current.handle].len() as u64);
                let obj_attributes = FileAttributes { size, ..FileAttributes::default() }.encode_all();
                NfsResop4::GetAttr(Res::Ok(GetAttr4ResOk { obj_attributes }))
            }
            NfsArgop4::LayoutGet(args) if self.behaviour.gives_layouts => {
                state.layouts += 1;
                NfsResop4::LayoutGet(LayoutGet4Res::Ok(layout(args, &current.handle)))
            }
            NfsArgop4::LayoutGet(_) => NfsResop4::error(op::LAYOUTGET, NfsStat4::LayoutUnavailable),
            NfsArgop4::GetDeviceInfo(_) => {
                let port = self.pool.unwrap().port();
                let addr = format!("127.0.0.1.{}.{}", port >> 8, port & 0xff);
                let netaddrs = vec![NetAddr4 { netid: "tcp".into(), addr }];
                let device_addr = FfDeviceAddr4 { netaddrs, versions: Vec::new() }.to_device_addr();
                let info = GetDeviceInfo4ResOk { device_addr, notification: nfs4::Bitmap4::EMPTY };
                NfsResop4::GetDeviceInfo(GetDeviceInfo4Res::Ok(info))
            }
            NfsArgop4::LayoutCommit(args) => {
                state.committed_end = args.last_write_offset.unwrap() + 1;
                NfsResop4::LayoutCommit(Res::Ok(LayoutCommit4ResOk { newsize: None }))
            }
            NfsArgop4::Remove(args) => {
                let name = String::from_utf8(args.target.as_bytes().to_vec()).unwrap();
                if state.files.remove(&name).is_none() {
                    return Some(NfsResop4::error(op::REMOVE, NfsStat4::NoEnt));
                }
                NfsResop4::Remove(Res::Ok(Remove4ResOk { cinfo: ChangeInfo4::default() }))
            }
            NfsArgop4::LayoutReturn(_) => {
                state.layouts -= 1;
                NfsResop4::LayoutReturn(Res::Ok(LayoutReturn4ResOk { stateid: None }))
            }
            _ => return None,
        })
    }

    fn transfer(&self, state: &mut State, operation: NfsArgop4, current: &Current) -> NfsResop4 {
        state.transfers.push((self.role, current.minor_version, current.uid));
        let name = match self.role {
            Role::Head => Some(current.handle.as_str()),
            Role::Pool => current.handle.strip_prefix("ticket of "),
        };
        let name = name.expect("a pool takes tickets only");
        match operation {
            NfsArgop4::Read(args) => read(&state.files[name], &args),
            NfsArgop4::Write(_) if self.behaviour.is_full => NfsResop4::error(op::WRITE, NfsStat4::NoSpc),
            NfsArgop4::Write(args) => {
                let unstable = self.behaviour.ignores_stability.then_some(StableHow4::Unstable);
                write(state, name, &args, unstable)
            }
            NfsArgop4::Commit(_) => {
                state.verifier += u8::from(self.behaviour.restarts_before_commit);
                NfsResop4::Commit(Res::Ok(Commit4ResOk { writeverf: Verifier4([state.verifier; 8]) }))
            }
            other => panic!("{other:?} was not expected"),
        }
    }
}

fn sequence(state: &mut State, args: Sequence4Args) -> NfsResop4 {
    let next = state.sequences.entry((args.sessionid, args.slotid)).or_insert(1);
    if *next != args.sequenceid || args.slotid > args.highest_slotid {
        return NfsResop4::error(op::SEQUENCE, NfsStat4::SeqMisordered);
    }
    *next += 1;
    NfsResop4::Sequence(Res::Ok(Sequence4ResOk {
        sessionid: args.sessionid,
        sequenceid: args.sequenceid,
        slotid: args.slotid,
        highest_slotid: args.highest_slotid,
        target_highest_slotid: args.highest_slotid,
        status_flags: 0,
    }))
}

fn open(state: &mut State, args: &Open4Args, current: &mut Current) -> NfsResop4 {
    let OpenClaim4::Null(name) = &args.claim else { panic!("{:?}", args.claim) };
    current.handle = String::from_utf8(name.as_bytes().to_vec()).unwrap();
    if let OpenFlag4::Create(CreateHow4::Unchecked(attributes)) = &args.openhow {
        let content = state.files.entry(current.handle.clone()).or_default();
        if FileAttributes::decode(attributes).unwrap().size == Some(0) {
            content.clear();
        }
    } else if !state.files.contains_key(&current.handle) {
        return NfsResop4::error(op::OPEN, NfsStat4::NoEnt);
    }
    state.opens += 1;
    NfsResop4::Open(Res::Ok(Open4ResOk {
        stateid: StateId4 { seqid: 1, other: [1; 12] },
        cinfo: ChangeInfo4::default(),
        rflags: 0,
        attrset: nfs4::Bitmap4::EMPTY,
        delegation: OpenDelegation4::None,
    }))
}

fn read(content: &[u8], args: &Read4Args) -> NfsResop4 {
    let from = content.len().min(args.offset as usize);
    let to = content.len().min(from + args.count as usize);
    let data = Opaque::copy_from_slice(&content[from..to]);
    NfsResop4::Read(Res::Ok(Read4ResOk { eof: to == content.len(), data }))
}

fn write(state: &mut State, name: &str, args: &Write4Args, instead: Option<StableHow4>) -> NfsResop4 {
    let content = state.files.get_mut(name).unwrap();
    let (from, to) = (args.offset as usize, args.offset as usize + args.data.len());
    content.resize(content.len().max(to), 0);
    content[from..to].copy_from_slice(&args.data);
    NfsResop4::Write(Res::Ok(Write4ResOk {
        count: args.data.len() as u32,
        committed: instead.unwrap_or(args.stable),
        writeverf: Verifier4([state.verifier; 8]),
    }))
}

/// Its users are those that the pool is to see.
fn layout(args: &LayoutGet4Args, name: &str) -> LayoutGet4ResOk {
    let server = FfDataServer4 {
        deviceid: DeviceId4([7; 16]),
        efficiency: 1,
        stateid: StateId4 { seqid: 0, other: [8; 12] },
        fh_vers: vec![fh(&format!("ticket of {name}"))],
        user: Opaque::from("4711"),
        group: Opaque::from("4712"),
    };
    let mirrors = vec![FfMirror4 { data_servers: vec![server] }];
    let content = FfLayout4 { stripe_unit: 0, mirrors, flags: 0, stats_collect_hint: 0 }.to_content();
    let segment = Layout4 { offset: 0, length: u64::MAX, iomode: args.iomode, content };
    let stateid = StateId4 { seqid: 1, other: [9; 12] };
    LayoutGet4ResOk { return_on_close: true, stateid, layout: vec![segment] }
}

fn fh(text: &str) -> NfsFh4 {
    NfsFh4::from(text.as_bytes().to_vec())
}

fn exchanged() -> ExchangeId4ResOk {
    ExchangeId4ResOk {
        clientid: ClientId4(9),
        sequenceid: 1,
        flags: 0,
        state_protect: StateProtect4R::None,
        server_owner: ServerOwner4 { minor_id: 0, major_id: Opaque::new() },
        server_scope: Opaque::new(),
        server_impl_id: None,
    }
}
