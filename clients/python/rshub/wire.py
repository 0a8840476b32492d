"""Single requests and the meaning of their responses."""

from __future__ import annotations

import contextlib
import email.utils
import http.client
import json
import random
import re
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Dict, Iterator, List, Optional, Tuple

from .errors import Error, GoneError, NotHubError, RefusedError, UnavailableError

STREAM_TIMEOUT = 75.0  # seconds without a byte of an event stream; a hub sends a heartbeat every 30 seconds
TIMEOUT = 30.0  # seconds without a byte of a response, in addition to the wait that the request asks for
FIRST_BACKOFF, MAX_BACKOFF = 0.5, 30.0
MAX_RETRY_AFTER = 3600.0  # seconds of Retry-After that a follower obeys: a wrong clock may ask for years
MAX_RESPONSE = 64 << 20
MAX_DEPTH = 100  # nesting of arrays and objects; responses of a hub need less than ten
OVERHEAD = 64  # bytes of memory that a line of an event uses in addition to its text
_TOO_DEEP = f"the JSON is nested more than {MAX_DEPTH} levels deep"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # an escaped surrogate


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the token must not go to another host, and a POST must not become a GET."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Wire:
    """Sends requests to one hub."""

    def __init__(self, hub: str, token: Optional[str]) -> None:
        self.hub = hub
        self.token = token
        handlers: List[urllib.request.BaseHandler] = [_NoRedirect()]
        if is_local(urllib.parse.urlsplit(hub).hostname or ""):
            handlers.append(urllib.request.ProxyHandler({}))  # a proxy cannot reach a hub on this machine
        self._opener = urllib.request.build_opener(*handlers)

    def request(self, url: str, body: Any, headers: Dict[str, str], wait: float) -> Any:
        """See Client.request."""
        with self._open(url, body, headers, wait, "application/json") as answer:
            try:
                content = _whole(answer)
            except (OSError, http.client.HTTPException) as e:
                raise network_error(self.hub, e) from e
        try:
            return read_json(content)
        except ValueError as e:
            raise NotHubError(f"{url}: got a response that is not valid JSON; check the URL") from e

    def events(self, url: str, headers: Dict[str, str]) -> Iterator[Tuple[str, Any]]:
        """Opens an event stream, and yields the type and the JSON of each event until the stream ends."""
        kind, data, size = "", [], 0
        headers = {"Accept": "text/event-stream, application/problem+json", **headers}
        with self._open(url, None, headers, STREAM_TIMEOUT - TIMEOUT, "text/event-stream") as answer:
            while True:
                try:
                    line = answer.readline(MAX_RESPONSE + 1)
                except (OSError, http.client.HTTPException) as e:
                    raise network_error(self.hub, e) from e
                if not line.endswith(b"\n"):  # end of the stream; an incomplete event is ignored
                    if len(line) > MAX_RESPONSE:
                        raise NotHubError(f"{url}: got an event of more than 64 MiB")
                    return
                name, _, value = line.rstrip(b"\r\n").partition(b":")
                value = value[1:] if value[:1] == b" " else value
                if name == b"event":
                    kind = value.decode(errors="replace")
                elif name == b"data":
                    data.append(value)
                    size += len(value) + OVERHEAD
                    if size > MAX_RESPONSE:
                        raise NotHubError(f"{url}: got an event of more than 64 MiB")
                elif not line.strip():
                    if data:
                        try:
                            read = read_json(b"\n".join(data))
                        except ValueError as e:
                            raise NotHubError(f"{url}: got an event that is not valid JSON") from e
                        yield kind, read
                    kind, data, size = "", [], 0

    @contextlib.contextmanager
    def _open(self, url: str, body: Any, headers: Dict[str, str], wait: float, kind: str) -> Iterator[http.client.HTTPResponse]:
        """Sends a request, and yields the response if its status is 200 and its media type is kind."""
        sent = {"Accept": "application/json, application/problem+json", "User-Agent": "rshub-python"}
        data = None
        if body is not None:
            data = json.dumps(body, ensure_ascii=False).encode()
            sent["Content-Type"] = "application/json"
        if self.token:
            sent["Authorization"] = f"Bearer {self.token}"
        sent.update(headers)
        try:
            answer = self._opener.open(urllib.request.Request(url, data, sent), timeout=TIMEOUT + wait)
        except urllib.error.HTTPError as e:
            with e:
                raise response_error(self.hub, e) from None
        except (OSError, http.client.HTTPException) as e:
            raise network_error(self.hub, e) from e
        with answer:
            if answer.status != 200 or answer.headers.get_content_type() != kind:
                raise NotHubError(f"{url}: got {answer.status} with the type {answer.headers.get_content_type()}, want 200 with {kind}; check the URL")
            yield answer


def is_local(host: str) -> bool:
    """Reports whether a host is this machine."""
    return host in ("localhost", "::1") or host.startswith("127.")


