"""A WebSocket client (RFC 6455) for text messages. It accepts only what the standard allows a server to send."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import io
import os
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, NoReturn, Optional, Tuple, Type

from .errors import NotHubError, UnavailableError
from .wire import MAX_RESPONSE, TIMEOUT, Wire, is_local, network_error, response_error

SILENCE = 120.0  # seconds without a byte; a hub pings every 30 seconds
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_NORMAL, _PROTOCOL_ERROR, _INVALID_TEXT, _TOO_BIG = 1000, 1002, 1007, 1009


class ClosedError(UnavailableError):
    """The hub closed the connection with this code and reason."""

    def __init__(self, hub: str, code: int, reason: str) -> None:
        super().__init__(f"{hub} closed the connection: {code} {reason}".rstrip())
        self.code = code
        self.reason = reason


class WebSocket:
    """A connection. Only one thread may use it at a time."""

    def __init__(self, hub: str, url: str, sock: socket.socket) -> None:
        self._hub = hub
        self._url = url
        self._sock = sock
        self._buffer = bytearray()  # received bytes that are not parsed yet
        self._fragments: Optional[bytearray] = None  # unfinished message, or None
        self._closed = False  # whether a close frame was sent
        self._waited = 0.0  # seconds spent waiting since the last received byte

    def send(self, text: str) -> None:
        """Sends a text message. Raises UnavailableError."""
        self._send(_TEXT, text.encode())

    def receive(self, timeout: float) -> Optional[bytes]:
        """Returns the UTF-8 of the next text message, or None after timeout seconds. It answers pings.

        Raises UnavailableError if the connection breaks or SILENCE seconds pass without a byte, ClosedError if the hub
        closes it, and NotHubError if the server violates the protocol or sends a message of more than 64 MiB."""
        deadline = time.monotonic() + timeout
        while True:
            frame = self._next_frame()
            if frame is None:
                if not self._fill(deadline):
                    return None
                continue
            final, opcode, payload = frame
            if opcode == _PING:
                self._send(_PONG, payload)
            elif opcode == _CLOSE:
                self._leave(payload)
            elif opcode in (_CONTINUATION, _TEXT):
                message = self._fragments if self._fragments is not None else bytearray()
                message += payload
                self._fragments = None if final else message
                if final:
                    try:
                        message.decode()
                    except UnicodeDecodeError:
                        self._refuse(_INVALID_TEXT, "a text message that is not UTF-8")
                    return bytes(message)

    def close(self) -> None:
        """Closes the connection without waiting for the hub."""
        self._send_close(_NORMAL.to_bytes(2, "big"))
        self._sock.close()

    def _next_frame(self) -> Optional[Tuple[bool, int, bytes]]:
        """Removes a frame from the buffer and returns final, opcode and payload, or None if it is incomplete."""
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        final, opcode, size, begin = buffer[0] >= 0x80, buffer[0] & 0x0F, buffer[1] & 0x7F, 2
        if buffer[0] & 0x70:
            self._refuse(_PROTOCOL_ERROR, "a frame with reserved bits")
        if buffer[1] & 0x80:
            self._refuse(_PROTOCOL_ERROR, "a masked frame")
        if opcode in (_CLOSE, _PING, _PONG):
            if not final or size > 125:
                self._refuse(_PROTOCOL_ERROR, "a control frame that is fragmented or too long")
        elif opcode not in (_CONTINUATION, _TEXT):
            self._refuse(_PROTOCOL_ERROR, "a binary message" if opcode == _BINARY else "a frame with an unknown opcode")
        elif (opcode == _CONTINUATION) != (self._fragments is not None):
            self._refuse(_PROTOCOL_ERROR, "fragments out of order")
        if size > 125:
            begin += 2 if size == 126 else 8
            if len(buffer) < begin:
                return None
            shortest = 126 if size == 126 else 1 << 16
            size = int.from_bytes(buffer[2:begin], "big")
            if size < shortest:
                self._refuse(_PROTOCOL_ERROR, "a frame whose length is not in its shortest form")
        if size + len(self._fragments or b"") > MAX_RESPONSE:
            self._refuse(_TOO_BIG, "a message of more than 64 MiB")
        if len(buffer) < begin + size:
            return None
        payload = bytes(buffer[begin : begin + size])
        del buffer[: begin + size]
        return final, opcode, payload

    def _fill(self, deadline: float) -> bool:
        """Receives bytes into the buffer. Returns False if the deadline has passed."""
        now = time.monotonic()
        if now >= deadline:
            return False
        timeout = min(deadline - now, SILENCE)
        try:
            self._sock.settimeout(timeout)
            received = self._sock.recv(1 << 16)
        except socket.timeout:
            self._waited += timeout
            if self._waited >= SILENCE:
                raise UnavailableError(f"{self._hub}: timeout") from None
            return True
        except OSError as e:
            raise network_error(self._hub, e) from e
        if not received:
            raise UnavailableError(f"{self._hub} ended the connection")
        self._waited = 0.0
        self._buffer += received
        return True

    def _send(self, opcode: int, payload: bytes, timeout: float = TIMEOUT) -> None:
        size = len(payload)
        head = bytes([0x80 | opcode])
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 1 << 16:
            head += bytes([0x80 | 126]) + size.to_bytes(2, "big")
        else:
            head += bytes([0x80 | 127]) + size.to_bytes(8, "big")
        mask = os.urandom(4)
        key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
        masked = (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")
        try:
            self._sock.settimeout(timeout)
            self._sock.sendall(head + mask + masked)
        except OSError as e:
            raise network_error(self._hub, e) from e

    def _send_close(self, payload: bytes) -> None:
        """Sends a close frame, unless one was sent."""
        if not self._closed:
            self._closed = True
            with contextlib.suppress(UnavailableError):
                self._send(_CLOSE, payload, timeout=1.0)

    def _leave(self, payload: bytes) -> NoReturn:
        """Answers a close frame."""
        code = int.from_bytes(payload[:2], "big") if payload else 1005  # 1005: none
        valid = not payload or 3000 <= code < 5000 or 1000 <= code < 1015 and code not in (1004, 1005, 1006)
        try:
            reason = payload[2:].decode()
        except UnicodeDecodeError:
            valid = False
        if not valid or len(payload) == 1:
            self._refuse(_PROTOCOL_ERROR, "an invalid close frame")
        self._send_close(payload[:2])
        raise ClosedError(self._hub, code, reason)

    def _refuse(self, code: int, what: str) -> NoReturn:
        """Closes the connection with a code."""
        self._send_close(code.to_bytes(2, "big"))
        raise NotHubError(f"{self._url}: got {what}")


class _Response(http.client.HTTPResponse):
    """A response that reads nothing beyond its headers: frames may follow."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp.close()
        self.fp = sock.makefile("rb", buffering=0)  # type: ignore[assignment]


