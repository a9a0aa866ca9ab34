"""The bucket of the artifacts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from google.api_core.exceptions import Forbidden, NotFound

from leasehold.deploy.installation import Installation
from leasehold.deploy.resources.resource import MISSING, PRESENT, Difference, Look, State
from leasehold.frozen import dataclass
from leasehold.google_clients.clients import ONE_TRY, GoogleClients

if TYPE_CHECKING:
    from google.cloud.storage import Bucket as Found

#: Parts of an upload that was cut off, and, if versions are on, replaced and deleted files: neither
#: is ever a file that a run still has.
_LEFTOVERS_DAYS: Final = 7

#: Anyone may take a name that can be guessed, and open the bucket to us: its owner reads, and
#: replaces, the files of all runs.
_TAKEN: Final = (
    "no file is to go there; --bucket=NAME gives another one, or says that this one is meant"
)


@dataclass(frozen=True, slots=True)
class Bucket:
    """The bucket: access by IAM alone, never public, in the region; no rule deletes a live file."""

    clients: GoogleClients
    installation: Installation
    kind = "bucket"

    @property
    def name(self) -> str:
        """Its name."""
        return self.installation.bucket_name

    def look(self) -> Look:
        """Return whether it is there, is ours, and keeps what is put into it."""
        try:
            found = self.clients.storage.get_bucket(self.name, **ONE_TRY)
        except NotFound:
            return MISSING
        except Forbidden:
            taken = "its name is taken by another project (--bucket=NAME gives another one)"
            return Look(State.UNKNOWN, why=f"{taken}, or storage.buckets.get is missing")
        if not (self._is_ours(found) or self.installation.bucket):
            return Look(State.UNKNOWN, why=f"project {found.project_number} has it: {_TAKEN}")
        differences = tuple(self._differences(found))
        if not differences:
            return PRESENT
        return Look(State.DIFFERENT, differences, repair=self._repair(differences))

    def create(self) -> None:
        """Create it; names are unique in the world, so another project may have this one."""
        bucket = self.clients.storage.bucket(self.name)
        bucket.iam_configuration.uniform_bucket_level_access_enabled = True
        bucket.iam_configuration.public_access_prevention = "enforced"
        bucket.add_lifecycle_abort_incomplete_multipart_upload_rule(age=_LEFTOVERS_DAYS)
        bucket.add_lifecycle_delete_rule(is_live=False, days_since_noncurrent_time=_LEFTOVERS_DAYS)
        region = self.installation.region
        self.clients.storage.create_bucket(bucket, location=region, **ONE_TRY)

    def _is_ours(self, found: Found) -> bool:
        return str(found.project_number) == self.installation.project_number

    def _differences(self, found: Found) -> Iterator[Difference]:
        if not self._is_ours(found):
            number = self.installation.project_number
            yield Difference("project", found=str(found.project_number), wanted=number)
        if str(found.location).lower() != self.installation.region:
            yield Difference("location", str(found.location).lower(), self.installation.region)
        if not found.iam_configuration.uniform_bucket_level_access_enabled:
            yield Difference("uniform access", found="off", wanted="on")
        if (prevention := found.iam_configuration.public_access_prevention) != "enforced":
            yield Difference("public access prevention", str(prevention), wanted="enforced")
        if any(map(_deletes_live_files, found.lifecycle_rules)):
            yield Difference("lifecycle", found="deletes files of live runs", wanted="does not")

    def _repair(self, differences: tuple[Difference, ...]) -> str:
        options: Mapping[str, str] = {
            "uniform access": "--uniform-bucket-level-access",
            "public access prevention": "--public-access-prevention",
        }
        fields = [difference.field for difference in differences]
        if given := [options[field] for field in fields if field in options]:
            return f"gcloud storage buckets update gs://{self.name} {' '.join(given)}"
        if "lifecycle" in fields:
            return f"gcloud storage buckets describe gs://{self.name} --format='json(lifecycle)'"
        return ""


def _deletes_live_files(rule: Mapping[str, Any]) -> bool:
    """Return whether a rule deletes objects that are current.

    Leasehold deletes unneeded files itself; a run may need its files for months.
    """
    condition = rule.get("condition", {})
    about_old = {"isLive": False}.items() <= condition.items()
    counts_old = condition.keys() & {"daysSinceNoncurrentTime", "noncurrentTimeBefore"}
    counts_old |= {"numNewerVersions"} & condition.keys()
    deletes = rule.get("action", {}).get("type") == "Delete"
    return deletes and not about_old and not counts_old
