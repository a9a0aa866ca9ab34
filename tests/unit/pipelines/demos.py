"""The demo as people run it, on a folder and its own store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def demo(docs: Path, data: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    outside = {name: value for name, value in os.environ.items() if "LEASEHOLD" not in name}
    stores = {
        "LEASEHOLD_STORE": f"sqlite:///{data}/leasehold.db",
        "LEASEHOLD_ARTIFACTS": f"file://{data}/artifacts",
    }
    return subprocess.run(
        [sys.executable, "-m", "examples.demo.run"],
        cwd=ROOT,
        env=outside | stores | {"INPUT": str(docs)} | environ,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
