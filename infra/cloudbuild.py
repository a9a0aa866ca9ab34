"""Generates the builds: `cloudbuild.yaml` deploys the bundle, from the table of functions.

It starts `cloudbuild.gate.yaml` first, which runs the gate as an account that may deploy nothing:
what the tests bring along runs where it can do no harm. `python -m infra.cloudbuild` writes both;
`--check` writes nothing, and exits 1 if one is stale.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from infra.bundle.build_environment import BUILD_ENVIRONMENT
from infra.deployer import BUILDER, DEPLOYER, GATE
from infra.functions import FUNCTIONS
from infra.images import pinned
from infra.live_runs import program as live_runs
from infra.smoke import program as smoke
from leasehold.registry.functions import FunctionEntry, Trigger, Use

FILE: Final = Path(__file__).parents[1] / "cloudbuild.yaml"
GATE_FILE: Final = FILE.with_name("cloudbuild.gate.yaml")
FILES: Final = (FILE, GATE_FILE)

#: What runs the gate is what the functions run on. On 3.13 the tests of stores that stay open until
#: their process ends are warned of, and fail.
PYTHON: Final = "3.11"
RUNTIME: Final = f"python{PYTHON.replace('.', '')}"
PYTHON_IMAGE: Final = pinned(f"python:{PYTHON}")
#: It has the emulators as well, so one image does for both.
GCLOUD_IMAGE: Final = pinned("gcr.io/google.com/cloudsdktool/google-cloud-cli:emulators")

#: What the build itself knows of an installation, by the name of the option.
_KNOWN: Final[Mapping[str, str]] = {
    "project": "$PROJECT_ID",
    "project_number": "$PROJECT_NUMBER",
}
#: Where a build has another default than the command.
DEFAULTS: Final[Mapping[str, str]] = {
    "region": "europe-west1",
    "pipeline": "review",
    "text": '{"folder": "pipelines/review/sample"}',
}
#: What an option is called where its own name says too little.
_NAMES: Final[Mapping[str, str]] = {"pipeline": "SMOKE_PIPELINE", "text": "SMOKE_INPUT"}

#: What a build gets by default Google does not promise; the gate needs 2 CPUs and 4 GB at least.
#: https://cloud.google.com/build/docs/optimize-builds/increase-vcpu-for-builds
MACHINE: Final = "E2_HIGHCPU_8"

#: The gate takes minutes, and so does the build of an image that each deploy waits for.
TIMEOUT_S: Final = 6600
CHECK_TIMEOUT_S: Final = 2400
GATE_TIMEOUT_S: Final = 3000
DEPLOY_TIMEOUT_S: Final = 1800
UPDATE_TIMEOUT_S: Final = 300
SMOKE_TIMEOUT_S: Final = 900

#: Where a gcloud command of the build is about something.
_PLACE: Final = ("--quiet", "--project=$PROJECT_ID", "--region=${_REGION}")

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
make check
"""

Step = dict[str, Any]


def build() -> dict[str, Any]:
    """Return the build, as Cloud Build reads it."""
    return {
        "steps": list(_steps()),
        "substitutions": {each.name: each.default for each in substitutions()},
        "serviceAccount": f"projects/$PROJECT_ID/serviceAccounts/{_email(DEPLOYER)}",
        "options": {"logging": "CLOUD_LOGGING_ONLY", "machineType": MACHINE},
        "timeout": _seconds(TIMEOUT_S),
    }


def gate() -> dict[str, Any]:
    """Return the build that tests what another one deploys."""
    emulators = _shell("emulators", GCLOUD_IMAGE, _TAKE_EMULATORS, after=["-"])
    return {
        "steps": [emulators, _check()],
        "serviceAccount": f"projects/$PROJECT_ID/serviceAccounts/{_email(GATE)}",
        "options": {"logging": "CLOUD_LOGGING_ONLY", "machineType": MACHINE},
        "timeout": _seconds(GATE_TIMEOUT_S),
    }


