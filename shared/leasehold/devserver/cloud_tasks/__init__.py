"""The stand-in for the Cloud Tasks service: what the official client sees of it over REST.

The way of a task through it:

1. `server` accepts the connection and hands the request to the route that matches it (`routes`).
2. The route reads the JSON strictly (`request`) into an `HttpTask` (`parsers`, `task`).
3. `queues` adds it to its `queue` together with the fault that was ordered for it (`faults`), and
   wakes the dispatcher; the route answers with the task as JSON (`serializers`), or with an error
   in the format of Google's APIs (`api_errors`).
4. The `dispatcher` takes each delivery that is due from the queues, which keep the schedule, the
   rate and the number at once, and makes it in a thread (`http_client`).
5. The queue gets the result: the task is done, or it is scheduled again after a backoff.

`task`, `faults` and `queue` are pure: no threads, and time comes in as a value.
"""

from leasehold.devserver.cloud_tasks.faults import Fault, Faults, FiredFault
from leasehold.devserver.cloud_tasks.queue import QueueSettings, RateLimits
from leasehold.devserver.cloud_tasks.server import CloudTasksDouble
from leasehold.devserver.cloud_tasks.task import HttpTask, RetryConfig

__all__ = [
    "CloudTasksDouble",
    "Fault",
    "Faults",
    "FiredFault",
    "HttpTask",
    "QueueSettings",
    "RateLimits",
    "RetryConfig",
]
