package server

import (
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/testutil"
)

// A set with "framework": true has a channel of Framework Notifications about its documents. The
// channel is private if the set is, and accepts notifications of the source.
func TestFramework(t *testing.T) {
	t.Parallel()
	file := newTokensFile(t, "publish:demo*,follow:demo*", "publish:demo", "anyone - follow:*")
	h := start(t, Config{Callers: file.open(t)})
	owner, narrow := file.bearer(0), file.bearer(1)
	h.wantProblem(403, "forbidden", "PUT", "/sets/demo", `{"framework":true}`, narrow...)
	h.wantProblem(400, "invalid", "PUT", "/sets/demo.framework", `{"framework":true}`, owner...)
	h.wantProblem(400, "invalid", "PUT", "/sets/demo"+strings.Repeat("x", 55), `{"framework":true}`, owner...)
	if text := h.describe("demo", `{"framework":true,"private":true}`, owner...); !strings.Contains(text, `"framework":true`) {
		t.Errorf("set = %s, want framework", text)
	}
	h.wantStatus(404, "GET", "/sets/demo.framework/changes", "")
	h.describe("demo", `{"framework":true}`, owner...)
	testutil.Until(t, "the channel announces the documents", func() bool {
		return strings.Contains(h.wantStatus(200, "GET", "/sets/demo.framework/changelist.xml", ""), ` capability="capabilitylist"/>`)
	})
	if text := h.wantStatus(200, "GET", "/sets/demo.framework/changes", ""); !strings.Contains(text, `<rs:md capability="framework-notification" from=`) {
		t.Errorf("latest notification = %s, want a Framework Notification", text)
	}
	if text := h.wantStatus(200, "GET", "/sets/demo/capabilitylist.xml", ""); !strings.Contains(text, h.topic("demo.framework")+`</loc><rs:md capability="framework-notification"/>`) {
		t.Errorf("Capability List = %s, want the channel", text)
	}
	const open = `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="framework-notification"/><url><loc>https://example.org/dump.xml</loc>`
	asXML := append([]string{"Content-Type", "application/xml"}, owner...)
	h.wantStatus(200, "POST", "/sets/demo.framework/changes", open+`<rs:md change="created" capability="resourcedump"/></url></urlset>`, asXML...)
	h.wantProblem(400, "invalid", "POST", "/sets/demo.framework/changes", open+`<rs:md change="created"/></url></urlset>`, asXML...)
	h.wantProblem(400, "invalid", "POST", "/sets/demo.framework/changes", `{"loc":"https://example.org/a","change":"created"}`, append(asNDJSON, owner...)...)
	page := h.wantStatus(200, "GET", "/sets/demo.framework/changes?since=start", "", "Accept", "application/json")
	if !strings.Contains(page, `"loc":"https://example.org/dump.xml","change":"created","capability":"resourcedump"`) {
		t.Errorf("changes of the channel = %s, want the resource dump", page)
	}
}
