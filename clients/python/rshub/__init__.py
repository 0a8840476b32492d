"""A client of rshub, a ResourceSync push hub, with Python's standard library only.

A *source* publishes which of its web resources were created, updated or deleted. A *destination* follows
these changes. A *set* is a set of resources of one source. A *cursor* is a place in the log of a set: an
opaque string that callers store and pass back.

    client = rshub.Client("https://hub.example.org")
    client.publish("demo", [{"loc": "https://example.org/a", "change": "updated"}])
    for batch in client.follow("demo", since="start"):
        print(batch.changes, batch.cursor)

A change is a dict with the members of rshub's JSON: ``loc``, ``change`` (created, updated or deleted),
``lastmod``, ``hash``, ``length``, ``type`` and so on. Changes from a hub also have ``position``, a number
that grows by one with each change of the set, and ``datetime``, when the hub accepted the change.

Retries are logged as warnings of the logger "rshub".
"""

from .audit import Difference, Summary
from .baseline import BaselinePage
from .callback import Delivery, NewChanges, SignatureError, check_query, check_signature, read_delivery
from .client import Client
from .cursorfile import CursorFile, CursorsFile
from .errors import Error, GoneError, NotHubError, RefusedError, UnavailableError
from .follow import Batch, position
from .follow_many import SetError
from .inventory import Inventory, version
from .publish import Receipt
from .replica import BaselinePendingError, DeleteLimitError, Replica, Update

__all__ = [
    "BaselinePage",
    "BaselinePendingError",
    "Batch",
    "Client",
    "CursorFile",
    "CursorsFile",
    "DeleteLimitError",
    "Delivery",
    "Difference",
    "Error",
    "GoneError",
    "Inventory",
    "NewChanges",
    "NotHubError",
    "Receipt",
    "RefusedError",
    "Replica",
    "SetError",
    "SignatureError",
    "Summary",
    "UnavailableError",
    "Update",
    "check_query",
    "check_signature",
    "position",
    "read_delivery",
    "version",
]
