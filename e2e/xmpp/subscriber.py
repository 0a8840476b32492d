"""Subscribes to a node of a pubsub service, and prints each item that it gets as a line of JSON.

What was published while it was away it gets from the items that the service keeps. Each line
says which way its item came.
"""

import asyncio
import json
import sys
from xml.etree import ElementTree

import slixmpp
from slixmpp.exceptions import IqError, IqTimeout

address, jid, password, service, node = sys.argv[1:]


class Subscriber(slixmpp.ClientXMPP):
    def __init__(self):
        super().__init__(jid, password)
        self.register_plugin("xep_0060")
        self.add_event_handler("session_start", self.begin)
        self.add_event_handler("pubsub_publish", self.published)
        self.add_event_handler("disconnected", self.again)
        self.add_event_handler("connection_failed", self.again)

    def reach(self):
        host, port = address.rsplit(":", 1)
        self.connect((host, int(port)), force_starttls=False, disable_starttls=True)

    async def again(self, _):
        await asyncio.sleep(0.5)
        self.reach()

    def say(self, **what):
        print(json.dumps(what), flush=True)

    async def begin(self, _):
        self.send_presence()
        while True:
            try:
                await self["xep_0060"].subscribe(service, node)
                break
            except (IqError, IqTimeout) as e:
                self.say(error=str(e))
                await asyncio.sleep(0.2)
        answer = await self["xep_0060"].get_items(service, node)
        for item in answer["pubsub"]["items"]:
            self.item(item, "items")
        self.say(ready=True)

    def published(self, message):
        self.item(message["pubsub_event"]["items"]["item"], "event")

    def item(self, item, way):
        self.say(id=item["id"], way=way, payload=ElementTree.tostring(item["payload"], encoding="unicode"))


client = Subscriber()
client.reach()
client.loop.run_forever()
