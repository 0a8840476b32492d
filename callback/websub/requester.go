package websub

import (
	"net/http"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/internal/forwarded"
)

// Requester says who makes a request, as a subscription.Request keeps it: the
// name of a token, or the network address of a caller without one. It is empty
// when the hub knows neither.
func Requester(r *http.Request) string {
	if name := access.FromContext(r.Context()).Name; name != "" {
		return subscription.ByToken(name)
	}
	client := forwarded.Client(r)
	if !client.IsValid() {
		return ""
	}
	return subscription.ByAddress(client)
}
