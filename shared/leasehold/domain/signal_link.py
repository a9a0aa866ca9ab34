"""Signed links: with one a person sends a signal without signing in, until the link expires.

A link names one signal of one life of a run. It is signed with a secret that servers share, so none
keeps a list; a reader of the store alone can make none.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Self
from urllib.parse import quote, urlencode

#: A link is good until this time after its announcement.
LINK_LIFE: Final = timedelta(days=7)
#: What the path of a link ends with.
LINK: Final = "/link"
#: So many bytes the form of a link may have: a person types what is in it.
MAX_LINK_FORM_BYTES: Final = 16 * 1024
_KEY_DIGITS: Final = 40
#: A path of a link: the run, and the name of the signal.
PATH: Final = re.compile(r"/runs/([^/:]+)/signals/([^/:]+)" + LINK)


def is_link(path: str) -> bool:
    """Return whether a path is that of a link, whose signature stands for a sign-in."""
    return path.endswith(LINK) and PATH.fullmatch(path) is not None


class PublicUrl(str):
    """Where people reach the runs API, with the secrets that sign links below it.

    Args:
        url: the address; empty: it is not known, and links are paths.
        secrets: the one that signs first; none: there are no links.
    """

    __slots__ = ("secrets",)
    secrets: tuple[str, ...]

    def __new__(cls, url: str, secrets: Sequence[str] = ()) -> Self:
        """Return the address."""
        made = super().__new__(cls, url)
        made.secrets = tuple(secrets)
        return made


class SignalLink(NamedTuple):
    """The signal that a link sends.

    Args:
        run_id: the run.
        life: the mark of its life.
        name: of the signal.
        until: when it is over, in seconds since 1970.
    """

    run_id: str
    life: str
    name: str
    until: int

    def key(self, secret: str) -> str:
        """Return the signature of the link."""
        text = "\n".join(("signal", self.run_id, self.life, self.name, str(self.until)))
        return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()[:_KEY_DIGITS]

    def is_signed(self, key: str, secrets: Sequence[str]) -> bool:
        """Return whether a key is that of the link, by any of the secrets."""
        keys = [self.key(secret).encode() for secret in secrets]
        return any(hmac.compare_digest(key.encode(), one) for one in keys)

    def address(self, base_url: str, secret: str) -> str:
        """Return the link."""
        path = f"/runs/{quote(self.run_id, safe='')}/signals/{quote(self.name, safe='')}{LINK}"
        query = {"until": self.until, "life": self.life, "key": self.key(secret)}
        return f"{base_url}{path}?{urlencode(query)}"


def link_to(base_url: str, *, run_id: str, life: str, name: str, since: datetime) -> str | None:
    """Return the link to a signal, announced at a time; None: no secret signs links here."""
    secrets = base_url.secrets if isinstance(base_url, PublicUrl) else ()
    if not secrets:
        return None
    until = int((since + LINK_LIFE).timestamp())
    return SignalLink(run_id, life, name, until).address(base_url, secrets[0])
