package subscribe

import (
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/accept"
	"github.com/rshub/rshub/problem"
	"github.com/rshub/rshub/resourcesync"
)

// messageFormat returns the format of the messages that r asks for: that of the first of
// r's subprotocols that the server speaks. A client names first what it prefers (RFC 6455
// section 4.1).
func (s *Server) messageFormat(r *http.Request) (*feed.Format, error) {
	asked := websocket.Subprotocols(r)
	if len(asked) == 0 {
		return s.opts.Messages[0], nil
	}
	for _, name := range asked {
		if i := slices.IndexFunc(s.opts.Messages, func(f *feed.Format) bool { return f.Name == name }); i >= 0 {
			return s.opts.Messages[i], nil
		}
	}
	return nil, resourcesync.Invalid("subprotocol %.40q: it is %s, or none", asked[0], strings.Join(names(s.opts.Messages), " or "))
}

// chosen returns the header of an answer to r that names the format of the messages. A
// client that asks for no subprotocol must get none.
func chosen(r *http.Request, f *feed.Format) http.Header {
	if len(websocket.Subprotocols(r)) == 0 {
		return nil
	}
	return http.Header{"Sec-Websocket-Protocol": {f.Name}}
}

// names returns the subprotocols of formats.
func names(formats []*feed.Format) []string {
	all := make([]string, len(formats))
	for i, f := range formats {
		all[i] = f.Name
	}
	return all
}

// mediaType returns the media type of the answer that r accepts, or "" if r refuses all
// of them. first are types besides those for following. An event stream has no end, so
// only a client that names it itself gets one, and not a client with a wildcard.
func (s *Server) mediaType(r *http.Request, first ...string) string {
	offers := first
	if accept.Names(r.Header, eventStream) {
		offers = append(offers, eventStream)
	}
	for _, f := range s.opts.Pages {
		offers = append(offers, f.MediaType)
	}
	return accept.Media(r.Header, offers...)
}

// pageFormat returns the format of pages that r accepts.
func (s *Server) pageFormat(r *http.Request) *feed.Format {
	mediaType := s.mediaType(r)
	for _, f := range s.opts.Pages {
		if f.MediaType == mediaType {
			return f
		}
	}
	return s.opts.Pages[0]
}

// notAcceptable returns the problem of a client that refuses every form of an answer.
func (s *Server) notAcceptable() error {
	var pages []string
	for _, f := range s.opts.Pages {
		pages = append(pages, f.MediaType)
	}
	return problem.New(http.StatusNotAcceptable, "not-acceptable", "the header Accept allows no format of this URL: "+strings.Join(pages, ", ")+", and "+eventStream)
}
