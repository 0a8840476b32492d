package outbound

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Whatever the reason of a failed TLS handshake, the text reports that the handshake failed.
func TestExplainTLS(t *testing.T) {
	for name, test := range map[string]struct {
		config *tls.Config
		known  bool // its certificate is trusted, so the failure has another reason
	}{
		"an unknown authority":   {&tls.Config{}, false},
		"TLS 1.1":                {&tls.Config{MaxVersion: tls.VersionTLS11}, true},
		"asks for a certificate": {&tls.Config{ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12}, true},
		"closes the connection":  {&tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, io.EOF }}, true},
		"shares no cipher suite": {&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_RSA_WITH_RC4_128_SHA}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			server.TLS, server.Config.ErrorLog = test.config, log.New(io.Discard, "", 0)
			server.StartTLS()
			defer server.Close()
			o := Options{Allow: loopback}
			if test.known {
				o.CAs = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
			}
			client := New(o)
			defer client.Close()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.RoundTrip(r)
			if err == nil {
				resp.Body.Close()
				t.Fatalf("got status %s, want TLS error", resp.Status)
			}
			if no := Explain(err); no.Text != "TLS handshake failed" || no.Outcome != TLS {
				t.Errorf("Explain(%v) = %+v", err, no)
			}
		})
	}
}

// A server that resets an HTTP/2 stream is not mistaken for one that does not use HTTP.
func TestExplainReset(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/later" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
		}
		panic(http.ErrAbortHandler)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	client := New(Options{Allow: loopback, CAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs})
	defer client.Close()
	for _, path := range []string{"/", "/later"} {
		t.Run(path, func(t *testing.T) {
			resp, err := client.HTTP().Get(server.URL + path)
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			if got, want := Explain(err).Text, "stream reset by the server (INTERNAL_ERROR)"; got != want {
				t.Errorf("Explain(%v) = %q, want %q", err, got, want)
			}
		})
	}
	if got, want := Explain(streamError{Code: 8}).Text, "stream reset by the server (CANCEL)"; got != want {
		t.Errorf("Explain(CANCEL) = %q, want %q", got, want)
	}
}
