"""Overwrite policies: which units of a study are computed."""

from __future__ import annotations

from collections.abc import Callable

from verax.errors import InvalidParameter, suggestion
from verax.studies.store import Store

POLICIES = {
    "missing": "what has no result yet; failed units are tried again",
    "failed": "only units that failed before",
    "all": "everything, whatever is in the store",
    "never": "nothing: the run is put together from what is in the store",
}
"""Name -> what is computed, in words."""

Policy = Callable[[Store, str], bool]
"""(store, key) -> whether the unit is to be computed."""

_RULES: dict[str, Policy] = {
    "missing": lambda store, key: key not in store,
    "failed": lambda store, key: key not in store and store.failed(key),
    "all": lambda store, key: True,
    "never": lambda store, key: False,
}


def policy(name: str) -> Policy:
    """The policy called `name`."""
    if name not in _RULES:
        raise InvalidParameter(f"There is no overwrite policy {name!r}{suggestion(str(name), _RULES)}")
    return _RULES[name]
