package server

import (
	"fmt"
	"net/http"

	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// Limits of the header of a request, in bytes. boundHeader answers a header above maxHeader.
// net/http answers one above maxReadHeader, and then closes the connection, which over HTTP/2
// ends all other requests on it.
const (
	maxHeader     = 32 << 10
	maxReadHeader = 256 << 10
)

// fieldOverhead is added to the size of each field, as in RFC 9113 section 6.5.2.
const fieldOverhead = 32

// headerSize returns the size of r's header, its URL included, and the name of its largest
// part. Names and values count, and fieldOverhead for each field. Fields of the same name are
// one part.
func headerSize(r *http.Request) (size int, largest string) {
	most := 0
	add := func(name string, values ...string) {
		n := 0
		for _, v := range values {
			n += len(name) + len(v) + fieldOverhead
		}
		if size += n; n > most {
			most, largest = n, name
		}
	}
	add("URL", r.RequestURI)
	add("Host", r.Host)
	for name, values := range r.Header {
		add(name, values...)
	}
	for name := range r.Trailer { // net/http has removed the field Trailer from r.Header
		add("Trailer", name)
	}
	return size, largest
}

// boundHeader answers requests whose header is above maxHeader with 431. It empties the
// header first, so that a client that is slow to take the answer does not hold the memory.
func boundHeader(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size, largest := headerSize(r)
		if size <= maxHeader {
			next.ServeHTTP(w, r)
			return
		}
		largest = resourcesync.Shorten(largest)
		clear(r.Header)
		protect(w.Header())
		problem.Write(w, r, problem.New(http.StatusRequestHeaderFieldsTooLarge, "header-too-large",
			fmt.Sprintf("the header of the request has %d bytes, want at most %d; its largest part is %q", size, maxHeader, largest)))
	})
}
