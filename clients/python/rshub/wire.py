"""Requests as they are sent, once, and what their answers mean."""

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

from .errors import Error, Gone, NotAHub, Refused, Unavailable

SILENCE = 75.0  # seconds without a byte of an event stream: a hub sends a sign of life each 30 seconds
TIMEOUT = 30.0  # seconds without a byte of an answer, besides the time that the hub was asked to wait
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
LONGEST_WAIT = 3600.0  # seconds that an answer may hold back one who follows: a wrong clock asks for years
MAX_ANSWER = 64 << 20
MAX_DEPTH = 100  # arrays and objects around a value; what a hub sends needs less than ten
OVERHEAD = 64  # bytes of memory that a line of an event takes besides its text
_TOO_DEEP = f"the JSON is nested more than {MAX_DEPTH} levels deep"
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")  # of a character, escaped


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Redirects are not followed: the token must not go to another host, and a POST must not become a GET."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Wire:
    """Sends requests to one hub."""

    def __init__(self, hub: str, token: Optional[str]) -> None:
        self._hub = hub
        self._token = token
        handlers: List[urllib.request.BaseHandler] = [_NoRedirect()]
        host = urllib.parse.urlsplit(hub).hostname or ""
        if host in ("localhost", "::1") or host.startswith("127."):
            handlers.append(urllib.request.ProxyHandler({}))  # a proxy does not reach the hub of this machine
        self._opener = urllib.request.build_opener(*handlers)

    def request(self, url: str, body: Any, headers: Dict[str, str], wait: float) -> Any:
        """See Client.request."""
        with self._open(url, body, headers, wait, "application/json") as answer:
            try:
                content = _whole(answer)
            except (OSError, http.client.HTTPException) as e:
                raise _unreachable(self._hub, e) from e
        try:
            return read_json(content)
        except ValueError as e:
            raise NotAHub(f"{url} answers 200, but not with JSON; is the URL right?") from e

    def events(self, url: str, headers: Dict[str, str]) -> Iterator[Tuple[str, Any]]:
        """Asks for an event stream, and yields the type and the JSON of each event until the stream ends."""
        kind, data, size = "", [], 0
        headers = {"Accept": "text/event-stream, application/problem+json", **headers}
        with self._open(url, None, headers, SILENCE - TIMEOUT, "text/event-stream") as answer:
            while True:
                try:
                    line = answer.readline(MAX_ANSWER + 1)
                except (OSError, http.client.HTTPException) as e:
                    raise _unreachable(self._hub, e) from e
                if not line.endswith(b"\n"):  # the stream has ended; an event without its end does not count
                    if len(line) > MAX_ANSWER:
                        raise NotAHub(f"{url} sends an event with more than 64 MiB")
                    return
                name, _, value = line.rstrip(b"\r\n").partition(b":")
                value = value[1:] if value[:1] == b" " else value
                if name == b"event":
                    kind = value.decode(errors="replace")
                elif name == b"data":
                    data.append(value)
                    size += len(value) + OVERHEAD
                    if size > MAX_ANSWER:
                        raise NotAHub(f"{url} sends an event with more than 64 MiB")
                elif not line.strip():
                    if data:
                        try:
                            read = read_json(b"\n".join(data))
                        except ValueError as e:
                            raise NotAHub(f"{url} sends an event that is no JSON") from e
                        yield kind, read
                    kind, data, size = "", [], 0

    @contextlib.contextmanager
    def _open(self, url: str, body: Any, headers: Dict[str, str], wait: float, kind: str) -> Iterator[http.client.HTTPResponse]:
        """Sends a request, and yields the answer if it is 200 and of that media type."""
        sent = {"Accept": "application/json, application/problem+json", "User-Agent": "rshub-python"}
        data = None
        if body is not None:
            data = json.dumps(body, ensure_ascii=False).encode()
            sent["Content-Type"] = "application/json"
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        sent.update(headers)
        try:
            answer = self._opener.open(urllib.request.Request(url, data, sent), timeout=TIMEOUT + wait)
        except urllib.error.HTTPError as e:
            with e:
                raise _failed(self._hub, e) from None
        except (OSError, http.client.HTTPException) as e:
            raise _unreachable(self._hub, e) from e
        with answer:
            if answer.status != 200 or answer.headers.get_content_type() != kind:
                raise NotAHub(f"{url} answers {answer.status}, but not as a hub does; is the URL right?")
            yield answer


