package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/servertest"
)

// A list of sets ends before it has too many bytes, and says where the rest is.
func TestSetsHaveABound(t *testing.T) {
	t.Parallel()
	const n = 600
	data := t.TempDir()
	log, err := disklog.Open(filepath.Join(data, storeDir), disklog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	link := "https://example.org/" + strings.Repeat("d", 2000)
	d := feed.Description{Title: strings.Repeat("t", 1000), DescribedBy: link, ResourceList: link, ResourceDump: link, ChangeDump: link}
	var making sync.WaitGroup
	for i := range n {
		making.Go(func() {
			if err := log.Make(t.Context(), fmt.Sprintf("set-%04d", i), d, 10); err != nil {
				t.Error(err)
			}
		})
	}
	making.Wait()
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	h := start(t, Config{Data: data})
	var got []string
	pages := 0
	for next := h.URL + "/sets?limit=10000"; next != ""; pages++ {
		resp, body := servertest.Do(t, "GET", next, "")
		var list struct {
			Sets []setView
			Next string
		}
		if err := json.Unmarshal([]byte(body), &list); err != nil || resp.StatusCode != http.StatusOK || len(body) > maxList+1000 {
			t.Fatalf("%s: %d, %d bytes, %v", next, resp.StatusCode, len(body), err)
		}
		for _, v := range list.Sets {
			got = append(got, v.Set)
		}
		if link := resp.Header.Get("Link"); (list.Next != "") != strings.Contains(link, "<"+list.Next+`>; rel="next"`) {
			t.Errorf("next is %q, and Link is %s", list.Next, link)
		}
		next = list.Next
	}
	small := 0
	for next := h.URL + "/sets?after=set-0349"; next != ""; small++ {
		_, body := servertest.Do(t, "GET", next, "")
		var list struct {
			Sets []setView
			Next string
		}
		if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Sets) > defaultSets {
			t.Fatalf("%s: %d sets, %v", next, len(list.Sets), err)
		}
		next = list.Next
	}
	if small != 3 {
		t.Errorf("250 sets are on %d pages", small)
	}
	for _, bad := range []string{"0", "-1", "10001", "x"} {
		resp, body := servertest.Do(t, "GET", h.URL+"/sets?limit="+bad, "")
		checkProblem(t, resp, body, http.StatusBadRequest, "invalid")
	}
	if len(got) != n || pages != 2 || !slices.IsSorted(got) {
		t.Errorf("%d sets on %d pages", len(got), pages)
	}
}
