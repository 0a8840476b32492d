"""A real hub for tests, which can be killed and restarted, and a proxy that loses responses.

RSHUB_TEST_PROGRAM is the path of the built program. Without it, tests that need a hub are skipped."""

import http.client
import http.server
import json
import os
import random
import shutil
import socket
import socketserver
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

import rshub

PROGRAM = os.environ.get("RSHUB_TEST_PROGRAM", "")
TIMEOUT = 60.0
ROOT = Path(__file__).resolve().parents[3]


def free_port():
    """Returns a port that stays free while a hub is down, below the range of outgoing connections."""
    while True:
        port = random.randrange(15000, 30000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def until(what, condition):
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"timeout after {TIMEOUT} s: {what}")
        time.sleep(0.002)


class Hub:
    """A hub that can be killed and restarted with the same address and data."""

    def __init__(self, **variables):
        self.directory = tempfile.mkdtemp(prefix="rshub-python-")
        self.host = f"127.0.0.1:{free_port()}"
        self.url = f"http://{self.host}"
        self.variables = {"RSHUB_LISTEN": self.host, "RSHUB_OPS_LISTEN": "127.0.0.1:0", "RSHUB_DATA": self.directory + "/data", **variables}
        self.start()

    def start(self):
        log = self.directory + "/log"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RSHUB_")}
        with open(log, "w") as stderr:
            self.process = subprocess.Popen([PROGRAM], env={**environment, **self.variables}, stderr=stderr, cwd=self.directory)

        def listens():
            text = Path(log).read_text()
            if self.process.poll() is not None:
                raise AssertionError(f"rshub exited: {text}")
            for line in text.splitlines():
                if '"rshub is running"' in line and line.endswith("}"):
                    self.operations = json.loads(line)["ops"]
                    return True
            return False

        until("the hub listens", listens)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.kill()
        shutil.rmtree(self.directory)

    def program(self, *arguments):
        done = subprocess.run([PROGRAM, *arguments], cwd=self.directory, capture_output=True, text=True, env={**os.environ, **self.variables, "RSHUB_OPS_LISTEN": self.operations})
        if done.returncode != 0:
            raise AssertionError(f"rshub {arguments}: got exit code {done.returncode}, want 0: {done.stdout}{done.stderr}")
        return done.stdout

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection(self.host, timeout=TIMEOUT)
        connection.request(method, path, body)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        if answer.status >= 300:
            raise AssertionError(f"{method} {path}: got {answer.status}, want success: {text}")
        return text

    def client(self, **options):
        return rshub.Client(self.url, **options)


@unittest.skipUnless(PROGRAM, "RSHUB_TEST_PROGRAM does not name a built rshub")
class HubTest(unittest.TestCase):
    """Base class of tests with one hub per class. Each test has its own set."""

    variables = {}

    @classmethod
    def setUpClass(cls):
        cls.hub = Hub(**cls.variables)
        cls.addClassCleanup(cls.hub.close)

    def setUp(self):
        self.set_name = self.id().rpartition(".")[2].replace("_", "-").lower()
        self.client = self.hub.client(sleep=lambda seconds: time.sleep(min(seconds, 0.02)))

    def publish(self, *names, change="updated", **members):
        return self.client.publish(self.set_name, changes(*names, change=change, **members))

    def wait_for_baselines(self):
        """Waits until the baseline of a new set has its first changes. Shortly after the start of a hub it may precede
        them, which is correct, too, because the changes follow."""

        def has_first_changes():
            self.probes = getattr(self, "probes", 0) + 1
            name = f"{self.set_name}-probe-{self.probes}"
            self.client.publish(name, changes("a"))
            return list(self.client.baseline(name))[-1].count == 1

        until("a baseline has the first changes", has_first_changes)


def changes(*names, change="updated", **members):
    return [{"loc": f"https://example.org/{name}", "change": change, **members} for name in names]


def names(changes):
    return [c["loc"].rpartition("/")[2] for c in changes]


class Proxy:
    """A proxy in front of a hub. plan says what happens to the next POSTs: "lose" forwards the request and drops the
    response, "refuse" closes the connection, and a number is a status to answer with Retry-After: 1. expired has keys that
    the hub should not recognize, as after a day: it receives other keys instead."""

    def __init__(self, hub):
        self.plan = []
        self.expired = set()
        self.seen = []
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.forward()

            def do_POST(self):
                fate = proxy.plan.pop(0) if proxy.plan else "forward"
                proxy.seen.append(self.headers.get("Idempotency-Key"))
                if fate == "refuse":
                    self.close_connection = True
                elif isinstance(fate, int):
                    self.send_response(fate)
                    self.send_header("Retry-After", "1")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                else:
                    self.forward(answer=fate == "forward")

            def forward(self, answer=True):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                connection = http.client.HTTPConnection(hub.host, timeout=TIMEOUT)
                headers = {k: v for k, v in self.headers.items() if k != "Host"}
                if headers.get("Idempotency-Key") in proxy.expired:
                    headers["Idempotency-Key"] += "-a-day-later"
                connection.request(self.command, self.path, body or None, headers)
                got = connection.getresponse()
                text = got.read()
                connection.close()
                if not answer:
                    self.close_connection = True
                    return
                self.send_response(got.status)
                self.send_header("Content-Type", got.headers["Content-Type"])
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class Wires:
    """A TCP proxy in front of a hub, whose connections can be cut. As a proxy of the environment it answers CONNECT, and
    connects every name to the hub."""

    def __init__(self, hub):
        self.connected = []  # names of CONNECT
        self._ends = set()
        self._lock = threading.Lock()
        wires = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                try:
                    head = self.request.recv(1 << 16)
                    if head.startswith(b"CONNECT "):
                        wires.connected.append(head.split()[1].decode())
                    with socket.create_connection((hub.host.partition(":")[0], int(hub.host.partition(":")[2])), TIMEOUT) as there:
                        if head.startswith(b"CONNECT "):
                            self.request.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                        else:
                            there.sendall(head)
                        with wires._lock:
                            wires._ends |= {self.request, there}
                        back = threading.Thread(target=self.copy, args=(there, self.request))
                        back.start()
                        self.copy(self.request, there)
                        back.join()
                        with wires._lock:
                            wires._ends -= {self.request, there}
                except OSError:
                    pass

            def copy(self, source, target):
                try:
                    while True:
                        data = source.recv(1 << 16)
                        if not data:
                            break
                        target.sendall(data)
                except OSError:
                    pass
                for end in (source, target):
                    try:
                        end.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        pass

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def cut(self):
        """Breaks all connections."""
        with self._lock:
            for end in self._ends:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def close(self):
        self.server.shutdown()
        self.cut()
        self.thread.join()
        self.server.server_close()


def vectors(path):
    with open(ROOT / path, encoding="utf-8") as f:
        return json.load(f)
