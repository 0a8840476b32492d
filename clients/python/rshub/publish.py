"""Publishing, with retries that cannot double."""

from __future__ import annotations

import itertools
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Optional

from .errors import Error, NotAHub, Unavailable
from .wire import read_members

if TYPE_CHECKING:
    from .client import Client


@dataclass
class Receipt:
    """What the hub says of a publish that it has accepted."""

    set: str
    first: str  # cursor of the first change
    cursor: str  # cursor of the last change
    count: int
    replayed: bool = False  # the hub had them already, from an earlier publish with the same key


def publish(client: Client, set_name: str, changes: List[Dict[str, Any]], key: Optional[str]) -> Receipt:
    """See Client.publish."""
    if not changes:
        raise ValueError("there is no change to publish")
    word = secrets.token_urlsafe(18) if key is None else key
    if not (word.isascii() and word.isprintable() and word and " " not in word):
        raise ValueError("a key must be one word of ASCII")
    topic = client.topic(set_name)
    sent = False  # a try may have reached the hub

    def try_() -> Receipt:
        nonlocal sent
        try:
            answer = client.request(topic, body={"changes": changes}, headers={"Idempotency-Key": word})
            answer = read_members(answer, topic, ("set", str), ("first", str), ("cursor", str), ("count", int))
            if answer["set"] != set_name or answer["count"] != len(changes):
                raise NotAHub(f"{topic} took {answer['count']} changes of {len(changes)}")
        except Error as e:
            e.key = word
            if isinstance(e, Unavailable):
                sent = sent or not e.unsent
            e.doubt = sent or isinstance(e, NotAHub)
            raise
        replayed = answer.get("replayed") is True and not sent  # else only the answer of an earlier try was lost
        return Receipt(answer["set"], answer["first"], answer["cursor"], answer["count"], replayed)

    return client.patiently(try_)


def publish_all(
    client: Client, set_name: str, changes: Iterable[Dict[str, Any]], key: Optional[str], size: int
) -> Iterator[Receipt]:
    """See Client.publish_all."""
    rest = iter(changes)
    for n in itertools.count(1):
        batch = list(itertools.islice(rest, size))
        if not batch:
            return
        yield publish(client, set_name, batch, None if key is None else f"{key}-{n}")
