//! Messages as bytes written out by hand from the RFCs: what is sent must be exactly this, and this must be understood.

use forebay_nfs4::*;
use xdr::{Opaque, Xdr};

/// Builds a message from words, opaques and raw bytes.
#[derive(Default)]
struct Wire(Vec<u8>);

impl Wire {
    fn u32(mut self, word: u32) -> Self {
        self.0.extend(word.to_be_bytes());
        self
    }

    fn u64(mut self, hyper: u64) -> Self {
        self.0.extend(hyper.to_be_bytes());
        self
    }

    /// Fixed opaque, without a length.
    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// Variable opaque: length, bytes, zeros up to a multiple of four.
    fn opaque(mut self, bytes: &[u8]) -> Self {
        self.0.extend((bytes.len() as u32).to_be_bytes());
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }
}

fn assert_wire<T: Xdr + PartialEq + std::fmt::Debug>(value: &T, wire: Wire) {
    assert_eq!(xdr::to_bytes(value)[..], wire.0[..], "{value:?}");
    assert_eq!(xdr::from_bytes::<T>(wire.0.into()).as_ref(), Ok(value));
}

const STATEID: StateId4 = StateId4 { seqid: 1, other: *b"twelve bytes" };

#[test]
fn open_exclusive4_1() {
    let attrs = FileAttributes { mode: Some(0o600), ..FileAttributes::default() }.encode_all();
    let how = CreateHow4::Exclusive41(CreatVerfAttr { verf: Verifier4(*b"verifier"), attrs });
    let open = NfsArgop4::Open(Open4Args {
        seqid: 0,
        share_access: OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
        share_deny: OPEN4_SHARE_DENY_NONE,
        owner: StateOwner4 {
            clientid: ClientId4(0x0102_0304_0506_0708),
            owner: Opaque::from_static(b"open id"),
        },
        openhow: OpenFlag4::Create(how),
        claim: OpenClaim4::Null("file".into()),
    });
    let wire = Wire::default()
        .u32(18)
        .u32(0)
        .u32(0x403)
        .u32(0)
        .u64(0x0102_0304_0506_0708)
        .opaque(b"open id")
        .u32(1) // OPEN4_CREATE
        .u32(3) // EXCLUSIVE4_1
        .raw(b"verifier")
        .u32(2) // two words of bitmap
        .u32(0)
        .u32(1 << 1) // mode is 33
        .u32(4)
        .u32(0o600)
        .u32(0) // CLAIM_NULL
        .opaque(b"file");
    assert_wire(&open, wire);
}

#[test]
fn open_with_a_read_delegation() {
    let permissions = NfsAce4 { who: Opaque::from_static(b"EVERYONE@"), ..NfsAce4::default() };
    let delegation =
        OpenDelegation4::Read(Box::new(OpenReadDelegation4 { stateid: STATEID, recall: false, permissions }));
    let result = NfsResop4::Open(Res::Ok(Open4ResOk {
        stateid: STATEID,
        cinfo: ChangeInfo4 { atomic: true, before: 5, after: 6 },
        rflags: OPEN4_RESULT_LOCKTYPE_POSIX,
        attrset: Bitmap4::EMPTY,
        delegation,
    }));
    let wire = Wire::default()
        .u32(18)
        .u32(0)
        .u32(1)
        .raw(b"twelve bytes")
        .u32(1)
        .u64(5)
        .u64(6)
        .u32(4)
        .u32(0)
        .u32(1) // OPEN_DELEGATE_READ
        .u32(1)
        .raw(b"twelve bytes")
        .u32(0)
        .u32(0)
        .u32(0)
        .u32(0)
        .opaque(b"EVERYONE@");
    assert_wire(&result, wire);
}

