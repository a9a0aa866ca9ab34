"""What an address stands for: a server, or a store that is opened when it is needed."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from leasehold.client.http_calls import is_server
from leasehold.client.server_source import ServerSource
from leasehold.client.source import Source
from leasehold.client.store import Store
from leasehold.client.store_source import StoreSource
from leasehold.errors import InvalidRequestError
from leasehold.registry.settings import SETTINGS

LOG: Final = logging.getLogger("leasehold.client")


class Connection(NamedTuple):
    """A server or a store in use: where runs are read and changed now, and how it is closed."""

    source: Callable[[], Source]
    close: Callable[[], None]


def connect(
    address: str | None,
    environ: Mapping[str, str] | None,
    warn: Callable[[str], object] | None,
) -> Connection:
    """Return what is at the address; see `Client`."""
    if address is not None and is_server(address):
        server = ServerSource(address)
        return Connection(lambda: server, lambda: None)  # no connection is kept open
    settings = os.environ if environ is None else environ
    if address is not None:
        settings = {**settings, "LEASEHOLD_STORE": _checked(address)}
    store = Store(settings, warn or LOG.warning)
    return Connection(lambda: StoreSource(store.to_read(), store), store.close)


def _checked(address: str) -> str:
    """Return the address of a store, or raise InvalidRequestError."""
    setting = SETTINGS["LEASEHOLD_STORE"]
    try:
        return str(setting.read(address))
    except ValueError:
        allowed = f"http://HOST:PORT, https://HOST, {setting.allowed}"
        raise InvalidRequestError(field="address", value=address, allowed=allowed) from None
