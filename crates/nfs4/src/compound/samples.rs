//! Samples of every operation's arguments, in each of their forms.

use bytes::Bytes;

use super::*;

pub(super) const STATEID: StateId4 = StateId4 { seqid: 3, other: *b"twelve bytes" };
pub(super) const DEVICE: DeviceId4 = DeviceId4(*b"sixteen bytes id");
pub(super) const VERIFIER: Verifier4 = Verifier4(*b"verifier");
pub(super) const CINFO: ChangeInfo4 = ChangeInfo4 { atomic: true, before: 1, after: 2 };
pub(super) const TIME: NfsTime4 = NfsTime4 { seconds: 1, nseconds: 999_999_999 };
pub(super) const BITS: Bitmap4 = Bitmap4::of(&[1, 40, 82]);

pub(super) fn opaque(text: &'static str) -> Opaque {
    Opaque::from_static(text.as_bytes())
}

pub(super) fn owner() -> StateOwner4 {
    StateOwner4 { clientid: ClientId4(9), owner: opaque("owner") }
}

pub(super) fn fattr() -> Fattr4 {
    FileAttributes { mode: Some(0o755), size: Some(0), ..FileAttributes::default() }.encode_all()
}

pub(super) fn channel() -> ChannelAttrs4 {
    ChannelAttrs4 { maxrequestsize: 1 << 20, maxrequests: 64, rdma_ird: Some(1), ..ChannelAttrs4::default() }
}

fn sec_parms() -> Vec<CallbackSecParms4> {
    let sys = AuthSysParms { machinename: opaque("host"), gids: vec![4, 5], ..AuthSysParms::default() };
    let gss = GssCbHandles4 {
        service: RpcGssSvc::Privacy,
        handle_from_server: opaque("s"),
        handle_from_client: opaque("c"),
    };
    vec![CallbackSecParms4::None, CallbackSecParms4::Sys(sys), CallbackSecParms4::Gss(gss)]
}

pub(super) fn spo() -> StateProtectOps4 {
    StateProtectOps4 { must_enforce: BITS, must_allow: Bitmap4::EMPTY }
}

pub(super) fn impl_id() -> NfsImplId4 {
    NfsImplId4 { domain: opaque("example.org"), name: opaque("sample"), date: TIME }
}

fn update() -> LayoutUpdate4 {
    LayoutUpdate4 { layout_type: LayoutType4::FLEX_FILES, body: opaque("body") }
}

fn device_error() -> DeviceError4 {
    DeviceError4 { deviceid: DEVICE, status: NfsStat4::NxIo, opnum: op::WRITE }
}

pub(super) fn write_response() -> WriteResponse4 {
    WriteResponse4 {
        callback_id: Some(STATEID),
        count: 5,
        committed: StableHow4::FileSync,
        writeverf: VERIFIER,
    }
}

pub(super) fn netloc() -> NetLoc4 {
    NetLoc4::NetAddr(NetAddr4 { netid: "tcp".into(), addr: "192.0.2.1.8.1".into() })
}

fn open(openhow: OpenFlag4, claim: OpenClaim4) -> NfsArgop4 {
    let (share_access, share_deny) = (OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_DENY_NONE);
    NfsArgop4::Open(Open4Args { seqid: 0, share_access, share_deny, owner: owner(), openhow, claim })
}

fn layout_return(layoutreturn: LayoutReturn4) -> NfsArgop4 {
    let (layout_type, iomode) = (LayoutType4::FLEX_FILES, LayoutIomode4::Any);
    NfsArgop4::LayoutReturn(LayoutReturn4Args { reclaim: false, layout_type, iomode, layoutreturn })
}

fn create(objtype: CreateType4) -> NfsArgop4 {
    NfsArgop4::Create(Create4Args { objtype, objname: "new".into(), createattrs: fattr() })
}

fn lock(locker: Locker4) -> NfsArgop4 {
    let locktype = NfsLockType4::WriteW;
    NfsArgop4::Lock(Lock4Args { locktype, reclaim: false, offset: 1, length: u64::MAX, locker })
}