def _steps() -> Iterator[Step]:
    deploys = [step for function in FUNCTIONS for step in _deployment(function)]
    yield _gate()
    yield _shell("install", PYTHON_IMAGE, "make .venv/.deploy", after=["gate"])
    yield _python("bundle", ["infra.bundle", f"--out={BUNDLE}"], after=["install"])
    yield _python("live-runs", ["infra.live_runs"], after=["bundle"])
    words = ["infra.provision", "apply", "--before-deploy"]
    yield _python("provision", words, after=["live-runs"])
    write = ["infra.write_settings", f"--folder={SETTINGS}"]
    yield _python("settings", write, after=["provision"])
    yield from deploys
    yield _python("connect", ["infra.provision", "apply"], after=[step["id"] for step in deploys])
    test = _python("smoke", ["infra.smoke"], after=["connect"])
    yield test | {"timeout": _seconds(SMOKE_TIMEOUT_S)}


def _shell(name: str, image: str, script: str, *, after: list[str]) -> Step:
    return {
        "id": name,
        "name": image,
        "entrypoint": "bash",
        "args": ["-c", script],
        "waitFor": after,
    }


def _gate() -> Step:
    """Return the step that has the gate run, as a build of its own, and waits for its end."""
    words = ["builds", "submit", ".", f"--config={GATE_FILE.name}", "--quiet"]
    words += ["--project=$PROJECT_ID", "--region=$LOCATION"]
    words += ["--gcs-source-staging-dir=gs://$PROJECT_ID-leasehold-builds/gate"]
    return {
        "id": "gate",
        "name": GCLOUD_IMAGE,
        "entrypoint": "gcloud",
        "args": words,
        "waitFor": ["-"],
        "timeout": _seconds(GATE_TIMEOUT_S),
    }


def _check() -> Step:
    required = ["LEASEHOLD_REQUIRE_EMULATORS=1", "LEASEHOLD_REQUIRE_AUDIT=1"]
    required.append("LEASEHOLD_AUDIT=runtime")
    return _shell("check", PYTHON_IMAGE, _CHECK, after=["emulators"]) | {
        "env": [f"CLOUDSDK_ROOT_DIR=/workspace/{_SDK}", *required],
        "timeout": _seconds(CHECK_TIMEOUT_S),
    }


def _python(name: str, words: list[str], *, after: list[str]) -> Step:
    """Return a step that runs a module, with the packages that a deploy needs and no others."""
    return {
        "id": name,
        "name": PYTHON_IMAGE,
        "entrypoint": ".venv/bin/python",
        "args": ["-m", *words],
        "env": _environment(),
        "waitFor": after,
    }


def _deployment(function: FunctionEntry) -> Iterator[Step]:
    """Yield the deploy of a function, and the choice of what `functions deploy` has no flag for.

    That choice may fail, with a line in the log: the function runs without it, and the doctor says
    that it is missing.
    """
    name = f"deploy-{function.service}"
    words = ["functions", "deploy", function.service, *_flags(function)]
    yield _gcloud(name, words, "settings", DEPLOY_TIMEOUT_S)
    if function.environment:
        flag = f"--execution-environment={function.environment}"
        words = ["run", "services", "update", function.service, *_PLACE, flag]
        step = _gcloud(f"environment-{function.service}", words, name, UPDATE_TIMEOUT_S)
        yield step | {"allowFailure": True}


def _gcloud(name: str, words: list[str], after: str, timeout_s: int) -> Step:
    return {
        "id": name,
        "name": GCLOUD_IMAGE,
        "entrypoint": "gcloud",
        "args": words,
        "waitFor": [after],
        "timeout": _seconds(timeout_s),
    }


