package server

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/rshub/rshub/feed/compressed"
	"github.com/rshub/rshub/problem"
)

// serveDictionary serves the dictionary with which short messages are compressed. It is
// the same for everybody, and no secret.
func (s *site) serveDictionary(w http.ResponseWriter, r *http.Request) error {
	if err := problem.OnlyRead(r, "GET, HEAD"); err != nil {
		return err
	}
	if r.PathValue("name") != compressed.Name() {
		return problem.New(http.StatusNotFound, "not-found", "this hub has another dictionary: "+s.base.Dictionary(compressed.Name()))
	}
	dictionary := compressed.Dictionary()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Use-As-Dictionary", s.usedFor())
	h.Set("Content-Length", strconv.Itoa(len(dictionary)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(dictionary) // the client may be gone
	}
	return nil
}

// usedFor returns for which URLs a client may use the dictionary: for all topics of the
// hub (RFC 9842 section 2.1).
func (s *site) usedFor() string {
	path := ""
	if u, err := url.Parse(string(s.base)); err == nil {
		path = u.EscapedPath()
	}
	return `match="` + path + `/sets/*/changes*"`
}