def connect(wire: Wire, url: str, protocol: str) -> WebSocket:
    """Opens a WebSocket at a URL of the hub, with a subprotocol. It uses the proxies of the environment, as requests do,
    and follows no redirect.

    Raises RefusedError, UnavailableError, or NotHubError if the response is not a valid handshake."""
    key = base64.b64encode(os.urandom(16))
    connection = None
    try:
        connection = _connection(urllib.parse.urlsplit(url))
        path = url[url.index("/", url.index("://") + 3) :]
        connection.putrequest("GET", path, skip_accept_encoding=True)
        for name, value in (
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Key", key.decode()),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Protocol", protocol),
            ("Accept", "application/json, application/problem+json"),
            ("User-Agent", "rshub-python"),
        ):
            connection.putheader(name, value)
        if wire.token:
            connection.putheader("Authorization", f"Bearer {wire.token}")
        connection.endheaders()
        response = connection.getresponse()
        if response.status != 101:
            raise _refused(wire, url, response)
        _check_handshake(url, response, key, protocol)
        sock, connection.sock = connection.sock, None
    except (OSError, http.client.HTTPException) as e:
        raise network_error(wire.hub, e) from e
    finally:
        if connection is not None:
            connection.close()
    return WebSocket(wire.hub, url, sock)


def _connection(url: urllib.parse.SplitResult) -> http.client.HTTPConnection:
    """Returns a connection for a URL. Through a proxy it is a tunnel, as RFC 6455 requires, even without TLS."""
    kind: Type[http.client.HTTPConnection] = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    address = urllib.request.getproxies().get(url.scheme)
    if not address or is_local(url.hostname or "") or urllib.request.proxy_bypass(url.netloc):
        connection = kind(url.netloc, timeout=TIMEOUT)
    else:
        proxy = urllib.parse.urlsplit(address if "://" in address else "http://" + address)
        connection = kind(proxy.netloc.rpartition("@")[2], timeout=TIMEOUT)
        headers = {}
        if proxy.username:
            user = f"{urllib.parse.unquote(proxy.username)}:{urllib.parse.unquote(proxy.password or '')}"
            headers["Proxy-Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
        connection.set_tunnel(url.netloc, headers=headers)
    connection.response_class = _Response
    return connection


def _refused(wire: Wire, url: str, response: http.client.HTTPResponse) -> Exception:
    """Returns the error for a response that is not a handshake."""
    if 200 <= response.status < 300:
        return NotHubError(f"{url}: got {response.status}, want 101 with the subprotocol; check the URL")
    response.fp = io.BufferedReader(response.fp)  # type: ignore[arg-type]
    with urllib.error.HTTPError(url, response.status, response.reason, response.headers, response) as e:
        return response_error(wire.hub, e)


def _check_handshake(url: str, response: http.client.HTTPResponse, key: bytes, protocol: str) -> None:
    """Raises NotHubError unless a response accepts this handshake."""
    headers = response.headers
    accept = base64.b64encode(hashlib.sha1(key + _GUID).digest()).decode()
    options = [o.strip().lower() for line in headers.get_all("Connection", []) for o in line.split(",")]
    for name, got, want in (
        ("version", str(response.version), "11"),
        ("Upgrade", (headers.get("Upgrade") or "").lower(), "websocket"),
        ("Connection", "upgrade" if "upgrade" in options else "", "upgrade"),
        ("Sec-WebSocket-Accept", headers.get("Sec-WebSocket-Accept") or "", accept),
        ("Sec-WebSocket-Protocol", headers.get("Sec-WebSocket-Protocol") or "", protocol),
        ("Sec-WebSocket-Extensions", headers.get("Sec-WebSocket-Extensions") or "", ""),
    ):
        if got != want:
            raise NotHubError(f"{url}: got a handshake with {name} {got!r}, want {want!r}; check the URL")
