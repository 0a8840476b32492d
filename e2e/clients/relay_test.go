package clients

import (
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A source serves documents in the form of a repository software. They are in testdata; {now} in them
// is replaced with the time of the request.
type source struct {
	t     *testing.T
	dir   string // directory of the documents
	proxy string // URL of a proxy that connects all hosts to the source
	certs string // file with the certificate for *.example.com

	mu       sync.Mutex
	pages    map[string]string // document at each URL, without scheme and host; "name?" is for any other query
	once     map[string]string // document at a URL for a single request
	edits    []string          // old and new texts for all documents
	user     string            // with the password; empty means public
	requests []string
	absent   []string // requested URLs without a document
}

// serve starts a source with documents of a directory in testdata.
func serve(t *testing.T, dir string, pages map[string]string) *source {
	t.Helper()
	s := &source{t: t, dir: filepath.Join("testdata", dir), pages: pages}
	web := httptest.NewTLSServer(s)
	t.Cleanup(web.Close)
	proxy := httptest.NewServer(tunnel(web.Listener.Addr().String()))
	t.Cleanup(proxy.Close)
	s.proxy = proxy.URL
	s.certs = filepath.Join(t.TempDir(), "certs.pem")
	if err := os.WriteFile(s.certs, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// tunnel returns a proxy that connects every host to one address.
func tunnel(addr string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "only https is supported", http.StatusBadGateway)
			return
		}
		server, err := net.Dial("tcp", addr)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer server.Close()
		client, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer client.Close()
		if _, err := io.WriteString(client, "HTTP/1.1 200 Connected\r\n\r\n"); err != nil {
			return
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.Copy(server, buffered)
			_ = server.(*net.TCPConn).CloseWrite()
		}()
		_, _ = io.Copy(client, server)
		_ = client.Close()
		<-done
	}
}

