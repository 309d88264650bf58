"""The suite that fsspec has for every file system, on a server that is there (`ISONOMIA_SERVER`); its files are below
`SUITE_DIRECTORY`, if that is set."""

import os
import uuid

import fsspec
import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)


class Fixtures(AbstractFixtures):
    @pytest.fixture(scope="class")
    def fs(self):
        return fsspec.filesystem("isonomia")

    @pytest.fixture(scope="class")
    def fs_path(self, fs):
        path = f"{os.environ.get('SUITE_DIRECTORY', '')}/{uuid.uuid4()}"
        fs.mkdir(path)
        yield path
        fs.rm(path, recursive=True)

    @pytest.fixture
    def supports_empty_directories(self):
        return True


class TestCopy(Fixtures, AbstractCopyTests):
    pass


class TestGet(Fixtures, AbstractGetTests):
    pass


class TestPut(Fixtures, AbstractPutTests):
    pass


class TestOpen(Fixtures, AbstractOpenTests):
    pass


class TestPipe(Fixtures, AbstractPipeTests):
    pass
