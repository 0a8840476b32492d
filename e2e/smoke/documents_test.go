package smoke

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
	"github.com/rshub/rshub/resourcesync"
)

// schemas is the directory of the XML schemas of the standard.
const schemas = "../../resourcesync/testdata/xsd/"

// TestDocuments reads the documents of the standard that a hub serves for a set. Each has the right
// capability and number of items, and matches the XML schemas.
func TestDocuments(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t, "RSHUB_RESOURCELIST_INTERVAL=1s", "RSHUB_CHANGELIST_SIZE=5")
	set := h.URL + "/sets/described"
	hubtest.Publish(t, h, "described", bytes.Join([][]byte{
		[]byte(`{"loc":"https://example.org/full?a=1&b=2","change":"created","lastmod":"2026-11-20T08:15:00Z","hash":"sha-256:` +
			`9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","length":4,"type":"text/plain","ln":[{"rel":"describedby","href":"https://example.org/about"}]}`),
		[]byte(`{"loc":"https://example.org/gone","change":"deleted"}`),
		hubtest.Changes("plain", 6),
	}, []byte("\n")))
	hubtest.Must(t, http.StatusOK, http.MethodPut, set, []byte(`{"complete":true}`), hubtest.AsJSON)
	hubtest.Until(t, "the hub offers a Resource List", func() error {
		if l := hubtest.Document(t, set+"/capabilitylist.xml"); len(l.Items) < 3 {
			return fmt.Errorf("got Capability List of %d items", len(l.Items))
		}
		return nil
	})
	hubtest.Must(t, http.StatusOK, http.MethodPut, set, []byte(`{"framework":true}`), hubtest.AsJSON)
	announced := set + ".framework/changes"
	hubtest.Until(t, "the documents are announced", func() error {
		if a := hubtest.Must(t, http.StatusOK, http.MethodGet, announced, nil); len(a.Body) == 0 {
			return errors.New("got no notification")
		}
		return nil
	})
	for _, d := range []struct {
		name, url  string
		capability string
		index      bool
		items      int
	}{
		{"source description", h.URL + "/.well-known/resourcesync", resourcesync.Description, false, 2},
		{"capability list", set + "/capabilitylist.xml", resourcesync.CapabilityList, false, 4},
		{"resource list", set + "/resourcelist.xml", resourcesync.ResourceList, false, 7},
		{"change list", set + "/changelist.xml", resourcesync.ChangeList, false, 8},
		{"change list index", set + "/changelist-index.xml", resourcesync.ChangeList, true, 2},
		{"change notification", set + "/changes", resourcesync.ChangeNotification, false, 8},
		{"framework notification", announced, resourcesync.FrameworkNotification, false, 4},
	} {
		t.Run(d.name, func(t *testing.T) {
			a := hubtest.Must(t, http.StatusOK, http.MethodGet, d.url, nil)
			l, err := trial.ReadList(a.Body)
			if err != nil {
				t.Fatalf("%v: %s", err, a.Body)
			}
			if l.Capability != d.capability || l.Index != d.index || len(l.Items) != d.items {
				t.Errorf("got %s with %d items, index %v, want %s with %d, index %v", l.Capability, len(l.Items), l.Index, d.capability, d.items, d.index)
			}
			validate(t, a.Body, d.index)
		})
	}
}

// validate validates a document with the XML schemas.
func validate(t *testing.T, document []byte, index bool) {
	t.Helper()
	xmllint, err := exec.LookPath("xmllint")
	if err != nil {
		t.Skip("xmllint is not installed (Debian: libxml2-utils): the document is not validated")
	}
	schema := "urlset.xsd"
	if index {
		schema = "sitemapindex.xsd"
	}
	cmd := exec.Command(xmllint, "--nonet", "--noout", "--schema", schemas+schema, "-")
	cmd.Stdin = bytes.NewReader(document)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s\n%s", err, out, document)
	}
}