func (s *source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.URL.RequestURI())
	if user, password, _ := r.BasicAuth(); s.user != "" && user+":"+password != s.user {
		w.Header().Set("WWW-Authenticate", `Basic realm="OAI-PMH"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	q := r.URL.Query()
	from := q.Get("from")
	if q.Has("from") { // a window
		q.Set("from", "")
	}
	name, ok := s.once[r.URL.RequestURI()]
	delete(s.once, r.URL.RequestURI())
	if !ok {
		name, ok = s.pages[r.URL.RequestURI()]
	}
	if !ok {
		name, ok = s.pages[r.URL.Path+"?"+q.Encode()]
	}
	if !ok {
		s.absent = append(s.absent, r.URL.RequestURI())
		http.NotFound(w, r)
		return
	}
	b, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		s.t.Error(err)
	}
	text := strings.NewReplacer(s.edits...).Replace(string(b))
	text = strings.NewReplacer("{now}", time.Now().UTC().Format("2006-01-02T15:04:05Z"), "{from}", from).Replace(text)
	w.Header().Set("Content-Type", "application/xml")
	if strings.HasSuffix(name, "-422.xml") {
		w.WriteHeader(http.StatusUnprocessableEntity)
	}
	_, _ = io.WriteString(w, text)
}

// edit changes all later responses.
func (s *source) edit(texts ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.edits = append(s.edits, texts...)
}

// recipes returns the commands in a file of examples/relay.
func recipes(t *testing.T, name string) (commands []string) {
	t.Helper()
	b, err := os.ReadFile(root(t, "examples", "relay", name))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(b), -1) {
		commands = append(commands, strings.TrimSpace(block[1]))
	}
	return commands
}

// A recipe is a command of examples/relay with its own hub.
type recipe struct {
	*source
	hub     *hubtest.Hub
	command string
	state   string
}

func (s *source) newRecipe(t *testing.T, command string) *recipe {
	return &recipe{source: s, hub: hubtest.StartHub(t), command: command, state: t.TempDir()}
}

// poll runs the command with -once and additional flags, and checks its exit status and output.
func (r *recipe) poll(code int, flags, want string) {
	r.t.Helper()
	command := strings.Replace(r.command, "rspublish relay ", strings.TrimSpace("rspublish relay -once "+flags)+" ", 1)
	if command == r.command {
		r.t.Fatalf("command %q does not start with rspublish relay", r.command)
	}
	env := []string{
		"PATH=" + filepath.Dir(hubtest.Rspublish) + string(filepath.ListSeparator) + os.Getenv("PATH"),
		"RSPUBLISH_HUB=" + r.hub.URL, "XDG_CACHE_HOME=" + r.state, "HOME=" + r.state,
		"https_proxy=" + r.proxy, "http_proxy=" + r.proxy, "no_proxy=", "SSL_CERT_FILE=" + r.certs,
	}
	got, stdout, stderr := hubtest.Run(r.t, env, nil, "/bin/sh", "-c", command)
	if got != code || !strings.Contains(stdout+stderr, want) {
		r.t.Fatalf("%s exited with %d, output %s%s, want %d, %s; requests %q, not found %q", command, got, stdout, stderr, code, want, r.requests, r.absent)
	}
}

// wantResources checks the resources of a set, and that it is complete.
func (r *recipe) wantResources(set, base string, want ...string) {
	r.t.Helper()
	page := hubtest.Get[struct {
		Complete  bool
		Resources []struct{ Loc string }
	}](r.t, r.hub.URL+"/sets/"+set+"/resources")
	var got []string
	for _, e := range page.Resources {
		got = append(got, strings.TrimPrefix(e.Loc, base))
	}
	if !page.Complete || !slices.Equal(got, want) {
		r.t.Errorf("resources of set %s = %q, complete %v, want %q", set, got, page.Complete, want)
	}
}

// checkRuns checks three runs of a recipe for OAI-PMH: the first; one without changes; and one in
// which the document identifiers-changed.xml at news updates, adds and deletes a record.
func (r *recipe) checkRuns(set, news, base string, before, after []string) {
	r.t.Helper()
	r.poll(0, "", "relayed to "+set+": 4 created, 0 updated, 0 deleted")
	r.wantResources(set, base, before...)
	r.poll(0, "", "relayed to "+set+": 0 created, 0 updated, 0 deleted")
	r.pages[news] = "identifiers-changed.xml"
	r.poll(0, "", "relayed to "+set+": 0 created, 2 updated, 1 deleted") // OAI-PMH does not distinguish new records
	r.wantResources(set, base, after...)
}

// tree returns the files below a directory.
func tree(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("got %[2]d files in %[1]s, %[3]v", dir, len(files), err)
	}
	return files
}

// TestRelayDSpace runs the recipes for DSpace: with OAI-PMH, and with the sitemap.
func TestRelayDSpace(t *testing.T) {
	t.Parallel()
	commands := recipes(t, "dspace.md")
	if len(commands) != 2 {
		t.Fatalf("got recipes %q, want 2", commands)
	}
	t.Run("oai", func(t *testing.T) {
		t.Parallel()
		const oai = "/server/oai/request?"
		s := serve(t, "dspace", map[string]string{
			oai + "verb=Identify":                                              "identify.xml",
			oai + "metadataPrefix=oai_dc&verb=ListIdentifiers":                 "identifiers.xml",
			oai + "resumptionToken=oai_dc%2F%2F%2F%2F100&verb=ListIdentifiers": "identifiers-100.xml",
			oai + "from=&metadataPrefix=oai_dc&verb=ListIdentifiers":           "identifiers-none.xml",
		})
		r := s.newRecipe(t, commands[0])
		const base = "https://dspace.example.com/handle/123456789/"
		r.poll(0, "", "relayed to theses: 4 created, 0 updated, 0 deleted")
		r.wantResources("theses", base, "3", "4", "7", "9")
		r.poll(0, "", "0 created, 0 updated, 0 deleted")
		s.pages[oai+"from=&metadataPrefix=oai_dc&verb=ListIdentifiers"] = "identifiers-changed.xml"
		r.poll(0, "", "relayed to theses: 0 created, 2 updated, 1 deleted") // OAI-PMH does not distinguish new records
		r.wantResources("theses", base, "12", "3", "4", "9")
	})
	t.Run("sitemap", func(t *testing.T) {
		t.Parallel()
		s := serve(t, "dspace", map[string]string{"/sitemap_index.xml": "sitemap_index.xml", "/sitemap0.xml": "sitemap0.xml"})
		r := s.newRecipe(t, commands[1])
		r.poll(0, "", "relayed to pages: 5 created, 0 updated, 0 deleted")
		r.poll(0, "", "relayed to pages: 0 created, 0 updated, 0 deleted")
		const one = "<url><loc>https://dspace.example.com/items/8d9c2c0a-1d5b-4f0e-9a77-5f4b8a2e1d03</loc><lastmod>2021-11-21T09:36:38.421Z</lastmod></url>\n"
		s.edit(one, "", "2025-01-15T06:00:01.004Z", "2025-03-01T00:00:00Z")
		r.poll(0, "", "relayed to pages: 0 created, 1 updated, 1 deleted")
		r.wantResources("pages", "https://dspace.example.com/", "collections/56ad1f1b-6a55-4a3b-a3f2-ec2a6d7a1c02", "communities/0f7e2a52-98b5-4f3e-8c7e-3f7f0b1d6a01",
			"entities/person/e6b0a6ac-2b9d-4c55-8d35-1b6f3f1f7b05", "items/a3c1f7de-77e1-4d8a-b1c5-2d1be90f4c04")
	})
}

// TestRelayInvenioRDM runs the recipe for InvenioRDM, which sends its errors with status 422: a first
// poll, one without changes, one with a change, an expired token, and a record that vanishes.
func TestRelayInvenioRDM(t *testing.T) {
	t.Parallel()
	const (
		list = "/oai2d?metadataPrefix=oai_dc&verb=ListIdentifiers"
		next = "/oai2d?resumptionToken=.eJwTOKEN.sig&verb=ListIdentifiers"
		news = "/oai2d?from=&metadataPrefix=oai_dc&verb=ListIdentifiers"
	)
	commands := recipes(t, "inveniordm.md")
	s := serve(t, "inveniordm", map[string]string{"/oai2d?verb=Identify": "identify.xml", list: "identifiers.xml", next: "identifiers-2.xml", news: "none-422.xml"})
	r := s.newRecipe(t, commands[0])
	const base = "https://rdm.example.com/records/"
	all := []string{"3x1ak-2bn61", "4c9qe-d1m07", "5p0hs-9ve32", "6zt8f-k4j28", "7m2yw-x8c10", "8b5dn-q7r94", "9e6gv-t3w57", "ah1jr-y0z83", "bk4cx-m6p19", "cn7tq-v2s45", "dq0wz-f8h62", "et3ke-j5g71"}
	r.poll(0, "", "relayed to records: 12 created, 0 updated, 0 deleted")
	r.wantResources("records", base, all...)
	r.poll(0, "", "relayed to records: 0 created, 0 updated, 0 deleted")
	s.pages[news] = "identifiers-changed.xml"
	r.poll(0, "", "relayed to records: 0 created, 1 updated, 0 deleted")
	all = append(all, "fw6pm-c1b34")
	r.wantResources("records", base, all...)
	s.once = map[string]string{next: "expired-422.xml"}
	s.pages[news], s.pages[next] = "none-422.xml", "identifiers-vanished.xml"
	r.poll(0, "-full 1ns", "the list was restarted: the repository answers badResumptionToken")
	r.wantResources("records", base, all...) // a comparison 20 hours later deletes the vanished record
}

// TestRelayWEKO3 runs the recipe for WEKO3, which sends its errors with status 422 and reports
// deleted records. The resources are the records.
func TestRelayWEKO3(t *testing.T) {
	t.Parallel()
	const news = "/oai?from=&metadataPrefix=jpcoar_1.0&verb=ListIdentifiers"
	s := serve(t, "weko3", map[string]string{
		"/oai?verb=Identify": "identify.xml",
		"/oai?metadataPrefix=jpcoar_1.0&verb=ListIdentifiers":     "identifiers.xml",
		"/oai?resumptionToken=.eJxTOKEN.sig&verb=ListIdentifiers": "identifiers-2.xml",
		news: "none-422.xml",
	})
	r := s.newRecipe(t, recipes(t, "weko3.md")[0])
	const base = "https://weko.example.com/oai?identifier=oai%3Aweko.example.com%3A"
	const end = "&metadataPrefix=jpcoar_1.0&verb=GetRecord"
	r.checkRuns("items", news, base,
		[]string{"00000012" + end, "00000013" + end, "00000014" + end, "00000020" + end},
		[]string{"00000012" + end, "00000013" + end, "00000020" + end, "00000021" + end})
}

// TestRelayDataverse runs the recipe for Dataverse, whose identifiers are persistent identifiers with
// slashes.
func TestRelayDataverse(t *testing.T) {
	t.Parallel()
	const news = "/oai?from=&metadataPrefix=oai_dc&verb=ListIdentifiers"
	s := serve(t, "dataverse", map[string]string{
		"/oai?verb=Identify":                                                         "identify.xml",
		"/oai?metadataPrefix=oai_dc&verb=ListIdentifiers":                            "identifiers.xml",
		"/oai?resumptionToken=b2Zmc2V0OjozfHByZWZpeDo6b2FpX2Rj&verb=ListIdentifiers": "identifiers-2.xml",
		news: "none.xml",
	})
	r := s.newRecipe(t, recipes(t, "dataverse.md")[0])
	const base = "https://dataverse.example.com/dataset.xhtml?persistentId=doi%3A10.5072%2FFK2%2F"
	r.checkRuns("datasets", news, base, []string{"4VTLPU", "ABCDEF", "WHO1AM", "XYZ789"}, []string{"ABCDEF", "NEW1ST", "WHO1AM", "XYZ789"})
}

// TestRelayHyrax runs the recipe for Hyrax, whose Change List has no datetimes, starts with the newest
// change, and does not name deleted works.
func TestRelayHyrax(t *testing.T) {
	t.Parallel()
	commands := recipes(t, "hyrax.md")
	s := serve(t, "hyrax", map[string]string{
		"/.well-known/resourcesync": "resourcesync.xml", "/capabilitylist": "capabilitylist.xml", "/resourcelist": "resourcelist.xml", "/changelist": "changelist.xml",
	})
	r := s.newRecipe(t, commands[0])
	const base = "http://hyrax.example.com/"
	r.poll(0, "", "relayed to works: 4 created, 0 updated, 0 deleted")
	r.poll(0, "", "0 created, 0 updated, 0 deleted")

	first := `  <url>
    <loc>http://hyrax.example.com/concern/file_sets/z890rt21k</loc>
    <lastmod>2024-05-03T09:10:12Z</lastmod>
    <rs:md change="created"/>`
	added := `  <url>
    <loc>http://hyrax.example.com/concern/generic_works/nn999</loc>
    <lastmod>2024-06-02T10:00:01Z</lastmod>
    <rs:md change="created"/>
  </url>
` + first
	s.edit(first, added, "2024-05-02T13:30:00Z", "2024-06-02T10:00:00Z") // one new and one changed work
	r.poll(0, "", "relayed to works: 1 created, 1 updated, 0 deleted")
	r.poll(0, "", "0 created, 0 updated, 0 deleted")
	r.wantResources("works", base, "collections/8k71nh08w", "concern/file_sets/z890rt21k", "concern/generic_works/3197xm04j", "concern/generic_works/kd17cs85n", "concern/generic_works/nn999")
}

// TestRelayOpenBIS runs the recipe for openBIS, whose documents are at URLs with queries, require a
// password, and have a port that their own URL lacks.
func TestRelayOpenBIS(t *testing.T) {
	t.Parallel()
	commands := recipes(t, "openbis.md")
	const service = "/datastore_server/re-sync/?verb="
	s := serve(t, "openbis", map[string]string{service + "about.xml": "about.xml", service + "capabilitylist.xml": "capabilitylist.xml", service + "resourcelist.xml": "resourcelist.xml"})
	s.user = "harvester:PASSWORD"
	r := s.newRecipe(t, commands[0])
	const base = "https://openbis.example.com:443/openbis/"
	r.poll(0, "", "relayed to lab: 5 created, 0 updated, 0 deleted")
	r.wantResources("lab", base, "DATA_SET/20260110093100789-18/M", "EXPERIMENT/20260110092910456-16/M", "MASTER_DATA/MASTER_DATA/M", "PROJECT/20260110092800123-15/M", "SAMPLE/20260110093012345-17/M")
	s.edit("2026-02-11T14:00:59Z", "2026-03-01T00:00:00Z")
	r.poll(0, "", "0 created, ") // the master data is updated if a second has passed
	if list := hubtest.Must(t, http.StatusOK, http.MethodGet, r.hub.URL+"/sets/lab/resources", nil, "Accept: application/json"); !strings.Contains(string(list.Body), "2026-03-01T00:00:00Z") {
		t.Errorf("got resources %s, want an updated sample", list.Body)
	}
	s.mu.Lock()
	s.user = "harvester:other"
	s.mu.Unlock()
	r.poll(3, "-full 1ns", "401")
	for _, file := range tree(t, r.state) {
		if b, err := os.ReadFile(file); err != nil || strings.Contains(string(b), "PASSWORD") {
			t.Errorf("file %s has the password, or %v", file, err)
		}
	}
	for _, e := range hubtest.ReadMemory(t, r.hub, "lab") {
		if strings.Contains(e.Text, "PASSWORD") || strings.Contains(e.Text, "harvester") {
			t.Errorf("change has the password: %s", e.Text)
		}
	}
}
