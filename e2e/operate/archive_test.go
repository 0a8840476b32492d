package operate

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestArchiveInS3 archives Change Lists and Resource Lists in S3, and kills the hub. The next one goes
// on where it was.
func TestArchiveInS3(t *testing.T) {
	t.Parallel()
	backend := s3mem.New()
	if err := backend.CreateBucket("content"); err != nil {
		t.Fatal(err)
	}
	s3 := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(s3.Close)
	h := hubtest.StartHub(t, "RSHUB_CONTENT_PLACE=s3://content/of/rshub?region=us-east-1&endpoint="+s3.URL, "AWS_ACCESS_KEY_ID=id", "AWS_SECRET_ACCESS_KEY=secret",
		"RSHUB_CHANGELIST_SIZE=10")
	hubtest.Must(t, http.StatusOK, "PUT", h.URL+"/sets/demo", []byte(`{"archives":"on"}`))
	publish := func(n int) {
		var lines strings.Builder
		for i := range n {
			fmt.Fprintf(&lines, `{"loc":"https://example.org/%d","change":"updated"}`+"\n", i)
		}
		hubtest.Publish(t, h, "demo", []byte(lines.String()))
	}
	archived := func(want int) (locs []string) {
		hubtest.Until(t, fmt.Sprintf("%d lists are archived", want), func() error {
			a, err := hubtest.Request("GET", h.URL+"/sets/demo/changelist-archive.xml", nil)
			if err != nil {
				return err
			}
			locs = nil
			for _, rest := range strings.Split(string(a.Body), "<loc>")[1:] {
				loc, _, _ := strings.Cut(rest, "</loc>")
				locs = append(locs, loc)
			}
			if len(locs) != want {
				return errors.New(string(a.Body))
			}
			return nil
		})
		return locs
	}
	publish(25)
	archived(2)
	h.Kill()
	h.Start(t)
	publish(20)
	for _, loc := range archived(4) {
		a := hubtest.Must(t, http.StatusOK, "GET", loc, nil)
		if n := strings.Count(string(a.Body), "<url>"); n != 10 {
			t.Errorf("%s has %d changes", loc, n)
		}
	}

	// What the set had when it became complete stays, whatever comes.
	hubtest.Must(t, http.StatusOK, "PUT", h.URL+"/sets/demo", []byte(`{"archives":"on","complete":true}`))
	var list string
	hubtest.Until(t, "a Resource List is archived", func() error {
		a, err := hubtest.Request("GET", h.URL+"/sets/demo/resourcelist-archive.xml", nil)
		if err != nil {
			return err
		}
		_, rest, ok := strings.Cut(string(a.Body), "<loc>")
		if list, _, _ = strings.Cut(rest, "</loc>"); !ok {
			return errors.New(string(a.Body))
		}
		return nil
	})
	before := hubtest.Must(t, http.StatusOK, "GET", list, nil)
	publish(30)
	h.Kill()
	h.Start(t)
	if a := hubtest.Must(t, http.StatusOK, "GET", list, nil); string(a.Body) != string(before.Body) || strings.Count(string(a.Body), "<url>") != 25 {
		t.Errorf("the archived Resource List is %s, and was %s", a.Body, before.Body)
	}
}
