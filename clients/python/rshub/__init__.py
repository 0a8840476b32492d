"""A client of rshub, a ResourceSync push hub. It needs nothing but Python's standard library.

A *source* publishes which of its web resources were created, updated or deleted. A *destination* follows
these changes. A *set* is a set of resources of one source. A *cursor* is a place in the log of a set: an
opaque text, to be kept and given back.

    client = rshub.Client("https://hub.example.org")
    client.publish("demo", [{"loc": "https://example.org/a", "change": "updated"}])
    for batch in client.follow("demo", since="start"):
        print(batch.changes, batch.cursor)

A change is a dict with the members of rshub's JSON: ``loc``, ``change`` (created, updated or deleted),
``lastmod``, ``hash``, ``length``, ``type`` and so on. What comes from a hub also has ``position``, a number
that grows by one with each change of the set, and ``datetime``, at which the hub accepted the change.

What is tried again after a failure is logged as a warning of the logger "rshub".
"""

from .audit import Difference, Look
from .baseline import BaselinePage
from .callback import BadSignature, Delivery, News, check_question, check_signature, read_delivery
from .client import Client
from .cursorfile import CursorFile
from .errors import Error, Gone, NotAHub, Refused, Unavailable
from .follow import Batch, position
from .inventory import Inventory, version
from .prove import Proof
from .publish import Receipt
from .replica import NotWhole, Replica, Update

__all__ = [
    "BadSignature",
    "BaselinePage",
    "Batch",
    "Client",
    "CursorFile",
    "Delivery",
    "Difference",
    "Error",
    "Gone",
    "Inventory",
    "Look",
    "News",
    "NotAHub",
    "NotWhole",
    "Proof",
    "Receipt",
    "Refused",
    "Replica",
    "Unavailable",
    "Update",
    "check_question",
    "check_signature",
    "position",
    "read_delivery",
    "version",
]
