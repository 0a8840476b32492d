package server

import (
	"fmt"
	"net/http"

	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// Limits of the header of a request, in bytes. limitHeader refuses headers above maxHeader. net/http
// refuses those above maxReadHeader and closes the connection, which over HTTP/2 ends all other
// requests on it.
const (
	maxHeader     = 32 << 10
	maxReadHeader = 256 << 10
)

// fieldOverhead is added to the size of each field, as in RFC 9113 section 6.5.2.
const fieldOverhead = 32

// headerSize returns the size of r's header, including the URL, and the name of its largest part. Each
// field counts with its name, its value and fieldOverhead. Fields with the same name are one part.
func headerSize(r *http.Request) (size int, largest string) {
	largestSize := 0
	add := func(name string, values ...string) {
		n := 0
		for _, v := range values {
			n += len(name) + len(v) + fieldOverhead
		}
		if size += n; n > largestSize {
			largestSize, largest = n, name
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

// limitHeader answers requests whose header is above maxHeader with 431. It clears the header first, so
// that a slow client does not hold its memory.
func limitHeader(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size, largest := headerSize(r)
		if size <= maxHeader {
			next.ServeHTTP(w, r)
			return
		}
		largest = resourcesync.Shorten(largest)
		clear(r.Header)
		setSecurityHeaders(w.Header())
		problem.Write(w, r, problem.New(http.StatusRequestHeaderFieldsTooLarge, "header-too-large",
			fmt.Sprintf("got a header of %d bytes, want at most %d; the largest part is %q", size, maxHeader, largest)))
	})
}
