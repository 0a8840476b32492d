//go:build linux

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

const repeats = 10 // of a cheap operation: the median of all counts as one

// A fetch is a timed GET.
type fetch struct {
	name     string
	path     string
	gzip     bool
	again    bool // not the first time
	validate bool // with the ETag: answered 304
}

// documents measures Change Lists. It restarts rshub for each round, so that each list is fetched
// for the first time.
func (b *bench) documents(t *table) {
	dir, saved := b.dir(), b.dir()
	fetches := b.fillLists(dir)
	same := slices.Clone(fetches)
	must(b.scope(func() {
		s := b.rshub(dir)
		for i, f := range fetches {
			same[i].path = fmt.Sprintf("/%d", i)
			body, _ := get(s, f, "")
			must(os.WriteFile(saved+same[i].path, body, 0o644))
		}
	}))
	floor := b.floor("files", saved)
	figures := make([]metric, len(fetches))
	for i, f := range fetches {
		figures[i] = each(i, f.name+", ms")
	}
	b.compare(t, "lists of "+count(b.list), figures,
		func() sample { return times(floor, "/", same) },
		func() sample { return times(b.rshub(dir), "/sets", fetches) })
}

// fillLists publishes two closed lists and more, and returns what to fetch.
func (b *bench) fillLists(dir string) []fetch {
	const n = 1000
	changes := b.list*2 + 10*n
	b.fillDisk(dir, changes, n, b.list)
	m := b.diskAt(dir)
	state := have(m.log.State(b.ctx, benchSet))
	first := have(m.log.At(b.ctx, benchSet, uint64(changes-2*b.list+1)))
	end := have(m.log.At(b.ctx, benchSet, uint64(b.list)))
	must(m.log.Close())
	list := fmt.Sprintf("/sets/%s/changelist-%d-1-until-%d.xml", benchSet, state.Begin, end.Micros)
	since := "/sets/" + benchSet + "/changelist.xml?from=" + url.QueryEscape(string(resourcesync.AppendTimeMicro(nil, first.Micros)))
	return []fetch{
		{name: "closed list, first time", path: list},
		{name: "again", path: list, again: true},
		{name: "gzip, first time", path: list, gzip: true},
		{name: "gzip, again", path: list, gzip: true, again: true},
		{name: "304", path: list, again: true, validate: true},
		{name: "?from= of two", path: since},
		{name: "?from= of two, gzip", path: since, gzip: true},
	}
}

// client asks for gzip only if a request says so, and does not decompress.
var client = &http.Client{Transport: &http.Transport{DisableCompression: true, ReadBufferSize: 256 << 10}, Timeout: 4 * answerTime}

// get fetches a complete response.
func get(s *server, f fetch, etag string) (body []byte, newTag string) {
	req := have(http.NewRequest(http.MethodGet, "http://"+s.addr+f.path, nil))
	want := http.StatusOK
	if f.gzip {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
		want = http.StatusNotModified
	}
	resp := have(client.Do(req))
	defer resp.Body.Close()
	body = have(io.ReadAll(resp.Body))
	if resp.StatusCode != want {
		must(fmt.Errorf("GET %s: %s: %.300s", f.path, resp.Status, body))
	}
	return body, resp.Header.Get("ETag")
}

// times returns how many milliseconds each fetch took. A GET of first connects.
func times(server *server, first string, fetches []fetch) sample {
	defer client.CloseIdleConnections()
	get(server, fetch{path: first}, "")
	times := make([]float64, len(fetches))
	s := measure(func() {
		for i, f := range fetches {
			times[i] = f.time(server)
		}
	}, server)
	s.each = times
	return s
}

// time returns the duration of a fetch in milliseconds, or the median of several.
func (f fetch) time(s *server) float64 {
	n, etag := 1, ""
	if f.again {
		n = repeats
	}
	if f.validate {
		_, etag = get(s, f, "")
	}
	took := make([]float64, n)
	for i := range took {
		begin := time.Now()
		get(s, f, etag)
		took[i] = float64(time.Since(begin).Microseconds()) / 1000
	}
	return median(took)
}