#[test]
fn lock_by_a_new_lock_owner_and_its_denial() {
    let lock = NfsArgop4::Lock(Lock4Args {
        locktype: NfsLockType4::WriteW,
        reclaim: false,
        offset: 10,
        length: u64::MAX,
        locker: Locker4::New(OpenToLockOwner4 {
            open_seqid: 0,
            open_stateid: STATEID,
            lock_seqid: 0,
            lock_owner: StateOwner4 { clientid: ClientId4(7), owner: Opaque::from_static(b"lock") },
        }),
    });
    let wire = Wire::default().u32(12).u32(4).u32(0).u64(10).u64(u64::MAX);
    let wire = wire.u32(1).u32(0).u32(1).raw(b"twelve bytes").u32(0).u64(7).opaque(b"lock");
    assert_wire(&lock, wire);

    let holder = StateOwner4 { clientid: ClientId4(8), owner: Opaque::from_static(b"other") };
    let denied = Lock4Denied { offset: 0, length: 100, locktype: NfsLockType4::Write, owner: holder };
    let wire = || Wire::default().u32(10_010).u64(0).u64(100).u32(2).u64(8).opaque(b"other");
    assert_wire(&Lock4Res::Denied(denied.clone()), wire());
    assert_wire(&LockT4Res::Denied(denied), wire());
}

#[test]
fn errors_that_have_a_body() {
    let wire = |status: NfsStat4| Wire::default().u32(status.code());
    let error = |opnum, status| NfsResop4::error(opnum, status);
    assert_wire(&error(op::LOOKUP, NfsStat4::NoEnt), Wire::default().u32(15).u32(2));
    assert_wire(
        &SetAttr4Res { status: NfsStat4::Perm, attrsset: Bitmap4::EMPTY },
        wire(NfsStat4::Perm).u32(0),
    );
    assert_wire(&error(op::LAYOUTGET, NfsStat4::LayoutTryLater), Wire::default().u32(50).u32(10_058).u32(0));
    assert_wire(&GetDeviceInfo4Res::TooSmall { mincount: 300 }, wire(NfsStat4::TooSmall).u32(300));
    let requirements = CopyRequirements4 { consecutive: true, synchronous: true };
    assert_wire(&Copy4Res::NoReqs(requirements), wire(NfsStat4::OffloadNoReqs).u32(1).u32(1));
    assert_wire(&NfsResop4::Illegal(NfsStat4::OpIllegal), Wire::default().u32(10_044).u32(10_044));
}

#[test]
fn readdir_entries_are_a_list_with_a_flag_before_each() {
    let attrs = FileAttributes { fileid: Some(9), ..FileAttributes::default() }.encode_all();
    let entries = vec![DirEntry4 { cookie: 3, name: "abcde".into(), attrs }];
    let result = ReadDir4ResOk { cookieverf: Verifier4(*b"verifier"), entries, eof: true };
    let entry = Wire::default().u32(1).u64(3).opaque(b"abcde").u32(1).u32(1 << 20).u32(8).u64(9);
    assert_eq!(entry.0.len(), result.entries[0].encoded_len());
    let wire = Wire::default().raw(b"verifier").raw(&entry.0).u32(0).u32(1);
    assert_wire(&result, wire);
}

#[test]
fn a_flex_files_layout_of_one_mirror() {
    let data_server = FfDataServer4 {
        deviceid: DeviceId4(*b"sixteen bytes id"),
        efficiency: 1,
        stateid: STATEID,
        fh_vers: vec![b"handle".to_vec().into()],
        user: Opaque::from_static(b"0"),
        group: Opaque::from_static(b"0"),
    };
    let layout = FfLayout4 {
        stripe_unit: 0,
        mirrors: vec![FfMirror4 { data_servers: vec![data_server] }],
        flags: FF_FLAGS_NO_LAYOUTCOMMIT,
        stats_collect_hint: 60,
    };
    let body = Wire::default()
        .u64(0)
        .u32(1)
        .u32(1)
        .raw(b"sixteen bytes id")
        .u32(1)
        .u32(1)
        .raw(b"twelve bytes")
        .u32(1)
        .opaque(b"handle")
        .opaque(b"0")
        .opaque(b"0")
        .u32(1)
        .u32(60);
    // Without the handle's bytes: 8 + 4 + 4 + 16 + 4 + 16 + (4 + 4) + 8 + 8 + 4 + 4.
    assert_eq!(body.0.len(), 84 + 8);
    let content = layout.to_content();
    assert_eq!((content.layout_type, &content.body[..]), (LayoutType4::FLEX_FILES, &body.0[..]));
    assert_eq!(decode_body::<FfLayout4>(&content.body), Ok(layout));
    // The hint is inside the length of loc_body, which is the last thing of the content.
    assert_eq!(xdr::to_bytes(&content)[4..8], 92u32.to_be_bytes());
    assert_eq!(xdr::to_bytes(&content).len(), 4 + 4 + 92);
}

