#!/usr/bin/env python3
"""A bridge that publishes each change of a set as an item of an XMPP pubsub node (XEP-0060).

    export XMPP_JID=bridge@example.org XMPP_PASSWORD=...
    python3 bridge.py http://127.0.0.1:8080 demo pubsub.example.org changes-of-demo demo.cursor

The id of an item is the cursor of its change, which is stored when the service has acknowledged the item. So each change is
published at least once and in order, and a repeat replaces itself. The bridge waits for outages of either side to end. For
another bus, replace Node: its publish() returns when the bus has stored the change.

XMPP_ADDRESS=host:port is the address of the server, if it is not in DNS. XMPP_ITEMS is the number of items that the node keeps.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
import time
import urllib.parse
import xml.etree.ElementTree as ET

import rshub
import slixmpp
from slixmpp.exceptions import IqError

TIMEOUT = 30  # seconds for an answer of the XMPP server
MAX_BACKOFF = 30  # seconds between two tries
SITEMAP = "http://www.sitemaps.org/schemas/sitemap/0.9"
RS = "http://www.openarchives.org/rs/terms/"
TERMS = "https://github.com/rshub/rshub/terms/"
log = logging.getLogger("bridge")


def backoff(tries):
    return min(MAX_BACKOFF, 0.5 * 2 ** min(tries, 10))


def follow(client, set_name, since):
    """Yields the events of a set forever, as CloudEvents, because the id of such an event is the cursor after its change."""
    tries = 0
    while True:
        url = f"{client.topic(set_name)}?since={urllib.parse.quote(since)}"
        try:
            for kind, event in client.events(url, headers={"Accept": "text/event-stream, application/cloudevents+json"}):
                if kind == "gone":
                    raise rshub.GoneError(410, event)
                if kind == "":  # other kinds say why the stream ends
                    yield event
                    since, tries = event["id"], 0
            lost = rshub.UnavailableError("the event stream ended")
        except (rshub.UnavailableError, rshub.NotHubError) as e:
            lost = e
        client.backoff(lost, max(backoff(tries), getattr(lost, "retry_after", 0)))
        tries += 1


def url_of(change):
    """Returns the entry of a change as in the hub's Change Notifications. The names in JSON, including {namespace}name, are those in XML."""
    url = ET.Element(f"{{{SITEMAP}}}url")
    for name in ("loc", "lastmod", "changefreq"):
        if name in change:
            ET.SubElement(url, f"{{{SITEMAP}}}{name}").text = change.pop(name)
    links = change.pop("ln", [])
    change[f"{{{TERMS}}}position"] = change.pop("position")
    ET.SubElement(url, f"{{{RS}}}md", {name: str(value) for name, value in change.items()})
    for link in links:
        ET.SubElement(url, f"{{{RS}}}ln", {name: str(value) for name, value in link.items()})
    return url


class Node:
    """A node of a pubsub service. Its connection has its own thread, which answers the server while the hub is silent."""

    def __init__(self, service, name):
        self.service, self.name = service, name
        self.account = os.environ["XMPP_JID"], os.environ["XMPP_PASSWORD"]
        self.xmpp = self.started = self.lost = None  # used only by the thread; lost is done when the connection is lost
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def publish(self, item, payload):
        """Returns when the service has acknowledged the item, however long that takes."""
        tries = 0
        while True:
            try:
                return self._wait(self._publish(item, payload))
            except (OSError, IqError) as e:
                why = e.format() if isinstance(e, IqError) else e
                log.warning("publish %s to XMPP: %s; retrying in %.1f s", item, why, backoff(tries))
                time.sleep(backoff(tries))
                tries += 1

    def close(self):
        self._wait(self._close())

    def _wait(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    # The following methods run in the thread.

    async def _publish(self, item, payload):
        try:
            if self.lost is None or self.lost.done():
                await self._connect()
            try:
                await self._answer(self.xmpp["xep_0060"].publish(self.service, self.name, id=item, payload=payload))
            except IqError as e:
                if e.condition != "item-not-found":
                    raise
                await self._create()
                await self._answer(self.xmpp["xep_0060"].publish(self.service, self.name, id=item, payload=payload))
        except (OSError, IqError):  # the next try uses a new connection
            self.xmpp.cancel_connection_attempt()
            self.xmpp.abort()
            self.lost = None
            raise

    async def _create(self):
        form = self.xmpp["xep_0004"].make_form("submit")
        form.add_field("pubsub#persist_items", value="1")
        form.add_field("pubsub#max_items", value=os.environ.get("XMPP_ITEMS", "256"))  # the default limit of Prosody
        await self._answer(self.xmpp["xep_0060"].create_node(self.service, self.name, config=form))

    async def _connect(self):
        if self.xmpp is None:
            self.xmpp = slixmpp.ClientXMPP(*self.account)
            self.xmpp.register_plugin("xep_0060")
            self.xmpp.namespace_map[TERMS] = "h"  # slixmpp omits attributes in unknown namespaces
            self.xmpp.add_event_handler("session_start", lambda _: self._on_start(None))
            self.xmpp.add_event_handler("connection_failed", lambda e: self._on_start(f"connect to the server: {e}"))
            self.xmpp.add_event_handler("ssl_invalid_chain", lambda e: self._on_start(f"TLS handshake: {e}"))
            self.xmpp.add_event_handler("failed_all_auth", lambda _: self._on_start("the server refused the JID or the password"))
        self.started, self.lost = self.loop.create_future(), self.xmpp.disconnected
        host, _, port = os.environ.get("XMPP_ADDRESS", "").rpartition(":")
        self.xmpp.connect((host, int(port)) if host else None)
        problem = await self._answer(self.started)
        if problem:
            raise ConnectionError(problem)

    def _on_start(self, problem):
        if not self.started.done():
            self.started.set_result(problem)

    async def _answer(self, future):
        """Returns the result of a future. Raises ConnectionError if the connection is lost or silent before that."""
        await asyncio.wait({future, self.lost}, timeout=TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
        if future.done():
            return future.result()
        future.cancel()
        raise ConnectionError("connection lost" if self.lost.done() else f"no answer for {TIMEOUT} s")

    async def _close(self):
        if self.xmpp:
            self.xmpp.cancel_connection_attempt()
            await self.xmpp.disconnect()  # waits for at most 2 s


def main(hub, set_name, service, node_name, path):
    logging.basicConfig(format="%(message)s")
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: sys.exit(0))
    client = rshub.Client(hub, token=os.environ.get("RSHUB_TOKEN"))
    cursor_file = rshub.CursorFile(path, first="start")
    node = Node(service, node_name)
    try:
        for event in follow(client, set_name, cursor_file.read()):
            if event["type"].endswith(".diverged"):
                log.warning("the hub has lost its newest changes: subscribers of the node should read a baseline")
            if "data" in event:
                node.publish(event["id"], url_of(event["data"]))
            cursor_file.write(event["id"])
    except rshub.GoneError:
        log.error("the hub no longer has the changes after %s; remove %s to start with the oldest change. Subscribers of the node"
                  " have missed changes and should read a baseline", cursor_file.read(), path)
        return 3
    except rshub.RefusedError as e:
        log.error("%s", e)
        return 2
    finally:
        node.close()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
