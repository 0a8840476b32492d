package documents_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rshub/rshub/documents"
	"github.com/rshub/rshub/resourcesync"
)

// discard is a response whose body costs nothing to receive.
type discard struct {
	header http.Header
	code   int
	n      int64
}

func (d *discard) Header() http.Header { return d.header }
func (d *discard) WriteHeader(code int) {
	if d.code == 0 {
		d.code = code
	}
}
func (d *discard) Write(p []byte) (int, error) {
	d.WriteHeader(http.StatusOK)
	d.n += int64(len(p))
	return len(p), nil
}

func benchmark(b *testing.B, s func() *server, path string, code, entries int, header ...string) {
	r := httptest.NewRequestWithContext(b.Context(), "GET", path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	b.ReportAllocs()
	var sent int64
	for b.Loop() {
		w := &discard{header: make(http.Header)}
		s().ServeHTTP(w, r)
		if w.code != code {
			b.Fatalf("%d", w.code)
		}
		sent = w.n
	}
	b.ReportMetric(float64(sent)/1e6, "MB/op")
	if entries > 0 {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(entries), "ns/entry")
	}
}

func BenchmarkDocuments(b *testing.B) {
	m := newMemory(b)
	m.make("peps", 25_000)
	for range 60 {
		m.add("peps", 1_000)
	}
	state := m.state("peps")
	closed := list(state, 1)
	from := "/sets/peps/changelist.xml?from=" + string(resourcesync.AppendTimeMicro(nil, state.Begin))
	warm := newServer(m, documents.Options{})
	cold := func() *server { return newServer(m, documents.Options{}) }
	kept := func() *server { return warm }
	tag := warm.get(closed).Header().Get("Etag")
	head := warm.get("/sets/peps/changelist.xml").Header().Get("Etag")

	b.Run("since", func(b *testing.B) { // what the log itself costs
		for b.Loop() {
			for after := state.Floor; after.Position < 25_000; {
				batch, err := m.Log.Since(b.Context(), "peps", after, 5_000)
				if err != nil {
					b.Fatal(err)
				}
				after = batch.Cursor
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/25_000, "ns/entry")
	})
	b.Run("closed/first/identity", func(b *testing.B) { benchmark(b, cold, closed, 200, 25_000) })
	b.Run("closed/first/zstd", func(b *testing.B) { benchmark(b, cold, closed, 200, 25_000, "Accept-Encoding", "zstd") })
	b.Run("closed/first/gzip", func(b *testing.B) { benchmark(b, cold, closed, 200, 25_000, "Accept-Encoding", "gzip") })
	b.Run("closed/kept/identity", func(b *testing.B) { benchmark(b, kept, closed, 200, 0) })
	b.Run("closed/kept/gzip", func(b *testing.B) { benchmark(b, kept, closed, 200, 0, "Accept-Encoding", "gzip") })
	b.Run("closed/304", func(b *testing.B) { benchmark(b, kept, closed, 304, 0, "If-None-Match", tag) })
	b.Run("open/304", func(b *testing.B) { benchmark(b, kept, "/sets/peps/changelist.xml", 304, 0, "If-None-Match", head) })
	b.Run("open/first/identity", func(b *testing.B) { benchmark(b, cold, "/sets/peps/changelist.xml", 200, 35_000) })
	b.Run("open/first/gzip", func(b *testing.B) {
		benchmark(b, cold, "/sets/peps/changelist.xml", 200, 35_000, "Accept-Encoding", "gzip")
	})
	b.Run("from/identity", func(b *testing.B) { benchmark(b, kept, from, 200, 50_000) })
	b.Run("from/gzip", func(b *testing.B) { benchmark(b, cold, from, 200, 50_000, "Accept-Encoding", "gzip") })
}
