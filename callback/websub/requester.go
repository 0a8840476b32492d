package websub

import (
	"net/http"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/forwarded"
)

// Requester says who makes a request, as a subscription.Request keeps it: the
// name of a token, or the network address of a caller without one. It is empty
// when the hub knows neither, and for a caller with a ticket: that one is not who made
// the ticket, and is not shown what that one has asked for.
func Requester(r *http.Request) string {
	switch caller := access.FromContext(r.Context()); {
	case caller.Ticket:
		return ""
	case caller.Name != "":
		return subscription.ByToken(caller.Name)
	}
	client := forwarded.Client(r)
	if !client.IsValid() {
		return ""
	}
	return subscription.ByAddress(client)
}
