"""Proofs: the hub compares what the destination of a callback holds with what it holds itself. See docs/callbacks.md of
rshub."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import NotAHub
from .inventory import Inventory
from .wire import is_a, read_members, strange

if TYPE_CHECKING:
    from .client import Client


@dataclass
class Proof:
    """What the hub answers when it has compared what a destination holds with what it holds itself."""

    equal: bool
    cursor: str  # at which both were compared
    complete: bool  # the hub knows all resources of the set
    proved: str  # when the hub compared, a datetime; empty if the two are not equal


def prove(client: Client, status: str, cursor: str, own: Inventory) -> Proof:
    """See Client.prove."""
    begin = client.hub + "/subscriptions/"
    name = status[len(begin) :]
    if not status.startswith(begin) or not name or any(c in name for c in "/?#"):
        raise ValueError(f"the status of a subscription is at a URL that begins with {begin}, and this one is elsewhere")
    held = own.range()
    question = {"at": cursor, "count": held["count"], own.by: held["digest"]}
    members = (("equal", bool), ("at", str), ("complete", bool))
    answer = client.patiently(lambda: read_members(client.request(status, body=question), begin, *members))
    if not is_a(answer.get("proved", ""), str) or answer["equal"] != bool(answer.get("proved")):
        raise strange(begin)
    if answer["at"] != cursor:
        raise NotAHub(f"{client.hub} was asked about {cursor}, and answers about {answer['at']}")
    return Proof(answer["equal"], answer["at"], answer["complete"], answer.get("proved", ""))
