"""read_by_http.py root|hdf5|zarr URL LOGIN DIR -- makes a file as science has it, uploads it, and reads parts of it by HTTP."""
import base64, os, sys, urllib.request

import numpy as np

kind, url, login, there = sys.argv[1:]
rng = np.random.default_rng(1)


def upload(name):
    auth = {"Authorization": "Basic " + base64.b64encode(login.encode()).decode()}
    top = os.path.join(there, name)
    ask = lambda method, path, data=None: urllib.request.urlopen(
        urllib.request.Request("%s/%s" % (url, path), data, auth, method=method)).close()
    if os.path.isfile(top):
        return ask("PUT", name, open(top, "rb").read())
    for folder, _, files in os.walk(top):
        inner = os.path.relpath(folder, there)
        ask("MKCOL", inner)
        for f in files:
            ask("PUT", inner + "/" + f, open(os.path.join(folder, f), "rb").read())


def root():
    """Many small baskets, as in NanoAOD: what an analysis wants of some columns comes in one vector read."""
    import uproot
    columns = {"c%03d" % i: rng.normal(size=20_000).astype(np.float32) for i in range(100)}
    with uproot.recreate(there + "/nano.root") as f:
        f.mktree("Events", {n: c.dtype for n, c in columns.items()})
        for first in range(0, 20_000, 1000):
            f["Events"].extend({n: c[first:first + 1000] for n, c in columns.items()})
    upload("nano.root")
    with uproot.open(url + "/nano.root:Events", handler=uproot.source.http.HTTPSource) as tree:
        source, wanted = tree.file.source, ["c%03d" % i for i in range(0, 100, 10)]
        tree.keys()
        before, chunks = source.num_requests, source.num_requested_chunks
        got = tree.arrays(wanted, library="np")
        requests, baskets = source.num_requests - before, source.num_requested_chunks - chunks
        assert all((got[n] == columns[n]).all() for n in wanted), "other numbers"
        assert source._fallback is None, "uproot gave up vector reads and asked for each basket"
        assert baskets >= 200 and requests == 1, "%d baskets in %d requests" % (baskets, requests)


def hdf5():
    import fsspec, h5py
    images = rng.integers(0, 255, (50, 64, 64, 3), dtype=np.uint8)
    with h5py.File(there + "/slide.h5", "w") as f:
        f.create_dataset("imgs", data=images, chunks=(1, 64, 64, 3))
    upload("slide.h5")
    with fsspec.open(url + "/slide.h5", block_size=1 << 16).open() as remote, h5py.File(remote) as f:
        for i in (49, 0, 17):
            assert (f["imgs"][i] == images[i]).all(), "frame %d" % i


def zarr():
    import zarr
    data = rng.normal(size=(12, 100, 200)).astype(np.float32)
    zarr.create_array(there + "/era.zarr", shape=data.shape, chunks=(1, 100, 200), dtype="float32")[:] = data
    upload("era.zarr")
    remote = zarr.open_array(zarr.storage.FsspecStore.from_url(url + "/era.zarr", read_only=True), mode="r")
    assert (remote[3:5] == data[3:5]).all() and (remote[:, 7, 9] == data[:, 7, 9]).all()


globals()[kind]()
