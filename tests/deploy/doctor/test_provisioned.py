"""What provisioning makes, and a deploy by the table: the doctor finds nothing wrong with it."""

from __future__ import annotations

from google.cloud import run_v2

from leasehold.bootstrap import load_catalog
from leasehold.deploy.environment import environment_of
from leasehold.doctor.installation import examine_installation
from leasehold.doctor.setup import Setup, lenient_settings
from leasehold.google_clients.clients import ONE_TRY
from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.functions import FunctionEntry
from tests.deploy.cloud import REGION, Cloud
from tests.deploy.doctor.installed import environment_of as environment_of_service
from tests.deploy.doctor.installed import secret_variables
from tests.deploy.google_services.firestore import FirestoreAdmin
from tests.deploy.google_services.run import CloudRun
from tests.deploy.google_services.secrets import Secrets
from tests.deploy.test_event_subscription import deploy as deploy_subscription


def deploy(cloud: Cloud, entry: FunctionEntry) -> None:
    place = cloud.installation
    variables = environment_of(entry, place, load_catalog("tests.deploy.catalog"))
    env = [run_v2.EnvVar(name=name, value=value) for name, value in variables.items()]
    env += secret_variables(entry.secrets)
    template = run_v2.RevisionTemplate(
        timeout=entry.timeout,
        max_instance_request_concurrency=entry.concurrency,
        service_account=place.email_of(entry.account),
        containers=[run_v2.Container(env=env)],
        execution_environment=environment_of_service(entry),
    )
    cloud.server.service(CloudRun).deploy(REGION, entry.service, template=template)


def sign_in(cloud: Cloud) -> None:
    """Have the subscription sign in, as Eventarc has it."""
    place = cloud.installation
    account = place.email_of(place.event_account)
    push = {"push_endpoint": "https://x.example", "oidc_token": {"service_account_email": account}}
    names = cloud.clients.publisher.list_topic_subscriptions({"topic": place.topic_name}, **ONE_TRY)
    for name in names:
        changed = {"subscription": name, "push_config": push}
        cloud.clients.subscriber.modify_push_config(changed, **ONE_TRY)


def test_nothing_is_found_in_what_was_provisioned(cloud: Cloud) -> None:
    assert cloud.provision("apply").code == 0
    for entry in FUNCTIONS:
        deploy(cloud, entry)
    deploy_subscription(cloud)
    sign_in(cloud)
    assert cloud.provision("apply").code == 0
    catalog = load_catalog("tests.deploy.catalog")
    for secret in FUNCTIONS.secrets_with(catalog):
        cloud.server.service(Secrets).give(secret.variable)
    cloud.server.service(FirestoreAdmin).build()
    cloud.forget()
    setup = Setup(cloud.environ, lenient_settings({}), catalog)

    found = examine_installation(setup, cloud.project, REGION)

    assert [one.sentence for one in found] == []
    assert cloud.writes() == []
