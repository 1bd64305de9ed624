"""Every test has a store of its own, so that nothing is read from or left in the user's cache."""

import pytest


@pytest.fixture(autouse=True)
def own_store(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("store")
    monkeypatch.setenv("VERAX_STORE", str(folder))
    return folder