#[test]
fn a_flex_files_device_address() {
    let addr = FfDeviceAddr4 {
        netaddrs: vec![NetAddr4 { netid: "tcp".into(), addr: "127.0.0.1.78.32".into() }],
        versions: vec![FfDeviceVersions4 {
            version: 4,
            minorversion: 1,
            rsize: 1 << 20,
            wsize: 1 << 20,
            tightly_coupled: true,
        }],
    };
    let wire = || {
        let netaddrs = Wire::default().u32(1).opaque(b"tcp").opaque(b"127.0.0.1.78.32");
        netaddrs.u32(1).u32(4).u32(1).u32(1 << 20).u32(1 << 20).u32(1)
    };
    assert_wire(&addr, wire());
    assert_eq!(addr.to_device_addr().addr_body[..], wire().0[..]);
    let mut long = wire().0;
    long.extend([0; 4]);
    assert!(decode_body::<FfDeviceAddr4>(&Opaque(long.into())).is_err(), "nothing follows the address");
}

#[test]
fn a_layout_return_with_an_error_and_statistics() {
    let device = DeviceId4(*b"sixteen bytes id");
    let error = DeviceError4 { deviceid: device, status: NfsStat4::NxIo, opnum: op::READ };
    let latency = FfIoLatency4 { ops_requested: 1, bytes_requested: 2, ..FfIoLatency4::default() };
    let update = FfLayoutUpdate4 {
        addr: NetAddr4 { netid: "tcp".into(), addr: "1.2.3.4.8.1".into() },
        fhandle: b"fh".to_vec().into(),
        read: latency,
        write: FfIoLatency4::default(),
        duration: NfsTime4 { seconds: 3, nseconds: 4 },
        local: false,
    };
    let report = FfLayoutReturn4 {
        ioerr_report: vec![FfIoErr4 { offset: 0, length: 4096, stateid: STATEID, errors: vec![error] }],
        iostats_report: vec![FfIoStats4 {
            offset: 0,
            length: u64::MAX,
            stateid: STATEID,
            read: IoInfo4 { count: 1, bytes: 4096 },
            write: IoInfo4::default(),
            deviceid: device,
            layoutupdate: update,
        }],
    };
    let errors = Wire::default().u32(1).u64(0).u64(4096).u32(1).raw(b"twelve bytes");
    let errors = errors.u32(1).raw(b"sixteen bytes id").u32(6).u32(25);
    let stats = Wire::default().u32(1).u64(0).u64(u64::MAX).u32(1).raw(b"twelve bytes");
    let stats = stats.u64(1).u64(4096).u64(0).u64(0).raw(b"sixteen bytes id");
    let stats = stats.opaque(b"tcp").opaque(b"1.2.3.4.8.1").opaque(b"fh");
    // Five counters and two times of twelve bytes each.
    let stats = stats.u64(1).u64(2).raw(&[0; 48]).raw(&[0; 64]).u64(3).u32(4).u32(0);
    let wire = Wire(errors.0).raw(&stats.0);
    assert_eq!(FfLayoutReturn4::from_body(&encode_body(&report)), Ok(report.clone()));
    assert_wire(&report, wire);
    assert_eq!(FfLayoutReturn4::from_body(&Opaque::default()), Ok(FfLayoutReturn4::default()));
}

