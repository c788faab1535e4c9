"""The libraries by which science reads over HTTP, at pinned versions from PyPI; skipped where no registry can be reached."""
import os, re, subprocess

from .loopback import Skipped, Up, check, same
from .server import ROOT

INPUTS = os.path.join(ROOT, "tests/inputs")
# fsspec's abstract tests through webdav4 0.11: what fails there is in docs/dev/conformance.md, and is that client's.
ABSTRACT_PASS_MIN = 114


def python(place):
    """The interpreter of a virtual environment that all scenarios of a run share. FOREBAY_TEST_VENV names one to keep."""
    venv = os.environ.get("FOREBAY_TEST_VENV") or os.path.join(os.path.dirname(place.dir), "venv")
    done, failed = os.path.join(venv, "complete"), venv + ".failed"
    if os.path.exists(failed):
        raise Skipped("no PyPI here")
    if not os.path.exists(done):
        subprocess.run(["/usr/bin/python3", "-m", "venv", venv], check=True, stdout=subprocess.DEVNULL)
        r = subprocess.run([venv + "/bin/pip", "install", "-q", "--retries", "1", "--timeout", "20", "-r", INPUTS + "/requirements.txt"],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if r.returncode:
            open(failed, "w").close()
            raise Skipped("pip cannot install tests/inputs/requirements.txt: " + r.stdout.strip().replace("\n", " ")[-300:])
        open(done, "w").close()
    return venv + "/bin/python"


def read(place, kind):
    interpreter, up = python(place), Up(place).ready()
    r = subprocess.run([interpreter, INPUTS + "/read_by_http.py", kind, up.url, ":".join(up.login), place.dir],
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    check(r.returncode == 0, r.stdout[-3000:])


def uproot_reads_all_baskets_in_one_request(place):
    read(place, "root")


def h5py_reads_frames_through_fsspec(place):
    read(place, "hdf5")


def zarr_reads_chunks_through_fsspec(place):
    read(place, "zarr")


def fsspecs_abstract_tests_pass_through_webdav4_as_far_as_it_can(place):
    interpreter, up = python(place), Up(place).ready()
    env = dict(os.environ, WEBDAV_URL=up.url + "/", WEBDAV_LOGIN=":".join(up.login), MAKE_PARENTS="1")
    r = subprocess.run([interpreter, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "--tb=line", INPUTS + "/test_abstract.py"],
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400, env=env, cwd=place.dir)
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|error)s?", r.stdout.splitlines()[-1])}
    same("tests that ran", sum(counts.values()), 137)
    check(counts.get("passed", 0) >= ABSTRACT_PASS_MIN, r.stdout[-3000:])


SCENARIOS = [uproot_reads_all_baskets_in_one_request, h5py_reads_frames_through_fsspec, zarr_reads_chunks_through_fsspec,
             fsspecs_abstract_tests_pass_through_webdav4_as_far_as_it_can]
