package server

import (
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/running"
	"github.com/rshub/rshub/rdm/soif"
)

// rdmType is the media type of a message.
const rdmType = "application/x-rdm"

// aMessage writes a message: objects, each a type and a URL and then name, value, name, value.
func aMessage(objects ...[]string) string {
	var text []byte
	for _, o := range objects {
		object := &soif.Object{Type: o[0], URL: o[1]}
		for i := 2; i < len(o); i += 2 {
			object.Add(o[i], o[i+1])
		}
		var err error
		if text, err = object.Append(text); err != nil {
			panic(err)
		}
	}
	return string(text)
}

// rdmHeader is the header of a message about a set.
func rdmHeader(kind, set string, more ...string) []string {
	return append([]string{"RDMHEADER", "", "RDM-Version", "1.0", "RDM-Type", kind, "Catalog-Service-ID", set}, more...)
}

// readMessage returns the header of a message and the other objects.
func readMessage(t *testing.T, text string) (header *soif.Object, others []*soif.Object) {
	t.Helper()
	in := soif.NewReader(strings.NewReader(text), soif.Limits{})
	header, err := in.Read()
	if err != nil || header.Type != "RDMHEADER" {
		t.Fatalf("the message is %v, %v: %q", header, err, text)
	}
	if kind, _ := header.Get("RDM-Type"); kind == "status-response" {
		return header, nil // a page follows
	}
	for {
		o, err := in.Read()
		if err != nil {
			if err.Error() != "EOF" {
				t.Errorf("the message is broken: %v: %q", err, text)
			}
			return header, others
		}
		others = append(others, o)
	}
}

// unsized is an attribute whose value, the rest of the line, is not counted.
var unsized = regexp.MustCompile(`(?m)^(\S+)\{x\}:\t(.*)$`)

// sized counts the values of a message, which has {x} in place of their sizes.
func sized(text string) string {
	return unsized.ReplaceAllStringFunc(text, func(line string) string {
		m := unsized.FindStringSubmatch(line)
		return fmt.Sprintf("%s{%d}:\t%s", m[1], len(m[2]), m[2])
	})
}

// get returns an attribute of an object; empty if it has none.
func get(o *soif.Object, name string) string {
	v, _ := o.Get(name)
	return v
}

// sendRDM sends a message by POST.
func sendRDM(t *testing.T, h *started, message string, headers ...string) (*http.Response, string) {
	t.Helper()
	return running.Do(t, "POST", h.URL+"/rdm/incoming", message, append([]string{"Content-Type", rdmType}, headers...)...)
}

