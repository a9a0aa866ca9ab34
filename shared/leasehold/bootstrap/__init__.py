"""The wiring: makes an engine from settings and a catalog."""

from leasehold.bootstrap.boot import TELEMETRY_FLUSH_S, Bundle, Hooks, boot, log_report
from leasehold.bootstrap.catalog import check_home, load_catalog, store_address, store_exists
from leasehold.bootstrap.connections import (
    Around,
    Purpose,
    delivers_events,
    delivers_tasks,
    folder_artifacts,
    in_process_queue,
    no_documents,
    system_clock,
)

__all__ = [
    "TELEMETRY_FLUSH_S",
    "Around",
    "Bundle",
    "Hooks",
    "Purpose",
    "boot",
    "check_home",
    "delivers_events",
    "delivers_tasks",
    "folder_artifacts",
    "in_process_queue",
    "load_catalog",
    "log_report",
    "no_documents",
    "store_address",
    "store_exists",
    "system_clock",
]
