"""Cloud Function deliver-notification: tells one channel of what happened to a run.

Called by: Pub/Sub (a push subscription, or an Eventarc trigger with retries), with an OIDC token.
Body:      a CloudEvent of Pub/Sub; its message says which delivery is due (docs/notifications.md).
Answers:   200 the channel got it, or the time of the next try is known; or the message is none
           that anything could be done for: the log says why.
           401, 403 the caller is not one of LEASEHOLD_CALLERS.
           500 the store is away, or this instance ends: Pub/Sub delivers the message again.
Settings:  docs/settings.md.
Story:     leasehold.services.deliver_notification.
"""

import functions_framework
from cloudevents.http import CloudEvent

from leasehold.web.deliver_notification import answer_event, answer_failure
from leasehold.web.engine_provider import EngineProvider

provider = EngineProvider()  # a wrong setting or catalog fails here, at cold start


@functions_framework.cloud_event
def deliver_notification(event: CloudEvent) -> None:
    """Announce what the message says is due."""
    answer_event(provider, event)


functions_framework.errorhandler(Exception)(answer_failure)
