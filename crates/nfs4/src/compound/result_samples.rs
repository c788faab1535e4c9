//! Samples of every operation's successful result, and of the errors that have a body.

use super::samples::*;
use super::*;

/// Results of the operations of NFSv4.0 that are still operations, bare statuses aside.
fn basic_results() -> Vec<NfsResop4> {
    use NfsResop4::*;
    let denied = Lock4Denied { offset: 1, length: 2, locktype: NfsLockType4::Read, owner: owner() };
    let gss = RpcSecGssInfo { oid: opaque("oid"), qop: 0, service: RpcGssSvc::Integrity };
    let entry = |cookie, name: &str| DirEntry4 { cookie, name: name.into(), attrs: fattr() };
    vec![
        Access(Res::Ok(Access4ResOk { supported: 0x3f, access: 1 })),
        Close(Res::Ok(Close4ResOk { open_stateid: StateId4::INVALID })),
        Commit(Res::Ok(Commit4ResOk { writeverf: VERIFIER })),
        Create(Res::Ok(Create4ResOk { cinfo: CINFO, attrset: BITS })),
        GetAttr(Res::Ok(GetAttr4ResOk { obj_attributes: fattr() })),
        GetFh(Res::Ok(GetFh4ResOk { object: vec![1, 2, 3].into() })),
        Link(Res::Ok(Link4ResOk { cinfo: CINFO })),
        Lock(Lock4Res::Ok(Lock4ResOk { lock_stateid: STATEID })),
        Lock(Lock4Res::Denied(denied.clone())),
        LockT(LockT4Res::Ok),
        LockT(LockT4Res::Denied(denied)),
        LockU(Res::Ok(LockU4ResOk { lock_stateid: STATEID })),
        OpenDowngrade(Res::Ok(OpenDowngrade4ResOk { open_stateid: STATEID })),
        Read(Res::Ok(Read4ResOk { eof: true, data: opaque("data!") })),
        ReadDir(Res::Ok(ReadDir4ResOk { cookieverf: VERIFIER, entries: vec![], eof: true })),
        ReadDir(Res::Ok(ReadDir4ResOk {
            cookieverf: VERIFIER,
            entries: vec![entry(3, "a"), entry(4, "bcdef")],
            eof: false,
        })),
        ReadLink(Res::Ok(ReadLink4ResOk { link: Default::default() })),
        Remove(Res::Ok(Remove4ResOk { cinfo: CINFO })),
        Rename(Res::Ok(Rename4ResOk { source_cinfo: CINFO, target_cinfo: CINFO })),
        SecInfo(Res::Ok(SecInfo4ResOk {
            flavors: vec![SecInfo4::RpcSecGss(gss), SecInfo4::Flavor(AUTH_SYS)],
        })),
        SetAttr(SetAttr4Res { status: NfsStat4::Ok, attrsset: BITS }),
        SetAttr(SetAttr4Res { status: NfsStat4::Perm, attrsset: Bitmap4::EMPTY }),
        Write(Res::Ok(Write4ResOk { count: 5, committed: StableHow4::FileSync, writeverf: VERIFIER })),
        OpenConfirm(Res::Ok(OpenConfirm4ResOk { open_stateid: STATEID })),
        SetClientId(SetClientId4Res::Ok(SetClientId4ResOk {
            clientid: ClientId4(1),
            setclientid_confirm: VERIFIER,
        })),
        SetClientId(SetClientId4Res::InUse(NetAddr4 { netid: "tcp".into(), addr: "::1.8.1".into() })),
        Illegal(NfsStat4::OpIllegal),
    ]
}

fn open_results() -> Vec<NfsResop4> {
    let permissions = NfsAce4 { access_mask: ACE4_GENERIC_READ, who: opaque("OWNER@"), ..NfsAce4::default() };
    let read = OpenReadDelegation4 { stateid: STATEID, recall: false, permissions: permissions.clone() };
    let write = |space_limit| {
        let permissions = permissions.clone();
        OpenDelegation4::Write(Box::new(OpenWriteDelegation4 {
            stateid: STATEID,
            recall: true,
            space_limit,
            permissions,
        }))
    };
    let OpenDelegation4::Write(writing) = write(NfsSpaceLimit4::Size(0)) else {
        unreachable!("it was just made")
    };
    let delegations = vec![
        OpenDelegation4::None,
        OpenDelegation4::Read(Box::new(read.clone())),
        OpenDelegation4::ReadAttrs(Box::new(read)),
        OpenDelegation4::WriteAttrs(writing),
        write(NfsSpaceLimit4::Size(1 << 40)),
        write(NfsSpaceLimit4::Blocks(NfsModifiedLimit4 { num_blocks: 9, bytes_per_block: 4096 })),
        OpenDelegation4::NoneExt(OpenNoneDelegation4::Contention { server_will_push_deleg: true }),
        OpenDelegation4::NoneExt(OpenNoneDelegation4::Resource { server_will_signal_avail: false }),
        OpenDelegation4::NoneExt(OpenNoneDelegation4::Why(WND4_NOT_WANTED)),
    ];
    let mut results = vec![NfsResop4::WantDelegation(Res::Ok(OpenDelegation4::None))];
    results.extend(delegations.into_iter().map(|delegation| {
        let rflags = OPEN4_RESULT_LOCKTYPE_POSIX | OPEN4_RESULT_MAY_NOTIFY_LOCK;
        NfsResop4::Open(Res::Ok(Open4ResOk {
            stateid: STATEID,
            cinfo: CINFO,
            rflags,
            attrset: BITS,
            delegation,
        }))
    }));
    results
}