// A source sends descriptions, a client reads them with a view, the source takes one back,
// and the client hears of that.
func TestRDM(t *testing.T) {
	h := start(t, Config{RDM: true, RDMSet: "papers"})
	csid := "x-catalog://" + strings.TrimPrefix(h.URL, "http://") + "/papers"
	abstract := strings.Repeat("Ein längerer Text. ", 200)
	resp, body := sendRDM(t, h, aMessage(
		rdmHeader("RD-Response", csid),
		[]string{"SCHEMA", "", "Schema-Name", "DOCUMENT"},
		[]string{"DOCUMENT", "https://example.org/b", "Title", "B", "Author-1", "Ann", "Author-2", "Bob", "Last-Modified", "Thu, 16 May 1996 11:45:39 GMT",
			"Content-Type", "text/html", "Content-Length", "12", "Content-Encoding", "gzip", "MD5", "9e107d9d372bb6826bd81d3542a419d6", "Abstract", abstract, "Empty", ""},
		[]string{"DOCUMENT", "https://example.org/a", "Title", "A\n}\n@DOCUMENT { x"},
		[]string{"IMAGE", "https://example.org/c", "Link", `<https://example.org/a>; rel="describedby"`},
	))
	head, _ := readMessage(t, body)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != rdmType || get(head, "RDM-Type") != "status-response" || !strings.Contains(body, "3 resource descriptions of papers were updated") {
		t.Fatalf("the submission is answered %d %s", resp.StatusCode, body)
	}

	// All of them, as they were sent.
	resp, body = running.Do(t, "GET", h.URL+"/rdm/incoming?type=rd-request&ql=gatherer&scope=all", "")
	head, all := readMessage(t, body)
	if resp.StatusCode != http.StatusOK || get(head, "Catalog-Service-ID") != csid || get(head, "RDM-Type") != "rd-response" || get(head, "RS-Complete") != "false" || get(head, "RS-Cursor") == "" || len(all) != 3 {
		t.Fatalf("all are answered %d %q", resp.StatusCode, body)
	}
	for i, want := range []map[string]string{
		{"Title": "A\n}\n@DOCUMENT { x"},
		{"Title": "B", "Author-1": "Ann", "author-2": "Bob", "Last-Modified": "Thu, 16 May 1996 11:45:39 GMT", "Content-Type": "text/html", "Content-Length": "12",
			"Content-Encoding": "gzip", "MD5": "9e107d9d372bb6826bd81d3542a419d6", "Abstract": abstract, "Empty": ""},
		{"Link": `<https://example.org/a>; rel="describedby"`},
	} {
		o := all[i]
		if wantURL := "https://example.org/" + string(rune('a'+i)); o.URL != wantURL || len(o.Attributes) != len(want)+1 || get(o, "RD-Last-Modified") == "" {
			t.Errorf("description %d is %+v", i, o)
		}
		for name, value := range want {
			if got, ok := o.Get(name); !ok || got != value {
				t.Errorf("%s of %s is %q, want %q", name, o.URL, got, value)
			}
		}
	}
	if all[2].Type != "IMAGE" || all[0].Type != "DOCUMENT" {
		t.Errorf("the types are %s and %s", all[0].Type, all[2].Type)
	}

	// With a view, by POST and by GET.
	_, body = sendRDM(t, h, aMessage(rdmHeader("rd-request", csid, "RDM-Query-Language", "Gatherer"),
		[]string{"RDMQUERY", "", "Scope", "since Sun, 06 Nov 1994 08:49:37 GMT", "View-Attributes", "URL,title,Author", "View-Hits", "2", "View-Order", "-Title"}))
	_, view := readMessage(t, body)
	if len(view) != 2 || view[0].URL != "https://example.org/b" || fmt.Sprint(view[0].Attributes) != "[{Author-1 Ann} {Author-2 Bob} {Title B}]" && fmt.Sprint(view[0].Attributes) != "[{Title B} {Author-1 Ann} {Author-2 Bob}]" || view[1].URL != "https://example.org/a" {
		t.Errorf("the view is %q", body)
	}
	_, again := running.Do(t, "GET", h.URL+"/rdm/incoming?type=rd-request&ql=gatherer&csid=papers&scope=since+1994-11-06&view-attributes=URL,title,Author&view-hits=2&view-order=-Title", "")
	if again != body {
		t.Errorf("by GET the view is %q, and by POST %q", again, body)
	}

	// Nothing is new tomorrow.
	_, body = running.Do(t, "GET", h.URL+"/rdm/incoming?type=rd-request&ql=gatherer&scope=since+2999-01-01", "")
	if head, none := readMessage(t, body); len(none) > 0 || get(head, "RDM-Error-Message") != "0 results" || get(head, "RDM-Error-Number") != "" {
		t.Errorf("without results the answer is %q", body)
	}

	// Deletions. What exists again is not among them.
	since := get(all[0], "RD-Last-Modified")
	if resp, body := sendRDM(t, h, aMessage(rdmHeader("rd-response-deleted", "papers"), []string{"DOCUMENT", "https://example.org/a"}, []string{"DOCUMENT", "https://example.org/b"})); resp.StatusCode != http.StatusOK {
		t.Fatalf("the deletion is answered %d %s", resp.StatusCode, body)
	}
	sendRDM(t, h, aMessage(rdmHeader("rd-response", "papers"), []string{"DOCUMENT", "https://example.org/b", "Title", "B again"}))
	_, body = sendRDM(t, h, aMessage(rdmHeader("rd-request-deleted", csid, "RDM-Query-Language", "gatherer"), []string{"RDMQUERY", "", "Scope", "since " + since}))
	head, gone := readMessage(t, body)
	if len(gone) != 1 || gone[0].URL != "https://example.org/a" || get(gone[0], "RD-Last-Modified") == "" || get(head, "RDM-Type") != "rd-response-deleted" || get(head, "RS-Since") == "" {
		t.Errorf("the deleted ones are %q", body)
	}
	_, body = running.Do(t, "GET", h.URL+"/rdm/incoming?type=rd-request-deleted&ql=gatherer&scope=all", "")
	if _, gone := readMessage(t, body); len(gone) != 1 {
		t.Errorf("all deleted ones are %q", body)
	}
	if _, body = running.Do(t, "GET", h.URL+"/rdm/incoming?type=rd-request&ql=gatherer&scope=all&view-attributes=title", ""); strings.Contains(body, "example.org/a") || !strings.Contains(body, "B again") {
		t.Errorf("afterwards there are %q", body)
	}

	// The log does not reach back to 1994.
	resp, body = running.Do(t, "GET", h.URL+"/rdm/incoming?type=rd-request-deleted&ql=gatherer&scope=since+1994-11-06", "")
	if head, _ := readMessage(t, body); resp.StatusCode != http.StatusGone || get(head, "RDM-Type") != "rd-response-deleted" || get(head, "RDM-Error-Number") != "410" {
		t.Errorf("deleted since 1994: %d %q", resp.StatusCode, body)
	}

	// Followers of the set got all that as changes.
	if _, body := running.Do(t, "GET", h.URL+"/sets/papers/changes?since=start", "", "Accept", "application/json"); strings.Count(body, `"change":"updated"`) != 4 || strings.Count(body, `"change":"deleted"`) != 2 || !strings.Contains(body, "längerer") {
		t.Errorf("the changes are %s", body)
	}
}

