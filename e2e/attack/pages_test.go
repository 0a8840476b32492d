package attack

import (
	"fmt"
	"net/http"
	"strings"
)

// pagesElsewhere asks for everything as a browser does that shows a page of somebody else,
// whose reader needs no token for some of it.
func pagesElsewhere() []attack {
	return []attack{{"pages elsewhere", func(a *attacker) {
		const change = `{"changes":[{"loc":"https://evil.example.org/","change":"created"}]}`
		routes := []struct{ method, path string }{
			{"GET", "/"}, {"GET", "/sets"}, {"POST", "/hub"}, {"PUT", "/sets/calm"}, {"DELETE", "/sets/calm"}, {"GET", "/sets/calm/changes"}, {"POST", "/sets/calm/changes"},
			{"GET", "/sets/calm/changes?since=start"}, {"GET", "/sets/calm/resources"}, {"POST", "/sets/calm/audit"}, {"GET", "/sets/calm/changelist.xml"}, {"GET", "/nowhere"},
		}
		opsRoutes := []struct{ method, path string }{{"GET", "/metrics"}, {"GET", "/backup"}, {"POST", "/debug/pprof/profile"}}
		socket := "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
		ways := []struct{ name, host, headers string }{
			{"a script", a.hub.Host, "Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: cors\r\n"},
			{"a script in a frame without an origin", a.hub.Host, "Origin: null\r\nSec-Fetch-Site: cross-site\r\n"},
			{"an image", a.hub.Host, "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image\r\n"},
			{"a WebSocket", a.hub.Host, "Origin: https://evil.example\r\n" + socket},
			{"a name that was bound to this address", "evil.example", "Origin: http://evil.example\r\nSec-Fetch-Site: same-origin\r\n"},
			{"a preflight", a.hub.Host, "Origin: https://evil.example\r\nAccess-Control-Request-Method: DELETE\r\nAccess-Control-Request-Headers: authorization\r\n"},
		}
		try := func(addr, method, path, host, name, headers string) {
			if name == "a preflight" {
				method = http.MethodOptions
			}
			body := ""
			if method == http.MethodPost || method == http.MethodPut {
				body = change
			}
			if addr != a.hub.Host {
				host = strings.Replace(host, a.hub.Host, addr, 1)
			}
			text := a.raw(addr, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n%sContent-Type: text/plain\r\nContent-Length: %d\r\n%s\r\n%s", method, path, host, headers, len(body), closing(headers), body))
			if status := strings.Fields(text + " no answer")[1]; status != "403" && status != "421" && status != "429" {
				a.t.Errorf("%s %s by %s is answered %.300s", method, path, name, text)
			}
			if strings.Contains(strings.ToLower(text), "access-control-allow") {
				a.t.Errorf("%s %s by %s is allowed to scripts: %s", method, path, name, text)
			}
		}
		ops := strings.TrimPrefix(a.hub.Ops, "http://")
		for _, way := range ways {
			for _, r := range routes {
				try(a.hub.Host, r.method, r.path, way.host, way.name, way.headers)
			}
			for _, r := range opsRoutes {
				if way.host != a.hub.Host && r.path == "/metrics" {
					continue // probes come by any name, and it says nothing of anybody
				}
				try(ops, r.method, r.path, way.host, way.name, way.headers)
			}
		}
		a.only(403, 421, 429)
	}}}
}

// closing returns the header that ends a connection after the answer, unless there is one
// of its name.
func closing(headers string) string {
	if strings.Contains(headers, "Connection:") {
		return ""
	}
	return "Connection: close\r\n"
}