fn exchange_id(state_protect: StateProtect4R) -> NfsResop4 {
    NfsResop4::ExchangeId(Res::Ok(ExchangeId4ResOk {
        clientid: ClientId4(9),
        sequenceid: 1,
        flags: EXCHGID4_FLAG_USE_PNFS_MDS,
        state_protect,
        server_owner: ServerOwner4 { minor_id: 0, major_id: opaque("major") },
        server_scope: opaque("scope"),
        server_impl_id: Some(impl_id()),
    }))
}

fn session_results() -> Vec<NfsResop4> {
    use NfsResop4::*;
    let sessionid = SessionId4([5; 16]);
    let ssv = SsvProtInfo4 { ops: spo(), hash_alg: 0, encr_alg: 1, ssv_len: 32, window: 4, handles: vec![] };
    let dir_delegation = GetDirDelegation4ResOk {
        cookieverf: VERIFIER,
        stateid: STATEID,
        notification: BITS,
        child_attributes: BITS,
        dir_attributes: BITS,
    };
    let unavailable = GetDirDelegation4ResNonFatal::Unavail { will_signal_deleg_avail: false };
    vec![
        BindConnToSession(Res::Ok(BindConnToSession4ResOk {
            sessid: sessionid,
            dir: ChannelDirFromServer4::Both,
            use_conn_in_rdma_mode: false,
        })),
        exchange_id(StateProtect4R::None),
        exchange_id(StateProtect4R::MachCred(spo())),
        exchange_id(StateProtect4R::Ssv(Box::new(ssv))),
        CreateSession(Res::Ok(CreateSession4ResOk {
            sessionid,
            sequence: 1,
            flags: 0,
            fore_chan_attrs: channel(),
            back_chan_attrs: channel(),
        })),
        GetDirDelegation(Res::Ok(GetDirDelegation4ResNonFatal::Ok(Box::new(dir_delegation)))),
        GetDirDelegation(Res::Ok(unavailable)),
        SecInfoNoName(Res::Ok(SecInfo4ResOk { flavors: vec![SecInfo4::Flavor(AUTH_NONE)] })),
        Sequence(Res::Ok(Sequence4ResOk {
            sessionid,
            sequenceid: 1,
            slotid: 2,
            highest_slotid: 3,
            target_highest_slotid: 4,
            status_flags: SEQ4_STATUS_LEASE_MOVED,
        })),
        SetSsv(Res::Ok(SetSsv4ResOk { digest: opaque("digest") })),
        TestStateId(Res::Ok(TestStateId4ResOk { status_codes: vec![NfsStat4::Ok, NfsStat4::BadStateId] })),
    ]
}

fn layout_results() -> Vec<NfsResop4> {
    use NfsResop4::*;
    let content = LayoutContent4 { layout_type: LayoutType4::FLEX_FILES, body: opaque("layout") };
    let layout = Layout4 { offset: 0, length: u64::MAX, iomode: LayoutIomode4::Read, content };
    let device_addr = DeviceAddr4 { layout_type: LayoutType4::FLEX_FILES, addr_body: opaque("address") };
    vec![
        GetDeviceInfo(GetDeviceInfo4Res::Ok(GetDeviceInfo4ResOk { device_addr, notification: BITS })),
        GetDeviceInfo(GetDeviceInfo4Res::TooSmall { mincount: 512 }),
        GetDeviceList(Res::Ok(GetDeviceList4ResOk {
            cookie: 1,
            cookieverf: VERIFIER,
            deviceid_list: vec![DEVICE],
            eof: true,
        })),
        LayoutCommit(Res::Ok(LayoutCommit4ResOk { newsize: Some(10) })),
        LayoutGet(LayoutGet4Res::Ok(LayoutGet4ResOk {
            return_on_close: true,
            stateid: STATEID,
            layout: vec![layout],
        })),
        LayoutGet(LayoutGet4Res::TryLater { will_signal_layout_avail: false }),
        LayoutReturn(Res::Ok(LayoutReturn4ResOk { stateid: None })),
        LayoutReturn(Res::Ok(LayoutReturn4ResOk { stateid: Some(STATEID) })),
    ]
}

fn v42_results() -> Vec<NfsResop4> {
    use NfsResop4::*;
    let requirements = CopyRequirements4 { consecutive: true, synchronous: false };
    vec![
        Copy(Copy4Res::Ok(Copy4ResOk { response: write_response(), requirements })),
        Copy(Copy4Res::NoReqs(requirements)),
        CopyNotify(Res::Ok(CopyNotify4ResOk {
            lease_time: TIME,
            stateid: STATEID,
            source_server: vec![netloc()],
        })),
        IoAdvise(Res::Ok(IoAdvise4ResOk { hints: BITS })),
        OffloadStatus(Res::Ok(OffloadStatus4ResOk { count: 1, complete: Some(NfsStat4::Ok) })),
        ReadPlus(Res::Ok(ReadPlus4ResOk {
            eof: false,
            contents: vec![
                ReadPlusContent::Data { offset: 0, data: opaque("data!") },
                ReadPlusContent::Hole { offset: 5, length: 100 },
            ],
        })),
        Seek(Res::Ok(Seek4ResOk { eof: false, offset: 4096 })),
        WriteSame(Res::Ok(write_response())),
        GetXattr(Res::Ok(GetXattr4ResOk { value: opaque("value") })),
        SetXattr(Res::Ok(SetXattr4ResOk { info: CINFO })),
        ListXattrs(Res::Ok(ListXattrs4ResOk { cookie: 2, names: vec!["a".into(), "b".into()], eof: true })),
        RemoveXattr(Res::Ok(RemoveXattr4ResOk { info: CINFO })),
    ]
}

pub(super) fn all_results() -> Vec<NfsResop4> {
    [basic_results(), open_results(), session_results(), layout_results(), v42_results()].concat()
}
