"""Generates `cloudbuild.yaml`, the build that deploys the bundle, from the table of functions.

`python -m infra.cloudbuild` writes it; `--check` writes nothing, and exits 1 if it is stale.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from infra.deployer import BUILDER, DEPLOYER
from infra.functions import FUNCTIONS
from leasehold.registry.functions import FunctionEntry, Trigger, Use

FILE: Final = Path(__file__).parents[1] / "cloudbuild.yaml"

#: What runs the gate is what the functions run on.
PYTHON: Final = "3.13"
RUNTIME: Final = f"python{PYTHON.replace('.', '')}"
PYTHON_IMAGE: Final = f"python:{PYTHON}"
GCLOUD_IMAGE: Final = "gcr.io/google.com/cloudsdktool/google-cloud-cli:slim"
EMULATORS_IMAGE: Final = "gcr.io/google.com/cloudsdktool/google-cloud-cli:emulators"

#: What may be chosen for a build, and what it is otherwise: as the options of infra/options.py.
SUBSTITUTIONS: Final[Mapping[str, str]] = {
    "_REGION": "europe-west1",
    "_DATABASE": "(default)",
    "_BUCKET": "",  # PROJECT-leasehold
    "_TOPIC": "leasehold-announcements",
    "_CATALOG": "pipelines.catalog",
    "_RETENTION_DAYS": "",  # ended runs are kept
    "_ALERT_EMAIL": "",  # nobody is told of alerts
    "_CALLERS": "",  # with commas between them; who may call the API
    "_WORKERS": "",  # who may call manage-lease
    "_SMOKE_PIPELINE": "review",
    "_SMOKE_INPUT": '{"folder": "pipelines/review/sample"}',
}

#: The gate takes minutes, and so does the build of an image that each deploy waits for.
TIMEOUT_S: Final = 5400
CHECK_TIMEOUT_S: Final = 2400
DEPLOY_TIMEOUT_S: Final = 1800
SMOKE_TIMEOUT_S: Final = 900

BUNDLE: Final = "build/bundle"
SETTINGS: Final = "build/settings"

_HEADER: Final = """\
# Generated from infra/functions.py by `python -m infra.cloudbuild`; a test compares them.
# What it needs before the first build, and what it does: docs/deploy.md.
"""

#: The gate skips nothing: the emulators come out of Google's image, and Java out of Debian.
_SDK: Final = "build/google-cloud-sdk"
_TAKE_EMULATORS: Final = f"""\
set -eu
mkdir -p {_SDK}
cp -r /google-cloud-sdk/platform /google-cloud-sdk/data {_SDK}
"""
_CHECK: Final = """\
set -eu
apt-get update -qq
apt-get install -qq -y --no-install-recommends default-jre-headless
make check audit
"""

Step = dict[str, Any]


def build() -> dict[str, Any]:
    """Return the build, as Cloud Build reads it."""
    return {
        "steps": list(_steps()),
        "substitutions": dict(SUBSTITUTIONS),
        "serviceAccount": f"projects/$PROJECT_ID/serviceAccounts/{_email(DEPLOYER)}",
        "options": {"logging": "CLOUD_LOGGING_ONLY"},
        "timeout": _seconds(TIMEOUT_S),
    }


def _steps() -> Iterator[Step]:
    deploys = [_deploy(function) for function in FUNCTIONS]
    yield _shell("emulators", EMULATORS_IMAGE, _TAKE_EMULATORS, after=["-"])
    yield _check()
    yield _python("bundle", ["infra.bundle"], after=["check"])
    yield _python("provision", ["infra.provision", "apply", *_place()], after=["bundle"])
    settings = ["infra.environment", f"--folder={SETTINGS}", *_place()]
    yield _python("settings", settings, after=["provision"])
    yield from deploys
    connect = ["infra.provision", "apply", *_place()]
    yield _python("connect", connect, after=[deploy["id"] for deploy in deploys])
    smoke = ["infra.smoke", *_place(), "--pipeline=${_SMOKE_PIPELINE}", "--input=${_SMOKE_INPUT}"]
    yield _python("smoke", smoke, after=["connect"]) | {"timeout": _seconds(SMOKE_TIMEOUT_S)}


def _shell(name: str, image: str, script: str, *, after: list[str]) -> Step:
    return {
        "id": name,
        "name": image,
        "entrypoint": "bash",
        "args": ["-c", script],
        "waitFor": after,
    }


def _check() -> Step:
    required = ["LEASEHOLD_REQUIRE_EMULATORS=1", "LEASEHOLD_REQUIRE_AUDIT=1"]
    return _shell("check", PYTHON_IMAGE, _CHECK, after=["emulators"]) | {
        "env": [f"CLOUDSDK_ROOT_DIR=/workspace/{_SDK}", *required],
        "timeout": _seconds(CHECK_TIMEOUT_S),
    }


def _python(name: str, words: list[str], *, after: list[str]) -> Step:
    """Return a step that runs a module, with the packages that the gate has installed."""
    return {
        "id": name,
        "name": PYTHON_IMAGE,
        "entrypoint": ".venv/bin/python",
        "args": ["-m", *words],
        "waitFor": after,
    }


def _deploy(function: FunctionEntry) -> Step:
    return {
        "id": f"deploy-{function.service}",
        "name": GCLOUD_IMAGE,
        "entrypoint": "gcloud",
        "args": ["functions", "deploy", function.service, *_flags(function)],
        "waitFor": ["settings"],
        "timeout": _seconds(DEPLOY_TIMEOUT_S),
    }


def _flags(function: FunctionEntry) -> Iterator[str]:
    yield from ("--gen2", "--quiet", "--project=$PROJECT_ID", "--region=${_REGION}")
    yield f"--runtime={RUNTIME}"
    yield f"--source={BUNDLE}"
    yield f"--entry-point={function.name}"
    yield from _trigger(function)
    yield f"--timeout={_seconds(int(function.timeout.total_seconds()))}"
    yield f"--memory={function.memory_mib}Mi"
    yield f"--cpu={function.cpu:g}"
    yield f"--concurrency={function.concurrency}"
    yield f"--min-instances={function.min_instances}"
    yield f"--max-instances={function.max_instances}"
    yield f"--env-vars-file={SETTINGS}/{function.service}.yaml"
    if Use.CHANNELS in function.uses:
        yield f"--flags-file={SETTINGS}/{function.service}.secrets.yaml"
    else:
        yield "--clear-secrets"
    yield f"--run-service-account={_email(function.account)}"
    yield f"--build-service-account=projects/$PROJECT_ID/serviceAccounts/{_email(BUILDER)}"
    yield "--serve-all-traffic-latest-revision"  # also after traffic was sent to an older one


def _trigger(function: FunctionEntry) -> Iterator[str]:
    """Yield what calls it, and from where it can be reached at all."""
    if function.trigger is Trigger.EVENTS:
        account = f"{_email('leasehold-events')}"
        yield from ("--trigger-topic=${_TOPIC}", "--retry", f"--trigger-service-account={account}")
    else:
        yield from ("--trigger-http", "--no-allow-unauthenticated")
    from_outside = function.trigger is Trigger.REQUESTS
    yield f"--ingress-settings={'all' if from_outside else 'internal-only'}"


def _place() -> list[str]:
    """Return the options that say where the bundle is installed."""
    return [
        "--project=$PROJECT_ID",
        "--project-number=$PROJECT_NUMBER",
        *(
            f"--{name.strip('_').lower().replace('_', '-')}=${{{name}}}"
            for name in SUBSTITUTIONS
            if not name.startswith("_SMOKE_")
        ),
    ]


def _email(account: str) -> str:
    return f"{account}@$PROJECT_ID.iam.gserviceaccount.com"


def _seconds(number: int) -> str:
    return f"{number}s"


def text() -> str:
    """Return the file."""
    import yaml  # noqa: PLC0415 - a development package, which nothing that is deployed has

    class Dumper(yaml.SafeDumper):
        """Writes texts of several lines as such."""

    Dumper.add_representer(
        str,
        lambda dumper, value: dumper.represent_scalar(
            "tag:yaml.org,2002:str", value, style="|" if "\n" in value else None
        ),
    )
    return _HEADER + yaml.dump(build(), Dumper=Dumper, sort_keys=False, width=1000)


def main() -> int:
    """Write the file, or compare it; return the exit code."""
    wanted = text()
    if sys.argv[1:] == ["--check"]:
        if FILE.read_text(encoding="utf-8") == wanted:
            return 0
        sys.stderr.write("cloudbuild.yaml is stale; write it: python -m infra.cloudbuild\n")
        return 1
    FILE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