// rdmText writes a message as people write it, with {x} for the sizes.
func rdmText(text string) string {
	return sized(strings.NewReplacer("SET", "papers").Replace(text))
}

// A hub that is not told to speak RDM has nothing at the URL.
func TestRDMOff(t *testing.T) {
	h := start(t, Config{})
	for _, method := range []string{"GET", "POST"} {
		if resp, body := running.Do(t, method, h.URL+"/rdm/incoming", ""); resp.StatusCode != http.StatusNotFound || !strings.Contains(body, "RSHUB_RDM") {
			t.Errorf("%s is %d %s", method, resp.StatusCode, body)
		}
	}
}

// A submission is a publish: durable before the answer, with its idempotency, its limits and
// its line in the audit log; and it is taken whole or not at all.
func TestRDMIsPublish(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	known, texts := tokens(t, "publish:papers", "publish:other", "anyone - follow:*")
	c := Config{RDM: true, Callers: known, AuditLog: path, Data: t.TempDir(), MaxBody: 4000, CallerLimits: limits(t, "publishes:8/h")}
	h := start(t, c)
	owner, other := []string{"Authorization", "Bearer " + texts[0]}, []string{"Authorization", "Bearer " + texts[1]}
	message := rdmText(sentRDM)
	check := func(what string, status int, says string, body string, headers ...string) {
		t.Helper()
		resp, text := sendRDM(t, h, body, headers...)
		head, _ := readMessage(t, text)
		number := ""
		if status != http.StatusOK {
			number = strconv.Itoa(status)
		}
		if resp.StatusCode != status || get(head, "RDM-Type") != "status-response" || get(head, "RDM-Error-Number") != number || !strings.Contains(text, says) {
			t.Errorf("%s: %d %s, want %d %s", what, resp.StatusCode, text, status, says)
		}
	}
	check("without a token", 401, "publish:papers", message)
	check("with a token for another set", 403, "publish:papers", message, other...)
	check("the first", 200, "1 resource descriptions", message, append([]string{"Idempotency-Key", "k"}, owner...)...)
	check("again", 200, "The hub had them already", message, append([]string{"Idempotency-Key", "k"}, owner...)...)
	check("another with its key", 422, "Idempotency-Key", strings.ReplaceAll(message, "/a", "/b"), append([]string{"Idempotency-Key", "k"}, owner...)...)
	check("one that is bad", 400, "entry 2: https://example.org/b: attribute Content-Length: it is a number", message+rdmText("@DOCUMENT { https://example.org/b\nContent-Length{x}:\tlong\n}\n"), owner...)
	check("one that the standard does not allow", 400, "type is a media type", message+rdmText("@DOCUMENT { https://example.org/b\nContent-Type{x}:\tlong\n}\n"), owner...)
	check("one without descriptions", 400, "the batch has no change", rdmText(headOfRDM+"rd-response\n}\n"), owner...)
	check("one that is too large", 413, "4000", message+strings.Repeat("@D { https://example.org/c\n}\n", 100), owner...)
	check("one that is cut off", 400, "the object ends early", message[:len(message)-3], owner...)
	check("one too many", 429, "publishes", message, owner...)
	h.Stop()

	h = start(t, c)
	_, body := running.Do(t, "GET", h.URL+"/rdm/incoming?type=rd-request&ql=gatherer&scope=all&csid=papers", "")
	if _, all := readMessage(t, body); len(all) != 1 || get(all[0], "Title") != "A" {
		t.Errorf("after a restart there is %q", body)
	}
	h.Stop()
	var seen []string
	for _, line := range audited(t, path) {
		if strings.Contains(line, `"action":"publish"`) && strings.Contains(line, `"set":"papers"`) {
			seen = append(seen, regexp.MustCompile(`"status":(\d+)`).FindStringSubmatch(line)[1])
		}
	}
	if got := strings.Join(seen, " "); !strings.HasPrefix(got, "401 403 200 200 422 400") {
		t.Errorf("the audit log has %s", got)
	}
	if lines := strings.Join(audited(t, path), "\n"); !strings.Contains(lines, `"changes":1,"cursor":"1-`) || !strings.Contains(lines, `"replayed":true`) {
		t.Errorf("the audit log is %s", lines)
	}
}

