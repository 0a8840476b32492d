package apitest

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"mime"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A Recorder holds every answer of a server against the description.
type Recorder struct {
	document *Document
	mu       sync.Mutex
	caused   map[string]bool
	wrong    map[string]bool
}

// Watch returns a Recorder. When the test ends, it fails for each answer that is not described.
// So what answers must stop before that, in a Cleanup that is added later.
func (d *Document) Watch(t testing.TB) *Recorder {
	r := &Recorder{document: d, caused: map[string]bool{}, wrong: map[string]bool{}}
	t.Cleanup(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, w := range slices.Sorted(maps.Keys(r.wrong)) {
			t.Error(w)
		}
	})
	return r
}

// Caused returns the answers that there were, as Document.Answers writes them.
func (r *Recorder) Caused() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.caused))
}

// Handler passes requests to next, which answers at one address of the hub.
func (r *Recorder) Handler(address string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		a := &answer{ResponseWriter: w, broken: true}
		method, url, old := req.Method, req.URL.EscapedPath(), req.ProtoMajor == 1
		defer func() { r.note(address, method, url, old, a) }()
		next.ServeHTTP(a, req)
		a.broken = a.failed
	})
}

// note checks an answer, and notes it.
func (r *Recorder) note(address, method, url string, old bool, a *answer) {
	if a.status == 0 && a.broken {
		return // there was no answer
	}
	if a.status == 0 {
		a.begin(http.StatusOK)
	}
	what, err := r.document.check(address, method, url, old, a)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.wrong[fmt.Sprintf("%s %s %s: %v", address, method, url, err)] = true
	} else if method != http.MethodHead {
		r.caused[what.String()] = true
	}
}

// mostBody is how much of a body is checked, in bytes.
const mostBody = 1 << 20

// An answer notes what a handler answers.
type answer struct {
	http.ResponseWriter
	status int
	header http.Header
	body   bytes.Buffer
	failed bool // the client takes no more
	broken bool // the body is not whole
}

func (a *answer) begin(status int) {
	if a.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		a.status, a.header = status, a.Header().Clone()
	}
}

func (a *answer) WriteHeader(status int) {
	a.begin(status)
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	a.begin(http.StatusOK)
	n, err := a.ResponseWriter.Write(p)
	a.failed = a.failed || err != nil
	a.body.Write(p[:min(n, max(0, mostBody+1-a.body.Len()))])
	return n, err
}

// Unwrap lets http.ResponseController find what the connection can do.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Hijack takes over the connection, as a WebSocket does. Who has set a Content-Type answers
// with 200, as an event stream does. Its body is not seen here.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil {
		status := http.StatusSwitchingProtocols
		if a.Header().Get("Content-Type") != "" {
			status = http.StatusOK
		}
		a.begin(status)
	}
	return conn, rw, err
}

// check returns which answer of the description an answer is, or why it is none.
func (d *Document) check(address, method, url string, old bool, a *answer) (what Answer, err error) {
	what, pointer := d.find(address, method, url)
	what.Status = strconv.Itoa(a.status)
	pointer += "/" + what.Status
	if d.at(pointer) == nil {
		return what, fmt.Errorf("the answer %d is not described: %.300s", a.status, &a.body)
	}
	pointer, response := d.resolve(pointer)
	for name := range object(response["headers"]) {
		if err := d.checkHeader(pointer+"/headers/"+escape(name), a.header.Get(name)); err != nil {
			return what, fmt.Errorf("%d: the header %s %w", a.status, name, err)
		}
	}
	contentType, content := a.header.Get("Content-Type"), object(response["content"])
	if a.status == http.StatusSwitchingProtocols || contentType == "" && a.body.Len() == 0 && (len(content) == 0 || method == http.MethodHead || !old && a.status >= 400) {
		return what, nil
	}
	mediaType, _, _ := mime.ParseMediaType(contentType)
	if what.Media = contentType; content[contentType] == nil {
		if what.Media = mediaType; content[mediaType] == nil {
			return what, fmt.Errorf("%d: the Content-Type %q is not described: %.300s", a.status, contentType, &a.body)
		}
	}
	if method == http.MethodHead || a.body.Len() > mostBody || a.header.Get("Content-Encoding") != "" {
		return what, nil
	}
	if err := d.checkBody(pointer+"/content/"+escape(what.Media), mediaType, a); err != nil {
		return what, fmt.Errorf("%d %s: %w: %.500s", a.status, what.Media, err, &a.body)
	}
	return what, nil
}

// checkHeader checks the value of a header, which is described at a pointer.
func (d *Document) checkHeader(pointer, value string) error {
	pointer, h := d.resolve(pointer)
	if value == "" {
		if h["required"] == true {
			return fmt.Errorf("is missing")
		}
		return nil
	}
	var v any = value
	if object(h["schema"])["type"] == "integer" {
		n, err := strconv.Atoi(value)
		if err != nil {
			return err
		}
		v = n
	}
	s, err := d.schema(pointer + "/schema")
	if err == nil {
		err = s.Validate(v)
	}
	return err
}

// checkBody checks a body of a media type, which is described at a pointer. Of a body that is
// not whole it checks the whole items of a stream.
func (d *Document) checkBody(pointer, mediaType string, a *answer) error {
	text := a.body.String()
	var items []string
	switch {
	case mediaType == "application/x-ndjson":
		items = strings.SplitAfter(text, "\n")
	case mediaType == "text/event-stream":
		for event := range strings.SplitSeq(text, "\n\n") {
			for line := range strings.SplitSeq(event, "\n") {
				if data, ok := strings.CutPrefix(line, "data: "); ok {
					items = append(items, data+"\n")
				}
			}
		}
		if n := len(items); n > 0 && !strings.HasSuffix(text, "\n\n") {
			items = items[:n-1]
		}
	case mediaType == "application/json", mediaType == "application/problem+json":
		if a.broken {
			return nil
		}
		return d.Validate(pointer+"/schema", text)
	}
	for _, item := range items {
		if !strings.HasSuffix(item, "\n") {
			continue // the end, or what was broken off
		}
		if err := d.Validate(pointer+"/x-items", item); err != nil {
			return fmt.Errorf("the item %.200s: %w", item, err)
		}
	}
	return nil
}

// Validate returns an error if a text is not what the schema at a pointer of JSON allows.
func (d *Document) Validate(pointer, text string) error {
	s, err := d.schema(pointer)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return s.Validate(v)
}
