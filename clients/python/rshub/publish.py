"""Publishing, with retries that add nothing twice."""

from __future__ import annotations

import hashlib
import itertools
import json
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Optional

from .errors import Error, NotHubError, UnavailableError
from .wire import read_members

if TYPE_CHECKING:
    from .client import Client


@dataclass
class Receipt:
    """The hub's answer to an accepted publish."""

    set: str
    first: str  # cursor of the first change
    cursor: str  # cursor of the last change
    count: int
    replayed: bool = False  # the hub had the changes already, from an earlier publish with the same key


def publish(client: Client, set_name: str, changes: List[Dict[str, Any]], key: Optional[str]) -> Receipt:
    """See Client.publish."""
    if not changes:
        raise ValueError("no changes to publish")
    word = secrets.token_urlsafe(18) if key is None else _check_key(key)
    topic = client.topic(set_name)
    sent = False  # whether a request may have reached the hub

    def try_() -> Receipt:
        nonlocal sent
        try:
            answer = client.request(topic, body={"changes": changes}, headers={"Idempotency-Key": word})
            answer = read_members(answer, topic, ("set", str), ("first", str), ("cursor", str), ("count", int))
            if answer["set"] != set_name or answer["count"] != len(changes):
                raise NotHubError(f"{topic}: got a receipt for {answer['count']} changes of set {answer['set']}, want {len(changes)} of {set_name}")
        except Error as e:
            e.key = word
            if isinstance(e, UnavailableError):
                sent = sent or not e.unsent
            e.uncertain = sent or isinstance(e, NotHubError)
            raise
        replayed = answer.get("replayed") is True and not sent  # after a retry, only the previous response was lost
        return Receipt(answer["set"], answer["first"], answer["cursor"], answer["count"], replayed)

    return client.retry(try_)


def publish_all(
    client: Client, set_name: str, changes: Iterable[Dict[str, Any]], key: Optional[str], size: int
) -> Iterator[Receipt]:
    """See Client.publish_all."""
    if key is not None:
        _check_key(key)
    rest = iter(changes)
    before = ""  # cursor of the previous batch
    for n in itertools.count(1):
        batch = list(itertools.islice(rest, size))
        if not batch:
            return
        receipt = publish(client, set_name, batch, None if key is None else _batch_key(key, n, before))
        before = receipt.cursor
        yield receipt


def _batch_key(key: str, n: int, before: str) -> str:
    """Returns the Idempotency-Key of batch n of a stream. before is the cursor of batch n-1, empty for the first.

    The hub forgets keys one by one. If it adds a batch again, that batch has a new cursor, so all later batches have new
    keys: none of them is recognized as a repeat, and the log keeps the order of the stream. The changes are not in the
    key: the hub refuses other changes with the same key."""
    return hashlib.sha256(json.dumps([key, n, before]).encode()).hexdigest()


def _check_key(key: str) -> str:
    if not (key.isascii() and key.isprintable() and key and " " not in key):
        raise ValueError(f"invalid key {key!r}: want one word of ASCII")
    return key
