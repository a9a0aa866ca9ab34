"""A person's browser, of which only the requests count."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlencode

from tests.api.dashboard.conftest import Pages

Answer = tuple[int, str, str]


class Reader:
    """A person's browser, which has opened a page."""

    def __init__(self, pages: Pages) -> None:
        self._url = self.url = pages.api.url
        self._browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        text = self.open("/registry")[2]
        found = re.search(r'name="formToken" value="(\w+)"', text)
        assert found is not None
        self.token = found[1]

    def open(self, path: str) -> Answer:
        """Return status, content type and text of a page."""
        return self.ask(path, None, {"Sec-Fetch-Site": "none"})

    def send(self, path: str, **fields: Any) -> Answer:
        """Send a form."""
        body = urlencode({"formToken": self.token} | fields).encode()
        return self.ask(path, body, {"Sec-Fetch-Site": "same-origin"})

    def ask(self, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        own = {"Accept": "text/html,*/*;q=0.8", **headers}
        request = urllib.request.Request(f"{self._url}{path}", body, own)  # noqa: S310 - our own server
        try:
            answer = self._browser.open(request, timeout=30)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            self.url = answer.geturl()
            return answer.status, answer.headers.get_content_type(), answer.read().decode()