def backoff(tries: int, after: float = 0) -> float:
    """Returns the seconds to wait after tries failures. Half of it is random, so that clients that failed together do
    not return together."""
    longest = min(MAX_BACKOFF, FIRST_BACKOFF * 2.0 ** min(tries, 10))
    return max(after, longest / 2 + random.random() * longest / 2)


def follower_backoff(tries: int, e: Error) -> float:
    """Returns the backoff of a follower, which obeys at most MAX_RETRY_AFTER."""
    return backoff(tries, min(getattr(e, "retry_after", 0), MAX_RETRY_AFTER))


def _whole(answer: http.client.HTTPResponse) -> bytes:
    parts = []
    size = 0
    while True:
        part = answer.read(1 << 20)
        if not part:
            break
        parts.append(part)
        size += len(part)
        if size > MAX_RESPONSE:
            raise NotHubError("got a response of more than 64 MiB")
    if answer.length:  # read(size) does not report a broken connection
        raise http.client.IncompleteRead(b"", answer.length)
    return b"".join(parts)


def response_error(hub: str, e: urllib.error.HTTPError) -> Error:
    """Returns the error for an unsuccessful response."""
    problem: Dict[str, Any] = {}
    try:
        if e.headers.get_content_type() == "application/problem+json":
            read = read_json(e.read(1 << 20))
            problem = read if isinstance(read, dict) else {}
    except (OSError, http.client.HTTPException, ValueError):
        pass  # the status suffices
    after = _retry_after(e.headers.get("Retry-After"))
    if e.code < 400:
        problem["detail"] = f"redirect to {e.headers.get('Location')}"
    return problem_error(hub, e.code, problem, after)


def problem_error(hub: str, status: int, problem: Dict[str, Any], after: float = 0) -> Error:
    """Returns the error for a problem document."""
    problem.setdefault("title", http.client.responses.get(status, ""))
    if status >= 500 or status in (408, 429):
        if status == 507:
            after = max(after, MAX_BACKOFF)  # it takes long until a full store has room
        detail = f" ({problem['detail']})" if problem.get("detail") else ""
        return UnavailableError(f"{hub}: got {status} {problem['title']}{detail}", retry_after=after)
    refused = RefusedError(status, problem)
    return GoneError(status, problem) if refused.code == "gone" else refused


def _retry_after(value: Optional[str]) -> float:
    """Returns the seconds of a Retry-After header, which may be a date. 0 if it is missing or invalid."""
    value = (value or "").strip()
    if value.isdecimal():
        return min(float(value), 1e9)
    try:
        return min(max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time()), 1e9)
    except (TypeError, ValueError, IndexError):
        return 0


def network_error(hub: str, e: Exception) -> UnavailableError:
    """Returns the error for a request without a complete response."""
    reason = e.reason if isinstance(e, urllib.error.URLError) and isinstance(e.reason, Exception) else e
    certificate = isinstance(reason, ssl.SSLCertVerificationError)
    if isinstance(reason, (socket.timeout, TimeoutError)):
        return UnavailableError(f"{hub}: timeout")
    unsent = certificate or isinstance(reason, (ConnectionRefusedError, socket.gaierror))
    return UnavailableError(f"cannot reach {hub}: {reason or type(reason).__name__}", permanent=certificate, unsent=unsent)


def read_json(text: bytes) -> Any:
    """Parses JSON. It raises a ValueError for two things that JSON allows, too: lone surrogates, which UTF-8 cannot
    represent, and more than MAX_DEPTH levels, which Python may be able to read but not to write."""
    try:
        read = json.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    level: List[Any] = [read]
    for _ in range(MAX_DEPTH + 1):
        inner: List[Any] = []
        for held in level:
            if isinstance(held, dict):
                inner.extend(held.values())
            elif isinstance(held, list):
                inner.extend(held)
        level = inner
    if level:
        raise ValueError(_TOO_DEEP)
    if _SURROGATE.search(text):
        json.dumps(read, ensure_ascii=False).encode()
    return read


def not_hub_response(url: str) -> NotHubError:
    """Returns the error for a response with status 200 that is not a hub's."""
    return NotHubError(f"{url}: got a response without the members that a hub sends; check the URL")


def read_members(page: Any, url: str, *members: Tuple[str, type]) -> Dict[str, Any]:
    """Returns page if it is an object with these members."""
    if not isinstance(page, dict) or not all(is_a(page.get(name), kind) for name, kind in members):
        raise not_hub_response(url)
    return page


def is_a(value: Any, kind: type) -> bool:
    """Reports whether a JSON value has a type. True is not a number."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def read_entries(entries: Any, url: str) -> List[Dict[str, Any]]:
    """Returns entries if each has the members of a hub's entry."""
    if not isinstance(entries, list):
        raise not_hub_response(url)
    for e in entries:
        read_members(e, url, ("loc", str), ("change", str), ("position", int), ("datetime", str))
        if not 0 < e["position"] < 1 << 63:
            raise not_hub_response(url)
    return entries
