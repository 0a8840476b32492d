"""A destination that is told of changes by an XMPP pubsub node: prints "id<TAB>payload" for each item when it first sees it.

    python3 subscriber.py bob@localhost secret 127.0.0.1:5222 pubsub.localhost node

On each connection it subscribes, and asks for the items that the node keeps: it was not told of those while it was away.
"""

import asyncio
import sys
import xml.etree.ElementTree as ET

import slixmpp


async def main(jid, password, address, service, node):
    seen = set()
    xmpp = slixmpp.ClientXMPP(jid, password)
    xmpp.register_plugin("xep_0060")
    host, _, port = address.rpartition(":")
    ends = asyncio.Queue()

    def show(item):
        if item["id"] not in seen:
            seen.add(item["id"])
            print(item["id"], ET.tostring(item["payload"], "unicode"), sep="\t", flush=True)

    async def begin(_):
        xmpp.caught_up = False
        xmpp.send_presence()  # else nobody is there to be told
        try:
            await xmpp["xep_0060"].subscribe(service, node)
            kept = await xmpp["xep_0060"].get_items(service, node)
        except slixmpp.exceptions.IqError as e:  # there is no node yet
            print(e.condition, file=sys.stderr)
            return xmpp.abort()
        for item in kept["pubsub"]["items"]["substanzas"]:
            show(item)
        xmpp.caught_up = True
        print("caught up", file=sys.stderr, flush=True)

    def told(message):  # what comes before the items were answered is among them
        if xmpp.caught_up:
            for item in message["pubsub_event"]["items"]["substanzas"]:  # not the items themselves: slixmpp is in a loop over them
                show(item)

    xmpp.add_event_handler("session_start", begin)
    xmpp.add_event_handler("pubsub_publish", told)
    xmpp.add_event_handler("disconnected", ends.put_nowait)
    xmpp.add_event_handler("connection_failed", ends.put_nowait)
    while True:
        xmpp.connect((host, int(port)))
        print("lost:", await ends.get(), file=sys.stderr, flush=True)
        xmpp.cancel_connection_attempt()
        await asyncio.sleep(0.1)


asyncio.run(main(*sys.argv[1:]))