def pause(tries: int, after: float = 0) -> float:
    """How many seconds to wait after so many failed tries before. Half of it is random, so that clients that
    failed together do not come back together."""
    longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(tries, 10))
    return max(after, longest / 2 + random.random() * longest / 2)


def pause_of_follower(tries: int, e: Error) -> float:
    """The same for one who follows, whatever the Retry-After of an answer says."""
    return pause(tries, min(getattr(e, "after", 0), LONGEST_WAIT))


def _whole(answer: http.client.HTTPResponse) -> bytes:
    parts = []
    size = 0
    while True:
        part = answer.read(1 << 20)
        if not part:
            break
        parts.append(part)
        size += len(part)
        if size > MAX_ANSWER:
            raise NotAHub("the answer has more than 64 MiB")
    if answer.length:  # read with a size does not say that the connection broke
        raise http.client.IncompleteRead(b"", answer.length)
    return b"".join(parts)


def _failed(hub: str, e: urllib.error.HTTPError) -> Error:
    """Returns the error for an answer that is no success."""
    problem: Dict[str, Any] = {}
    try:
        if e.headers.get_content_type() == "application/problem+json":
            read = read_json(e.read(1 << 20))
            problem = read if isinstance(read, dict) else {}
    except (OSError, http.client.HTTPException, ValueError):
        pass  # the status says enough
    problem.setdefault("title", http.client.responses.get(e.code, ""))
    after = _retry_after(e.headers.get("Retry-After"))
    if e.code >= 500 or e.code in (408, 429):
        if e.code == 507:
            after = max(after, LONGEST_PAUSE)  # room comes slowly
        detail = f" ({problem['detail']})" if problem.get("detail") else ""
        return Unavailable(f"{hub} answers {e.code} {problem['title']}{detail}", after=after)
    if e.code < 400:
        problem["detail"] = f"it points to {e.headers.get('Location')}"
    refused = Refused(e.code, problem)
    return Gone(e.code, problem) if refused.code == "gone" else refused


def _retry_after(value: Optional[str]) -> float:
    """Reads Retry-After: seconds, or a date. 0 if it is missing or cannot be read."""
    value = (value or "").strip()
    if value.isdecimal():
        return min(float(value), 1e9)
    try:
        return min(max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time()), 1e9)
    except (TypeError, ValueError, IndexError):
        return 0


def _unreachable(hub: str, e: Exception) -> Unavailable:
    """Returns the error for a request that has no answer, or only a part of one."""
    reason = e.reason if isinstance(e, urllib.error.URLError) and isinstance(e.reason, Exception) else e
    certificate = isinstance(reason, ssl.SSLCertVerificationError)
    if isinstance(reason, (socket.timeout, TimeoutError)):
        return Unavailable(f"{hub} does not answer in time")
    unsent = certificate or isinstance(reason, (ConnectionRefusedError, socket.gaierror))
    return Unavailable(f"cannot reach {hub}: {reason or type(reason).__name__}", lasting=certificate, unsent=unsent)


def read_json(text: bytes) -> Any:
    """Reads JSON. Two kinds that JSON allows are a ValueError, too: half a character, which UTF-8 cannot have, and values
    in more than MAX_DEPTH others, which Python may be able to read and not to write."""
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
    if _HALF.search(text):
        json.dumps(read, ensure_ascii=False).encode()
    return read


def strange(url: str) -> NotAHub:
    """Returns the error for an answer that is none of a hub."""
    return NotAHub(f"{url} answers 200, but not as a hub does; is the URL right?")


def read_members(page: Any, url: str, *members: Tuple[str, type]) -> Dict[str, Any]:
    """Returns an answer that has to be an object with these members."""
    if not isinstance(page, dict) or not all(is_a(page.get(name), kind) for name, kind in members):
        raise strange(url)
    return page


def is_a(value: Any, kind: type) -> bool:
    """Whether a value of JSON is of a kind. True is no number."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def read_entries(entries: Any, url: str) -> List[Dict[str, Any]]:
    """Returns entries of an answer, each with the members that every entry of a hub has."""
    if not isinstance(entries, list):
        raise strange(url)
    for e in entries:
        read_members(e, url, ("loc", str), ("change", str), ("position", int), ("datetime", str))
        if not 0 < e["position"] < 1 << 63:
            raise strange(url)
    return entries
