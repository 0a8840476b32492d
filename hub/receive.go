package hub

import (
	"net/http"

	"github.com/rshub/rshub/feed"
)

// Receive is ServePublish for who answers in another form: it takes the publish in r, and
// returns the receipt in place of sending it.
func (h *Hub) Receive(w http.ResponseWriter, r *http.Request, set string) (*feed.Receipt, error) {
	return h.receive(w, r, set)
}
