package server

import (
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/testutil"
)

// A set whose description asks for it has a channel that announces what changes in its
// documents. The channel is as private as the set, and takes what the source announces.
func TestFramework(t *testing.T) {
	t.Parallel()
	file := newTokensFile(t, "publish:demo*,follow:demo*", "publish:demo", "anyone - follow:*")
	h := start(t, Config{Callers: file.open(t)})
	owner, narrow := file.bearer(0), file.bearer(1)
	h.refuses(403, "forbidden", "PUT", "/sets/demo", `{"framework":true}`, narrow...)
	h.refuses(400, "invalid", "PUT", "/sets/demo.framework", `{"framework":true}`, owner...)
	h.refuses(400, "invalid", "PUT", "/sets/demo"+strings.Repeat("x", 55), `{"framework":true}`, owner...)
	if text := h.describes("demo", `{"framework":true,"private":true}`, owner...); !strings.Contains(text, `"framework":true`) {
		t.Errorf("the set is %s", text)
	}
	h.wants(404, "GET", "/sets/demo.framework/changes", "")
	h.describes("demo", `{"framework":true}`, owner...)
	testutil.Until(t, "the documents are announced", func() bool {
		return strings.Contains(h.wants(200, "GET", "/sets/demo.framework/changelist.xml", ""), ` capability="capabilitylist"/>`)
	})
	if text := h.wants(200, "GET", "/sets/demo.framework/changes", ""); !strings.Contains(text, `<rs:md capability="framework-notification" from=`) {
		t.Errorf("the latest notification is %s", text)
	}
	if text := h.wants(200, "GET", "/sets/demo/capabilitylist.xml", ""); !strings.Contains(text, h.topic("demo.framework")+`</loc><rs:md capability="framework-notification"/>`) {
		t.Errorf("the Capability List is %s", text)
	}
	const open = `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="framework-notification"/><url><loc>https://example.org/dump.xml</loc>`
	asXML := append([]string{"Content-Type", "application/xml"}, owner...)
	h.wants(200, "POST", "/sets/demo.framework/changes", open+`<rs:md change="created" capability="resourcedump"/></url></urlset>`, asXML...)
	h.refuses(400, "invalid", "POST", "/sets/demo.framework/changes", open+`<rs:md change="created"/></url></urlset>`, asXML...)
	h.refuses(400, "invalid", "POST", "/sets/demo.framework/changes", `{"loc":"https://example.org/a","change":"created"}`, append(asNDJSON, owner...)...)
	page := h.wants(200, "GET", "/sets/demo.framework/changes?since=start", "", "Accept", "application/json")
	if !strings.Contains(page, `"loc":"https://example.org/dump.xml","change":"created","capability":"resourcedump"`) {
		t.Errorf("the changes of the channel are %s", page)
	}
}
