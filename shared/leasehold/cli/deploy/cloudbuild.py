"""The build that deploys a project: `cloudbuild.yaml`, as it follows from `deployment.py`.

Where the folder has a `cloudbuild.gate.yaml`, that one is run first, as its own build and as
an account that may deploy nothing: what tests bring along runs where it can do no harm.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from leasehold import deploy
from leasehold.cli.deploy.live_runs import live_runs
from leasehold.cli.deploy.smoke import smoke
from leasehold.deploy.permissions import BUILDER, DEPLOYER
from leasehold.deploy.tables import Tables
from leasehold.frozen import dataclass
from leasehold.registry.extras import require_extra
from leasehold.registry.functions import FunctionEntry, Trigger, Use

FILE: Final = "cloudbuild.yaml"
GATE_FILE: Final = "cloudbuild.gate.yaml"
#: What a build installs; pip reads it in the folder of the project.
REQUIREMENTS: Final = "requirements.txt"
#: The images of the builds, each with the digest of its tag.
IMAGES: Final = Path(deploy.__file__).with_name("images.txt")


def pinned(image: str) -> str:
    """Return an image with the digest that is written down for its tag."""
    lines = IMAGES.read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith(f"{image}@"))


#: What a build runs is what the functions run on.
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
REGION: Final = "europe-west1"
#: What an option is called where its own name says too little.
_NAMES: Final[Mapping[str, str]] = {"pipeline": "SMOKE_PIPELINE", "text": "SMOKE_INPUT"}

#: What a build gets by default Google does not promise.
#: https://cloud.google.com/build/docs/optimize-builds/increase-vcpu-for-builds
MACHINE: Final = "E2_HIGHCPU_8"

#: A gate takes minutes, and so does the build of an image that each deploy waits for.
BUILD_TIMEOUT_S: Final = 6600
GATE_TIMEOUT_S: Final = 3000
DEPLOY_TIMEOUT_S: Final = 1800
UPDATE_TIMEOUT_S: Final = 300
SMOKE_TIMEOUT_S: Final = 900

#: Where a gcloud command of the build is about something.
_PLACE: Final = ("--quiet", "--project=$PROJECT_ID", "--region=${_REGION}")

#: The build compiles the bundle (`python3 -m compileall`), and gives the files of the image another
#: time (1980) afterwards: byte code that is valid for a time would be compiled again at each cold
#: start. Where this variable is set, compileall makes byte code that is valid for a source's hash.
BUILD_ENVIRONMENT: Final[Mapping[str, str]] = {"SOURCE_DATE_EPOCH": "315532800"}

BUNDLE: Final = "build/bundle"
SETTINGS: Final = "build/settings"

#: A file that begins otherwise was written by the user.
HEADER: Final = "# Generated from deployment.py by `leasehold deploy init`.\n"

#: With what each folder needs, as that of the pipelines: the bundle pins what is installed.
_INSTALL: Final = f"""\
set -eu
python -m venv .venv
set -- -r {REQUIREMENTS}
for file in */{REQUIREMENTS}; do if [ -f "$$file" ]; then set -- "$$@" -r "$$file"; fi; done
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile "$$@"
"""

Step = dict[str, Any]


def build(tables: Tables, *, has_gate: bool = False) -> dict[str, Any]:
    """Return the build, as Cloud Build reads it.

    Args:
        tables: what is deployed.
        has_gate: whether it waits for the build of `cloudbuild.gate.yaml` first.
    """
    return {
        "steps": list(_steps(tables, has_gate=has_gate)),
        "substitutions": {each.name: each.default for each in substitutions(tables)},
        "serviceAccount": f"projects/$PROJECT_ID/serviceAccounts/{_email(DEPLOYER)}",
        "options": {"logging": "CLOUD_LOGGING_ONLY", "machineType": MACHINE},
        "timeout": _seconds(BUILD_TIMEOUT_S),
    }


def _steps(tables: Tables, *, has_gate: bool) -> Iterator[Step]:
    deploys = [step for function in tables.functions for step in _deployment(function)]
    if has_gate:
        yield _gate()
    yield {
        "id": "install",
        "name": PYTHON_IMAGE,
        "entrypoint": "bash",
        "args": ["-c", _INSTALL],
        "waitFor": ["gate" if has_gate else "-"],
    }
    yield _leasehold("bundle", ["bundle", f"--out={BUNDLE}"], tables, after=["install"])
    yield _leasehold("live-runs", ["live-runs"], tables, after=["bundle"])
    words = ["apply", "--before-deploy"]
    yield _leasehold("provision", words, tables, after=["live-runs"])
    write = ["settings", f"--folder={SETTINGS}"]
    yield _leasehold("settings", write, tables, after=["provision"])
    yield from deploys
    yield _leasehold("connect", ["apply"], tables, after=[step["id"] for step in deploys])
    test = _leasehold("smoke", ["smoke"], tables, after=["connect"])
    yield test | {"timeout": _seconds(SMOKE_TIMEOUT_S)}


def _gate() -> Step:
    """Return the step that has the gate run, as its own build, and waits for its end."""
    words = ["builds", "submit", ".", f"--config={GATE_FILE}", "--quiet"]
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


def _leasehold(name: str, words: list[str], tables: Tables, *, after: list[str]) -> Step:
    """Return a step that runs `leasehold deploy`."""
    return {
        "id": name,
        "name": PYTHON_IMAGE,
        "entrypoint": ".venv/bin/leasehold",
        "args": ["deploy", *words],
        "env": _environment(tables),
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
        yield "--clear-secrets"  # what was set by hand does not stay
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
    yield "--no-allow-unauthenticated"  # removes a public permission
    yield f"--ingress-settings={'all' if function.trigger.is_by_users else 'internal-only'}"


@dataclass(frozen=True, slots=True)
class Substitution:
    """An option of a build.

    Args:
        name: `_REGION`.
        variable: the variable that an option is read from.
        default: what holds where it is not chosen; empty: the option's own.
        meaning: what it is, in words.
    """

    name: str
    variable: str
    default: str
    meaning: str


def substitutions(tables: Tables) -> Iterator[Substitution]:
    """Yield them: all options of the commands but for those that the build knows."""
    pipeline, given = tables.smoke or ("", {})
    defaults = {"region": REGION, "pipeline": pipeline, "text": json.dumps(given)}
    for name, option in _options().items():
        if name not in _KNOWN:
            default = option.default if isinstance(option.default, str) else ""
            yield Substitution(
                f"_{_NAMES.get(name, name.upper())}",
                str(option.envvar),
                defaults.get(name, default),
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


def _environment(tables: Tables) -> list[str]:
    """Return what says to the commands where the bundle is installed."""
    by_name = _options()
    return [
        *(f"{by_name[name].envvar}={value}" for name, value in _KNOWN.items()),
        "LEASEHOLD_BUILD=$BUILD_ID",
        *(f"{each.variable}=${{{each.name}}}" for each in substitutions(tables)),
    ]


def _joined(variables: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in variables.items())


def _email(account: str) -> str:
    return f"{account}@$PROJECT_ID.iam.gserviceaccount.com"


def _seconds(number: int) -> str:
    return f"{number}s"


def text(of: Mapping[str, Any]) -> str:
    """Return a build as a file."""
    require_extra("deploy", "cloudbuild.yaml")
    import yaml  # noqa: PLC0415 - of an extra

    class Dumper(yaml.SafeDumper):
        """Writes texts of several lines as such."""

    Dumper.add_representer(
        str,
        lambda dumper, value: dumper.represent_scalar(
            "tag:yaml.org,2002:str", value, style="|" if "\n" in value else None
        ),
    )
    return HEADER + yaml.dump(of, Dumper=Dumper, sort_keys=False, width=1000)
