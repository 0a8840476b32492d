"""Errors. Each docstring says what the caller can do."""

from __future__ import annotations

from typing import Any, Dict, Optional


class Error(Exception):
    """The base class of all errors of this package."""

    #: After a publish: True if the hub may have accepted the changes anyway. Publish them again with the same key.
    uncertain = False
    #: After a publish: the Idempotency-Key of the request.
    key: Optional[str] = None


class RefusedError(Error):
    """The hub refused the request, and would refuse it again: the token, the set, an entry or the cursor is
    invalid. The message has the hub's explanation.
    """

    def __init__(self, status: int, problem: Dict[str, Any]) -> None:
        self.status = status
        #: The hub's problem document (RFC 9457). It may have the "entry", "line" and "loc" of the error.
        self.problem = problem
        #: The end of the problem's type, such as "gone"; empty if there is none.
        self.code = str(problem.get("type") or "").partition("/problems/")[2]
        self.detail = str(problem.get("detail") or "")
        text = f"refused by the hub: {status} {problem.get('title') or ''}".rstrip()
        super().__init__(f"{text}: {self.detail}" if self.detail else text)


class GoneError(RefusedError):
    """The hub no longer has the changes after the cursor. Read a baseline, and follow from its end. A Replica does
    so by itself.
    """


class UnavailableError(Error):
    """The hub was unreachable or not ready until retry_timeout had passed. Try again later."""

    def __init__(self, text: str, *, retry_after: float = 0, permanent: bool = False, unsent: bool = False) -> None:
        super().__init__(text)
        #: Seconds that the hub asks the client to wait; 0 if it does not.
        self.retry_after = retry_after
        #: True if retries do not help, for example with an invalid certificate.
        self.permanent = permanent
        #: True if no request was sent, because no connection was established.
        self.unsent = unsent


class NotHubError(Error):
    """The response is not a hub's, or not the response to this request. The URL is probably wrong."""
