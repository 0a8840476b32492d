package attack

import (
	"fmt"
	"strings"
)

// slowness are attacks with many slow or idle connections.
func slowness() []attack {
	const local = " HTTP/1.1\r\nHost: localhost\r\n"
	hold := func(name string, n int, begin, drip string) attack {
		return attack{name, func(a *attacker) {
			a.holdConnections(n, a.hub.Host, strings.ReplaceAll(begin, "AUTH", a.auth), drip)
		}}
	}
	follow := fmt.Sprintf("GET /sets/%s/changes", calmSet) + local
	return []attack{
		hold("slow headers", 300, "GET /sets"+local+"X-Slow: ", "a"),
		{"slow headers at the operations address", func(a *attacker) {
			a.holdConnections(300, strings.TrimPrefix(a.hub.Ops, "http://"), "GET /readyz"+local+"X-Slow: ", "a")
		}},
		hold("slow bodies", 300, "POST /sets/evil/changes"+local+"AUTH\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{", " "),
		hold("slow readers", 300, "GET /sets/evil/changes?since=start&limit=10000"+local+"AUTH\r\n\r\n", ""),
		hold("idle event streams", 1500, follow+"Accept: text/event-stream\r\n\r\n", ""),
		hold("idle WebSockets", 1500, follow+"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", ""),
		hold("unread refusals", 100, refusals(), ""),
	}
}

// refusals returns an HTTP/2 connection with 250 requests and a flow-control window of zero for
// the bodies of the responses.
func refusals() string {
	var b strings.Builder
	frame := func(kind, flags byte, stream int, payload string) {
		n := len(payload)
		b.Write([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags, 0, 0, byte(stream >> 8), byte(stream)})
		b.WriteString(payload)
	}
	b.WriteString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	frame(4, 0, 0, "\x00\x04\x00\x00\x00\x00")            // SETTINGS: a window of 0 bytes
	wrong := "\x82\x86\x84\x41\x09localhost\x0f\x08\x01x" // GET, http, /, :authority, and an invalid authorization
	for i := range 250 {
		frame(1, 5, 2*i+1, wrong)
	}
	return b.String()
}
