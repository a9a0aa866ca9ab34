"""A person's browser, of which only the requests count."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from http.cookiejar import CookieJar
from typing import Any
from urllib.parse import urlencode

from tests.api.dashboard.answered_page import AnsweredPage
from tests.api.dashboard.conftest import Pages
from tests.worlds.waiting import until

Answer = tuple[int, str, str]


class Reader:
    """A person's browser, which has opened a page."""

    def __init__(self, pages: Pages) -> None:
        self._url = self.url = pages.api.url
        self.etag = ""
        self.cookies = CookieJar()
        jar = urllib.request.HTTPCookieProcessor(self.cookies)
        self._browser = urllib.request.build_opener(jar)
        text = self.open("/registry")[2]
        found = re.search(r'name="formToken" value="(\w+)"', text)
        assert found is not None
        self.token = found[1]

    def open(self, path: str) -> Answer:
        """Return status, content type and text of a page."""
        return self.ask(path, None, {"Sec-Fetch-Site": "none"})

    def page(self, path: str) -> AnsweredPage:
        """Open a page whose forms are to be used."""
        status, _, text = self.open(path)
        return AnsweredPage(self._go_on, status, text)

    def page_with(self, path: str, fits: Callable[[AnsweredPage], object]) -> AnsweredPage:
        """Open a page until it is as it is wanted."""
        return until(lambda: page if fits(page := self.page(path)) else None)

    def poll(self, path: str, fits: Callable[[AnsweredPage], object]) -> AnsweredPage:
        """Look again as the script of an open page does, until the page is as it is wanted."""
        etag = '""'

        def look() -> AnsweredPage | None:
            nonlocal etag
            headers = {"Sec-Fetch-Site": "same-origin", "If-None-Match": etag}
            status, _, text = self.ask(path, None, headers)
            if status == HTTPStatus.NOT_MODIFIED:
                return None
            etag = self.etag
            page = AnsweredPage(self._go_on, status, text)
            return page if fits(page) else None

        return until(look)

    def _go_on(self, path: str, body: bytes | None) -> Answer:
        return self.ask(path, body, {"Sec-Fetch-Site": "same-origin"})

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
            self.url, self.etag = answer.geturl(), answer.headers.get("ETag", '""')
            return answer.status, answer.headers.get_content_type(), answer.read().decode()
