package operate

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A packagedDump is a Resource Dump as a destination sees it.
type packagedDump struct {
	URL []struct {
		Loc string `xml:"loc"`
		MD  struct {
			Hash string `xml:"hash,attr"`
		} `xml:"http://www.openarchives.org/rs/terms/ md"`
	} `xml:"url"`
}

// TestContentInS3 makes a dump in S3, with contents that are larger than a part of an upload, and
// kills the hub in the middle. What is packed is not asked for again, and half a dump is not
// served.
func TestContentInS3(t *testing.T) {
	t.Parallel()
	backend := s3mem.New()
	if err := backend.CreateBucket("content"); err != nil {
		t.Fatal(err)
	}
	s3 := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(s3.Close)

	const contents = 12
	text := func(path string) string { return strings.Repeat(path+" ", 5<<20/len(path)) }
	var mu sync.Mutex
	asked, wait, reached := map[string]int{}, make(chan struct{}), make(chan struct{})
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.URL.Path]++
		first := r.URL.Path == "/c09.jpg" && asked[r.URL.Path] == 1
		mu.Unlock()
		if first {
			close(reached)
			select {
			case <-wait:
			case <-r.Context().Done():
			}
			return
		}
		_, _ = io.WriteString(w, text(r.URL.Path))
	}))
	t.Cleanup(origin.Close)
	t.Cleanup(func() { close(wait) })

	h := hubtest.StartHub(t, "RSHUB_CONTENT_PLACE=s3://content/of/rshub?region=us-east-1&endpoint="+s3.URL, "AWS_ACCESS_KEY_ID=id", "AWS_SECRET_ACCESS_KEY=secret",
		"RSHUB_CALLBACK_ALLOW=127.0.0.0/8", "RSHUB_DUMP_PACKAGE_COUNT=5")
	var lines bytes.Buffer
	for i := range contents {
		path := fmt.Sprintf("/c%02d.jpg", i)
		fmt.Fprintf(&lines, `{"loc":"%s%s","change":"created","hash":"sha-256:%x"}`+"\n", origin.URL, path, sha256.Sum256([]byte(text(path))))
	}
	hubtest.Publish(t, h, "demo", lines.Bytes())
	for _, body := range []string{`{"dumps":"on"}`, `{"complete":true}`} {
		hubtest.Must(t, http.StatusOK, "PUT", h.URL+"/sets/demo", []byte(body))
	}
	<-reached
	objects := func() (names []string) {
		list, err := backend.ListBucket("content", &gofakes3.Prefix{}, gofakes3.ListBucketPage{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Contents {
			names = append(names, o.Key)
		}
		return names
	}
	hubtest.Until(t, "the first package is in S3, and the hub has noted that", func() error {
		o, err := backend.GetObject("content", "of/rshub/demo/dumps.json", nil)
		if err != nil {
			return err
		}
		defer o.Contents.Close()
		var record struct {
			BegunResources struct{ Packages []struct{} }
		}
		if err := json.NewDecoder(o.Contents).Decode(&record); err != nil || len(record.BegunResources.Packages) == 0 {
			return fmt.Errorf("it has %v: %w", objects(), err)
		}
		return nil
	})
	hubtest.Must(t, http.StatusNotFound, "GET", h.URL+"/sets/demo/resourcedump.xml", nil)
	h.Kill()
	h.Start(t)
	var dump packagedDump
	hubtest.Until(t, "there is a dump", func() error {
		a, err := hubtest.Request("GET", h.URL+"/sets/demo/resourcedump.xml", nil)
		if err != nil {
			return err
		}
		if a.Status != http.StatusOK {
			return errors.New(string(a.Body))
		}
		return xml.Unmarshal(a.Body, &dump)
	})
	held := map[string]bool{}
	for _, p := range dump.URL {
		a := hubtest.Must(t, http.StatusOK, "GET", p.Loc, nil)
		if fmt.Sprintf("sha-256:%x", sha256.Sum256(a.Body)) != p.MD.Hash {
			t.Errorf("%s has another hash", p.Loc)
		}
		const from = 10_000_000
		part := hubtest.Must(t, http.StatusPartialContent, "GET", p.Loc, nil, fmt.Sprintf("Range: bytes=%d-%d", from, from+99))
		if !bytes.Equal(part.Body, a.Body[from:from+100]) {
			t.Errorf("a range of %s is wrong", p.Loc)
		}
		z, err := zip.NewReader(bytes.NewReader(a.Body), int64(len(a.Body)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range z.File {
			in, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(in)
			path, _, _ := strings.Cut(string(got), " ")
			if f.Name != "manifest.xml" && (err != nil || string(got) != text(path)) {
				t.Errorf("%s is wrong: %v", f.Name, err)
			}
			held[path] = true
		}
	}
	if len(dump.URL) != 3 || len(held) != contents+1 {
		t.Errorf("%d packages hold %d contents", len(dump.URL), len(held))
	}
	mu.Lock()
	defer mu.Unlock()
	if asked["/c00.jpg"] != 1 || asked["/c11.jpg"] > 2 {
		t.Errorf("the contents were asked for so often: %v", asked)
	}
}
