//go:build linux

package main

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

var milliseconds = metric{name: "ms"}

const repeats = 10 // of what is cheap: the median of so many counts as one

// A fetch is a GET that is timed.
type fetch struct {
	name     string
	path     string
	gzip     bool
	again    bool // not the first time
	validate bool // with the ETag: answered 304
}

// documents measures Change Lists. It starts rshub anew for each round, so that each list
// is really fetched for the first time.
func (b *bench) documents(t *table) error {
	dir, err := b.dir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fetches, err := b.fillLists(dir)
	if err != nil {
		return err
	}
	saved := filepath.Join(dir, "saved")
	if err := os.Mkdir(saved, 0o755); err != nil {
		return err
	}
	ours, err := b.rshub(dir)
	if err != nil {
		return err
	}
	for i, f := range fetches {
		body, _, err := get(ours, f, "")
		if err = cmp.Or(err, os.WriteFile(filepath.Join(saved, fmt.Sprint(i)), body, 0o644)); err != nil {
			ours.stop()
			return err
		}
	}
	ours.stop()
	floor, err := b.floor("documents", saved)
	if err != nil {
		return err
	}
	defer floor.stop()
	same := slices.Clone(fetches)
	for i := range same {
		same[i].path = fmt.Sprintf("/%d", i)
	}
	return alternate(b,
		func() (fetched, error) { return times(floor, same) },
		func() (fetched, error) {
			s, err := b.rshub(dir)
			if err != nil {
				return fetched{}, err
			}
			defer s.stop()
			return times(s, fetches)
		},
		func(f, o fetched) {
			for i := range fetches {
				t.add(fetches[i].name, milliseconds, f.ms[i], o.ms[i], max(f.others, o.others))
			}
		})
}

// fillLists publishes two closed lists and more, and returns what to fetch.
func (b *bench) fillLists(dir string) ([]fetch, error) {
	const n = 1000
	count := b.list*2 + 10*n
	if err := b.fillDisk(dir, count, n, b.list); err != nil {
		return nil, err
	}
	log, err := memory(dir)
	if err != nil {
		return nil, err
	}
	state, err := log.State(b.ctx, benchSet)
	first, aerr := log.At(b.ctx, benchSet, uint64(count-2*b.list+1))
	if err := cmp.Or(err, aerr, log.Close()); err != nil {
		return nil, err
	}
	list := fmt.Sprintf("/sets/%s/changelist-%d-1.xml", benchSet, state.Begin)
	since := "/sets/" + benchSet + "/changelist.xml?from=" + url.QueryEscape(string(resourcesync.AppendTimeMicro(nil, first.Micros)))
	size, twice := format(float64(b.list)), format(float64(2*b.list))
	return []fetch{
		{name: "closed list of " + size + ", first time", path: list},
		{name: "again", path: list, again: true},
		{name: "closed list of " + size + ", gzip, first time", path: list, gzip: true},
		{name: "gzip, again", path: list, gzip: true, again: true},
		{name: "304", path: list, again: true, validate: true},
		{name: "?from= of " + twice, path: since},
		{name: "?from= of " + twice + ", gzip", path: since, gzip: true},
	}, nil
}

// client asks for gzip only if a request says so, and does not decompress.
var client = &http.Client{Transport: &http.Transport{DisableCompression: true, ReadBufferSize: 256 << 10}, Timeout: 4 * answerTime}

// get fetches a whole answer.
func get(s *server, f fetch, etag string) (body []byte, newTag string, err error) {
	req, err := http.NewRequest(http.MethodGet, "http://"+s.addr+f.path, nil)
	if err != nil {
		return nil, "", err
	}
	want := http.StatusOK
	if f.gzip {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
		want = http.StatusNotModified
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != want {
		err = fmt.Errorf("GET %s: %s: %.300s", f.path, resp.Status, body)
	}
	return body, resp.Header.Get("ETag"), err
}

// A fetched is how many milliseconds each fetch took.
type fetched struct {
	usage
	ms []float64
}

func times(s *server, fetches []fetch) (t fetched, err error) {
	defer client.CloseIdleConnections()
	if _, _, err := get(s, fetch{path: "/sets"}, ""); err != nil { // connects
		return t, err
	}
	t.usage, err = measure(func() error {
		t.ms, err = timeEach(s, fetches)
		return err
	}, s)
	return t, err
}

func timeEach(s *server, fetches []fetch) ([]float64, error) {
	out := make([]float64, len(fetches))
	for i, f := range fetches {
		n, etag := 1, ""
		if f.again {
			n = repeats
		}
		if f.validate {
			var err error
			if _, etag, err = get(s, f, ""); err != nil {
				return nil, err
			}
		}
		var each []float64
		for range n {
			begin := time.Now()
			if _, _, err := get(s, f, etag); err != nil {
				return nil, err
			}
			each = append(each, float64(time.Since(begin).Microseconds())/1000)
		}
		out[i] = median(each)
	}
	return out, nil
}

// newDocumentsFloor serves the files of a directory from memory.
func newDocumentsFloor(dir string) (http.Handler, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /sets", func(http.ResponseWriter, *http.Request) {})
	for _, f := range files {
		body, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		etag := `"` + f.Name() + `"`
		mux.HandleFunc("GET /"+f.Name(), func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("ETag", etag)
			if strings.Contains(r.Header.Get("If-None-Match"), etag) {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			h.Set("Content-Type", "application/xml")
			h.Set("Content-Length", fmt.Sprint(len(body)))
			_, _ = w.Write(body)
		})
	}
	return mux, nil
}
