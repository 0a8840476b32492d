package subscribe

import (
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/accept"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/internal/zst"
	"github.com/rshub/rshub/resourcesync"
)

// JSONZstd is feed.JSON with Zstandard. Each message is compressed once for all followers,
// independently of earlier messages.
var JSONZstd = &feed.Format{Name: "rs.json+zstd", Zstd: true, Append: func(dst []byte, b *feed.Batch, _ string) []byte {
	return zst.Append(dst, b.JSON())
}, Baseline: feed.JSON.Baseline}

// messageFormat returns the first of the server's message formats that is among r's
// subprotocols.
func (s *Server) messageFormat(r *http.Request) (*feed.Format, error) {
	asked := websocket.Subprotocols(r)
	if len(asked) == 0 {
		return s.opts.Messages[0], nil
	}
	for _, f := range s.opts.Messages {
		if slices.Contains(asked, f.Name) {
			return f, nil
		}
	}
	return nil, resourcesync.Invalidf("subprotocol: got %.40q, want %s, or none", asked[0], strings.Join(names(s.opts.Messages), ", "))
}

// names returns the subprotocol names of formats.
func names(formats []*feed.Format) []string {
	all := make([]string, len(formats))
	for i, f := range formats {
		all[i] = f.Name
	}
	return all
}

// mediaType returns the media type that r prefers, or "" if r accepts none. first has types
// to offer in addition to those for following. An event stream has no end, so it is offered
// only to clients that name it, not to clients with a wildcard.
func (s *Server) mediaType(r *http.Request, first ...string) string {
	offers := first
	if accept.Names(r.Header, eventStream) {
		offers = append(offers, eventStream)
	}
	return accept.Media(r.Header, append(offers, s.pages()...)...)
}

// pages returns the media types of pages.
func (s *Server) pages() (all []string) {
	for _, f := range s.opts.Pages {
		all = append(all, f.MediaType)
	}
	return all
}

// pageFormat returns the page format that r prefers.
func (s *Server) pageFormat(r *http.Request) *feed.Format {
	mediaType := s.mediaType(r)
	for _, f := range s.opts.Pages {
		if f.MediaType == mediaType {
			return f
		}
	}
	return s.opts.Pages[0]
}

// notAcceptable returns the problem for a client that accepts no available media type.
func (s *Server) notAcceptable() error {
	return problem.New(http.StatusNotAcceptable, "not-acceptable", "Accept allows none of the available types: "+strings.Join(s.pages(), ", ")+", and "+eventStream)
}