fn exchange_id(state_protect: StateProtect4A) -> NfsArgop4 {
    NfsArgop4::ExchangeId(ExchangeId4Args {
        clientowner: ClientOwner4 { verifier: VERIFIER, ownerid: opaque("Linux NFSv4.2 host") },
        flags: EXCHGID4_FLAG_USE_PNFS_DS,
        state_protect,
        client_impl_id: Some(impl_id()),
    })
}

/// Arguments of the operations of NFSv4.0 that are still operations.
fn basic_args() -> Vec<NfsArgop4> {
    use NfsArgop4::*;
    let (clientid, stateid) = (ClientId4(9), STATEID);
    let lock_new =
        OpenToLockOwner4 { open_seqid: 0, open_stateid: STATEID, lock_seqid: 0, lock_owner: owner() };
    let ssv = CreatVerfAttr { verf: VERIFIER, attrs: fattr() };
    vec![
        Access(Access4Args { access: 0x3f }),
        Close(Close4Args { seqid: 0, open_stateid: stateid }),
        Commit(Commit4Args { offset: 0, count: 0 }),
        create(CreateType4::Dir),
        create(CreateType4::Blk(SpecData4 { specdata1: 8, specdata2: 1 })),
        create(CreateType4::Chr(SpecData4 { specdata1: 1, specdata2: 3 })),
        create(CreateType4::Lnk(Bytes::from_static(b"../target").into())),
        create(CreateType4::Sock),
        create(CreateType4::Fifo),
        create(CreateType4::Other(1)),
        DelegPurge(DelegPurge4Args { clientid }),
        DelegReturn(DelegReturn4Args { deleg_stateid: stateid }),
        GetAttr(GetAttr4Args { attr_request: BITS }),
        GetFh,
        Link(Link4Args { newname: "name".into() }),
        lock(Locker4::New(lock_new)),
        lock(Locker4::Exist(ExistLockOwner4 { lock_stateid: stateid, lock_seqid: 1 })),
        LockT(LockT4Args { locktype: NfsLockType4::Read, offset: 0, length: 1, owner: owner() }),
        LockU(LockU4Args {
            locktype: NfsLockType4::Read,
            seqid: 0,
            lock_stateid: stateid,
            offset: 0,
            length: 1,
        }),
        Lookup(Lookup4Args { objname: "name".into() }),
        LookupP,
        NVerify(NVerify4Args { obj_attributes: fattr() }),
        open(OpenFlag4::NoCreate, OpenClaim4::Fh),
        open(OpenFlag4::NoCreate, OpenClaim4::Previous(OpenDelegationType4::Read)),
        open(OpenFlag4::NoCreate, OpenClaim4::Previous(OpenDelegationType4::WriteAttrs)),
        open(OpenFlag4::NoCreate, OpenClaim4::DelegCurFh(stateid)),
        open(OpenFlag4::NoCreate, OpenClaim4::DelegPrevFh),
        open(OpenFlag4::NoCreate, OpenClaim4::DelegatePrev("name".into())),
        open(
            OpenFlag4::NoCreate,
            OpenClaim4::DelegateCur(OpenClaimDelegateCur4 { delegate_stateid: stateid, file: "name".into() }),
        ),
        open(OpenFlag4::Create(CreateHow4::Unchecked(fattr())), OpenClaim4::Null("name".into())),
        open(OpenFlag4::Create(CreateHow4::Guarded(fattr())), OpenClaim4::Null("name".into())),
        open(OpenFlag4::Create(CreateHow4::Exclusive(VERIFIER)), OpenClaim4::Null("name".into())),
        open(OpenFlag4::Create(CreateHow4::Exclusive41(ssv)), OpenClaim4::Null("name".into())),
        OpenAttr(OpenAttr4Args { createdir: true }),
        OpenDowngrade(OpenDowngrade4Args { open_stateid: stateid, seqid: 0, share_access: 1, share_deny: 0 }),
        PutFh(PutFh4Args { object: vec![7; 128].into() }),
        PutPubFh,
        PutRootFh,
        Read(Read4Args { stateid, offset: 0, count: 4096 }),
        ReadDir(ReadDir4Args {
            cookie: 0,
            cookieverf: VERIFIER,
            dircount: 1024,
            maxcount: 4096,
            attr_request: BITS,
        }),
        ReadLink,
        Remove(Remove4Args { target: "name".into() }),
        Rename(Rename4Args { oldname: "old".into(), newname: "new".into() }),
        RestoreFh,
        SaveFh,
        SecInfo(SecInfo4Args { name: "name".into() }),
        SetAttr(SetAttr4Args { stateid, obj_attributes: fattr() }),
        Verify(Verify4Args { obj_attributes: fattr() }),
        Write(Write4Args { stateid, offset: 1, stable: StableHow4::Unstable, data: opaque("data!") }),
    ]
}

