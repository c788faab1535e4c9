"""fsspec's own abstract tests through webdav4 against WEBDAV_URL, logged in as WEBDAV_LOGIN.

The tests write below directories that nobody made, as object stores allow. webdav4 sends the PUT or COPY as it is, which
RFC 4918 has answered with 409; with MAKE_PARENTS=1 the file system makes the parents first, as fsspec's `auto_mkdir` does.
"""
import os, tempfile, uuid

import pytest
import fsspec.tests.abstract as abstract
from webdav4.fsspec import WebdavFileSystem

# webdav4 uploads what a test abandoned from the finalizer, at any moment: inside the lock of the connection pool it waits
# for itself for ever.
tempfile.SpooledTemporaryFile.__del__ = lambda self: None


class MakesParents(WebdavFileSystem):
    def make_parent(self, path):
        parent = self._parent(self._strip_protocol(path))
        if parent:
            self.makedirs(parent, exist_ok=True)

    def _open(self, path, mode="rb", **kwargs):
        if "r" not in mode:
            self.make_parent(path)
        return super()._open(path, mode, **kwargs)

    def put_file(self, lpath, rpath, **kwargs):
        self.make_parent(rpath)
        return super().put_file(lpath, rpath, **kwargs)

    def cp_file(self, path1, path2, **kwargs):
        self.make_parent(path2)
        return super().cp_file(path1, path2, **kwargs)


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture(scope="class")
    @classmethod
    def fs(cls):
        kind = MakesParents if os.environ.get("MAKE_PARENTS") == "1" else WebdavFileSystem
        return kind(os.environ["WEBDAV_URL"], auth=tuple(os.environ["WEBDAV_LOGIN"].split(":")))

    @pytest.fixture
    def fs_path(self, fs):
        path = "suite/" + uuid.uuid4().hex
        fs.makedirs(path, exist_ok=True)
        yield path
        try:
            fs.rm(path, recursive=True)
        except FileNotFoundError:
            pass

    @pytest.fixture
    def supports_empty_directories(self):
        return True


class TestCopy(abstract.AbstractCopyTests, Fixtures): pass
class TestGet(abstract.AbstractGetTests, Fixtures): pass
class TestPut(abstract.AbstractPutTests, Fixtures): pass
class TestOpen(abstract.AbstractOpenTests, Fixtures): pass
class TestPipe(abstract.AbstractPipeTests, Fixtures): pass