// What the hub says of itself names only sets that the caller may follow.
func TestRDMPrivate(t *testing.T) {
	known, texts := tokens(t, "publish:*,follow:*", "anyone - follow:*")
	h := start(t, Config{RDM: true, RDMSet: "hidden", Callers: known})
	owner := []string{"Authorization", "Bearer " + texts[0]}
	h.Publish("shown", owner...)
	h.Publish("hidden", owner...)
	if resp, body := running.Do(t, "PUT", h.URL+"/sets/hidden", `{"private":true,"title":"Secret papers"}`, owner...); resp.StatusCode != http.StatusOK {
		t.Fatalf("PUT is answered %d %s", resp.StatusCode, body)
	}
	for _, query := range []string{"type=server-request", "type=taxonomy-request&ql=taxonomy-basic&scope=descendant+ROOT", "type=rd-request&ql=gatherer&scope=all", "type=status-request"} {
		_, owned := running.Do(t, "GET", h.URL+"/rdm/incoming?"+query, "", owner...)
		resp, anyone := running.Do(t, "GET", h.URL+"/rdm/incoming?"+query, "")
		lists := !strings.Contains(query, "rd-request") && !strings.Contains(query, "status")
		if strings.Contains(anyone, "hidden") || strings.Contains(anyone, "Secret") || lists && (!strings.Contains(anyone, "shown") || !strings.Contains(owned, "hidden")) {
			t.Errorf("%s shows anyone %s, and the owner %s", query, anyone, owned)
		}
		if strings.Contains(query, "rd-request") != (resp.StatusCode == http.StatusNotFound) {
			t.Errorf("%s is %d %s", query, resp.StatusCode, anyone)
		}
	}
	_, body := running.Do(t, "GET", h.URL+"/rdm/incoming?type=taxonomy-request&ql=taxonomy-basic&scope=children+hidden", "", owner...)
	if _, all := readMessage(t, body); len(all) != 2 || get(all[1], "Id") != "hidden" || get(all[1], "Parent-Id") != "ROOT" || get(all[1], "Description") != "Secret papers" {
		t.Errorf("the classification is %s", body)
	}
	_, body = running.Do(t, "GET", h.URL+"/rdm/incoming?type=server-request&csid=hidden", "", owner...)
	if _, all := readMessage(t, body); len(all) != 1 || get(all[0], "Description") != "Secret papers" || !strings.Contains(get(all[0], "Supported-RDM-Type"), "rd-request,") || get(all[0], "Supported-RDM-Query-Language") != "gatherer,schema-basic,taxonomy-basic" || get(all[0], "SD-Expires") == "" {
		t.Errorf("the description is %s", body)
	}
}

