"""The images that builds run in, each by its digest: a tag can be moved.

`python -m tools.images` asks the registries what the tags are now, and writes `images.txt` of
`leasehold.deploy`, from which `leasehold deploy init` has them in builds, and
`cloudbuild.gate.yaml`.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from leasehold.domain.printable import one_line

_ROOT: Final = Path(__file__).parents[1]
FILE: Final = _ROOT / "shared/leasehold/deploy/images.txt"
_GATE: Final = _ROOT / "cloudbuild.gate.yaml"
_HEADER: Final = "# Made by `python -m tools.images`: what each tag was then.\n"
_HUB: Final = "registry-1.docker.io"
_PATIENCE_S: Final = 30.0
_MOST_BYTES: Final = 4 * 1024 * 1024
#: An image is a list of images, one a platform, or one alone; a digest of either is of its bytes.
#: https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pulling-manifests
_TYPES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_CHALLENGE: Final = re.compile(r'(\w+)="([^"]*)"')


def _digests() -> Mapping[str, str]:
    lines = FILE.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("@") for line in lines if not line.startswith("#"))
    return {image: digest for image, _, digest in pairs}


def digest_of(image: str, *, scheme: str = "https") -> str:
    """Return the digest that a registry has for a tag.

    Args:
        image: with its tag, as `python:3.11` or `gcr.io/project/name:tag`.
        scheme: of the registry's address.

    Raises:
        OSError, HTTPException, ValueError: it cannot be asked, or answers something else.
    """
    name, _, tag = image.rpartition(":")
    host, slash, repository = name.partition("/")
    if not slash or not set(".:") & set(host):  # a name of Docker Hub's
        host, repository = _HUB, name if slash else f"library/{name}"
    url = f"{scheme}://{host}/v2/{repository}/manifests/{tag}"
    headers = {"Accept": ", ".join(_TYPES)}
    try:
        manifest = _read(url, headers)
    except urllib.error.HTTPError as error:
        with error:
            challenge = error.headers.get("WWW-Authenticate", "")
        if error.code != 401 or not challenge.startswith("Bearer "):  # noqa: PLR2004 - HTTP's
            raise
        manifest = _read(url, headers | {"Authorization": f"Bearer {_token(challenge)}"})
    if json.loads(manifest).get("schemaVersion") != 2:  # noqa: PLR2004 - of the specification
        raise ValueError("it is no manifest")
    return f"sha256:{hashlib.sha256(manifest).hexdigest()}"


def _token(challenge: str) -> str:
    """Return what a registry lets anyone read with."""
    asked = dict(_CHALLENGE.findall(challenge))
    url = f"{asked.pop('realm')}?{urlencode(asked)}"
    answer: dict[str, Any] = json.loads(_read(url, {}))
    return str(answer.get("token") or answer["access_token"])


def _read(url: str, headers: Mapping[str, str]) -> bytes:
    request = urllib.request.Request(url, headers=dict(headers))  # noqa: S310 - of a registry
    with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:  # noqa: S310 - as above
        body: bytes = answer.read(_MOST_BYTES)
    return body


def main(images: Sequence[str] | None = None, *, scheme: str = "https") -> int:
    """Ask for each image, and write the file; return the exit code."""
    lines = []
    for image in images or sorted(_digests()):
        try:
            lines.append(f"{image}@{digest_of(image, scheme=scheme)}\n")
        except (OSError, HTTPException, ValueError, KeyError) as error:
            why = one_line(f"{type(error).__name__}: {error}", 300)
            print(f"error: {image} cannot be looked up: {why}; nothing is written", file=sys.stderr)
            return 1
    FILE.write_text(_HEADER + "".join(lines), encoding="utf-8")
    before = gate = _GATE.read_text(encoding="utf-8")
    for line in map(str.strip, lines):
        image = line.partition("@")[0]
        gate = re.sub(rf"{re.escape(image)}@sha256:[0-9a-f]+", line, gate)
    if gate != before:
        _GATE.write_text(gate, encoding="utf-8")
    print(f"{FILE.name}: {len(lines)} images; next: leasehold deploy init")
    return 0


if __name__ == "__main__":
    sys.exit(main())
