"""The client's own RPC counters: what `kc-stats` snapped, as dictionaries.

mountstats counts what went to the mounted server; proc4 counts every NFSv4
procedure of this client, data servers included.
"""
import os, re


def parse_mountstats(text):
    """/proc/self/mountstats, NFS mounts only, as a dict per mount point."""
    out, cur = {}, None
    for line in text.splitlines():
        m = re.match(r"device (\S+) mounted on (\S+) with fstype (\S+)(?: statvers=(\S+))?", line)
        if m:
            cur = None
            if m.group(3) in ("nfs", "nfs4"):
                cur = out[m.group(2)] = dict(device=m.group(1), ops={}, xprt=[])
            continue
        if cur is None:
            continue
        s = line.strip()
        k, _, v = s.partition(":")
        v = v.strip()
        if k in ("opts", "caps", "sec"):
            cur[k] = v
        elif k == "nfsv4":
            cur[k] = v
            cur["pnfs"] = (re.search(r"pnfs=([A-Z_0-9a-z ]+)", v) or [None, None])[1]
        elif k == "age":
            cur["age_s"] = int(v)
        elif k == "events":
            names = ("inode_revalidates dentry_revalidates data_invalidates attr_invalidates vfs_open vfs_lookup "
                     "vfs_access vfs_updatepage vfs_readpage vfs_readpages vfs_writepage vfs_writepages vfs_getdents "
                     "vfs_setattr vfs_flush vfs_fsync vfs_lock vfs_release congestion_wait setattr_trunc extend_write "
                     "silly_rename short_read short_write jukebox pnfs_read pnfs_write").split()
            cur["events"] = {n: int(x) for n, x in zip(names, v.split())}
        elif k == "bytes":
            names = "normal_read normal_write direct_read direct_write server_read server_write read_pages write_pages".split()
            cur["bytes"] = dict(zip(names, map(int, v.split())))
        elif k == "xprt":
            cur["xprt"].append(v)
        elif re.match(r"[A-Z_0-9]+$", k) and re.match(r"\d+( \d+){7,}$", v):
            n = [int(x) for x in v.split()]
            if n[0]:
                cur["ops"][k] = dict(ops=n[0], trans=n[1], timeouts=n[2], sent=n[3], recv=n[4],
                                     queue_ms=n[5], rtt_ms=n[6], exec_ms=n[7], errors=n[8] if len(n) > 8 else 0,
                                     rtt_avg_ms=round(n[6] / n[0], 3), exec_avg_ms=round(n[7] / n[0], 3))
    return out


def parse_stats(d):
    rd = lambda n: open(os.path.join(d, n)).read() if os.path.exists(os.path.join(d, n)) else ""
    r = dict(mounts=parse_mountstats(rd("mountstats")), servers=rd("servers").splitlines(),
             volumes=rd("volumes").splitlines(), xprts=rd("xprts").splitlines())
    # proc4 holds one counter per client procedure, all servers (DSs as well) together
    m = re.search(r"^proc4 \d+ (.*)$", rd("rpc_nfs"), re.M)
    if m:
        names = client_procedures(rd("mountstats"))
        n = [int(x) for x in m.group(1).split()]
        r["proc4"] = {names[i] if i < len(names) else "op%d" % i: v for i, v in enumerate(n) if v}
    return r


def client_procedures(mountstats):
    """The names of proc4's counters, in this kernel's order: each mount's own counters stand in the same one, with their names."""
    _, _, counters = mountstats.partition("fstype nfs4 ")[2].partition("per-op statistics")
    names = re.findall(r"^\s*([A-Z_0-9]+): \d+ ", counters.partition("\ndevice ")[0], re.M)
    return names or NFS4_CLNT_PROCS


# order of NFSPROC4_CLNT_* in include/linux/nfs4.h (6.1 .. 6.12), for what was counted without a mount
NFS4_CLNT_PROCS = """NULL READ WRITE COMMIT OPEN OPEN_CONFIRM OPEN_NOATTR OPEN_DOWNGRADE CLOSE SETATTR FSINFO RENEW
SETCLIENTID SETCLIENTID_CONFIRM LOCK LOCKT LOCKU ACCESS GETATTR LOOKUP LOOKUP_ROOT REMOVE RENAME LINK SYMLINK CREATE
PATHCONF STATFS READLINK READDIR SERVER_CAPS DELEGRETURN GETACL SETACL FS_LOCATIONS RELEASE_LOCKOWNER SECINFO
FSID_PRESENT EXCHANGE_ID CREATE_SESSION DESTROY_SESSION SEQUENCE GET_LEASE_TIME RECLAIM_COMPLETE LAYOUTGET
GETDEVICEINFO LAYOUTCOMMIT LAYOUTRETURN SECINFO_NO_NAME TEST_STATEID FREE_STATEID GETDEVICELIST
BIND_CONN_TO_SESSION DESTROY_CLIENTID SEEK ALLOCATE DEALLOCATE LAYOUTSTATS CLONE COPY OFFLOAD_CANCEL LOOKUPP
LAYOUTERROR COPY_NOTIFY GETXATTR SETXATTR LISTXATTRS REMOVEXATTR READ_PLUS""".split()