// Every message of a client that is wrong is answered with a message of an error, of the type
// that the client waits for. HEAD is answered without a body.
func TestRDMErrors(t *testing.T) {
	h := start(t, Config{RDM: true})
	h.Publish("papers")
	for _, c := range []struct {
		method, query, body string
		status              int
		reply, says         string
	}{
		{"GET", "", "", 400, "status-response", "the type of the message is missing"},
		{"GET", "type=rd-request&ql=gatherer&scope=all", "", 400, "rd-response", "names the catalogue"},
		{"GET", "type=rd-request-deleted&ql=gatherer&scope=all&csid=none", "", 404, "rd-response-deleted", "no such set"},
		{"GET", "type=rd-request&ql=gatherer&scope=all&csid=PAPERS", "", 400, "rd-response", "cannot name a set"},
		{"GET", "type=rd-request&ql=gatherer&scope=all&csid=papers&csid=papers", "", 400, "status-response", "csid is there twice"},
		{"GET", "type=rd-request&ql=gatherer&scope=all&csid=papers&view-hit=1", "", 400, "status-response", "view-hits"},
		{"GET", "type=rd-response&csid=papers", "", 400, "status-response", "sent by POST"},
		{"GET", "type=taxonomy-request&ql=taxonomy-basic&scope=children+none", "", 404, "taxonomy-description-response", "no classification none"},
		{"POST", "type=status-request", "", 400, "status-response", "the URL takes no parameters"},
		{"POST", "", "nonsense", 400, "status-response", "object 1: an object begins with @"},
	} {
		url := h.URL + "/rdm/incoming"
		if c.query != "" {
			url += "?" + c.query
		}
		resp, body := running.Do(t, c.method, url, c.body, asRDM...)
		head, _ := readMessage(t, body)
		if resp.StatusCode != c.status || resp.Header.Get("Content-Type") != rdmType || get(head, "RDM-Type") != c.reply || get(head, "RDM-Error-Number") != strconv.Itoa(c.status) || !strings.Contains(get(head, "RDM-Error-Message"), c.says) {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.query, resp.StatusCode, body, c.status, c.says)
		}
		if c.method == "GET" {
			if resp, body := running.Do(t, "HEAD", url, ""); resp.StatusCode != c.status || body != "" {
				t.Errorf("HEAD %s: %d %s", c.query, resp.StatusCode, body)
			}
		}
	}
	if resp, body := running.Do(t, "HEAD", h.URL+"/rdm/incoming?type=rd-request&ql=gatherer&scope=all&csid=papers", ""); resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != rdmType || body != "" {
		t.Errorf("HEAD is %d %s", resp.StatusCode, body)
	}
	bare := start(t, Config{RDM: true, NoInventory: true})
	bare.Publish("papers")
	if resp, body := running.Do(t, "GET", bare.URL+"/rdm/incoming?type=rd-request&ql=gatherer&scope=all&csid=papers", ""); resp.StatusCode != http.StatusNotFound || !strings.Contains(body, "no inventory") {
		t.Errorf("without inventories: %d %s", resp.StatusCode, body)
	}
}

// A large set is answered whole, and so are its deletions, in as many reads of the log as it
// takes.
func TestRDMLarge(t *testing.T) {
	h := start(t, Config{RDM: true, RDMSet: "papers"})
	const n = 3000
	var rds strings.Builder
	for i := range n {
		fmt.Fprintf(&rds, "@DOCUMENT { https://example.org/%04d\nNumber{4}:\t%04d\n}\n", i, i)
	}
	if resp, body := sendRDM(t, h, rdmText(headOfRDM+"rd-response\n}\n")+rds.String()); resp.StatusCode != http.StatusOK || !strings.Contains(body, "3000 resource descriptions") {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	_, body := running.Do(t, "GET", h.URL+"/rdm/incoming?type=rd-request&ql=gatherer&scope=all&view-attributes=number", "")
	if _, whole, _ := strings.Cut(body, "}\n"); whole != rds.String() {
		t.Errorf("of %d bytes %d came back", rds.Len(), len(whole))
	}
	if resp, body := sendRDM(t, h, rdmText(headOfRDM+"rd-response-deleted\n}\n")+rds.String()); resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	_, body = running.Do(t, "GET", h.URL+"/rdm/incoming?type=rd-request-deleted&ql=gatherer&scope=all&view-attributes=number", "")
	if _, whole, _ := strings.Cut(body, "}\n"); whole != rds.String() {
		t.Errorf("of %d bytes of deletions %d came back", rds.Len(), len(whole))
	}
	_, body = running.Do(t, "GET", h.URL+"/rdm/incoming?type=rd-request-deleted&ql=gatherer&scope=all&view-hits=2&view-order=-number", "")
	if _, last := readMessage(t, body); len(last) != 2 || last[0].URL != "https://example.org/2999" || last[1].URL != "https://example.org/2998" {
		t.Errorf("the last two are %q", body)
	}
}
