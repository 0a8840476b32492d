"""What can go wrong. Each error says what to do about it."""

from __future__ import annotations

from typing import Any, Dict, Optional


class Error(Exception):
    """Any failure of this package."""

    #: After a publish: the hub may have the changes all the same. Publish them again with the same key.
    doubt = False
    #: After a publish: the Idempotency-Key that was sent.
    key: Optional[str] = None


class Refused(Error):
    """The hub answered, and the same request would get the same answer again: the token, the set, an entry or
    the cursor is not right. The text is what the hub says about it.
    """

    def __init__(self, status: int, problem: Dict[str, Any]) -> None:
        self.status = status
        #: The hub's problem document (RFC 9457). It may have "entry", "line" and "loc" of what is wrong.
        self.problem = problem
        #: The end of the problem's type, by which programs decide, such as "gone"; empty if there is none.
        self.code = str(problem.get("type") or "").partition("/problems/")[2]
        self.detail = str(problem.get("detail") or "")
        text = f"the hub refused the request: {status} {problem.get('title') or ''}".rstrip()
        super().__init__(f"{text}: {self.detail}" if self.detail else text)


class Gone(Refused):
    """The hub does not have the changes after that cursor any more. Read a baseline, and follow from its end:
    what happened in between cannot be told one by one. A Replica does that by itself.
    """


class Unavailable(Error):
    """The hub could not be reached, or was not ready, for as long as the client was patient. Try again later."""

    def __init__(self, text: str, *, after: float = 0, lasting: bool = False, unsent: bool = False) -> None:
        super().__init__(text)
        #: Seconds that the hub asks to wait.
        self.after = after
        #: Trying again does not help, as with a bad certificate.
        self.lasting = lasting
        #: No request got as far as a connection.
        self.unsent = unsent


class NotAHub(Error):
    """The answer is not one of a hub, or not the answer to the question. Most likely the URL is wrong."""