#[test]
fn a_callback_that_recalls_the_layout_of_a_file() {
    let sequence = NfsCbArgop4::Sequence(CbSequence4Args {
        sessionid: SessionId4(*b"sixteen bytes id"),
        sequenceid: 1,
        slotid: 0,
        highest_slotid: 0,
        cachethis: false,
        referring_call_lists: vec![],
    });
    let recall = NfsCbArgop4::LayoutRecall(CbLayoutRecall4Args {
        layout_type: LayoutType4::FLEX_FILES,
        iomode: LayoutIomode4::Any,
        changed: true,
        recall: LayoutRecall4::File(LayoutRecallFile4 {
            fh: b"handle".to_vec().into(),
            offset: 0,
            length: u64::MAX,
            stateid: STATEID,
        }),
    });
    let compound = CbCompound4Args {
        tag: Opaque::default(),
        minorversion: 1,
        callback_ident: 0,
        argarray: vec![sequence, recall],
    };
    let wire = Wire::default().u32(0).u32(1).u32(0).u32(2);
    let wire = wire.u32(11).raw(b"sixteen bytes id").u32(1).u32(0).u32(0).u32(0).u32(0);
    let wire = wire.u32(5).u32(4).u32(3).u32(1).u32(1).opaque(b"handle").u64(0).u64(u64::MAX);
    assert_wire(&compound, wire.u32(1).raw(b"twelve bytes"));
}

#[test]
fn the_reply_of_a_callback() {
    let ok = CbSequence4ResOk {
        sessionid: SessionId4(*b"sixteen bytes id"),
        sequenceid: 1,
        slotid: 0,
        highest_slotid: 0,
        target_highest_slotid: 15,
    };
    let reply = CbCompound4Res {
        status: NfsStat4::NoMatchingLayout,
        tag: Opaque::default(),
        resarray: vec![
            NfsCbResop4::Sequence(Res::Ok(ok)),
            NfsCbResop4::LayoutRecall(NfsStat4::NoMatchingLayout),
        ],
    };
    let wire = Wire::default().u32(10_060).u32(0).u32(2);
    let wire = wire.u32(11).u32(0).raw(b"sixteen bytes id").u32(1).u32(0).u32(0).u32(15);
    assert_wire(&reply, wire.u32(5).u32(10_060));
    assert_eq!(reply.resarray[1].status(), NfsStat4::NoMatchingLayout);
}

#[test]
fn a_compound_of_three_operations() {
    let compound = Compound4Args {
        tag: Opaque::from_static(b"t"),
        minorversion: 2,
        argarray: vec![
            NfsArgop4::PutRootFh,
            NfsArgop4::Lookup(Lookup4Args { objname: "etc".into() }),
            NfsArgop4::GetFh,
        ],
    };
    let wire = Wire::default().opaque(b"t").u32(2).u32(3).u32(24).u32(15).opaque(b"etc").u32(10);
    assert_wire(&compound, wire);
}

#[test]
fn special_stateids_are_what_the_rfc_says() {
    let ones = [0xff; 12];
    assert_eq!(StateId4::ANONYMOUS, StateId4 { seqid: 0, other: [0; 12] });
    assert_eq!(StateId4::BYPASS, StateId4 { seqid: u32::MAX, other: ones });
    assert_eq!(StateId4::CURRENT, StateId4 { seqid: 1, other: [0; 12] });
    assert_eq!(StateId4::INVALID, StateId4 { seqid: u32::MAX, other: [0; 12] });
    assert!(StateId4::CURRENT.is_special() && StateId4::BYPASS.is_special() && !STATEID.is_special());
}

#[test]
fn a_file_handle_of_129_bytes_is_refused() {
    let wire = |len: usize| Wire::default().u32(22).opaque(&vec![1; len]).0.into();
    assert!(xdr::from_bytes::<NfsArgop4>(wire(128)).is_ok());
    assert!(xdr::from_bytes::<NfsArgop4>(wire(129)).is_err());
}