def _flags(function: FunctionEntry) -> Iterator[str]:
    yield from ("--gen2", *_PLACE)
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
    yield f"--set-build-env-vars={_joined(BUILD_ENVIRONMENT)}"
    if Use.CHANNELS in function.uses:
        yield f"--flags-file={SETTINGS}/{function.service}.secrets.yaml"
    elif function.secrets:
        yield f"--set-secrets={','.join(secret.reference for secret in function.secrets)}"
    else:
        yield "--clear-secrets"  # what somebody has set by hand does not stay
    yield f"--run-service-account={_email(function.account)}"
    yield f"--build-service-account=projects/$PROJECT_ID/serviceAccounts/{_email(BUILDER)}"
    yield "--serve-all-traffic-latest-revision"  # also after traffic was sent to an older one


def _trigger(function: FunctionEntry) -> Iterator[str]:
    """Yield what calls it, and from where it can be reached at all."""
    if function.trigger is Trigger.EVENTS:
        account = _email(function.trigger.account)
        yield from ("--trigger-topic=${_TOPIC}", "--retry", f"--trigger-service-account={account}")
    else:
        yield "--trigger-http"
    yield "--no-allow-unauthenticated"  # takes away what somebody gave the public
    yield f"--ingress-settings={'all' if function.trigger.is_by_users else 'internal-only'}"


@dataclass(frozen=True, slots=True)
class Substitution:
    """What may be chosen for a build.

    Args:
        name: `_REGION`.
        variable: the variable that an option of infra/ is read from.
        default: what holds where it is not chosen; empty: the option's own.
        meaning: what it is, in words.
    """

    name: str
    variable: str
    default: str
    meaning: str


def substitutions() -> Iterator[Substitution]:
    """Yield them: all options of the programs but for those that the build knows."""
    for name, option in _options().items():
        if name not in _KNOWN:
            default = option.default if isinstance(option.default, str) else ""
            yield Substitution(
                f"_{_NAMES.get(name, name.upper())}",
                str(option.envvar),
                DEFAULTS.get(name, default),
                option.help or "",
            )


def _options() -> Mapping[str, click.Option]:
    """Return the options that have a variable, by name: an installation's, and a program's own."""
    every = (*live_runs.params, *smoke.params)
    return {
        str(option.name): option
        for option in every
        if isinstance(option, click.Option) and isinstance(option.envvar, str)
    }


def _environment() -> list[str]:
    """Return what says to the programs of infra/ where the bundle is installed."""
    by_name = _options()
    return [
        *(f"{by_name[name].envvar}={value}" for name, value in _KNOWN.items()),
        "LEASEHOLD_BUILD=$BUILD_ID",
        *(f"{each.variable}=${{{each.name}}}" for each in substitutions()),
    ]


def _joined(variables: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in variables.items())


def _email(account: str) -> str:
    return f"{account}@$PROJECT_ID.iam.gserviceaccount.com"


def _seconds(number: int) -> str:
    return f"{number}s"


def texts() -> Mapping[Path, str]:
    """Return what each file should have."""
    return {FILE: text(build()), GATE_FILE: text(gate())}


def text(of: Mapping[str, Any]) -> str:
    """Return a build as a file."""
    import yaml  # noqa: PLC0415 - a development package, which nothing that is deployed has

    class Dumper(yaml.SafeDumper):
        """Writes texts of several lines as such."""

    Dumper.add_representer(
        str,
        lambda dumper, value: dumper.represent_scalar(
            "tag:yaml.org,2002:str", value, style="|" if "\n" in value else None
        ),
    )
    return _HEADER + yaml.dump(of, Dumper=Dumper, sort_keys=False, width=1000)


def main(given: Sequence[str] | None = None) -> int:
    """Write the file, or compare it; return the exit code."""
    words = argparse.ArgumentParser(prog="python -m infra.cloudbuild", allow_abbrev=False)
    words.description = "Write cloudbuild.yaml and cloudbuild.gate.yaml, which follow from tables."
    words.add_argument("--check", action="store_true", help="write nothing; exit 1 if it is stale")
    options = words.parse_args(given)
    for file, wanted in texts().items():
        if not options.check:
            file.write_text(wanted, encoding="utf-8")
        elif not file.is_file() or file.read_text(encoding="utf-8") != wanted:
            sys.stderr.write(f"{file.name} is stale; write it: python -m infra.cloudbuild\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
