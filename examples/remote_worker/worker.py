"""A worker for the step `summarise`, with nothing but Python's standard library.

It claims a step, renews its lease from a thread, keeps a checkpoint after each document, stores a
file, and completes. Take it as a model for a worker in your language: docs/remote-workers.md.

    python examples/remote_worker/worker.py --url http://127.0.0.1:PORT
"""

import argparse
import base64
import itertools
import json
import os
import re
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from datetime import UTC, datetime
from typing import Any

STEP = "summarise"
#: How often a call is made that gets no answer, or 503. Any call may be repeated: a repeated
#: settlement gets its first answer.
TRIES = 9
SERVER_ERROR = 500
#: Seconds between two tries, at most.
LONGEST_WAIT = 2.0


class RefusedError(Exception):
    """The API answered with an error: `code` is for the program, `message` for people."""

    def __init__(self, status: int, error: dict[str, Any]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.status = status
        self.code = error["code"]


class UnreachableError(Exception):
    """The API does not answer, even after retries."""


class StoppedError(Exception):
    """The work ended before it was done: a signal, or the lease is another worker's."""


def say(text: str) -> None:
    """Print a line for people."""
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", flush=True)


def wait_before(number: int) -> float:
    """Return how many seconds to wait before this try, of which the first is 0."""
    return min(0.1 * 2 ** min(number, 10), LONGEST_WAIT) if number else 0.0


class Leases:
    """The API of leases."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def call(self, word: str, body: dict[str, Any], tries: int = TRIES) -> dict[str, Any]:
        """Make a call, and repeat it if nothing answers; return its answer."""
        problem: Exception | None = None
        for number in range(tries):
            time.sleep(wait_before(number))
            try:
                return self._call(word, body)
            except RefusedError as refused:
                if refused.status < SERVER_ERROR:
                    raise
                problem = refused
            except OSError as error:
                problem = error
        raise UnreachableError(f"{self.url} does not answer: {problem}")

    def _call(self, word: str, body: dict[str, Any]) -> dict[str, Any]:
        data = json.dumps(body, ensure_ascii=False).encode()
        request = urllib.request.Request(f"{self.url}/leases:{word}", data, method="POST")
        request.add_header("Content-Type", "application/json")
        if token := os.environ.get("LEASEHOLD_TOKEN"):  # not for the server of a redirect
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                loaded: dict[str, Any] = json.load(answer)
                return loaded
        except urllib.error.HTTPError as error:
            raise RefusedError(error.code, _error_of(error)) from None


def _error_of(answer: urllib.error.HTTPError) -> dict[str, Any]:
    text = answer.read()
    try:
        error: dict[str, Any] = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):  # a proxy in between answered
        return {"code": f"http_{answer.code}", "message": text[:200].decode(errors="replace")}
    return error


class HeldStep:
    """A step under a lease of this worker, renewed by a thread for as long as it is worked on."""

    def __init__(self, leases: Leases, step: dict[str, Any], stop: threading.Event) -> None:
        self.step = step
        self.progress: dict[str, Any] | None = None
        self.lost = False
        self._leases = leases
        self._stop = stop
        self._over = threading.Event()
        self._turn = threading.Lock()  # else a renewal could come after the settlement
        self._credentials = {name: step[name] for name in ("runId", "leaseId", "fencingToken")}
        self._note(step)
        self._renewing = threading.Thread(target=self._renew, daemon=True)
        if step["heartbeatS"] is not None:  # else the lease is as long as it can be
            self._renewing.start()

    def pause(self, seconds: float) -> None:
        """Wait, and raise StoppedError where the work is to end."""
        if self._stop.wait(seconds) or self.lost:
            raise StoppedError

    def checkpoint(self, count: int, results: Any) -> None:
        """Keep the results so far, for the next attempt of the step."""
        self._call("checkpoint", iterationCount=count, partialResults=results)

    def put_file(self, name: str, data: bytes) -> None:
        """Store a file of the run; `leasehold files RUN` lists it."""
        self._call("putFile", name=name, content=base64.b64encode(data).decode())

    def settle(self, word: str, **body: Any) -> None:
        """End the work: `complete`, `fail` or `release`.

        A complete result is paid for, so it is sent until a server answers or the worker is
        stopped. The lease is renewed meanwhile. The first answer may have been lost, so the result
        is sent after the loss of the lease, too.
        """
        try:
            if word == "complete":
                say(f"{word}: {self._completed(body)}")
            elif not self.lost:
                with self._turn:
                    self._over.set()
                    say(f"{word}: {self._call(word, **body)['outcome']}")
        except StoppedError:
            pass  # it is lost, and that was printed
        finally:
            self._over.set()
            if self._renewing.is_alive():
                self._renewing.join()

    def _completed(self, body: dict[str, Any]) -> str:
        for number in itertools.count(1):
            try:
                with self._turn:
                    outcome: str = self._call("complete", tries=1, **body)["outcome"]
                    self._over.set()
                    return outcome
            except UnreachableError as error:
                say(f"not completed yet: {error}")
                if self._stop.wait(wait_before(number)):
                    raise
        raise AssertionError

    def _call(self, word: str, *, tries: int = TRIES, **body: Any) -> dict[str, Any]:
        try:
            answer = self._leases.call(word, {**self._credentials, **body}, tries)
        except RefusedError as refused:
            if refused.code == "lease_lost":
                if not self.lost:
                    say(f"lease lost: {refused}")
                self.lost = True
                raise StoppedError from None
            raise
        self._note(answer)
        return answer

    def _renew(self) -> None:
        """Renew at a third of the time that is left, and no later than the step asks for.

        A renewal that gets no answer is repeated at a third of the remaining time; when nothing is
        left the lease may be another worker's.
        """
        while not self._over.wait(min(max(0.1, self._left() / 3), self.step["heartbeatS"])):
            progress = {} if self.progress is None else {"progress": self.progress}
            try:
                with self._turn:
                    if self._over.is_set():
                        return
                    self._call("renew", tries=1, **progress)
                say(f"renewed until {self._expires_at:%H:%M:%S}")
            except StoppedError:
                return
            except (RefusedError, UnreachableError) as error:
                say(f"not renewed: {error}")
                if self._left() <= 0:
                    self.lost = True
                    say("lease lost: its time is over")
                    return

    def _note(self, answer: dict[str, Any]) -> None:
        if "expiresAt" in answer:
            self._expires_at = datetime.fromisoformat(answer["expiresAt"])

    def _left(self) -> float:
        return (self._expires_at - datetime.now(UTC)).total_seconds()


def summarise(held: HeldStep, slow: float) -> dict[str, Any]:
    """Summarise each document, from where an earlier worker left it; keep each summary."""
    documents = held.step["given"]["documents"]
    done: list[Any] = []
    if resume := held.step["resume"]:
        done = list(resume["partialResults"])
        say(f"resuming after {len(done)} of {len(documents)} documents")
    for document in documents[len(done) :]:
        held.pause(slow)
        done.append({"name": document["name"], "sentences": most_telling(document["text"])})
        held.checkpoint(len(done), done)
        share = len(done) / len(documents)
        held.progress = {"fraction": share, "message": document["name"]}
        say(f"checkpoint {len(done)} of {len(documents)}: {document['name']}")
    held.put_file("summaries.json", json.dumps(done, indent=2).encode())
    return {"summaries": done}


def most_telling(text: str, how_many: int = 2) -> list[str]:
    """Return the sentences whose words are the most frequent ones, in their order."""
    prose = " ".join(line for line in text.splitlines() if re.match(r"[A-Z]", line))
    sentences = re.findall(r"[^.!?]+[.!?](?=\s|$)", prose)
    count = Counter(re.findall(r"[a-z]{4,}", prose.lower()))

    def weight(sentence: str) -> float:
        words = re.findall(r"[a-z]{4,}", sentence.lower())
        return sum(count[word] for word in words) / (len(words) + 5)

    chosen = sorted(sentences, key=weight, reverse=True)[:how_many]
    return [sentence.strip() for sentence in sentences if sentence in chosen][:how_many]


def run_step(held: HeldStep, slow: float) -> None:
    """Do the step and report its output, or whatever goes wrong."""
    try:
        output = summarise(held, slow)
        held.settle("complete", output=output)
    except StoppedError:
        held.settle("release")
    except UnreachableError:
        raise  # the lease ends by itself, and another worker continues
    except Exception as error:
        kind = type(error).__name__
        held.settle("fail", error={"type": kind, "message": str(error) or kind})


def main() -> int:
    """Claim steps and run them until a signal stops it."""
    parser = argparse.ArgumentParser(description="Runs the step `summarise`.")
    parser.add_argument("--url", required=True, help="of manage_lease: `leasehold dev` prints it")
    parser.add_argument("--holder", default=f"{socket.gethostname()} {os.getpid()}")
    parser.add_argument("--once", action="store_true", help="exit after one claim")
    parser.add_argument("--every", type=float, default=2, help="seconds between claims")
    parser.add_argument("--slow", type=float, default=0, help="extra seconds for each document")
    options = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    leases = Leases(options.url)
    while not stop.is_set():
        step, code = None, 0
        try:
            if step := claim(leases, options.holder):
                run_step(HeldStep(leases, step, stop), options.slow)
        except UnreachableError as error:  # it may come back
            say(f"error: {error}")
            code = 1
        except RefusedError as error:  # as a server that is older, or newer, may do in a deploy
            say(f"error: {error}")
            code = 1
        if options.once:
            return code
        if step is None or code:
            stop.wait(options.every)
    return 0


def claim(leases: Leases, holder: str) -> dict[str, Any] | None:
    """Return a step and its lease; None if no step waits."""
    try:
        # once: a claim whose answer was lost gave a lease that has to run out
        step = leases.call("claim", {"stepType": STEP, "holder": holder}, tries=1)
    except RefusedError as refused:
        if refused.code != "nothing_to_claim":
            raise
        say("nothing to claim")
        return None
    until = datetime.fromisoformat(step["expiresAt"])
    say(f"claimed {step['runId']}, attempt {step['attempt']}, until {until:%H:%M:%S}")
    return step


if __name__ == "__main__":
    sys.exit(main())
