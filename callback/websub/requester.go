package websub

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/callback/subscription"
)

// requester says who makes a request, as a subscription.Request keeps it: the
// name of a token, or the network address of a caller without one. It is empty
// when the hub cannot tell callers apart.
//
// A proxy in front of the hub hides addresses. What it says in X-Forwarded-For
// counts only when the connection comes from a private network, and only when
// it is a single address: a client that sends such a header itself gets no
// name by it, because the proxy adds another address.
func requester(r *http.Request) string {
	if name := access.FromContext(r.Context()).Name; name != "" {
		return subscription.ByToken(name)
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	addr := from.Addr().Unmap()
	if forwarded := r.Header.Values("X-Forwarded-For"); len(forwarded) > 0 || r.Header.Get("Forwarded") != "" {
		if len(forwarded) != 1 || !addr.IsLoopback() && !addr.IsPrivate() {
			return ""
		}
		if addr, err = netip.ParseAddr(strings.TrimSpace(forwarded[0])); err != nil {
			return ""
		}
	}
	return subscription.ByAddress(addr)
}
