"""What the build of a function is told: `gcloud functions deploy --set-build-env-vars`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: The build compiles the bundle (`python3 -m compileall`), and gives the files of the image another
#: time (1980) afterwards: byte code that is valid for a time would be compiled again at each cold
#: start. Where this variable is set, compileall makes byte code that is valid for a source's hash.
BUILD_ENVIRONMENT: Final[Mapping[str, str]] = {"SOURCE_DATE_EPOCH": "315532800"}