fn obsolete_args() -> Vec<NfsArgop4> {
    use NfsArgop4::*;
    let clientid = ClientId4(9);
    let cb_location = NetAddr4 { netid: "tcp".into(), addr: "192.0.2.1.8.1".into() };
    vec![
        OpenConfirm(OpenConfirm4Args { open_stateid: STATEID, seqid: 1 }),
        Renew(Renew4Args { clientid }),
        SetClientId(SetClientId4Args {
            client: NfsClientId4 { verifier: VERIFIER, id: opaque("id") },
            callback: CbClient4 { cb_program: 0x4000_0000, cb_location },
            callback_ident: 1,
        }),
        SetClientIdConfirm(SetClientIdConfirm4Args { clientid, setclientid_confirm: VERIFIER }),
        ReleaseLockOwner(ReleaseLockOwner4Args { lock_owner: owner() }),
    ]
}

/// Arguments of the operations that came with NFSv4.1.
fn session_args() -> Vec<NfsArgop4> {
    use NfsArgop4::*;
    let (clientid, sessionid, stateid) = (ClientId4(9), SessionId4([5; 16]), STATEID);
    let ssv = SsvSpParms4 {
        ops: spo(),
        hash_algs: vec![opaque("sha")],
        encr_algs: vec![],
        window: 1,
        num_gss_handles: 1,
    };
    vec![
        BackchannelCtl(BackchannelCtl4Args { cb_program: 1, sec_parms: sec_parms() }),
        BindConnToSession(BindConnToSession4Args {
            sessid: sessionid,
            dir: ChannelDirFromClient4::BackOrBoth,
            use_conn_in_rdma_mode: false,
        }),
        exchange_id(StateProtect4A::None),
        exchange_id(StateProtect4A::MachCred(spo())),
        exchange_id(StateProtect4A::Ssv(Box::new(ssv))),
        CreateSession(CreateSession4Args {
            clientid,
            sequence: 1,
            flags: CREATE_SESSION4_FLAG_CONN_BACK_CHAN,
            fore_chan_attrs: channel(),
            back_chan_attrs: channel(),
            cb_program: 0x4000_0000,
            sec_parms: sec_parms(),
        }),
        DestroySession(DestroySession4Args { sessionid }),
        FreeStateId(FreeStateId4Args { stateid }),
        GetDirDelegation(GetDirDelegation4Args {
            signal_deleg_avail: false,
            notification_types: BITS,
            child_attr_delay: TIME,
            dir_attr_delay: TIME,
            child_attributes: BITS,
            dir_attributes: BITS,
        }),
        Sequence(Sequence4Args { sessionid, sequenceid: 1, slotid: 0, highest_slotid: 0, cachethis: true }),
        SecInfoNoName(SecInfoNoName4Args { style: SecInfoStyle4::Parent }),
        SetSsv(SetSsv4Args { ssv: opaque("ssv"), digest: opaque("digest") }),
        TestStateId(TestStateId4Args { stateids: vec![stateid, StateId4::CURRENT] }),
        WantDelegation(WantDelegation4Args { want: 0x100, claim: DelegClaim4::Fh }),
        DestroyClientId(DestroyClientId4Args { clientid }),
        ReclaimComplete(ReclaimComplete4Args { one_fs: false }),
    ]
}

