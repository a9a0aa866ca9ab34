"""The codes of the doctor's findings; docs/doctor.md has them as a table.

What `leasehold check` finds has the code of its error (docs/errors.md).
"""

from __future__ import annotations

from typing import Final

from leasehold.doctor.deployed.codes import DEPLOYED_CODES
from leasehold.doctor.local.codes import LOCAL_CODES
from leasehold.registry.registry import Registry

CODES: Final = Registry("findings", [*LOCAL_CODES, *DEPLOYED_CODES])