fn layout_args() -> Vec<NfsArgop4> {
    use NfsArgop4::*;
    let (layout_type, stateid) = (LayoutType4::FLEX_FILES, STATEID);
    let file = LayoutReturnFile4 { offset: 0, length: u64::MAX, stateid, body: opaque("body") };
    vec![
        GetDeviceInfo(GetDeviceInfo4Args {
            device_id: DEVICE,
            layout_type,
            maxcount: 1 << 20,
            notify_types: BITS,
        }),
        GetDeviceList(GetDeviceList4Args { layout_type, maxdevices: 8, cookie: 0, cookieverf: VERIFIER }),
        LayoutCommit(LayoutCommit4Args {
            offset: 0,
            length: 10,
            reclaim: false,
            stateid,
            last_write_offset: Some(9),
            time_modify: None,
            layoutupdate: update(),
        }),
        LayoutGet(LayoutGet4Args {
            signal_layout_avail: false,
            layout_type: LayoutType4(77),
            iomode: LayoutIomode4::Rw,
            offset: 0,
            length: u64::MAX,
            minlength: 4096,
            stateid: StateId4::CURRENT,
            maxcount: 4096,
        }),
        layout_return(LayoutReturn4::File(file)),
        layout_return(LayoutReturn4::FsId),
        layout_return(LayoutReturn4::All),
    ]
}

fn v42_args() -> Vec<NfsArgop4> {
    use NfsArgop4::*;
    let (stateid, offset, length) = (STATEID, 4096, 8192);
    let (src_stateid, dst_stateid, src_offset, dst_offset) = (STATEID, STATEID, 0, 1);
    let name = Component4::from("user.name");
    let adb = AppDataBlock4 {
        offset,
        block_size: 512,
        block_count: 3,
        reloff_blocknum: 0,
        block_num: 1,
        reloff_pattern: 8,
        pattern: opaque("pattern"),
    };
    vec![
        Allocate(Allocate4Args { stateid, offset, length }),
        Copy(Copy4Args {
            src_stateid,
            dst_stateid,
            src_offset,
            dst_offset,
            count: 0,
            consecutive: true,
            synchronous: true,
            source_server: vec![NetLoc4::Name(opaque("n")), NetLoc4::Url(opaque("nfs://n/")), netloc()],
        }),
        CopyNotify(CopyNotify4Args { src_stateid, destination_server: netloc() }),
        Deallocate(Deallocate4Args { stateid, offset, length }),
        IoAdvise(IoAdvise4Args {
            stateid,
            offset,
            count: length,
            hints: Bitmap4::of(&[IO_ADVISE4_WILLNEED]),
        }),
        LayoutError(LayoutError4Args { offset, length, stateid, errors: vec![device_error()] }),
        LayoutStats(LayoutStats4Args {
            offset,
            length,
            stateid,
            read: IoInfo4 { count: 1, bytes: 2 },
            write: IoInfo4::default(),
            deviceid: DEVICE,
            layoutupdate: update(),
        }),
        OffloadCancel(OffloadCancel4Args { stateid }),
        OffloadStatus(OffloadStatus4Args { stateid }),
        ReadPlus(ReadPlus4Args { stateid, offset, count: 1 }),
        Seek(Seek4Args { stateid, offset, what: DataContent4::Hole }),
        WriteSame(WriteSame4Args { stateid, stable: StableHow4::DataSync, adb }),
        Clone(Clone4Args { src_stateid, dst_stateid, src_offset, dst_offset, count: 5 }),
        GetXattr(GetXattr4Args { name: name.clone() }),
        SetXattr(SetXattr4Args { option: SetXattrOption4::Create, key: name.clone(), value: opaque("v") }),
        ListXattrs(ListXattrs4Args { cookie: 0, maxcount: 100 }),
        RemoveXattr(RemoveXattr4Args { name }),
    ]
}

pub(super) fn all_args() -> Vec<NfsArgop4> {
    [basic_args(), obsolete_args(), session_args(), layout_args(), v42_args(), vec![NfsArgop4::Illegal(76)]]
        .concat()
}
